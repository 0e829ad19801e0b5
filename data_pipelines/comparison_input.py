"""A task of comparisons as the batches that reward modelling takes."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from data_pipelines.example_reader import Features
from data_pipelines.inputs import Batch, Input


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two responses to a question.

    Attributes:
      first, second: the question with each response, as tokens.
      labels: the probability that the second is preferred, and whether each is supported and
        plausible; NaN where that is not known.
    """

    first: Int32[np.ndarray, " first"]
    second: Int32[np.ndarray, " second"]
    labels: Float32[np.ndarray, " 3"]

    @property
    def tokens(self) -> Int32[np.ndarray, " longer"]:
        """The longer of the two, which decides whether the pair fits."""
        return max(self.first, self.second, key=len)


@dataclasses.dataclass(frozen=True)
class ComparisonInput(Input):
    """One seqio task or mixture of comparisons as batches of pairs.

    A batch has what `gophercite.learning.reward.RewardLearner` reads, for the pairs of this
    process. Of `Input`'s attributes, `length` is that of a row, of which each response has its own,
    and `batch_size` counts pairs. Examples are drawn and shared out as there; a pair of which
    either response is longer than a row is dropped and counted.
    """

    pack: bool = dataclasses.field(default=False, init=False)
    share_beginnings: bool = dataclasses.field(default=False, init=False)

    def _example(self, features: Features) -> Any:
        return Pair(features["tokens"], features["second_tokens"], features["labels"])

    def _batch(self, rows: list[list[Any]]) -> Batch:
        pairs = len(rows)
        tokens = np.zeros((pairs, 2, self.length), np.int32)
        lengths = np.zeros((pairs, 2), np.int32)
        labels = np.full((pairs, 3), np.nan, np.float32)
        for number, row in enumerate(rows):
            for (pair,) in row:  # a segment of one, or none where the last batch is filled up
                labels[number] = pair.labels
                for side, response in enumerate((pair.first, pair.second)):
                    tokens[number, side, : len(response)] = response
                    lengths[number, side] = len(response)
        known = (~np.isnan(labels)).astype(np.float32)
        values = np.nan_to_num(labels)
        return {
            "tokens": tokens,
            "lengths": lengths,
            "preferred": values[:, 0],
            "preferred_weights": known[:, 0],
            "supported_and_plausible": values[:, 1:],
            "label_weights": known[:, 1:],
        }

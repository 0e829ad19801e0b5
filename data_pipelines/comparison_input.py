"""A task of comparisons as batches for reward modelling."""

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
        plausible; NaN for unknown labels.
    """

    first: Int32[np.ndarray, " first"]
    second: Int32[np.ndarray, " second"]
    labels: Float32[np.ndarray, " 3"]

    @property
    def tokens(self) -> Int32[np.ndarray, " longer"]:
        """The longer of the two, which determines whether the pair fits."""
        return max(self.first, self.second, key=len)


@dataclasses.dataclass(frozen=True)
class ComparisonInput(Input):
    """One seqio task or mixture of comparisons as batches of pairs.

    A batch has the arrays that `gophercite.learning.reward.RewardLearner` reads, for the pairs of
    this process. Among `Input`'s attributes, `length` is the length of a row; each response has its
    own row, and `batch_size` counts pairs. Examples are drawn and divided among processes as in
    `Input`; a pair with a response longer than a row is dropped and counted.
    """

    pack: bool = dataclasses.field(default=False, init=False)
    share_beginnings: bool = dataclasses.field(default=False, init=False)

    @property
    def trained_length(self) -> None:
        """None: rows are not prompts with answers."""
        return None

    def _example(self, features: Features) -> Any:
        return Pair(features["tokens"], features["second_tokens"], features["labels"])

    def _batch(self, rows: list[list[Any]]) -> Batch:
        pairs = len(rows)
        tokens = np.zeros((pairs, 2, self.length), np.int32)
        lengths = np.zeros((pairs, 2), np.int32)
        labels = np.full((pairs, 3), np.nan, np.float32)
        for number, row in enumerate(rows):
            for (pair,) in row:  # a segment of one, or none if the last batch is padded
                labels[number] = pair.labels
                for side, response in enumerate((pair.first, pair.second)):
                    tokens[number, side, : len(response)] = response
                    lengths[number, side] = len(response)
        is_known = (~np.isnan(labels)).astype(np.float32)
        values = np.nan_to_num(labels)
        return {
            "tokens": tokens,
            "lengths": lengths,
            "preferred": values[:, 0],
            "preferred_weights": is_known[:, 0],
            "supported_and_plausible": values[:, 1:],
            "label_weights": is_known[:, 1:],
        }

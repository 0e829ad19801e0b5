"""From comparisons to tokens: raters' decisions, the order of the two responses, the encoding."""

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping

import numpy as np
import seqio
import tensorflow as tf

from data_pipelines.features import SeqioVocabulary, plain_vocabulary
from data_pipelines.randomness import draws
from gophercite import records
from gophercite.browser.encoding import PREFIX_TOKENS, encode_judged_response
from gophercite.records import Comparison


def comparison_features(vocabulary: SeqioVocabulary) -> dict[str, seqio.Feature]:
    """Returns the features of a task of comparisons.

    `tokens` and `second_tokens` are the question with the first and with the second response;
    `labels` are the probability that the second is preferred, and whether each response is
    supported and plausible; unknown labels are NaN.
    """
    text = seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)
    numbers = seqio.PassThroughVocabulary(size=0)
    labels = seqio.Feature(numbers, add_eos=False, dtype=tf.float32)
    return {"tokens": text, "second_tokens": text, "labels": labels}


def settle(comparison: Comparison) -> Comparison:
    """Returns a comparison with the majority labels of its ratings, where it has none itself.

    A rating may contain `preferred` and `supported_and_plausible`, as a comparison does. If votes
    are tied, the lower label wins: 0 before 0.5 before 1, and false before true (GopherCite, C).
    Any other value counts as unsure and is not a vote.
    """
    preferred = comparison.preferred
    if preferred is None:
        preferred = _majority(
            (rating.get("preferred") for rating in comparison.ratings), (0, 0.5, 1)
        )
    first, second = (
        _majority((_of_side(rating, side) for rating in comparison.ratings), (False, True))
        if verdict is None
        else verdict
        for side, verdict in enumerate(comparison.supported_and_plausible)
    )
    return dataclasses.replace(
        comparison,
        preferred=None if preferred is None else float(preferred),
        supported_and_plausible=(
            None if first is None else bool(first),
            None if second is None else bool(second),
        ),
    )


def turn(comparison: Comparison) -> Comparison:
    """Returns a comparison with its responses in the other order."""
    preferred, verdicts = comparison.preferred, comparison.supported_and_plausible
    return dataclasses.replace(
        comparison,
        responses=comparison.responses[::-1],
        preferred=None if preferred is None else 1 - preferred,
        supported_and_plausible=verdicts[::-1],
    )


def keep_decided(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps the comparisons with a known preference or judgement, and settles them."""

    def settled(record: bytes) -> tuple[str, np.bool_]:
        comparison = settle(records.from_json(json.loads(record), Comparison))
        labels = (comparison.preferred, *comparison.supported_and_plausible)
        text = json.dumps(records.to_json(comparison), ensure_ascii=False)
        return text, np.bool_(any(label is not None for label in labels))

    def decide(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        types = (tf.string, tf.bool)
        record, known = tf.numpy_function(settled, [example["record"]], types, stateful=False)
        return {
            **example,
            "record": tf.ensure_shape(record, []),
            "known": tf.ensure_shape(known, []),
        }

    def without_mark(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: value for name, value in example.items() if name != "known"}

    return dataset.map(decide).filter(lambda example: example["known"]).map(without_mark)


def encode_comparisons(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    prefix_tokens: int = PREFIX_TOKENS,
) -> tf.data.Dataset:
    """Encodes comparisons; the order of the two responses is drawn again in every epoch.

    Args:
      dataset: comparisons.
      output_features: the task's features, whose vocabulary encodes.
      prefix_tokens: maximum tokens of a long answer's question and references.
    """
    vocabulary = plain_vocabulary(output_features)

    def encode(
        record: bytes, id: bytes, seed: np.int64
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        comparison = records.from_json(json.loads(record), Comparison)
        if draws(int(seed), "order", id.decode()).random() < 0.5:
            comparison = turn(comparison)
        first, second = (
            np.asarray(
                encode_judged_response(vocabulary, comparison.question, response, prefix_tokens),
                np.int32,
            )
            for response in comparison.responses
        )
        labels = (comparison.preferred, *comparison.supported_and_plausible)
        # None becomes NaN.
        return first, second, np.array(labels, np.float32)

    def encoded(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs = [example[name] for name in ("record", "id", "seed")]
        types = (tf.int32, tf.int32, tf.float32)
        first, second, labels = tf.numpy_function(encode, inputs, types, stateful=False)
        return {
            **example,
            "tokens": tf.ensure_shape(first, [None]),
            "second_tokens": tf.ensure_shape(second, [None]),
            "labels": tf.ensure_shape(labels, [3]),
        }

    return dataset.map(encoded)


def _majority(votes: Iterable[object], labels: tuple[float, ...]) -> float | None:
    """The label with the most votes; on a tie, the first of them; None without votes."""
    binary = isinstance(labels[0], bool)  # 1 is not a judgement, and true not a preference
    counts = collections.Counter(
        vote for vote in votes if isinstance(vote, bool) is binary and vote in labels
    )
    best = max(labels, key=lambda label: counts[label])
    return best if counts[best] else None


def _of_side(rating: Mapping[str, object], side: int) -> object:
    verdicts = rating.get("supported_and_plausible")
    return verdicts[side] if isinstance(verdicts, list) and len(verdicts) == 2 else None

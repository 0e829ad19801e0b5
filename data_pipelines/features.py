"""The features of this project's seqio tasks, and how they become the batches of `inputs.Input`.

A task's examples have `tokens` and `weights` (`packing.Example`), and `record`, the JSON from
which they were built. `DecoderFeatureConverter` packs them for users of seqio's own machinery;
`Input` packs the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from data_pipelines import packing
from gophercite.vocabularies import Vocabulary, load_vocabulary


class SeqioVocabulary(seqio.Vocabulary):
    """One of this project's vocabularies as a seqio vocabulary; its file is read when needed.

    Args:
      source: a vocabulary, or the folder or file of one.
    """

    def __init__(self, source: Vocabulary | str | Path) -> None:
        super().__init__()
        self._source = source
        self._loaded = source if isinstance(source, Vocabulary) else None

    @property
    def plain(self) -> Vocabulary:
        """The vocabulary itself, without TensorFlow."""
        if self._loaded is None:
            self._loaded = load_vocabulary(str(self._source))
        return self._loaded

    @property
    def bos_id(self) -> int | None:
        """Id of the beginning of sequence; None if the vocabulary has none."""
        return self.plain.bos_id

    @property
    def eos_id(self) -> int:
        """Id of the end of sequence."""
        return self.plain.eos_id

    @property
    def pad_id(self) -> int:
        """Id of padding."""
        return self.plain.pad_id

    @property
    def unk_id(self) -> int | None:
        """Id of the unknown token; None if the vocabulary has none."""
        return self.plain.unk_id

    @property
    def _base_vocab_size(self) -> int:
        return self.plain.size

    def _encode(self, s: str) -> Sequence[int]:
        return self.plain.encode(s)

    def _decode(self, ids: Iterable[int]) -> str:
        return self.plain.decode(ids)

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        def encode(text: bytes) -> np.ndarray:
            return np.asarray(self.plain.encode(text.decode("utf-8")), np.int32)

        tokens = tf.numpy_function(encode, [s], tf.int32, stateful=False)
        tokens.set_shape([None])
        return tokens

    def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
        def decode(tokens: np.ndarray) -> bytes:
            return self.plain.decode(tokens.tolist()).encode("utf-8")

        text = tf.numpy_function(decode, [ids], tf.string, stateful=False)
        text.set_shape([])
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeqioVocabulary) and (
            self._source == other._source or self.plain is other.plain
        )

    def __hash__(self) -> int:
        return hash(str(self._source))


def output_features(vocabulary: SeqioVocabulary) -> dict[str, seqio.Feature]:
    """Returns the features of tasks that train on texts."""
    return {
        "tokens": seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32),
        "weights": seqio.Feature(
            seqio.PassThroughVocabulary(size=0), add_eos=False, dtype=tf.float32
        ),
    }


def prompt_features(vocabulary: SeqioVocabulary) -> dict[str, seqio.Feature]:
    """Returns the features of tasks with only prompts."""
    return {"tokens": seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)}


def plain_vocabulary(output_features: Mapping[str, seqio.Feature]) -> Vocabulary:
    """Returns the vocabulary of a task's tokens.

    Raises:
      TypeError: it is not one of this project's.
    """
    vocabulary = output_features["tokens"].vocabulary
    if not isinstance(vocabulary, SeqioVocabulary):
        raise TypeError(
            f"the vocabulary of feature 'tokens' is a {type(vocabulary).__name__}; "
            "it must be a data_pipelines.features.SeqioVocabulary"
        )
    return vocabulary.plain


def to_example(features: Mapping[str, Any]) -> packing.Example:
    """Converts a task's example, as numpy arrays, to the form that packing takes."""
    return packing.Example(features["tokens"], features["weights"])


class DecoderFeatureConverter(seqio.FeatureConverter):
    """Packs a task's examples into rows of `tokens`, `targets`, `weights`, `positions`, `segments`.

    Examples that are longer than a row are dropped, and `report` counts them.

    Args:
      pack: False puts each example into a separate row.
      window: number of examples that are packed together.
    """

    TASK_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {
        "tokens": seqio.FeatureConverter.FeatureSpec(dtype=tf.int32),
        "weights": seqio.FeatureConverter.FeatureSpec(dtype=tf.float32),
    }
    MODEL_FEATURES: Mapping[str, seqio.FeatureConverter.FeatureSpec] = {
        name: seqio.FeatureConverter.FeatureSpec(dtype=tf.as_dtype(dtype))
        for name, dtype in packing.BATCH_FEATURES.items()
    }
    PACKING_FEATURE_DTYPES: Mapping[str, tf.dtypes.DType] = {}

    def __init__(self, pack: bool = True, window: int = 1024) -> None:
        # We count examples that are too long; seqio's check would stop the run.
        super().__init__(pack=pack, apply_length_check=False)
        self.report = packing.PackingReport()
        self._window = window

    def _convert_features(
        self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
    ) -> tf.data.Dataset:
        length = task_feature_lengths["tokens"]
        names = list(packing.BATCH_FEATURES)

        def pack(
            tokens: np.ndarray, weights: np.ndarray, sizes: np.ndarray
        ) -> tuple[np.ndarray, ...]:
            ends = np.cumsum(sizes)[:-1]
            examples = map(packing.Example, np.split(tokens, ends), np.split(weights, ends))
            groups = packing.group(examples, length, self.report, pack=self.pack)
            rows = packing.stack_rows(
                (packing.build_row(segments, length) for segments in groups), length
            )
            return tuple(rows[name] for name in names)

        def packed(batch: dict[str, tf.RaggedTensor]) -> dict[str, tf.Tensor]:
            tokens, weights = batch["tokens"], batch["weights"]
            flat = [tokens.flat_values, weights.flat_values, tokens.row_lengths()]
            types = [packing.BATCH_FEATURES[name] for name in names]
            rows = tf.numpy_function(pack, flat, types)
            return {
                name: tf.ensure_shape(feature, [None, length])
                for name, feature in zip(names, rows, strict=True)
            }

        task_features = ds.map(lambda example: {name: example[name] for name in self.TASK_FEATURES})
        return task_features.ragged_batch(self._window).map(packed).unbatch()

    def get_model_feature_lengths(self, task_feature_lengths: Mapping[str, int]) -> dict[str, int]:
        """Returns the length of each feature of a row, which is that of `tokens`."""
        return dict.fromkeys(packing.BATCH_FEATURES, task_feature_lengths["tokens"])

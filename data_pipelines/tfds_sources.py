"""TensorFlow Datasets as sources of records: `squad`, `natural_questions`, `trivia_qa` and others.

Nothing is read before a source is used, and nothing is ever downloaded: to train on a data set,
prepare it first (`tfds build`), because some take tens of gigabytes.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
import tensorflow_datasets as tfds

from data_pipelines.converters import gold, titles
from data_pipelines.converters.gold import BadRecord, GoldQuestion
from data_pipelines.converters.natural_questions import question_of_tokens
from data_pipelines.converters.trivia_qa import question_of_pages
from data_pipelines.converters.writing import ConversionSettings, to_records
from gophercite import records


@dataclass(frozen=True)
class TfdsDataset:
    """How one TFDS data set becomes records.

    Attributes:
      name: name, with the configuration if there are several.
      splits: the splits that have answers.
      select: picks, in TensorFlow, the dense features that `convert` takes.
      convert: builds the JSON object of a record, or raises `BadRecord`.
    """

    name: str
    splits: tuple[str, ...]
    select: Callable[[dict[str, Any]], list[tf.Tensor]]
    convert: Callable[..., dict[str, Any]]


class TfdsSource(seqio.DataSource):
    """A prepared TFDS data set as records, in the form of `data_pipelines.sources`.

    Examples whose documents prove none of their answers are left out.

    Args:
      dataset: the data set and its conversion.
      data_dir: folder used by `tfds build`; None for TFDS's own folder.
    """

    def __init__(self, dataset: TfdsDataset, data_dir: str | None = None) -> None:
        super().__init__(splits=dataset.splits, caching_permitted=False)
        self._dataset = dataset
        self._data_dir = data_dir

    @property
    def supports_arbitrary_sharding(self) -> bool:
        """False: TFDS shards by file."""
        return False

    def list_shards(self, split: str) -> Sequence[str]:
        """Returns the split itself as the only shard, so that hosts divide it by example."""
        return [split]

    def num_input_examples(self, split: str) -> int:
        """Returns the number of examples in a split before conversion."""
        return int(self.builder.info.splits[split].num_examples)

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused: object,
    ) -> tf.data.Dataset:
        """Returns one pass over a split; arguments as in `sources.NumberedSource.order`.

        Raises:
          FileNotFoundError: the data set is not prepared; the message says how to prepare it.
        """
        reading = tfds.ReadConfig(shuffle_seed=seed, add_tfds_id=True)
        raw = self.builder.as_dataset(split=split, shuffle_files=shuffle, read_config=reading)
        if shard_info is not None:
            raw = raw.shard(shard_info.num_shards, shard_info.index)
        # An empty text means that the example gave no record.
        return raw.map(
            lambda example: {
                "record": self._record(example),
                "id": example["tfds_id"],
                "seed": tf.constant(seed or 0, tf.int64),
            }
        ).filter(lambda example: tf.strings.length(example["record"]) > 0)

    def _record(self, example: dict[str, Any]) -> tf.Tensor:
        def convert(*features: np.ndarray) -> bytes:
            try:
                return json.dumps(self._dataset.convert(*map(_plain, features))).encode()
            except BadRecord:
                return b""

        selected = self._dataset.select(example)
        record = tf.numpy_function(convert, selected, tf.string, stateful=False)
        return tf.ensure_shape(record, [])

    @functools.cached_property
    def builder(self) -> tfds.core.DatasetBuilder:
        """TFDS's object for the data set.

        Raises:
          FileNotFoundError: it is not prepared; the message says which command prepares it.
        """
        builder = tfds.builder(self._dataset.name, data_dir=self._data_dir)
        if not builder.is_prepared():
            where = f" --data_dir {self._data_dir}" if self._data_dir else ""
            raise FileNotFoundError(
                f"data set {self._dataset.name!r} is not prepared in {builder.data_dir}; "
                f"`tfds build {self._dataset.name}{where}` downloads and prepares it"
            )
        return builder


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if value.dtype == object:
        return [text.decode("utf-8") for text in value.tolist()]
    return value.tolist()


def _rated_answer(question: GoldQuestion, source: str) -> dict[str, Any]:
    _, answer = to_records(question, (question.document,), source, ConversionSettings())
    if answer is None:
        raise BadRecord("no sentence contains the answer")
    try:
        records.from_json(records.to_json(answer), records.RatedAnswer)
    except records.RecordError as error:
        raise BadRecord(str(error)) from None
    return records.to_json(answer)


def _convert_squad(
    name: str, title: str, context: str, question: str, answers: list[str], starts: list[int]
) -> dict[str, Any]:
    document = gold.document_of("squad", titles.readable(title), context)
    best = gold.distinct(answers)
    if not best:
        raise BadRecord("the question has no answer")
    places = zip(answers, starts, strict=True)
    answer, start = next((a, s) for a, s in places if gold.distinct([a]) == best[:1])
    span = gold.normalised_span(context, start, answer)
    return _rated_answer(GoldQuestion(name, question, document, title, best, span), "squad")


def _convert_natural_questions(
    name: str,
    title: str,
    tokens: list[str],
    is_html: list[bool],
    question: str,
    long_answers: list[list[int]],
    short_starts: list[list[int]],
    short_ends: list[list[int]],
) -> dict[str, Any]:
    annotations = zip(long_answers, short_starts, short_ends, strict=True)
    item = question_of_tokens(
        name, question, title, list(zip(tokens, is_html, strict=True)), annotations
    )
    return _rated_answer(item, "natural_questions")


def _convert_trivia_qa(
    name: str,
    question: str,
    value: str,
    aliases: list[str],
    page_titles: list[str],
    contexts: list[str],
) -> dict[str, Any]:
    pages = zip(page_titles, contexts, strict=True)
    return _rated_answer(question_of_pages(name, question, value, aliases, pages), "trivia_qa")


def _convert_natural_questions_open(question: str, answers: list[str]) -> dict[str, Any]:
    return _open_question("natural_questions_open", question, question, answers)


def _convert_asqa(number: int, question: str, long_answers: list[str]) -> dict[str, Any]:
    return _open_question("asqa", f"asqa-{number}", question, long_answers)


def _open_question(source: str, id: str, question: str, answers: list[str]) -> dict[str, Any]:
    accepted = gold.distinct(answers)
    if not accepted:
        raise BadRecord("the question has no answer")
    return records.to_json(records.Question(id, question, source, (), accepted))


def _select_natural_questions(example: dict[str, Any]) -> list[tf.Tensor]:
    annotations, tokens = example["annotations"], example["document"]["tokens"]
    long_answer, short = annotations["long_answer"], annotations["short_answers"]
    return [
        example["id"],
        example["document"]["title"],
        tokens["token"],
        tokens["is_html"],
        example["question"]["text"],
        tf.stack([long_answer["start_token"], long_answer["end_token"]], axis=-1),
        short["start_token"].to_tensor(-1),
        short["end_token"].to_tensor(-1),
    ]


DATASETS: Mapping[str, TfdsDataset] = {
    "squad": TfdsDataset(
        "squad/v1.1",
        ("train", "validation"),
        lambda e: [
            e["id"],
            e["title"],
            e["context"],
            e["question"],
            e["answers"]["text"],
            e["answers"]["answer_start"],
        ],
        _convert_squad,
    ),
    "natural_questions": TfdsDataset(
        "natural_questions/default",
        ("train", "validation"),
        _select_natural_questions,
        _convert_natural_questions,
    ),
    "natural_questions_open": TfdsDataset(
        "natural_questions_open",
        ("train", "validation"),
        lambda e: [e["question"], e["answer"]],
        _convert_natural_questions_open,
    ),
    "asqa": TfdsDataset(
        "asqa",
        ("train", "dev"),
        lambda e: [e["sample_id"], e["ambiguous_question"], e["annotations"]["long_answer"]],
        _convert_asqa,
    ),
    "trivia_qa": TfdsDataset(
        "trivia_qa/rc",
        ("train", "validation"),
        lambda e: [
            e["question_id"],
            e["question"],
            e["answer"]["value"],
            e["answer"]["aliases"],
            e["entity_pages"]["title"],
            e["entity_pages"]["wiki_context"],
        ],
        _convert_trivia_qa,
    ),
}

"""Supervised fine-tuning on a folder of one's own rated answers, which nobody has split.

What is held out is decided by the question: records of one question never stand on both sides, and
those that are there stay on theirs when more are added.
"""

import dataclasses
import functools
import json
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from etils import epath

from data_pipelines import preprocessors, tasks
from data_pipelines.sources import JsonLinesSource
from gophercite import records
from gophercite.storage import files_in
from gophercite.vocabularies import Vocabulary

_SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclasses.dataclass(frozen=True)
class OwnFiles:
    """The files of a folder.

    Attributes:
      train: what is trained on, and what is held out of it where `validation` is empty.
      validation: files whose name has "validation" in it.
    """

    train: tuple[epath.Path, ...]
    validation: tuple[epath.Path, ...]


def find_files(folder: str | Path) -> OwnFiles:
    """Finds the files of records in a folder, not in those below it.

    Args:
      folder: or one file; on a disk or in a bucket.

    Returns:
      The files, by name.

    Raises:
      FileNotFoundError: there is no such folder.
      ValueError: it holds no such file but those for validation.
    """
    root = epath.Path(folder)
    if not root.exists():
        raise FileNotFoundError(f"{folder}: there is no such folder of records")
    inside = files_in(root) if root.is_dir() else [root]
    files = [path for path in inside if path.is_file() and path.name.endswith(_SUFFIXES)]
    held_out = tuple(path for path in files if "validation" in path.name)
    train = tuple(path for path in files if path not in held_out)
    if not train:
        raise ValueError(
            f"{folder}: has no file of records to train on, that is none whose name ends with "
            f"{' or '.join(_SUFFIXES)} and doesn't have 'validation' in it"
        )
    return OwnFiles(train, held_out)


class OwnRecordsSource(JsonLinesSource):
    """Rated answers of a folder, split by question.

    Args:
      folder: with the files, or one file.
      held_out: which share of the questions is held out, if no file is there for validation; at
        least one question is.

    Raises:
      FileNotFoundError, ValueError: as `find_files`; or the share is not between 0 and 1.
    """

    def __init__(self, folder: str | Path, held_out: float = 0.1) -> None:
        if not 0 < held_out < 1:
            raise ValueError(f"add_own_records.held_out = {held_out}: must be between 0 and 1")
        files = find_files(folder)
        self._share = 0.0 if files.validation else held_out
        whole = {"train": files.train, "validation": files.validation or files.train}
        super().__init__(whole, records.RatedAnswer)

    def _read_split(self, split: str) -> tuple[list[tuple[str, str]], records.Report]:
        lines, report = super()._read_split(split)
        if not self._share:
            return lines, report
        # A number from 0 to 1 for each question, that depends on nothing else.
        places = [zlib.crc32(json.loads(text)["question_id"].encode()) / 2**32 for _, text in lines]
        limit = max(self._share, min(places))
        mine = [(place <= limit) == (split == "validation") for place in places]
        chosen = [line for line, is_mine in zip(lines, mine, strict=True) if is_mine]
        if not chosen:
            raise ValueError(
                f"all {len(lines)} good records are of one question, so that nothing is left to "
                "train on when it is held out: add others, or a file with 'validation' in its name"
            )
        return chosen, report


def add_own_records(
    name: str,
    folder: str | Path,
    vocabulary: Vocabulary | str | Path,
    *,
    held_out: float = 0.1,
    prompt_weight: float = 0.0,
) -> str:
    """Registers supervised fine-tuning on the rated answers of a folder.

    An answer is used unless it is rated as not plausible or not supported: who writes answers to
    learn from need not rate them.

    Args:
      name: of the task; an earlier task of this name is replaced.
      folder: its files `*.jsonl` and `*.jsonl.gz`; those with "validation" in their name are held
        out, and where there are none, a share of the questions.
      vocabulary: a vocabulary, or the folder or file of one.
      held_out: that share.
      prompt_weight: weight of the prompt's tokens in the loss.

    Returns:
      `name`, for `MIXTURE_OR_TASK_NAME`.

    Raises:
      FileNotFoundError, ValueError: there is nothing to train on.
    """
    encode = functools.partial(preprocessors.encode_rated_answers, prompt_weight=prompt_weight)
    source = OwnRecordsSource(folder, held_out)
    return tasks.register(name, source, [keep_not_rated_bad, encode], vocabulary)


def keep_not_rated_bad(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps the rated answers that nobody rated as not plausible or not supported."""

    def good(record: bytes) -> np.bool_:
        return np.bool_(not is_rated_bad(json.loads(record)))

    return dataset.filter(
        lambda example: tf.ensure_shape(
            tf.numpy_function(good, [example["record"]], tf.bool, stateful=False), []
        )
    )


def is_rated_bad(answer: dict[str, object]) -> bool:
    """Whether a rated answer, as JSON, is rated as not plausible or not supported."""
    return answer.get("plausible") is False or answer.get("supported") is False

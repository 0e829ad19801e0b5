"""Supervised fine-tuning on a folder of your own rated answers, without predefined splits.

What is held out depends only on the question: the records of one question are always on the same
side, and existing records stay on their side when more are added. There is one exception. If a set
is so small that no question with a usable answer falls into the share to hold out, the closest
question with such an answer is held out, too, until there are others.
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
      train: training files. If `validation` is empty, a part of their records is held out.
      validation: files with "validation" in their name.
    """

    train: tuple[epath.Path, ...]
    validation: tuple[epath.Path, ...]


def find_files(folder: str | Path) -> OwnFiles:
    """Finds the files of records in a folder, but not in subfolders.

    Args:
      folder: a folder or one file; on a disk or in a bucket.

    Returns:
      The files, by name.

    Raises:
      FileNotFoundError: there is no such folder.
      ValueError: it contains no such files, or only validation files.
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
            f"{folder}: has no file of records to train on; expected one whose name ends with "
            f"{' or '.join(_SUFFIXES)} and doesn't contain 'validation'"
        )
    return OwnFiles(train, held_out)


class OwnRecordsSource(JsonLinesSource):
    """The rated answers of a folder, split by question.

    Args:
      folder: the folder with the files, or one file.
      held_out: share of the questions to hold out if there is no validation file. At least one
        question is held out; it has an answer that nobody rated as bad, if any question has.

    Raises:
      FileNotFoundError, ValueError: as `find_files`; or the share is not between 0 and 1.
    """

    def __init__(self, folder: str | Path, held_out: float = 0.1) -> None:
        if not 0 < held_out < 1:
            raise ValueError(f"add_own_records.held_out = {held_out}: must be between 0 and 1")
        files = find_files(folder)
        self._share = 0.0 if files.validation else held_out
        self._nearest_only = False
        whole = {"train": files.train, "validation": files.validation or files.train}
        super().__init__(whole, records.RatedAnswer)

    def warning(self, split: str) -> str | None:
        """Returns a warning about the held-out records, for their split; None if there is none."""
        self.count(split)
        if split != "validation" or not self._nearest_only:
            return None
        return (
            f"only one question is held out, as a share of {self._share} would hold out none; "
            "it may move to the training split when you add records"
        )

    def _read_split(self, split: str) -> tuple[list[tuple[str, str]], records.Report]:
        lines, report = super()._read_split(split)
        if not self._share:
            return lines, report
        answers = [json.loads(text) for _, text in lines]
        # A number from 0 to 1 that depends only on the question.
        places = [zlib.crc32(answer["question_id"].encode()) / 2**32 for answer in answers]
        usable = [p for p, each in zip(places, answers, strict=True) if not is_rated_bad(each)]
        nearest = min(usable or places)  # at least one question
        of_split = [
            (place <= self._share or place == nearest) == (split == "validation")
            for place in places
        ]
        self._nearest_only = nearest > self._share
        chosen = [line for line, is_mine in zip(lines, of_split, strict=True) if is_mine]
        if not chosen:
            raise ValueError(
                f"all {len(lines)} good records belong to one question, so nothing is left to "
                "train on when it is held out: add other questions, or a file with 'validation' "
                "in its name"
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

    An answer is used unless it is rated as not plausible or not supported: if you write answers to
    train on, you need not rate them.

    Args:
      name: name of the task; an earlier task with this name is replaced.
      folder: the folder with `*.jsonl` and `*.jsonl.gz` files. Files with "validation" in their
        name are held out; if there are none, a share of the questions is held out.
      vocabulary: a vocabulary, or the folder or file of one.
      held_out: the share of the questions to hold out if there are no validation files.
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

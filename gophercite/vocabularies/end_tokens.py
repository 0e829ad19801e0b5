"""The tokens that end a published model's answer: `eos_token_id` in the files next to it.

A tokenizer names one end of sequence. A model that was trained on conversations writes another, the
end of its turn, and its configuration lists both.
"""

import json
import pathlib

from gophercite.storage.json_fields import describe
from gophercite.vocabularies.tokenizer_config import read_object
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

GENERATION_NAME = "generation_config.json"

_FIELD = "eos_token_id"
_NAMES = (GENERATION_NAME, "config.json")  # the first one that has the field counts


def read_end_tokens(folder: pathlib.Path) -> tuple[int, ...]:
    """The ids that end an answer, as listed in a folder's configuration; empty if it lists none.

    Args:
      folder: a checkpoint's folder, or one written by `write_end_tokens`.

    Raises:
      VocabularyError: a file is not JSON, or the field is not valid; the message names the file.
    """
    for name in _NAMES:
        value = read_object(folder / name).get(_FIELD)
        if value is not None:
            ids = value if isinstance(value, list) else [value]
            if not all(type(id) is int and id >= 0 for id in ids):
                raise VocabularyError(
                    f"{folder / name}: field {_FIELD!r}: expected a token's id or a list of them, "
                    f"got {describe(value)}"
                )
            return tuple(ids)
    return ()


def check_end_tokens(vocabulary: Vocabulary, rows: int) -> None:
    """Checks the tokens that end an answer against a model.

    Args:
      vocabulary: the tokenizer; without the model it can't know about tokens that it doesn't spell.
      rows: number of rows in the model's embedding.

    Raises:
      VocabularyError: one of them has no row.
    """
    if (last := max(vocabulary.other_eos_ids, default=0)) >= rows:
        raise VocabularyError(
            f"{_FIELD} names token {last}, but the embedding has only {rows} rows: correct it in "
            f"{' or '.join(_NAMES)}"
        )


def end_tokens(vocabulary: Vocabulary) -> int | list[int]:
    """The value of `eos_token_id` in a model's configuration: one id, or several."""
    several = [vocabulary.eos_id, *vocabulary.other_eos_ids]
    return several if vocabulary.other_eos_ids else vocabulary.eos_id


def write_end_tokens(folder: pathlib.Path, vocabulary: Vocabulary) -> None:
    """Writes `generation_config.json` if a vocabulary has several ends; the folder must exist."""
    if vocabulary.other_eos_ids:
        content = json.dumps({_FIELD: end_tokens(vocabulary)})
        (folder / GENERATION_NAME).write_text(content, "utf-8")

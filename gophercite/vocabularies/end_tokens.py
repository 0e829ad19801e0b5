"""The tokens that end a published model's answer: `eos_token_id` of the files beside it.

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
_NAMES = (GENERATION_NAME, "config.json")  # the first that says it


def read_end_tokens(folder: pathlib.Path) -> tuple[int, ...]:
    """The ids that end an answer, as a folder's configuration lists them; none where it does not.

    Args:
      folder: a checkpoint's, or one that `write_end_tokens` wrote to.

    Raises:
      VocabularyError: a file is no JSON, or the field holds something else; the message names it.
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


def end_tokens(vocabulary: Vocabulary) -> int | list[int]:
    """What `eos_token_id` is in the configuration of a model: one id, or several."""
    several = [vocabulary.eos_id, *vocabulary.other_eos_ids]
    return several if vocabulary.other_eos_ids else vocabulary.eos_id


def write_end_tokens(folder: pathlib.Path, vocabulary: Vocabulary) -> None:
    """Writes `generation_config.json` where a vocabulary has several ends; the folder exists."""
    if vocabulary.other_eos_ids:
        content = json.dumps({_FIELD: end_tokens(vocabulary)})
        (folder / GENERATION_NAME).write_text(content, "utf-8")

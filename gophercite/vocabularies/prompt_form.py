"""How a model's prompts are laid out: `prompt.json`, next to its tokenizer like a chat template.

A folder without the file is that of a model whose prompts have the question after the pages only,
as GopherCite's do.
"""

import json
import pathlib

from gophercite.storage.json_fields import describe
from gophercite.vocabularies.tokenizer_config import read_object
from gophercite.vocabularies.vocabulary import VocabularyError

FORM_NAME = "prompt.json"
_FIELD = "question_first"


def read_question_first(folder: pathlib.Path) -> bool | None:
    """Whether a model's prompts begin with the question; None if there is no `prompt.json`.

    Args:
      folder: the tokenizer's folder, or that of adapters.

    Raises:
      VocabularyError: the file is not JSON, or says something that this version doesn't know; the
        message names the file and the field.
    """
    path = folder / FORM_NAME
    if not path.exists():
        return None
    value = read_object(path)
    for name in value:
        if name != _FIELD:
            raise VocabularyError(
                f"{path}: field {name!r} is not known to this version: the model may have been "
                "trained with prompts of another form"
            )
    first = value.get(_FIELD)
    if not isinstance(first, bool):
        raise VocabularyError(
            f"{path}: field {_FIELD!r}: expected true or false, got {describe(first)}"
        )
    return first


def write_question_first(folder: pathlib.Path, question_first: bool) -> None:
    """Writes `prompt.json`; the folder must exist."""
    (folder / FORM_NAME).write_text(json.dumps({_FIELD: question_first}) + "\n", "utf-8")

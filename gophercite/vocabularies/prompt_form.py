"""What a model's prompts were like in training: `prompt.json`, next to its tokenizer.

A folder without the file is that of a model whose prompts have the question after the pages only,
as GopherCite's do, whose length in training isn't known, and which show one page each.
"""

import json
import pathlib
from typing import Any, NamedTuple

from gophercite.storage.json_fields import describe
from gophercite.vocabularies.tokenizer_config import read_object
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

FORM_NAME = "prompt.json"


class PromptForm(NamedTuple):
    """What `prompt.json` says; the attributes of the same names in `Vocabulary` hold it."""

    question_first: bool = False
    trained_length: int | None = None
    several_pages: bool = False

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "PromptForm":
        """The form of a model's prompts."""
        return cls(vocabulary.question_first, vocabulary.trained_length, vocabulary.several_pages)

    def give(self, vocabulary: Vocabulary) -> None:
        """Makes it the form of a model's prompts."""
        vocabulary.question_first, vocabulary.trained_length, vocabulary.several_pages = self

    def write(self, folder: pathlib.Path) -> None:
        """Writes `prompt.json`; the folder must exist."""
        usual = PromptForm()._asdict()
        fields = {name: value for name, value in self._asdict().items() if value != usual[name]}
        (folder / FORM_NAME).write_text(json.dumps(fields) + "\n", "utf-8")


def read_prompt_form(folder: pathlib.Path) -> PromptForm | None:
    """Reads `prompt.json`; None if there is none.

    Args:
      folder: the tokenizer's folder, or that of adapters.

    Raises:
      VocabularyError: the file is not JSON, or says something that this version doesn't know; the
        message names the file and the field.
    """
    path = folder / FORM_NAME
    if not path.exists():
        return None
    fields = read_object(path)
    for name in fields:
        if name not in PromptForm._fields:
            raise VocabularyError(
                f"{path}: field {name!r} is not known to this version: the model may have been "
                "trained with prompts of another form"
            )
    form = PromptForm(**fields)
    for name in ("question_first", "several_pages"):
        value = getattr(form, name)
        if not isinstance(value, bool):
            raise _wrong(path, name, "true or false", value)
    length = form.trained_length
    if length is not None and (type(length) is not int or length < 1):
        raise _wrong(path, "trained_length", "a positive number of tokens", length)
    return form


def _wrong(path: pathlib.Path, field: str, expected: str, value: Any) -> VocabularyError:
    return VocabularyError(f"{path}: field {field!r}: expected {expected}, got {describe(value)}")

"""The files next to a tokenizer: the names of its special tokens, and a chat template."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from gophercite.storage.json_fields import decode_json, describe
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

CONFIG_NAME = "tokenizer_config.json"
TEMPLATE_NAME = "chat_template.jinja"

# The class of `transformers` that reads any `tokenizer.json` as it is.
_CLASS = "PreTrainedTokenizerFast"


class SpecialTokens(NamedTuple):
    """The special tokens in `tokenizer_config.json`; None for those that it does not give.

    Attributes:
      eos_token, bos_token, pad_token: their names.
      add_bos_token: whether texts begin with `bos_token`.
    """

    eos_token: str | None = None
    bos_token: str | None = None
    pad_token: str | None = None
    add_bos_token: bool | None = None


def read_special_tokens(folder: pathlib.Path) -> SpecialTokens:
    """Reads the special tokens that `tokenizer_config.json` names.

    Args:
      folder: the tokenizer's folder; the file may be missing.

    Raises:
      VocabularyError: the file is not JSON, or a field has the wrong type.
    """
    config = read_object(folder / CONFIG_NAME)
    names: dict[str, str | None] = {}
    for field in ("eos_token", "bos_token", "pad_token"):
        token = config.get(field)
        name = token.get("content") if isinstance(token, dict) else token  # may be an object
        if name is not None and not isinstance(name, str):
            raise _wrong(folder, field, "the name of a token", token)
        names[field] = name
    flag = config.get("add_bos_token")
    if flag is not None and not isinstance(flag, bool):
        raise _wrong(folder, "add_bos_token", "true, false or null", flag)
    return SpecialTokens(**names, add_bos_token=flag)


def read_chat_template(folder: pathlib.Path) -> str | None:
    """Reads a tokenizer's chat template, from its own file or from the configuration.

    Args:
      folder: the tokenizer's folder.

    Returns:
      The template; if there are several, the one named `default`. None if there is none.

    Raises:
      VocabularyError: the file is not text, or the field is not a template.
    """
    path = folder / TEMPLATE_NAME
    if path.exists():
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise VocabularyError(f"{path}: is not text in UTF-8 ({error})") from None
    template = read_object(folder / CONFIG_NAME).get("chat_template")
    if isinstance(template, list):  # a list of objects with names
        if not all(isinstance(each, dict) and type(each.get("name")) is str for each in template):
            raise _wrong(folder, "chat_template", "a template, or a list of named ones", template)
        named = {each["name"]: each for each in template}
        template = named.get("default", {}).get("template")
    if template is not None and not isinstance(template, str):
        raise _wrong(folder, "chat_template", "a template", template)
    return template


def write_config(
    folder: str | os.PathLike[str], name_of: Callable[[int], str | None], vocabulary: Vocabulary
) -> None:
    """Writes `tokenizer_config.json`, and the chat template if there is one.

    Args:
      folder: an existing folder.
      name_of: returns a token's name.
      vocabulary: the vocabulary whose special tokens are named.
    """
    folder = pathlib.Path(folder)
    config: dict[str, Any] = {
        "tokenizer_class": _CLASS,
        "clean_up_tokenization_spaces": False,
        "eos_token": name_of(vocabulary.eos_id),
    }
    if vocabulary.pad_id != vocabulary.eos_id:
        config["pad_token"] = name_of(vocabulary.pad_id)
    if vocabulary.unk_id is not None:
        config["unk_token"] = name_of(vocabulary.unk_id)
    if vocabulary.bos_id is not None:
        config["bos_token"] = name_of(vocabulary.bos_id)
    config["add_bos_token"] = vocabulary.bos_id is not None
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=1, ensure_ascii=False), "utf-8")
    if vocabulary.chat_template is not None:
        (folder / TEMPLATE_NAME).write_text(vocabulary.chat_template, "utf-8")


def _wrong(folder: pathlib.Path, field: str, expected: str, value: object) -> VocabularyError:
    return VocabularyError(
        f"{folder / CONFIG_NAME}: field {field!r}: expected {expected}, got {describe(value)}"
    )


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Reads the object in a JSON file next to a tokenizer; empty if there is no such file.

    Raises:
      VocabularyError: the file holds something else.
    """
    if not path.exists():
        return {}
    try:
        value = decode_json(path.read_text("utf-8"))
    except OSError as error:
        raise VocabularyError(f"{path}: can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{path}: can't be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise VocabularyError(f"{path}: expected an object, got {describe(value)}")
    return value

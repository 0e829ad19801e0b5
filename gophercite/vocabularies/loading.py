"""Loads a vocabulary, detecting its kind from the files."""

import os
import pathlib

from gophercite.storage import is_remote, local_copy
from gophercite.vocabularies import hugging_face
from gophercite.vocabularies.end_tokens import read_end_tokens
from gophercite.vocabularies.listing import MODEL_NAMES, check_listing, write_listing
from gophercite.vocabularies.prompt_form import PromptForm, read_prompt_form
from gophercite.vocabularies.tokenizer_config import read_chat_template
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

# The names that a folder is searched for, in this order.
_NAMES = (*MODEL_NAMES, hugging_face.FILE_NAME)
_OF_MODEL = "vocabulary"  # the folder in a model's folder


def load_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Loads the vocabulary in a folder or file.

    Args:
      path: a SentencePiece `.model` file, a Hugging Face `tokenizer.json`, a folder with one, or a
        model's folder; on a disk or in a bucket.

    Raises:
      FileNotFoundError: when there is none.
      VocabularyError: when it can't be used, or its files are not those that were saved
        (`listing`); the message names the file and the reason.
    """
    if not is_remote(path):
        return _load(pathlib.Path(path))
    with local_copy(path) as copied:
        try:
            return _load(copied)
        except VocabularyError as error:
            raise VocabularyError(str(error).replace(os.fspath(copied), os.fspath(path))) from error


def _load(path: pathlib.Path) -> Vocabulary:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such vocabulary, neither file nor folder")
    if (path / _OF_MODEL).is_dir() and not any((path / name).exists() for name in _NAMES):
        path = path / _OF_MODEL
    check_listing(path if path.is_dir() else path.parent)
    if path.is_dir():
        vocabulary = _load_folder(path)
        vocabulary.chat_template = read_chat_template(path)
        (read_prompt_form(path) or PromptForm()).give(vocabulary)
        vocabulary.end_by(read_end_tokens(path))
        return vocabulary
    if path.suffix == ".json":
        return hugging_face.HuggingFaceVocabulary.from_file(path)
    if path.suffix == ".model":
        return _read_sentence_piece(path)
    raise VocabularyError(
        f"{path}: expected a SentencePiece .model file, a tokenizer.json, or a folder with one"
    )


def renew_vocabulary(folder: str | os.PathLike[str]) -> None:
    """Accepts a vocabulary's files as they are now, and lists them with their digests.

    Args:
      folder: the vocabulary's folder.

    Raises:
      FileNotFoundError: when there is none.
      VocabularyError: when it can't be used; the list then stays unchanged.
    """
    folder = pathlib.Path(folder)
    _load_folder(folder).end_by(read_end_tokens(folder))
    read_chat_template(folder)
    read_prompt_form(folder)
    write_listing(folder)


def _load_folder(folder: pathlib.Path) -> Vocabulary:
    for name in MODEL_NAMES:
        if (folder / name).exists():
            return _read_sentence_piece(folder / name)
    if (folder / hugging_face.FILE_NAME).exists():
        return hugging_face.HuggingFaceVocabulary.from_file(folder / hugging_face.FILE_NAME)
    raise FileNotFoundError(
        f"{folder}: the folder holds no vocabulary (one of {', '.join(_NAMES)})"
    )


def _read_sentence_piece(path: pathlib.Path) -> Vocabulary:
    from gophercite.vocabularies import sentence_piece  # protobuf takes a while to import

    return sentence_piece.SentencePieceVocabulary.from_file(path)

"""Finding out which kind of vocabulary a path holds."""

import os
import pathlib

from gophercite.vocabularies import hugging_face, sentence_piece
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

# What a folder is searched for, in this order; `tokenizer.model` is Llama's and Gemma's name.
_SENTENCE_PIECE_NAMES = (sentence_piece.FILE_NAME, "tokenizer.model", "spiece.model")


def load_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Loads the vocabulary in a folder or file.

    Args:
      path: a SentencePiece `.model` file, a Hugging Face `tokenizer.json`, or a folder with one.

    Raises:
      FileNotFoundError: when there is none.
      VocabularyError: when it cannot be used; the message names the file and the reason.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such vocabulary, neither file nor folder")
    if path.is_dir():
        for name in _SENTENCE_PIECE_NAMES:
            if (path / name).exists():
                return sentence_piece.SentencePieceVocabulary.from_file(path / name)
        if (path / hugging_face.FILE_NAME).exists():
            return hugging_face.HuggingFaceVocabulary.from_file(path / hugging_face.FILE_NAME)
        names = ", ".join((*_SENTENCE_PIECE_NAMES, hugging_face.FILE_NAME))
        raise FileNotFoundError(f"{path}: the folder holds no vocabulary (one of {names})")
    if path.suffix == ".json":
        return hugging_face.HuggingFaceVocabulary.from_file(path)
    if path.suffix == ".model":
        return sentence_piece.SentencePieceVocabulary.from_file(path)
    raise VocabularyError(
        f"{path}: expected a SentencePiece .model file, a tokenizer.json, or a folder with one"
    )

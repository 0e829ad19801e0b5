"""Tokenizers behind one plain class, which also gives each token's exact bytes.

`load_vocabulary` reads SentencePiece models and Hugging Face `tokenizer.json`; nothing here needs
TensorFlow or JAX. The seqio adapter is in `data_pipelines`.
"""

from typing import TYPE_CHECKING, Any

from gophercite.vocabularies.hugging_face import HuggingFaceVocabulary
from gophercite.vocabularies.loading import load_vocabulary
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

if TYPE_CHECKING:
    from gophercite.vocabularies.sentence_piece import SentencePieceVocabulary
    from gophercite.vocabularies.training import train_sentencepiece

__all__ = [
    "HuggingFaceVocabulary",
    "SentencePieceVocabulary",
    "Vocabulary",
    "VocabularyError",
    "load_vocabulary",
    "train_sentencepiece",
]


def __getattr__(name: str) -> Any:
    # Protobuf takes a while to import, and most models have another tokenizer.
    if name == "SentencePieceVocabulary":
        from gophercite.vocabularies.sentence_piece import SentencePieceVocabulary

        return SentencePieceVocabulary
    if name == "train_sentencepiece":
        from gophercite.vocabularies.training import train_sentencepiece

        return train_sentencepiece
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

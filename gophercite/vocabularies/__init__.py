"""Tokenizers behind one plain class, which also gives each token's exact bytes.

`load_vocabulary` reads SentencePiece models and Hugging Face `tokenizer.json`; nothing here needs
TensorFlow or JAX. The seqio adapter is in `data_pipelines`.
"""

from gophercite.vocabularies.hugging_face import HuggingFaceVocabulary
from gophercite.vocabularies.loading import load_vocabulary
from gophercite.vocabularies.sentence_piece import SentencePieceVocabulary
from gophercite.vocabularies.training import train_sentencepiece
from gophercite.vocabularies.vocabulary import Vocabulary, VocabularyError

__all__ = [
    "HuggingFaceVocabulary",
    "SentencePieceVocabulary",
    "Vocabulary",
    "VocabularyError",
    "load_vocabulary",
    "train_sentencepiece",
]

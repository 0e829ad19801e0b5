"""The sample world's vocabulary, which is bundled, and how to train it."""

import functools
from collections.abc import Iterator
from pathlib import Path

from data_pipelines.sample_world.world import World
from gophercite import prompts
from gophercite.vocabularies import (
    SentencePieceVocabulary,
    Vocabulary,
    load_vocabulary,
    train_sentencepiece,
)

VOCABULARY_SIZE = 2048
VOCABULARY_FOLDER = Path(__file__).parent / "model" / "vocabulary"


@functools.cache
def bundled_vocabulary() -> Vocabulary:
    """Returns the vocabulary that comes with the package."""
    return load_vocabulary(VOCABULARY_FOLDER)


def train_vocabulary(
    size: int = VOCABULARY_SIZE, examples: int = 20_000
) -> SentencePieceVocabulary:
    """Trains the vocabulary again on the training split's texts, which takes some seconds.

    It uses byte-pair encoding: merging by frequency keeps common words whole and splits invented
    names between their parts. A unigram model of this size would split common words.
    """
    return train_sentencepiece(_training_texts(examples), size=size, model_type="bpe")


def _training_texts(examples: int) -> Iterator[str]:
    world = World(split="train")
    for index in range(examples):
        answer = world.rated_answer(index)
        pages = [page.document for page in answer.question.pages]
        prompt = prompts.prompt(answer.question.text, pages)
        # Words at the start of a line or after a mark need their own pieces, without a space.
        titles = [word for page in answer.question.pages for word in page.document.title.split()]
        starts = "\n".join((answer.claim, *titles, *titles, answer.quote))
        yield f"{prompt} {answer.claim}\n{starts}"

"""A prompt's tokens from the tokens that its pages' words are known to have."""

from collections.abc import Callable, Sequence

from gophercite import prompts
from gophercite.documents import Window
from gophercite.vocabularies import Vocabulary

# A window as text, tokens of complete words, and text: what is around a window may change the
# tokens of its first and its last word.
Pieces = tuple[str, list[int], str]


def encode_pieces(
    vocabulary: Vocabulary,
    question: str,
    shown: Sequence[Window],
    pieces: Callable[[Window], Pieces],
) -> list[int]:
    """Returns what `prompts.encode_prompt` returns, without tokenising windows again.

    Args:
      vocabulary: the model's; `splits_words` must be true.
      question: the prompt's question.
      shown: its windows, in order.
      pieces: gives the pieces of a window.
    """
    first = vocabulary.question_first
    before, end = prompts.frame(question, shown, question_first=first)
    ids: list[int] = []
    waiting = ""  # text that must be tokenised together with what follows
    for window, literal in zip(shown, before, strict=True):
        head, tokens, tail = pieces(window)
        waiting += literal + head
        if tokens:
            ids += _encode(vocabulary, waiting, ids)
            ids += tokens
            waiting = tail
        else:
            waiting += tail
    return ids + _encode(vocabulary, waiting + end, ids)


def _encode(vocabulary: Vocabulary, text: str, before: list[int]) -> list[int]:
    return vocabulary.encode(text) if before else prompts.encode_text(vocabulary, text)

"""How much of a text a number of tokens can hold, around a place."""

from collections.abc import Sequence

from gophercite.vocabularies import Vocabulary

Span = tuple[int, int]

LONGEST_WORD = 40  # characters; in text without spaces, words are cut

CHARACTERS_PER_TOKEN = 6  # a first guess, generous for prose; a wrong guess only costs time
MARGIN = 16  # maximum difference in tokens between a text and its parts


class TokenBudget:
    """Answers what fits by tokenising the text anew: right for every vocabulary.

    Args:
      text: the page's.
      vocabulary: the model's.
    """

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self.text = text
        self.vocabulary = vocabulary

    def count(self, start: int, end: int) -> int:
        """Returns the number of tokens of `text[start:end]`."""
        return len(self.vocabulary.encode(self.text[start:end]))

    def fits(self, start: int, end: int, budget: int) -> bool:
        """Whether `text[start:end]` has at most `budget` tokens; very long parts are not looked at.

        What has more than six characters a token counts as very long.
        """
        return end - start <= CHARACTERS_PER_TOKEN * budget and self.count(start, end) <= budget

    def reach(self, span: Span, budget: int) -> int:
        """Returns a place from before which the span certainly exceeds the budget."""
        start, end = span
        size = end - start + CHARACTERS_PER_TOKEN * budget
        while True:
            ids = self.vocabulary.encode(self.text[max(0, end - size) : end])
            if len(ids) > budget + MARGIN:
                return end - characters(ids[-budget - MARGIN :], self.vocabulary)
            if size >= end:
                return 0
            size *= 2

    def longest_end(self, start: int, least: int, budget: int) -> int | None:
        """Returns the end of the longest window from `start`; None when `least` is beyond it.

        A word that does not fit completely is left out, unless `least` is inside it.
        """
        text, encode = self.text, self.vocabulary.encode
        size = least - start + CHARACTERS_PER_TOKEN * budget
        ids = encode(text[start : start + size])
        while len(ids) <= budget and start + size < len(text):
            size *= 2
            ids = encode(text[start : start + size])
        if len(ids) <= budget:
            return len(text)
        kept = budget
        while kept > 0:
            end = start + characters(ids[:kept], self.vocabulary)
            end = max(word_end(text, end), min(end, least))
            if end < least:
                break
            excess = self.count(start, end) - budget
            if excess <= 0:
                return end
            kept -= excess
        # By itself, the span's last word may have fewer tokens than as part of a longer one.
        nearly = least - start <= characters(ids[: budget + MARGIN], self.vocabulary)
        return least if nearly and self.count(start, least) <= budget else None


def characters(ids: Sequence[int], vocabulary: Vocabulary) -> int:
    """Returns how many complete characters the tokens spell."""
    spelled = map(vocabulary.token_bytes, ids)  # never None: text encodes to no special token
    return len(b"".join(spelled).decode("utf-8", errors="ignore"))  # type: ignore[arg-type]


def word_end(text: str, end: int) -> int:
    """Returns `end`, or the end of the last complete word before it if it cuts a word."""
    if end >= len(text) or text[end].isspace():
        return end
    for place in range(end, max(0, end - LONGEST_WORD), -1):
        if text[place - 1].isspace():
            return place - 1
    return end

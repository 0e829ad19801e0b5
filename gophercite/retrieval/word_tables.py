"""The words around a place of a page with their tokens, so that nothing is tokenised twice.

A window needs several counts: how far back it can start, how far it goes from each start that is
tried, which tokens the prompt then shows. All have the same words. They are looked up once, in
blocks of the page, when the first count needs them.
"""

from gophercite.documents import Window
from gophercite.retrieval.prompt_pieces import Pieces
from gophercite.retrieval.token_budgets import (
    CHARACTERS_PER_TOKEN,
    MARGIN,
    Span,
    TokenBudget,
    characters,
    word_end,
)
from gophercite.vocabularies import Vocabulary

_BLOCK = 2048  # characters: more look up words that are not needed, fewer need more blocks
_SEARCHED = 1024  # characters in which a word's end is looked for


class WordTable(TokenBudget):
    """Answers what `TokenBudget` does, from the tokens of the page's words.

    Words end before a space that follows anything but white space. Where a word is very long, as in
    text without spaces, or a window ends in so short a text that its words are cut, answers come
    from `TokenBudget`, so they are the same everywhere.

    Args:
      text: the page's.
      vocabulary: the model's; `splits_words` must be true.
    """

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        super().__init__(text, vocabulary)
        self._starts: dict[int, int] = {}
        self._blocks: dict[int, _Block] = {}

    def count(self, start: int, end: int) -> int:
        """Returns the number of tokens of `text[start:end]`."""
        try:
            head = self._word_end(start)
            if head >= end:
                return super().count(start, end)
            first, before = self._place(head)
            last, behind = self._place(end)
            tokens = sum(self._block(number).tokens for number in range(first, last))
            tokens += self._block(last).before(behind) - self._block(first).before(before)
            tail = self._block(last).bound(behind)
        except _LongWordError:
            return super().count(start, end)
        return super().count(start, head) + tokens + super().count(tail, end)

    def reach(self, span: Span, budget: int) -> int:
        """Returns a place from before which the span certainly exceeds the budget."""
        try:
            place = self._reach(span, budget)
        except _LongWordError:
            place = None
        return super().reach(span, budget) if place is None else place

    def longest_end(self, start: int, least: int, budget: int) -> int | None:
        """Returns the end of the longest window from `start`; None when `least` is beyond it.

        A word that does not fit completely is left out, unless `least` is inside it.
        """
        try:
            end = self._longest_end(start, least, budget)
        except _LongWordError:
            end = None
        if end is not None and end >= least:
            return end
        if end is not None and self.count(start, least) > budget:
            return None
        return super().longest_end(start, least, budget)

    def pieces(self, window: Window) -> Pieces:
        """Returns a window of this page as text, tokens of complete words, and text.

        What is before the window may change the tokens of its first word, and what is after it
        those of the last one: a line end may be joined to a full stop. So these two words, and the
        white space at the end, are returned as text.
        """
        text, start, end = self.text, window.start, window.end
        stop = start + len(text[start:end].rstrip())
        ids: list[int] = []
        try:
            head = self._word_end(start + 1)
            if head >= stop:
                return text[start:end], [], ""
            first, before = self._place(head)
            last, behind = self._place(stop - 1)
            for number in range(first, last + 1):
                block = self._block(number)
                stop_at = behind if number == last else block.number
                ids += block.ids(before if number == first else 0, stop_at)
        except _LongWordError:
            return text[start:end], [], ""
        return text[start:head], ids, text[self._block(last).bound(behind) : end]

    def _reach(self, span: Span, budget: int) -> int | None:
        """Returns what `reach` does, or None if it depends on where words are cut."""
        start, end = span
        least = max(0, start - CHARACTERS_PER_TOKEN * budget)  # `TokenBudget` looks as far as this
        number, word = self._place(end)
        block = self._block(number)
        wanted = budget + MARGIN - super().count(block.bound(word), end)
        had = block.before(word)
        while had < wanted:
            wanted -= had
            number -= 1
            if number < 0:  # only the page's first word is left
                fits = least == 0 and super().count(0, self._start(0)) <= wanted
                return 0 if fits else None
            block = self._block(number)
            had = block.tokens
        if wanted <= 0:
            return None  # within the last word
        word = block.word_after(had - wanted)
        place = block.bound(word)
        if place < least:
            return None
        if cut := had - wanted - block.before(word):
            ids = block.ids(word, word + 1)[cut:]
            place = block.bound(word + 1) - characters(ids, self.vocabulary)
        return place if place > least else None

    def _longest_end(self, start: int, least: int, budget: int) -> int | None:
        """Returns the end of as many words as fit, or None if it depends on where words are cut.

        It may be before `least`.
        """
        text = self.text
        most = least + CHARACTERS_PER_TOKEN * budget  # `TokenBudget` looks as far as this
        head = self._word_end(start)
        number, word = self._place(head)
        block = self._block(number)
        room = budget - super().count(start, head)
        if room < 0:
            return None  # within the first word
        room += block.before(word)
        while room >= block.tokens:
            if block.end == len(text):
                return len(text) if most >= len(text) else None
            room -= block.tokens
            number += 1
            block = self._block(number)
        word = block.word_after(room)
        if block.bound(word + 1) > most:
            return None
        complete = block.bound(word)
        cut = room - block.before(word)
        end = complete + characters(block.ids(word, word + 1)[:cut], self.vocabulary)
        end = max(word_end(text, end), min(end, least))
        if end > complete and super().count(complete, end) > cut:
            return None
        return end

    # --- Blocks ---

    def _word_end(self, place: int) -> int:
        """Returns the first end of a word at or after a place; the end of the text is one."""
        text, last = self.text, place + _SEARCHED
        while (place := text.find(" ", place, last)) >= 0:
            if place > 0 and not text[place - 1].isspace():
                return place
            place += 1
        if last < len(text):
            raise _LongWordError
        return len(text)

    def _start(self, number: int) -> int:
        """Returns where a block starts: at the first end of a word from a multiple of its size."""
        start = self._starts.get(number)
        if start is None:
            start = self._starts[number] = self._word_end(number * _BLOCK)
        return start

    def _block(self, number: int) -> "_Block":
        block = self._blocks.get(number)
        if block is None:
            start, end = self._start(number), self._start(number + 1)
            block = self._blocks[number] = _Block(self.text, start, end, self.vocabulary)
        return block

    def _place(self, place: int) -> tuple[int, int]:
        """Returns the block and the number of its words that end at or before a place.

        Raises:
          _LongWordError: a word is too long, or the place is in the page's first word.
        """
        number = place // _BLOCK
        while self._start(number) > place:
            if number == 0:
                raise _LongWordError
            number -= 1
        return number, self._block(number).word_at(place)


class _LongWordError(Exception):
    """A word is too long for the table."""


class _Block:
    """Some words of a text, in order.

    Attributes:
      end: where the last word ends.
      number: how many words there are.
      tokens: how many tokens they have together.
    """

    def __init__(self, text: str, start: int, end: int, vocabulary: Vocabulary) -> None:
        self._start = start
        self.end = end
        self._words = vocabulary.words(text[start:end])
        self.number = len(self._words.bounds) - 1
        self.tokens = self.before(self.number)
        self.ids = self._words.ids

    def bound(self, word: int) -> int:
        """Returns where a word starts, or the one before it ends."""
        return self._start + int(self._words.bounds[word])

    def before(self, word: int) -> int:
        """Returns the number of tokens before a word."""
        return int(self._words.sums[word])

    def word_at(self, place: int) -> int:
        """Returns the last word that starts at or before a place, counting one after the last."""
        return int(self._words.bounds.searchsorted(place - self._start, "right")) - 1

    def word_after(self, tokens: int) -> int:
        """Returns the last word that has at most so many tokens before it, in the same way."""
        return int(self._words.sums.searchsorted(tokens, "right")) - 1

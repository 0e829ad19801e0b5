"""Pages that are tokenised once, for the windows of many prompts.

One page is found for many questions, and again in every epoch. Where a vocabulary tokenises word by
word (`Vocabulary.splits_words`), the tokens of any part of a page are a run of the page's tokens,
except for the part's first and last words. So two look-ups count a window, without tokenising it.
"""

import collections
import itertools
import random
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from gophercite.documents import Document, Window
from gophercite.retrieval import windows
from gophercite.retrieval.prompt_pieces import Pieces, encode_pieces
from gophercite.retrieval.snippets import plain_spaces
from gophercite.retrieval.token_budgets import LONGEST_WORD, Span, TokenBudget
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import Vocabulary

_HELD_CHARACTERS = 1 << 25  # of all pages; with their tokens they take about eight bytes each


class TokenisedPage:
    """A page with its tokens, and where its words and sentences are.

    Args:
      document: the page.
      vocabulary: the model's; `splits_words` must be true.
    """

    def __init__(self, document: Document, vocabulary: Vocabulary) -> None:
        self.document = document
        self.plain = plain_spaces(document.text)
        self._vocabulary = vocabulary
        words = vocabulary.word.findall(document.text)
        tokens = [vocabulary.encode(word) for word in words]
        self._ids = list(itertools.chain.from_iterable(tokens))
        # For word n: where it ends, and the number of tokens up to there.
        self._ends = array("i", itertools.accumulate(map(len, words)))
        self._counts = array("i", itertools.accumulate(map(len, tokens)))
        self._sentences = array("i", (start for start, _ in sentence_spans(document.text)))

    def count(self, start: int, end: int) -> int:
        """Returns the number of tokens of `text[start:end]`."""
        head, first, last, tail = self._cut(start, end)
        rest = len(self._encode(start, head)) + len(self._encode(tail, end))
        return rest + self._before(last) - self._before(first)

    def training_window(self, span: Span, budget: int, draw: random.Random) -> Window | None:
        """Returns a window as `windows.training_window` does: the same starts, equally likely."""
        start, end = span
        known = bool(self._ends) and 0 <= start <= end <= self._ends[-1]
        if known and len(self._ids) <= budget:
            return Window(self.document, 0, self._ends[-1])
        if known and budget > 0:
            # Any earlier start has too many tokens up to the word in which the span ends.
            excess = self._before(bisect_left(self._ends, end)) - budget
            word = bisect_left(self._counts, excess) if excess > 0 else 0
            first = bisect_left(self._sentences, self._ends[word - 1] if word else 0)
            starts = list(self._sentences[first : bisect_right(self._sentences, start)])
            while starts:
                place = draw.randrange(len(starts))
                starts[place], starts[-1] = starts[-1], starts[place]
                candidate = starts.pop()
                window_end = self._longest_end(candidate, end, budget)
                if window_end is not None:
                    return Window(self.document, candidate, window_end)
        # No sentence start works.
        return windows.training_window(self.document, span, budget, self._vocabulary, draw)

    def pieces(self, window: Window) -> Pieces:
        """Returns the window as text, tokens of complete words, and text.

        What is before the window may change the tokens of its first word, and what is after it
        those of the last one: a line end may be joined to a full stop. So these two words, and the
        white space at the end, are returned as text.
        """
        text, start, end = self.document.text, window.start, window.end
        stop = start + len(text[start:end].rstrip())
        first = bisect_right(self._ends, start)
        last = bisect_right(self._ends, stop) - 1
        if last <= first + 1:
            return text[start:end], [], ""
        ids = self._ids[self._before(first + 1) : self._before(last)]
        return text[start : self._ends[first]], ids, text[self._ends[last - 1] : end]

    def _longest_end(self, start: int, least: int, budget: int) -> int | None:
        """Returns the end of the longest window from `start`, or None when `least` is beyond it."""
        head, first, _, _ = self._cut(start, self._ends[-1])
        room = budget - len(self._encode(start, head)) + self._before(first)
        last = bisect_right(self._counts, room)  # words that fit, counted from the page's first
        end = self._ends[last - 1] if last > first else head
        # Windows lack little at their ends, unless a word is as long as a text.
        little = max(LONGEST_WORD, (end - start) // 8)
        cut = last < len(self._ends) and self._ends[last] - end > little
        if last < first or end == start or (cut and end >= least):
            anew = TokenBudget(self.document.text, self._vocabulary)
            return anew.longest_end(start, least, budget)
        if end < least:
            return least if self.count(start, least) <= budget else None
        return end

    def _cut(self, start: int, end: int) -> tuple[int, int, int, int]:
        """Splits a part at words: `[start, head)`, words `[first, last)`, `[tail, end)`.

        If it lies within one word, it is all in the first part.
        """
        first = bisect_right(self._ends, start)
        begin = self._ends[first - 1] if first else 0
        head = begin
        if begin < start:
            head = min(self._ends[first], end)
            first += 1
        last = bisect_right(self._ends, end)
        if last < first or head == end:
            return end if begin < start else start, first, first, end
        return head, first, last, self._ends[last - 1] if last > first else head

    def _before(self, word: int) -> int:
        """Returns the number of tokens before a word."""
        return self._counts[word - 1] if word else 0

    def _encode(self, start: int, end: int) -> list[int]:
        return self._vocabulary.encode(self.document.text[start:end]) if start < end else []


class TokenisedPages:
    """A cache of the most recently used pages.

    Args:
      vocabulary: the model's.
      held_characters: maximum number of characters to hold, over all pages.

    Raises:
      ValueError: when the vocabulary doesn't tokenise word by word.
    """

    def __init__(self, vocabulary: Vocabulary, held_characters: int = _HELD_CHARACTERS) -> None:
        if not vocabulary.splits_words:
            raise ValueError(
                "the vocabulary has tokens that span several words, so pages must be cut before "
                "they are tokenised"
            )
        self.vocabulary = vocabulary
        self._most = held_characters
        self._held: collections.OrderedDict[str, TokenisedPage] = collections.OrderedDict()
        self._characters = 0

    def page(self, document: Document) -> TokenisedPage:
        """Returns a page, from the cache or newly tokenised."""
        held = self._held.get(document.id)
        if held is not None and held.document.text == document.text:
            self._held.move_to_end(document.id)
            return held
        page = TokenisedPage(document, self.vocabulary)
        if held is not None:
            self._characters -= len(held.document.text)
        self._held[document.id] = page
        self._held.move_to_end(document.id)
        self._characters += len(document.text)
        while self._characters > self._most and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            self._characters -= len(oldest.document.text)
        return page

    def encode_prompt(self, question: str, shown: Sequence[Window]) -> list[int]:
        """Returns what `prompts.encode_prompt` returns, without tokenising windows again."""
        return encode_pieces(
            self.vocabulary,
            question,
            shown,
            lambda window: self.page(window.document).pieces(window),
        )

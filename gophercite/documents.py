"""Documents, windows of documents, and the meaning of offsets into them.

A `Document` is one source page. Its text is normalised exactly once, when the document is created,
and from then on every offset counts code points of that normalised text. A quote is verbatim if it
is a run of that text, so all code that shows, truncates, quotes or checks a page uses these
classes.
"""

import bisect
import dataclasses
import functools
import hashlib
import itertools
import re
import unicodedata

# Line ends of every platform, with Unicode's own: NEL, LINE SEPARATOR, PARAGRAPH SEPARATOR.
_LINE_END = re.compile("\r\n|[\r\x85\u2028\u2029]")

# Invisible characters that only allow or forbid line breaks, or that mark the file's byte order.
# The joiners U+200C and U+200D are kept: they matter in Persian and Indic scripts, and join emoji.
_ZERO_WIDTH = re.compile("[\u200b\u2060\ufeff\u00ad]")

_REMOVED = "\r\x85\u2028\u2029\u200b\u2060\ufeff\u00ad"  # the characters in the two patterns above

# The three characters that begin with a combining mark once they are decomposed, but are none
# themselves.
_COMPOUND_MARKS = {"\u0f73": "\u0f71\u0f72", "\u0f75": "\u0f71\u0f74", "\u0f81": "\u0f71\u0f80"}

# A run of 104 combining marks or more holds twelve that are eight characters apart.
_MANY_MARKS = re.compile(rb"[^\0]{12}")

# Half of a UTF-16 surrogate pair. JSON can escape one, UTF-8 cannot represent one.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def normalise_text(text: str) -> str:
    r"""Returns `text` normalised as in documents; the function is idempotent.

    Line ends become `\n`, zero-width characters and soft hyphens are removed, null characters and
    lone surrogates become U+FFFD, and the rest is converted to Unicode's normal form C. Nothing
    else changes: case, spaces, typography and other control characters are kept.
    """
    if "\0" in text:  # SQLite's excerpts would end there, and PostgreSQL can't store it
        text = text.replace("\0", "\ufffd")
    if text.isascii() and "\r" not in text:
        return text
    # Most texts have none of these, and searching for single characters takes a tenth of the
    # pattern's time.
    if any(character in text for character in _REMOVED):
        text = _ZERO_WIDTH.sub("", _LINE_END.sub("\n", text))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = _LONE_SURROGATE.sub("\ufffd", text)
    return unicodedata.normalize("NFC", _with_long_runs_sorted(text))


def _with_long_runs_sorted(text: str) -> str:
    """Puts combining marks in canonical order where hundreds of them follow one another.

    Normalising does so anyway, but in quadratic time: 80,000 marks, 160 kB, took seven seconds.
    """
    for mark, parts in _COMPOUND_MARKS.items():
        text = text.replace(mark, parts)
    if not _MANY_MARKS.search(bytes(map(unicodedata.combining, text[::8]))):
        return text
    pieces: list[str] = []
    for are_marks, run in itertools.groupby(text, lambda each: unicodedata.combining(each) > 0):
        if are_marks:
            apart = "".join(unicodedata.normalize("NFD", mark) for mark in run)
            pieces += sorted(apart, key=unicodedata.combining)
        else:
            pieces += run
    return "".join(pieces)


@dataclasses.dataclass(frozen=True)
class Document:
    """One source page.

    Attributes:
      id: identifies the document within its dataset; windows and gold evidence refer to it.
      title: the title that a response writes between `>%(` and `)%[`; normalised, on one line.
      text: the page's text, normalised by `normalise_text`.
      url: where the page was found.
      retrieved_at: when it was fetched, in ISO 8601.
      page_starts: for a PDF, the offset in the text where each of its pages begins; a page without
        text begins where the next one does. Empty if there are no pages.

    Raises:
      ValueError: `page_starts` are not valid offsets.
    """

    id: str
    title: str
    text: str
    url: str | None = None
    retrieved_at: str | None = None
    page_starts: tuple[int, ...] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        text = normalise_text(self.text)
        if self.page_starts:
            _check_page_starts(self.page_starts, len(self.text))
            if text != self.text:
                starts = _moved(self.page_starts, self.text)
                object.__setattr__(self, "page_starts", starts)
        object.__setattr__(self, "title", normalise_text(self.title).replace("\n", " "))
        object.__setattr__(self, "text", text)

    @functools.cached_property
    def sha256(self) -> str:
        """The hexadecimal SHA-256 of the text's UTF-8 bytes, for third parties to check."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    def pages_of(self, start: int, end: int) -> tuple[int, ...]:
        """Returns the page numbers, from 1 on, that `text[start:end]` is on, in order.

        Empty if the document has no pages.
        """
        if not self.page_starts:
            return ()
        first = bisect.bisect_right(self.page_starts, start)
        last = bisect.bisect_right(self.page_starts, max(start, end - 1))
        return tuple(range(first, last + 1))


def _check_page_starts(starts: tuple[int, ...], length: int) -> None:
    in_order = all(one <= other for one, other in itertools.pairwise(starts))
    if starts[0] != 0 or not in_order or starts[-1] > length:
        raise ValueError(
            "page_starts must be places in the text in their order, the first of them 0; "
            f"the text has {length} characters"
        )


def _moved(starts: tuple[int, ...], text: str) -> tuple[int, ...]:
    """The corresponding offsets in the normalised text."""
    parts = [text[one:other] for one, other in itertools.pairwise(starts)]
    lengths = [len(normalise_text(part)) for part in parts]
    longest = len(normalise_text(text))
    return tuple(min(place, longest) for place in itertools.accumulate(lengths, initial=0))


@dataclasses.dataclass(frozen=True)
class Window:
    """The part of a document that a prompt shows: `document.text[start:end]`.

    Attributes:
      document: the full page.
      start: offset of the first code point shown.
      end: offset after the last code point shown.

    Raises:
      ValueError: when `0 <= start <= end <= len(document.text)` does not hold.
    """

    document: Document
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= len(self.document.text):
            raise ValueError(
                f"window {self.start}:{self.end} lies outside document {self.document.id!r}, "
                f"whose text has {len(self.document.text)} characters"
            )

    @property
    def title(self) -> str:
        """The title of the document."""
        return self.document.title

    @property
    def text(self) -> str:
        """The text that is shown."""
        return self.document.text[self.start : self.end]

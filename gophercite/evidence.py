"""Inline evidence (GopherCite, section 2.1): answer and supporting quote in one string.

    %<claim>%(title of a document)%[quote from that document]%

The complete grammar (`docs/evidence.md` explains it with examples):

    response = space triple { space triple } rest
    triple   = "%<" claim ">%(" title ")%[" quote "]%"

`claim` and `title` contain none of the four marks `%<`, `>%(`, `)%[` and `]%`; `quote` ends at the
first `]%`; `space` is any white space, possibly empty; `rest` is any text without a mark, and is
ignored. Adjacent marks share their `%`, also between triples: `]%<` ends a quote and begins a
claim, like `]%%<` and `]% %<`. A text that is not a response is malformed.

A quote that contains `%<`, `>%(` or `)%[` still parses, so that an unclosed quote can be told apart
from other faults: it is `Fault.RESERVED_SYNTAX`.
"""

import dataclasses
import enum
import functools
import re
from collections.abc import Collection, Iterable

from gophercite.documents import Document, Window

CLAIM_MARK = "%<"
TITLE_MARK = ">%("
QUOTE_MARK = ")%["
END_MARK = "]%"
MARKS = (CLAIM_MARK, TITLE_MARK, QUOTE_MARK, END_MARK)

OMISSION = " [...] "  # marks omitted words in a quote; plain text unless omissions are allowed

MINIMUM_QUOTE_LENGTH = 5  # characters; `min_quote_length` in appendix F.1

_MARK = re.compile("|".join(map(re.escape, MARKS)))
_SPACE = re.compile(r"\s*")
_NO_OMISSION = str.maketrans("", "", OMISSION)
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A claim, the quote that supports it, and the title of the quote's document."""

    claim: str
    title: str
    quote: str


class Fault(enum.Enum):
    """The faults of a response: the criteria of the bad-syntax penalty (appendix F.1)."""

    MALFORMED = "malformed"
    RESERVED_SYNTAX = "reserved syntax in quote"
    WRONG_TITLE = "wrong title"
    WRONG_QUOTE = "wrong quote"
    EMPTY_CLAIM = "empty claim"
    EMPTY_QUOTE = "empty quote"
    SHORT_QUOTE = "short quote"


class SyntaxFault(ValueError):  # noqa: N818 (the contract's name; a `Fault` of the syntax)
    """A text that is not a response; `position` is the offset of the first error."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position})")
        self.position = position


def parse(text: str) -> tuple[Evidence, ...]:
    """Returns the triples of a response, in order; there is at least one.

    Raises:
      SyntaxFault: when `text` is malformed, with the position.
    """
    triples = []
    position = _skip_space(text, 0)
    if not text.startswith(CLAIM_MARK, position):
        raise SyntaxFault(f"expected {CLAIM_MARK!r}", position)
    while True:
        claim, position = _field(text, position + len(CLAIM_MARK), TITLE_MARK, "claim")
        title, position = _field(text, position, QUOTE_MARK, "title")
        end = text.find(END_MARK, position)
        if end < 0:
            raise SyntaxFault(f"the quote is not closed by {END_MARK!r}", len(text))
        triples.append(Evidence(claim, title, text[position:end]))
        position = end + len(END_MARK)

        if text.startswith("<", position):  # `]%<`: the marks share their `%`
            position -= 1
            continue
        following = _skip_space(text, position)
        if text.startswith(CLAIM_MARK, following):
            position = following
            continue
        stray = _MARK.search(text, position)
        if stray is None:
            return tuple(triples)
        raise SyntaxFault(f"{stray.group()!r} after text that follows a quote", stray.start())


def format(*evidence: Evidence) -> str:
    """Writes triples as one response, so that `parse(format(*evidence)) == evidence`.

    Raises:
      ValueError: when there is no triple, or a field holds a reserved mark.
    """
    if not evidence:
        raise ValueError("a response needs at least one piece of evidence")
    for triple in evidence:
        for name, value in dataclasses.asdict(triple).items():
            if said := named_mark(value):
                raise ValueError(
                    f"the {name} {said}, so it cannot be written as inline evidence: {value!r}"
                )
    return " ".join(
        f"{CLAIM_MARK}{triple.claim}{TITLE_MARK}{triple.title}{QUOTE_MARK}{triple.quote}{END_MARK}"
        for triple in evidence
    )


def holds_mark(text: str) -> bool:
    """Whether `text` contains a reserved mark, so that `format` refuses it."""
    return _MARK.search(text) is not None


def named_mark(text: str) -> str | None:
    """Describes the first reserved mark in `text` and its position for users; None if none."""
    mark = _MARK.search(text)
    if mark is None:
        return None
    return f"holds the reserved mark {mark.group()!r} at character {mark.start()}"


def faults(
    text: str,
    documents: Iterable[Document | Window],
    *,
    minimum_quote_length: int = MINIMUM_QUOTE_LENGTH,
    maximum_omissions: int = 0,
) -> frozenset[Fault]:
    """Finds the faults of a response; the empty set means that there are none. Never raises.

    Each fault is checked independently, and the response has it if any of its triples has it. A
    malformed text has no other faults.

    Args:
      text: a raw sample.
      documents: what may be cited: full pages to judge an answer (the paper's "full source"),
        windows if only the text shown in the prompt counts.
      minimum_quote_length: a quote with fewer characters is too short.
      maximum_omissions: maximum number of ` [...] ` in a quote, which mark omitted words. Each run
        between them must be verbatim, long enough and not blank (`is_blank`). With 0, ` [...] ` is
        ordinary text.
    """
    try:
        triples = parse(text)
    except SyntaxFault:
        return frozenset({Fault.MALFORMED})
    # Each page is folded once at most, however many triples a hostile text has.
    sources = [_Source(source) for source in documents]
    found: set[Fault] = set()
    for triple in triples:
        found |= _faults_of_triple(triple, sources, minimum_quote_length, maximum_omissions)
    return frozenset(found)


def runs_of(quote: str, maximum_omissions: int) -> list[str]:
    """The runs of a quote: split at its omissions if these are allowed, else the entire quote."""
    return quote.split(OMISSION) if maximum_omissions else [quote]


def is_blank(run: str, omissions: bool = False) -> bool:
    """Whether a quote, or a run of one, has nothing but white space.

    If omissions are allowed, dots and square brackets count as blank, too. So a non-blank run stays
    non-blank if its end turns out to be the beginning of ` [...] `.
    """
    return not (run.translate(_NO_OMISSION) if omissions else run).strip()


def is_verbatim(quote: str, text: str) -> bool:
    """Whether `quote` is a run of `text`, ignoring the case of ASCII letters.

    Only ASCII letters are folded: Unicode's case folding changes lengths and conflates letters (`ß`
    and `ss`), so that offsets in the folded text would not be valid in the page.
    """
    return quote in text or fold_case(quote) in fold_case(text)


def fold_case(text: str) -> str:
    """Lower-cases only the ASCII letters of `text`; the length does not change."""
    return text.lower() if text.isascii() else text.translate(_ASCII_LOWER)


class _Source:
    """What may be cited: `holds` is `is_verbatim`, which would fold the text for each quote."""

    def __init__(self, source: Document | Window) -> None:
        self.title = source.title
        self._text = source.text

    def holds(self, quote: str) -> bool:
        return quote in self._text or fold_case(quote) in self._folded

    @functools.cached_property
    def _folded(self) -> str:
        return fold_case(self._text)


def _faults_of_triple(
    triple: Evidence,
    sources: Collection[_Source],
    minimum_quote_length: int,
    maximum_omissions: int,
) -> set[Fault]:
    # Titles are not unique: the quote may come from any document with that title. If no document
    # has it, the quote is searched for in all documents, so that a wrong title alone is one fault,
    # not two.
    named = [source for source in sources if source.title == triple.title]
    runs, omits = runs_of(triple.quote, maximum_omissions), maximum_omissions > 0
    holds = {
        Fault.RESERVED_SYNTAX: holds_mark(triple.quote),
        Fault.WRONG_TITLE: not named,
        Fault.WRONG_QUOTE: len(runs) > maximum_omissions + 1
        or not all(any(source.holds(run) for source in named or sources) for run in runs),
        Fault.EMPTY_CLAIM: not triple.claim.strip(),
        Fault.EMPTY_QUOTE: any(is_blank(run, omits) for run in runs),
        Fault.SHORT_QUOTE: any(len(run) < minimum_quote_length for run in runs),
    }
    return {fault for fault, is_so in holds.items() if is_so}


def _field(text: str, start: int, closing: str, name: str) -> tuple[str, int]:
    """Reads a claim or title up to its closing mark; returns it and the offset after the mark."""
    mark = _MARK.search(text, start)
    if mark is None:
        raise SyntaxFault(f"the {name} is not closed by {closing!r}", len(text))
    if mark.group() != closing:
        raise SyntaxFault(f"{mark.group()!r} inside the {name}, before {closing!r}", mark.start())
    return text[start : mark.start()], mark.end()


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    assert match is not None  # `\s*` matches everywhere
    return match.end()

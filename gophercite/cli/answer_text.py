"""Answers and checks as text for people: a claim, then its quote in a box with title and place.

Titles, quotes and addresses are untrusted: they are shown through `printable`, so that none of them
can control the terminal.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from gophercite.answering.verification import Check, Match, Verdict
from gophercite.records.answers import Answer, Citation, page_numbers
from gophercite.retrieval.engine import Hit
from gophercite.storage.json_fields import printable
from gophercite.text.counting import counted

_WIDEST = 100  # columns; longer lines are hard to read
_PLAIN, _BOLD, _DIM, _RED, _GREEN, _CYAN = "", "1", "2", "31", "32", "36"
_VERDICT = 9  # columns
_MATCHES = {
    Match.CONTENT: "the same text, by its SHA-256, is that of",
    Match.ADDRESS: "the page with the same address is",
    Match.QUOTE: "the quote is in",
    None: "compared with",
}
_SPACE = re.compile(r"\s")  # any white space: some is not printable


class AnswerText:
    """Writes answers and checks for one stream.

    Args:
      stream: coloured if it is a terminal, unless the environment says otherwise (`NO_COLOR`).
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        quiet = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._coloured = stream.isatty() and not quiet
        self._width = min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)

    def answer(self, answer: Answer) -> str:
        """The answer, and how it was produced."""
        if answer.declined:
            lines = self._wrapped(f"No answer: {answer.reason}.", _BOLD)
        else:
            lines = [line for each in answer.citations for line in self.citation(each)]
        return "\n".join([*lines, *self._origin(answer)])

    def ranked(self, answers: Sequence[Answer]) -> str:
        """Several answers, the best first, each with its rank and score."""
        lines = []
        for rank, answer in enumerate(answers, 1):
            score = "" if answer.score is None else f"score {answer.score:.3g}"
            lines += self._wrapped(f"{rank}. {score}", _DIM)
            lines += [line for each in answer.citations for line in self.citation(each)]
        return "\n".join([*lines, *self._origin(answers[0])])

    def citation(self, citation: Citation) -> list[str]:
        """A claim with its box, and an empty line."""
        places = ", ".join(f"{start}–{end}" for start, end in citation.spans)
        about = [f"characters {places}"]
        if citation.pages:
            about.insert(0, page_numbers(citation.pages))
        if citation.retrieved_at:
            about.append(f"retrieved {citation.retrieved_at}")
        about.append(f"SHA-256 {citation.sha256[:12]}…")
        return [
            *self._wrapped(citation.claim.strip(), _BOLD),
            "",
            *self._wrapped(citation.title, _CYAN, "  ╭ ", "  │ "),
            *self._wrapped(citation.quote, _PLAIN, "  │ ", "  │ "),
            *self._wrapped(citation.url or citation.document, _DIM, "  ╰ ", "    "),
            *self._wrapped(" · ".join(about), _DIM, "    ", "    "),
            "",
        ]

    def hit(self, rank: int, hit: Hit) -> str:
        """A search hit: its title, the snippet, its address, and an empty line."""
        margin = " " * len(f"{rank}. ")
        place = hit.url or hit.id or ""
        about = place if hit.score is None else f"{place} · score {hit.score:.3g}"
        lines = [
            *self._wrapped(hit.title, _BOLD, f"{rank}. ", margin),
            *self._wrapped(" ".join(hit.snippet.split()), _PLAIN, margin, margin),
            *self._wrapped(about, _DIM, margin, margin),
            "",
        ]
        return "\n".join(lines)

    def check(self, check: Check) -> str:
        """The result for a quote's run: the verdict, the run, and what stands there now."""
        citation = check.citation
        colour = _GREEN if check.holds else _RED
        verdict = check.verdict.value.ljust(_VERDICT)
        margin = " " * _VERDICT
        about = check.detail
        if check.verdict is Verdict.MOVED:
            about += f": characters {check.start}–{check.end}"
        if check.verdict is Verdict.CHANGED:
            about += f": {check.found}"
        if citation.pages and not set(check.pages) <= set(citation.pages):  # those of all runs
            said, now = page_numbers(citation.pages), page_numbers(check.pages)
            about += f"{'; ' if about else ''}it is on {now}, not on {said}"
        if check.page is not None and check.page.id != citation.document:
            about += f"{'; ' if about else ''}{_MATCHES[check.matched_by]}: {check.page.id}"
        if check.page is not None and check.page.title != citation.title:
            about += f"{'; ' if about else ''}the page's title is {check.page.title!r}"
        lines = [
            *self._wrapped(check.quote, _PLAIN, self.paint(verdict, colour), margin),
            *self._wrapped(citation.url or citation.document, _DIM, margin, margin),
        ]
        return "\n".join(lines + (self._wrapped(about, _DIM, margin, margin) if about else []))

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, if colours are on."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self._coloured and colour else text

    def _origin(self, answer: Answer) -> list[str]:
        said = f"{answer.model} (a baseline, no model)" if answer.is_baseline else answer.model
        if answer.score is not None:
            said += f" · {answer.scored_by} {answer.score:.3g}"
        if answer.samples:
            said += f" · best of {counted(len(answer.samples), 'sample')}"
        lines = self._wrapped(said, _DIM)
        if record := answer.track_record:
            said = f"of {counted(record.of, 'answer')} about as sure, {record.good} were good"
            said += f" (questions about {record.questions})" if record.questions else ""
            lines += self._wrapped(said, _DIM)
        return lines

    def _wrapped(self, text: str, colour: str, first: str = "", rest: str = "") -> list[str]:
        """Wraps a text, with margins for the first and the other lines; never breaks an address."""
        width = max(20, self._width - len(rest))
        lines = []
        for paragraph in text.split("\n"):
            shown = printable(_SPACE.sub(" ", paragraph))
            wrapped = textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False)
            lines += wrapped or [""]
        return [
            f"{rest if number else first}{self.paint(line, colour)}"
            for number, line in enumerate(lines)
        ]

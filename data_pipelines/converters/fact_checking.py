"""Fact checking: claims with evidence for or against them, also as questions.

Licences of the sets: FEVER CC BY-SA 3.0, FoolMeTwice Apache-2.0, FEVER-symmetric MIT (its texts as
FEVER's).
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_pipelines.converters import gold
from data_pipelines.converters.gold import (
    BadRecord,
    ConversionReport,
    GoldQuestion,
    list_field,
    text_field,
)
from data_pipelines.converters.titles import mint_titles, readable
from gophercite.documents import Document, normalise_text

_LABELS = {"SUPPORTS": True, "REFUTES": False}
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-COLON-": ":"}
_BRACKET = re.compile("|".join(_BRACKETS))
_ADDED = re.compile(r"0{6}\d$")  # suffix that FEVER-symmetric adds to FEVER's ids


@dataclasses.dataclass(frozen=True)
class CheckedClaim:
    """A claim that a passage proves or refutes.

    Attributes:
      id: identifies the claim within its file.
      claim: its text, without a full stop at the end.
      supported: whether the passage proves it; otherwise it refutes it.
      document: the page, or the part of it in the data set.
      span: span of the evidence in the document's text.
      group: name of the group of claims about one page, which must stay in one split.
    """

    id: str
    claim: str
    supported: bool
    document: Document
    span: tuple[int, int]
    group: str


ClaimReader = Callable[[Path, ConversionReport], Iterator[CheckedClaim]]


class _Page(NamedTuple):
    document: Document
    sentences: dict[int, tuple[int, int]]  # span of each, by its number


def as_question(claim: str) -> str:
    """Returns a question that asks whether a claim is true (appendix E.2, type A)."""
    return f"Is it true that {claim}?"


def convert_fever(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields FEVER's claims as yes-or-no questions; see `read_fever`."""
    return map(_gold_question, read_fever(path, report))


def convert_fool_me_twice(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields FoolMeTwice's claims as questions; see `read_fool_me_twice`."""
    return map(_gold_question, read_fool_me_twice(path, report))


def read_fever(path: Path, report: ConversionReport) -> Iterator[CheckedClaim]:
    """Yields FEVER's claims with the sentences that prove or refute them.

    If there are several sets of evidence, the first one that is on a single page counts. Claims
    with the label "not enough info", or with evidence on several pages only, are counted and left
    out.

    Args:
      path: JSON lines with `id`, `label`, `claim` and `evidence`; the folder `wiki-pages` with the
        pages in JSON lines is next to the file.
      report: counts what was left out.

    Raises:
      FileNotFoundError: the file or the folder does not exist.
    """
    folder = path.parent / "wiki-pages"
    files = sorted(folder.glob("*.jsonl*"))
    if not files:
        raise FileNotFoundError(
            f"{path}: expected the pages in {folder}, but it has no .jsonl files"
        )
    wanted = {
        title
        for _, value in gold.read_lines(path, ConversionReport())
        for evidence in _evidence(value)
        for title, _ in _citations(evidence)
    }
    pages = _read_pages(files, wanted, report)
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            label = text_field(value, "label")
            if label not in _LABELS:
                report.counts["claims that nothing proves or refutes"] += 1
                continue
            found = _on_one_page(list_field(value, "evidence"), pages)
            if found is None:
                report.counts["claims whose evidence is not on one page"] += 1
                continue
            page, span = found
            name = f"fever-{_id(value, number)}"
            claim, group = _claim(value, "claim"), f"fever:{page.document.title}"
            yield CheckedClaim(name, claim, _LABELS[label], page.document, span, group)


def read_fool_me_twice(path: Path, report: ConversionReport) -> Iterator[CheckedClaim]:
    """Yields FoolMeTwice's claims; the document is the gold evidence, and all of it is the proof.

    Args:
      path: JSON lines with `id`, `label`, `text`, `wikipedia_page` and `gold_evidence`.
      report: counts what was left out.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            supported = _label(value)
            texts = [text_field(part, "text") for part in list_field(value, "gold_evidence")]
            title = readable(text_field(value, "wikipedia_page"))
            document = gold.document_of("fool_me_twice", title, " ".join(texts))
            if not document.text.strip():
                raise BadRecord("field 'gold_evidence': is empty")
            name, claim = f"fool_me_twice-{_id(value, number)}", _claim(value, "text")
            span, group = (0, len(document.text)), f"fool_me_twice:{title}"
            yield CheckedClaim(name, claim, supported, document, span, group)


def read_fever_symmetric(path: Path, report: ConversionReport) -> Iterator[CheckedClaim]:
    """Yields FEVER-symmetric's claims; the document is the evidence, its first words are the title.

    Each claim of FEVER appears with evidence for it and with evidence against it, and so does a
    second claim, with the same two pieces of evidence. The ids of the three added pairs are FEVER's
    id with a number appended.

    Args:
      path: JSON lines with `id`, `label`, `claim` and `evidence`, a text.
      report: counts what was left out.
    """
    found = []
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            text = normalise_text(_plain(text_field(value, "evidence"))).strip()
            if not text:
                raise BadRecord("field 'evidence': is empty")
            name = str(_id(value, number))
            found.append((name, _claim(value, "claim"), _label(value), text))
    texts = list(dict.fromkeys(text for *_, text in found))
    titles = dict(zip(texts, mint_titles(texts), strict=True))
    for name, claim, supported, text in found:
        document = gold.document_of("fever_symmetric", titles[text], text)
        group = f"fever_symmetric:{_ADDED.sub('', name)}"
        span = (0, len(document.text))
        yield CheckedClaim(f"fever_symmetric-{name}", claim, supported, document, span, group)


def join_groups(claims: Sequence[CheckedClaim]) -> list[CheckedClaim]:
    """Returns the claims with groups joined that have a document's text in common.

    In FEVER-symmetric, claims with different ids may have the same evidence. Connected groups get
    the name of the first of them; a group that shares no text stays as it is.
    """
    groups = gold.joined_groups((claim.group, [claim.document.text]) for claim in claims)
    return [
        dataclasses.replace(claim, group=group) for claim, group in zip(claims, groups, strict=True)
    ]


def _gold_question(checked: CheckedClaim) -> GoldQuestion:
    return GoldQuestion(
        id=checked.id,
        question=as_question(checked.claim),
        document=checked.document,
        group=checked.group,
        answers=("Yes" if checked.supported else "No",),
        span=checked.span,
    )


def _id(value: dict[str, Any], number: int) -> Any:
    """The id of a line; its number if it has none."""
    return number if value.get("id") is None else value["id"]


def _label(value: Any) -> bool:
    label = text_field(value, "label")
    if label not in _LABELS:
        raise BadRecord(f"field 'label': expected SUPPORTS or REFUTES, got {label!r:.40}")
    return _LABELS[label]


def _claim(value: Any, field: str) -> str:
    claim = " ".join(_plain(text_field(value, field)).split()).rstrip(". ")
    if not claim:
        raise BadRecord(f"field {field!r}: has no words")
    return claim


def _evidence(value: Any) -> list[Any]:
    """Returns the sets of evidence of a line; a line with none is reported by the conversion."""
    evidence = value.get("evidence") if isinstance(value, dict) else None
    return evidence if isinstance(evidence, list) else []


def _citations(evidence: Any) -> list[tuple[str, int]]:
    """Returns the title (as spelled there) and number of each sentence in one set of evidence."""
    items = evidence if isinstance(evidence, list) else []
    quadruples = (item for item in items if isinstance(item, list) and len(item) == 4)
    return [
        (title, number)
        for _, _, title, number in quadruples
        if isinstance(title, str) and isinstance(number, int)
    ]


def _read_pages(
    files: list[Path], wanted: Collection[str], report: ConversionReport
) -> dict[str, _Page]:
    """Returns the cited pages, by the titles that cite them."""
    pages: dict[str, _Page] = {}
    for file in files:
        for number, value in gold.read_lines(file, report):
            with report.skipping(f"{file}:{number}"):
                name = value.get("id") if isinstance(value, dict) else None
                if isinstance(name, str) and name in wanted:
                    pages[name] = _page(name, text_field(value, "lines"))
    return pages


def _page(name: str, lines: str) -> _Page:
    """Builds a page from FEVER's lines: number, sentence and links, separated by tabs."""
    text, sentences = "", {}
    for line in lines.split("\n"):
        number, _, rest = line.partition("\t")
        sentence = normalise_text(_plain(rest.split("\t")[0])).strip()
        if number.isdecimal() and sentence:
            start = len(text) + (1 if text else 0)
            text = f"{text} {sentence}" if text else sentence
            sentences[int(number)] = (start, len(text))
    if not sentences:
        raise BadRecord("field 'lines': has no sentence")
    return _Page(gold.document_of("fever", readable(_plain(name)), text), sentences)


def _on_one_page(
    evidence: list[Any], pages: dict[str, _Page]
) -> tuple[_Page, tuple[int, int]] | None:
    for group in evidence:
        cited = _citations(group)
        if not cited or len({title for title, _ in cited}) > 1 or cited[0][0] not in pages:
            continue
        page = pages[cited[0][0]]
        spans = [page.sentences.get(number) for _, number in cited]
        known = [span for span in spans if span is not None]
        if len(known) == len(cited):
            return page, (min(start for start, _ in known), max(end for _, end in known))
    return None


def _plain(text: str) -> str:
    return _BRACKET.sub(lambda match: _BRACKETS[match.group()], text)

"""Fact checking as questions: is the claim true? FEVER and FoolMeTwice.

Licences of the sets: FEVER CC BY-SA 3.0, FoolMeTwice Apache-2.0.
"""

import re
from collections.abc import Collection, Iterator
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
from data_pipelines.converters.titles import readable
from gophercite.documents import Document, normalise_text

_ANSWERS = {"SUPPORTS": "Yes", "REFUTES": "No"}
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-COLON-": ":"}
_BRACKET = re.compile("|".join(_BRACKETS))


class _Page(NamedTuple):
    document: Document
    sentences: dict[int, tuple[int, int]]  # where each stands, by its number


def question_of_claim(claim: str) -> str:
    """Returns the question whether a claim is true (appendix E.2, type A)."""
    return f"Is it true that {claim.strip().rstrip('.').rstrip()}?"


def convert_fever(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields FEVER's claims as questions, answered by yes or no, with the sentences that say so.

    Of several sets of evidence the first that is on one page counts. Claims without enough
    information, or with evidence on several pages only, are counted and left out. A page's claims
    are one group.

    Args:
      path: JSON lines with `id`, `label`, `claim` and `evidence`; beside the file stands the folder
        `wiki-pages` with the pages in JSON lines.
      report: is told what was left out.

    Raises:
      FileNotFoundError: when there is no such file or no such folder.
    """
    folder = path.parent / "wiki-pages"
    files = sorted(folder.glob("*.jsonl*"))
    if not files:
        raise FileNotFoundError(f"{path}: the pages should be in {folder}, which has no JSON lines")
    wanted = {
        title
        for _, value in gold.read_lines(path, ConversionReport())
        for evidence in (value.get("evidence") or [] if isinstance(value, dict) else [])
        for title, _ in _citations(evidence)
    }
    pages = _read_pages(files, wanted, report)
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            label = text_field(value, "label")
            if label not in _ANSWERS:
                report.counts["claims that nothing proves or refutes"] += 1
                continue
            found = _on_one_page(list_field(value, "evidence"), pages)
            if found is None:
                report.counts["claims whose evidence is not on one page"] += 1
                continue
            page, span = found
            yield GoldQuestion(
                id=f"fever-{value.get('id', number)}",
                question=question_of_claim(_plain(text_field(value, "claim"))),
                document=page.document,
                group=f"fever:{page.document.title}",
                answers=(_ANSWERS[label],),
                span=span,
            )


def convert_fool_me_twice(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields FoolMeTwice's claims as questions; the page is its gold evidence, all of it the proof.

    Args:
      path: JSON lines with `id`, `label`, `text`, `wikipedia_page` and `gold_evidence`.
      report: is told what was left out.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            label = text_field(value, "label")
            if label not in _ANSWERS:
                raise BadRecord(f"field 'label': expected SUPPORTS or REFUTES, got {label!r:.40}")
            texts = [text_field(part, "text") for part in list_field(value, "gold_evidence")]
            if not texts:
                raise BadRecord("field 'gold_evidence': is empty")
            title = readable(text_field(value, "wikipedia_page"))
            document = gold.document_of("fool_me_twice", title, " ".join(texts))
            yield GoldQuestion(
                id=f"fool_me_twice-{value.get('id', number)}",
                question=question_of_claim(text_field(value, "text")),
                document=document,
                group=f"fool_me_twice:{title}",
                answers=(_ANSWERS[label],),
                span=(0, len(document.text)),
            )


def _citations(evidence: Any) -> list[tuple[str, int]]:
    """Returns title, as it is written, and number of the sentences of one set of evidence."""
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
    """Returns the pages that are cited, by the titles that cite them."""
    pages: dict[str, _Page] = {}
    for file in files:
        for number, value in gold.read_lines(file, report):
            with report.skipping(f"{file}:{number}"):
                name = value.get("id") if isinstance(value, dict) else None
                if isinstance(name, str) and name in wanted:
                    pages[name] = _page(name, text_field(value, "lines"))
    return pages


def _page(name: str, lines: str) -> _Page:
    """Makes a page of FEVER's lines: number, sentence and links, with tabs between."""
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

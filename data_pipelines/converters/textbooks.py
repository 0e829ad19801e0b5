"""Textbooks as documents to pretrain on: sections cut into pages of whole paragraphs."""

import collections
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_pipelines.converters.gold import (
    BadRecord,
    ConversionReport,
    document_of,
    read_lines,
    text_field,
)
from data_pipelines.converters.titles import readable
from gophercite.documents import Document
from gophercite.text.sentences import sentence_spans

# About 250 tokens, as long as the paragraphs in most question-answering data sets.
PAGE_CHARACTERS = 1000


def convert_textbooks(
    paths: Sequence[Path], report: ConversionReport
) -> Iterator[tuple[str, Document]]:
    """Yields the group and the document of each page; the pages of a section are one group.

    A page has as many of a section's paragraphs as fit into `PAGE_CHARACTERS`; a longer paragraph
    is cut between sentences. A page has its section's title. If several sections share a title
    ("Introduction"), the book's title is put before it.

    Args:
      paths: `.jsonl` or `.jsonl.gz`, one section per line, with `title`, `book` and `text`.
      report: counts what was left out.
    """
    sections = [section for path in paths for section in _sections(path, report)]
    shared = collections.Counter(title for _, title, _ in sections)
    for book, title, text in sections:
        name = f"{readable(book.replace('-', ' ')).capitalize()}: {title}"
        shown = name if shared[title] > 1 else title
        for page in pages(text):
            # Sections with the same book and title stay together, too.
            yield f"{book}:{title}", document_of(book, shown, page)


def pages(text: str) -> Iterator[str]:
    """Yields a text in pages of whole paragraphs; cuts too long paragraphs between sentences."""
    page = ""
    for paragraph in text.split("\n"):
        for piece in _pieces(paragraph.strip()):
            if page and len(page) + len(piece) >= PAGE_CHARACTERS:
                yield page
                page = ""
            page = f"{page}\n{piece}" if page else piece
    if page:
        yield page


def _pieces(paragraph: str) -> Iterator[str]:
    """Yields a complete paragraph, or runs of its sentences that fit on a page.

    A single sentence that is longer than a page stays whole.
    """
    start = end = 0
    for first, last in sentence_spans(paragraph):
        if end > start and last - start > PAGE_CHARACTERS:
            yield paragraph[start:end]
            start = first
        end = last
    if end > start:
        yield paragraph[start:end]


def _sections(path: Path, report: ConversionReport) -> Iterator[tuple[str, str, str]]:
    for number, section in read_lines(path, report):
        try:
            title = readable(text_field(section, "title"))
            if not title:
                raise BadRecord("field 'title': contains nothing but reserved marks")
            yield text_field(section, "book"), title, text_field(section, "text")
        except BadRecord as problem:
            report.skip(f"{path}:{number}", str(problem))

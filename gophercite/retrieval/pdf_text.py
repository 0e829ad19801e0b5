"""The text of a PDF, page by page, within a budget."""

import io
import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

import pdfminer.high_level
from pdfminer.layout import LTPage, LTTextContainer
from pdfminer.pdfdocument import PDFDocument
from pdfminer.pdfparser import PDFParser
from pdfminer.utils import decode_text


class Pdf(NamedTuple):
    """What a PDF says.

    Attributes:
      title: from the file's own description; empty where it has none.
      text: the pages' texts, an empty line between pages and between blocks of text.
      is_whole: false when the budget ended, or damage was met, before the last page.
    """

    title: str
    text: str
    is_whole: bool


def read(content: bytes, *, pages: int, characters: int, seconds: float) -> Pdf:
    """Returns the text of a PDF by pdfminer.six.

    The budget is looked at after each page: a page may take as long as it likes. Run it in a
    process of its own (`gophercite.retrieval.extraction`) when the file is a stranger's.

    Args:
      content: the file.
      pages: how many pages are read at most.
      characters: how much text is read at most.
      seconds: after how long no further page is begun.

    Raises:
      ValueError: when not a single page can be read; the message says why.
    """
    # It warns of every oddity of a file; what matters is told by what is returned.
    logging.getLogger("pdfminer").setLevel(logging.CRITICAL)
    end = time.monotonic() + seconds
    texts: list[str] = []
    length = number = 0
    is_whole = True
    try:
        for page in pdfminer.high_level.extract_pages(io.BytesIO(content), maxpages=pages + 1):
            number += 1
            text = "\n\n".join(_blocks(page))
            length += len(text)
            if number > pages or length > characters:
                is_whole = False
                break
            texts.append(text)
            if time.monotonic() > end:
                is_whole = False
                break
    except Exception as error:  # pdfminer raises nearly anything on a damaged file
        if not texts:
            raise ValueError(f"is no PDF that can be read: {type(error).__name__}") from error
        is_whole = False
    return Pdf(_title(content), "\n\n".join(filter(None, texts)), is_whole)


def _blocks(page: LTPage) -> Iterator[str]:
    for element in page:
        if isinstance(element, LTTextContainer):
            lines = (line.rstrip() for line in element.get_text().split("\n"))
            if block := "\n".join(filter(None, lines)):
                yield block


def _title(content: bytes) -> str:
    try:
        for description in PDFDocument(PDFParser(io.BytesIO(content))).info:
            title = description.get("Title")
            if isinstance(title, bytes) and (text := decode_text(title).strip()):
                return " ".join(text.split())
    except Exception:  # the title is not worth refusing the text
        return ""
    return ""

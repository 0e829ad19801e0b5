"""The text of a PDF, page by page, within a budget."""

import io
import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

import pdfminer.high_level
from pdfminer.layout import LAParams, LTChar, LTPage, LTTextBox, LTTextBoxVertical, LTTextLine
from pdfminer.pdfdocument import PDFDocument, PDFEncryptionError, PDFPasswordIncorrect
from pdfminer.pdfparser import PDFParser
from pdfminer.utils import decode_text

from gophercite.documents import normalise_text
from gophercite.extraction.pdf_layout import Block, Line, block_of, in_reading_order
from gophercite.extraction.pdf_tables import with_tables

_BETWEEN_PAGES = "\n\n"


class Pdf(NamedTuple):
    """The content of a PDF.

    Attributes:
      title: from the file's metadata; empty if it has none.
      text: the pages' texts, with an empty line between pages and between blocks of text.
      is_whole: false if the budget ran out, or damage was found, before the last page.
      page_starts: where each page begins in the text; for a page without text, where the next does.
    """

    title: str
    text: str
    is_whole: bool
    page_starts: tuple[int, ...]


def read(content: bytes, *, pages: int, characters: int, seconds: float) -> Pdf:
    """Returns the text of a PDF by pdfminer.six.

    The budget is checked after each page, so a single page may take any time. For an untrusted
    file, run it in a separate process (`gophercite.extraction.extractor`).

    Args:
      content: the file.
      pages: maximum number of pages to read.
      characters: maximum number of characters to read.
      seconds: time after which no further page is started.

    Raises:
      ValueError: when not even one page can be read; the message says why.
    """
    # pdfminer warns of every oddity of a file; the return value says what matters.
    logging.getLogger("pdfminer").setLevel(logging.CRITICAL)
    end = time.monotonic() + seconds
    texts: list[str] = []
    length = number = 0
    is_whole = True
    try:
        # Without pdfminer's groups, which depend on memory addresses (`pdf_layout`).
        layout = LAParams(boxes_flow=None)
        file = io.BytesIO(content)
        for page in pdfminer.high_level.extract_pages(file, maxpages=pages + 1, laparams=layout):
            number += 1
            text = _text(page)
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
            raise ValueError(_problem(error)) from error
        is_whole = False
    text = _BETWEEN_PAGES.join(filter(None, texts))
    return Pdf(_title(content), text, is_whole, _page_starts(texts, len(text)))


def _problem(error: Exception) -> str:
    if isinstance(error, PDFPasswordIncorrect):
        return "is encrypted: it opens only with a password"
    if isinstance(error, PDFEncryptionError):
        return "is encrypted with an unknown method"
    return f"can't be read as a PDF: {type(error).__name__}"


def _page_starts(texts: list[str], length: int) -> tuple[int, ...]:
    starts, start = [], 0
    for text in texts:
        starts.append(min(start, length))
        start += len(text) + len(_BETWEEN_PAGES) if text else 0
    return tuple(starts)


def _text(page: LTPage) -> str:
    """The page's text, with an empty line between blocks."""
    ordered = in_reading_order(with_tables(list(_blocks(page))))
    text = "\n\n".join(block.text for block in ordered)
    return normalise_text(text.replace("\0", ""))  # which fonts for print alone give for a sign


def _blocks(page: LTPage) -> Iterator[Block]:
    for element in page:
        if not isinstance(element, LTTextBox):
            continue
        found = [line for line in element if isinstance(line, LTTextLine)]
        lines = [Line(*line.bbox, line.get_text().rstrip()) for line in found]
        if lines := [line for line in lines if line.text]:
            letters = [each for line in found for each in line if isinstance(each, LTChar)]
            yield block_of(lines)._replace(
                is_vertical=isinstance(element, LTTextBoxVertical),
                is_turned=2 * sum(letter.upright for letter in letters) < len(letters),
            )


def _title(content: bytes) -> str:
    try:
        for description in PDFDocument(PDFParser(io.BytesIO(content))).info:
            title = description.get("Title")
            if isinstance(title, bytes) and (text := decode_text(title).strip()):
                return " ".join(text.replace("\0", "").split())
    except Exception:  # a bad title is no reason to refuse the text
        return ""
    return ""

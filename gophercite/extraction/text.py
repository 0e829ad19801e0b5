"""Converts the bytes of a page to the text of a document.

The text that comes out here is what the model sees and what a quote points into: `Document`
normalises it once, hashes it, and nothing changes it afterwards.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, Literal

from gophercite.extraction.charset import decode

# Increase this whenever the text of equal bytes changes; cached texts are then extracted again.
EXTRACTION_VERSION = 7

TITLE_CHARACTERS = 300  # a title is part of every prompt and answer

_LOOKED_AT = 1 << 16  # first characters that are examined to see whether it is text at all
_HEADER = 128  # these are also examined by themselves: after them an archive may hold whole texts
_MOST_CONTROLS = 0.05  # maximum share of control characters; random bytes have 0.11, texts almost 0
_PDF_MARK = b"%PDF-"
_LINE_END = re.compile(r"\r\n?|\n")
_WIDE_TAG = re.compile(r"[\0\s]*(\0<|<\0)")  # in UTF-16 or UTF-32 that was read byte by byte
_CONTROLS = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")

Mode = Literal["article", "full", "browser", "browser-full"]


class TextError(Exception):
    """No text can be extracted from this content; the message says why."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """What the text of one page may cost.

    Attributes:
      content_bytes: maximum size of the content.
      characters: maximum length of the text; longer texts are cut.
      pages: maximum number of pages of a PDF.
      seconds: maximum time.
      memory_bytes: maximum address space, where the operating system can limit it.
    """

    content_bytes: int = 32 << 20
    characters: int = 8_000_000
    pages: int = 1000
    seconds: float = 30.0
    memory_bytes: int = 3 << 30


@dataclasses.dataclass(frozen=True)
class PageText:
    """The content of a page.

    Attributes:
      title: the page's own title; empty if it has none.
      text: its text.
      is_whole: false if the budget ran out, or damage or more than 2048 nested elements were
        found, before the end of the page.
      page_starts: for a PDF, where each of its pages begins in the text, as in `Document`.
      links: in order, each with the start and end of its text and its address as the page gives
        it. Only in the browser's modes, like the next two; there the text is already normalised,
        so that these offsets are offsets in the document.
      anchors: anchor names and their offsets.
      base: the base address that the page declares.
    """

    title: str
    text: str
    is_whole: bool = True
    page_starts: tuple[int, ...] = ()
    links: tuple[tuple[int, int, str], ...] = ()
    anchors: tuple[tuple[str, int], ...] = ()
    base: str = ""


def page_from_json(value: dict[str, Any]) -> PageText:
    """Builds a page from an untrusted JSON object; offsets that are not valid are ignored."""
    text = str(value["text"])
    starts = value.get("page_starts")
    are_places = (
        isinstance(starts, list)
        and all(type(start) is int for start in starts)
        and [0, *starts[1:], len(text)] == sorted([*starts, len(text)])
    )
    return PageText(
        str(value.get("title", "")),
        text,
        value.get("is_whole") is True,
        tuple(starts) if are_places and starts else (),
        tuple(_good_links(value.get("links"), len(text))),
        tuple(_good_anchors(value.get("anchors"), len(text))),
        str(value.get("base", "")),
    )


def _good_links(found: Any, length: int) -> Iterator[tuple[int, int, str]]:
    end = 0
    for link in found if isinstance(found, list | tuple) else ():
        match link:
            case [int(start), int(stop), str(address)] if end <= start < stop <= length:
                yield start, stop, address
                end = stop


def _good_anchors(found: Any, length: int) -> Iterator[tuple[str, int]]:
    for anchor in found if isinstance(found, list | tuple) else ():
        match anchor:
            case [str(name), int(place)] if 0 <= place <= length:
                yield name, place


_KINDS = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/plain": "plain",
}
READABLE_TYPES = (*_KINDS, "text/*", "application/json", "application/xml")


def media_type(content_type: str) -> str:
    """The type without parameters, in lower case: `Text/HTML; charset=utf-8` is `text/html`."""
    return content_type.partition(";")[0].strip().lower()


def page_text(
    content: bytes, content_type: str = "", *, mode: Mode = "article", budget: Budget | None = None
) -> PageText:
    """Returns the title and text of a page.

    A hostile page can take long here, or crash the interpreter inside a parser: pass untrusted
    pages to `gophercite.extraction.extractor.Extractor`, which does the same in a separate process
    with limits.

    Args:
      content: the page's bytes.
      content_type: the server's header; if it is empty or only says "bytes", the content itself
        decides, and it always does for a PDF.
      mode: for HTML: `article` for the main text, `full` for all that a reader sees; `browser` and
        `browser-full` for the same as the text browser shows them, with links.
      budget: what it may cost; for plain text only size and length count.

    Raises:
      TextError: when the content is too large, of a type that can't be read, or not of its type.
    """
    budget = budget or Budget()
    if len(content) > budget.content_bytes:
        raise TextError(f"has {len(content)} bytes, but at most {budget.content_bytes} are allowed")
    kind = _kind(content, media_type(content_type))
    page = _read(kind, content, content_type, mode, budget)
    longest = budget.characters
    return PageText(
        page.title[:TITLE_CHARACTERS],
        page.text[:longest],
        page.is_whole and len(page.text) <= longest,
        tuple(start for start in page.page_starts if start <= longest),
        tuple(link for link in page.links if link[1] <= longest),
        tuple(anchor for anchor in page.anchors if anchor[1] <= longest),
        page.base,
    )


def is_pdf(content: bytes) -> bool:
    """Whether the content is a PDF, whatever its type says: in other types its bytes are text."""
    return content.startswith(_PDF_MARK)


def is_readable(media: str) -> bool:
    """Whether text can be extracted from this type: HTML, PDF, and everything that is text."""
    return media in _KINDS or _is_text(media)


def _is_text(media: str) -> bool:
    return (
        media.startswith("text/")
        or media in ("application/json", "application/xml")
        or (media.startswith("application/") and media.endswith(("+json", "+xml")))
    )


def _kind(content: bytes, media: str) -> str:
    if media in ("", "application/octet-stream", "binary/octet-stream"):
        start = content[:1024].lstrip().lower()
        if start.startswith(b"%pdf-"):
            return "pdf"
        if start.startswith((b"<!doctype html", b"<html", b"<?xml")) or b"<html" in start:
            return "html"
        if b"\0" in start:
            raise TextError("is neither text, HTML nor PDF")
        return "plain"
    if not is_readable(media):
        readable = ", ".join(READABLE_TYPES)
        raise TextError(
            f"has type {media[:100]!r}, which can't be read as text (only {readable} can)"
        )
    if is_pdf(content):
        return "pdf"
    return _KINDS.get(media, "plain")


def _read(kind: str, content: bytes, content_type: str, mode: Mode, budget: Budget) -> PageText:
    # Parsers are imported only for pages that need them: together they take a second to load.
    if kind == "html":
        page = decode(content, content_type, html=True)
        start = page[:_LOOKED_AT]
        # Browsers, too, ignore zeros: UTF-16 that is not declared has one in each Latin letter.
        if _is_binary(start.replace("\0", "") if _WIDE_TAG.match(start) else start):
            raise TextError("is not HTML: it has too many control characters")
        if mode in ("browser", "browser-full"):
            from gophercite.extraction import browser_html

            linked = browser_html.read(page, whole=mode == "browser-full")
            title, text, links, anchors, base, is_whole = linked
            return PageText(title, text, is_whole, links=links, anchors=anchors, base=base)
        from gophercite.extraction import html_text

        extract = html_text.full if mode == "full" else html_text.article
        return PageText(*extract(page))
    if kind == "pdf":
        from gophercite.extraction import pdf_text

        try:
            return PageText(
                *pdf_text.read(
                    content,
                    pages=budget.pages,
                    characters=budget.characters,
                    seconds=budget.seconds / 2,  # half, so that a partial text still gets back
                )
            )
        except ValueError as error:
            raise TextError(str(error)) from None
    text = decode(content, content_type)
    if _is_binary(text):
        raise TextError("is not text: it has too many control characters")
    text = text.replace("\0", "")  # as in HTML: after one, FTS5's snippets lose text
    return PageText(_heading(text) if kind == "markdown" else "", text)


def _is_binary(text: str) -> bool:
    return any(
        len(_CONTROLS.findall(start)) > _MOST_CONTROLS * max(len(start), _HEADER)
        for start in (text[:_HEADER], text[:_LOOKED_AT])
    )


def _heading(text: str) -> str:
    """The first heading of a Markdown text, if it is written with `#`."""
    for line in _LINE_END.split(text, maxsplit=200)[:200]:
        if line.startswith("# "):
            return line.strip("# \t")
    return ""

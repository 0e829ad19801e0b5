"""Builds a recorded world from documents, to browse them offline, linked by their titles.

    python -m data_pipelines.record_web documents.jsonl notes/ pages.jsonl.gz --out worlds/own

It reads the files that `gophercite ask --documents` reads (text, Markdown, HTML, PDF, JSON lines of
documents). It also reads JSON lines with `html`, as in `articles.jsonl.gz`, and keeps the links in
it. The first mention of another page's title becomes a link. A page without a web address gets one
at `--host`. Searches are answered from an index of the pages, which is written next to them.
"""

import argparse
import collections
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from gophercite.browser.hosts import without_fragment
from gophercite.browser.pages import Page
from gophercite.browser.read_pages import page_of_text
from gophercite.browser.recorded import INDEX, Recorder
from gophercite.browser.shown import Link
from gophercite.browser.worlds import SiteWorld
from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import TextError
from gophercite.retrieval.files import FilesReport, read_files
from gophercite.retrieval.index import DocumentIndex
from gophercite.storage.json_fields import JsonFields, RecordError
from gophercite.storage.json_lines import read_json_lines
from gophercite.text.counting import counted

HOST = "documents.example"
_WORD = re.compile(r"\w+")
_SHORTEST_TITLE = 4  # characters; shorter ones occur by chance
_LONGEST_TITLE = 12  # words; longer titles are not linked


def pages_of(
    paths: Iterable[str], extractor: Extractor, host: str, report: FilesReport
) -> Iterator[Page]:
    """Yields the pages of files and folders, each with its own web address.

    Args:
      paths: files and folders.
      extractor: extractor in one of the browser's modes.
      host: host of pages that have no address.
      report: collects counts and problems.
    """
    taken: set[str] = set()
    for path in paths:
        for page in _pages_of(path, extractor, host, report):
            # Pages are opened without the fragment of their address, so it can't tell two apart.
            url, _ = without_fragment(page.document.url or "")
            if not url.startswith(("http://", "https://")) or url in taken:
                url = _free_address(page.document, host, taken)
            taken.add(url)
            yield _moved(page, url)


def linked(pages: Sequence[Page]) -> list[Page]:
    """Returns the pages with each first mention of another page's title as a link to that page.

    Existing links stay. If several pages share a title, the link leads to the first. If several
    titles match at one place, the longest is linked. Titles of fewer than four characters or more
    than twelve words are never linked.
    """
    titles: dict[str, dict[tuple[str, ...], str]] = collections.defaultdict(dict)
    for page in pages:
        title = page.document.title
        words = tuple(_WORD.findall(title))
        if len(title) >= _SHORTEST_TITLE and 1 <= len(words) <= _LONGEST_TITLE:
            titles[words[0]].setdefault(words, page.document.url or "")
    return [_with_links(page, titles) for page in pages]


def _with_links(page: Page, titles: dict[str, dict[tuple[str, ...], str]]) -> Page:
    text, own = page.document.text, page.document.url
    named = {link.url for link in page.links} | {own}
    matches = list(_WORD.finditer(text))
    words = [match.group() for match in matches]
    taken = [False] * (len(text) + 1)
    for link in page.links:
        taken[link.start : link.end] = [True] * (link.end - link.start)
    links, skip = list(page.links), 0
    for place, word in enumerate(words):
        candidates = titles.get(word, {})
        if place < skip or not candidates:
            continue
        for length in range(min(_LONGEST_TITLE, len(words) - place), 0, -1):
            url = candidates.get(tuple(words[place : place + length]))
            if url is None:
                continue
            start, end = matches[place].start(), matches[place + length - 1].end()
            if url not in named and "\n" not in text[start:end] and not any(taken[start:end]):
                named.add(url)
                links.append(Link(start, end, url))
            skip = place + length
            break
    return Page(page.document, tuple(sorted(links, key=lambda link: link.start)), page.anchors)


def _pages_of(path: str, extractor: Extractor, host: str, report: FilesReport) -> Iterator[Page]:
    if _holds_html(path):
        yield from _html_pages(path, extractor, host, report)
        return
    for document in read_files([path], extractor, report):
        yield Page(document)


def _holds_html(path: str) -> bool:
    if not path.endswith((".jsonl", ".jsonl.gz")) or not Path(path).is_file():
        return False
    first = next((value for _, value in read_json_lines(path)), None)
    return isinstance(first, dict) and "html" in first


def _html_pages(path: str, extractor: Extractor, host: str, report: FilesReport) -> Iterator[Page]:
    for number, value in read_json_lines(path):
        try:
            if isinstance(value, RecordError):
                raise value
            fields = JsonFields(value, None, collections.Counter())
            html = fields.text("html", raw=True)
            url = fields.optional_text("url") or _address_of(fields.text("id"), host)
            text = extractor.page_text(html.encode("utf-8", errors="replace"), "text/html")
            if not text.text.strip():
                raise TextError("has no text")
        except (RecordError, TextError) as error:
            report.skipped += 1
            print(f"{path}:{number}: {error}", file=sys.stderr)
        else:
            report.read += 1
            yield page_of_text(url, text, None)


def _address_of(id: str, host: str) -> str:
    return f"http://{host}/{urllib.parse.quote(id)}"


def _free_address(document: Document, host: str, taken: set[str]) -> str:
    name = urllib.parse.quote("_".join(document.title.split())[:150], safe="")
    address, number = f"http://{host}/{name}", 1
    while address in taken:
        number += 1
        address = f"http://{host}/{name}_{number}"
    return address


def _moved(page: Page, url: str) -> Page:
    old = page.document
    if old.url == url:
        return page
    document = Document(
        old.id, old.title, old.text, url, old.retrieved_at, page_starts=old.page_starts
    )
    return Page(document, page.links, page.anchors)


def record(
    pages: Sequence[Page],
    folder: str | os.PathLike[str],
    name: str | None = None,
    hidden: Collection[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Writes pages as a recorded world, with the index that answers its searches.

    Args:
      pages: the pages, each with an address.
      folder: a new folder.
      name: name of the world; the folder's by default.
      hidden: addresses of pages that searches don't find.
      progress: called with the number of pages written.

    Raises:
      FileExistsError: the folder already exists.
      RecordError: a page has an address at which it can't be opened, such as one with a `#`.
    """
    out = Path(folder)
    if out.exists():
        raise FileExistsError(f"{folder}: already exists; name a new folder")
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    # The folder appears only when it is complete.
    with DocumentIndex(None) as nothing:
        world = SiteWorld(name or out.name, pages, nothing)
        with Recorder(world, partial, name or out.name) as recorder:
            for number, page in enumerate(pages, 1):
                url = page.document.url or ""
                if (opened := recorder.open(url)).problem is not None:
                    raise RecordError(f"{url}: the page can't be recorded: {opened.problem}")
                progress(number)
    with DocumentIndex(partial / INDEX, write=True) as index:
        index.add(page.document for page in pages if page.document.url not in hidden)
    partial.rename(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", nargs="+", metavar="PATH", help="files and folders to record")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="new folder for the world")
    parser.add_argument("--name", help="name of the world (default: the folder's name)")
    parser.add_argument(
        "--host",
        default=HOST,
        help="host in the addresses of pages that have none (default %(default)s)",
    )
    parser.add_argument(
        "--html",
        choices=("browser", "browser-full"),
        default="browser",
        help="which part of an HTML page to record (default browser)",
    )
    options = parser.parse_args(arguments)
    report = FilesReport()
    try:
        with Extractor(options.html) as extractor:
            pages = linked(list(pages_of(options.documents, extractor, options.host, report)))
        if not pages:
            raise RecordError(
                "hold no document that can be recorded", None, " ".join(options.documents)
            )
        record(pages, options.out, options.name)
    except (OSError, RecordError) as error:
        print(f"record_web: {error}", file=sys.stderr)
        return 1
    print(report)
    links = sum(len(page.links) for page in pages)
    print(f"{counted(len(pages), 'page')} with {counted(links, 'link')} in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

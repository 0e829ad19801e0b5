"""Recorded worlds: a folder of pages and search results that a recording run writes.

Training, tests and demonstrations read the folder and never change it, so it is the same on every
machine, without a network. Its files are JSON lines:

* `world.json`: the format, its version, the world's name.
* `pages.jsonl`: documents (`docs/records.md`), so that `gophercite verify --documents` takes it;
  with `links` (`[start, end, address]`), `anchors` (`[name, place]`) and `sha256` of the text.
* `addresses.jsonl`: for each opened `url`, the `page` (its id) and the start of its line in
  `pages.jsonl` (`at`, in bytes), or the `problem` that occurred.
* `searches.jsonl`: for each `query` and number of hits (`k`), the `hits` or the `problem`.
"""

import collections
import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from gophercite.browser.document_worlds import IndexWorld
from gophercite.browser.hosts import without_fragment
from gophercite.browser.kept_pages import KeptPages
from gophercite.browser.page_lines import page_from_json, page_to_json
from gophercite.browser.pages import Page, error_page
from gophercite.browser.recording_files import (
    ADDRESSES,
    LINES,
    PAGES,
    SEARCHES,
    WORLD,
    drop_unfinished_line,
    is_begun,
    lock,
)
from gophercite.browser.worlds import World
from gophercite.documents import Document, normalise_text
from gophercite.retrieval.engine import Hit, SearchError
from gophercite.retrieval.index import DocumentIndex
from gophercite.storage import local_copy
from gophercite.storage.json_fields import JsonFields, RecordError
from gophercite.storage.json_lines import MAXIMUM_LINE_BYTES, read_json_lines, read_one
from gophercite.storage.paths import is_remote

FORMAT, VERSION = "gophercite world", 1
INDEX = "index.db"  # of the pages, for queries that were not recorded; built if it is missing


class RecordedWorld:
    """A recorded world, read from its folder. Close it, or use it in a `with`.

    A query that was not recorded is answered from the recorded pages by the embedded search engine.

    Args:
      folder: what `Recorder` wrote. For a folder in a bucket, a temporary copy is read.

    Raises:
      FileNotFoundError: when there is no such folder.
      RecordError: when it is not a recorded world, or a line of addresses or searches is damaged.
        Methods raise it for a damaged page.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._copied = contextlib.ExitStack()
        self._folder = self._copied.enter_context(local_copy(folder))
        self.name: str = read_one(self._folder / WORLD, _name_of)
        self._addresses = dict(_read(self._folder / ADDRESSES, _address))
        self._searches = dict(_read(self._folder / SEARCHES, _search))
        self._pages = KeptPages()
        self._file: IO[bytes] = (self._folder / PAGES).open("rb")
        self._index: DocumentIndex | None = None

    def __enter__(self) -> "RecordedWorld":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files."""
        self._file.close()
        if self._index is not None:
            self._index.close()
        self._copied.close()

    def knows_address(self, address: str) -> bool:
        """Whether this address was opened."""
        return address in self._addresses

    def place_of(self, address: str) -> int | None:
        """Where the line of this address's page starts, in bytes; None if it has no page."""
        at = self._addresses.get(address)
        return at if isinstance(at, int) else None

    def knows_search(self, query: str, k: int) -> bool:
        """Whether this search was recorded."""
        return (query, k) in self._searches

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """As `World.search`."""
        found = self._searches.get((query, k))
        if isinstance(found, str):
            raise SearchError(found)
        if found is not None:
            return found
        return self._own_pages.search(query, k)

    def open(self, url: str) -> Page:
        """As `World.open`."""
        address, _ = without_fragment(url)
        return self._pages.get(address, self._read_page)

    def documents(self) -> Iterator[Document]:
        """Yields the documents of all pages, each once, in file order."""
        places = {at for at in self._addresses.values() if isinstance(at, int)}
        for at in sorted(places):
            yield self._page_at(at).document

    def _read_page(self, address: str) -> Page:
        at = self._addresses.get(address)
        if at is None:
            return error_page(address, "it is not in this recorded world")
        return error_page(address, at) if isinstance(at, str) else self._page_at(at)

    def _page_at(self, at: int) -> Page:
        try:
            self._file.seek(at)
            line = self._file.readline(MAXIMUM_LINE_BYTES + 1)
            return page_from_json(json.loads(line))
        except RecordError as error:
            raise self._damaged(at, str(error)) from None
        except (ValueError, OverflowError, RecursionError):
            raise self._damaged(at, "is not a line of JSON") from None

    def _damaged(self, at: int, problem: str) -> RecordError:
        return RecordError(f"the page at byte {at}: {problem}", None, self._folder / PAGES)

    @functools.cached_property
    def _own_pages(self) -> IndexWorld:
        path = self._folder / INDEX
        self._index = DocumentIndex(path if path.exists() else None)
        if not path.exists():
            self._index.add(self.documents())
        return IndexWorld(self._index)


class Recorder:
    """Writes what a world returns to a folder. Close it, or use it in a `with`.

    What the folder already has is served from there; the rest comes from the world and is written
    at once. A run that was killed can be resumed: its unfinished line is dropped.

    Args:
      world: the world to record.
      folder: on a disk; created if missing.
      name: name of the recorded world; the folder's name by default.

    Raises:
      RecordError: when the folder contains something else, is in a bucket, or is being recorded by
        another process.
    """

    def __init__(
        self, world: World, folder: str | os.PathLike[str], name: str | None = None
    ) -> None:
        if is_remote(folder):
            raise RecordError(
                "is in a bucket, where files can't grow: record on a disk", None, folder
            )
        self._world = world
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        is_new = not is_begun(path)
        with contextlib.ExitStack() as stack:
            # A lock on an open file, which ends with the process.
            lock(path, stack.enter_context((path / ADDRESSES).open("ab")))
            for each in LINES:
                (path / each).touch()
                drop_unfinished_line(path / each)
            if is_new:
                about = {"format": FORMAT, "version": VERSION, "name": name or path.resolve().name}
                (path / WORLD).write_text(json.dumps(about, ensure_ascii=False) + "\n", "utf-8")
            self._recorded = stack.enter_context(RecordedWorld(path))
            self._open = stack.pop_all()
        self.name = self._recorded.name
        self._opened: dict[str, Page] = {}
        self._searched: dict[tuple[str, int], Sequence[Hit] | str] = {}
        # Start of each written page's line, by the page's id and content.
        self._written: dict[tuple[str, str], int] = {}
        self._files = {each: (path / each).open("ab") for each in LINES}

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; the caller closes the world."""
        for file in self._files.values():
            file.close()
        self._open.close()

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """As `World.search`."""
        if self._recorded.knows_search(query, k):
            return self._recorded.search(query, k)
        key = query, k
        if key not in self._searched:
            try:
                hits = self._world.search(query, k)
                # In the form in which they will be read: UTF-8 holds no lone surrogates.
                found: Sequence[Hit] | str = [_normalised(hit) for hit in hits]
            except SearchError as error:
                found = str(error)
            value: dict[str, Any] = {"query": query, "k": k}
            value |= {"problem": found} if isinstance(found, str) else {"hits": _hits_json(found)}
            self._write(SEARCHES, value)
            self._searched[key] = found
        found = self._searched[key]
        if isinstance(found, str):
            raise SearchError(found)
        return found

    def open(self, url: str) -> Page:
        """As `World.open`."""
        address, _ = without_fragment(url)
        if self._recorded.knows_address(address):
            return self._recorded.open(address)
        if address not in self._opened:
            page = self._world.open(address)
            # Where a redirect led. Several documents of an index may have one address.
            document = page.document
            own = document.id if document.id == document.url else address
            seen = self._seen(own)
            if seen is not None and seen.problem is None:
                page = seen  # though the page may have changed since
            problem = page.problem or self._write_page(page)
            if problem is not None:
                self._write(ADDRESSES, {"url": address, "problem": problem})
                self._opened[address] = error_page(address, problem)
            else:
                # The page's own address first: links within it lead there.
                for each in dict.fromkeys([own, address] if seen is None else [address]):
                    self._write_address(each, page)
                    self._opened[each] = page
        return self._opened[address]

    def _seen(self, address: str) -> Page | None:
        """What was seen at an address, in this recording or in one that it continues."""
        if not self._recorded.knows_address(address):
            return self._opened.get(address)
        page, at = self._recorded.open(address), self._recorded.place_of(address)
        if at is not None:
            self._written.setdefault(_key(page), at)
        return page

    def _write_page(self, page: Page) -> str | None:
        """Writes a page if it isn't there; returns why it can't be recorded, or None."""
        if _key(page) not in self._written:
            line = _line(page_to_json(page))
            if len(line) > MAXIMUM_LINE_BYTES:
                return "it is too long to be recorded"
            self._written[_key(page)] = self._append(PAGES, line)
        return None

    def _write_address(self, address: str, page: Page) -> None:
        at = self._written[_key(page)]
        self._write(ADDRESSES, {"url": address, "page": page.document.id, "at": at})

    def _write(self, name: str, value: dict[str, Any]) -> None:
        self._append(name, _line(value))

    def _append(self, name: str, line: bytes) -> int:
        """Appends a line; returns its start in bytes."""
        file = self._files[name]
        at = file.tell()
        file.write(line)
        file.flush()
        return at


def _key(page: Page) -> tuple[str, str]:
    return page.document.id, page.document.sha256


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def _normalised(hit: Hit) -> Hit:
    return Hit(normalise_text(hit.url), normalise_text(hit.title), normalise_text(hit.snippet))


def _hits_json(hits: Iterable[Hit]) -> list[dict[str, str]]:
    return [{"url": hit.url, "title": hit.title, "snippet": hit.snippet} for hit in hits]


def _name_of(value: object) -> str:
    fields = JsonFields(value, ("format", "version", "name"), collections.Counter())
    if fields.text("format") != FORMAT:
        raise fields.error("format", f"must be {FORMAT!r}: is this a recorded world?")
    if fields.integer("version") != VERSION:
        raise fields.error("version", f"must be {VERSION}, which this program reads")
    return fields.text("name")


def _address(fields: JsonFields) -> tuple[str, int | str]:
    url = fields.text("url", empty=True, raw=True)
    if "problem" in fields:
        return url, fields.text("problem")
    at = fields.integer("at")
    if at < 0:
        raise fields.error("at", "must not be negative")
    return url, at


def _search(fields: JsonFields) -> tuple[tuple[str, int], Sequence[Hit] | str]:
    key = fields.text("query", empty=True, raw=True), fields.integer("k")
    if "problem" in fields:
        return key, fields.text("problem")
    hits = [
        Hit(
            hit.text("url", empty=True, raw=True),
            hit.text("title", empty=True, raw=True),
            hit.text("snippet", empty=True, raw=True),
        )
        for hit in fields.objects("hits", ("url", "title", "snippet"), required=True)
    ]
    return key, hits


def _read(path: pathlib.Path, make: Any) -> Iterator[Any]:
    """Yields the parsed lines of a file; if a key occurs twice, the first line counts."""
    known = {
        ADDRESSES: ("url", "page", "at", "problem"),
        SEARCHES: ("query", "k", "hits", "problem"),
    }[path.name]
    seen = set()
    for number, value in read_json_lines(path):
        try:
            if isinstance(value, RecordError):
                raise value
            key, parsed = make(JsonFields(value, known, collections.Counter()))
        except RecordError as error:
            raise RecordError(error.problem, error.field, path, number) from None
        if key not in seen:
            seen.add(key)
            yield key, parsed

"""Where a command's pages come from: files, an index, or a web search engine."""

import argparse
import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gophercite.cli.output import RefusedError, doing, note, require_on_disk, shown

if TYPE_CHECKING:
    from gophercite.answering.pages import PageSource
    from gophercite.documents import Document
    from gophercite.extraction.extractor import Extractor
    from gophercite.retrieval.engine import SearchEngine
    from gophercite.retrieval.fetch import FetchSettings
    from gophercite.retrieval.files import FilesReport
    from gophercite.retrieval.index import DocumentIndex
    from gophercite.retrieval.web import WebEngine


def page_source(options: argparse.Namespace, stack: contextlib.ExitStack) -> "PageSource":
    """Opens what `--documents`, `--index` or `--engine` names; `stack` closes it."""
    from gophercite.answering.pages import IndexedPages, WebPages
    from gophercite.extraction.extractor import Extractor

    if options.index is not None:
        return IndexedPages(stack.enter_context(opened_index(options.index)))
    if options.documents is not None:
        return IndexedPages(*_index_of_documents(options, stack))
    engine = stack.enter_context(_engine(options))
    extractor = stack.enter_context(Extractor(options.html))
    return WebPages(engine, extractor, fetch_settings(options))


def search_engine(options: argparse.Namespace, stack: contextlib.ExitStack) -> "SearchEngine":
    """Opens what the same flags name, for a search without fetching pages."""
    if options.index is not None:
        return stack.enter_context(opened_index(options.index))
    if options.documents is not None:
        index, report = _index_of_documents(options, stack)
        for problem in report.problems:
            note(f"skipped: {problem.path}: {problem.reason}")
        return index
    return stack.enter_context(_engine(options))


def _index_of_documents(
    options: argparse.Namespace, stack: contextlib.ExitStack
) -> "tuple[DocumentIndex, FilesReport]":
    """Reads `--documents`; returns an index of them, and a report on the files."""
    from gophercite.answering.pages import index_in_memory
    from gophercite.retrieval.files import FilesReport

    report = FilesReport()
    with doing("reading"):
        index = stack.enter_context(index_in_memory(documents_of(options, report)))
    return index, report


def documents_of(options: argparse.Namespace, report: "FilesReport") -> "Iterator[Document]":
    """Yields the documents of `--documents`; notes which files were only partly read."""
    from gophercite.retrieval import files

    with extractor_of(options) as extractor:
        yield from shown(files.read_files(options.documents, extractor, report), "documents")
    for path in report.partial:
        note(f"{path}: only a part of it could be read")


def extractor_of(options: argparse.Namespace) -> "Extractor":
    """Opens the extractor that `--html`, `--max-file-size` and `--no-text-cache` describe."""
    from gophercite.extraction.extractor import Extractor
    from gophercite.extraction.text import Budget
    from gophercite.extraction.text_cache import TextCache

    cache = None if options.no_text_cache else TextCache(cache_folder() / "texts")
    return Extractor(options.html, Budget(options.max_file_size << 20), cache=cache)


def cache_folder() -> pathlib.Path:
    """The folder where commands cache what can be computed again."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home, "gophercite")


def keep_compiled_programs() -> None:
    """Enables JAX's compilation cache, so that the next run need not compile again."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@contextlib.contextmanager
def opened_index(path: str) -> "Iterator[DocumentIndex]":
    """Opens an index for reading.

    Raises:
      RefusedError: when it can't be opened.
    """
    from gophercite.retrieval.index import DocumentIndex
    from gophercite.retrieval.index_file import IndexFileError

    try:
        with DocumentIndex(path) as index:
            yield index
    except IndexFileError as error:
        raise RefusedError(str(error)) from error


def fetch_settings(options: argparse.Namespace) -> "FetchSettings":
    """How pages are fetched."""
    from gophercite.retrieval.fetch import FetchSettings

    return FetchSettings(allowed_networks=tuple(options.networks))


@contextlib.contextmanager
def _engine(options: argparse.Namespace) -> "Iterator[WebEngine]":
    from gophercite.retrieval.apis import api_from_environment
    from gophercite.retrieval.web import WebEngine, WebSettings

    if options.search_cache is not None:
        require_on_disk("--search-cache", options.search_cache)
    api = api_from_environment(options.engine)
    with WebEngine(api, WebSettings(cache=options.search_cache)) as engine:
        yield engine

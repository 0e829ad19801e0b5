"""Where a question's pages come from (GopherCite, section 2.3): the user's own, or the web."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.records.answers import Answer, LeftOut
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.engine import SearchEngine, parse_query
from gophercite.retrieval.files import FilesReport, read_files
from gophercite.retrieval.index import DocumentIndex

if TYPE_CHECKING:
    from gophercite.retrieval.fetch import FetchSettings

Paths = str | os.PathLike[str]
OwnDocuments = Paths | Iterable[Paths | Document]


@dataclasses.dataclass(frozen=True)
class FoundPages:
    """What was found for a question.

    Attributes:
      results: the pages, the best first, each with the snippet that the engine shows for it.
      left_out: pages that were found but could not be read.
      unread: given files that could not be read, whatever the question.
      search_inside: whether prompts show the passages of long pages that fit the question best.
        Otherwise they show what is around the snippets, as in the paper, whose search engine knew
        more than our own does.
    """

    results: tuple[SearchResult, ...]
    left_out: tuple[LeftOut, ...] = ()
    unread: tuple[LeftOut, ...] = ()
    search_inside: bool = False

    def named_in(self, answer: Answer) -> Answer:
        """Returns the answer with the files that could not be read named first."""
        return dataclasses.replace(answer, left_out=(*self.unread, *answer.left_out))


def asked(question: str) -> str:
    """Returns a question as the model gets it: on one line, without search filters.

    Raises:
      ValueError: when nothing is left.
    """
    text = parse_query(question).text
    if not text:
        raise ValueError("there is no question: it is blank, or contains only filters")
    return text


class PageSource(Protocol):
    """Anything that finds pages for a question."""

    def find(self, question: str, k: int) -> FoundPages:
        """Returns at most `k` pages for a question; `site:` and `-site:` in it are filters.

        Raises:
          SearchError: when the engine can't answer.
        """
        ...


class IndexedPages:
    """The pages of an index.

    If a search finds nothing and the index has at most `k` documents, all that the question's
    filters admit are returned: users who give few documents want an answer from them, however it
    is worded.

    Args:
      index: open; the caller closes it.
      report: which files could not be read when the index was built from files.
    """

    def __init__(self, index: DocumentIndex, report: FilesReport | None = None) -> None:
        self._index = index
        problems = report.problems if report is not None else []
        self._unread = tuple(LeftOut(each.path, each.reason) for each in problems)

    def find(self, question: str, k: int) -> FoundPages:
        """As `PageSource.find`."""
        results = []
        for hit in self._index.search(question, k):
            with contextlib.suppress(KeyError):  # deleted in the meantime
                results.append(SearchResult(self._index.document(hit.id or ""), hit.snippet))
        if not results and len(self._index) <= k:
            admits = parse_query(question).admits
            results = [
                SearchResult(document)
                for document in self._index.documents()
                if admits(document.url or "")
            ]
        if self._unread and not len(self._index):  # no other document was given: that is the reason
            return FoundPages((), left_out=self._unread)
        return FoundPages(tuple(results), unread=self._unread, search_inside=True)


def given_pages(results: Iterable[SearchResult]) -> FoundPages:
    """Returns pages that somebody chose for a question, in their order.

    Their passages are shown where they are long, unless a search showed a snippet of any of them.
    """
    results = tuple(results)
    known = any(result.snippet is not None for result in results)
    return FoundPages(results, search_inside=not known)


class WebPages:
    """The pages that a web search engine finds, fetched and converted to text.

    Args:
      engine: finds addresses.
      extractor: converts pages to text; the caller closes it.
      settings: how pages are fetched.
    """

    def __init__(
        self, engine: SearchEngine, extractor: Extractor, settings: "FetchSettings | None" = None
    ) -> None:
        self._engine = engine
        self._extractor = extractor
        self._settings = settings

    def find(self, question: str, k: int) -> FoundPages:
        """As `PageSource.find`; pages that can't be fetched are left out.

        Filters also apply to the addresses that hits are redirected to. A page that several hits
        lead to counts once.
        """
        # Answers from the user's own files don't wait for an HTTP client.
        from gophercite.retrieval.fetch import FetchError, fetch_documents

        admits = parse_query(question).admits
        hits = self._engine.search(question, k)
        pages = fetch_documents([hit.url for hit in hits], self._extractor, self._settings)
        results: dict[str, SearchResult] = {}
        left_out = []
        for hit, page in zip(hits, pages, strict=True):
            if isinstance(page, FetchError):
                left_out.append(LeftOut(hit.url, page.problem))
            elif not admits(page.id):
                problem = f"is redirected to {page.id}, which the question's filters exclude"
                left_out.append(LeftOut(hit.url, problem))
            else:
                results.setdefault(page.id, SearchResult(page, hit.snippet))
        return FoundPages(tuple(results.values()), tuple(left_out))


def index_in_memory(documents: Iterable[Document]) -> DocumentIndex:
    """Returns an index of documents that disappears when it is closed."""
    index = DocumentIndex(None)
    index.add(documents)
    return index


def read_documents(
    documents: OwnDocuments, report: FilesReport | None = None
) -> Iterator[Document]:
    """Yields documents: those given, and those read from files and folders.

    Args:
      documents: a file or folder, or any mix of files, folders and documents. Files that can't be
        read are skipped.
      report: records which files were skipped, and why.

    Raises:
      FileNotFoundError: when there is no such file or folder.
    """
    items = [documents] if isinstance(documents, str | os.PathLike) else documents
    with Extractor() as extractor:
        for given, group in itertools.groupby(items, lambda item: isinstance(item, Document)):
            if given:
                yield from (item for item in group if isinstance(item, Document))
            else:  # together, since an id may be in several of them
                paths = [item for item in group if not isinstance(item, Document)]
                yield from read_files(paths, extractor, report)

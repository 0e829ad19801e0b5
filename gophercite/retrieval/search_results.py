"""Search results in records: hits of an index for a question, and replacing hits by whole pages.

One page is found for many questions. So record files hold hits (an id and the snippet that the
engine showed), and the index holds each page once (GopherCite, section 2.3 and appendix A).
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import TypeVar

from gophercite import evidence
from gophercite.documents import Document
from gophercite.records import FoundDocument, Hit, Question, RatedAnswer
from gophercite.retrieval.engine import SearchEngine
from gophercite.retrieval.index import DocumentIndex
from gophercite.storage.json_fields import RecordError

R = TypeVar("R", Question, RatedAnswer)


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    """How pages are searched for.

    Attributes:
      results: number of pages wanted per question; the paper's K, at most 10 there.
      keywords: text appended to each query; the paper appends `site:wikipedia.org` for most of
        Natural Questions and `-site:reddit.com` for ELI5.
      keep_gold: whether a page that proves the answer is kept, last and without a snippet, if it
        was not found. Rated answers always keep the page that they quote.
    """

    results: int = 10
    keywords: str = ""
    keep_gold: bool = True

    def __post_init__(self) -> None:
        if self.results < 1:
            raise ValueError(f"results is {self.results}; must be at least 1")


@dataclasses.dataclass
class SearchReport:
    """What was found for the questions.

    Attributes:
      questions: number of questions searched for.
      hits: number of pages found, over all questions.
      without_hits: number of questions without any hit.
      with_gold: number of questions with a known page that proves the answer.
      ranks: how often the best of a question's gold pages was at each rank, from 1.
      spans_left_out: number of gold spans on pages that were neither found nor kept.
    """

    questions: int = 0
    hits: int = 0
    without_hits: int = 0
    with_gold: int = 0
    ranks: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    spans_left_out: int = 0

    def recall(self, k: int) -> float:
        """Returns the share of questions with gold pages that have one among the first `k` hits."""
        found = sum(count for rank, count in self.ranks.items() if rank <= k)
        return found / self.with_gold if self.with_gold else 0.0


def with_search_results(
    record: R,
    index: DocumentIndex,
    settings: SearchSettings,
    report: SearchReport,
    engine: SearchEngine | None = None,
) -> R:
    """Returns a record whose documents are replaced by what is found for its question.

    The documents are hits in rank order. A gold page that was found is a hit like the others; one
    that was not is kept after them if `settings.keep_gold` says so.

    Args:
      record: a question, or a rated answer whose quoted page is the gold one.
      index: holds the pages, the gold ones under the ids that the record gives them.
      settings: how to search.
      report: counts what was found.
      engine: finds pages of the index, as `retrieval.stored_web.StoredWeb` does; by default the
        index itself.

    Raises:
      RecordError: when the index has another page under a gold document's id.
      SearchError: when the engine can't answer.
    """
    gold = _gold_ids(record)
    query = f"{record.question} {settings.keywords}"
    hits = (engine or index).search(query, settings.results)
    found = [hit for hit in hits if hit.snippet.strip()]
    sources: list[Document | Hit] = [Hit(hit.id or "", hit.snippet) for hit in found]
    ids = {source.id for source in sources}
    for source in record.documents:
        if source.id in gold and source.id in ids and isinstance(source, Document):
            _require_same(source, index.document(source.id))
    if settings.keep_gold or isinstance(record, RatedAnswer):
        sources += [s for s in record.documents if s.id in gold - ids]
    _count(report, gold, sources[: len(found)])
    if isinstance(record, RatedAnswer):
        return dataclasses.replace(record, documents=tuple(sources))
    shown = {source.id for source in sources}
    spans = tuple(span for span in record.evidence if span.document in shown)
    report.spans_left_out += len(record.evidence) - len(spans)
    return dataclasses.replace(record, documents=tuple(sources), evidence=spans)


def with_pages(record: R, page: Callable[[str], Document]) -> R:
    """Returns a record whose hits are replaced by whole pages, each with its snippet.

    Args:
      record: a question or a rated answer.
      page: returns a page by its id, as `DocumentIndex.document` does; raises `KeyError` if there
        is none.

    Raises:
      RecordError: when there is no such page, or an answer's quote or title is not that page's.
    """
    sources = tuple(
        _whole(source, page) if isinstance(source, Hit) else source for source in record.documents
    )
    if isinstance(record, RatedAnswer) and record.supported is not False:
        quoted = next(source for source in sources if source.id == record.document)
        if quoted.title != record.title:
            problem = f"the page {quoted.id!r} has the title {quoted.title!r}"
            raise RecordError(problem, "title")
        if not evidence.is_verbatim(record.quote, quoted.text):
            raise RecordError(f"is not verbatim in the page {quoted.id!r}", "quote")
    return dataclasses.replace(record, documents=sources)


def _whole(hit: Hit, page: Callable[[str], Document]) -> FoundDocument:
    try:
        found = page(hit.id)
    except KeyError:
        raise RecordError(f"the index has no page {hit.id!r}", "documents") from None
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(Document)}
    return FoundDocument(**fields, snippet=hit.snippet)


def _gold_ids(record: Question | RatedAnswer) -> set[str]:
    if isinstance(record, RatedAnswer):
        return {record.document}
    return {span.document for span in record.evidence}


def _require_same(own: Document, indexed: Document) -> None:
    if (own.title, own.sha256) != (indexed.title, indexed.sha256):
        raise RecordError(
            f"the index has another page under the id {own.id!r}: build it from the documents "
            "that these records belong to",
            "documents",
        )


def _count(report: SearchReport, gold: set[str], found: list[Document | Hit]) -> None:
    report.questions += 1
    report.hits += len(found)
    report.without_hits += not found
    if gold:
        report.with_gold += 1
        rank = next((n for n, source in enumerate(found, 1) if source.id in gold), None)
        if rank is not None:
            report.ranks[rank] += 1

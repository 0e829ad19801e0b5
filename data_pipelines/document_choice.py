"""Chooses which documents a training prompt shows, and how much of each, before the encoding.

Prompts of rated answers show the quoted document; prompts of questions show the search results. The
rules are those of `gophercite.retrieval.training_contexts` (appendix D.2), and draws are keyed by
(seed, epoch, example).
"""

import collections
import dataclasses
import functools
import json
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import seqio
import tensorflow as tf

from data_pipelines.features import plain_vocabulary
from data_pipelines.randomness import draws
from gophercite import evidence, records
from gophercite.documents import Document, Window
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    Reason,
    SearchResult,
)
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.search_results import R, with_pages
from gophercite.retrieval.tokenised_pages import TokenisedPages
from gophercite.retrieval.training_contexts import rollout_context, training_context
from gophercite.storage.json_fields import RecordError
from gophercite.vocabularies import Vocabulary

KEPT_ERRORS = 100  # maximum size of `ContextReport.errors`
_HELD_PAGES = 1000  # pages of an index: the same pages are found for many questions

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class ContextReport:
    """Counts of what happened to the examples whose documents were chosen, over all epochs.

    Attributes:
      made: number of prompts.
      documents: number of prompts, by the number of documents that they show.
      dropped: number of examples without a prompt, by reason.
      left_out: number of pages missing from the prompts, by reason.
      errors: the first `KEPT_ERRORS` examples without a prompt, each with its id and the reason.
    """

    made: int = 0
    documents: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    dropped: collections.Counter[Reason] = dataclasses.field(default_factory=collections.Counter)
    left_out: collections.Counter[Reason] = dataclasses.field(default_factory=collections.Counter)
    errors: list[str] = dataclasses.field(default_factory=list)

    def add(self, context: Context) -> None:
        """Counts a prompt."""
        self.made += 1
        self.documents[len(context.windows)] += 1
        self.left_out.update(reason for _, reason in context.left_out)

    def drop(self, example: str, error: ContextError) -> None:
        """Counts an example without a prompt; the first example for each reason is also logged."""
        if not self.dropped[error.reason]:
            _log.warning("%s was dropped (the report counts the others): %s", example, error)
        self.dropped[error.reason] += 1
        if len(self.errors) < KEPT_ERRORS:
            self.errors.append(f"{example}: {error}")


def choose_documents(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    sequence_length: Mapping[str, int],
    settings: ContextSettings,
    report: ContextReport | None = None,
    index: str | Path | None = None,
) -> tf.data.Dataset:
    """Gives each rated answer the documents, cut to windows, that its prompt shows in this epoch.

    Examples without a possible prompt are dropped.

    Args:
      dataset: rated answers with whole documents, in rank order, and their snippets if known.
      output_features: the task's features, whose vocabulary counts tokens.
      sequence_length: `tokens` is the length of a row, which has room for the prompt and
        `settings.response_tokens`.
      settings: how documents are chosen.
      report: counts what happens to the examples.
      index: the search index that has the pages, for records that contain hits.

    Raises:
      IndexFileError: there is no such index.
      ValueError: rows are too short for any prompt.
    """
    prompt_tokens = sequence_length["tokens"] - settings.response_tokens
    if prompt_tokens < 1:
        raise ValueError(
            f"rows have {sequence_length['tokens']} tokens, of which response_tokens="
            f"{settings.response_tokens} are kept for the response: nothing is left for a prompt"
        )
    vocabulary = plain_vocabulary(output_features)
    choose = _Choice(records.RatedAnswer, context_of, prompt_tokens, vocabulary, settings, index)
    return choose.among(dataset, ContextReport() if report is None else report)


def choose_question_documents(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    sequence_length: Mapping[str, int],
    settings: ContextSettings,
    report: ContextReport | None = None,
    index: str | Path | None = None,
) -> tf.data.Dataset:
    """Gives each question the documents, cut to windows, that its prompt shows in this epoch.

    Questions without a possible prompt are dropped. Gold spans are adjusted to the windows, and
    spans that are not shown are removed. Arguments and errors are those of `choose_documents`, but
    no room is reserved for a response: `tokens` is the maximum length of the prompt.
    """
    vocabulary = plain_vocabulary(output_features)
    choose = _Choice(
        records.Question, rollout_context_of, sequence_length["tokens"], vocabulary, settings, index
    )
    return choose.among(dataset, ContextReport() if report is None else report)


def page_reader(index: DocumentIndex) -> Callable[[str], Document]:
    """Returns a function that reads pages of an index by id and caches the most recent ones."""
    return functools.lru_cache(_HELD_PAGES)(index.document)


def context_of(
    answer: records.RatedAnswer,
    prompt_tokens: int,
    vocabulary: Vocabulary,
    draw: random.Random,
    settings: ContextSettings,
    page: Callable[[str], Document] | None = None,
    pages: TokenisedPages | None = None,
) -> Context:
    """Returns the prompt of one rated answer (`training_contexts.training_context`).

    Args:
      answer: the answer, with its documents in rank order, and their snippets if known.
      prompt_tokens: maximum number of tokens in the prompt.
      vocabulary: the model's vocabulary.
      draw: the random numbers of this example and epoch.
      settings: how documents are chosen.
      page: returns the page of a hit by its id; needed if records contain hits.
      pages: a cache for pages that many prompts show.

    Raises:
      ContextError: the quote is not in its page, or can't be shown.
    """
    answer = _with_pages(answer, page)
    found = [page for page in answer.documents if isinstance(page, Document)]
    target = next(page for page in found if page.id == answer.document)
    others = [SearchResult(page, _snippet(page)) for page in found if page is not target]
    return training_context(
        answer.question, target, answer.quote, others, prompt_tokens, vocabulary, draw, settings,
        pages=pages,
    )  # fmt: skip


def rollout_context_of(
    question: records.Question,
    prompt_tokens: int,
    vocabulary: Vocabulary,
    draw: random.Random,
    settings: ContextSettings,
    page: Callable[[str], Document] | None = None,
    pages: TokenisedPages | None = None,
) -> Context:
    """Returns the prompt of one question (`training_contexts.rollout_context`).

    Arguments are those of `context_of`.

    Raises:
      ContextError: no page can be shown.
    """
    question = _with_pages(question, page)
    found = [page for page in question.documents if isinstance(page, Document)]
    results = [SearchResult(page, _snippet(page)) for page in found]
    return rollout_context(
        question.question, results, prompt_tokens, vocabulary, draw, settings, pages=pages
    )


class _Choice:
    """Chooses documents with `context_of` or `rollout_context_of`, for records of its type."""

    def __init__(
        self,
        kind: type[Any],
        context_of: Callable[..., Context],
        prompt_tokens: int,
        vocabulary: Vocabulary,
        settings: ContextSettings,
        index: str | Path | None,
    ) -> None:
        self._kind = kind
        self._context_of = context_of
        page = None if index is None else page_reader(DocumentIndex(index))
        pages = TokenisedPages(vocabulary) if vocabulary.splits_words else None
        self._arguments = (prompt_tokens, vocabulary)
        self._keywords = {"settings": settings, "page": page, "pages": pages}

    def among(self, dataset: tf.data.Dataset, report: ContextReport) -> tf.data.Dataset:
        def choose(record: bytes, id: bytes, seed: int) -> str:
            value = records.from_json(json.loads(record), self._kind)
            draw = draws(int(seed), "documents", id.decode())
            try:
                context = self._context_of(value, *self._arguments, draw, **self._keywords)
            except ContextError as error:
                report.drop(f"{id.decode()} ({_name(value)})", error)
                return ""
            report.add(context)
            return json.dumps(records.to_json(_showing(value, context)), ensure_ascii=False)

        def chosen(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            inputs = [example[name] for name in ("record", "id", "seed")]
            record = tf.numpy_function(choose, inputs, tf.string, stateful=False)
            return {**example, "record": tf.ensure_shape(record, [])}

        return dataset.map(chosen).filter(lambda example: tf.strings.length(example["record"]) > 0)


def _with_pages(record: R, page: Callable[[str], Document] | None) -> R:
    if page is None:
        return record
    try:
        return with_pages(record, page)
    except RecordError as error:
        raise ContextError(Reason.OTHER_PAGE, str(error)) from None


def _name(record: records.RatedAnswer | records.Question) -> str:
    id = record.question_id if isinstance(record, records.RatedAnswer) else record.id
    return f"question {id!r}"


def _showing(record: R, context: Context) -> R:
    """Returns a record with the windows of its prompt as its documents.

    Several windows of one page get different ids; in a rated answer, the window with the quote
    keeps the page's id. Spans of a question are moved to the windows that contain them.
    """
    if isinstance(record, records.RatedAnswer):
        quoted = next((each for each in context.windows if _is_quoted(record, each)), None)
        return dataclasses.replace(record, documents=_documents(context.windows, quoted))
    documents = _documents(context.windows)
    spans = []
    for span in record.evidence:
        for window, document in zip(context.windows, documents, strict=True):
            within = window.start <= span.start and span.end <= window.end
            if window.document.id == span.document and within:
                moved = (span.start - window.start, span.end - window.start)
                spans.append(records.Span(document.id, *moved))
                break
    return dataclasses.replace(record, documents=documents, evidence=tuple(spans))


def _documents(windows: Sequence[Window], quoted: Window | None = None) -> tuple[Document, ...]:
    """Returns windows as documents with different ids; `quoted` keeps the id of its page."""
    ids: list[str] = [] if quoted is None else [quoted.document.id]
    documents = []
    for window in windows:
        page, id, number = window.document, window.document.id, 1
        while id in ids and window is not quoted:
            number += 1
            id = f"{page.id} ({number})"
        ids.append(id)
        documents.append(Document(id, page.title, window.text, page.url, page.retrieved_at))
    return tuple(documents)


def _is_quoted(answer: records.RatedAnswer, window: Window) -> bool:
    return window.document.id == answer.document and evidence.is_verbatim(answer.quote, window.text)


def _snippet(page: Document) -> str | None:
    return page.snippet if isinstance(page, records.FoundDocument) else None

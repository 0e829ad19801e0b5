"""The prompts of training (GopherCite, sections 2.7 and D.2).

A third of them have one document, the target's. The others have one to five, shuffled: the target's
and the first of the other search results. Where answers are sampled during training there is no
target, and the first of all results are shown (appendix F.2). The prompt's tokens are divided among
the documents at random, and each is cut to a window around its snippet, the target's around the
quote. With `ContextSettings.passages` the passages of these pages that fit the question best take
the place of whole pages.
"""

import dataclasses
import random
from collections.abc import Sequence

from gophercite import evidence
from gophercite.documents import Document
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    PageToShow,
    Reason,
    SearchResult,
    fill,
    require_a_window,
    spans_to_show,
)
from gophercite.retrieval.passages import Passage, best_apart, find_passages, passage_length
from gophercite.retrieval.snippets import Span
from gophercite.retrieval.tokenised_pages import TokenisedPages
from gophercite.vocabularies import Vocabulary

# How much of each page tells how many characters a token has.
_SAMPLE = 500


def training_context(
    question: str,
    target: Document,
    quote: str,
    others: Sequence[SearchResult],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    draw: random.Random,
    settings: ContextSettings | None = None,
    *,
    pages: TokenisedPages | None = None,
) -> Context:
    """Returns the prompt of a training example, which shows the quote in the target document.

    Args:
      question: the example's question.
      target: the document that the answer quotes.
      quote: verbatim in the target, except for the case of ASCII letters.
      others: the other results in rank order; pages that do not contain their snippet are skipped.
      prompt_tokens: maximum number of tokens in the prompt; the paper's 4096 - 256.
      vocabulary: the model's.
      draw: random numbers for this example and epoch.
      settings: the paper's by default.
      pages: cache of pages that many prompts show, tokenised with this vocabulary. With it,
        sentences are found in the whole page; without it, only near the span. A few window starts
        may therefore differ.

    Raises:
      ContextError: when the quote is not in the document, or can't be shown.
    """
    settings = settings or ContextSettings()
    shown = PageToShow(target, (_find_quote(quote, target),), quoted=True)
    return _drawn(question, [shown], others, prompt_tokens, vocabulary, draw, settings, pages)


def rollout_context(
    question: str,
    results: Sequence[SearchResult],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    draw: random.Random,
    settings: ContextSettings | None = None,
    *,
    pages: TokenisedPages | None = None,
) -> Context:
    """Returns the prompt of a question whose answer is to be sampled during training.

    Arguments are those of `training_context`; the first results that can be shown are used.

    Raises:
      ContextError: when no result can be shown; the reason is the first one's.
    """
    settings = settings or ContextSettings()
    context = _drawn(question, [], results, prompt_tokens, vocabulary, draw, settings, pages)
    return require_a_window(context)


def _drawn(
    question: str,
    target: list[PageToShow],
    others: Sequence[SearchResult],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    draw: random.Random,
    settings: ContextSettings,
    tokenised: TokenisedPages | None,
) -> Context:
    """Draws how many pages a prompt shows, their order, how much of each, and the window starts."""
    single = draw.random() < settings.single_fraction
    number = 1 if single else draw.randint(1, settings.max_documents)
    left_out: list[tuple[str, Reason]] = []
    chosen = list(target)
    if settings.passages and number > len(target):
        chosen = _passages(question, target, others, number, prompt_tokens, vocabulary, settings)
    if len(chosen) > len(target):
        others = ()  # passages take the place of whole pages
    for result in others:
        if len(chosen) == number:
            break
        if any(_is_same(result.document, page.document) for page in chosen):
            continue
        spans = spans_to_show(result, settings, draw, tokenised)
        if isinstance(spans, Reason):
            left_out.append((result.document.id, spans))
        else:
            chosen.append(PageToShow(result.document, spans))
    draw.shuffle(chosen)
    chosen = [
        dataclasses.replace(
            page,
            factor=draw.uniform(settings.least_factor, settings.largest_factor),
            seed=draw.getrandbits(64),
        )
        for page in chosen
    ]
    return fill(question, chosen, prompt_tokens, vocabulary, settings, left_out, tokenised)


def _passages(
    question: str,
    target: list[PageToShow],
    others: Sequence[SearchResult],
    number: int,
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings,
) -> list[PageToShow]:
    """Returns the passages that fit the question best; the target's has the quote, and is first."""
    pages = [page.document for page in target] + [result.document for result in others]
    pages = pages[: settings.max_documents]
    sample = "".join(page.text[:_SAMPLE] for page in pages)
    if not sample.strip():
        return target
    characters = prompt_tokens * len(sample) / len(vocabulary.encode(sample))
    found = find_passages(question, pages, passage_length(characters / number))
    quoted: list[Passage] = []
    for page in target:
        start, end = page.spans[-1]
        own = (each for each in found if each.document.id == page.document.id)
        whole = (each for each in own if each.span[0] <= start and end <= each.span[1])
        quoted.append(next(whole, Passage(page.document, (start, end))))
    best = best_apart([*quoted, *found], number)
    shown = []
    for page, (_, (start, end)) in zip(target, best, strict=False):
        spans = (start, end), (start, page.spans[-1][1]), page.spans[-1]
        shown.append(dataclasses.replace(page, spans=spans, passage=True))
    # Of others that don't fit their share, at least the beginning.
    for document, (start, end) in best[len(target) :]:
        shown.append(PageToShow(document, ((start, end), (start, start)), passage=True))
    return shown


def _is_same(one: Document, other: Document) -> bool:
    """Whether two results are the same page, perhaps found at two addresses."""
    return one.id == other.id or one.text == other.text


def _find_quote(quote: str, document: Document) -> Span:
    start = document.text.find(quote)
    if start < 0:
        start = evidence.fold_case(document.text).find(evidence.fold_case(quote))
    if start < 0 or not quote:
        raise ContextError(Reason.QUOTE_NOT_FOUND, f"{quote[:80]!r} in {document.id!r}")
    return start, start + len(quote)

"""Chooses which pages a prompt shows, and how much of each (GopherCite, sections 2.3 and D.2).

At inference each search result gets its own prompt, cut to a window around its snippet, and samples
take the prompts in round robin; or all results share one prompt. The prompts of training, in
`gophercite.retrieval.training_contexts`, share their tokens among pages in the same way.
"""

import dataclasses
import enum
import random
from collections.abc import Callable, Sequence

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.retrieval import snippets, windows
from gophercite.retrieval.new_pages import NewPages
from gophercite.retrieval.snippets import Engine, Span
from gophercite.retrieval.tokenised_pages import TokenisedPages
from gophercite.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class ContextSettings:
    """How the documents of prompts are chosen and cut; the defaults are the paper's.

    Attributes:
      response_tokens: tokens of the model's context that a prompt leaves free for the response.
      single_fraction: share of the training prompts that show the target's document alone.
      max_documents: the other prompts show 1 to this many, each number equally likely.
      passages: in training, the documents of a prompt are the passages of the first `max_documents`
        pages that fit the question best (`gophercite.retrieval.passages`), perhaps several of one
        page, as prompts show a user's own long pages. In the paper they are different pages, each
        shown around its snippet.
      least_factor, largest_factor: documents share the tokens in proportion to factors drawn
        uniformly between these.
      characters_before: maximum distance from a window's start to its snippet, at inference.
      threshold: a page is left out if its snippet's match ratio is below this.
      engine: how that ratio is measured; see `gophercite.retrieval.snippets.find_snippet`.
    """

    response_tokens: int = 256
    single_fraction: float = 1 / 3
    max_documents: int = 5
    passages: bool = False
    least_factor: float = 0.5
    largest_factor: float = 1.5
    characters_before: int = windows.CHARACTERS_BEFORE
    threshold: float = snippets.THRESHOLD
    engine: Engine = "rapidfuzz"

    def __post_init__(self) -> None:
        if not 0 <= self.single_fraction <= 1:
            raise ValueError(f"single_fraction is {self.single_fraction}; it must be from 0 to 1")
        if self.max_documents < 1:
            raise ValueError(f"max_documents is {self.max_documents}; it must be at least 1")
        if not 0 < self.least_factor <= self.largest_factor:
            raise ValueError(
                f"least_factor is {self.least_factor} and largest_factor {self.largest_factor}; "
                "they must be positive, the first not above the second"
            )


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """A page found for a question, with the snippet that the results page showed.

    Without a snippet the page is shown from its start; in training, from a random place.

    Attributes:
      document: the page.
      snippet: what the results page showed of it.
      span: `(start, end)` of what to show of it, if that is known; the snippet is not looked for.
    """

    document: Document
    snippet: str | None = None
    span: Span | None = None


class Reason(enum.Enum):
    """Why a page is not in a prompt, or why there is no prompt."""

    SNIPPET_NOT_FOUND = "the snippet is not in the page"
    SNIPPET_TOO_LONG = "the snippet does not fit the page's share of the prompt"
    EMPTY_PAGE = "the page has no text"
    QUOTE_NOT_FOUND = "the quote is not in its document"
    QUOTE_TOO_LONG = "the quote does not fit the prompt"
    NO_PAGE = "there is no page to show"
    BETTER_PASSAGES = "passages of other pages fit the question better"
    OTHER_PAGE = "a page is not in the index, or not the one that was quoted"
    NO_ROOM = "question and titles leave no room for a page"


class ContextError(ValueError):
    """No such prompt can be built; `reason` is the general reason, the message gives details."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Context:
    """A prompt.

    Attributes:
      windows: what it shows, in order.
      tokens: its token ids, as `prompts.encode_prompt` gives them.
      left_out: the pages that should have been shown but are not: id and reason.
    """

    windows: tuple[Window, ...]
    tokens: tuple[int, ...]
    left_out: tuple[tuple[str, Reason], ...] = ()


@dataclasses.dataclass(frozen=True)
class PageToShow:
    """A page that may be shown, around the first of `spans` that fits its share.

    If it is quoted, the last span is the quote, and must be shown. Windows of passages begin with
    the span, as at inference, except around a quote alone.
    """

    document: Document
    spans: tuple[Span, ...]
    quoted: bool = False
    passage: bool = False
    factor: float = 1.0
    seed: int | None = None  # seed of the training window; None at inference


def each_context(
    results: Sequence[SearchResult], make: Callable[[SearchResult], Context]
) -> tuple[list[Context], list[tuple[str, Reason]]]:
    """Returns a context for each result, and the ids of those left out with why.

    Sample i of a question takes prompt i modulo the number of prompts: round robin (section 2.3).

    Args:
      results: search results, in rank order.
      make: builds a prompt with one result; raises a ContextError if it can't be shown.
    """
    contexts: list[Context] = []
    left_out: list[tuple[str, Reason]] = []
    for result in results:
        try:
            context = make(result)
        except ContextError as error:
            left_out.append((result.document.id, error.reason))
        else:
            contexts.append(context)
    return contexts, left_out


def joint_context(
    question: str,
    results: Sequence[SearchResult],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings | None = None,
) -> Context:
    """Returns one prompt with all results, in rank order, each with an equal share of the tokens.

    Args:
      question: the question.
      results: the results, in rank order.
      prompt_tokens: maximum number of tokens in the prompt; the paper's 4096 - 256.
      vocabulary: the model's.
      settings: the paper's by default.

    Raises:
      ContextError: when no result can be shown; the reason is the first one's.
    """
    settings = settings or ContextSettings()
    pages: list[PageToShow] = []
    left_out: list[tuple[str, Reason]] = []
    for result in results:
        spans = spans_to_show(result, settings, None)
        if isinstance(spans, Reason):
            left_out.append((result.document.id, spans))
        else:
            pages.append(PageToShow(result.document, spans))
    context = fill(question, pages, prompt_tokens, vocabulary, settings, left_out)
    return require_a_window(context)


def require_a_window(context: Context) -> Context:
    """Returns the prompt if it shows a page.

    Raises:
      ContextError: it shows none; the reason is the first page's.
    """
    if not context.windows:
        left_out = [*context.left_out, ("no results", Reason.NO_PAGE)]
        raise ContextError(left_out[0][1], left_out[0][0])
    return context


def spans_to_show(
    result: SearchResult,
    settings: ContextSettings,
    draw: random.Random | None,
    pages: TokenisedPages | None = None,
) -> tuple[Span, ...] | Reason:
    """Returns what a window of the page should contain, widest first, or why there is none.

    Args:
      result: the page and its snippet.
      settings: how the snippet is looked for.
      draw: in training, draws a place for a page that has no snippet; None shows its start.
      pages: cache of tokenised pages, in training.
    """
    text = result.document.text
    if not text.strip():
        return Reason.EMPTY_PAGE
    if result.span is not None:
        start, _ = result.span
        return result.span, (start, start)  # at least its beginning
    if result.snippet is None or not snippets.fragments(result.snippet):
        place = 0 if draw is None else draw.randrange(len(text))
        return ((place, place),)
    plain = text if pages is None else pages.page(result.document).plain
    match = snippets.find_snippet(
        result.snippet, plain, threshold=settings.threshold, engine=settings.engine
    )
    return Reason.SNIPPET_NOT_FOUND if match is None else tuple(match.hulls())


def fill(
    question: str,
    pages: Sequence[PageToShow],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings,
    left_out: Sequence[tuple[str, Reason]],
    tokenised: TokenisedPages | None = None,
) -> Context:
    """Returns a prompt in which each page is cut to its share; a page that doesn't fit is left out.

    Args:
      question: the question.
      pages: what may be shown, in order.
      prompt_tokens: maximum number of tokens in the prompt.
      vocabulary: the model's.
      settings: how far a window may begin before its snippet, at inference.
      left_out: pages that are left out in any case, with why.
      tokenised: cache of tokenised pages, in training.

    Raises:
      ContextError: question and titles leave no room for the pages, or a quote doesn't fit.
    """
    new = NewPages(vocabulary)
    bare = [Document(page.document.id, page.document.title, "") for page in pages]
    overhead = len(prompts.encode_prompt(vocabulary, question, bare))
    allowance = prompt_tokens - overhead
    while True:
        if allowance < len(pages):
            raise ContextError(Reason.NO_ROOM, f"they have {overhead} of {prompt_tokens} tokens")
        shown: list[Window] = []
        dropped: list[tuple[str, Reason]] = []
        for page, share in zip(pages, _shares(pages, allowance, vocabulary), strict=True):
            window = _cut(page, share, settings, new, tokenised)
            if window is not None:
                # Two passages of one page may have grown to the same window.
                if not any(_has(other, window) for other in shown):
                    shown.append(window)
            elif page.quoted:
                raise ContextError(
                    Reason.QUOTE_TOO_LONG, f"{share} tokens are left for {page.document.id!r}"
                )
            else:
                dropped.append((page.document.id, Reason.SNIPPET_TOO_LONG))
        tokens = (new if tokenised is None else tokenised).encode_prompt(question, shown)
        excess = len(tokens) - prompt_tokens
        if excess <= 0:
            return Context(tuple(shown), tuple(tokens), (*left_out, *dropped))
        allowance -= excess  # at the seams: a text may have a few more tokens than its parts


def _has(window: Window, part: Window) -> bool:
    """Whether a window shows all of another."""
    same = window.document == part.document
    return same and window.start <= part.start and part.end <= window.end


def _shares(pages: Sequence[PageToShow], allowance: int, vocabulary: Vocabulary) -> list[int]:
    """Divides the allowance in proportion to the pages' factors; a quote gets what it needs."""
    factors = sum(page.factor for page in pages)
    shares = [int(allowance * page.factor / factors) for page in pages]
    for place, page in enumerate(pages):
        if page.quoted:
            start, end = page.spans[-1]
            need = len(vocabulary.encode(page.document.text[start:end]))
            if shares[place] < need <= allowance:
                rest = (allowance - need) / (factors - page.factor) if len(pages) > 1 else 0.0
                shares = [int(rest * other.factor) for other in pages]
                shares[place] = need
    return shares


def _cut(
    page: PageToShow,
    share: int,
    settings: ContextSettings,
    new: NewPages,
    tokenised: TokenisedPages | None,
) -> Window | None:
    """Returns the window around the widest span of the page that fits its share."""
    for span in page.spans:
        from_start = page.passage and not (page.quoted and span == page.spans[-1])
        if from_start or page.seed is None:
            before = 0 if from_start else settings.characters_before
            window = new.inference_window(page.document, span, share, before)
        else:
            draw = random.Random(page.seed)  # the same start even if the shares change
            if tokenised is None:
                window = new.training_window(page.document, span, share, draw)
            else:
                window = tokenised.page(page.document).training_window(span, share, draw)
        if window is not None:
            return window
    return None

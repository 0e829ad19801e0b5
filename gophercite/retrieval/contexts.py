"""Chooses which pages a prompt shows, and how much of each (GopherCite, sections 2.7, 2.3 and D.2).

In training, a third of the prompts have one document, the target's. The others have one to five,
shuffled: the target's and the first of the other search results. Where answers are sampled during
training there is no target, and the first of all results are shown (appendix F.2). The prompt's
tokens are divided among the documents at random, and each is cut to a window around its snippet,
the target's around the quote. With `ContextSettings.passages` the passages of these pages that fit
the question best take the place of whole pages. At inference each result gets its own prompt, and
samples take the prompts in round robin; or all results share one prompt.
"""

import dataclasses
import enum
import random
from collections.abc import Callable, Sequence

from gophercite import evidence, prompts
from gophercite.documents import Document, Window
from gophercite.retrieval import snippets, windows
from gophercite.retrieval.new_pages import NewPages
from gophercite.retrieval.passages import Passage, best_apart, find_passages, passage_length
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
            raise ValueError(f"single_fraction is {self.single_fraction}; it must be in 0 … 1")
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


# How much of each page tells how many characters a token has.
_SAMPLE = 500


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
class _Page:
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
    shown = _Page(target, (_find_quote(quote, target),), quoted=True)
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
    return _require_a_window(context)


def _drawn(
    question: str,
    target: list[_Page],
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
        spans = _spans(result, settings, draw, tokenised)
        if isinstance(spans, Reason):
            left_out.append((result.document.id, spans))
        else:
            chosen.append(_Page(result.document, spans))
    draw.shuffle(chosen)
    chosen = [
        dataclasses.replace(
            page,
            factor=draw.uniform(settings.least_factor, settings.largest_factor),
            seed=draw.getrandbits(64),
        )
        for page in chosen
    ]
    return _fill(question, chosen, prompt_tokens, vocabulary, settings, left_out, tokenised)


def _passages(
    question: str,
    target: list[_Page],
    others: Sequence[SearchResult],
    number: int,
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings,
) -> list[_Page]:
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
        shown.append(_Page(document, ((start, end), (start, start)), passage=True))
    return shown


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

    Arguments are those of `training_context`.

    Raises:
      ContextError: when no result can be shown; the reason is the first one's.
    """
    settings = settings or ContextSettings()
    pages: list[_Page] = []
    left_out: list[tuple[str, Reason]] = []
    for result in results:
        spans = _spans(result, settings, None)
        if isinstance(spans, Reason):
            left_out.append((result.document.id, spans))
        else:
            pages.append(_Page(result.document, spans))
    context = _fill(question, pages, prompt_tokens, vocabulary, settings, left_out)
    return _require_a_window(context)


def _require_a_window(context: Context) -> Context:
    if not context.windows:
        left_out = [*context.left_out, ("no results", Reason.NO_PAGE)]
        raise ContextError(left_out[0][1], left_out[0][0])
    return context


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


def _spans(
    result: SearchResult,
    settings: ContextSettings,
    draw: random.Random | None,
    pages: TokenisedPages | None = None,
) -> tuple[Span, ...] | Reason:
    """Returns what a window of the page should contain, widest first, or why there is none."""
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


# --- Budgets ---


def _fill(
    question: str,
    pages: Sequence[_Page],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings,
    left_out: Sequence[tuple[str, Reason]],
    tokenised: TokenisedPages | None = None,
) -> Context:
    """Cuts each page to its share of the prompt; a quote must be among what is shown."""
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


def _shares(pages: Sequence[_Page], allowance: int, vocabulary: Vocabulary) -> list[int]:
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
    page: _Page,
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

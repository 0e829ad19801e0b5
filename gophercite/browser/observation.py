"""The model's prompts: figure 1b while browsing, then the prompt of the answering phase.

A prompt that must fit a token budget is shortened in this order, each step only as far as needed:
drop the oldest past actions; cut the middles of the quotes' extracts, all to one length; drop
quotes, while browsing the oldest ones, for the answer the last ones; cut the end of the page's
text; cut the end of the question. `…` stands where something is left out.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from gophercite.browser.marks import FIELD, STOP, escape, one_line
from gophercite.browser.state import Reference, State

T = TypeVar("T")

_LEFT_OUT = "…"


@dataclasses.dataclass(frozen=True)
class TokenBudget:
    """Maximum length of a prompt.

    Attributes:
      tokens: maximum number of tokens.
      count: counts the tokens of a text.
    """

    tokens: int
    count: Callable[[str], int]

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError(f"tokens: {self.tokens} must be at least 1")


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """Maximum amounts in a prompt: numbers of items, or characters of extract, text, question."""

    actions: int
    extract: int
    references: int
    text: int
    question: int


def prompt(state: State, tokens: TokenBudget | None = None) -> str:
    """Returns what the model reads next: the observation, or the prompt for the answer.

    Raises:
      ValueError: when the episode is over, or even the shortest form exceeds the budget.
    """
    if state.done:
        raise ValueError("the episode is over: there is nothing to read")
    return observe(state, tokens) if state.phase == "browsing" else answering_prompt(state, tokens)


def observe(state: State, tokens: TokenBudget | None = None) -> str:
    """Returns the text of figure 1b for a state.

    A field without content, such as the quotes at first, is only its name.

    Raises:
      ValueError: when even the shortest form exceeds the budget.
    """
    return _fitted(state, tokens, _observation)


def answering_prompt(state: State, tokens: TokenBudget | None = None) -> str:
    """Returns `<question>■`, then `[n] <title> (<domain>)`, an empty line and `<extract>■` for each
    reference (WebGPT, appendix A).

    Raises:
      ValueError: when even the shortest form exceeds the budget.
    """
    return _fitted(state, tokens, _answering)


def _observation(state: State, lengths: _Lengths) -> str:
    references, quotes = _last(state.references, lengths.references), []
    if len(references) < len(state.references):
        quotes.append(_LEFT_OUT)
    for reference in references:
        extract = escape(_shortened(reference.extract, lengths.extract))
        quotes += [f"From {titled(reference)}", "> " + extract.replace("\n", "\n> ")]
    past = [action.past for action in state.actions if action.past is not None]
    shown = _last(past, lengths.actions)
    fields: list[tuple[str, list[str]]] = [
        ("Question", [escape(_cut(state.question, lengths.question))]),
        ("Quotes", quotes),
        ("Past actions", [*([_LEFT_OUT] if len(shown) < len(past) else []), *shown]),
        ("Title", [state.view.title]),
        (f"Scrollbar: {state.view.first} - {state.view.last}", []),
        ("Text", [_cut(state.view.text, lengths.text)]),
        (f"Actions left: {state.actions_left}", []),
        ("Next action", []),
    ]
    return "\n".join(
        "\n".join([f"{FIELD}{name}", *(line for line in lines if line)]) for name, lines in fields
    )


def _answering(state: State, lengths: _Lengths) -> str:
    parts = [escape(_cut(state.question, lengths.question))]
    for number, reference in enumerate(state.references[: lengths.references], 1):
        extract = escape(_shortened(reference.extract, lengths.extract))
        parts.append(f"[{number}] {titled(reference)}\n\n{extract}")
    if lengths.references < len(state.references):
        parts.append(_LEFT_OUT)
    return "".join(f"{part}{STOP}" for part in parts)


def titled(reference: Reference) -> str:
    """Returns a reference's page as shown to the model: `<page title> (<page domain>)`."""
    title, domain = one_line(reference.title), one_line(reference.domain)
    return f"{title} ({domain})" if domain else title


def _fitted(
    state: State, tokens: TokenBudget | None, build: Callable[[State, _Lengths], str]
) -> str:
    lengths = _Lengths(
        actions=len(state.actions),
        extract=max((len(reference.extract) for reference in state.references), default=0),
        references=len(state.references),
        text=len(state.view.text),
        question=len(state.question),
    )
    whole = build(state, lengths)
    if tokens is None or tokens.count(whole) <= tokens.tokens:
        return whole
    for name in ("actions", "extract", "references", "text", "question"):
        shortest = build(state, dataclasses.replace(lengths, **{name: 0}))
        if tokens.count(shortest) > tokens.tokens:
            lengths = dataclasses.replace(lengths, **{name: 0})
            continue
        # Binary search for the longest that fits, assuming that more text never has fewer tokens.
        # The result fits in any case.
        best, fits, fails = shortest, 0, getattr(lengths, name)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            tried = build(state, dataclasses.replace(lengths, **{name: middle}))
            if tokens.count(tried) <= tokens.tokens:
                best, fits = tried, middle
            else:
                fails = middle
        return best
    raise ValueError(f"a prompt does not fit {tokens.tokens} tokens, however short it is made")


def _last(items: Sequence[T], number: int) -> Sequence[T]:
    return items[max(0, len(items) - number) :]


def _cut(text: str, length: int) -> str:
    """The beginning of a text, with a mark where its end is left out."""
    return text if len(text) <= length else f"{text[:length].rstrip()}{_LEFT_OUT}"


def _shortened(text: str, length: int) -> str:
    """The beginning and end of a text, with a mark where its middle is left out."""
    if len(text) <= length:
        return text
    end = length // 2
    return f"{text[: length - end].rstrip()} {_LEFT_OUT} {text[len(text) - end :].lstrip()}".strip()

"""Styles of browsing, and how often each goes wrong."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Noise:
    """Probabilities of mistakes.

    Attributes:
      invalid: before an action, writes a text that is not a valid action.
      wrong_turn: on the way to a page, follows another link first and goes back.
      namesake: among results that share a name, opens another one first and goes back.
      overshoots: on a page that continues below, scrolls past the target and back.
      gives_up: on a page, ends browsing with what it has found so far.
      skipped_quote: reads a sentence of the proof but does not quote it.
      wrong_quote: quotes another sentence instead.
      wide_quote: also quotes the surrounding text.
      wrong_answer: the answer contains something that is known to be wrong.
      uncited: the answer cites nothing.
    """

    invalid: float = 0.02
    wrong_turn: float = 0.06
    namesake: float = 0.15
    overshoots: float = 0.06
    gives_up: float = 0.01
    skipped_quote: float = 0.01
    wrong_quote: float = 0.02
    wide_quote: float = 0.03
    wrong_answer: float = 0.01
    uncited: float = 0.01

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not 0 <= getattr(self, field.name) <= 1:
                value = getattr(self, field.name)
                raise ValueError(
                    f"{field.name}: {value} is not a probability; it must be between 0 and 1"
                )

    def times(self, factor: float) -> "Noise":
        """Returns all probabilities multiplied by a factor, but at most 1."""
        rates = {
            field.name: min(1.0, factor * getattr(self, field.name))
            for field in dataclasses.fields(self)
        }
        return Noise(**rates)


@dataclasses.dataclass(frozen=True)
class Style:
    """A way of browsing.

    Attributes:
      name: the value of `by` in records.
      goes: how it gets to the next page: by `links`, or by another `search` if that finds the page.
      looks: how it finds a sentence that is not on the screen: by `find` (in page), by `scroll`, by
        `either`, or `soonest`: with those words of the question that lead there in the fewest
        finds. If none lead there within a few finds, it gives up.
      asks: what it searches for: the `name` of the question's subject, its `keywords`, or `either`.
      quotes: the `sentence`, its `ends` (`<start>━<end>`) if it is long, or the lines `around` it.
      answers: in the `sentences` of the proof, or `briefly`.
      noise: probabilities of its mistakes.
    """

    name: str
    goes: Literal["links", "search"] = "links"
    looks: Literal["find", "scroll", "either", "soonest"] = "either"
    asks: Literal["name", "keywords", "either"] = "name"
    quotes: Literal["sentence", "ends", "around"] = "sentence"
    answers: Literal["sentences", "briefly"] = "sentences"
    noise: Noise = Noise()


STYLES: dict[str, Style] = {
    style.name: style
    for style in (
        Style("direct", looks="find"),
        Style("brief", looks="soonest", asks="keywords", answers="briefly"),
        Style("follower"),
        Style("searcher", goes="search", asks="either", quotes="ends"),
        Style("finder", looks="find", quotes="ends"),
        Style("scroller", looks="scroll", asks="keywords"),
        Style("hoarder", asks="either", quotes="around"),
        Style(
            "hurried",
            goes="search",
            looks="scroll",
            asks="keywords",
            answers="briefly",
            noise=Noise(
                invalid=0.06,
                wrong_turn=0.15,
                namesake=0.5,
                overshoots=0.15,
                gives_up=0.10,
                skipped_quote=0.12,
                wrong_quote=0.10,
                wide_quote=0.05,
                wrong_answer=0.08,
                uncited=0.08,
            ),
        ),
    )
}

# The default demonstrators: as many ways of browsing as there are. A small model learns more from a
# single style whose next action is mostly determined by the text that it reads: the direct style,
# or on long pages the brief one.
VARIED = tuple(name for name in STYLES if name not in ("direct", "brief"))

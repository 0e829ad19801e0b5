"""Valid browsing by construction: only actions that the browser accepts, and existing citations.

What may be written depends on the page and a little on the state (`browser.environment.step`
defines what is valid). The grammar of a page is built once and cached; the grammar of the answer
depends on the number of references. Both become tables like those of quotes, for the same sampler.

The texts are the commands of WebGPT's table 1 in their exact spelling, with at most one leading
blank: the environment ignores it, and tokenizers prefer it.

    Search TEXT                     any non-blank text on one line
    Clicked on link N               a link that the page has
    Find in page: TEXT              any such text, or a run of the page
    Quote: RUN                      a run of the page, if the page can be quoted
    Scrolled down N, up N, Top      if a page is open
    Back                            if there is a previous place
    End: REASON                     always

A run is the page's own text without link marks, from one character to another that are both not
white space, at allowed boundaries (`run_boundaries`). The answer is any non-blank text in which
every `[` begins a citation: `[1]`, `[1, 3]` or `[1,3]`.
"""

import collections
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.browser.pages import Page
from gophercite.browser.settings import LONGEST_ACTION
from gophercite.browser.state import State
from gophercite.commands.endings import LONGEST_RUN
from gophercite.commands.free_texts import free_text_automaton
from gophercite.commands.page_runs import longest_run, page_runs
from gophercite.commands.skeletons import CITING, Grammars, Skeleton
from gophercite.documents import Document, Window
from gophercite.quoting.constraint import NoLegalAnswer
from gophercite.quoting.joined_graphs import PromptGraph, joined
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.quoting.table_sizes import TableSizes
from gophercite.vocabularies import Vocabulary

_ENDS = ("End: Answer", "End: Nonsense", "End: Controversial")
_ON_PAGES = ("Top", *(f"Scrolled {way} {times}" for way in ("down", "up") for times in (1, 2, 3)))
_LONGEST_TEXT = LONGEST_ACTION - 100  # characters; leaves room for the rest of the command

# For the sampler, a run is a quote whose length limits are in the tables.
_AS_QUOTES = QuoteSettings(minimum_quote=1, maximum_quote=LONGEST_RUN, boundaries="characters")

_SIZES = TableSizes(1 << 18, 1 << 19)  # enough for a full page part with runs of whole words

# The fields of the tables that depend on the vocabulary alone.
_SHARED = "claim_next", "claim_added", "claim_content", "size"


@dataclasses.dataclass(frozen=True)
class CommandSettings:
    """What may be written.

    Attributes:
      boundaries: where a run of a page may begin and end: at words or sentences, or at any
        character that is not white space.
      find_present: whether `Find in page` only accepts text that is present, anywhere in the page.
        This is always so if the episode's rules demand it.
      start_and_end: whether a quote may be `<start>━<end>`. It may not on pages longer than
        `page_characters`, or where `Find in page` only accepts present text.
      page_characters: a longer page only has runs in a part of this length around what is shown,
        which bounds the tables.
      kept_pages: number of pages whose graphs are cached.
      sizes: initial table sizes; they grow if a page needs more. Each size needs its own program.
    """

    boundaries: Boundaries = "words"
    find_present: bool = False
    start_and_end: bool = True
    page_characters: int = 1 << 15
    kept_pages: int = 32
    sizes: TableSizes = _SIZES

    def __post_init__(self) -> None:
        for name in ("page_characters", "kept_pages"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} = {value!r}: must be a whole number, at least 1")
        QuoteSettings(boundaries=self.boundaries)  # refuses what is none


class _Offer(NamedTuple):
    """What a page offers: everything that its grammar depends on.

    Attributes:
      opened: whether a page is open.
      links: number of links on it.
      quotable: whether it can be quoted.
      find_present: whether `Find in page` only accepts present text.
      text: the page's text without link marks.
      start, end: the part of it that has runs.
      longest: maximum number of characters in a quote.
    """

    opened: bool
    links: int
    quotable: bool
    find_present: bool
    text: str
    start: int
    end: int
    longest: int


class _Starts(NamedTuple):
    """A page's graph, and where actions begin in it.

    Attributes:
      graph: starts at the node for states without a previous place.
      back: start node for states with a previous place.
    """

    graph: PromptGraph
    back: int


class CommandConstraint:
    """Builds the tables of browser states, for one vocabulary. Any thread may use it.

    Args:
      vocabulary: the model's; reading a large one takes a moment.
      max_tokens: maximum length of an action or answer, including the end of sequence. Very long
        tokens are excluded from searches, texts to find and answers, because a text of them could
        exceed what the browser reads: with 256 tokens, those of more than 38 bytes.
      settings: what may be written.

    Attributes:
      settings: as given.
      max_tokens: as given.
      least_tokens: length within which the shortest action and the shortest answer fit, including
        the end of sequence.

    Raises:
      NoLegalAnswer: `max_tokens` is less than that.
      ValueError: `max_tokens` is not positive, or larger than the most characters of a command.
    """

    def __init__(
        self, vocabulary: Vocabulary, max_tokens: int, settings: CommandSettings | None = None
    ) -> None:
        if not 1 <= max_tokens <= _LONGEST_TEXT:
            raise ValueError(f"max_tokens = {max_tokens}: must be from 1 to {_LONGEST_TEXT}")
        self.settings = settings or CommandSettings()
        self.max_tokens = max_tokens
        self._grammars = Grammars(vocabulary, _LONGEST_TEXT, max_tokens)
        self._pages = collections.OrderedDict[_Offer, _Starts]()
        self._answers: dict[int, PromptGraph] = {}
        self._sizes = self.settings.sizes
        self._shared: dict[str, Any] = {}
        self._last: tuple[list[PromptGraph], QuoteTables] | None = None
        self._lock = threading.Lock()
        nowhere = self._page_graph(_Offer(False, 0, False, False, "", 0, 0, 0))
        least = nowhere.graph.shortest_answer, self._answer_graph(1).shortest_answer
        self.least_tokens = max(least)
        if max_tokens < self.least_tokens:
            raise NoLegalAnswer(
                f"max_tokens = {max_tokens}: the shortest action has {least[0]} tokens with this "
                f"vocabulary, and the shortest answer {least[1]}, end of sequence included"
            )

    def graph(self, page: Page, state: State) -> PromptGraph:
        """Returns the graph of what may be written next.

        Args:
          page: the browser's current page (`environment.page_of`).
          state: state of the episode.

        Raises:
          ValueError: the episode is over.
        """
        if state.done:
            raise ValueError("the episode is over: there is nothing to write")
        if state.phase == "answering":
            return self._answer_graph(len(state.references))
        found = self._page_graph(self._offer(page, state))
        if not state.history:
            return found.graph
        return dataclasses.replace(found.graph, start=found.back)

    def host_tables(self, graphs: Sequence[PromptGraph]) -> QuoteTables:
        """Combines graphs for a batch, as numpy arrays."""
        return joined(graphs, self._grammars.texts, _AS_QUOTES, self._sizes)

    def tables(self, graphs: Sequence[PromptGraph]) -> QuoteTables:
        """Combines graphs for a batch, on the device.

        Table sizes only grow, so that few programs serve all batches of the same size.

        Args:
          graphs: one for each state (`graph`).

        Raises:
          ValueError: there are none.
        """
        with self._lock:
            if self._last is not None:
                before, tables = self._last
                if [id(each.edges) for each in before] == [id(each.edges) for each in graphs]:
                    moved = [new.start - old.start for new, old in zip(graphs, before, strict=True)]
                    if any(moved):
                        # Of the same kind as before: an array of a mesh asks for new programs.
                        first = np.asarray(tables.first) + np.array(moved, np.int32)
                        tables = tables._replace(first=jax.device_put(first))
                        self._last = list(graphs), tables
                    return tables
            host = self.host_tables(graphs)
            self._sizes = TableSizes(len(host.claim), len(host.token))
            self._shared = self._shared or {
                name: jnp.asarray(getattr(host, name)) for name in _SHARED
            }
            host = host._replace(**self._shared)
            on_device: QuoteTables = jax.device_put(host)
            self._last = list(graphs), on_device
            return on_device

    def _offer(self, page: Page, state: State) -> _Offer:
        settings, place = state.settings, state.place
        if place is None:
            return _Offer(False, 0, False, False, "", 0, 0, 0)
        shown = page.shown(settings)
        present = settings.absent_text_is_invalid or self.settings.find_present
        quotable = page.source_problem is None
        if not (present or quotable):
            return _Offer(True, len(shown.links), False, False, "", 0, 0, 0)
        start, end = 0, len(shown.plain)
        if end > self.settings.page_characters:
            # Few parts, overlapping by half, so that most steps stay in the same part.
            half = max(1, self.settings.page_characters // 2)
            start = max(0, shown.place_of_line(place.first) - half // 4) // half * half
            end = min(end, start + 2 * half)
        longest = min(settings.reference_characters, _LONGEST_TEXT) if quotable else _LONGEST_TEXT
        return _Offer(True, len(shown.links), quotable, present, shown.plain, start, end, longest)

    def _page_graph(self, offer: _Offer) -> _Starts:
        with self._lock:
            if offer in self._pages:
                self._pages.move_to_end(offer)
                return self._pages[offer]
        starts = self._built(offer)
        with self._lock:
            self._pages[offer] = starts
            while len(self._pages) > self.settings.kept_pages:
                self._pages.popitem(last=False)
        return starts

    def _built(self, offer: _Offer) -> _Starts:
        runs = None
        if offer.quotable or offer.find_present:
            part = Window(Document("", "", offer.text), offer.start, offer.end)
            most = longest_run(offer.text, offer.longest) if offer.quotable else offer.longest
            by_ends = self.settings.start_and_end and not offer.find_present
            quoted = offer.longest if offer.quotable and by_ends else None
            runs = page_runs(part, self.settings.boundaries, most, quoted)
        skeleton, start, back, to_runs = _actions(offer)
        if runs is not None:
            for node in to_runs:
                skeleton.spell(node, " ", skeleton.size)
        return _Starts(self._grammars.graph(skeleton, start, runs), back)

    def _answer_graph(self, references: int) -> PromptGraph:
        if references not in self._answers:
            start = free_text_automaton().cited
            self._answers[references] = self._grammars.graph(_citations(references), start)
        return self._answers[references]


def _actions(offer: _Offer) -> tuple[Skeleton, int, int, list[int]]:
    """The grammar of the actions on a page.

    Returns:
      The grammar, the start node for states without a previous place, the start node for states
      with one, and the nodes that may be followed by a blank and a run of the page.
    """
    texts = free_text_automaton()
    skeleton = Skeleton()
    start = skeleton.node()
    for word in _ENDS:
        skeleton.word(start, word)
    skeleton.spell(start, "Search", texts.space)
    to_runs = []
    if offer.opened:
        for word in _ON_PAGES:
            skeleton.word(start, word)
        if offer.links:
            click = skeleton.spell(start, "Clicked on link ")
            for node in skeleton.number(click, 0, offer.links - 1):
                skeleton.end(node)
        if offer.find_present:
            to_runs.append(skeleton.spell(start, "Find in page:"))
        else:
            skeleton.spell(start, "Find in page:", texts.space)
        if offer.quotable:
            to_runs.append(skeleton.spell(start, "Quote:"))
    back = skeleton.node()
    skeleton.row(back).update(skeleton.row(start))
    skeleton.word(back, "Back")
    for node in (start, back):
        blank = skeleton.node()
        skeleton.row(blank).update(skeleton.row(node))
        skeleton.spell(node, " ", blank)
    return skeleton, start, back, to_runs


def _citations(references: int) -> Skeleton:
    """The grammar of what may follow a `[` in an answer."""
    texts = free_text_automaton()
    skeleton = Skeleton()
    numbers = skeleton.number(CITING, 1, references)
    comma, blank = skeleton.node(), skeleton.node()
    for node in (comma, blank):
        skeleton.row(node).update(skeleton.row(CITING))
    skeleton.spell(comma, " ", blank)
    for node in numbers:
        skeleton.spell(node, ",", comma)
        skeleton.spell(node, "]", texts.goes_on)
    return skeleton

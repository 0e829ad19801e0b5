"""Tracks faults of unconstrained samples inside the sampling loop.

On the host, each prompt's windows become a graph (`FaultTracker`). On the device, a few integers
per sample follow the sampled tokens. At any time, they tell what `evidence.faults(text, windows)`
would return for the text so far. Tokens are read byte by byte, in as many iterations as the longest
token has bytes: an unconstrained sample may hold any text, so no small graph of tokens could
describe it.

The syntax is an automaton of its own (`response_automaton`). A quote is a walk on the suffix
automaton of the documents with its title (of all documents if no document has that title), with the
case of ASCII letters folded. A title is a walk on the trie of titles, which leads to the roots of
those automata. A walk goes one character too far if a byte sequence turns out not to be a
character, or if a `]` turns out to end the quote. So it remembers its node before the current
character. If quotes may leave words out, it also remembers its node before the last space, because
` [...] ` may begin with that space.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int32, UInt8

from gophercite.decoding.response_automaton import (
    MALFORMED,
    Action,
    fault_bits,
    response_automaton,
)
from gophercite.documents import Document, Window
from gophercite.evidence import (
    MINIMUM_QUOTE_LENGTH,
    OMISSION,
    QUOTE_MARK,
    Fault,
    fold_case,
    holds_mark,
)
from gophercite.quoting.look_ups import first_not_less
from gophercite.quoting.quote_graph import title_prefixes
from gophercite.quoting.suffix_automaton import build_suffix_automata
from gophercite.quoting.table_sizes import TableSizes, filled_up
from gophercite.quoting.token_trie import spell_tokens
from gophercite.vocabularies import Vocabulary

_REPLACEMENT = "\ufffd".encode()
_SEARCH = 8  # bisection steps to find a byte's edge at a node, which has fewer than 256 edges


class FaultGraph(NamedTuple):
    """One prompt's graph, on the host.

    Attributes:
      start: index of each node's first edge; one more entry than nodes.
      byte: the byte that each edge reads, in rising order within a node.
      node: the node that each edge leads to.
      replaced: each node's successor after U+FFFD; -1 for none.
      titles: the root of the trie of titles.
      everything: the root of the automaton of all texts; -1 if there are no texts.
    """

    start: Int32[np.ndarray, " nodes_and_one"]
    byte: UInt8[np.ndarray, " edges"]
    node: Int32[np.ndarray, " edges"]
    replaced: Int32[np.ndarray, " nodes"]
    titles: int
    everything: int

    @property
    def sizes(self) -> TableSizes:
        """How many nodes and edges there are."""
        return TableSizes(len(self.replaced), len(self.byte))


class FaultTables(NamedTuple):
    """The graphs of a batch of prompts, one after the other, on the device.

    Attributes:
      start: see `FaultGraph`, also for the next five; `titles` and `everything` have one per
        prompt.
      byte: per edge.
      node: per edge.
      replaced: per node.
      titles: per prompt.
      everything: per prompt.
      spelled: start of each token's bytes in `spelling`. This and all that follow are shared by all
        prompts.
      spelling: the bytes of all tokens, concatenated.
      next: see `ResponseAutomaton`, also for the next two.
      action: per state and byte.
      well_formed: per state.
      minimum_quote: a quote, or a run of one, with fewer characters than this is too short.
      maximum_omissions: maximum number of omissions in a quote; None where ` [...] ` is text like
        any other.
    """

    start: Int[Array, " nodes_and_one"]
    byte: Int[Array, " edges"]
    node: Int[Array, " edges"]
    replaced: Int[Array, " nodes"]
    titles: Int[Array, " prompts"]
    everything: Int[Array, " prompts"]
    spelled: Int[Array, " size_and_one"]
    spelling: Int[Array, " bytes"]
    next: Int[Array, "states 256"]
    action: Int[Array, "states 256"]
    well_formed: Bool[Array, " states"]
    minimum_quote: Int[Array, ""]
    maximum_omissions: Int[Array, ""] | None


class TrackedRun(NamedTuple):
    """The part of a sample's state that only quotes with omissions need.

    Attributes:
      root: the node where its runs begin.
      held: the node before the last space.
      omissions: number of omissions so far.
    """

    root: Int[Array, " samples"]
    held: Int[Array, " samples"]
    omissions: Int[Array, " samples"]


class FaultState(NamedTuple):
    """The state of each sample.

    Attributes:
      prompt: which of the tables' prompts it answers.
      state: its state in the response automaton.
      node: its node in the title or quote; -1 if no title or quote of the prompt continues like
        this.
      before: the node before the current character.
      characters: number of characters in the quote, or in its current run.
      faults: faults of the triples so far, as a bit set (`faults_of`).
      run: None where ` [...] ` is text like any other.
    """

    prompt: Int[Array, " samples"]
    state: Int[Array, " samples"]
    node: Int[Array, " samples"]
    before: Int[Array, " samples"]
    characters: Int[Array, " samples"]
    faults: Int[Array, " samples"]
    run: TrackedRun | None


@dataclasses.dataclass(frozen=True)
class FaultTracker:
    """Builds prompts' tables for one vocabulary.

    Attributes:
      vocabulary: what samples are drawn from.
      minimum_quote: a quote, or a run of one, with fewer characters than this is too short.
      maximum_omissions: maximum number of ` [...] ` in a quote, see `evidence.faults`.
    """

    vocabulary: Vocabulary
    minimum_quote: int = MINIMUM_QUOTE_LENGTH
    maximum_omissions: int = 0

    def graph(self, sources: Sequence[Document | Window]) -> FaultGraph:
        """The graph of a prompt that shows `sources`, which may be empty."""
        groups: dict[str, list[str]] = {}
        for source in sources:
            groups.setdefault(source.title, []).append(source.text)
        # A title with a mark can't be cited, but its texts count for quotes whose title is unknown.
        titles = [title for title in groups if not holds_mark(title)]
        texts = [groups[title] for title in titles]
        if len(groups) > 1 or not titles:
            texts.append([text for group in groups.values() for text in group])
        start, byte, node, replaced, roots = _suffix_graph(texts)
        trie = title_prefixes([(title + QUOTE_MARK).encode() for title in titles])
        first = len(replaced)
        rows = [
            {at: first + after if after >= 0 else int(roots[~after]) for at, after in row.items()}
            for row in trie
        ]
        counts = np.cumsum([len(row) for row in rows])
        return FaultGraph(
            np.concatenate([start, start[-1] + counts], dtype=np.int32),
            _extended(byte, [at for row in rows for at in sorted(row)]),
            _extended(node, [row[at] for row in rows for at in sorted(row)]),
            _extended(replaced, [_follow(trie, at, first) for at in range(len(trie))]),
            first,
            int(roots[-1]) if sources else -1,
        )

    def tables(self, graphs: Sequence[FaultGraph]) -> FaultTables:
        """`host_tables` on the device, padded to powers of two so that few programs compile."""
        made: FaultTables = jax.device_put(self.host_tables(graphs))
        return made

    def host_tables(
        self, graphs: Sequence[FaultGraph], sizes: TableSizes | None = None
    ) -> FaultTables:
        """Joins the graphs of a batch, as NumPy arrays.

        Args:
          graphs: one per prompt.
          sizes: table sizes. A size that is too small, or None for both, is replaced by the number
            of nodes or edges rounded up to a power of two.

        Returns:
          The tables.
        """
        first_node = [0, *itertools.accumulate(graph.sizes.nodes for graph in graphs)]
        first_edge = [0, *itertools.accumulate(graph.sizes.edges for graph in graphs)]
        nodes, edges = (sizes or TableSizes()).holding(first_node[-1], first_edge[-1])

        def moved(numbers: np.ndarray | list[int], by: int) -> np.ndarray:
            return np.where(np.array(numbers) < 0, -1, np.array(numbers) + by).astype(np.int32)

        together = list(zip(graphs, first_node, first_edge, strict=False))
        automaton = response_automaton(self.maximum_omissions > 0)
        starts = [graph.start[:-1] + at for graph, _, at in together]
        most = np.array(self.maximum_omissions, np.int32)
        columns: dict[str, Any] = {
            "start": filled_up(starts, nodes + 1, first_edge[-1]),
            "byte": filled_up([graph.byte for graph in graphs], edges, 0),
            "node": filled_up([moved(graph.node, at) for graph, at, _ in together], edges, -1),
            "replaced": filled_up(
                [moved(graph.replaced, at) for graph, at, _ in together], nodes, -1
            ),
            "titles": np.concatenate([moved([g.titles], at) for g, at, _ in together]),
            "everything": np.concatenate([moved([g.everything], at) for g, at, _ in together]),
            **dict(zip(("spelled", "spelling"), self._spellings, strict=True)),
            "next": automaton.next,
            "action": automaton.action,
            "well_formed": automaton.well_formed,
            "minimum_quote": np.array(self.minimum_quote, np.int32),
            "maximum_omissions": most if self.maximum_omissions else None,
        }
        return FaultTables(**columns)

    @functools.cached_property
    def _spellings(self) -> tuple[np.ndarray, np.ndarray]:
        return spell_tokens(self.vocabulary)


def _extended(array: np.ndarray, by: list[int]) -> np.ndarray:
    return np.concatenate([array, np.array(by, array.dtype)])


def _follow(trie: list[dict[int, int]], at: int, first: int) -> int:
    """The node after U+FFFD in a trie of titles. It never ends a title: only a mark does."""
    for byte in _REPLACEMENT:
        if byte not in trie[at]:
            return -1
        at = trie[at][byte]
    return first + at


def _suffix_graph(
    texts: list[list[str]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Suffix automata of groups of texts: the first four arrays of `FaultGraph`, and the roots."""
    spelled = [fold_case(text).encode() for group in texts for text in group]
    data = np.frombuffer(b"".join(spelled), np.uint8)
    sizes = np.array([len(text) for text in spelled], np.int64)
    ends = np.cumsum(sizes)
    groups = np.repeat(np.arange(len(texts)), [len(group) for group in texts])
    bytes_ = np.flatnonzero(np.bincount(data, minlength=256)).astype(np.uint8)
    letter = np.zeros(256, np.uint8)
    letter[bytes_] = np.arange(len(bytes_))
    step, _, _, roots, _ = build_suffix_automata(
        letter[data], ends - sizes, ends, groups, len(bytes_)
    )
    state, read = np.nonzero(step >= 0)
    start = np.zeros(len(step) + 1, np.int32)
    np.cumsum(np.bincount(state, minlength=len(step)), out=start[1:])
    replaced = np.full(len(step), -1, np.int32)
    if set(_REPLACEMENT) <= set(bytes_.tolist()):
        replaced = np.arange(len(step), dtype=np.int32)
        for byte in _REPLACEMENT:
            replaced = np.where(replaced >= 0, step[replaced, letter[byte]], -1)
    return start, bytes_[read], step[state, read], replaced, roots


def initial(tables: FaultTables, prompts: Int[Array, " samples"]) -> FaultState:
    """The state of samples that have no token yet.

    Args:
      tables: the batch's tables.
      prompts: which of the tables' prompts each sample answers.

    Returns:
      One state per sample.
    """
    nothing = jnp.zeros(prompts.shape, jnp.int32)
    start = nothing + response_automaton(tables.maximum_omissions is not None).start
    run = TrackedRun(nothing, nothing, nothing) if tables.maximum_omissions is not None else None
    return FaultState(prompts.astype(jnp.int32), start, nothing, nothing, nothing, nothing, run)


def advance(tables: FaultTables, state: FaultState, token: Int[Array, " samples"]) -> FaultState:
    """Advances each sample's state by one token.

    Args:
      tables: the batch's tables.
      state: the samples' states before the token.
      token: any token; special tokens, including the end of sequence, change nothing.

    Returns:
      The states after the token.
    """
    start = tables.spelled[token]
    length = tables.spelled[token + 1] - start
    most = jnp.max(jnp.where(state.state == MALFORMED, 0, length))
    last = tables.spelling.shape[0] - 1

    def read(carry: tuple[Array, FaultState]) -> tuple[Array, FaultState]:
        i, state = carry
        byte = tables.spelling[jnp.minimum(start + i, last)].astype(jnp.int32)
        after = _read(tables, state, byte)
        pick = lambda new, old: jnp.where(i < length, new, old)  # noqa: E731
        return i + 1, jax.tree.map(pick, after, state)

    return jax.lax.while_loop(lambda carry: carry[0] < most, read, (jnp.asarray(0), state))[1]


def faults(tables: FaultTables, state: FaultState) -> Int[Array, " samples"]:
    """The faults that each sample would have if it ended here.

    Args:
      tables: the batch's tables.
      state: the samples' states.

    Returns:
      Bit sets, 0 for no fault; `response_automaton.faults_of` decodes them.
    """
    malformed = fault_bits(Fault.MALFORMED)
    return jnp.where(tables.well_formed[state.state], state.faults, malformed)


def _read(tables: FaultTables, state: FaultState, byte: Int[Array, " samples"]) -> FaultState:
    """Advances each sample's state by one byte."""
    action = tables.action[state.state, byte].astype(jnp.int32)
    does = lambda what: (action & int(what)) != 0  # noqa: E731
    node, before = state.node, state.before
    node = jnp.where(does(Action.REPLACE), _at(tables.replaced, before), node)
    before = jnp.where(does(Action.BEGIN), node, before)
    letter = does(Action.FOLD) & (byte >= ord("A")) & (byte <= ord("Z"))
    node = jnp.where(does(Action.STEP), _follow_byte(tables, node, byte + 32 * letter), node)
    node = jnp.where(does(Action.REPLACE_BYTE), _at(tables.replaced, node), node)
    characters = state.characters + does(Action.BEGIN)

    named = node >= 0
    node = jnp.where(does(Action.OPEN_TITLE), tables.titles[state.prompt], node)
    opens, closes = does(Action.OPEN_QUOTE), does(Action.CLOSE_QUOTE)
    node = jnp.where(opens & ~named, tables.everything[state.prompt], node)
    short = characters - 1 < tables.minimum_quote  # without the "]"
    found = action // int(Action.FAULT)
    run, omits = state.run, jnp.zeros_like(opens)
    most = tables.maximum_omissions
    if run is not None and most is not None:
        omits = does(Action.OMIT)
        wrong = (run.held < 0) | (run.omissions >= most)
        found |= jnp.where(omits & wrong, fault_bits(Fault.WRONG_QUOTE), 0)
        too_few = characters - len(OMISSION) < tables.minimum_quote
        found |= jnp.where(omits & too_few, fault_bits(Fault.SHORT_QUOTE), 0)
        root = jnp.where(opens, node, run.root)
        node = jnp.where(omits, root, node)
        held = jnp.where(does(Action.HOLD), before, run.held)
        run = TrackedRun(root, held, jnp.where(opens, 0, run.omissions + omits))
    for fault, is_so in (
        (Fault.WRONG_TITLE, opens & ~named),
        (Fault.WRONG_QUOTE, closes & (before < 0)),
        (Fault.SHORT_QUOTE, closes & short),
    ):
        found |= jnp.where(is_so, fault_bits(fault), 0)
    return FaultState(
        state.prompt,
        tables.next[state.state, byte].astype(jnp.int32),
        node,
        before,
        jnp.where(opens | omits, 0, characters),
        state.faults | found,
        run,
    )


def _at(table: Int[Array, " nodes"], node: Int[Array, " samples"]) -> Int[Array, " samples"]:
    return jnp.where(node >= 0, table[jnp.maximum(node, 0)], -1)


def _follow_byte(
    tables: FaultTables, node: Int[Array, " samples"], byte: Int[Array, " samples"]
) -> Int[Array, " samples"]:
    """The node after a byte; -1 for none."""
    at = jnp.maximum(node, 0)
    end = tables.start[at + 1]
    place = first_not_less(tables.byte, byte, tables.start[at], end, _SEARCH)
    edge = jnp.minimum(place, tables.byte.shape[0] - 1)
    found = (node >= 0) & (place < end) & (tables.byte[edge] == byte)
    return jnp.where(found, tables.node[edge], -1)

"""What may be written, as data: fixed strings, numbers, free text and runs of a page.

A grammar is a small automaton over bytes (`Skeleton`), given node by node, that comes before a
page's runs and after the states of free text. Tokens are then read along all of it as along a
quote's graph (`token_edges`), so that one sampler takes any number of grammars as input. The end of
a text is the byte `free_texts.END`, which the end-of-sequence token spells.

The nodes, in order:

    free texts' states    the same for all graphs (`free_texts.py`)
    SHUT                  just before what ends a free text: a citation's `[`, or the end
    DONE, CITING          after the end; after that `[`
    the grammar's own
    runs                  states of an automaton of a page's runs; its root is the first
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Int

from gophercite.commands.endings import LONGEST_RUN, complete, with_marks
from gophercite.commands.free_texts import CITATION, END, free_text_automaton
from gophercite.commands.long_quotes import LongQuotes
from gophercite.quoting.byte_edges import ByteEdges, Parts
from gophercite.quoting.completions import NO_END
from gophercite.quoting.joined_graphs import FreeTexts, PromptGraph, usual_lengths
from gophercite.quoting.quote_graph import QuoteGraph
from gophercite.quoting.run_automaton import RunAutomata
from gophercite.quoting.token_edges import token_edges
from gophercite.quoting.token_trie import ClaimTokens, TokenTrie
from gophercite.quoting.token_walks import NO_REACH, UNLIMITED, Limits
from gophercite.vocabularies import Vocabulary

_TEXTS = free_text_automaton()
SHUT = len(_TEXTS.table.next)
DONE, CITING = SHUT + 1, SHUT + 2

# Only characters of runs are counted here; the lengths of other texts are limited beforehand.
_LIMITS = Limits(1, UNLIMITED, -2, UNLIMITED, 0, True)


class Skeleton:
    """A grammar's own nodes.

    Attributes:
      rows: the bytes that may follow each node, and where they lead.
    """

    def __init__(self) -> None:
        self.rows: list[dict[int, int]] = [{ord("["): CITING, END: DONE}, {}, {}]

    @property
    def size(self) -> int:
        """Number of nodes before a page's runs, including those of free texts."""
        return SHUT + len(self.rows)

    def row(self, node: int) -> dict[int, int]:
        """The bytes that may follow a node."""
        return self.rows[node - SHUT]

    def node(self) -> int:
        """Creates a node without successors."""
        self.rows.append({})
        return self.size - 1

    def spell(self, node: int, text: str, to: int | None = None) -> int:
        """Adds a text that may follow a node.

        Args:
          node: where it begins; texts with a common beginning share nodes.
          text: not empty.
          to: the node after the text; a new one when None.

        Returns:
          That node.
        """
        *bytes_, last = text.encode()
        for byte in bytes_:
            row = self.row(node)
            if byte not in row:
                row[byte] = self.node()
            node = row[byte]
        if to is None:
            to = self.node()
        self.row(node)[last] = to
        return to

    def word(self, node: int, text: str) -> None:
        """Adds a text, followed by the end, that may follow a node."""
        self.end(self.spell(node, text))

    def end(self, node: int) -> None:
        """Adds the end after a node."""
        self.row(node)[END] = DONE

    def number(self, node: int, least: int, most: int) -> list[int]:
        """Adds the integers of a range, without leading zeros, after a node.

        Args:
          node: where they begin.
          least: the first number, 0 or 1.
          most: the last number, at least `least`.

        Returns:
          The nodes where a number is complete; some allow further digits.
        """
        whole = []
        if least == 0:
            whole.append(self.spell(node, "0"))
        digits = str(most)
        # How the digits so far compare with the last number's first digits: -1 less, 1 more.
        nodes: dict[tuple[int, int], int] = {(0, 0): node}
        todo = [(0, 0)]
        for count, compared in todo:  # grows while it is walked
            if count == len(digits):
                continue
            for digit in "0123456789"[count == 0 :]:
                sign = compared or (digit > digits[count]) - (digit < digits[count])
                after = (count + 1, sign)
                if after == (len(digits), 1):
                    continue
                if after not in nodes:
                    nodes[after] = self.node()
                    whole.append(nodes[after])
                    todo.append(after)
                self.row(nodes[count, compared])[ord(digit)] = nodes[after]
        return whole


@dataclasses.dataclass(frozen=True)
class PageRuns:
    """The runs of a page.

    Attributes:
      edges: bytes from state to state, counted from the root.
      ends: whether a run may end in each state.
      longest: a number that grows along every edge.
      most: maximum number of characters in a run.
      quotes: starts and ends of quotes after the runs, whose nodes are then included; None if there
        are none.
    """

    edges: ByteEdges
    ends: Bool[np.ndarray, " states"]
    longest: Int[np.ndarray, " states"]
    most: int
    quotes: LongQuotes | None = None

    @classmethod
    def of(cls, automaton: RunAutomata, byte: Int[np.ndarray, " letters"], most: int) -> "PageRuns":
        """Builds the runs from the automaton of one text.

        Args:
          automaton: with one group.
          byte: the byte of each letter, rising.
          most: maximum number of characters in a run.
        """
        state, letter = np.nonzero(automaton.step >= 0)
        start = np.zeros(len(automaton.step) + 1, np.int32)
        np.cumsum(np.bincount(state, minlength=len(automaton.step)), out=start[1:])
        return cls(
            ByteEdges(
                start,
                byte[letter].astype(np.uint8),
                automaton.step[state, letter],
                np.zeros(len(state), np.uint8),
            ),
            automaton.ends,
            automaton.length,
            min(most, LONGEST_RUN),
        )


@dataclasses.dataclass(frozen=True)
class _Spellings:
    """Tokens' bytes for grammars: the end of sequence spells `END`, and no other token holds it."""

    size: int
    spelled: tuple[bytes | None, ...]

    def token_bytes(self, id: int) -> bytes | None:
        return self.spelled[id]


class Grammars:
    """Builds the graphs of skeletons, for one vocabulary.

    Args:
      vocabulary: the model's; reading a large one takes a moment.
      longest_text: maximum number of bytes in a free text.
      max_tokens: maximum number of tokens in a sample. A token is excluded from free texts if a
        text of `max_tokens` such tokens could be longer than `longest_text`.

    Attributes:
      texts: the part that all graphs share.
    """

    def __init__(self, vocabulary: Vocabulary, longest_text: int, max_tokens: int) -> None:
        spelled = [vocabulary.token_bytes(id) for id in range(vocabulary.size)]
        spelled = [None if each and END in each else each for each in spelled]
        spelled[vocabulary.eos_id] = bytes([END])
        trie = TokenTrie.build(_Spellings(len(spelled), tuple(spelled)))
        longest = longest_text // max_tokens
        in_texts = [None if each and len(each) > longest else each for each in spelled]
        tokens = ClaimTokens.build(
            _TEXTS.table, TokenTrie.build(_Spellings(len(spelled), tuple(in_texts)))
        )
        # The byte that ends a text is read again, from `SHUT` on.
        tokens = dataclasses.replace(tokens, leaving_read=tokens.leaving_read - 1)
        self.texts = FreeTexts(_TEXTS.table, tokens, usual_lengths(vocabulary))
        self._trie = trie
        self._eos_id = vocabulary.eos_id
        self._steps = _steps_in_texts(tokens)

    def graph(self, skeleton: Skeleton, start: int, runs: PageRuns | None = None) -> PromptGraph:
        """Reads all tokens along a grammar.

        Args:
          skeleton: the grammar; the node `skeleton.size` leads to a page's runs.
          start: the node where samples begin.
          runs: runs of the page, if the grammar uses any.

        Returns:
          The graph: the tokens of every node, and the fewest tokens from there to the end.
        """
        first = _text_edges().followed_by(_skeleton_edges(skeleton))
        size = skeleton.size
        most = LONGEST_RUN
        if runs is not None:
            first = first.followed_by(_run_edges(runs, size))
            most = runs.most
        nodes = len(first.start) - 1
        longest = np.zeros(0, np.int32) if runs is None else runs.longest
        parts, nothing = Parts(SHUT, -UNLIMITED, size), np.zeros(nodes, np.int8)
        texts = self.texts
        edges = token_edges(
            QuoteGraph(first, parts, nothing, longest),
            texts.automaton,
            self._trie,
            texts.tokens,
            _LIMITS,
            self._eos_id,
        )
        reach = np.full(len(edges.token), NO_REACH, np.int16)
        cost = np.full(nodes, NO_END, np.int16)
        cost[DONE] = 0
        order = np.argsort(-longest.astype(np.int64), kind="stable")
        begun = np.full(len(longest), -1)
        if runs is not None and runs.quotes is not None:
            begun = runs.quotes.begun
            edges = with_marks(edges, reach, cost, runs.quotes, order, size)
            order = order[order < runs.quotes.first_end]
        complete(edges, reach, cost, order, begun, size, self._steps, LONGEST_RUN - most)
        return PromptGraph(start, edges._replace(reach=reach), cost[:, None])


def _steps_in_texts(tokens: ClaimTokens) -> Bool[np.ndarray, "states states"]:
    """Whether some token leads from one state of a free text to another."""
    states = len(tokens.next)
    steps = np.zeros((states, states), bool)
    before, token = np.nonzero(tokens.next < states)
    steps[before, tokens.next[before, token]] = True
    return steps


def _byte_edges(rows: list[dict[int, int]]) -> ByteEdges:
    start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=start[1:])
    byte = [byte for row in rows for byte in sorted(row)]
    node = [row[byte] for row in rows for byte in sorted(row)]
    return ByteEdges(
        start,
        np.array(byte, np.uint8),
        np.array(node, np.int32),
        np.zeros(len(byte), np.uint8),
    )


def _text_edges() -> ByteEdges:
    """The edges of the states of free texts."""
    out = {CITATION: CITING, END: DONE}
    return _byte_edges(
        [
            {
                byte: int(after) if after >= 0 else out[byte]
                for byte, after in enumerate(row)
                if after != -1
            }
            for row in _TEXTS.table.next
        ]
    )


def _skeleton_edges(skeleton: Skeleton) -> ByteEdges:
    return _byte_edges(skeleton.rows)


def _run_edges(runs: PageRuns, first: int) -> ByteEdges:
    """The edges of a page's runs, including those to the end: `END` is the largest byte."""
    edges, ends = runs.edges, np.flatnonzero(runs.ends)
    after = edges.start[1:][ends]
    start = edges.start.copy()
    start[1:] += np.cumsum(runs.ends)
    return ByteEdges(
        start,
        np.insert(edges.byte, after, END),
        np.insert(edges.node + first, after, DONE).astype(np.int32),
        np.zeros(len(edges.byte) + len(ends), np.uint8),
    )

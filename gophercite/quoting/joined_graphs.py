"""Joins prompts' graphs into the tables of a batch, which are the sampler's input."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Int32

from gophercite.quoting.claims import ClaimAutomaton
from gophercite.quoting.completions import NO_END
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables
from gophercite.quoting.table_sizes import TableSizes, filled_up
from gophercite.quoting.token_edges import TokenEdges
from gophercite.quoting.token_trie import ClaimTokens
from gophercite.vocabularies import Vocabulary

_ALONG_EDGES = ("token", "characters", "need", "reach", "begins")


@dataclasses.dataclass(frozen=True)
class PromptGraph:
    """One prompt's graph, on the host.

    Attributes:
      start: the node where an answer begins.
      edges: its token edges.
      cost: minimum number of tokens to the end of an answer (`shortest_completions`).
    """

    start: int
    edges: TokenEdges
    cost: Int[np.ndarray, "nodes missing"]

    @property
    def shortest_answer(self) -> int:
        """Number of tokens of the shortest legal answer, including its end of sequence."""
        return int(self.cost[self.start, 0])

    @property
    def sizes(self) -> TableSizes:
        """The numbers of nodes and edges."""
        return TableSizes(len(self.cost), len(self.edges.token))


@dataclasses.dataclass(frozen=True)
class FreeTexts:
    """The part that all graphs of a vocabulary share: free text, which allows nearly any token.

    These states are the first nodes of each graph.

    Attributes:
      automaton: the automaton of the text, byte by byte.
      tokens: where each token leads in the automaton.
      usual_lengths: number of bytes in each token's text; 0 if the tokenizer uses another token for
        this text.
    """

    automaton: ClaimAutomaton
    tokens: ClaimTokens
    usual_lengths: Int32[np.ndarray, " vocab"]


def joined(
    graphs: Sequence[PromptGraph],
    texts: FreeTexts,
    settings: QuoteSettings,
    sizes: TableSizes | None = None,
) -> QuoteTables:
    """Joins the graphs of a batch, as NumPy arrays.

    Args:
      graphs: one per prompt; edges that several prompts share are stored once.
      texts: the part that the graphs share.
      settings: what answers may look like.
      sizes: table sizes. A size that is too small, or None for both, is replaced by the number of
        nodes or edges rounded up to a power of two.

    Returns:
      The tables.

    Raises:
      ValueError: there are no graphs.
    """
    if not graphs:
        raise ValueError("there are no graphs to combine: give one for each prompt")
    # Prompts whose graphs differ only in the start node share one copy.
    parts = list({id(graph.edges): graph for graph in graphs}.values())
    node = [0, *itertools.accumulate(part.sizes.nodes for part in parts)]
    edge = [0, *itertools.accumulate(part.sizes.edges for part in parts)]
    nodes, edges = (sizes or TableSizes()).holding(node[-1], edge[-1])
    together = list(zip(parts, node, edge, strict=False))
    first = {id(part.edges): at for part, at, _ in together}
    states = np.arange(len(texts.automaton.next))
    claim = np.full(nodes, -1, np.int8)
    claim[np.add.outer(node[:-1], states)] = states

    def column(name: str) -> np.ndarray:
        return filled_up([getattr(part.edges, name) for part in parts], edges, 0)

    columns: dict[str, Any] = {
        "start": filled_up(
            [part.edges.start[:-1] + at for part, _, at in together], nodes + 1, edge[-1]
        ),
        "claim": claim,
        "cost": filled_up([part.cost for part in parts], nodes, NO_END),
        "node": filled_up([part.edges.node + at for part, at, _ in together], edges, 0),
        "claim_next": texts.tokens.next,
        "claim_added": texts.tokens.added,
        "claim_content": texts.automaton.content,
        "size": texts.usual_lengths,
        "first": np.array([first[id(graph.edges)] + graph.start for graph in graphs], np.int32),
    }
    columns |= {name: column(name) for name in _ALONG_EDGES}
    return QuoteTables(**columns, settings=settings)


def usual_lengths(vocabulary: Vocabulary) -> Int32[np.ndarray, " vocab"]:
    """Number of bytes in each token's text; 0 if the tokenizer uses another token for this text.

    Such unused tokens are SentencePiece's byte tokens; the pieces with the same text come later.
    """
    texts = [vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)]
    usual = {text: id for id, text in enumerate(texts)}
    return np.array([len(text) * (usual[text] == id) for id, text in enumerate(texts)], np.int32)

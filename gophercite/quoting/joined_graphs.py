"""Graphs of prompts put together as the tables of a batch: what the sampler is given."""

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
      edges: its tokens.
      cost: tokens to the end of an answer.
    """

    start: int
    edges: TokenEdges
    cost: Int[np.ndarray, "nodes missing"]

    @property
    def shortest_answer(self) -> int:
        """Tokens of the shortest legal answer, its end of sequence included."""
        return int(self.cost[self.start, 0])

    @property
    def sizes(self) -> TableSizes:
        """How many nodes and edges there are."""
        return TableSizes(len(self.cost), len(self.edges.token))


@dataclasses.dataclass(frozen=True)
class FreeTexts:
    """What graphs of one vocabulary share: free text, in whose states nearly all tokens may follow.

    The first nodes of each graph are these states.

    Attributes:
      automaton: of the text, byte by byte.
      tokens: where each token leads in it.
      usual_lengths: bytes of each token's text; 0 for those that a tokenizer has another token for.
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
    """Puts graphs together for a batch, as arrays of numpy.

    Args:
      graphs: one a prompt; those of prompts with the same edges are there once.
      texts: what they share.
      settings: what answers may look like.
      sizes: of the tables; those that are too small become powers of two, all do when None.

    Returns:
      The tables.
    """
    # Prompts whose answers begin at other nodes of one graph need it once.
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
    """Bytes of each token's text; 0 for those that a tokenizer has another token for.

    Those are SentencePiece's bytes, which come before the pieces that spell the same.
    """
    texts = [vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)]
    usual = {text: id for id, text in enumerate(texts)}
    return np.array([len(text) * (usual[text] == id) for id, text in enumerate(texts)], np.int32)

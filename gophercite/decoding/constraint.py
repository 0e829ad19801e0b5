"""Constrained sampling (GopherCite, appendix J): only answers whose quotes are verbatim.

On the host, once a prompt, its documents become a graph of nodes and tokens (`QuoteConstraint`); on
the device each sample is at a node (`quote_state`). The guarantee is about text, not tokens: every
spelling of every legal answer is allowed, and nothing else (see `quote_graph` for what is legal).
No step is allowed after which the answer could not be finished in the tokens that are left, so
every sample is legal.
"""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32

from gophercite.decoding.claims import claim_automaton
from gophercite.decoding.completions import NO_END, longest_steps, shortest_completions
from gophercite.decoding.pieces import quotable_pieces
from gophercite.decoding.quote_graph import QuoteGraph
from gophercite.decoding.quote_settings import QuoteSettings
from gophercite.decoding.quote_state import QuoteTables
from gophercite.decoding.token_edges import TokenEdges, token_edges
from gophercite.decoding.token_trie import ClaimTokens, TokenTrie
from gophercite.documents import Document, Window
from gophercite.vocabularies import Vocabulary


class NoLegalAnswer(ValueError):  # noqa: N818 (the name in the project's contracts)
    """Nothing can be quoted from a prompt's documents, or not in so few tokens."""


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


class QuoteConstraint:
    """Makes the tables of prompts, for one vocabulary.

    Attributes:
      settings: what answers may look like.
    """

    def __init__(self, vocabulary: Vocabulary, settings: QuoteSettings | None = None) -> None:
        """Reads the vocabulary once; takes a moment for a large one."""
        self.settings = settings or QuoteSettings()
        self._eos_id = vocabulary.eos_id
        self._trie = TokenTrie.build(vocabulary)
        self._sizes = _sizes(vocabulary)
        self._claim = claim_automaton()
        self._claim_tokens = ClaimTokens.build(self._claim, self._trie)
        self._steps = longest_steps(self._claim, self._claim_tokens, self.settings.limits)

    def graph(self, sources: Sequence[Document | Window]) -> PromptGraph:
        """The graph of a prompt that shows `sources`.

        Raises:
          NoLegalAnswer: no source has anything that can be quoted.
        """
        limits = self.settings.limits
        omissions = limits.maximum_omissions > 0
        pieces = quotable_pieces(sources, limits.minimum_quote, omissions)
        if not pieces:
            raise NoLegalAnswer(
                f"nothing can be quoted from the {len(sources)} documents: each is shorter than "
                f"{limits.minimum_quote} characters, blank, or only reserved marks, or its title "
                "holds one"
            )
        graph = QuoteGraph.build(pieces, omissions)
        edges = token_edges(
            graph, self._claim, self._trie, self._claim_tokens, limits, self._eos_id
        )
        cost = shortest_completions(graph, edges, self._claim, self._steps, limits)
        return PromptGraph(graph.parts.start, edges, cost)

    def tables(self, graphs: Sequence[PromptGraph], max_tokens: int) -> QuoteTables:
        """Puts graphs together for a batch.

        Their sizes are rounded up to powers of two, so that few programs serve all batches.

        Args:
          graphs: one a prompt.
          max_tokens: that a sample may have, its end of sequence included.

        Returns:
          The tables.

        Raises:
          NoLegalAnswer: some prompt's shortest answer has more tokens than that.
        """
        for i, graph in enumerate(graphs):
            if graph.shortest_answer > max_tokens:
                raise NoLegalAnswer(
                    f"prompt {i}: the shortest legal answer has {graph.shortest_answer} tokens, "
                    f"but samples may have {max_tokens}"
                )
        sizes = np.array([len(graph.cost) for graph in graphs])
        counts = np.array([len(graph.edges.token) for graph in graphs])
        node, edge = np.cumsum(sizes) - sizes, np.cumsum(counts) - counts
        nodes, edges = _bucket(int(sizes.sum())), _bucket(int(counts.sum()))
        together = list(zip(graphs, node, edge, strict=True))
        states = np.arange(len(self._claim.next))
        claim = np.full(nodes, -1, np.int8)
        claim[node[:, None] + states] = states

        def column(name: str) -> Array:
            parts = [getattr(graph.edges, name) for graph in graphs]
            return jnp.asarray(_padded(np.concatenate(parts), edges, 0))

        return QuoteTables(
            start=jnp.asarray(
                _padded(
                    np.concatenate([g.edges.start[:-1] + at for g, _, at in together]),
                    nodes + 1,
                    int(counts.sum()),
                )
            ),
            claim=jnp.asarray(claim),
            cost=jnp.asarray(_padded(np.concatenate([g.cost for g in graphs]), nodes, NO_END)),
            token=column("token"),
            node=jnp.asarray(
                _padded(np.concatenate([g.edges.node + at for g, at, _ in together]), edges, 0)
            ),
            characters=column("characters"),
            need=column("need"),
            reach=column("reach"),
            begins=column("begins"),
            claim_next=jnp.asarray(self._claim_tokens.next),
            claim_added=jnp.asarray(self._claim_tokens.added),
            claim_content=jnp.asarray(self._claim.content),
            size=jnp.asarray(self._sizes),
            first=jnp.asarray(node + [graph.start for graph in graphs], jnp.int32),
            settings=self.settings,
        )


def _sizes(vocabulary: Vocabulary) -> Int32[np.ndarray, " vocab"]:
    """Bytes of each token's text; 0 for those that a tokenizer has another token for.

    Those are SentencePiece's bytes, which come before the pieces that spell the same.
    """
    texts = [vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)]
    usual = {text: id for id, text in enumerate(texts)}
    return np.array([len(text) * (usual[text] == id) for id, text in enumerate(texts)], np.int32)


def _bucket(size: int) -> int:
    return 1 << max(10, (size - 1).bit_length())


def _padded(array: np.ndarray, size: int, value: int) -> np.ndarray:
    room = np.full((size - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, room])

"""Constrained sampling (GopherCite, appendix J): only answers whose quotes are verbatim.

On the host, each prompt's documents become a graph of nodes and tokens (`QuoteConstraint`); on the
device each sample is at a node (`quote_state`). The guarantee is about text, not tokens: every
tokenization of every legal answer is allowed, and nothing else (see `quote_graph` for what is
legal). A token is allowed only if the answer can still be finished within the remaining tokens, so
every sample is legal.
"""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from gophercite.documents import Document, Window
from gophercite.quoting.byte_edges import Parts
from gophercite.quoting.claims import claim_automaton
from gophercite.quoting.completions import NO_END, longest_steps, shortest_completions
from gophercite.quoting.joined_graphs import FreeTexts, PromptGraph, joined, usual_lengths
from gophercite.quoting.pieces import Piece, quotable_pieces
from gophercite.quoting.quote_graph import QuoteGraph
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables
from gophercite.quoting.table_sizes import TableSizes
from gophercite.quoting.token_edges import TokenEdges, token_edges
from gophercite.quoting.token_trie import ClaimTokens, TokenTrie
from gophercite.quoting.token_walks import NO_REACH
from gophercite.vocabularies import Vocabulary

__all__ = ["NoLegalAnswer", "PromptGraph", "QuoteConstraint"]


class NoLegalAnswer(ValueError):  # noqa: N818 (the name in the project's contracts)
    """Nothing can be quoted from a prompt's documents, or not within the token limit."""


class QuoteConstraint:
    """Builds prompts' tables for one vocabulary.

    Attributes:
      settings: what answers may look like.
    """

    def __init__(self, vocabulary: Vocabulary, settings: QuoteSettings | None = None) -> None:
        """Indexes the vocabulary; a large one takes a moment.

        Args:
          vocabulary: the model's vocabulary.
          settings: what answers may look like; the defaults of `QuoteSettings` when None.
        """
        self.settings = settings or QuoteSettings()
        self._vocabulary = vocabulary
        self._eos_id = vocabulary.eos_id
        self._trie = TokenTrie.build(vocabulary)
        self._claim = claim_automaton()
        self._claim_tokens = ClaimTokens.build(self._claim, self._trie)
        self._texts = FreeTexts(self._claim, self._claim_tokens, usual_lengths(vocabulary))
        self._steps = longest_steps(self._claim, self._claim_tokens, self.settings.limits)

    def graph(self, sources: Sequence[Document | Window]) -> PromptGraph:
        """The graph of a prompt that shows `sources`.

        Raises:
          NoLegalAnswer: nothing can be quoted from any source.
        """
        pieces = self.pieces(sources)
        if not pieces:
            raise self._nothing(sources)
        _, made = self._graph(pieces)
        if made.shortest_answer >= NO_END:
            raise self._nothing(sources)
        return made

    def pieces(self, sources: Sequence[Document | Window]) -> dict[str, list[Piece]]:
        """What can be quoted from `sources`, by title."""
        limits, boundaries = self.settings.limits, self.settings.boundaries
        omissions = limits.maximum_omissions > 0
        return quotable_pieces(
            sources, self._vocabulary, limits.minimum_quote, omissions, boundaries
        )

    def evidence_graph(
        self, pieces: Mapping[str, Sequence[Piece]], begun: Sequence[int], rest: bytes = b""
    ) -> PromptGraph | None:
        """The graph of answers with a given claim: it leaves only their titles and quotes open.

        Args:
          pieces: the pieces that they may quote; not empty.
          begun: the first tokens of such an answer, at most up to the mark before the title. The
            graph begins with a chain of nodes that allows only these tokens, in order.
          rest: the bytes between these tokens and the title; any tokens may spell them.

        Returns:
          The graph; None if it has no answer.
        """
        parts, whole = self._graph(pieces, rest)
        edges, nodes, count = whole.edges, len(whole.cost), len(begun)
        ahead = np.arange(count, 0, -1)[:, None]  # number of tokens up to the evidence
        more = np.minimum(whole.cost[parts.prefix] + ahead, NO_END)
        cost = np.concatenate([whole.cost, more.astype(whole.cost.dtype)])
        start = nodes if count else parts.prefix
        if cost[start, 0] >= NO_END:
            return None
        same = np.zeros(count, np.int16)
        chain = TokenEdges(
            start=edges.start[-1] + 1 + np.arange(count),
            token=np.array(begun, int),
            node=np.append(nodes + np.arange(1, count), parts.prefix)[:count],
            characters=same - 1,  # ~0: no characters yet
            need=same,
            reach=same + NO_REACH,
            begins=same,
        )
        joined = [
            np.concatenate([before, after]).astype(before.dtype)
            for before, after in zip(edges, chain, strict=True)
        ]
        return PromptGraph(start, TokenEdges(*joined), cost)

    def _graph(
        self, pieces: Mapping[str, Sequence[Piece]], before_title: bytes = b""
    ) -> tuple[Parts, PromptGraph]:
        limits = self.settings.limits
        graph = QuoteGraph.build(pieces, limits.maximum_omissions > 0, before_title)
        edges = token_edges(
            graph, self._claim, self._trie, self._claim_tokens, limits, self._eos_id
        )
        cost = shortest_completions(graph, edges, self._claim, self._steps, limits)
        return graph.parts, PromptGraph(graph.parts.start, edges, cost)

    def _nothing(self, sources: Sequence[Document | Window]) -> NoLegalAnswer:
        if not sources:
            return NoLegalAnswer("nothing can be quoted: there are no documents")
        settings, whole = self.settings, ""
        if settings.boundaries != "characters":
            most = f" of at most {settings.maximum_quote}" if settings.maximum_quote else ""
            whole = f"has no whole {settings.boundaries}{most}, "
        return NoLegalAnswer(
            f"nothing can be quoted from the {len(sources)} documents: each is shorter than "
            f"{settings.minimum_quote} characters, blank, {whole}takes {NO_END} tokens or "
            "more, or is only reserved marks or "
            "characters that the vocabulary can't spell, or its title holds one"
        )

    def tables(self, graphs: Sequence[PromptGraph], max_tokens: int) -> QuoteTables:
        """Joins the graphs of a batch, on the device.

        Their sizes are rounded up to powers of two, so that few compiled programs serve all
        batches.

        Args:
          graphs: one per prompt.
          max_tokens: maximum number of tokens per sample, including its end of sequence.

        Returns:
          The tables.

        Raises:
          NoLegalAnswer: some prompt's shortest answer has more than `max_tokens` tokens.
          ValueError: there are no graphs, or `max_tokens` is 30,000 or more, which is more than the
            tables can count.
        """
        # `jnp.asarray` would compile a program for each array.
        made: QuoteTables = jax.device_put(self.host_tables(graphs, max_tokens))
        return made

    def host_tables(
        self, graphs: Sequence[PromptGraph], max_tokens: int, sizes: TableSizes | None = None
    ) -> QuoteTables:
        """Joins the graphs of a batch, as NumPy arrays.

        Args:
          graphs: one per prompt.
          max_tokens: as in `tables`.
          sizes: table sizes. A size that is too small, or None for both, is replaced by the number
            of nodes or edges rounded up to a power of two.

        Returns:
          The tables.

        Raises:
          NoLegalAnswer, ValueError: as in `tables`.
        """
        if max_tokens >= NO_END:
            raise ValueError(f"max_tokens = {max_tokens}: must be below {NO_END}")
        for i, graph in enumerate(graphs):
            if graph.shortest_answer > max_tokens:
                raise NoLegalAnswer(
                    f"prompt {i}: the shortest legal answer has {graph.shortest_answer} tokens, "
                    f"but samples may have {max_tokens}"
                )
        return joined(graphs, self._texts, self.settings, sizes)

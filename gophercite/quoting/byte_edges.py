"""Graphs of bytes, as arrays; `quote_graph.py` says what their nodes stand for."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from gophercite.evidence import END_MARK

# Nodes that all prompts have, counted from the start, and how many there are.
AFTER_SPACE, AFTER_PERCENT, AFTER_BRACKET, ENDED, DONE = 1, 2, 3, 4, 5
STRUCTURE = 6

BRACKET, PERCENT = END_MARK.encode()


class ByteEdges(NamedTuple):
    """Bytes from node to node.

    Attributes:
      start: of each node's edges; one more entry than nodes.
      byte: read along the edge.
      node: where it leads.
      event: what the byte demands or does beside: 0, `CLOSES`, `CLOSED_BEFORE`, `OPENS`, or
        `OMITS` and how many characters of the omission the run itself has.
    """

    start: Int[np.ndarray, " nodes_and_one"]
    byte: UInt8[np.ndarray, " edges"]
    node: Int[np.ndarray, " edges"]
    event: UInt8[np.ndarray, " edges"]

    def followed_by(self, others: "ByteEdges") -> "ByteEdges":
        """The edges of these nodes, then those of others; the nodes they lead to stay."""
        return ByteEdges(
            np.concatenate([self.start[:-1], others.start + self.start[-1]]),
            np.concatenate([self.byte, others.byte]),
            np.concatenate([self.node, others.node]),
            np.concatenate([self.event, others.event]),
        )


# Events. A quote that a byte closes must have its minimum length before that byte; where the run
# itself goes on with "]", the end shows only at the "%" and is one character back. With `OMITS` an
# omission ends the run, so many characters back as are added to it.
CLOSES, CLOSED_BEFORE, OPENS, OMITS = 1, 2, 3, 4


class Parts(NamedTuple):
    """Where the parts of a graph's nodes begin; claims' states are the first.

    Attributes:
      prefix: the empty title prefix.
      start: where an answer begins.
      quote: the first of the quotes' nodes; those that stand for no run, or white space, included.
    """

    prefix: int
    start: int
    quote: int

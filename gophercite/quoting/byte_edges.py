"""Graphs of bytes, as arrays; `quote_graph.py` says what their nodes stand for."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from gophercite.evidence import END_MARK

# Nodes that all prompts have, as offsets from the start, and their number.
AFTER_SPACE, AFTER_PERCENT, AFTER_BRACKET, ENDED, DONE = 1, 2, 3, 4, 5
STRUCTURE = 6

BRACKET, PERCENT = END_MARK.encode()


class ByteEdges(NamedTuple):
    """Edges between nodes, each labelled with a byte.

    Attributes:
      start: index of each node's first edge; one more entry than nodes.
      byte: the byte of each edge.
      node: the node that each edge leads to.
      event: what else the byte requires or does: 0, `CLOSES`, `CLOSED_BEFORE`, `OPENS`, or `OMITS`
        plus the number of the omission's characters that belong to the run itself.
    """

    start: Int[np.ndarray, " nodes_and_one"]
    byte: UInt8[np.ndarray, " edges"]
    node: Int[np.ndarray, " edges"]
    event: UInt8[np.ndarray, " edges"]

    def followed_by(self, others: "ByteEdges") -> "ByteEdges":
        """Appends the edges of further nodes; node numbers stay as they are."""
        return ByteEdges(
            np.concatenate([self.start[:-1], others.start + self.start[-1]]),
            np.concatenate([self.byte, others.byte]),
            np.concatenate([self.node, others.node]),
            np.concatenate([self.event, others.event]),
        )


# Events. A quote must have its minimum length before the byte that closes it. If the run itself
# continues with "]", only the "%" shows that it has ended, one character later. `OMITS + n` means
# that an omission has ended the run n characters before.
CLOSES, CLOSED_BEFORE, OPENS, OMITS = 1, 2, 3, 4


class Parts(NamedTuple):
    """Where the parts of a graph's nodes begin; the states of claims come first.

    Attributes:
      prefix: the node of the empty title prefix.
      start: the node where an answer begins.
      quote: the first of the quotes' nodes, including those for the empty run and for white space.
    """

    prefix: int
    start: int
    quote: int

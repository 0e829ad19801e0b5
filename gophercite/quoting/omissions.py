"""Quotes that leave words out: several runs of a title's pages, joined by ` [...] ` (appendix H).

A ` [...] ` in such a quote always is an omission, also where a page's own text has it, and they are
read from the left: pages are cut at it, so that no run holds one. But a run may go on with the
beginning of one, most often with a space, and then it shows only some characters later that the run
had ended before it. So a text is in a run for as long as the run goes on as the text does; where it
no longer does, but an omission would, the run has ended as many characters back as the run has of
the omission. A run needs something besides white space, dots and square brackets, and what such an
end leaves of it is always a run, too. A graph (`quote_graph.py`) then has for each title also

    omissions              six nodes, after each beginning of ` [...] ` that is no longer the run's
    brackets               one, after a run's own ` [...` and a "]" that is not: either the quote
                           ends with it, or an omission goes on
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Int8, UInt8

from gophercite.evidence import OMISSION
from gophercite.quoting.byte_edges import (
    CLOSED_BEFORE,
    CLOSES,
    ENDED,
    OMITS,
    PERCENT,
    STRUCTURE,
    ByteEdges,
)

SPELLED = np.frombuffer(OMISSION.encode(), np.uint8)
NODES = len(SPELLED) - 1  # of a title, after the beginnings
BEFORE_BRACKET = len(SPELLED) - 2  # bytes before its "]"


def begun(text: UInt8[np.ndarray, " bytes"]) -> Int8[np.ndarray, " bytes"]:
    """Of how many bytes of an omission the text up to each place ends with the beginning."""
    found = (text == SPELLED[0]).astype(np.int8)
    for count in range(1, NODES):
        follow = (found[:-1] == count) & (text[1:] == SPELLED[count])
        found[1:][follow] = count + 1
    return found


def rows(first: int, runs: Int[np.ndarray, " titles"]) -> list[dict[int, int]]:
    """The edges of the nodes after beginnings, from byte to node.

    Args:
      first: the first of these nodes.
      runs: the node where runs of each title begin.
    """
    found: list[dict[int, int]] = []
    for title, run in enumerate(runs):
        after = [first + NODES * title + count for count in range(1, NODES)]
        steps = zip(SPELLED[1:], [*after, int(run)], strict=True)
        found += [{int(byte): node} for byte, node in steps]
    return found


def ends_of_runs(
    step: Int[np.ndarray, "states letters"],
    byte: UInt8[np.ndarray, " letters"],
    states: Int[np.ndarray, " ends"],
    begun: Int8[np.ndarray, " ends"],
) -> list[Int[np.ndarray, " ends"]]:
    """Where what follows can be no more of the run, but of an omission.

    Args:
      step: state after each letter; -1 for none.
      byte: of each letter.
      states: in which a run may end.
      begun: bytes of an omission that their runs end with.

    Returns:
      For each number of bytes that the runs have of it, the states in which the next of its bytes
      shows that the run has ended so far back.
    """
    letter = {int(byte): letter for letter, byte in enumerate(byte)}
    found = []
    for back, following in enumerate(SPELLED.tolist()):
        chosen = begun == back
        if back == 0:
            chosen = begun < NODES  # after all of it but the last space, that space is its own
        if following in letter:
            chosen &= step[states, letter[following]] < 0
        found.append(states[chosen])
    return found


def add_edges(
    edges: ByteEdges,
    ends: Sequence[np.ndarray],
    twins: Int[np.ndarray, " twins"],
    roots: np.ndarray,
    runs: np.ndarray,
    start: int,
    quote: int,
) -> ByteEdges:
    """The edges of quotes' nodes, with those to omissions, and those of brackets after them.

    Args:
      edges: of nodes from `quote` on.
      ends: the states where an omission may end the run, by how far back.
      twins: the states of the nodes that follow the states' own; -1 for those of no run.
      roots: the first state of each title.
      runs: the node where runs of each title begin.
      start: the node where an answer begins.
      quote: the node of the first state.
    """
    nodes, titles = len(edges.start) - 1, np.arange(len(roots))
    source = np.repeat(np.arange(nodes), np.diff(edges.start))
    node, event, brackets = edges.node.copy(), edges.event.copy(), nodes + titles
    states = nodes - len(twins)
    closes = np.isin(np.arange(nodes), source[event == CLOSES])
    both = (event == CLOSES) & np.isin(source, ends[BEFORE_BRACKET])
    node[both] = quote + brackets[np.searchsorted(roots, source[both], "right") - 1]
    event[both] = 0
    percent = np.full(len(roots), PERCENT), np.full(len(roots), start + ENDED)
    columns = [
        (source, edges.byte, node, event),
        (brackets, *percent, np.full(len(roots), CLOSED_BEFORE)),
    ]
    for back, spelled in enumerate(SPELLED):
        found = ends[back][~closes[ends[back]]] if back == BEFORE_BRACKET else ends[back]
        too = np.flatnonzero(np.isin(twins, found))
        title = np.searchsorted(roots, np.append(found, twins[too]), "right") - 1
        found = np.append(found, states + too)
        if back == NODES:
            found, title = np.append(found, brackets), np.append(title, titles)
            after = runs[title]
        else:
            after = start + STRUCTURE + NODES * title + back
        size = len(found)
        columns.append((found, np.full(size, spelled), after, np.full(size, OMITS + back)))
    source, byte, node, event = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(source, kind="stable")
    begins = np.zeros(nodes + len(roots) + 1, np.int32)
    np.cumsum(np.bincount(source, minlength=nodes + len(roots)), out=begins[1:])
    return ByteEdges(
        begins,
        byte[order].astype(np.uint8),
        node[order].astype(np.int32),
        event[order].astype(np.uint8),
    )

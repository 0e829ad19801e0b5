"""Quotes that leave words out: several runs of a title's pages, joined by ` [...] ` (appendix H).

In such a quote, ` [...] ` is always an omission, even if a page's own text has it. Omissions are
read from left to right, and pages are cut at ` [...] `, so that no run contains one. But a run may
continue with a prefix of ` [...] `, most often with a space. Only later characters then show that
the run had ended before this prefix. So a text stays in a run as long as the run can continue like
the text. When it no longer can, but an omission could, the run has ended before the prefix of the
omission. A run must have something besides white space, dots and square brackets. A run that is cut
back in this way still has it.

With omissions, a graph (`quote_graph.py`) also has these nodes for each title:

    omissions              six nodes, one for each prefix of ` [...] ` that is no longer in the run
    brackets               one node, after ` [...` in the run and a "]" that is not in the run: the
                           "]" either ends the quote or belongs to an omission
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
NODES = len(SPELLED) - 1  # per title, after prefixes of ` [...] `
BEFORE_BRACKET = len(SPELLED) - 2  # number of bytes before its "]"


def begun(text: UInt8[np.ndarray, " bytes"]) -> Int8[np.ndarray, " bytes"]:
    """For each position, how many first bytes of an omission the text up to there ends with."""
    found = (text == SPELLED[0]).astype(np.int8)
    for count in range(1, NODES):
        follow = (found[:-1] == count) & (text[1:] == SPELLED[count])
        found[1:][follow] = count + 1
    return found


def rows(first: int, runs: Int[np.ndarray, " titles"]) -> list[dict[int, int]]:
    """The edges of the omissions' nodes, from byte to node.

    Args:
      first: the first of these nodes.
      runs: the node where each title's runs begin.
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
    """The states in which the next byte can continue an omission but not the run.

    Args:
      step: next state by state and letter; -1 for none.
      byte: the byte of each letter.
      states: the states in which a run may end.
      begun: how many first bytes of an omission the runs of each state end with.

    Returns:
      For each number of first bytes of an omission that a run may end with, the states in which the
      omission's next byte shows that the run has ended that many bytes before.
    """
    letter = {int(byte): letter for letter, byte in enumerate(byte)}
    found = []
    for back, following in enumerate(SPELLED.tolist()):
        chosen = begun == back
        if back == 0:
            chosen = begun < NODES  # after all but the last space, that space is part of the run
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
    """Adds the edges that lead from quotes to omissions, then the nodes and edges of brackets.

    Args:
      edges: the edges of the nodes from `quote` on.
      ends: the states where an omission may end the run, by how many bytes earlier the run ended.
      twins: the states of the twin nodes, which follow the states' own nodes; -1 for twins without
        a run.
      roots: the first state of each title.
      runs: the node where each title's runs begin.
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

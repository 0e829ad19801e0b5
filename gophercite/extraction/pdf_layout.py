"""The order in which the blocks of a PDF page are read.

The order is that of pdfminer.six: the two blocks that waste the least area when joined become one,
and so on; within each joined block, what is above or to the left comes first. pdfminer breaks ties
by the objects' memory addresses, so the text of one file can differ from run to run, and a quote
may not be found again where its answer says. Here ties are broken by the blocks' own order, and
equal files give equal texts.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

_FLOW = 0.5  # pdfminer's boxes_flow: above counts three times as much as left
_MOST_BLOCKS = 500  # up to which all pairs are compared: takes seconds if blocks overlap


class Line(NamedTuple):
    """A line of text and its place, in points from the page's lower left corner."""

    x0: float
    y0: float
    x1: float
    y1: float
    text: str


class Block(NamedTuple):
    """Lines that belong together, and the area that they cover.

    `is_vertical`: words run from top to bottom, as in Chinese. `is_turned`: the letters themselves
    are rotated.
    """

    x0: float
    y0: float
    x1: float
    y1: float
    lines: tuple[Line, ...]
    is_vertical: bool = False
    is_turned: bool = False

    @property
    def text(self) -> str:
        """The block's lines."""
        return "\n".join(line.text for line in self.lines)


def block_of(lines: Sequence[Line]) -> Block:
    """Returns the block made of some lines, at least one."""
    return Block(
        min(line.x0 for line in lines),
        min(line.y0 for line in lines),
        max(line.x1 for line in lines),
        max(line.y1 for line in lines),
        tuple(lines),
    )


def in_reading_order(blocks: Sequence[Block]) -> list[Block]:
    """Returns the blocks of a page in reading order: columns one after the other.

    A page with more than 500 blocks, such as a map, is read from top to bottom.
    """
    if len(blocks) > _MOST_BLOCKS:
        return sorted(blocks, key=lambda block: (-block.y1, block.x0))
    return list(_leaves(_Groups(blocks).together())) if blocks else []


class _Group(NamedTuple):
    """A block, or two joined groups."""

    x0: float
    y0: float
    x1: float
    y1: float
    is_vertical: bool
    block: Block | None = None
    parts: tuple["_Group", ...] = ()


def _group_of(block: Block) -> _Group:
    return _Group(block.x0, block.y0, block.x1, block.y1, block.is_vertical, block)


class _Groups:
    """Groups that are joined until one is left."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._groups = [_group_of(block) for block in blocks]
        # For all groups that will ever exist: their places, and whether they are not yet joined.
        self._places = np.zeros((2 * len(blocks), 4))
        self._is_free = np.zeros(2 * len(blocks), bool)
        self._places[: len(blocks)] = [block[:4] for block in blocks]
        self._is_free[: len(blocks)] = True

    def together(self) -> _Group:
        pairs = [
            (False, waste, number, other)
            for number in range(len(self._groups))
            for other, waste in self._wastes(number, number)
        ]
        heapq.heapify(pairs)
        while pairs:
            is_put_off, waste, one, other = heapq.heappop(pairs)
            if not (self._is_free[one] and self._is_free[other]):
                continue
            if not is_put_off and self._something_is_between(one, other):
                heapq.heappush(pairs, (True, waste, one, other))
                continue
            new = self._join(one, other)
            for number, waste in self._wastes(new, new):
                heapq.heappush(pairs, (False, waste, number, new))
        return self._groups[-1]

    def _wastes(self, number: int, below: int) -> Iterator[tuple[int, float]]:
        """The area wasted by joining a group with each free group before it."""
        others = np.flatnonzero(self._is_free[:below])
        if not len(others):
            return iter(())
        wasted = _areas(self._hulls(number, others)) - _areas(self._places[others])
        wasted -= _areas(self._places[number : number + 1])
        return zip(others.tolist(), wasted.tolist(), strict=True)

    def _hulls(self, number: int, others: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n 4"]:
        """The bounding boxes of a group joined with each of the others."""
        here, there = self._places[number], self._places[others]
        return np.hstack([np.minimum(here[:2], there[:, :2]), np.maximum(here[2:], there[:, 2:])])

    def _something_is_between(self, one: int, other: int) -> bool:
        x0, y0, x1, y1 = self._hulls(one, np.array([other]))[0]
        left, bottom, right, top = self._places.T
        meets = self._is_free & (left < x1) & (right > x0) & (bottom < y1) & (top > y0)
        return int(meets.sum()) > int(meets[one]) + int(meets[other])

    def _join(self, one: int, other: int) -> int:
        parts = self._groups[one], self._groups[other]
        is_vertical = any(part.is_vertical for part in parts)
        place = self._hulls(one, np.array([other]))[0]
        x0, y0, x1, y1 = map(float, place)
        ordered = sorted(parts, key=_key_of_column if is_vertical else _key_of_row)
        new = len(self._groups)
        self._groups.append(_Group(x0, y0, x1, y1, is_vertical, None, tuple(ordered)))
        self._places[new] = place
        self._is_free[[one, other]] = False
        self._is_free[new] = True
        return new


def _areas(places: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, " n"]:
    return (places[:, 2:] - places[:, :2]).prod(axis=1)


def _key_of_row(group: _Group) -> float:
    return (1 - _FLOW) * group.x0 - (1 + _FLOW) * (group.y0 + group.y1)


def _key_of_column(group: _Group) -> float:
    """Vertical text runs from right to left."""
    return -(1 + _FLOW) * (group.x0 + group.x1) - (1 - _FLOW) * group.y1


def _leaves(group: _Group) -> Iterator[Block]:
    """The blocks of a group, without recursion: it may be as deep as the number of blocks."""
    waiting = [group]
    while waiting:
        group = waiting.pop()
        if group.block is not None:
            yield group.block
        waiting.extend(reversed(group.parts))

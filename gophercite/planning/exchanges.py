"""Collective operations: which devices communicate, along which mesh axes, and how much."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gophercite.planning.program_text import Operation, bytes_of, dims_of, split_operands

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Collective(NamedTuple):
    """A collective operation.

    Attributes:
      kind: `all-reduce` and so on.
      axes: mesh axes along which devices communicate; `other` if groups don't follow the axes.
      sent: bytes that a device sends each time.
      times: number of times per execution of the program.
      asynchronous: whether the devices compute in the meantime.
    """

    kind: str
    axes: tuple[str, ...]
    sent: int
    times: int
    asynchronous: bool


def collective_of(operation: Operation, kind: str, mesh: Mapping[str, int]) -> Collective:
    """Parses an operation into a collective that runs once.

    Args:
      operation: an operation of one of the `KINDS`.
      kind: its kind.
      mesh: axes and sizes, in the order of the devices.
    """
    groups = groups_of(operation.rest)
    size = len(groups[0]) if groups else math.prod(mesh.values()) if mesh else 1
    starts = operation.opcode.endswith("-start")
    result = bytes_of(_started(operation, kind) if starts else operation.result)
    share = (size - 1) / size if size else 0
    if kind == "collective-permute":
        sent = float(result)
    elif kind == "reduce-scatter":
        # By the operand's size: of the two, what starts has the operand, and what doesn't a share.
        sent = result * (1 if starts else size) * share
    else:
        sent = result * share * (2 if kind == "all-reduce" else 1)
    hidden = starts or "async_collective_name" in operation.rest
    return Collective(kind, _axes(groups, mesh), round(sent), 1, hidden)


def _started(operation: Operation, kind: str) -> str:
    """The shapes of what a `-start` yields or, for a reduce-scatter, of what it takes.

    Its result is a tuple of what it takes, what it yields and more, each a tuple if several
    collectives are combined; an all-reduce's result is only what it yields.
    """
    if kind == "all-reduce":
        return operation.result
    taken, yielded, *_ = split_operands(operation.result.removeprefix("("))
    return taken if kind == "reduce-scatter" else yielded


_OF_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\]"
    r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)
_PART = re.compile(r"'(\w+)'(?::\((\d+)\)(\d+))?")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")


def groups_of(rest: str) -> list[list[int]]:
    """The groups of devices that communicate, by device index; empty if all devices do."""
    if found := _OF_MESH.search(rest):
        return _groups_of_mesh(*found.groups())
    if found := _IOTA.search(rest):
        shape, sizes = (list(map(int, part.split(","))) for part in (found[1], found[2]))
        places = _places(sizes, found[3])
        return places.reshape(shape).reshape(shape[0], -1).tolist()
    if found := _LISTED.search(rest) or _PAIRS.search(rest):
        return [
            [int(place) for place in group.split(",") if place]
            for group in re.findall(r"\{([\d,]*)\}", found[1])
        ]
    return []


def _groups_of_mesh(axes: str, sizes: str | None, order: str | None, along: str) -> list[list[int]]:
    """Groups along axes of a mesh, or along parts of axes (`'axis_1':(2)4`: after a part of 2)."""
    mesh = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes)}
    places = _places(dims_of(sizes) if sizes else list(mesh.values()), order)
    parts = {name: (before, size) for name, before, size in _PART.findall(along)}
    shape, chosen = list[int](), list[int]()
    for name, size in mesh.items():
        if name not in parts:
            shape.append(size)
            continue
        before, part = (
            int(each or whole) for each, whole in zip(parts[name], (1, size), strict=True)
        )
        chosen.append(len(shape) + 1)
        shape += [before, part, size // (before * part)]
    rest = [axis for axis in range(len(shape)) if axis not in chosen]
    count = math.prod(shape[axis] for axis in chosen)
    grouped: list[list[int]] = (
        places.reshape(shape).transpose(*rest, *chosen).reshape(-1, count).tolist()
    )
    return grouped


def _places(sizes: Sequence[int], order: str | None) -> np.ndarray:
    """Device indices in an array of these sizes, with its axes then transposed."""
    places = np.arange(math.prod(sizes)).reshape(sizes)
    return places.transpose(dims_of(order)) if order else places


def _axes(groups: Sequence[Sequence[int]], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The mesh axes along which a group's members differ."""
    if not mesh:
        return ()
    sizes = tuple(mesh.values())
    if not groups:
        return tuple(name for name, size in mesh.items() if size > 1)
    along = set()
    for group in groups:
        for name, places in zip(mesh, np.unravel_index(np.array(group), sizes), strict=True):
            along |= {name} if len({*places.tolist()}) > 1 else set()
    return tuple(name for name in mesh if name in along)


def by_kind_and_axis(
    found: Sequence[Collective],
) -> dict[tuple[str, tuple[str, ...]], tuple[int, int, int]]:
    """Sums collectives by kind and axes.

    Returns:
      For each kind and axes: bytes that a device sends, number of exchanges, and number of
      asynchronous ones.
    """
    table: dict[tuple[str, tuple[str, ...]], tuple[int, int, int]] = {}
    for each in found:
        sent, count, hidden = table.get((each.kind, each.axes), (0, 0, 0))
        table[each.kind, each.axes] = (
            sent + each.sent * each.times,
            count + each.times,
            hidden + each.times * each.asynchronous,
        )
    return table

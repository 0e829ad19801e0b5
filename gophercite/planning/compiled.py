"""What a compiled program does: operations of its matrix products, and what its devices send.

XLA's own `cost_analysis` counts the body of a loop once, whatever the number of turns. Here the
program's text is walked, loops multiplied by their turns.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_OPERATION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"?known_trip_count"?:\{"n":"(\d+)"\}')
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_CONSTANT = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = s32\[\]\S* constant\((\d+)\)")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "bf16": 2}


class Collective(NamedTuple):
    """An exchange between devices.

    Attributes:
      kind: `all-reduce` and so on.
      axes: of the mesh, along which devices exchange; `other` where groups are along none.
      sent: bytes that a device sends, once.
      times: how often a run of the program does it.
      asynchronous: whether the devices compute meanwhile.
    """

    kind: str
    axes: tuple[str, ...]
    sent: int
    times: int
    asynchronous: bool


class Costs(NamedTuple):
    """What a run of a program costs a device.

    Attributes:
      flops: of all matrix products; two for each multiply-add.
      traffic: bytes between main memory and cores: what each operation reads and writes, of what is
        cut out of an array the part alone. What stays in the cores' own memory is counted, too.
      collectives: all exchanges.
      unknown_loops: how many loops turn as often as their data says, and the program does not.
    """

    flops: int
    traffic: int
    collectives: tuple[Collective, ...]
    unknown_loops: int


class _Operation(NamedTuple):
    name: str
    result: str
    opcode: str
    rest: str


class _Text:
    """A program's text, by its computations."""

    def __init__(self, hlo: str) -> None:
        self.computations: dict[str, list[_Operation]] = {}
        self.entry = current = ""
        self._constants: dict[str, dict[str, int]] = {}
        for line in hlo.splitlines():
            if header := _COMPUTATION.match(line):
                current = header[1]
                self.computations[current] = []
                self.entry = current if line.startswith("ENTRY") else self.entry
            elif current and (found := _OPERATION.match(line)):
                self.computations[current].append(_Operation(*found.groups()))
                if constant := _CONSTANT.match(line):
                    values = self._constants.setdefault(current, {})
                    values[constant[1]] = int(constant[2])
        self._results = {
            name: {each.name: each.result for each in operations}
            for name, operations in self.computations.items()
        }

    def dims(self, computation: str, operand: str) -> list[int]:
        """The shape of an operand, as the text or the operation that made it says."""
        if shape := _SHAPE.search(operand):
            return _dims(shape[2])
        (name,) = _OPERAND.findall(operand)[:1]
        shape = _SHAPE.search(self._results[computation][name])
        assert shape is not None
        return _dims(shape[2])

    def size(self, computation: str, operand: str) -> int:
        """The bytes of an operand; 0 where the text does not say."""
        return _bytes(self._results[computation].get(operand, ""))

    def parts_read(self, computation: str) -> dict[int, int]:
        """Of a fused computation's parameters, by number, the bytes of those read in part."""
        parts = {}
        for each in self.computations[computation]:
            if each.opcode != "parameter":
                continue
            users = [
                other
                for other in self.computations[computation]
                if each.name in _OPERAND.findall(other.rest.partition("), ")[0] + ")")
            ]
            if users and all(user.opcode in _CUTTING for user in users):
                number = int(each.rest.partition(")")[0])
                parts[number] = sum(_bytes(user.result) for user in users)
        return parts

    def updated(self, computation: str) -> int | None:
        """Of a fused computation that writes into an array, how many bytes; None of others."""
        found = [
            each for each in self.computations[computation] if each.opcode == "dynamic-update-slice"
        ]
        if len(found) != 1:
            return None
        update = _OPERAND.findall(_split_operands(found[0].rest)[1])
        return self.size(computation, update[0]) if update else None

    def turns(self, operation: _Operation) -> int | None:
        """How often a loop turns: what the text says, or what its condition compares with."""
        if known := _TRIPS.search(operation.rest):
            return int(known[1])
        condition = _CONDITION.search(operation.rest)
        if condition is None:
            return None
        constants = self._reachable_constants(condition[1])
        compares = [
            each
            for name in self._reachable(condition[1])
            for each in self.computations.get(name, ())
            if each.opcode == "compare" and "direction=LT" in each.rest
        ]
        return constants[0] if len(constants) == 1 and len(compares) == 1 else None

    def called(self, operation: _Operation) -> list[str]:
        """The computations that an operation runs."""
        found = _CALLED.findall(operation.rest)
        if branches := _BRANCHES.search(operation.rest):
            found += [name.strip().lstrip("%") for name in branches[1].split(",")]
        return [name for name in found if name in self.computations]

    def _reachable(self, computation: str) -> Iterator[str]:
        yield computation
        for operation in self.computations.get(computation, ()):
            for name in self.called(operation):
                yield from self._reachable(name)

    def _reachable_constants(self, computation: str) -> list[int]:
        return [
            value
            for name in self._reachable(computation)
            for value in self._constants.get(name, {}).values()
        ]


def costs(
    hlo: str, mesh: Mapping[str, int] | None = None, turns: Mapping[str, int] | None = None
) -> Costs:
    """Counts what a run of a compiled program costs a device.

    Args:
      hlo: the program's text, `compiled.as_text()`, for CPU, GPU or TPU.
      mesh: its axes and their sizes, in the order of the devices.
      turns: how often loops turn that end when their data says so, such as those over tokens, by
        what the loop's name holds (`jax.named_scope`); once where nothing says.

    Returns:
      The costs. Branches of a conditional are all counted.
    """
    text = _Text(hlo)
    unknown = 0

    @functools.cache
    def within(name: str) -> tuple[int, int, dict[str, Collective]]:
        nonlocal unknown
        flops, traffic, sent = 0, 0, dict[str, Collective]()
        for operation in text.computations[name]:
            flops += _flops(text, name, operation)
            traffic += _traffic(text, name, operation)
            times = 1
            if operation.opcode == "while":
                known = text.turns(operation)
                unknown += known is None
                times = _said(operation, turns or {}) if known is None else known
            hidden = "async" in operation.name or "-start" in operation.opcode
            for called in text.called(operation):
                inner_flops, inner_traffic, inner = within(called)
                flops += times * inner_flops
                # What an operation has of others inside moves nothing to or from main memory.
                traffic += times * inner_traffic * (operation.opcode in _RUNNING)
                for channel, each in inner.items():
                    now = each._replace(
                        times=times * each.times, asynchronous=each.asynchronous or hidden
                    )
                    _keep(sent, channel, now)
            if (kind := operation.opcode.removesuffix("-start")) in _KINDS:
                numbered = _CHANNEL.search(operation.rest)
                key = numbered[1] if numbered else f"{name} {operation.name}"
                _keep(sent, key, _collective(text, name, operation, kind, mesh or {}))
        return flops, traffic, sent

    flops, traffic, sent = within(text.entry)
    return Costs(flops, traffic, tuple(each for each in sent.values() if each.sent), unknown)


def _said(operation: _Operation, turns: Mapping[str, int]) -> int:
    return max((count for name, count in turns.items() if name in operation.rest), default=1)


def _keep(found: dict[str, Collective], channel: str, new: Collective) -> None:
    """An exchange that the compiler has cut into start and end stands there several times."""
    old = found.get(channel)
    if old is None or new.sent * new.times > old.sent * old.times:
        found[channel] = new._replace(
            asynchronous=new.asynchronous or (old is not None and old.asynchronous)
        )
    elif new.asynchronous and not old.asynchronous:
        found[channel] = old._replace(asynchronous=True)


# --- Matrix products ---


def _flops(text: _Text, computation: str, operation: _Operation) -> int:
    if operation.opcode == "dot":
        operands = _split_operands(operation.rest)
        first = text.dims(computation, operands[0])
        contracted = _CONTRACTED.search(operation.rest)
        sizes = (
            [first[int(axis)] for axis in contracted[1].split(",") if axis] if contracted else []
        )
        return 2 * math.prod(_result_dims(operation)) * math.prod(sizes)
    if operation.opcode == "convolution":
        return _convolution_flops(text, computation, operation)
    return 0


_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_BATCH_GROUPS = re.compile(r"batch_group_count=(\d+)")


def _convolution_flops(text: _Text, computation: str, operation: _Operation) -> int:
    """TPUs' matrix products are convolutions, whose batch dimensions are spatial ones.

    Counted are the multiplications with values that are there, none with padding or holes.
    """
    labels = _LABELS.search(operation.rest)
    assert labels is not None, operation.rest[:200]
    left, right = (text.dims(computation, each) for each in _split_operands(operation.rest)[:2])
    inputs, kernel, output = labels.groups()
    result = _result_dims(operation)
    window = _window(operation.rest)
    products = 1
    for axis in sorted(set(inputs) & set(kernel) - set("bfio")):
        products *= _valid_products(
            left[inputs.index(axis)],
            right[kernel.index(axis)],
            result[output.index(axis)],
            {name: values[int(axis)] for name, values in window.items() if int(axis) < len(values)},
        )
    shared = right[kernel.index("i")]  # of feature groups, those of one group
    kept = result[output.index("b")] * result[output.index("f")]
    groups = _BATCH_GROUPS.search(operation.rest)
    return 2 * kept * shared * products // (int(groups[1]) if groups else 1)


def _window(rest: str) -> dict[str, list[str]]:
    found = _WINDOW.search(rest)
    parts = (part.partition("=") for part in found[1].split()) if found else ()
    return {name: values.split("x") for name, _, values in parts}


def _valid_products(size: int, kernel: int, output: int, window: Mapping[str, str]) -> int:
    """How many pairs of an output's place and a kernel's place meet a value of the input."""
    stride, dilation = int(window.get("stride", 1)), int(window.get("rhs_dilate", 1))
    holes = int(window.get("lhs_dilate", 1))
    low = int(window.get("pad", "0_0").split("_")[0])
    at = np.arange(output)[:, None] * stride - low + np.arange(kernel)[None, :] * dilation
    return int(np.count_nonzero((at % holes == 0) & (at >= 0) & (at // holes < size)))


# --- Main memory ---

_RUNNING = frozenset({"while", "conditional", "call", "async-start"})
_STILL = frozenset(
    {
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "partition-id",
        "replica-id", "after-all", "opt-barrier", "copy-done", *_RUNNING,
    }
)  # fmt: skip
_CUTTING = frozenset({"dynamic-slice", "gather", "slice"})


def _traffic(text: _Text, computation: str, operation: _Operation) -> int:
    """Bytes that an operation reads and writes."""
    if operation.opcode in _STILL or operation.opcode.endswith("-done"):
        return 0
    operands = [
        name[0] if (name := _OPERAND.findall(each)) else ""
        for each in _split_operands(operation.rest)
    ]
    sizes = [text.size(computation, name) for name in operands]
    written = _bytes(operation.result)
    if operation.opcode in _CUTTING:
        return 2 * written
    if operation.opcode == "dynamic-update-slice":
        return 2 * sizes[1]
    if operation.opcode != "fusion":
        return sum(sizes) + written
    (inside,) = text.called(operation)[:1]
    for place, part in text.parts_read(inside).items():
        sizes[place] = min(sizes[place], part)
    updated = text.updated(inside)
    if updated is not None:  # in place: the rest of the array is neither read nor written
        whole = _largest(operation.result)
        written = written - whole + updated
        sizes = [size if size != whole else min(size, updated) for size in sizes]
    return sum(sizes) + written


# --- Exchanges ---


def _collective(
    text: _Text, computation: str, operation: _Operation, kind: str, mesh: Mapping[str, int]
) -> Collective:
    groups = _groups(operation.rest)
    size = len(groups[0]) if groups else math.prod(mesh.values()) if mesh else 1
    result = _bytes(operation.result)
    if operation.opcode.endswith("-start"):  # the result holds the operand, too
        result = _largest(operation.result) if kind != "reduce-scatter" else result
    share = (size - 1) / size if size else 0
    if kind == "collective-permute":
        sent = float(_largest(operation.result))
    elif kind == "reduce-scatter":
        sent = result * size * share  # of the operand, of which the result is one share
    else:
        sent = result * share * (2 if kind == "all-reduce" else 1)
    hidden = operation.opcode.endswith("-start") or "async_collective_name" in operation.rest
    return Collective(kind, _axes(groups, mesh), round(sent), 1, hidden)


_OF_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\]"
    r"(?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)
_PART = re.compile(r"'(\w+)'(?::\((\d+)\)(\d+))?")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")


def _groups(rest: str) -> list[list[int]]:
    """Which devices exchange with each other, by their places; nothing for all of them."""
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
    """Groups along some axes of a mesh, or along parts of them (`'axis_1':(2)4`: behind two)."""
    mesh = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes)}
    places = _places(_dims(sizes) if sizes else list(mesh.values()), order)
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
    """Devices' places in an array of such sizes, its axes then put in another order."""
    places = np.arange(math.prod(sizes)).reshape(sizes)
    return places.transpose(_dims(order)) if order else places


def _axes(groups: Sequence[Sequence[int]], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of the mesh along which the members of groups differ."""
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


# --- Text ---


def _dims(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def _result_dims(operation: _Operation) -> list[int]:
    shape = _SHAPE.search(operation.result)
    assert shape is not None
    return _dims(shape[2])


def _split_operands(rest: str) -> list[str]:
    """The operands, which commas part that stand in no bracket."""
    operands, depth, current = [], 0, ""
    for letter in rest:
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            if depth == 0:
                break
            depth -= 1
        if letter == "," and depth == 0:
            operands.append(current)
            current = ""
        else:
            current += letter
    return [*operands, current]


def _sizes(result: str) -> list[int]:
    return [
        math.prod(_dims(dims)) * _BYTES.get(kind, _width(kind))
        for kind, dims in _SHAPE.findall(result)
    ]


def _bytes(result: str) -> int:
    return sum(_sizes(result))


def _largest(result: str) -> int:
    return max(_sizes(result), default=0)


def _width(kind: str) -> int:
    """Bytes of a value of a type such as f32, s8, u16, f8e4m3fn."""
    bits = re.match(r"[a-z]+(\d+)", kind)
    return max(1, int(bits[1]) // 8) if bits else 0


def by_kind_and_axis(
    found: Sequence[Collective],
) -> dict[tuple[str, tuple[str, ...]], tuple[int, int, int]]:
    """Returns for each kind of exchange along the same axes: bytes that a device sends, how many
    exchanges, how many of them asynchronous."""
    table: dict[tuple[str, tuple[str, ...]], tuple[int, int, int]] = {}
    for each in found:
        sent, count, hidden = table.get((each.kind, each.axes), (0, 0, 0))
        table[each.kind, each.axes] = (
            sent + each.sent * each.times,
            count + each.times,
            hidden + each.times * each.asynchronous,
        )
    return table

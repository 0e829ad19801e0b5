"""Parses the text of a compiled program into computations and operations."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_OPERATION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"?known_trip_count"?:\{"n":"(\d+)"\}')
_CONSTANT = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = [su]32\[\]\S* constant\((\d+)\)")
_INDEX = re.compile(r"\bindex=(\d+)")
_BYTES = {"pred": 1, "bf16": 2}
# Operations that extract a part of an array.
CUTTING = frozenset({"dynamic-slice", "gather", "slice"})


class Operation(NamedTuple):
    """A line of a program.

    Attributes:
      name: the operation's name in its computation.
      result: the shape of its result, or the shapes of a tuple.
      opcode: the kind of operation.
      rest: operands and attributes, as text.
    """

    name: str
    result: str
    opcode: str
    rest: str


class ProgramText:
    """A program's text, by its computations.

    Args:
      hlo: the result of `compiled.as_text()`, for CPU, GPU or TPU.
    """

    def __init__(self, hlo: str) -> None:
        self.computations: dict[str, list[Operation]] = {}
        self.entry = current = ""
        self._constants: dict[str, dict[str, int]] = {}
        for line in hlo.splitlines():
            if header := _COMPUTATION.match(line):
                current = header[1]
                self.computations[current] = []
                self.entry = current if line.startswith("ENTRY") else self.entry
            elif current and (found := _OPERATION.match(line)):
                self.computations[current].append(Operation(*found.groups()))
                if constant := _CONSTANT.match(line):
                    values = self._constants.setdefault(current, {})
                    values[constant[1]] = int(constant[2])
        self._results = {
            name: {each.name: each.result for each in operations}
            for name, operations in self.computations.items()
        }

    def dims(self, computation: str, operand: str) -> list[int]:
        """The shape of an operand, from the text or from the operation that produced it."""
        if shape := _SHAPE.search(operand):
            return dims_of(shape[2])
        (name,) = OPERAND.findall(operand)[:1]
        shape = _SHAPE.search(self._results[computation][name])
        assert shape is not None
        return dims_of(shape[2])

    def size(self, computation: str, operand: str) -> int:
        """The bytes of an operand; 0 if the text does not say."""
        return bytes_of(self._results[computation].get(operand, ""))

    def parts_read(self, computation: str) -> dict[int, int]:
        """The bytes read of a fused computation's parameters, by number, if read only in part."""
        parts = {}
        for each in self.computations[computation]:
            if each.opcode != "parameter":
                continue
            users = [
                other
                for other in self.computations[computation]
                if each.name in OPERAND.findall(other.rest.partition("), ")[0] + ")")
            ]
            if users and all(user.opcode in CUTTING for user in users):
                number = int(each.rest.partition(")")[0])
                parts[number] = sum(bytes_of(user.result) for user in users)
        return parts

    def updated(self, computation: str) -> int | None:
        """The bytes that a fused computation writes into an array in place; None for others."""
        found = [
            each for each in self.computations[computation] if each.opcode == "dynamic-update-slice"
        ]
        if len(found) != 1:
            return None
        update = OPERAND.findall(split_operands(found[0].rest)[1])
        return self.size(computation, update[0]) if update else None

    def turns(self, operation: Operation) -> int | None:
        """A loop's number of iterations: from the text, or from the bound in its condition."""
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
        if len(constants) != 1 or len(compares) != 1:
            return None
        return -(-constants[0] // self._step(operation, condition[1], compares[0]))

    def _step(self, loop: Operation, condition: str, compare: Operation) -> int:
        """How far a loop's counter goes in an iteration: the partitioner unrolls loops by two.

        The counter is an element of the tuple that the loop carries, and the body adds constants to
        it. Where that can't be seen, it is 1.
        """
        counter = self._element(condition, _name(split_operands(compare.rest)[0]))
        bodies = [name for name in self.called(loop) if name != condition]
        if counter is None or len(bodies) != 1:
            return 1
        (body,) = bodies
        carried = self.computations[body][-1]
        if carried.opcode != "tuple":
            return 1
        by_name = {each.name: each for each in self.computations[body]}
        name, step = _name(split_operands(carried.rest)[counter]), 0
        while (found := by_name.get(name)) is not None and found.opcode in ("add", "copy"):
            constants = self._constants.get(body, {})
            operands = [_name(each) for each in split_operands(found.rest)]
            step += sum(constants.get(each, 0) for each in operands)
            name = next((each for each in operands if each not in constants), "")
        return step if step > 0 and self._element(body, name) == counter else 1

    def _element(self, computation: str, name: str) -> int | None:
        """Which element of a tuple a value is; None if it is none."""
        for each in self.computations[computation]:
            if each.name == name and each.opcode == "get-tuple-element":
                found = _INDEX.search(each.rest)
                return int(found[1]) if found else None
        return None

    def called(self, operation: Operation) -> list[str]:
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


def _name(operand: str) -> str:
    found = OPERAND.findall(operand)
    return found[0] if found else ""


def dims_of(text: str) -> list[int]:
    """Reads the sizes in `8,16`."""
    return [int(size) for size in text.split(",") if size]


def result_dims(operation: Operation) -> list[int]:
    """Returns the shape of an operation's result."""
    shape = _SHAPE.search(operation.result)
    assert shape is not None
    return dims_of(shape[2])


def split_operands(rest: str) -> list[str]:
    """The operands, split at commas outside brackets."""
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
        math.prod(dims_of(dims)) * _BYTES.get(kind, _width(kind))
        for kind, dims in _SHAPE.findall(result)
    ]


def bytes_of(result: str) -> int:
    """Returns the bytes of all shapes in a text such as `(f32[2,3], s32[])`."""
    return sum(_sizes(result))


def largest(result: str) -> int:
    """Returns the bytes of the largest shape in a text."""
    return max(_sizes(result), default=0)


def _width(kind: str) -> int:
    """Bytes of a value of a type such as f32, s8, u16, f8e4m3fn."""
    bits = re.match(r"[a-z]+(\d+)", kind)
    return max(1, int(bits[1]) // 8) if bits else 0

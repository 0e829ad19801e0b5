"""A compiled program's costs: operations of its matrix products, and what its devices send.

XLA's own `cost_analysis` counts the body of a loop once, whatever the number of iterations. Here
the program's text is analysed, and loops are multiplied by their numbers of iterations.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gophercite.planning.exchanges import KINDS, Collective, collective_of
from gophercite.planning.program_text import (
    CUTTING,
    OPERAND,
    Operation,
    ProgramText,
    bytes_of,
    largest,
    result_dims,
    split_operands,
)

_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
# A TPU's compiler may cut a collective into pieces, each fused with a part of the computations
# that it overlaps with. All pieces have the chain's number. Channels are no such sign: a function
# that is called several times has the same channel each time.
_CHAIN = re.compile(r'chain_id="(\d+)"')
# In computations of this name, the TPU's compiler writes a reduce-scatter as an all-reduce of which
# each device then takes its share.
_SCATTERED = "all-reduce-scatter"
_KERNEL = 'custom_call_target="tpu_custom_call"'  # written in Pallas, such as splash attention
_AT_MOST = re.compile(r'op_name="[^"]*at_most\.(\d+)\)*/while"')
_Sent = tuple[str | None, Collective]  # a collective, and the chain that it is a piece of


class Costs(NamedTuple):
    """The costs of one execution of a program, per device.

    Attributes:
      flops: operations of all matrix products; two for each multiply-add.
      traffic: bytes between main memory and cores: what each operation reads and writes; for slices
        of an array, only the slice. Data that stays in the cores' own memory is counted, too.
      collectives: all collective operations.
      unknown_loops: number of loops whose iterations depend on data and not on the program.
      kernel_calls: number of calls of hand-written kernels; `flops` leaves what they compute out.
    """

    flops: int
    traffic: int
    collectives: tuple[Collective, ...]
    unknown_loops: int
    kernel_calls: int = 0


def costs(hlo: str, mesh: Mapping[str, int] | None = None) -> Costs:
    """Counts the costs of one execution of a compiled program, per device.

    Args:
      hlo: the program's text, `compiled.as_text()`, for CPU, GPU or TPU.
      mesh: the mesh's axes and their sizes, in the order of the devices.

    Returns:
      The costs. Branches of a conditional are all counted. A loop that ends when its data says so
      counts as many times as its name says (`jax.named_scope("at_most.256")` around it), or once.
    """
    text = ProgramText(hlo)
    unknown = 0

    @functools.cache
    def within(name: str) -> tuple[int, int, int, list[_Sent]]:
        nonlocal unknown
        flops, traffic, kernels, sent = 0, 0, 0, list[_Sent]()
        for operation in text.computations[name]:
            flops += _flops(text, name, operation)
            traffic += _traffic(text, name, operation)
            kernels += _KERNEL in operation.rest
            times = 1
            if operation.opcode == "while":
                named = _at_most(operation)
                # A bound of what a named loop computes can look like one of its iterations.
                known = text.turns(operation) if named is None else None
                unknown += known is None
                times = next((each for each in (named, known) if each is not None), 1)
            hidden = "async" in operation.name or "-start" in operation.opcode
            for called in text.called(operation):
                inner_flops, inner_traffic, inner_kernels, inner = within(called)
                flops += times * inner_flops
                kernels += times * inner_kernels
                # Operations fused into another one don't access main memory.
                traffic += times * inner_traffic * (operation.opcode in _RUNNING)
                for chain, each in inner:
                    repeated = each._replace(
                        times=times * each.times, asynchronous=each.asynchronous or hidden
                    )
                    # All pieces of a chain are fusions of one computation.
                    sent.append((chain if operation.opcode == "fusion" else None, repeated))
            if (kind := operation.opcode.removesuffix("-start")) in KINDS:
                piece = _CHAIN.search(operation.rest)
                found = collective_of(operation, kind, mesh or {})
                if kind == "all-reduce" and name.startswith(_SCATTERED):
                    found = found._replace(kind="reduce-scatter", sent=found.sent // 2)
                sent.append((piece[1] if piece else None, found))
        return flops, traffic, kernels, _with_whole_chains(sent)

    flops, traffic, kernels, sent = within(text.entry)
    exchanges = tuple(each for _, each in sent if each.sent)
    return Costs(flops, traffic, exchanges, unknown, kernels)


def _at_most(operation: Operation) -> int | None:
    """The iterations that a loop's name gives; a loop inside the named one has none of its own."""
    found = _AT_MOST.search(operation.rest)
    return int(found[1]) if found else None


def _with_whole_chains(found: Sequence[_Sent]) -> list[_Sent]:
    """Counts each chain of pieces as one collective."""
    whole: dict[str, Collective] = {}
    for chain, each in found:
        if chain is not None:
            known = whole.get(chain, each)
            largest_piece = max(known, each, key=lambda one: one.sent * one.times)
            whole[chain] = largest_piece._replace(
                asynchronous=known.asynchronous or each.asynchronous
            )
    return [*(each for each in found if each[0] is None), *whole.items()]


# --- Matrix products ---


def _flops(text: ProgramText, computation: str, operation: Operation) -> int:
    if operation.opcode == "dot":
        operands = split_operands(operation.rest)
        first = text.dims(computation, operands[0])
        contracted = _CONTRACTED.search(operation.rest)
        sizes = (
            [first[int(axis)] for axis in contracted[1].split(",") if axis] if contracted else []
        )
        return 2 * math.prod(result_dims(operation)) * math.prod(sizes)
    if operation.opcode == "convolution":
        return _convolution_flops(text, computation, operation)
    return 0


_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")
_BATCH_GROUPS = re.compile(r"batch_group_count=(\d+)")


def _convolution_flops(text: ProgramText, computation: str, operation: Operation) -> int:
    """Operations of a convolution: on TPUs, matrix products with spatial batch dimensions.

    Only multiplications with actual values count, not those with padding or dilation holes.
    """
    labels = _LABELS.search(operation.rest)
    assert labels is not None, operation.rest[:200]
    left, right = (text.dims(computation, each) for each in split_operands(operation.rest)[:2])
    inputs, kernel, output = labels.groups()
    result = result_dims(operation)
    window = _window(operation.rest)
    products = 1
    for axis in sorted(set(inputs) & set(kernel) - set("bfio")):
        products *= _valid_products(
            left[inputs.index(axis)],
            right[kernel.index(axis)],
            result[output.index(axis)],
            {name: values[int(axis)] for name, values in window.items() if int(axis) < len(values)},
        )
    shared = right[kernel.index("i")]  # with feature groups: the features of one group
    kept = result[output.index("b")] * result[output.index("f")]
    groups = _BATCH_GROUPS.search(operation.rest)
    return 2 * kept * shared * products // (int(groups[1]) if groups else 1)


def _window(rest: str) -> dict[str, list[str]]:
    found = _WINDOW.search(rest)
    parts = (part.partition("=") for part in found[1].split()) if found else ()
    return {name: values.split("x") for name, _, values in parts}


def _valid_products(size: int, kernel: int, output: int, window: Mapping[str, str]) -> int:
    """The number of pairs of output and kernel positions that touch a value of the input."""
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


def _traffic(text: ProgramText, computation: str, operation: Operation) -> int:
    """Bytes that an operation reads and writes."""
    if operation.opcode in _STILL or operation.opcode.endswith("-done"):
        return 0
    operands = [
        name[0] if (name := OPERAND.findall(each)) else ""
        for each in split_operands(operation.rest)
    ]
    sizes = [text.size(computation, name) for name in operands]
    written = bytes_of(operation.result)
    if operation.opcode in CUTTING:
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
        whole = largest(operation.result)
        written = written - whole + updated
        sizes = [size if size != whole else min(size, updated) for size in sizes]
    return sum(sizes) + written

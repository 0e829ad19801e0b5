"""Plans a program on devices that aren't present: whether it fits, its costs and its time."""

import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from gophercite.planning.chips import Topology
from gophercite.planning.compiled import Costs, costs
from gophercite.planning.exchanges import by_kind_and_axis
from gophercite.training.program import Program

# libtpu's message for a program that does not fit in memory.
_USED = re.compile(
    r"(?:Used |required for [\w ]+\()([\d.]+)([KMG])(?: of |\) exceeds available HBM \()"
    r"([\d.]+)([KMG])"
)
_EXCEEDED = re.compile(r"[Ee]xceeded hbm capacity by ([\d.]+)([KMG])")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
# Operations that move data between the devices and their host, arrays in the host's memory, and
# calls of the host.
_TO_HOST = re.compile(
    r" (?:infeed|outfeed|send|recv)\(|\{[^{}]*S\(5\)\}"
    r"|custom_call_target=\"[^\"]*(?:host|python|callback)[^\"]*\"",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Step:
    """A program to plan: a training step, or sampling.

    Attributes:
      mesh: the mesh's axes and their sizes, in the order of the devices.
      compile: compiles it for the devices.
      parameters, optimizer, other, batch: bytes of its inputs on each device; `other` is all of the
        training state that is neither parameters nor the optimiser's.
      needed_flops: operations on all devices by analysis (`needed_flops`); None if not known.
    """

    mesh: Mapping[str, int]
    compile: Callable[[], jax.stages.Compiled]
    parameters: int
    optimizer: int = 0
    other: int = 0
    batch: int = 0
    needed_flops: float | None = None


@dataclasses.dataclass(frozen=True)
class Memory:
    """A device's memory, in bytes.

    Attributes:
      parameters, optimizer, other: parts of the training state; `other` is everything else, such as
        averages and environments.
      batch: the step's input.
      temporaries: activations, gradients and whatever else a step needs while it runs.
      peak: the maximum at any time, inputs included, according to the compiler. It is what libtpu
        compares with the memory. Temporaries of loops may add up to more.
      usable: memory that is available to programs.
    """

    parameters: int
    optimizer: int
    other: int
    batch: int
    temporaries: int
    peak: int
    usable: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a step.

    Attributes:
      topology: the slice.
      devices: number of devices.
      mesh: axes and sizes.
      fits: whether the step fits each device's memory.
      memory: memory of each device; None if nothing could be compiled.
      problem: the compiler's message, if the step does not fit.
      flops: operations per device in matrix products; two for each multiply-add.
      needed_flops: operations that the step needs by analysis, without recomputation, divided by
        the number of devices; None if not known.
      traffic: bytes between main memory and cores, an upper bound.
      exchanges: kind, axes of the mesh, bytes that a device sends, number of exchanges, number of
        asynchronous ones.
      unknown_loops: number of data-dependent loops.
      kernel_calls: number of calls of hand-written kernels; `flops` leaves what they compute out.
      host_operations: number of operations that move data to or from the host, or call it.
      seconds: an estimate of the step's time, from published peaks.
      mfu: model FLOPs utilisation at that time; None if `needed_flops` is not known.
      compile_seconds: time that compiling took here.
    """

    topology: str
    devices: int
    mesh: dict[str, int]
    fits: bool
    memory: Memory | None
    problem: str
    flops: int
    needed_flops: float | None
    traffic: int
    exchanges: list[tuple[str, tuple[str, ...], int, int, int]]
    unknown_loops: int
    kernel_calls: int
    host_operations: int
    seconds: dict[str, float]
    mfu: float | None
    compile_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as JSON."""
        return dataclasses.asdict(self)


def update_step(program: Program, batch: Any, needed_flops: float | None = None) -> Step:
    """A program's training step, to be planned.

    Args:
      program: a program with a mesh over the slice's devices.
      batch: shapes with shardings.
      needed_flops: operations of the step on all devices, by analysis.

    Returns:
      The step.
    """
    target = program.state_target()
    parameters, optimizer = device_bytes(target.params), device_bytes(target.optimizer)
    return Step(
        program.partitioner.mesh.shape,
        lambda: program.compile_update(batch),
        parameters,
        optimizer,
        device_bytes(target) - parameters - optimizer,
        device_bytes(batch),
        needed_flops,
    )


def plan_step(step: Step, topology: Topology) -> Plan:
    """Compiles a program for a slice and determines its costs.

    Args:
      step: the program, with a mesh over the slice's devices.
      topology: the slice.

    Returns:
      The plan, with `fits` False if the compiler reports too little memory.
    """
    mesh = dict(step.mesh)
    devices = len(topology.devices)
    needed = None if step.needed_flops is None else step.needed_flops / devices
    begun = time.monotonic()
    try:
        compiled = step.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        took = time.monotonic() - begun
        problem = _problem(str(error))
        return Plan(
            topology.name, devices, mesh, False, None, problem, 0, needed, 0, [], 0, 0, 0, {}, None,
            took,
        )  # fmt: skip
    took = time.monotonic() - begun
    text = compiled.as_text() or ""
    found = costs(text, mesh)
    memory = _memory(step, compiled, topology)
    seconds = estimate(found, topology)
    fits = memory.peak <= memory.usable
    return Plan(
        topology.name,
        devices,
        mesh,
        fits,
        memory,
        "" if fits else f"needs {memory.peak / 2**30:.2f} GiB, has {memory.usable / 2**30:.2f} GiB",
        found.flops,
        needed,
        found.traffic,
        [
            (kind, axes, *row)
            for (kind, axes), row in sorted(by_kind_and_axis(found.collectives).items())
        ],
        found.unknown_loops,
        found.kernel_calls,
        len(_TO_HOST.findall(text)),
        seconds,
        None if needed is None else needed / topology.chip.flops / seconds["step"],
        took,
    )


def estimate(found: Costs, topology: Topology) -> dict[str, float]:
    """Estimates a step's time from the published peaks of its devices.

    Args:
      found: the step's costs per device.
      topology: the slice.

    Returns:
      Seconds: `compute` for all matrix products at the peak, `memory` for all traffic, `exchanges`
      over all links, `hidden` for exchanges that overlap with computation; and `step`: the larger
      of compute and memory plus the exchanges that are not hidden, or all exchanges if those take
      longer.
    """
    chip = topology.chip
    compute, memory = found.flops / chip.flops, found.traffic / chip.bandwidth
    exchanges = sum(each.sent * each.times for each in found.collectives) / chip.links
    hidden = sum(e.sent * e.times for e in found.collectives if e.asynchronous) / chip.links
    work = max(compute, memory)
    step = max(work, hidden) + exchanges - hidden
    return {
        "compute": compute,
        "memory": memory,
        "exchanges": exchanges,
        "hidden": hidden,
        "step": step,
    }


def device_bytes(tree: Any) -> int:
    """The bytes per device of a tree of shapes with shardings."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


def _memory(step: Step, compiled: jax.stages.Compiled, topology: Topology) -> Memory:
    sizes = compiled.memory_analysis()
    if sizes is None:
        raise RuntimeError(
            f"the compiler does not report how much memory is needed on {topology.name}"
        )
    outputs = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    held = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + outputs
    # The CPU compiler does not report a peak.
    peak = sizes.peak_memory_in_bytes if topology.chip.name.startswith("v") else held
    return Memory(
        step.parameters,
        step.optimizer,
        step.other,
        step.batch,
        sizes.temp_size_in_bytes,
        peak,
        int(topology.chip.memory),
    )


def _problem(message: str) -> str:
    """The compiler's message on too little memory, in one line."""
    if used := _USED.search(message):
        need, have = (float(used[n]) * _UNITS[used[n + 1]] / 2**30 for n in (1, 3))
        return f"needs {need:.2f} GiB, has {have:.2f} GiB"
    if over := _EXCEEDED.search(message):
        return f"exceeds the memory by {float(over[1]) * _UNITS[over[2]] / 2**30:.2f} GiB"
    return next(line for line in message.splitlines() if "RESOURCE_EXHAUSTED" in line)[:200]

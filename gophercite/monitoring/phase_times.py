"""The times of a training step's phases, from a profile of one step.

A compiled program records for each instruction where it was traced (`learning.phases`), and the
profiler records when each instruction ran on each device. A phase's time is the time in which at
least one of its instructions ran: instructions that run concurrently are not counted twice.
"""

import collections
import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
from jax.profiler import ProfileData, ProfileOptions

from gophercite.learning.phases import phase_of

Interval = tuple[float, float]  # start and end, in nanoseconds

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = .*?\s([a-z][a-z\-]*)\(")
_OPERATION = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(
    r"(?:body|condition|calls|to_apply|branch_computations|true_computation|false_computation)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)
_NAME = re.compile(r"[\w.\-]+")
# Their time is that of the instructions they run, which are listed separately.
_CONTAINERS = {"while", "conditional"}
OTHER, IDLE = "other", "idle"


class _Instruction(NamedTuple):
    name: str
    kind: str
    phase: str | None
    calls: list[str]


def profiled(program: jax.stages.Compiled, *arguments: Any) -> tuple[Any, dict[str, float]]:
    """Runs a program once under the profiler.

    Args:
      program: a training step, or another program with marked phases.
      arguments: its arguments.

    Returns:
      Its result, and seconds by phase, the mean over this process's devices; `other` is time
      outside all phases, `idle` is time in which the device ran nothing between its first and last
      instruction. Empty if the profiler saw none of the program's instructions, or if it is busy:
      only one profile can be taken at a time, and a client may have asked for one.
    """
    # JAX has no public API for this: `jax.profiler.trace` also writes all events as compressed
    # JSON, which takes several times as long as the step.
    from jax._src.lib import _profiler

    options = ProfileOptions()
    options.python_tracer_level = 0  # stack frames for each event would slow down the step
    options.enable_hlo_proto = False  # the program's text is available
    session = _profiler.ProfilerSession(options)
    profile = None
    try:
        result = jax.block_until_ready(program(*arguments))
    finally:
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # the profiler is busy
            profile = session.stop_and_get_profile_data()
    if profile is None:
        return result, {}
    phases = instruction_phases(program.as_text() or "")
    return result, phase_seconds(_events(profile), phases)


def instruction_phases(program: str) -> dict[str, str]:
    """The phase of each instruction of a compiled program.

    Args:
      program: the program's text, with metadata.

    Returns:
      The phase by instruction. An instruction without a phase has that of the instruction that runs
      its computation, or else `other`. Loops and branches are left out in favour of the
      instructions they run.
    """
    computations: dict[str, list[_Instruction]] = {}
    entry, current = "", ""
    for line in program.splitlines():
        if start := _COMPUTATION.match(line):
            current = start[2]
            computations[current] = []
            entry = current if start[1] else entry
        elif found := _INSTRUCTION.match(line):
            operation = _OPERATION.search(line)
            calls = [name for called in _CALLED.findall(line) for name in _NAME.findall(called)]
            phase = phase_of(operation[1]) if operation else None
            computations[current].append(_Instruction(found[1], found[2], phase, calls))

    phases: dict[str, str] = {}
    todo, seen = [(entry, OTHER)], set()
    while todo:
        computation, inherited = todo.pop()
        if computation in seen:
            continue
        seen.add(computation)
        for instruction in computations.get(computation, ()):
            phase = instruction.phase or inherited
            if instruction.kind not in _CONTAINERS:
                phases[instruction.name] = phase
            todo += [(name, phase) for name in instruction.calls]
    return phases


class Event(NamedTuple):
    """An execution of an instruction.

    Attributes:
      device: any name that identifies the device.
      instruction: the instruction's name.
      start: in nanoseconds.
      end: in nanoseconds.
    """

    device: str
    instruction: str
    start: float
    end: float


def phase_seconds(events: Iterable[Event], phases: Mapping[str, str]) -> dict[str, float]:
    """Seconds in which each phase ran, the mean over devices.

    Args:
      events: the events of all devices; instructions that are not in `phases` are ignored.
      phases: the phase by instruction.

    Returns:
      Seconds by phase; see `profiled`.
    """
    runs: dict[str, dict[str, list[Interval]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for event in events:
        if event.instruction in phases:
            runs[event.device][phases[event.instruction]].append((event.start, event.end))
    totals: dict[str, float] = collections.defaultdict(float)
    for by_phase in runs.values():
        whole = [interval for intervals in by_phase.values() for interval in intervals]
        for name, intervals in by_phase.items():
            totals[name] += _covered(intervals)
        span = max(end for _, end in whole) - min(start for start, _ in whole)
        totals[IDLE] += span - _covered(whole)
    return {name: total / len(runs) / 1e9 for name, total in sorted(totals.items())}


def _covered(intervals: list[Interval]) -> float:
    """The length of the intervals' union."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _events(profile: ProfileData) -> Iterable[Event]:
    """The instructions' executions, from accelerators' own clocks or from the CPU's threads."""
    for plane in profile.planes:
        lines = [line for line in plane.lines if _of_instructions(plane.name, line.name)]
        # On the CPU an instruction may continue after the call that started it; a second event,
        # linked to the first, marks its end.
        ends: dict[int, float] = {}
        runs: list[tuple[Event, int | None]] = []
        for event in (event for line in lines for event in line.events):
            stats = dict(event.stats)
            if event.name.startswith("end: ") and (link := stats.get("_c")):
                ends[link] = event.start_ns
            name = stats.get("hlo_op")
            if name is None and plane.name.startswith("/device:TPU"):
                name = event.name.split(" = ")[0].lstrip("%")
            if name is not None:
                device = f"{plane.name}/{stats.get('device_ordinal', 0)}"
                end = event.start_ns + event.duration_ns
                runs.append((Event(device, str(name), event.start_ns, end), stats.get("_p")))
        for run, link in runs:
            ended = run.end if link is None else ends.get(link, run.end)
            yield run._replace(end=max(run.end, ended))


def _of_instructions(plane: str, line: str) -> bool:
    """Whether a profile line has instructions, not steps or entire programs."""
    if plane.startswith("/device:"):
        return line == "XLA Ops" or line.startswith("Stream")
    return plane == "/host:CPU"

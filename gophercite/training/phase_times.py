"""What the phases of a training step take, read from a profile of one step.

A compiled program names for each instruction what it was traced from (`learning.phases`), and the
profiler says when each ran on each device. A phase's time is that in which at least one of its
instructions ran: instructions that run side by side are not counted twice.
"""

import collections
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
from jax.profiler import ProfileData, ProfileOptions

from gophercite.learning.phases import phase_of

Interval = tuple[float, float]  # from, to, in nanoseconds

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = .*?\s([a-z][a-z\-]*)\(")
_OPERATION = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(
    r"(?:body|condition|calls|to_apply|branch_computations|true_computation|false_computation)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)
_NAME = re.compile(r"[\w.\-]+")
# Their time is that of what they run, which has names of its own.
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
      program: a training step, or another whose phases are marked.
      arguments: what it takes.

    Returns:
      What it returned, and seconds by phase, the mean over this process's devices; `other` is what
      runs outside all phases, `idle` is time in which the device ran nothing between its first
      instruction and its last. Empty where the profiler saw none of the program's instructions.
    """
    # JAX offers it in no other way: `jax.profiler.trace` also writes all events as compressed JSON,
    # which takes several times as long as the step.
    from jax._src.lib import _profiler

    options = ProfileOptions()
    options.python_tracer_level = 0  # a stack frame an event would slow down the step
    options.enable_hlo_proto = False  # the program's text is at hand
    session = _profiler.ProfilerSession(options)
    try:
        result = jax.block_until_ready(program(*arguments))
    finally:
        profile = session.stop_and_get_profile_data()  # none other can start while it runs
    phases = instruction_phases(program.as_text() or "")
    return result, phase_seconds(_events(profile), phases)


def instruction_phases(program: str) -> dict[str, str]:
    """The phase of each instruction of a compiled program.

    Args:
      program: its text, with metadata.

    Returns:
      By instruction; one without a phase has that of the instruction that runs its computation, and
      `other` if there is none. Loops and branches are left out for what they run.
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
    """An instruction's run.

    Attributes:
      device: where; any name that tells devices apart.
      instruction: its name.
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
      events: of all devices; those of instructions that have no phase are left out.
      phases: of instructions.

    Returns:
      By phase; see `profiled`.
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
    """The instructions' runs: of accelerators by their own clocks, of the CPU by its threads."""
    for plane in profile.planes:
        lines = [line for line in plane.lines if _of_instructions(plane.name, line.name)]
        # On the CPU an instruction may go on after the call that began it: it ends where a second
        # event, linked to the first, says so.
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
    """Whether a line of a plane has instructions, not steps or whole programs."""
    if plane.startswith("/device:"):
        return line == "XLA Ops" or line.startswith("Stream")
    return plane == "/host:CPU"

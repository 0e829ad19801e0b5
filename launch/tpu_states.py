"""What to do next with a TPU machine: a pure function of what `gcloud` and the workers report.

    NO_MACHINE → REQUESTED → ACTIVE → (PREEMPTED → deleted → NO_MACHINE → …) → DONE

A machine is a queued resource of one or several slices, or a TPU VM that was created without one.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any


class State(enum.Enum):
    """The state of a machine."""

    NO_MACHINE = "no machine"
    REQUESTED = "requested"
    ACTIVE = "active"
    PREEMPTED = "preempted"
    FAILED = "failed"
    STOPPED = "stopped"
    DELETING = "being deleted"


class Training(enum.Enum):
    """The state of the training run on a machine's workers."""

    UNKNOWN = "unknown"  # not asked yet, or not all workers answer
    ABSENT = "absent"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    OTHER = "another one is running"


class Goal(enum.Enum):
    """The goal of a command."""

    MACHINE = "a machine that is ready"
    TRAINED = "a training that is done"
    NOTHING = "no machine"


class Action(enum.Enum):
    """What to do next."""

    CREATE = "create"
    DELETE = "delete"
    WAIT = "wait"
    ASK = "ask the workers"
    START = "start the training"
    END = "done"
    GIVE_UP = "give up"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine as it was last described.

    Attributes:
      state: its state.
      said: the same in Google's words, for messages.
      nodes: names of its slices, by which workers are reached.
      workers: total number of workers.
      queued: whether it is a queued resource; otherwise it is a TPU VM created without one, or
          none.
      hopeless: whether requesting it again can't help.
    """

    state: State
    said: str
    nodes: tuple[str, ...] = ()
    workers: int = 0
    queued: bool = False
    hopeless: bool = False


@dataclasses.dataclass(frozen=True)
class Report:
    """What one worker reports about its training run.

    Attributes:
      worker: its host name.
      state: "absent", "running" or "ended".
      run: which training run, or "-".
      status: its exit status if it has ended, or "-".
      line: the last line of its log.
    """

    worker: str
    state: str
    run: str
    status: str
    line: str


_WAITING = {"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "STATE_UNSPECIFIED"}
_COMING = {"CREATING", "STARTING", "RESTARTING", "REPAIRING", "REIMAGING", "STATE_UNSPECIFIED"}
_LOST = {"PREEMPTED", "TERMINATED", "HIDING", "HIDDEN", "UNHIDING"}
# Codes of google.rpc: invalid, no permission, a precondition, unauthenticated.
_HOPELESS_CODES = {3, 7, 9, 16}
MOST_FAILURES = 3


def read_machine(
    name: str, queued: Mapping[str, Any] | None, nodes: Sequence[Mapping[str, Any]]
) -> Machine:
    """Interprets Google's descriptions.

    Args:
      name: the machine's name.
      queued: the queued resource, as printed by `gcloud … describe`; None if there is none.
      nodes: all TPU VMs of the zone, as printed by `gcloud … list`.

    Raises:
      KeyError, TypeError, ValueError, AttributeError: they are not such descriptions.
    """
    by_name = {str(node["name"]).rpartition("/")[2]: node for node in nodes}
    if queued is None:
        # A node left behind by a queued resource costs as much as any other.
        own_nodes = [
            node_name
            for node_name, node in sorted(by_name.items())
            if node_name == name or str(node.get("queuedResource", "")).rpartition("/")[2] == name
        ]
        if not own_nodes:
            return Machine(State.NO_MACHINE, "it does not exist")
        return _of_nodes(own_nodes, by_name, queued=False)
    state = str(queued["state"]["state"])
    names = _node_names(name, queued)
    if state in _WAITING:
        return Machine(State.REQUESTED, state, names, queued=True)
    if state == "ACTIVE":
        return _of_nodes(names, by_name, queued=True)
    if state == "SUSPENDED":
        return Machine(State.PREEMPTED, state, names, queued=True)
    if state in ("SUSPENDING", "DELETING"):
        return Machine(State.DELETING, state, names, queued=True)
    if state == "FAILED":
        error = queued["state"].get("failedData", {}).get("error", {})
        reason = " ".join(str(error.get("message", "no reason was given")).split())
        # A quota has code 8, but so does an exhausted zone, which is temporary.
        hopeless = error.get("code") in _HOPELESS_CODES or "quota" in reason.lower()
        return Machine(State.FAILED, f"FAILED: {reason}", names, queued=True, hopeless=hopeless)
    raise ValueError(f"{name}: its state, {state!r}, is unknown")


def _node_names(name: str, queued: Mapping[str, Any]) -> tuple[str, ...]:
    """The slices of a queued resource."""
    names: list[str] = []
    for spec in queued.get("tpu", {}).get("nodeSpec", ()):
        many = spec.get("multisliceParams") or spec.get("multiNodeParams")
        if many:
            prefix = many.get("nodeIdPrefix") or name
            names += [f"{prefix}-{number}" for number in range(int(many["nodeCount"]))]
        else:
            names.append(str(spec.get("nodeId") or name))
    return tuple(names) or (name,)


def _of_nodes(
    names: Sequence[str], by_name: Mapping[str, Mapping[str, Any]], *, queued: bool
) -> Machine:
    """A machine whose request was granted: its state is that of its worst node."""
    states = {
        node_name: str(by_name[node_name]["state"]) if node_name in by_name else "gone"
        for node_name in names
    }
    workers = sum(
        len(by_name[node_name].get("networkEndpoints", ())) or 1
        for node_name in names
        if node_name in by_name
    )

    def machine(state: State, which: set[str]) -> Machine:
        said = ", ".join(
            f"{node_name} is {each}" for node_name, each in states.items() if each in which
        )
        return Machine(state, said or "READY", tuple(names), workers, queued)

    found = set(states.values())
    if lost := found & (_LOST | {"gone"}):
        return machine(State.PREEMPTED, lost)
    if found & {"DELETING"}:
        return machine(State.DELETING, {"DELETING"})
    if halted := found & {"STOPPED", "STOPPING"}:
        return machine(State.STOPPED, halted)
    if coming := found & _COMING:
        return machine(State.REQUESTED, coming)
    if found == {"READY"}:
        return machine(State.ACTIVE, set())
    unknown = sorted(found - {"READY"})
    raise ValueError(f"the state of {', '.join(names)} is {unknown}, which is unknown")


def read_training(reports: Sequence[Report], workers: int, run: str, *, started: bool) -> Training:
    """Combines the workers' reports.

    Args:
      reports: one report for each worker that answered.
      workers: number of workers.
      run: the training run in question.
      started: whether this command has started it; one that failed earlier is started again.
    """
    if any(report.state == "running" and report.run != run for report in reports):
        return Training.OTHER
    if len(reports) < workers:
        return Training.UNKNOWN
    ended = [report for report in reports if report.state == "ended" and report.run == run]
    if len(ended) == len(reports) and all(report.status == "0" for report in ended):
        return Training.DONE
    if any(report.status != "0" for report in ended):
        return Training.FAILED if started else Training.ABSENT
    running = [report for report in reports if report.state == "running"]
    return Training.RUNNING if len(running) + len(ended) == len(reports) else Training.ABSENT


def next_action(
    goal: Goal, machine: Machine, training: Training, *, may_create: bool, failures: int
) -> tuple[Action, str]:
    """The action that brings a command nearer to its goal.

    Args:
      goal: the command's goal.
      machine: as just described.
      training: as the workers just reported, if the machine is active.
      may_create: whether the command knows what machine to request.
      failures: number of consecutive requests that Google has not granted.

    Returns:
      The action and, if it is giving up, the reason.
    """
    state = machine.state
    if goal is Goal.NOTHING:
        if state is State.NO_MACHINE:
            return Action.END, ""
        return (Action.WAIT if state is State.DELETING else Action.DELETE), ""
    if state in (State.REQUESTED, State.DELETING):
        return Action.WAIT, ""
    if state is State.STOPPED:
        return Action.GIVE_UP, f"{machine.said}: start it by hand, or delete it"
    if state is not State.ACTIVE and not may_create:
        return Action.GIVE_UP, f"{machine.said}; give the machine to request with --accelerator"
    if state is State.NO_MACHINE:
        return Action.CREATE, ""
    if state is State.PREEMPTED:
        return Action.DELETE, ""
    if state is State.FAILED:
        if machine.hopeless or failures >= MOST_FAILURES:
            return Action.GIVE_UP, machine.said
        return Action.DELETE, ""
    if goal is Goal.MACHINE:
        return Action.END, ""
    return {
        Training.UNKNOWN: (Action.ASK, ""),
        Training.ABSENT: (Action.START, ""),
        Training.RUNNING: (Action.WAIT, ""),
        Training.DONE: (Action.END, ""),
        Training.FAILED: (
            Action.GIVE_UP,
            "the training failed; the other workers were asked to stop",
        ),
        Training.OTHER: (
            Action.GIVE_UP,
            "another training is running there: see it with `status`, end it with `stop`",
        ),
    }[training]

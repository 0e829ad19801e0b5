"""What to do next with a machine, as a function of what Google and the workers say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tpu_states import (
    MOST_FAILURES,
    Action,
    Goal,
    Machine,
    Report,
    State,
    Training,
    next_action,
    read_machine,
    read_training,
)

SPEC = {"tpu": {"nodeSpec": [{"multisliceParams": {"nodeCount": "2", "nodeIdPrefix": "m"}}]}}


def queued(state: str, **more: Any) -> dict[str, Any]:
    return {"name": "a/b/m", "state": {"state": state, **more}, **SPEC}


def nodes(*states: str, queued_resource: str = "a/b/m") -> list[dict[str, Any]]:
    ends = [{"ipAddress": "10.0.0.1"}] * 3
    return [
        {"name": f"z/nodes/m-{n}", "state": each, "networkEndpoints": ends}
        | {"queuedResource": queued_resource}
        for n, each in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("request_state", "node_states", "state", "said"),
    [
        ("WAITING_FOR_RESOURCES", (), State.REQUESTED, "WAITING_FOR_RESOURCES"),
        ("ACTIVE", ("READY", "READY"), State.ACTIVE, "READY"),
        ("ACTIVE", ("READY", "CREATING"), State.REQUESTED, "m-1 is CREATING"),
        ("ACTIVE", ("READY", "REPAIRING"), State.REQUESTED, "m-1 is REPAIRING"),
        ("ACTIVE", ("READY", "PREEMPTED"), State.PREEMPTED, "m-1 is PREEMPTED"),
        ("ACTIVE", ("TERMINATED", "STOPPED"), State.PREEMPTED, "m-0 is TERMINATED"),
        ("ACTIVE", ("READY",), State.PREEMPTED, "m-1 is gone"),
        ("ACTIVE", ("READY", "STOPPED"), State.STOPPED, "m-1 is STOPPED"),
        ("ACTIVE", ("READY", "DELETING"), State.DELETING, "m-1 is DELETING"),
        ("SUSPENDING", ("READY", "READY"), State.DELETING, "SUSPENDING"),
        ("SUSPENDED", (), State.PREEMPTED, "SUSPENDED"),
        ("DELETING", (), State.DELETING, "DELETING"),
        ("FAILED", (), State.FAILED, "FAILED: no reason was given"),
    ],
)
def test_machines(
    request_state: str, node_states: tuple[str, ...], state: State, said: str
) -> None:
    found = read_machine("m", queued(request_state), nodes(*node_states))
    assert (found.state, found.said, found.queued) == (state, said, True)
    assert found.nodes == ("m-0", "m-1")
    if request_state == "ACTIVE":
        assert found.workers == 3 * len(node_states)


def test_nodes_without_a_request_are_a_machine_if_they_are_its_own() -> None:
    assert (
        read_machine("m", None, nodes("READY", queued_resource="a/b/x")).state is State.NO_MACHINE
    )
    left = read_machine("m", None, nodes("READY", "READY"))
    assert (left.state, left.nodes, left.queued) == (State.ACTIVE, ("m-0", "m-1"), False)
    own = read_machine("m-1", None, nodes("READY", "PREEMPTED", queued_resource=""))
    assert (own.state, own.nodes) == (State.PREEMPTED, ("m-1",))


@pytest.mark.parametrize(
    ("error", "hopeless"),
    [
        ({"code": 8, "message": "There is no more capacity"}, False),
        ({"code": 8, "message": "Quota exceeded"}, True),
        ({"code": 7, "message": "no"}, True),
        ({"code": 13, "message": "internal"}, False),
        ({}, False),
    ],
)
def test_what_asking_again_can_t_help(error: dict[str, Any], hopeless: bool) -> None:
    found = read_machine("m", queued("FAILED", failedData={"error": error}), [])
    assert found.hopeless is hopeless


@pytest.mark.parametrize(
    ("description", "node_list"),
    [
        ({}, []),
        ([], []),
        ({"state": "ACTIVE"}, []),
        (queued("NEVER_HEARD_OF"), []),
        (queued("ACTIVE"), nodes("READY", "NEVER_HEARD_OF")),
        (None, [{"state": "READY"}]),
    ],
)
def test_what_is_no_description_is_an_error(description: Any, node_list: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        read_machine("m", description, node_list)


def report(state: str, run: str = "r", status: str = "-") -> Report:
    return Report("w", state, run, status, "")


RUNNING, DONE, BAD = report("running"), report("ended", status="0"), report("ended", status="1")
ABSENT, OLD = report("absent", "-"), report("ended", "old", "0")


@pytest.mark.parametrize(
    ("reports", "started", "training"),
    [
        ([RUNNING, RUNNING], True, Training.RUNNING),
        ([RUNNING], True, Training.UNKNOWN),
        ([DONE, DONE], False, Training.DONE),
        ([DONE, RUNNING], True, Training.RUNNING),
        ([DONE, BAD], True, Training.FAILED),
        ([DONE, BAD], False, Training.ABSENT),
        ([RUNNING, BAD], True, Training.FAILED),
        ([RUNNING, ABSENT], True, Training.ABSENT),
        ([RUNNING, OLD], True, Training.ABSENT),
        ([OLD, OLD], False, Training.ABSENT),
        ([report("running", "other")], False, Training.OTHER),
        ([report("running", "other"), RUNNING], True, Training.OTHER),
        ([], True, Training.UNKNOWN),
    ],
)
def test_trainings(reports: list[Report], started: bool, training: Training) -> None:
    assert read_training(reports, 2, "r", started=started) is training


machines = st.builds(
    Machine,
    st.sampled_from(State),
    st.just("so it is"),
    st.just(("m",)),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
)


@given(st.sampled_from(Goal), machines, st.sampled_from(Training), st.booleans(), st.integers(0, 9))
def test_actions_cost_no_more_and_lose_no_more_than_they_must(
    goal: Goal, machine: Machine, training: Training, may_create: bool, failures: int
) -> None:
    action, why = next_action(goal, machine, training, may_create=may_create, failures=failures)
    state = machine.state
    if action is Action.CREATE:
        assert state is State.NO_MACHINE
        assert may_create
        assert goal is not Goal.NOTHING
    if action is Action.DELETE and goal is not Goal.NOTHING:
        assert state in (State.PREEMPTED, State.FAILED)
        assert may_create
        assert state is State.PREEMPTED or failures < MOST_FAILURES
    if action in (Action.START, Action.ASK):
        assert (goal, state) == (Goal.TRAINED, State.ACTIVE)
    if action is Action.END:
        wanted = State.NO_MACHINE if goal is Goal.NOTHING else State.ACTIVE
        assert state is wanted
        assert goal is not Goal.TRAINED or training is Training.DONE
    assert bool(why) == (action is Action.GIVE_UP)
    assert goal is not Goal.NOTHING or action is not Action.GIVE_UP

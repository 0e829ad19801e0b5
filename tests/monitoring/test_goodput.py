"""Where the time went, who keeps others waiting, and what is said in between."""

import io
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.monitoring.goodput import CAUSES, TimeAccount
from gophercite.monitoring.progress import Progress
from gophercite.monitoring.reminders import Reminders
from gophercite.monitoring.stragglers import input_waits, straggler

SECONDS = st.floats(0, 1e5, allow_nan=False)
OTHERS = st.sampled_from([cause for cause in CAUSES if cause != "lost"])


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 1e9

    def __call__(self) -> float:
        return self.seconds


@given(st.lists(st.lists(st.tuples(OTHERS, SECONDS, SECONDS), max_size=5), min_size=1, max_size=4))
def test_every_second_is_charged_once_over_any_number_of_starts(
    starts: list[list[tuple[str, float, float]]],
) -> None:
    """Each start does some things, of which a checkpoint keeps those before the last."""
    now = Now()
    kept, expected = None, dict.fromkeys(CAUSES, 0.0)
    for things in starts:
        account = TimeAccount(kept, now=now)
        for cause, seconds, nested in things:
            account.at(cause)  # type: ignore[arg-type]
            now.seconds += seconds
            with account.during("saving"):
                now.seconds += nested
            account.move(seconds / 4, "input")
            expected[cause] += seconds * 3 / 4
            expected["input"] += seconds / 4
            expected["saving"] += nested
            kept = account.to_json()
        assert sum(account.spent().values()) == pytest.approx(now.seconds - 1e9, abs=1e-3)
        # Killed: what it does until the next start is lost, and the time in between.
        now.seconds += 7
        if kept is None:
            now.seconds = 1e9  # nothing was kept: the run begins anew
        else:
            expected["lost"] += 7
    spent = TimeAccount(kept, now=now).spent()
    assert spent == pytest.approx({**expected, "starting": expected["starting"]}, abs=1e-2)
    whole = sum(spent.values())
    share = TimeAccount(kept, now=now).metrics()["time/goodput"]
    assert share == pytest.approx(expected["training"] / whole if whole else 0, abs=1e-6)


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    now = Now()
    account = TimeAccount(now=now)
    account.at("training")
    now.seconds += 10
    kept = account.to_json()
    now.seconds -= 100
    assert TimeAccount(kept, now=now).spent()["lost"] == 0
    account.at("saving")
    assert min(account.spent().values()) == 0


def test_the_table_has_the_largest_first() -> None:
    now = Now()
    account = TimeAccount(now=now)
    for cause, seconds in (("compiling", 20.0), ("training", 75.0), ("saving", 5.0)):
        account.at(cause)  # type: ignore[arg-type]
        now.seconds += seconds
    rows = account.table().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["training", "compiling", "saving"]
    assert rows[0].startswith("| training | 75 s | 75.0% |")


def test_the_one_that_keeps_the_others_waiting_is_named() -> None:
    assert input_waits(0.5) == {}  # one process keeps nobody waiting
    assert straggler({}, 1.0) is None
    assert straggler({0: 0.05, 1: 0.09}, 1.0) is None
    found = straggler({0: 0.05, 1: 0.0, 2: 0.4, 3: 0.1}, 1.5)
    assert found is not None
    assert found[0] == 2
    assert "process 2 waits 0.40 s of each 1.50 s step for its input" in found[1]
    assert "the others wait at most 0.10 s" in found[1]


def test_silence_is_broken_with_what_is_done_and_since_when() -> None:
    said, doing = io.StringIO(), ["compiling"]
    progress = Progress(said, 10)
    with Reminders(progress, lambda: doing[0], every=0.1):
        wait_for(lambda: said.getvalue().count("still busy with compiling after 0 s") >= 2)
        doing[0] = "saving step 3"
        wait_for(lambda: "still busy with saving step 3" in said.getvalue())
        # Who speaks is not reminded.
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            progress.step(3, {})
            time.sleep(0.01)
        count = said.getvalue().count("still busy with")
        progress.step(4, {})
        assert said.getvalue().count("still busy with") - count <= 1
    running = [thread.name for thread in threading.enumerate()]
    assert "reminders" not in running


def wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)

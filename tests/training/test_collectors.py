"""An environment between two device programs: its state is part of the run that is gone on with."""

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny_learner as tiny

from gophercite.learning.state import Collected
from gophercite.models.parameters import Params
from gophercite.monitoring.metrics import read_metrics
from gophercite.training.loop import Outcome, train
from gophercite.training.preemption import Preempted
from gophercite.training.settings import TrainSettings
from tests.long_forms import LONG

pytestmark = pytest.mark.usefixtures("compiled_once")

COUNTERS = 4
LEARNER = tiny.TinyLearner()


@dataclasses.dataclass
class Counting:
    """Environments that count: each by what policy, batch and draws say, on from where it was."""

    counts: list[int] = dataclasses.field(default_factory=lambda: [0] * COUNTERS)
    stop_in: int | None = None
    rehearsed: list[int] = dataclasses.field(default_factory=list)

    def collect(
        self, params: Params, batch: Any, key: Any, interrupted: Callable[[], bool]
    ) -> Collected | None:
        made, counts = self._acted(params, batch, key, self.counts)
        if self.stop_in is not None and max(counts) > self.stop_in:
            self.stop_in = None
            signal.raise_signal(signal.SIGTERM)
        if interrupted():
            return None
        self.counts = counts
        return made

    def rehearse(
        self, params: Params, batch: Any, key: Any, interrupted: Callable[[], bool]
    ) -> Collected | None:
        self.rehearsed.append(int(batch["start"][0]))
        return self._acted(params, batch, key, [0] * COUNTERS)[0]

    def environments(self) -> Any:
        return {"counts": self.counts}

    def resume(self, environments: Any) -> None:
        self.counts = [0] * COUNTERS if environments is None else environments["counts"]

    def _acted(
        self, params: Params, batch: Any, key: Any, counts: list[int]
    ) -> tuple[Collected, list[int]]:
        assert isinstance(batch["start"], np.ndarray), "a collector acts on the host"
        scale = float(np.asarray(params["final_norm"]["scale"], np.float32).mean())
        drawn = jax.random.randint(key, (COUNTERS,), 0, 50).tolist()
        start = int(batch["start"][0])
        counts = [
            count + each + start % 7 + round(1000 * scale) % 13
            for count, each in zip(counts, drawn, strict=True)
        ]
        rows = np.stack([tiny.batch(sum(counts[: row % 4 + 1]))["tokens"][row] for row in range(8)])
        experience = {
            "tokens": rows,
            "targets": (rows * 3 + 1) % tiny.VOCABULARY,
            "segments": np.ones_like(rows),
        }
        return Collected(experience, {"counted": (float(sum(counts)), 4.0)}), counts


def starts(start: int) -> Any:
    for number in range(start, 10**6):
        yield {"start": np.array([number])}


def run(folder: Path, collector: Counting, **changes: Any) -> Outcome:
    settings = TrainSettings(
        **{
            "model_dir": str(folder),
            "total_steps": 6,
            "batch_size": 1,
            "log_every": 1,
            "evaluate_every": 3,
            "save_every": 2,
            **changes,
        }
    )
    return train(
        settings,
        LEARNER,
        tiny.TinyInitialisation(),
        tiny.two_devices(),
        starts,
        {"held_out": lambda: iter([{"start": np.array([5])}, {"start": np.array([6])}])},
        collector=collector,
        quiet=True,
    )


def without_times(folder: Path) -> list[dict]:
    return [
        {name: value for name, value in line.items() if not name.startswith(("time/", "memory/"))}
        for line in read_metrics(folder)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome, Counting]:
    folder, collector = tmp_path_factory.mktemp("whole"), Counting()
    return folder, run(folder, collector), collector


def test_what_is_learnt_and_what_is_evaluated_is_experience(whole: Any) -> None:
    folder, _, collector = whole
    lines = without_times(folder)
    counted = [line["counted"] for line in lines if line["split"] == "train"]
    assert len(counted) == 6
    assert counted == sorted(counted), "the environments go on from step to step"
    evaluated = [line for line in lines if line["split"] == "held_out"]
    assert collector.rehearsed == [5, 6] * 3
    assert all(line["eval/held_out/counted"] > 0 for line in evaluated)
    assert evaluated[0]["eval/held_out/loss"] > evaluated[-1]["eval/held_out/loss"]
    assert any("time/collect" in line for line in read_metrics(folder))


# After step 2, as after 4, there is a save; so there is where the next test stops.
@pytest.mark.parametrize("stopped", [*(pytest.param(n, marks=LONG) for n in (2, 4)), 5])
def test_a_run_goes_on_bit_for_bit_with_its_environments(
    stopped: int, whole: Any, tmp_path: Path
) -> None:
    folder, outcome, collector = whole
    run(tmp_path, Counting(), total_steps=stopped)
    again = Counting()
    resumed = run(tmp_path, again)
    assert again.counts == collector.counts
    assert tiny.bits(resumed.state) == tiny.bits(outcome.state)
    wanted = [line for line in without_times(folder) if line["split"] == "train"]
    assert [line for line in without_times(tmp_path) if line["split"] == "train"] == wanted


def test_a_run_that_is_stopped_while_it_collects_saves_what_was_before(
    whole: Any, tmp_path: Path
) -> None:
    _, outcome, collector = whole
    with pytest.raises(Preempted, match="step 2"):
        run(tmp_path, Counting(stop_in=collector.counts[0] // 2))
    again = Counting()
    assert tiny.bits(run(tmp_path, again).state) == tiny.bits(outcome.state)
    assert again.counts == collector.counts

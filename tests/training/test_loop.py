"""The loop in one process: what it writes, when it stops, how it comes back."""

import dataclasses
import json
import math
import re
import signal
import socket
import time
from pathlib import Path

import jax
import pytest
import tiny_learner as tiny

from gophercite.model_folders.checkpoint_files import best_step, read_parameters, saved_steps
from gophercite.monitoring.metrics import read_metrics
from gophercite.monitoring.pending import NonFiniteLossError
from gophercite.training.early_stopping import EarlyStopping
from gophercite.training.loop import Outcome, train
from gophercite.training.preemption import Preempted
from gophercite.training.program import Program
from gophercite.training.settings import TrainSettings

pytestmark = pytest.mark.usefixtures("compiled_once")


LEARNER = tiny.TinyLearner()


def run(folder: Path, total_steps: int = 12, learner: tiny.TinyLearner = LEARNER, **changes):
    samples = changes.pop("samples", None)
    evaluations = changes.pop("evaluations", {"held_out": tiny.evaluation()})
    settings = TrainSettings(
        **{
            "model_dir": str(folder),
            "total_steps": total_steps,
            "batch_size": tiny.ROWS,
            "log_every": 2,
            "evaluate_every": 4,
            "save_every": 4,
            **changes,
        }
    )
    return train(
        settings,
        learner,
        tiny.TinyInitialisation(),
        tiny.two_devices(),
        tiny.batches(),
        evaluations,
        samples=samples,
        quiet=True,
    )


def without_times(folder: Path) -> list[dict]:
    return [
        {name: value for name, value in line.items() if not name.startswith(("time/", "memory/"))}
        for line in read_metrics(folder)
    ]


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("reference")
    return folder, run(folder, samples=lambda params, step: (f"answers at {step}\n", {}))


def test_a_run_learns_and_leaves_a_folder_that_tells_all(reference):
    folder, outcome = reference
    assert int(outcome.state.step) == 12
    losses = [m["eval/held_out/loss"] for m in read_metrics(folder) if m["split"] == "held_out"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert [m["step"] for m in read_metrics(folder) if m["split"] == "train"] == [
        1, 2, 4, 6, 8, 10, 12,
    ]  # fmt: skip
    perplexity = read_metrics(folder)[-1]["eval/held_out/perplexity"]
    assert perplexity == pytest.approx(math.exp(losses[-1]))
    assert (folder / "samples" / "step_8.md").read_text() == "answers at 8\n"
    assert "answers at 12" in (folder / "report.md").read_text()
    assert "jax" in json.loads((folder / "versions.json").read_text())["packages"]
    assert "trained_layers/kernel" in (folder / "parameters.txt").read_text()
    assert list(folder.glob("events.*"))
    for line in (m for m in read_metrics(folder) if m["split"] == "train"):
        share = line["time/input_wait"] / line["time/step"]
        assert line["time/input_wait_share"] == pytest.approx(share)
        assert line["step"] > 1 or line["time/input_wait"] == 0  # start-up is no step's


@pytest.fixture(scope="module")
def halves(tmp_path_factory) -> tuple[Path, Outcome, float]:
    """The same run in two starts, and the seconds that it took."""
    folder, began = tmp_path_factory.mktemp("halves"), time.time()
    run(folder, 6, samples=slow_answers)
    outcome = run(folder, 12, samples=slow_answers)  # from the checkpoint of the first
    return folder, outcome, time.time() - began


def test_stopping_and_going_on_changes_nothing(reference, halves):
    (folder, outcome), (halved, again, _) = reference, halves
    assert tiny.bits(again.state) == tiny.bits(outcome.state)
    # Step 6 was the first run's last, so it was evaluated there; else the files agree.
    lines = [m for m in without_times(halved) if not (m["step"] == 6 and m["split"] != "train")]
    assert lines == without_times(folder)


def test_a_run_says_where_its_time_went_over_all_its_starts(halves):
    folder, _, whole = halves
    last = [line for line in read_metrics(folder) if line["split"] == "train"][-1]
    spent = {name: value for name, value in last.items() if name.startswith("time/spent/")}
    assert 0 < sum(spent.values()) <= whole
    assert last["time/goodput"] == pytest.approx(last["time/spent/training"] / sum(spent.values()))
    assert last["time/spent/evaluating"] >= 3 * 0.05  # at 0, 4, 6 and 8; 12 comes after
    assert last["time/spent/compiling"] > 0
    assert last["time/spent/saving"] > 0
    assert 0 < last["time/step_p50"] <= last["time/step_p90"] <= last["time/step_p99"]
    assert last["memory/host_peak"] > 0.05
    assert "## Time spent" in (folder / "report.md").read_text()


def slow_answers(params, step):
    time.sleep(0.05)
    return f"answers at {step}\n", {}


def test_a_profiler_can_be_asked_while_a_run_goes_on(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    def answers(params, step):
        with socket.create_connection(("localhost", port), timeout=5):
            return f"answers at {step}\n", {}

    run(tmp_path / "run", 2, samples=answers, profiler_port=port)
    with pytest.raises(OSError, match=r"refused"):
        socket.create_connection(("localhost", port), timeout=5)
    with pytest.raises(ValueError, match=r"profiler_port = 70000"):
        run(tmp_path / "other", 2, profiler_port=70000)


def test_a_finished_run_is_left_as_it_is(reference):
    folder, outcome = reference
    kept = ["metrics.jsonl", "report.md"]
    before = [(folder / name).read_bytes() for name in kept]
    again = run(folder)
    assert tiny.bits(again.state) == tiny.bits(outcome.state)
    assert [(folder / name).read_bytes() for name in kept] == before


def test_the_run_folder_gives_its_best_parameters(reference):
    folder, outcome = reference
    assert best_step(folder) == 12
    params = read_parameters(folder, 12)
    assert tiny.bits(params) == tiny.bits(outcome.state.params)


def test_newest_and_best_checkpoints_stay(tmp_path):
    # Of a falling loss that ought to rise, the first value that is saved is the best.
    rule = EarlyStopping(("eval/held_out/loss",), patience=9, higher_is_better=True)
    run(tmp_path, 12, keep_newest=1, early_stopping=rule)
    assert saved_steps(tmp_path) == [4, 12]
    assert best_step(tmp_path) == 4


def test_a_run_told_to_stop_in_its_last_evaluation_is_not_over(reference, tmp_path):
    folder, _ = reference
    passes = []

    def told_to_stop():
        passes.append(None)
        if len(passes) == 4:  # after step 12
            signal.raise_signal(signal.SIGTERM)
        return tiny.evaluation()()

    with pytest.raises(Preempted, match="step 12 is saved"):
        run(tmp_path, evaluations={"held_out": told_to_stop})
    assert best_step(tmp_path) == 8
    run(tmp_path)
    assert best_step(tmp_path) == 12  # its score came after its checkpoint
    assert without_times(tmp_path) == without_times(folder)
    assert (tmp_path / "report.md").exists()


def test_early_stopping_ends_the_run_and_stays_ended(tmp_path):
    rule = EarlyStopping(metrics=("eval/held_out/loss",), patience=2, min_delta=100.0)
    outcome = run(tmp_path, early_stopping=rule)
    assert int(outcome.state.step) == 8  # 0 is the first value, 4 and 8 don't gain 100
    assert "eval/held_out/loss has not improved for 2 evaluations" in outcome.reason
    again = run(tmp_path, early_stopping=rule)
    assert int(again.state.step) == 8
    assert again.reason == outcome.reason
    with_more_patience = dataclasses.replace(rule, patience=3)
    assert int(run(tmp_path, early_stopping=with_more_patience).state.step) == 12


def test_a_run_that_is_never_within_its_limits_has_no_best_checkpoint(tmp_path):
    rule = EarlyStopping(("eval/held_out/loss",), limits={"eval/held_out/perplexity": 1.0})
    outcome = run(tmp_path, early_stopping=rule)
    assert "beyond its limit of 1" in outcome.reason
    assert best_step(tmp_path) is None
    said = "- best checkpoint: none, because no evaluated state is within the limits\n"
    assert said in (tmp_path / "report.md").read_text()


def test_a_loss_that_is_not_a_number_names_its_steps_and_is_never_saved(tmp_path):
    with pytest.raises(NonFiniteLossError, match=r"loss/total is nan in steps 7, 8"):
        run(tmp_path, learner=tiny.TinyLearner(poison_from=6))
    assert saved_steps(tmp_path) == [4]
    healed = run(tmp_path, 8)  # the same folder goes on from the good checkpoint
    assert int(healed.state.step) == 8


def test_a_metric_of_an_unknown_set_is_refused_before_the_start(tmp_path):
    rule = EarlyStopping(metrics=("eval/heldout/loss",))
    with pytest.raises(ValueError, match="eval/held_out/loss"):
        run(tmp_path, early_stopping=rule)
    assert not list(tmp_path.iterdir())


def test_nothing_compiles_after_the_first_step(tmp_path, monkeypatch):
    for name in ("compile_update", "compile_evaluate"):  # as without `compiled_once`
        monkeypatch.setattr(Program, name, getattr(Program, name).__wrapped__)
    compiled: list[str] = []

    def listen(name: str, seconds: float, **_: object) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(name)

    marks: dict[int, int] = {}

    def count(params: object, step: int) -> tuple[str, dict[str, float]]:
        marks[step] = len(compiled)
        return "", {}

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run(
            tmp_path,
            24,
            samples=lambda params, step: (str(marks.setdefault(step, len(compiled))), {}),
        )
    finally:
        jax._src.monitoring.unregister_event_duration_listener(listen)
    assert compiled
    assert marks[12] == marks[16] == marks[20] == marks[24]


@pytest.mark.parametrize("name", ["batch_size", "log_every", "profile_step"])
@pytest.mark.parametrize("value", [0, 2.5, True])
def test_what_is_counted_must_be_a_whole_number(name, value):
    counts = {"model_dir": "runs/here", "total_steps": 12, "batch_size": 4}
    with pytest.raises(ValueError, match=f"TrainSettings.{name} = {value!r}: must be a whole"):
        TrainSettings(**{**counts, name: value})


@pytest.mark.parametrize(
    "folder", ["", "foo://bucket/run", "https://example.com/run", "gs://", "gs:///run"]
)
def test_a_run_needs_a_folder(folder):
    said = f"TrainSettings.model_dir = {folder!r}: must be a folder on this machine or gs://"
    with pytest.raises(ValueError, match=re.escape(said)):
        TrainSettings(folder, 12, 4)


@pytest.mark.parametrize("folder", ["runs/a\0b", "runs/\udcff"])
def test_a_folder_that_checkpoints_can_t_be_in_is_refused_before_the_first_step(folder):
    said = f"TrainSettings.model_dir = {folder!r}: checkpoints need a name in UTF-8 without NUL"
    with pytest.raises(ValueError, match=re.escape(said)):
        TrainSettings(folder, 12, 4)


@pytest.mark.parametrize(("name", "least"), [("keep_newest", 1), ("keep_best", 0)])
@pytest.mark.parametrize("below", [1, 0.5])
def test_numbers_of_kept_checkpoints_are_checked(name, least, below):
    value = least - below
    said = f"TrainSettings.{name} = {value!r}: must be a whole number, at least {least}"
    with pytest.raises(ValueError, match=said):
        TrainSettings("runs/here", 12, 4, **{name: value})

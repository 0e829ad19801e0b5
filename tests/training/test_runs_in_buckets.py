"""A run in a bucket that fails now and then is the run that it would be on a disk."""

from collections.abc import Iterator

import pytest
import tiny_learner as tiny
from etils import epath
from google_storage import BUCKET, Storage, google_storage
from storage_faults import KINDS, Faults, Rule

from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.monitoring.metrics import MetricsWriter, read_metrics
from gophercite.storage import StorageError
from gophercite.training.loop import Outcome, TrainSettings, train
from gophercite.training.owner_mark import OwnerMark
from gophercite.training.run_folder import write_text
from gophercite.training.run_lock import Owner, RunInUseError

pytestmark = pytest.mark.usefixtures("compiled_once")

FAULTS = Faults(slow=0.05)
LEARNER = tiny.TinyLearner()
ME = Owner(7, "here", "2026-01-02T03:04:05+00:00")


@pytest.fixture(scope="module")
def server() -> Iterator[Storage]:
    with google_storage(FAULTS) as found:
        yield found


@pytest.fixture
def storage(server: Storage) -> Iterator[Storage]:
    FAULTS.forget()
    yield server
    FAULTS.rules = []
    FAULTS.rates = {}


def run(folder: object, steps: int = 4) -> Outcome:
    settings = TrainSettings(
        model_dir=str(folder), total_steps=steps, batch_size=tiny.ROWS, evaluate_every=2,
        save_every=2, log_every=2,
    )  # fmt: skip
    start = tiny.TinyInitialisation(frozen_layers=1)
    held_out = {"held_out": tiny.evaluation()}
    return train(
        settings,
        LEARNER,
        start,
        tiny.two_devices(),
        tiny.batches(),
        held_out,
        samples=lambda params, step: (f"answers at {step}\n", {}),
        quiet=True,
    )


def untimed(folder: object) -> list[dict[str, object]]:
    return [
        {name: value for name, value in line.items() if name.split("/")[0] in KEPT}
        for line in read_metrics(folder)
    ]


KEPT = ("step", "split", "loss", "eval")


def test_a_run_is_the_same_whatever_the_bucket_answers(storage: Storage, tmp_path) -> None:
    whole = run(tmp_path)
    folder = f"{BUCKET}/runs/tiny"
    FAULTS.rates = dict.fromkeys(("cut before", "slow", "lost"), 0.01)
    FAULTS.rules = [
        Rule("lost", "POST", "owner.json"),
        Rule("lost", "POST", "name=.*metrics|metrics.jsonl"),
        Rule("cut inside", "POST", "checkpoints/2/commit_success"),
        Rule("429", "POST", "checkpoints/4/"),
        Rule("lost", "DELETE", ""),
    ]
    run(folder, steps=2)
    broken = run(folder)
    assert tiny.bits(broken.state) == tiny.bits(whole.state)
    assert untimed(folder) == untimed(tmp_path)
    assert saved_steps(folder) == saved_steps(tmp_path)
    assert FAULTS.retries >= 5
    names = {name.removeprefix("runs/tiny/") for name in storage.names()}
    assert not {name for name in names if name.endswith((".new", ".partial", "owner.json"))}
    assert not {name for name in names if name.startswith(("unfinished", "damaged"))}
    samples = tmp_path / "samples" / "step_4.md"
    assert storage.read("runs/tiny/samples/step_4.md") == samples.read_bytes()
    assert b"all 4 steps are done" in storage.read("runs/tiny/report.md")


def mark(folder: str, say=print) -> OwnerMark:
    return OwnerMark(epath.Path(folder), ME, say, renewal=0.1, expiry=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_is_ones_own_though_its_answers_get_lost(storage: Storage, kind: str) -> None:
    folder = f"{BUCKET}/held"
    said: list[str] = []
    FAULTS.rules = [Rule(kind, "POST", "owner.json|uploadType"), Rule(kind, "DELETE")]
    held = mark(folder, said.append)
    assert not said  # nobody else's was seen
    held.confirm()
    held.release()
    assert FAULTS.injected[kind] == 2
    assert "held/owner.json" not in storage.names()


def test_a_bucket_that_refuses_is_no_other_command(storage: Storage) -> None:
    FAULTS.rules = [Rule("403", times=10**6)]
    said = rf"^{BUCKET}/x\S*: the bucket can't be used: .*no right to do this"
    for action in (
        lambda: mark(f"{BUCKET}/x"),
        lambda: run(f"{BUCKET}/x"),
        lambda: write_text(epath.Path(f"{BUCKET}/x"), {"versions.json": "{}"}),
        lambda: MetricsWriter(f"{BUCKET}/x", 0),
    ):
        with pytest.raises(StorageError, match=said) as refused:
            action()
        assert not isinstance(refused.value, RunInUseError)

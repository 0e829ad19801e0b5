"""launch/tpu.py ends when gcloud fails again and again for a reason that it does not know."""

import pathlib
from typing import Any

import gcloud
import pytest
import tpu
import tpu_flags
import tpu_pursuit
from tpu_pursuit import TRIES, GivenUpError, Pursuit
from tpu_states import Goal

ZONE = ["--zone=us-west4-a", "--poll=0"]
RUN = ["run", "run1", *ZONE, "--accelerator=v5e-1"]
TRAINING = ["--", "--gin_file=gin_configs/sft_sample_world.gin", "--gin.MODEL_DIR=gs://b/runs/a"]
FULL = gcloud.PassingError("gcloud … tpu-vm scp: No space left on device")
POLICY = gcloud.PassingError("gcloud … delete run1: the project's policy forbids this")
ABSENT = "gophercite-worker\th\tabsent\t-\t-\t\n"


class Cloud:
    """Answers in the place of gcloud: a machine, and what befalls each copy and deletion."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queued = True
        self.state = "ACTIVE"
        self.copies: list[bool] = []  # whether each is to fail
        self.deletions: list[bool] = []
        self.calls: list[str] = []
        monkeypatch.setattr(tpu_pursuit, "run_json", self.run_json)
        monkeypatch.setattr(tpu_pursuit, "run_gcloud", self.run)
        monkeypatch.setattr(tpu_pursuit, "run_all", lambda all_: [self.run_one(c) for c in all_])

    def run_json(self, command: gcloud.Command) -> Any:
        if "list" in command.words:
            return [{"name": "p/run1", "state": "READY"}] if self.queued else []
        if not self.queued:
            raise gcloud.MissingError("it was not found")
        return {"name": "p/run1", "state": {"state": self.state}}

    def run_one(self, command: gcloud.Command) -> str | gcloud.GcloudError:
        self.calls.append(" ".join(command.words[3:5]))
        if "scp" not in command.words:
            return ABSENT
        if len(self.copies) == 1:
            self.state = "SUSPENDED"  # preempted
        return FULL if self.copies.pop(0) else ""

    def run(self, command: gcloud.Command) -> str:
        self.calls.append(" ".join(command.words[3:5]))
        if "create" in command.words:
            self.queued, self.state, self.copies = True, "ACTIVE", [True] * 100
        elif self.deletions.pop(0):
            raise POLICY
        else:
            self.queued = False
        return ""

    def count(self, call: str) -> int:
        return sum(each.startswith(call) for each in self.calls)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    return Cloud(monkeypatch)


def train() -> None:
    flags = tpu_flags.parse([*RUN, *TRAINING])
    Pursuit(flags).reach(Goal.TRAINED, "abc", pathlib.Path("code.tar.gz"))


def test_a_start_that_fails_again_and_again_is_given_up(cloud: Cloud) -> None:
    cloud.copies = [True] * (TRIES - 1) + [False] + [True] * 100
    with pytest.raises(GivenUpError) as given_up:
        train()
    assert str(given_up.value) == f"{FULL} ({TRIES} times in a row)"
    assert cloud.count("tpu-vm scp") == 2 * TRIES  # a success in between starts the count anew


def test_another_machine_has_all_tries_again(cloud: Cloud) -> None:
    cloud.copies, cloud.deletions = [True] * (TRIES - 1), [False]
    with pytest.raises(GivenUpError):
        train()
    assert cloud.count("queued-resources create") == 1
    assert cloud.count("tpu-vm scp") == TRIES - 1 + TRIES


def test_a_deletion_that_fails_again_and_again_is_given_up(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.deletions = [True] * 100
    assert tpu.main(["delete", "run1", *ZONE]) == 1
    assert cloud.count("queued-resources delete") == TRIES
    *_, why, costs = capsys.readouterr().err.splitlines()
    assert why.endswith(f"run1: {POLICY} ({TRIES} times in a row)")
    assert "run1 is still there (active: READY) and costs money" in costs


def test_a_deletion_that_succeeds_at_last_ends_well(cloud: Cloud) -> None:
    cloud.deletions = [True] * (TRIES - 1) + [False]
    assert tpu.main(["delete", "run1", *ZONE]) == 0

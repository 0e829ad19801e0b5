"""launch/tpu.py against a gcloud that plays machines and workers.

The gcloud, the workers and their trainings are processes, and so is a command that a test does
something beside. A command that a test only waits for runs in the test's process.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import gcloud
import gin_files
import jobset
import pytest
import tpu
import tpu_flags
import tpu_pursuit
import workers_files

FAKE = pathlib.Path(__file__).with_name("fake_gcloud.py")
LAUNCH = pathlib.Path(tpu.__file__).parent
PATIENCE = 120  # seconds
ZONE = "--zone=us-west4-a"
MACHINE = ("--accelerator=v5e-16", "--spot")
TRAINING = ("--", "--gin_file=gin_configs/sft_sample_world.gin", "--gin.MODEL_DIR=gs://b/runs/a")
# What stands for training: it notes its start and its flags, and ends as it is told.
TRAIN = """
import json, os, pathlib, signal, sys, time
control, worker = pathlib.Path(os.environ["FAKE_GCLOUD"]) / "control", os.environ["FAKE_HOST"]
with (control / f"starts_{worker}").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
def told(*_):
    print("train: stopped on request: step 7 is saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, told)
print("step 7/60 \\x1b[31m of", worker, flush=True)
ends = [control / "finish", control / f"finish_{worker}"]
while not any(end.exists() for end in ends):
    time.sleep(0.02)
status = int(next(end for end in ends if end.exists()).read_text() or 0)
if status:
    print("train: loss/total is nan in step 8", flush=True)
sys.exit(status)
"""


class Cloud:
    """The pretended Google, and commands against it."""

    def __init__(self, root: pathlib.Path, code: pathlib.Path) -> None:
        self.root, self.code = root, code
        self.control = root / "control"
        self.control.mkdir()
        (root / "bin").mkdir()
        for name, text in (
            ("gcloud", f'#!/bin/sh\nexec {sys.executable} -I -S -B {FAKE} "$@"\n'),
            ("hostname", '#!/bin/sh\necho "$FAKE_HOST"\n'),
        ):
            (root / "bin" / name).write_text(text)
            (root / "bin" / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{root / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "FAKE_GCLOUD": str(root),
        }
        self.started: list[subprocess.Popen[str]] = []
        self.play()

    def play(self, **scenario: Any) -> None:
        states = [["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "SUSPENDING", "SUSPENDED"]]
        new = self.root / "scenario.new"  # it may be read at this very moment
        new.write_text(json.dumps({"states": states, **scenario}))
        new.replace(self.root / "scenario.json")

    def words(self, command: str, name: str, *rest: str) -> list[str]:
        more = [f"--code={self.code}"] if command == "run" else []
        return [command, name, ZONE, "--poll=0.1", *more, *rest]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        words = [sys.executable, tpu.__file__, *self.words(*arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(words, env=self.environment, text=True, **pipes)
        self.started.append(process)
        return process

    def run(self, *arguments: str) -> tuple[int, str, list[str]]:
        """Exit status, what it printed, and what it said, without the times of day."""
        out, said = io.StringIO(), io.StringIO()
        told = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"no end: {said.getvalue()}"))
        signal.alarm(PATIENCE)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("PATH", "FAKE_GCLOUD"):
                patch.setenv(name, self.environment[name])
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
                try:
                    status = tpu.main(self.words(*arguments))
                except SystemExit as end:  # of wrong usage
                    status = end.code
                finally:
                    signal.alarm(0)
                    signal.signal(signal.SIGTERM, told)
        return status, out.getvalue(), without_times(said.getvalue())

    def calls(self, command: str = "") -> list[list[str]]:
        path = self.root / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [call for call in found if " ".join(call[2:4]).startswith(command)]

    def there(self) -> set[str]:
        state = json.loads((self.root / "state.json").read_text())
        return {*state["queued"], *state["nodes"]}

    def starts(self) -> dict[str, list[list[str]]]:
        """The flags of each start of a training, by worker."""
        return {
            path.name.removeprefix("starts_"): [
                json.loads(line) for line in path.read_text().splitlines()
            ]
            for path in sorted(self.control.glob("starts_*"))
        }

    def until_started(self, times: int = 1, workers: int = 1) -> None:
        end = time.monotonic() + PATIENCE
        while [len(each) for each in self.starts().values()] != [times] * workers:
            if self.started[-1].poll() is not None or time.monotonic() > end:
                self.started[-1].kill()
                pytest.fail(f"{self.starts()} {self.started[-1].communicate()}")
            time.sleep(0.02)

    def end(self) -> None:
        """Ends what is left of commands and trainings."""
        for process in self.started:
            process.kill()
            process.wait()
        for path in self.root.glob("home/*/*/gophercite-run/pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.killpg(int(path.read_text()), signal.SIGKILL)


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, list[str]]:
    out, said = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in said, said
    return process.returncode, out, without_times(said)


def without_times(said: str) -> list[str]:
    return [line.split(": ", 1)[-1] for line in said.splitlines()]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A repository with our launcher and a training that only pretends."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "launch").mkdir()
    shutil.copy(LAUNCH / "keep_running.py", folder / "launch")
    shutil.copytree(LAUNCH.parent / "gin_configs", folder / "gin_configs")
    (folder / "launch" / "tpu_setup.sh").write_text("echo the environment is there\n")
    (folder / "launch" / "train.py").write_text(TRAIN)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "code"]):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture
def cloud(tmp_path: pathlib.Path, code: pathlib.Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, code)
    try:
        yield made
    finally:
        made.end()


def test_create_walks_from_no_machine_to_an_active_one_and_makes_no_second(cloud: Cloud) -> None:
    cloud.play(workers=4)
    status, _, said = cloud.run("create", "run1", *MACHINE, "--service-account=a@p-1.iam.b.com")
    assert status == 0
    assert said[:-1] == [
        "run1: no machine: it does not exist",
        "run1: asking for the machine",
        "run1: requested: WAITING_FOR_RESOURCES",
        "run1: requested: PROVISIONING",
        "run1: active: READY",
    ]
    assert "delete run1 --zone=us-west4-a" in said[-1]
    (call,) = cloud.calls("queued-resources create")
    assert call[4:] == [
        *("run1", ZONE, "--accelerator-type=v5litepod-16", "--runtime-version=v2-alpha-tpuv5-lite"),
        *("--node-id=run1", "--spot", "--service-account=a@p-1.iam.b.com", "--async", "--quiet"),
    ]
    assert cloud.run("create", "run1", *MACHINE)[0] == 0
    assert len(cloud.calls("queued-resources create")) == 1
    status, out, said = cloud.run("status", "run1")
    assert (status, said) == (0, ["run1: active: READY"])
    assert [line.split()[:2] for line in out.splitlines()] == [
        [f"run1-w-{number}:", "absent"] for number in range(4)
    ]


def test_a_preempted_run_is_made_anew_and_goes_on_until_it_is_done(cloud: Cloud) -> None:
    running = cloud.start("run", "run1", *MACHINE, "--slices=2", "--delete-when-done", *TRAINING)
    cloud.until_started(times=1, workers=2)
    for _ in range(2):  # one look is over then: it runs, so "absent" is said again later
        time_of_a_look(cloud)
    (cloud.control / "preempt_0").touch()
    cloud.until_started(times=2, workers=2)
    (cloud.control / "finish").touch()
    status, _, said = finish(running)
    assert status == 0, said
    ready = ["asking for the machine", "requested: WAITING_FOR_RESOURCES"]
    ready += ["requested: PROVISIONING", "active: READY", "training absent", "sending"]
    assert steps(said) == [
        *("no machine: it does not exist", *ready),
        *("being deleted: SUSPENDING", "preempted: SUSPENDED", "deleting it"),
        *("being deleted: DELETING", "no machine: it does not exist", *ready),
        *(
            "training done",
            "deleting it",
            "being deleted: DELETING",
            "no machine: it does not exist",
        ),
    ]
    assert said[-1] == "run1: no machine: it does not exist"
    assert len(cloud.calls("queued-resources create")) == 2
    assert "--node-count=2" in cloud.calls("queued-resources create")[0]
    assert cloud.there() == set()
    assert all(
        flags == ["--distributed", *TRAINING[1:]]
        for worker in cloud.starts().values()
        for flags in worker
    )


def steps(said: list[str]) -> list[str]:
    """What was said, once in a row, without what depends on when the workers were asked."""
    words = [line.removeprefix("run1: ").partition(" ·")[0] for line in said]
    words = ["sending" if line.startswith("sending") else line for line in words]
    passing = ("training unknown", "training running")
    words = [line for line in words if "gcloud …" not in line and line not in passing]
    return [line for line, before in zip(words, ["", *words], strict=False) if line != before]


def test_a_second_run_follows_the_first_training_and_starts_none_beside_it(cloud: Cloud) -> None:
    cloud.play(workers=2)
    first = cloud.start("run", "run1", *MACHINE, *TRAINING)
    cloud.until_started(workers=2)
    time_of_a_look(cloud)
    first.send_signal(signal.SIGINT)
    status, _, said = finish(first)
    assert status == 130
    assert said[-2:] == [
        "run1: interrupted. The training goes on.",
        "run1 is still there (active: READY) and costs money as long as it has machines; to "
        "remove it: python launch/tpu.py delete run1 --zone=us-west4-a",
    ]

    status, _, said = cloud.run("run", "run1", *TRAINING, "--gin.TRAIN_STEPS=7")
    assert status == 1
    assert "another training is running there" in said[-2]
    status, out, _ = cloud.run("logs", "run1", "--lines=3")
    assert status == 0
    assert {line for line in out.splitlines() if "step" in line} == {
        f"run1-w-{n}| step 7/60 [31m of run1-w-{n}" for n in (0, 1)
    }
    assert "\x1b" not in out

    second = cloud.start("run", "run1", *TRAINING)
    time_of_a_look(cloud)
    (cloud.control / "finish").touch()
    status, _, said = finish(second)
    assert status == 0
    assert "delete run1" in said[-1]
    assert [len(each) for each in cloud.starts().values()] == [1, 1]
    assert cloud.run("run", "run1", *TRAINING)[0] == 0  # done is done
    assert [len(each) for each in cloud.starts().values()] == [1, 1]


def time_of_a_look(cloud: Cloud) -> None:
    """Waits until the workers have been asked once more."""
    before, end = len(cloud.calls("tpu-vm ssh")), time.monotonic() + PATIENCE
    while len(cloud.calls("tpu-vm ssh")) < before + 2:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_stop_has_it_save_and_run_goes_on_later(cloud: Cloud) -> None:
    running = cloud.start("run", "run1", *MACHINE, *TRAINING)
    cloud.until_started()
    status, _, said = cloud.run("stop", "run1")
    assert status == 0, said
    assert said[1] == "run1: no training is running"
    status, _, said = finish(running)
    assert status == 1
    assert said[-2] == "run1: the training failed; the other workers were asked to stop"
    assert "ended with status 75" in said[-3]
    again = cloud.start("run", "run1", *TRAINING)
    cloud.until_started(times=2)
    (cloud.control / "finish").touch()
    assert finish(again)[0] == 0


def test_a_worker_that_is_told_to_stop_twice_waits_until_all_is_saved(
    tmp_path: pathlib.Path,
) -> None:
    launch, work = tmp_path / "launch", tmp_path / "home" / "gophercite-run"
    launch.mkdir()
    work.mkdir(parents=True)
    (work / "run").write_text("run1")
    (launch / "tpu_setup.sh").touch()
    (launch / "keep_running.py").write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: pathlib.Path('told').touch())\n"
        "pathlib.Path('started').touch()\n"
        "while not pathlib.Path('saved').exists(): time.sleep(0.02)\n"
        "sys.exit(75)\n"
    )
    shutil.make_archive(str(tmp_path / "home" / "code"), "gztar", tmp_path, "launch")
    worker = subprocess.Popen(
        ["bash", str(pathlib.Path(tpu.__file__).with_name("tpu_worker.sh")), "work", "code.tar.gz"],
        env=os.environ | {"HOME": str(tmp_path / "home")}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    code, end = tmp_path / "home" / "gophercite", time.monotonic() + PATIENCE
    for wanted in ("started", "told", "told"):
        while not (code / wanted).exists():
            assert time.monotonic() < end, wanted
            time.sleep(0.02)
        (code / "told").unlink(missing_ok=True)
        worker.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(0.5)
    assert worker.poll() is None, (work / "status").read_text()
    (code / "saved").touch()
    assert worker.wait(PATIENCE) == 0
    assert (work / "status").read_text() == "75\n"


def test_a_failed_training_is_reported_with_its_last_words(cloud: Cloud) -> None:
    (cloud.control / "finish").write_text("1")
    status, _, said = cloud.run("run", "run1", *MACHINE, "--delete-when-done", *TRAINING)
    assert status == 1
    assert "ended with status 1" in said[-3]
    assert said[-2] == "run1: the training failed; the other workers were asked to stop"
    assert "costs money" in said[-1]
    assert "loss/total is nan" in cloud.run("logs", "run1")[1]
    assert [len(each) for each in cloud.starts().values()] == [1]


def test_where_one_worker_has_failed_for_good_the_others_save_and_end(cloud: Cloud) -> None:
    """They would wait for it, at the price of the whole machine."""
    cloud.play(workers=2)
    running = cloud.start("run", "run1", *MACHINE, "--slices=2", *TRAINING)
    cloud.until_started(workers=4)
    (cloud.control / "finish_run1-1-w-0").write_text("1")
    status, _, said = finish(running)
    assert (status, said[-2]) == (
        1,
        "run1: the training failed; the other workers were asked to stop",
    )
    assert "run1-1-w-0" in said[-3]
    assert "ended with status 1" in said[-3]
    end = time.monotonic() + PATIENCE
    while True:
        _, out, _ = cloud.run("status", "run1")
        if "running" not in out:
            break
        assert time.monotonic() < end, out
    assert sorted(line.split(" (")[0] for line in out.splitlines()) == [
        "run1-0-w-0: ended with status 75",
        "run1-0-w-1: ended with status 75",
        "run1-1-w-0: ended with status 1",
        "run1-1-w-1: ended with status 75",
    ]


def test_a_machine_that_was_made_otherwise_is_used_and_deleted(cloud: Cloud) -> None:
    (cloud.root / "home" / "mine" / "0").mkdir(parents=True)
    nodes = {"mine": {"looks": 0, "queued": None}, "mine-2": {"looks": 0, "queued": None}}
    state = {"queued": {}, "nodes": nodes, "requests": 0}
    (cloud.root / "home" / "mine-2" / "0").mkdir(parents=True)
    (cloud.root / "state.json").write_text(json.dumps(state))
    (cloud.control / "finish").touch()
    assert cloud.run("run", "mine", *TRAINING)[0] == 0
    assert list(cloud.starts()) == ["mine-w-0"]
    status, _, said = cloud.run("delete", "mine")
    assert (status, said[-1]) == (0, "mine: no machine: it does not exist")
    assert cloud.there() == {"mine-2"}  # another's, though its name begins alike
    status, _, said = cloud.run("run", "mine", *TRAINING)
    assert (status, said[-1]) == (
        1,
        "mine: it does not exist; give the machine to request with --accelerator",
    )


def test_delete_waits_until_nothing_is_left(cloud: Cloud) -> None:
    assert cloud.run("delete", "run1")[0] == 0
    assert cloud.run("create", "run1", *MACHINE, "--slices=2")[0] == 0
    assert cloud.there() == {"run1", "run1-0", "run1-1"}
    status, _, said = cloud.run("delete", "run1")
    assert status == 0
    assert said[1:] == [
        "run1: deleting it",
        "run1: being deleted: DELETING",
        "run1: no machine: it does not exist",
    ]
    assert cloud.there() == set()
    assert len(cloud.calls("queued-resources delete")) == 1


def test_a_node_that_outlives_its_request_is_found_and_deleted(cloud: Cloud) -> None:
    cloud.play(left_behind=["run1-1"])
    assert cloud.run("create", "run1", *MACHINE, "--slices=2")[0] == 0
    status, _, said = cloud.run("delete", "run1")
    assert status == 0
    assert "run1: active: READY" in said[2:]
    assert [call[4] for call in cloud.calls("tpu-vm delete")] == ["run1-1"]
    assert cloud.there() == set()


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_request_names_what_may_cost_money(cloud: Cloud, told: int) -> None:
    cloud.play(states=[["WAITING_FOR_RESOURCES"]])
    waiting = cloud.start("create", "run1", *MACHINE)
    end = time.monotonic() + PATIENCE
    while len(cloud.calls("queued-resources describe")) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    waiting.send_signal(told)
    status, _, said = finish(waiting)
    assert status == 130
    assert said[-2] == "run1: interrupted."
    assert "(requested: WAITING_FOR_RESOURCES) and costs money" in said[-1]
    assert "delete run1 --zone=us-west4-a" in said[-1]


@pytest.mark.parametrize(
    ("hanging", "kind", "last"),
    [
        (
            "queued-resources create",
            "lost",
            "run1 is still there (requested) and costs money as long",
        ),
        ("queued-resources describe", "hang", "run1: interrupted."),
    ],
)
def test_an_interrupt_while_gcloud_hangs_says_what_may_have_been_made(
    cloud: Cloud, hanging: str, kind: str, last: str
) -> None:
    cloud.play(faults={hanging: [kind]})
    waiting = cloud.start("create", "run1", *MACHINE)
    end = time.monotonic() + PATIENCE
    while not (cloud.root / "hanging").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    waiting.send_signal(signal.SIGINT)
    status, _, said = finish(waiting)
    assert status == 130
    assert said[-1].startswith(last)
    assert not pathlib.Path("/proc", (cloud.root / "hanging").read_text()).exists()


@pytest.mark.parametrize(
    ("faults", "status", "message", "creations"),
    [
        ({"queued-resources create": ["quota"]}, 1, "Quota limit 'TPUV5' has been exceeded", 1),
        ({"queued-resources create": ["denied"]}, 1, "PERMISSION_DENIED: tpu.nodes.create", 1),
        ({"queued-resources create": ["exists"]}, 0, "ALREADY_EXISTS", 2),
        ({"queued-resources create": ["unavailable"]}, 0, "UNAVAILABLE: The service is", 2),
        ({"queued-resources create": ["lost"]}, 0, "create run1 has not answered in 4.5 s", 1),
        ({"queued-resources describe": ["malformed"] * 2}, 0, "its answer is not JSON", 1),
        (
            {"queued-resources describe": ["other"]},
            0,
            "description is not that of a TPU machine",
            1,
        ),
        ({"queued-resources describe": ["hang"]}, 0, "has not answered in 1.5 s", 1),
        ({"queued-resources describe": ["unavailable"] * 6}, 1, "(6 times in a row)", 0),
        ({"tpu-vm list": ["unavailable", "malformed"]}, 0, "trying again in", 1),
    ],
)
def test_what_gcloud_may_answer(
    cloud: Cloud, faults: dict[str, list[str]], status: int, message: str, creations: int
) -> None:
    cloud.play(faults=faults)
    slow = any(kind in ("hang", "lost") for kinds in faults.values() for kind in kinds)
    timeout = "--timeout=1.5" if slow else "--timeout=30"
    found, _, said = cloud.run("create", "run1", *MACHINE, timeout)
    assert found == status, said
    assert message in "\n".join(said)
    assert "\x1b" not in "".join(said)
    assert "\x07" not in "".join(said)
    assert len(cloud.calls("queued-resources create")) == creations
    hung = cloud.root / "hanging"
    assert hung.exists() == slow
    assert not slow or not pathlib.Path("/proc", hung.read_text()).exists()


def test_a_request_that_the_zone_can_t_fill_is_made_again_but_not_over_quota(cloud: Cloud) -> None:
    cloud.play(states=[["FAILED"], ["PROVISIONING", "FAILED"], ["PROVISIONING", "ACTIVE"]])
    status, _, said = cloud.run("create", "run1", *MACHINE)
    assert status == 0, said
    assert len(cloud.calls("queued-resources create")) == 3
    assert said.count("run1: failed: FAILED: There is no more capacity in the zone z") == 2

    assert cloud.run("delete", "run1")[0] == 0
    cloud.play(states=[["FAILED"]])
    status, _, said = cloud.run("create", "run1", *MACHINE)
    assert status == 1
    assert len(cloud.calls("queued-resources create")) == 3 + 4
    cloud.play(states=[["FAILED:quota"]])
    status, _, said = cloud.run("create", "run1", *MACHINE)
    assert (status, said[-2]) == (1, "run1: FAILED: over quota")
    assert len(cloud.calls("queued-resources create")) == 3 + 4


def test_a_node_that_is_lost_while_its_request_is_active_is_made_anew(cloud: Cloud) -> None:
    cloud.play(nodes={"run1": ["READY", "PREEMPTED"]})
    status, _, said = cloud.run("create", "run1", *MACHINE)
    assert status == 0
    (cloud.control / "finish").touch()
    cloud.play(nodes={"run1": ["PREEMPTED"]})
    running = cloud.start("run", "run1", *MACHINE, *TRAINING)
    end = time.monotonic() + PATIENCE
    while not cloud.calls("queued-resources delete"):
        assert time.monotonic() < end
        time.sleep(0.02)
    cloud.play()
    status, _, said = finish(running)
    assert status == 0, said
    assert "run1: preempted: run1 is PREEMPTED" in said


def test_workers_that_never_answer_end_the_waiting(cloud: Cloud) -> None:
    cloud.play(faults={"tpu-vm ssh": ["unavailable"] * 100})
    status, _, said = cloud.run("run", "run1", *MACHINE, *TRAINING)
    assert status == 1
    assert said[-2] == "run1: only 0 of 1 workers respond: none"
    assert "costs money" in said[-1]


HOSTILE = """gs://b/$(touch pwned)`touch pwned`'";touch pwned;#\n&& touch pwned"""


def test_flags_reach_the_training_as_they_were_typed(cloud: Cloud) -> None:
    (cloud.control / "finish").touch()
    flags = (*TRAINING[:2], f"--gin.MODEL_DIR={HOSTILE}", "--gin.TRAIN_STEPS=7")
    status, _, said = cloud.run("run", "run1", *MACHINE, *flags)
    assert status == 0, said
    assert cloud.starts() == {"run1-w-0": [["--distributed", *flags[1:]]]}
    assert not list(cloud.root.rglob("pwned"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run; rm -rf ~", *MACHINE], "NAME is 'run; rm -rf ~': must be lower-case letters"),
        (["$(id)", *MACHINE], "NAME is '$(id)'"),
        (["Run1", *MACHINE], "NAME is 'Run1'"),
        (["run1\n", *MACHINE], "NAME is 'run1\\n'"),
        (["a" * 51, *MACHINE], "at most 50"),
        (["run1", *MACHINE, "--project=--quiet"], "--project is '--quiet'"),
        (["run1", *MACHINE, "--service-account=a b@c.com"], "--service-account is"),
        (["run1", *MACHINE, "--network=-x"], "--network is '-x'"),
        (["run1", *MACHINE, "--ssh-flag=--ssh-flag=-o ProxyCommand=id"], "--ssh-flag is"),
        (["run1", *MACHINE, "--valid-until=1 week"], "--valid-until is '1 week'"),
        (["run1", "--accelerator=v9-8"], "'v9-8' is not an accelerator type"),
        (["run1", "--accelerator=v5e-12"], "slices of v5litepod have 1, 4, 8, 16"),
        (["run1", *MACHINE, "--reserved"], "not allowed with argument"),
        (["run1", *MACHINE, "--slices=0"], "--slices is 0"),
        (["run1", *MACHINE, "--poll=nan"], "--poll is nan"),
        (["run1"], "required: --accelerator"),
        (["run1", *MACHINE, *TRAINING], "only `run` accepts flags of a training"),
    ],
)
def test_what_google_would_not_take_is_refused_before_it_is_asked(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        tpu.main(["create", *arguments[:1], ZONE, *arguments[1:]])
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--slices=2", "--spot", "--network=lan", "--internal-ips"])
def test_what_is_asked_of_a_machine_that_is_there_already_is_refused(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        tpu.main(["run", "run1", ZONE, "--dry-run", flag, *TRAINING])
    assert refused.value.code == 2
    name = flag.partition("=")[0]
    assert f"{name} is for a machine that is created, and without --acc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ("(gcloud.compute) The required property [project] is not currently set.", False),
        ("(gcloud.compute) You do not currently have an active account selected.", False),
        ("(gcloud.compute) UNAVAILABLE: try again", True),
    ],
)
def test_only_what_may_pass_is_tried_again(said: str, again: bool) -> None:
    words = ("sh", "-c", 'echo "ERROR: $0" >&2; exit 1', said)
    with pytest.raises(gcloud.GcloudError) as found:
        gcloud.run(gcloud.Command(words, 60))
    assert isinstance(found.value, gcloud.PassingError) is again
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("training", "status", "message"),
    [
        ([], 2, "the flags of launch/train.py are missing; they go after --"),
        ([*TRAINING, "--process_id=0"], 2, "can't go to the workers"),
        ([*TRAINING[:2], "--gin.MODEL_DIR=runs/a"], 2, "must be in a bucket (gs://…)"),
        ([*TRAINING[:2], "--gin.MODEL_DIR=gs://"], 2, "must be in a bucket (gs://…)"),
        ([*TRAINING[:2], "--gin.MODEL_DIR='gs:///a'"], 2, "must be in a bucket (gs://…)"),
        ([*TRAINING, "--gin.TRAIN_STEP=5"], 1, "did you mean TRAIN_STEPS?"),
        (["--commit=nowhere", *TRAINING], 1, "--commit is 'nowhere'"),
        (["--commit=--output=x", *TRAINING], 2, "--commit is '--output=x'"),
    ],
)
def test_a_training_that_can_t_be_costs_no_machine(
    cloud: Cloud, training: list[str], status: int, message: str
) -> None:
    found, _, said = cloud.run("run", "run1", *MACHINE, *training)
    assert found == status
    assert message in "\n".join(said)
    assert cloud.calls() == []


def test_what_the_workers_would_not_have_costs_no_machine(
    cloud: Cloud, tmp_path: pathlib.Path
) -> None:
    """They get the commit, whatever is in the working copy."""
    own = tmp_path / "own.gin"
    own.write_text('include "gin_configs/sft_sample_world.gin"\n')
    model = f"--gin.INITIAL_CHECKPOINT={tmp_path}"
    here = (LAUNCH.parent / "gin_configs" / "sft_sample_world.gin").resolve()
    for training, message in (
        (("--", f"--gin_file={own}", TRAINING[-1]), f"{own} is not in commit "),
        ((*TRAINING, model), f"--gin.INITIAL_CHECKPOINT is {tmp_path}: this is on your machine"),
        (("--", f"--gin_file={here}", TRAINING[-1]), f"{here} is a path of your machine"),
    ):
        status, _, said = cloud.run("run", "run1", "--dry-run", *MACHINE, *training)
        assert status == 1
        assert message in "\n".join(said)
    changed = shutil.copytree(cloud.code, tmp_path / "changed")
    with (changed / "gin_configs" / "sft_sample_world.gin").open("a") as file:
        file.write("\n# of another commit\n")
    git = ["git", "-C", str(changed), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "-a", "-m", "changed"], check=True)
    cloud.code = changed
    status, _, said = cloud.run("run", "run1", *MACHINE, *TRAINING)
    assert status == 1
    assert "sft_sample_world.gin is not as in commit " in "\n".join(said)
    assert cloud.calls() == []


IN_REPOSITORY = {"gin_configs/sft_imported.gin": b"", "examples": b"", "notes.jsonl": b""}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        # In the gin file itself, in a list, and in a value within another.
        ("", "INITIAL_CHECKPOINT in gin_configs/sft_imported.gin:15 is models/smollm2: this is on"),
        ("DATA_DIR=['gs://b/a', 'examples', 'data/b']", "--gin.DATA_DIR is data/b"),
        ("DATA_DIR=data", "--gin.DATA_DIR is data"),
        (
            "add_rated_answers.files={'train': 'a.jsonl'}",
            "--gin.add_rated_answers.files is a.jsonl",
        ),
        ("DATA_DIR=../elsewhere/data", "--gin.DATA_DIR is ../elsewhere/data"),
        # In the repository, not here, and words that are no paths though there are such folders.
        ("DATA_DIR=examples", None),
        ("add_rated_answers.files={'train': 'notes.jsonl'}", None),
        ("DATA_DIR=gs://data/b", None),
        ("DATA_DIR=nowhere/b", None),
        ("add_rated_answers.name=data", None),
        ("EarlyStopping.metrics=('eval/validation/loss', 'out')", None),
    ],
)
def test_all_files_that_settings_name_are_looked_for_where_the_workers_have_them(
    settings: str, said: str | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (
        "here/models/smollm2",
        "here/data/b",
        "here/examples",
        "here/out",
        "elsewhere/data",
    ):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("a.jsonl", "notes.jsonl"):
        (tmp_path / "here" / file).touch()
    monkeypatch.chdir(tmp_path / "here")
    training = ["--gin_file=gin_configs/sft_imported.gin", "--gin.MODEL_DIR=gs://b/runs/a"]
    training += ["--gin.INITIAL_CHECKPOINT=gs://b/model", f"--gin.{settings}"] if settings else []
    training += [] if "DATA_DIR" in settings else ["--gin.DATA_DIR=gs://b/a"]

    def held(place: pathlib.PurePath) -> bytes | None:
        path = LAUNCH.parent / place
        return (
            path.read_bytes() if place.parts[0] == "gin_configs" else IN_REPOSITORY.get(str(place))
        )

    if said is None:
        workers_files.check(training, held, "it", "add it")
        return
    with pytest.raises(gin_files.ConfigurationError) as refused:
        workers_files.check(training, held, "it", "add it")
    assert said in str(refused.value)


@pytest.mark.parametrize("command", ["create", "run", "status", "logs", "stop", "delete"])
def test_a_dry_run_prints_commands_that_a_shell_takes_and_runs_none(
    cloud: Cloud, command: str
) -> None:
    flags = [*MACHINE, "--slices=2"] if command in ("create", "run") else []
    flags += ["--delete-when-done", *TRAINING] if command == "run" else []
    status, out, said = cloud.run(command, "run1", "--dry-run", *flags)
    assert (status, said, cloud.calls()) == (0, [], [])
    words = [shlex.split(line) for line in out.splitlines()]
    assert words[0] == [*gcloud.TPUS, "queued-resources", "describe", "run1", ZONE, "--format=json"]
    assert {each[0] for each in words} <= {"gcloud", "git", "cp"}
    if command == "run":
        (started, _) = [
            each for each in words if f"--command=bash {tpu_pursuit.ON_WORKER} start" in each[-1]
        ]
        inside = shlex.split(started[-1].removeprefix("--command="))
        assert inside[5:] == list(TRAINING[1:])


def test_without_gcloud_it_says_what_to_install(cloud: Cloud) -> None:
    cloud.environment["PATH"] = "/nowhere"
    status, _, said = cloud.run("status", "run1")
    assert status == 1
    assert said == [
        "run1: gcloud was not found on the path: install the Google Cloud CLI (docs/pods.md)"
    ]


def test_what_workers_say_can_t_command_the_terminal() -> None:
    """It may come from a machine that is no longer ours."""
    assert tpu_pursuit.printable("step\t7\n\x1b]0;x\x07\x9b\u202e") == "step\t7\n�]0;x���"
    line = "gophercite-worker\tw\x1b[2J\trunning\tr\t-\tsaid\n"
    (report,) = tpu_pursuit.read_reports("noise\ngophercite-worker\tshort\n" + line)
    assert (report.worker, report.line) == ("w�[2J", "said")


def test_the_commands_of_the_page_are_what_the_commands_take() -> None:
    """All of docs/pods.md that start with our programs; `…` stands for settings left out."""
    page = (LAUNCH.parent / "docs" / "pods.md").read_text("utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    lines += re.findall(r"^\| `(python launch/tpu\.py .*?)` \|", page, re.MULTILINE)
    seen = set()
    for line in lines:
        words = shlex.split(line.partition(" | ")[0].replace("=Z ", "=us-west4-a "), comments=True)
        words = [word.replace("=Z", "=us-west4-a") for word in words if word != "…"]
        if words[:2] == ["python", "launch/tpu.py"]:
            seen.add(tpu_flags.parse(words[2:]).command)
        elif words[:2] == ["python", "launch/jobset.py"]:
            assert "kind: JobSet" in jobset.manifest(jobset.parse(words[2:]))
            seen.add("jobset")
    assert seen == {"create", "run", "status", "logs", "stop", "delete", "jobset"}

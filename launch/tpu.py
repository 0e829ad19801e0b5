"""Makes TPU machines, trains on them, and removes them again; see launch/tpu_flags.py."""

import argparse
import hashlib
import json
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TypeVar

import gin_files
import setting_checks
import tpu_flags
import train
from gcloud import (
    Command,
    ExistsError,
    GcloudError,
    MissingError,
    PassingError,
    Place,
    run_all,
    run_json,
)
from gcloud import run as run_gcloud
from tpu_states import (
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

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORKER = "tpu_worker.sh"
ON_WORKER = "gophercite_worker.sh"  # in the home folder there
TRIES = 6  # of a command that fails for a reason that may pass
SILENT = 10  # looks in a row at workers that don't all answer, until it gives up
LONGEST_WAIT = 300.0  # seconds between two tries
_MARK = "gophercite-worker"
Result = TypeVar("Result")


class GivenUpError(RuntimeError):
    """The goal can't be reached; the message is one line."""


class Pursuit:
    """A command at work: what it last saw, and what it may have left that costs money."""

    def __init__(self, flags: argparse.Namespace) -> None:
        """Runs nothing yet."""
        self._flags = flags
        self._place = place_of(flags)
        self._asked = False  # for a machine, whether or not the answer came
        self._started = False
        self._failures = 0
        self._shown: dict[str, str] = {}
        self.machine: Machine | None = None
        self.reports: list[Report] = []

    # ------------------------------------------------------------------ looking
    def look(self) -> Machine:
        """Describes the machine."""

        def describe() -> Machine:
            try:
                queued = run_json(self._place.describe())
            except MissingError:
                queued = None
            needed = queued is None or queued.get("state", {}).get("state") == "ACTIVE"
            nodes = run_json(self._place.list_nodes()) if needed else []
            return read_machine(self._flags.name, queued, nodes)

        self.machine = self._patiently(describe)
        self._show(f"{self.machine.state.value}: {self.machine.said}", "machine")
        return self.machine

    def ask(self, run: str = "-") -> Training:
        """Asks the workers where their training stands."""
        machine = self.machine or self.look()
        # Before the first start there is no such file.
        script = f"if [ -e {ON_WORKER} ]; then bash {ON_WORKER} status; else {_nothing()}; fi"
        reports: list[Report] = []
        for node, result in self._on_nodes(machine, script):
            if isinstance(result, GcloudError):
                self._show(f"{node}: {result}", node)
                result = result.output
            reports += read_reports(result)
        self.reports = reports
        return read_training(self.reports, machine.workers, run, started=self._started)

    # ------------------------------------------------------------------- acting
    def reach(self, goal: Goal, run: str = "-", archive: pathlib.Path | None = None) -> None:
        """Does what is to be done until the goal is reached.

        Args:
          goal: what to reach.
          run: which training.
          archive: its code.

        Raises:
          GivenUpError, GcloudError: it can't be reached.
        """
        may_create = getattr(self._flags, "accelerator", None) is not None
        silent = 0
        while True:
            machine, training = self.look(), Training.UNKNOWN
            if machine.state is State.ACTIVE:
                self._failures = 0
                if goal is Goal.TRAINED:
                    training = self.ask(run)
                    self._show_training(training)
            action, why = next_action(
                goal, machine, training, may_create=may_create, failures=self._failures
            )
            silent = silent + 1 if action is Action.ASK else 0
            if action is Action.END:
                self._asked = self._asked and goal is not Goal.NOTHING
                return
            if action is Action.GIVE_UP and training is Training.FAILED:
                # Elsewhere it would wait for the one that failed, at the price of the machine.
                self._tell_to_stop(machine)
            if action is Action.GIVE_UP or silent > SILENT:
                raise GivenUpError(why or self._who_is_silent(machine))
            if action is Action.CREATE:
                self._create()
            elif action is Action.DELETE:
                self._failures += machine.state is State.FAILED
                self.delete(machine)
            elif action is Action.START and archive is not None:
                self._start(machine, run, archive)
            time.sleep(self._flags.poll)

    def _create(self) -> None:
        self._show("asking for the machine")
        self._asked = True
        try:
            run_gcloud(self._place.create(tpu_flags.creation(self._flags)))
        except (ExistsError, PassingError) as error:  # the next look says what came of it
            self._show(str(error))
            self._failures += isinstance(error, PassingError)
            if self._failures >= TRIES:
                raise

    def delete(self, machine: Machine) -> None:
        """Asks for the machine's removal."""
        self._show("deleting it")
        for command in self._place.delete(None if machine.queued else machine.nodes):
            try:
                run_gcloud(command)
            except MissingError:
                pass
            except PassingError as error:  # likewise
                self._show(str(error))

    def _start(self, machine: Machine, run: str, archive: pathlib.Path) -> None:
        """Sends the code and starts the training, on workers where it isn't running."""
        self._show(f"sending {archive.name} and starting the training on {machine.workers} workers")
        scripts = archive.with_name(ON_WORKER)
        copies = [self._place.copy(node, [str(archive), str(scripts)]) for node in machine.nodes]
        failed = [result for result in run_all(copies) if isinstance(result, GcloudError)]
        if not failed:
            script = shlex.join(start_words(run, archive.name, self._flags.training))
            results = [result for _, result in self._on_nodes(machine, script)]
            failed = [result for result in results if isinstance(result, GcloudError)]
            self._started = not failed
        for error in failed:
            if not isinstance(error, PassingError | MissingError):
                raise error
            self._show(str(error))

    def stop(self) -> None:
        """Has the training save and end, and waits for it."""
        machine = self.look()
        if machine.state is not State.ACTIVE:
            raise GivenUpError(f"nothing can be running: {machine.said}")
        if not self._tell_to_stop(machine):
            raise GivenUpError("not all workers could be told to stop")
        for _ in range(100):
            self.ask()
            if len(self.reports) >= machine.workers and not self._running():
                self._show("no training is running")
                return
            time.sleep(self._flags.poll)
        raise GivenUpError("the training has been told to stop, and is still at work")

    def _tell_to_stop(self, machine: Machine) -> bool:
        """Has all workers told, and returns whether that went well."""
        script = f"if [ -e {ON_WORKER} ]; then bash {ON_WORKER} stop; fi"
        results = self._on_nodes(machine, script)
        for node, result in results:
            if isinstance(result, GcloudError):
                self._show(f"{node}: {result}")
        return not any(isinstance(result, GcloudError) for _, result in results)

    def logs(self) -> bool:
        """Prints the end of each worker's log; returns whether all gave theirs."""
        machine = self.look()
        lines = shlex.join(["bash", ON_WORKER, "logs", str(self._flags.lines)])
        complete = bool(machine.nodes)
        for node, result in self._on_nodes(machine, lines):
            text = result.output if isinstance(result, GcloudError) else result
            print(printable(text), end="", flush=True)
            if isinstance(result, GcloudError):
                self._show(f"{node}: {result}")
                complete = False
        return complete

    # ------------------------------------------------------------------ showing
    def costs(self) -> str | None:
        """What costs money still, and how to remove it; None if nothing does."""
        machine = self.machine
        gone = machine is None or machine.state is State.NO_MACHINE
        if gone and not self._asked:
            return None
        seen = "asked for" if machine is None or gone else f"{machine.state.value}: {machine.said}"
        words = ["python", "launch/tpu.py", "delete", self._flags.name, *self._place.flags]
        return (
            f"{self._flags.name} is still there ({seen}) and costs money as long as it has "
            f"machines; to remove it: {shlex.join(words)}"
        )

    def _show(self, text: str, about: str | None = None) -> None:
        """Says it, unless it was the last that was said about this."""
        if about is None or self._shown.get(about) != text:
            say(f"{self._flags.name}: {text}")
        if about is not None:
            self._shown[about] = text

    def _show_training(self, training: Training) -> None:
        # The first worker's line stands for all, but for one that failed.
        chosen = next((each for each in self.reports if each.status not in ("-", "0")), None)
        chosen = chosen or (self.reports[0] if self.reports else None)
        line = f" · {chosen.worker}: {chosen.line}" if chosen else ""
        self._show(f"training {training.value}{line}", "training")

    def _who_is_silent(self, machine: Machine) -> str:
        answered = ", ".join(sorted(report.worker for report in self.reports)) or "none"
        return f"only {len(self.reports)} of {machine.workers} workers answer: {answered}"

    def _running(self) -> bool:
        return any(report.state == "running" for report in self.reports)

    def _on_nodes(self, machine: Machine, script: str) -> list[tuple[str, str | GcloudError]]:
        commands = [self._place.shell(node, script) for node in machine.nodes]
        return list(zip(machine.nodes, run_all(commands), strict=True))

    def _patiently(self, action: Callable[[], Result]) -> Result:
        """Tries again, ever more slowly, what fails for a reason that may pass."""
        for number in range(1, TRIES + 1):
            try:
                return action()
            except (PassingError, KeyError, TypeError, ValueError, AttributeError) as error:
                if number == TRIES:
                    raise GivenUpError(f"{_words(error)} ({TRIES} times in a row)") from error
                wait = min(max(self._flags.poll, 1e-3) * 2**number / 4, LONGEST_WAIT)
                self._show(f"{_words(error)}; trying again in {wait:.3g} s ({number} of {TRIES})")
                time.sleep(wait)
        raise AssertionError


def _words(error: Exception) -> str:
    if isinstance(error, GcloudError) or type(error) is ValueError:
        return str(error)
    return f"gcloud describes what is no TPU machine ({error!r})"


def _nothing() -> str:
    """A shell's command for the report of a worker that was never started."""
    return f"printf '{_MARK}\\t%s\\tabsent\\t-\\t-\\t\\n' \"$(hostname)\""


def read_reports(text: str) -> list[Report]:
    """The workers' reports among what ssh prints."""
    reports = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 6 and fields[0] == _MARK:
            reports.append(Report(*map(printable, fields[1:])))
    return reports


def printable(text: str) -> str:
    """A worker's text without what a terminal would obey."""
    return "".join(each if each.isprintable() or each in "\n\t" else "�" for each in text)


def start_words(run: str, archive: str, training: Sequence[str]) -> list[str]:
    """What starts a training on a worker."""
    return ["bash", ON_WORKER, "start", run, archive, *training]


def place_of(flags: argparse.Namespace) -> Place:
    """Where a command's machine is."""
    return Place(flags.name, flags.zone, flags.project, tuple(flags.ssh_flag), flags.timeout)


def say(text: str) -> None:
    """Prints a line for people, with the time of day."""
    print(f"tpu {time.strftime('%H:%M:%S')}: {text}", file=sys.stderr, flush=True)


def commit_of(flags: argparse.Namespace) -> tuple[pathlib.Path, str]:
    """The checkout to send and the full name of its commit.

    Raises:
      GivenUpError: there is no such commit.
    """
    code = pathlib.Path(flags.code) if flags.code else ROOT
    words = ["git", "-C", str(code), "rev-parse", "--verify", "--quiet", "--end-of-options"]
    found = subprocess.run(
        [*words, f"{flags.commit}^{{commit}}"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise GivenUpError(f"--commit is {flags.commit!r}: {code} has no such commit")
    return code, found.stdout.strip()


def archive_command(code: pathlib.Path, commit: str, archive: pathlib.Path) -> list[str]:
    """Packs a commit."""
    words = ["git", "-C", str(code), "archive", "--format=tar.gz"]
    return [*words, f"--output={archive}", commit]


def name_of_run(commit: str, training: Sequence[str]) -> str:
    """Which training this is: the same code and flags have the same name."""
    return hashlib.sha256(json.dumps([commit, *training]).encode()).hexdigest()[:12]


def train_on(pursuit: Pursuit, flags: argparse.Namespace) -> None:
    """Trains, with the code packed into a folder that is gone in the end."""
    code, commit = commit_of(flags)
    run = name_of_run(commit, flags.training)
    with tempfile.TemporaryDirectory(prefix="gophercite-") as folder:
        archive = pathlib.Path(folder) / f"gophercite-{commit[:12]}.tar.gz"
        subprocess.run(archive_command(code, commit, archive), check=True)
        worker = (ROOT / "launch" / WORKER).read_bytes()
        archive.with_name(ON_WORKER).write_bytes(worker)
        pursuit.reach(Goal.TRAINED, run, archive)
    if flags.delete_when_done:
        pursuit.reach(Goal.NOTHING)


def dry_run(flags: argparse.Namespace) -> list[Command | str]:
    """The commands of a smooth run, from no machine on."""
    place = place_of(flags)
    nodes = [flags.name]
    if getattr(flags, "slices", 1) > 1:
        nodes = [f"{flags.name}-{number}" for number in range(flags.slices)]
    look: list[Command | str] = [place.describe(), place.list_nodes()]
    if flags.command == "delete":
        return [*look, *place.delete(None), *look]
    if flags.command in ("status", "logs", "stop"):
        words = ["bash", ON_WORKER, flags.command]
        words += [str(flags.lines)] if flags.command == "logs" else []
        return [*look, *(place.shell(node, shlex.join(words)) for node in nodes)]
    commands = list(look)
    if flags.accelerator is not None:
        commands += [place.create(tpu_flags.creation(flags)), *look]
    if flags.command == "run":
        code, commit = commit_of(flags)
        archive = pathlib.Path(f"gophercite-{commit[:12]}.tar.gz")
        start = start_words(name_of_run(commit, flags.training), archive.name, flags.training)
        commands.append(shlex.join(archive_command(code, commit, archive.absolute())))
        commands.append(shlex.join(["cp", str(ROOT / "launch" / WORKER), ON_WORKER]))
        commands += [place.copy(node, [str(archive), ON_WORKER]) for node in nodes]
        commands += [place.shell(node, shlex.join(start)) for node in nodes]
        commands += [place.shell(node, f"bash {ON_WORKER} status") for node in nodes]
        commands += [*place.delete(None), *look] if flags.delete_when_done else []
    return commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = tpu_flags.parse(arguments)
    pursuit = Pursuit(flags)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if flags.command == "run":  # before anything costs money
            settings, bindings = train.parse(flags.training)
            setting_checks.check(settings.gin_file, bindings, settings.gin_search_paths)
        if flags.dry_run:
            for command in dry_run(flags):
                print(command)
            return 0
        return _do(pursuit, flags)
    except (GivenUpError, GcloudError, gin_files.ConfigurationError, OSError) as error:
        say(f"{flags.name}: {error}")
        _say_costs(pursuit)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        running = " The training goes on." if pursuit._running() else ""
        say(f"{flags.name}: interrupted.{running}")
        _say_costs(pursuit)
        return 130


def _do(pursuit: Pursuit, flags: argparse.Namespace) -> int:
    if flags.command == "create":
        pursuit.reach(Goal.MACHINE)
    elif flags.command == "run":
        train_on(pursuit, flags)
    elif flags.command == "stop":
        pursuit.stop()
    elif flags.command == "logs":
        return 0 if pursuit.logs() else 1
    elif flags.command == "delete":
        pursuit.reach(Goal.NOTHING)
    elif pursuit.look().state is State.ACTIVE:
        pursuit.ask()
        for report in pursuit.reports:
            ended = f" with status {report.status}" if report.status != "-" else ""
            print(f"{report.worker}: {report.state}{ended} ({report.run}) {report.line}")
    if flags.command in ("create", "run", "stop"):
        _say_costs(pursuit)
    return 0


def _say_costs(pursuit: Pursuit) -> None:
    left = pursuit.costs()
    if left is not None:
        say(left)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

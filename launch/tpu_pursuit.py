"""What launch/tpu.py does with a machine: looks, acts as `tpu_states` decides, and looks again."""

import argparse
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import tpu_flags
from gcloud import ExistsError, GcloudError, MissingError, PassingError, Place, run_all, run_json
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

ON_WORKER = "gophercite_worker.sh"  # in the home folder there
TRIES = 6  # for a command that fails for a temporary reason
SILENT = 10  # consecutive looks without an answer from all workers, after which it gives up
LONGEST_WAIT = 300.0  # seconds between two tries
_MARK = "gophercite-worker"
Result = TypeVar("Result")


class GivenUpError(RuntimeError):
    """The goal can't be reached; the message is one line."""


class Pursuit:
    """A running command: what it last saw, and what it may have left that costs money."""

    def __init__(self, flags: argparse.Namespace) -> None:
        """Stores the flags; runs nothing yet."""
        self._flags = flags
        self._place = place_of(flags)
        self._asked = False  # requested a machine, whether or not the answer arrived
        self._started = False
        self._failures = 0
        self._failed_starts = 0  # in a row, on the same machine
        self._failed_deletions = 0  # in a row
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
        """Asks the workers for the state of their training runs."""
        machine = self.machine or self.look()
        # Before the first start the file does not exist.
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
        """Acts until the goal is reached.

        Args:
          goal: the goal.
          run: which training run.
          archive: its code.

        Raises:
          GivenUpError, GcloudError: the goal can't be reached.
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
                # On other workers it would wait for the failed one, while the machine costs money.
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
        self._failed_starts = 0
        try:
            run_gcloud(self._place.create(tpu_flags.creation(self._flags)))
        except (ExistsError, PassingError) as error:  # the next look shows the result
            self._show(str(error))
            self._failures += isinstance(error, PassingError)
            if self._failures >= TRIES:
                raise

    def delete(self, machine: Machine) -> None:
        """Requests the machine's removal.

        Raises:
          GivenUpError: it has failed several times in a row.
          GcloudError: it would fail again.
        """
        self._show("deleting it")
        failed: list[GcloudError] = []
        for command in self._place.delete(None if machine.queued else machine.nodes):
            try:
                run_gcloud(command)
            except MissingError:
                pass
            except PassingError as error:  # as above
                self._show(str(error))
                failed.append(error)
        self._failed_deletions = self._failed_deletions + 1 if failed else 0
        _refuse_more(self._failed_deletions, failed)

    def _start(self, machine: Machine, run: str, archive: pathlib.Path) -> None:
        """Copies the code and starts the training on workers where it isn't running."""
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
        self._failed_starts = self._failed_starts + 1 if failed else 0
        _refuse_more(self._failed_starts, failed)

    def stop(self) -> None:
        """Tells the training run to save and end, and waits for it."""
        machine = self.look()
        if machine.state is not State.ACTIVE:
            raise GivenUpError(f"no training can be running: {machine.said}")
        if not self._tell_to_stop(machine):
            raise GivenUpError("not all workers could be asked to stop")
        for _ in range(100):
            self.ask()
            if len(self.reports) >= machine.workers and not self.running():
                self._show("no training is running")
                return
            time.sleep(self._flags.poll)
        raise GivenUpError("the training was asked to stop, but is still running")

    def _tell_to_stop(self, machine: Machine) -> bool:
        """Tells all workers to stop, and returns whether that succeeded."""
        script = f"if [ -e {ON_WORKER} ]; then bash {ON_WORKER} stop; fi"
        results = self._on_nodes(machine, script)
        for node, result in results:
            if isinstance(result, GcloudError):
                self._show(f"{node}: {result}")
        return not any(isinstance(result, GcloudError) for _, result in results)

    def logs(self) -> bool:
        """Prints the end of each worker's log; returns whether all of them answered."""
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
        """What still costs money, and how to remove it; None if nothing does."""
        machine = self.machine
        gone = machine is None or machine.state is State.NO_MACHINE
        if gone and not self._asked:
            return None
        state = "requested" if machine is None or gone else f"{machine.state.value}: {machine.said}"
        words = ["python", "launch/tpu.py", "delete", self._flags.name, *self._place.flags]
        return (
            f"{self._flags.name} is still there ({state}) and costs money as long as it has "
            f"machines; to remove it: {shlex.join(words)}"
        )

    def _show(self, text: str, about: str | None = None) -> None:
        """Prints a text, unless it was the last one printed about the same subject."""
        if about is None or self._shown.get(about) != text:
            say(f"{self._flags.name}: {text}")
        if about is not None:
            self._shown[about] = text

    def _show_training(self, training: Training) -> None:
        # The first worker's line stands for all, unless one has failed.
        chosen = next((each for each in self.reports if each.status not in ("-", "0")), None)
        chosen = chosen or (self.reports[0] if self.reports else None)
        line = f" · {chosen.worker}: {chosen.line}" if chosen else ""
        self._show(f"training {training.value}{line}", "training")

    def _who_is_silent(self, machine: Machine) -> str:
        answered = ", ".join(sorted(report.worker for report in self.reports)) or "none"
        return f"only {len(self.reports)} of {machine.workers} workers respond: {answered}"

    def running(self) -> bool:
        """Whether any worker was running the training when last asked."""
        return any(report.state == "running" for report in self.reports)

    def _on_nodes(self, machine: Machine, script: str) -> list[tuple[str, str | GcloudError]]:
        commands = [self._place.shell(node, script) for node in machine.nodes]
        return list(zip(machine.nodes, run_all(commands), strict=True))

    def _patiently(self, action: Callable[[], Result]) -> Result:
        """Retries an action that fails for a temporary reason, with growing waits."""
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


def _refuse_more(failures: int, errors: Sequence[GcloudError]) -> None:
    """Raises GivenUpError if a command has failed too often in a row, at last with these errors."""
    if failures >= TRIES:
        raise GivenUpError(f"{errors[0]} ({TRIES} times in a row)") from errors[0]


def _words(error: Exception) -> str:
    if isinstance(error, GcloudError) or type(error) is ValueError:
        return str(error)
    return f"gcloud's description is not that of a TPU machine ({error!r})"


def _nothing() -> str:
    """A shell command that prints the report of a worker that was never started."""
    return f"printf '{_MARK}\\t%s\\tabsent\\t-\\t-\\t\\n' \"$(hostname)\""


def read_reports(text: str) -> list[Report]:
    """Extracts the workers' reports from the output of ssh."""
    reports = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 6 and fields[0] == _MARK:
            reports.append(Report(*map(printable, fields[1:])))
    return reports


def printable(text: str) -> str:
    """A worker's text without terminal control characters."""
    return "".join(each if each.isprintable() or each in "\n\t" else "�" for each in text)


def start_words(run: str, archive: str, training: Sequence[str]) -> list[str]:
    """The command that starts training on a worker."""
    return ["bash", ON_WORKER, "start", run, archive, *training]


def place_of(flags: argparse.Namespace) -> Place:
    """The place of a command's machine."""
    return Place(flags.name, flags.zone, flags.project, tuple(flags.ssh_flag), flags.timeout)


def say(text: str) -> None:
    """Prints a line with the time of day."""
    print(f"tpu {time.strftime('%H:%M:%S')}: {text}", file=sys.stderr, flush=True)

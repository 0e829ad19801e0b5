"""Runs `gcloud` commands for TPUs, with a time limit for each, and classifies their errors."""

import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

TPUS = ("gcloud", "compute", "tpus")
# How long commands may take, as multiples of a look. Creating and deleting only send a request.
_CHANGE, _COPY, _SHELL = 3, 15, 3


class GcloudError(RuntimeError):
    """A command failed and would fail again; the message is one line.

    Attributes:
      output: what it had printed until then.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class PassingError(GcloudError):
    """A command failed for a temporary reason: no answer, no network, an overloaded service."""


class MissingError(GcloudError):
    """The resource does not exist."""


class ExistsError(GcloudError):
    """The resource already exists."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and its time limit.

    Attributes:
      words: program and arguments, run without a shell.
      seconds: time after which it counts as hung.
    """

    words: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.words)


_SIDE_BY_SIDE = 16
_KINDS: tuple[tuple[str, type[GcloudError]], ...] = (
    (r"per minute|RATE_LIMIT_EXCEEDED|UNAVAILABLE", PassingError),
    (r"ALREADY_EXISTS|already exists", ExistsError),
    (r"NOT_FOUND|was not found|could not be found", MissingError),
    (r"PERMISSION_DENIED|does not have permission|UNAUTHENTICATED|gcloud auth login", GcloudError),
    (r"RESOURCE_EXHAUSTED|[Qq]uota|INVALID_ARGUMENT|FAILED_PRECONDITION", GcloudError),
    (r"unrecognized arguments|Invalid (value|choice)|must be specified|API has not", GcloudError),
    (r"required property|active account", GcloudError),  # no project or no account is chosen
)


def run(command: Command) -> str:
    """Runs a command and returns what it prints.

    Raises:
      PassingError: it failed or hung, and may succeed next time.
      MissingError, ExistsError: the command reports this.
      GcloudError: any other failure.
    """
    (result,) = run_all([command])
    if isinstance(result, GcloudError):
        raise result
    return result


def run_all(commands: Sequence[Command]) -> list[str | GcloudError]:
    """Runs commands in parallel and returns what each prints, or why it failed."""
    results: list[str | GcloudError] = []
    for first in range(0, len(commands), _SIDE_BY_SIDE):
        with contextlib.ExitStack() as ends:
            batch = commands[first : first + _SIDE_BY_SIDE]
            started = [_Started(command, ends) for command in batch]
            results += [each.result() for each in started]
    return results


class _Started:
    """A running command."""

    def __init__(self, command: Command, ends: contextlib.ExitStack) -> None:
        """Starts it.

        Args:
          command: the command.
          ends: ends the command on exit, in any case.
        """
        self._command = command
        self._out = ends.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._said = ends.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._until = time.monotonic() + command.seconds
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(FileNotFoundError):
            # In a separate session: we handle Ctrl-C, and everything that the command starts
            # ends with it.
            self._process = subprocess.Popen(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._said,
                start_new_session=True,
            )
            ends.callback(self._end)

    def result(self) -> str | GcloudError:
        """Waits for it."""
        if self._process is None:
            return GcloudError(
                f"{self._command.words[0]} was not found on the path: install the Google Cloud "
                "CLI (docs/pods.md)"
            )
        try:
            status = self._process.wait(max(self._until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            message = f"{_short(self._command)} has not answered in {self._command.seconds:g} s"
            return PassingError(message, _text(self._out))
        text = _text(self._said)
        if status == 0:
            return _text(self._out)
        message = f"{_short(self._command)}: {_reason(text) or f'exit status {status}'}"
        kind = next((kind for pattern, kind in _KINDS if re.search(pattern, text)), PassingError)
        return kind(message, _text(self._out))

    def _end(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def run_json(command: Command) -> Any:
    """Runs a command that prints JSON and returns its value.

    Raises:
      GcloudError: see `run`; or what is printed is not JSON.
    """
    text = run(command)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PassingError(f"{_short(command)}: its answer is not JSON: {text[:60]!r}") from error


def _short(command: Command) -> str:
    """What a command does: its words up to the first flag."""
    words = command.words[len(TPUS) :] if command.words[: len(TPUS)] == TPUS else command.words
    flags = [number for number, word in enumerate(words) if word.startswith("--")]
    return "gcloud … " + " ".join(words[: flags[0] if flags else None])


def _reason(text: str) -> str:
    """The most informative line of an error, without terminal control characters."""
    lines = [re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if "ERROR" in line]
    return (errors or lines or [""])[0][:400]


@dataclasses.dataclass(frozen=True)
class Place:
    """Which machine, and where.

    Attributes:
      name: of the queued resource, and of its only node or the prefix of its nodes' names.
      zone: Google's zone.
      project: None means the project that gcloud is set to.
      ssh_flags: flags for `ssh` and `scp`.
      timeout: seconds that a look may take; other commands may take multiples of this.
    """

    name: str
    zone: str
    project: str | None = None
    ssh_flags: tuple[str, ...] = ()
    timeout: float = 60.0

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of every command."""
        return (f"--zone={self.zone}", *([f"--project={self.project}"] if self.project else []))

    def describe(self) -> Command:
        """Describes the queued resource."""
        words = ("queued-resources", "describe", self.name, *self.flags, "--format=json")
        return Command((*TPUS, *words), self.timeout)

    def list_nodes(self) -> Command:
        """Lists the TPU VMs of the zone."""
        return Command((*TPUS, "tpu-vm", "list", *self.flags, "--format=json"), self.timeout)

    def create(self, settings: Sequence[str]) -> Command:
        """Requests a queued resource."""
        words = ("queued-resources", "create", self.name, *self.flags, *settings)
        return Command((*TPUS, *words, "--async", "--quiet"), self.timeout * _CHANGE)

    def delete(self, nodes: Sequence[str] | None) -> list[Command]:
        """Deletes the queued resource with its nodes or, if there is none, the given nodes."""
        if nodes is None:
            words = ("queued-resources", "delete", self.name, *self.flags, "--force")
            return [Command((*TPUS, *words, "--async", "--quiet"), self.timeout * _CHANGE)]
        words, tail = ("tpu-vm", "delete"), (*self.flags, "--async", "--quiet")
        seconds = self.timeout * _CHANGE
        return [Command((*TPUS, *words, node, *tail), seconds) for node in nodes]

    def shell(self, node: str, script: str) -> Command:
        """Runs a shell script on all workers of a node."""
        words = ("tpu-vm", "ssh", node, *self.flags, *self.ssh_flags, "--worker=all", "--quiet")
        return Command((*TPUS, *words, f"--command={script}"), self.timeout * _SHELL)

    def copy(self, node: str, files: Sequence[str]) -> Command:
        """Copies files into the home folder on all workers of a node."""
        words = ("tpu-vm", "scp", *files, f"{node}:", *self.flags, *self.ssh_flags)
        return Command((*TPUS, *words, "--worker=all", "--quiet"), self.timeout * _COPY)

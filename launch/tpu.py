"""Creates TPU machines, trains on them, and removes them again; see launch/tpu_flags.py."""

import argparse
import hashlib
import json
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType

import tpu_flags
from gcloud import Command, GcloudError
from tpu_pursuit import ON_WORKER, GivenUpError, Pursuit, place_of, say, start_words
from tpu_states import Goal, State

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORKER = "tpu_worker.sh"


def check_settings(flags: argparse.Namespace) -> None:
    """Refuses a training in which a setting is wrong, before anything costs money.

    Raises:
      GivenUpError: a setting or a file is not known, or the workers would not have the file.
    """
    # Imported here because only `run` needs them; the other commands start in half the time.
    import gin_files
    import workers_files

    code, commit = commit_of(flags)
    what = f"commit {commit[:12]}, which is what the workers get"

    def held(place: pathlib.PurePath) -> bytes | None:
        words = ["git", "-C", str(code), "show", f"{commit}:{place}"]
        shown = subprocess.run(words, capture_output=True, check=False)
        return None if shown.returncode else shown.stdout

    try:
        workers_files.check(flags.training, held, what, "commit it")
    except gin_files.ConfigurationError as error:
        raise GivenUpError(str(error)) from error


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
        raise GivenUpError(f"--commit is {flags.commit!r}: there is no such commit in {code}")
    return code, found.stdout.strip()


def archive_command(code: pathlib.Path, commit: str, archive: pathlib.Path) -> list[str]:
    """Packs a commit."""
    words = ["git", "-C", str(code), "archive", "--format=tar.gz"]
    return [*words, f"--output={archive}", commit]


def name_of_run(commit: str, training: Sequence[str]) -> str:
    """Identifies a training run: the same code and flags have the same name."""
    return hashlib.sha256(json.dumps([commit, *training]).encode()).hexdigest()[:12]


def train_on(pursuit: Pursuit, flags: argparse.Namespace) -> None:
    """Trains, with the code packed into a temporary folder."""
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
    """The commands of a run without problems, starting without a machine."""
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
        if flags.command == "run":
            check_settings(flags)
        if flags.dry_run:
            for command in dry_run(flags):
                print(command)
            return 0
        return _do(pursuit, flags)
    except (GivenUpError, GcloudError, OSError) as error:
        say(f"{flags.name}: {error}")
        _say_costs(pursuit)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        running = " The training goes on." if pursuit.running() else ""
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

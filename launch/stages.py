"""Commands that build on one another, each run once: on a restart, finished ones are skipped.

A stage has its own folder, where `stage.json` records how it was begun and when it ended. A stage
that has not ended is run again, and its command resumes by itself. A stage that was begun with
other settings, or from inputs that were rebuilt since, is refused: its folder would be a mixture.
So is a second process in a run's folder: both would write, and remove, the same files.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from gophercite import child_processes
from gophercite.storage.json_fields import printable

RECORD = "stage.json"
_LOCK = "stages.lock"
_LONGEST_OWNER = 500  # characters of what is shown of it
# Errors of file systems without locks: NFS without its lock service, Lustre without `-o flock`.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class StageError(ValueError):
    """A stage that can't be run or resumed; the message says which, and what to do."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One command.

    Attributes:
      title: what it does, for messages.
      folder: its output folder, which no other stage uses.
      commands: Python programs with their arguments, run one after the other.
      needs: folders of stages whose results it uses.
    """

    title: str
    folder: pathlib.Path
    commands: Sequence[Sequence[str]]
    needs: Sequence[pathlib.Path] = ()


@contextlib.contextmanager
def hold_folder(folder: str | os.PathLike[str], say: Callable[[str], None]) -> Iterator[None]:
    """Keeps other processes from running stages in a folder within the `with` block.

    The lock is the kernel's: it ends with this process, however that ends. The programs that it
    starts don't hold it. (That of a training run imports jax, which these commands do without.)

    Args:
      folder: the folder of the whole run, on a disk; created if missing.
      say: prints a line for the user.

    Raises:
      StageError: another process holds it; says which, and since when.
      OSError: the folder can't be made, or its lock can't be opened.
    """
    path = pathlib.Path(folder) / _LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file is never removed: a lock on an unlinked file would not exclude anybody.
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = printable(file.read(_LONGEST_OWNER).strip()) or "another command runs in it"
            raise StageError(
                f"{folder} is in use: {owner}. Wait until it has ended, or give another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            say(f"{folder}: this file system has no locks, so don't start a second command in it")
        file.truncate(0)
        command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
        file.write(f"process {os.getpid()} on {socket.gethostname()} has been running in it since ")
        file.write(f"{_now()[:19]} UTC ({command})")
        file.flush()
        yield


def run_stages(
    stages: Sequence[Stage], run: Callable[[Sequence[str]], int], say: Callable[[str], None]
) -> int:
    """Runs the stages in order.

    Args:
      stages: the stages; each comes after those that it needs.
      run: runs a command and returns its exit status.
      say: prints a line for the user.

    Returns:
      0, or the status of the first command that failed.

    Raises:
      StageError: a stage's folder holds the results of something else.
    """
    for number, stage in enumerate(stages, start=1):
        heading = f"[{number}/{len(stages)}] {stage.title}"
        begun = _begin(stage)
        if begun["ended"]:
            say(f"{heading}: already done, in {stage.folder}")
            continue
        say(heading)
        start = time.monotonic()
        for command in stage.commands:
            status = run(command)
            if status:
                say(
                    f"{heading}: ended with status {status}; run the same command again to go on "
                    "from there"
                )
                return status
        seconds = time.monotonic() - start
        _write(stage, {**begun, "ended": _now(), "seconds": round(seconds, 1)})
        say(f"{heading}: {seconds:.0f} s")
    return 0


def training_command(
    config: str, folder: pathlib.Path, settings: Mapping[str, object]
) -> list[str]:
    """A training command, with gin settings that override those of its file.

    Args:
      config: a gin file, or the name of one in gin_configs without its extension.
      folder: MODEL_DIR.
      settings: values by name; strings are quoted for gin.
    """
    bindings = {"MODEL_DIR": str(folder), **settings}
    return [
        "launch/train.py",
        f"--gin_file={config if config.endswith('.gin') else f'gin_configs/{config}.gin'}",
        *(f"--gin.{name}={_gin(value)}" for name, value in bindings.items()),
    ]


def _gin(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


def run_python(command: Sequence[str]) -> int:
    """Runs a Python program; a request to stop this process is passed on, and the program may
    finish.

    Args:
      command: the arguments of `python`.

    Returns:
      Its exit status; 128 + n if signal n killed it, as in a shell.
    """
    process: subprocess.Popen[bytes] | None = None
    told_to_stop = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal told_to_stop
        told_to_stop = True
        if process is not None:
            process.terminate()

    # Ctrl-C reaches it through the terminal; it saves its work, and its status says how it ended.
    handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, stop),
    }
    try:
        process = subprocess.Popen([sys.executable, *command], env=child_processes.environment())
        if told_to_stop:  # just before the process existed
            process.terminate()
        status = process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _begin(stage: Stage) -> dict[str, Any]:
    """A stage's record, which is created if there is none."""
    made_of = {}
    for folder in stage.needs:
        needed = _read(folder)
        if needed is None or not needed["ended"]:
            raise StageError(f"{stage.title}: an earlier stage that it needs is not done: {folder}")
        made_of[str(folder)] = needed["ended"]
    commands = [shlex.join(command) for command in stage.commands]
    begun = {"commands": commands, "made_of": made_of, "ended": None, "seconds": None}
    found = _read(stage.folder)
    if found is None:
        _write(stage, begun)
        return begun
    for field, words in (
        ("commands", "with other settings"),
        ("made_of", "from other results of earlier stages"),
    ):
        if found[field] != begun[field]:
            raise StageError(
                f"{stage.folder} was made {words} (see its {RECORD}): remove it to make it again, "
                "or give another folder for the whole run"
            )
    return found


def _read(folder: pathlib.Path) -> dict[str, Any] | None:
    path = folder / RECORD
    try:
        found = json.loads(path.read_text())
        return {name: found[name] for name in ("commands", "made_of", "ended", "seconds")}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise StageError(f"{path}: is not the record of a stage; remove {folder}") from None


def _write(stage: Stage, record: dict[str, Any]) -> None:
    stage.folder.mkdir(parents=True, exist_ok=True)
    unfinished = stage.folder / f".{RECORD}.unfinished"
    unfinished.write_text(json.dumps(record, indent=2) + "\n")
    unfinished.replace(stage.folder / RECORD)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()

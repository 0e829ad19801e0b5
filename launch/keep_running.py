"""Restarts a training process when it dies, until it is done or cannot continue.

    python launch/keep_running.py -- python launch/train.py --gin_file=… --gin.MODEL_DIR=runs/sft

The training command follows `--`. A training run resumes from its last checkpoint, so
restarting the command is enough. Its exit status decides whether it is restarted:

  0             done: not restarted, and nothing is printed
  1, 2          refused or failed for a reason that a restart does not change: not restarted
  130           ended at once by a second Ctrl-C: not restarted
  75            another process of the run was told to stop, and all have saved: restarted
  all others    the other processes or a bucket were unreachable (69), an error of the program
                (70), a signal (out of memory, a watchdog, a lost host): restarted, until it has
                failed --tries times in a row without adding a checkpoint

After SIGTERM, which is passed on, and after Ctrl-C, the training process saves and ends, and is not
restarted.

exit status: the last one of the training process, 128 + n after signal n; 2 for wrong usage.
"""

import argparse
import ast
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from gophercite.storage.checkpoint_steps import saved_steps

FINAL = {0, 1, 2, 126, 127, 130}  # 126 and 127: the shell's for a command that does not exist
STOPPED = 75
LONGEST_WAIT = 300.0  # seconds between two starts


class Training:
    """A training process: its command, and whether it was told to stop."""

    def __init__(self, command: Sequence[str], folder: str) -> None:
        """Takes over SIGTERM and SIGINT.

        Args:
          command: the command that starts it.
          folder: its MODEL_DIR.
        """
        self.told_to_stop = False
        self._command = command
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._stop)
        # The terminal also sends Ctrl-C to the training process, which saves and ends.
        signal.signal(signal.SIGINT, self._interrupted)

    def run(self) -> int:
        """Runs it once and returns its exit status, 128 + n after signal n."""
        # Files that are open here stay open there. A launcher's lock is held until both end.
        try:
            self._process = subprocess.Popen(self._command, close_fds=False)
        except OSError as error:
            _say(f"{self._command[0]}: {error.strerror}, so there is nothing to keep running")
            return 127 if isinstance(error, FileNotFoundError) else 126
        if self.told_to_stop:  # just before the process existed
            self._process.terminate()
        status = self._process.wait()
        self._process = None
        return status if status >= 0 else 128 - status

    def newest_checkpoint(self) -> int | None:
        """The step of the newest complete checkpoint, 0 if there is none; None if unknown."""
        try:
            return max(saved_steps(self._folder), default=0)
        except OSError:  # no access to the bucket
            return None

    def wait(self, seconds: float) -> None:
        """Waits, but only until it is told to stop."""
        end = time.monotonic() + seconds
        while not self.told_to_stop and time.monotonic() < end:
            time.sleep(min(0.1, seconds))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.told_to_stop = True
        if self._process is not None:
            self._process.terminate()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.told_to_stop = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    training = Training(flags.command, flags.model_dir)
    newest, failures = None, 0
    while True:
        status = training.run()
        if status in FINAL or training.told_to_stop:
            return status
        step = training.newest_checkpoint()
        if step is not None and step != newest:
            newest, failures = step, 0
        failures += status != STOPPED
        where = "no known checkpoint" if newest is None else f"checkpoint {newest}"
        if failures >= flags.tries:
            _say(
                f"{_ended(status)} {failures} times in a row at {where}; it will not be started "
                "again"
            )
            return status
        seconds = pause_before(failures, flags.wait)
        counted = f" ({failures} of {flags.tries} at this step)" if status != STOPPED else ""
        _say(f"{_ended(status)} at {where}{counted}; it will be started again in {seconds:g} s")
        training.wait(seconds)
        if training.told_to_stop:
            return STOPPED


def pause_before(failures: int, shortest: float) -> float:
    """Seconds before the next start, twice as many after each failure.

    Args:
      failures: how often in a row it failed.
      shortest: seconds after the first failure.
    """
    doubled = min(max(failures - 1, 0), 60)  # more would be too large for a float some day
    return min(shortest * 2.0**doubled, LONGEST_WAIT)


def _ended(status: int) -> str:
    """Describes in words how the training process ended."""
    if status > 128:
        try:
            return f"the training was ended by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    if status == STOPPED:
        return "the training was asked to stop by something else, and saved"
    return f"the training failed with status {status}"


def _say(text: str) -> None:
    print(f"keep_running: {text}", file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="keep_running.py",
        description=__doc__,
        usage="keep_running.py [options] -- COMMAND …",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--tries",
        type=int,
        default=3,
        help="give up after this many failures at the same step (default: 3)",
    )
    add(
        "--wait",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="seconds to wait before the first restart at a step, doubled for each further one, "
        f"at most {LONGEST_WAIT:g} (default: 10)",
    )
    add(
        "--model-dir",
        metavar="DIR",
        help="folder of the checkpoints (default: the command's --gin.MODEL_DIR)",
    )
    add(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="command that starts the training; goes after --",
    )
    flags = parser.parse_args(arguments)
    if not flags.command:
        parser.error("the command to run is missing; it goes after --")
    if flags.tries < 1:
        parser.error(f"--tries is {flags.tries}: must be at least 1")
    if not flags.wait >= 0:
        parser.error(f"--wait is {flags.wait}: must be at least 0")
    flags.model_dir = flags.model_dir or model_dir(flags.command)
    if not flags.model_dir:
        parser.error(
            "the command has no --gin.MODEL_DIR: give the folder of the checkpoints with "
            "--model-dir"
        )
    return flags


def model_dir(command: Sequence[str]) -> str | None:
    """Returns MODEL_DIR from a training command's flags.

    Args:
      command: may contain `--gin.MODEL_DIR=…`; the last one counts.

    Returns:
      The folder, without gin's quotes; None if no flag names one.
    """
    name = "--gin.MODEL_DIR="
    values = [argument.removeprefix(name) for argument in command if argument.startswith(name)]
    if not values:
        return None
    try:
        value = ast.literal_eval(values[-1])
    except (SyntaxError, ValueError):
        return values[-1]
    return value if isinstance(value, str) else values[-1]


if __name__ == "__main__":
    sys.exit(main())

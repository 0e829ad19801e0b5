"""How the processes of one run find each other, and how each ends; the same for all commands."""

import argparse
import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

from gophercite import interruption
from gophercite.cli import process_places
from gophercite.cli.other_processes import OtherProcesses, delay_aborts
from gophercite.cli.process_places import DisagreementError, JoinError, Place

UNAVAILABLE = 69  # sysexits.h's EX_UNAVAILABLE: something needed was not available; try again
DEFECT = 70  # sysexits.h's EX_SOFTWARE: an error in the program
__all__ = [
    "DEFECT", "UNAVAILABLE", "DisagreementError", "JoinError", "add_flags", "check", "impossible",
    "is_first", "is_of_exchange", "join", "joined", "nowhere", "status_of",
]  # fmt: skip


def add_flags(parser: argparse._ActionsContainer) -> None:
    """Adds the flags."""
    add = parser.add_argument
    add(
        "--distributed",
        action="store_true",
        help="join the other processes of the run; on TPU VMs, in GKE and under Slurm they are "
        "found automatically, elsewhere the next three flags say where they are",
    )
    add(
        "--coordinator_address",
        "--coordinator-address",
        metavar="HOST:PORT",
        help="address of process 0",
    )
    add("--num_processes", "--num-processes", type=int, metavar="N")
    add(
        "--process_id",
        "--process-id",
        type=int,
        metavar="I",
        help="number of this process, counted from 0",
    )
    add(
        "--join_timeout",
        "--join-timeout",
        type=int,
        default=1800,
        metavar="SECONDS",
        help="how many seconds to wait for the others to start (default: 1800, as the hosts of "
        "large runs may start minutes apart)",
    )


def check(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> None:
    """Refuses impossible numbers of processes, as wrong usage."""
    if problem := impossible(flags):
        parser.error(problem)


def impossible(flags: argparse.Namespace) -> str | None:
    """What is wrong with the numbers of processes; None if nothing is."""
    count, process = flags.num_processes, flags.process_id
    if count is not None and count < 1:
        return f"--num_processes is {count}: must be at least 1"
    if process is not None and not 0 <= process < (count or process + 1):
        return f"--process_id is {process}: must be from 0 to --num_processes - 1"
    if flags.join_timeout < 1:
        return f"--join_timeout is {flags.join_timeout}: must be at least 1"
    return None


def nowhere(flags: argparse.Namespace) -> str | None:
    """What is wrong with a place among processes that can't meet; None if they can."""
    placed = flags.num_processes is not None or flags.process_id is not None
    if placed and not (flags.distributed or flags.coordinator_address):
        return "--num_processes and --process_id also need --coordinator_address"
    return None


def join(flags: argparse.Namespace, program: str) -> None:
    """Joins the other processes, if the flags say so; call it before any array exists.

    If the others have not joined in time, or if one of them is gone later, it ends the process with
    UNAVAILABLE and one line.

    Args:
      flags: the flags of `add_flags`.
      program: the start of that line.

    Raises:
      DisagreementError: flags and environment disagree, or are insufficient.
      JoinError: the others can't be joined.
    """
    if not (flags.distributed or flags.coordinator_address):
        return
    place = process_places.find(
        os.environ, flags.coordinator_address, flags.num_processes, flags.process_id
    )
    import jax  # imported here so that --help need not wait for it

    try:
        with _in_time(flags.join_timeout, place, program):
            jax.distributed.initialize(
                place.coordinator,
                place.count,
                place.index,
                local_device_ids=place.local_devices,
                cluster_detection_method="deactivate",  # otherwise JAX reads the environment again
                initialization_timeout=flags.join_timeout + _LATER,
            )
    except (ValueError, RuntimeError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise JoinError(f"{_named(place)} can't join the others: {reason}") from error
    if jax.default_backend() == "cpu":
        # On CPUs, only the first process finds its programs in JAX's cache of compiled programs.
        # Those can exchange values in another order than the others' freshly compiled ones, so
        # that evaluations of actor-critic were made of wrong values (jaxlib 0.10.2).
        jax.config.update("jax_enable_compilation_cache", False)
    _watch_others(place, program)


def status_of(main: Callable[[], int], program: str, together: Sequence[int] = (0,)) -> int:
    """Runs a command's main function.

    If it fails in a process that has joined others, the process ends here. On exit JAX would wait
    for the others, who wait for this process, and then abort: the original error would be lost. If
    an exchange fails because another process is gone, it is one line, with status UNAVAILABLE.
    Any other error of the program is a traceback, with status DEFECT.

    Args:
      main: returns an exit status.
      program: the start of that line.
      together: statuses with which all processes exit, and may wait for one another.

    Returns:
      The exit status.
    """
    try:
        status = main()
    except Exception as error:  # not a refusal, which is a status
        others = _Joined.others if is_of_exchange(error) else None
        gone = others.explanation() if others else None
        if gone is None:
            traceback.print_exc()
        else:
            _say(f"{program}: {gone}")
        status = DEFECT if gone is None else UNAVAILABLE
    if _Joined.others is not None and status not in together:
        sys.stdout.flush()
        sys.stderr.flush()
        if is_first():
            time.sleep(_GRACE)
        interruption.end(status)
    return status


def is_of_exchange(error: BaseException | None) -> bool:
    """Whether an error, or one that it follows from, may be that of an exchange of processes.

    Commands raise it again instead of calling it a refusal: on CPUs it is a ValueError.
    """
    if error is None or "jax" not in sys.modules:
        return False
    import jax

    if isinstance(error, jax.errors.JaxRuntimeError) or "Gloo " in str(error):
        return True
    return is_of_exchange(error.__cause__ or error.__context__)


class _Joined:
    """The other processes of this one's run, once it has joined them."""

    others: OtherProcesses | None = None


def _watch_others(place: Place, program: str) -> None:
    from jax._src import distributed  # JAX has no public API for this; Orbax does the same

    def act(line: str) -> None:
        interruption.end(UNAVAILABLE, f"{program}: {line}")

    client = distributed.global_state.client
    others = OtherProcesses(client, place.coordinator, place.index, place.count, act)
    others.watch()
    delay_aborts()
    _Joined.others = others
    atexit.register(others.leave)  # before JAX's own exit, which waits for the others


def joined() -> bool:
    """Whether this process has joined others."""
    if "jax" not in sys.modules:
        return False
    import jax

    return bool(jax.distributed.is_initialized())


def is_first() -> bool:
    """Whether this is the process that writes what all have made."""
    if not joined():
        return True
    import jax

    return jax.process_index() == 0


_SILENT = 10.0  # seconds of waiting before that is said
_GRACE = 2.0  # seconds in which others can fail with the same error before process 0 is gone
_LATER = 600  # seconds of margin for JAX, which aborts with a stack trace when its time is up


@contextlib.contextmanager
def _in_time(seconds: int, place: Place, program: str) -> Iterator[None]:
    """Says after a while what is waited for, and ends the process if the block takes too long."""
    waits = (
        f"{program}: {_named(place)} waits for the others at {place.coordinator}, for up to "
        f"{seconds} s (--join_timeout)"
    )
    message = (
        f"{program}: {_named(place)}: not all processes have joined at {place.coordinator} within "
        f"{seconds} s (--join_timeout). Were all of them started, with the same address?"
    )
    notice = threading.Timer(min(_SILENT, seconds / 10), _say, [waits])
    alarm = threading.Timer(seconds, interruption.end, [UNAVAILABLE, message])
    for timer in (notice, alarm):
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in (notice, alarm):
            timer.cancel()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _named(place: Place) -> str:
    return f"process {place.index} of {place.count}"

"""Flags by which the processes of one run find each other, the same for all commands."""

import argparse


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add = parser.add_argument
    add(
        "--distributed",
        action="store_true",
        help="join the other processes of the run; on TPU pods and under Slurm they are found, "
        "elsewhere the three next flags say where",
    )
    add("--coordinator_address", metavar="HOST:PORT", help="of process 0")
    add("--num_processes", type=int, metavar="N")
    add("--process_id", type=int, metavar="I", help="of this process, from 0")


class JoinError(RuntimeError):
    """The processes of a run did not find each other; the message is one line."""


def check(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> None:
    """Refuses numbers of processes that can't be, as wrong usage."""
    count, process = flags.num_processes, flags.process_id
    if count is not None and count < 1:
        parser.error(f"--num_processes is {count}: must be at least 1")
    if process is not None and not 0 <= process < (count or process + 1):
        parser.error(f"--process_id is {process}: must be from 0 to --num_processes - 1")


def join(flags: argparse.Namespace) -> None:
    """Joins the other processes, if the flags say so; before any array exists.

    Raises:
      JoinError: the flags don't say enough, or the others were not there in time.
    """
    if not (flags.distributed or flags.coordinator_address):
        return
    import jax  # here, so that --help need not wait for it

    try:
        jax.distributed.initialize(flags.coordinator_address, flags.num_processes, flags.process_id)
    except (ValueError, RuntimeError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise JoinError(f"the other processes of the run are not to be found: {reason}") from error

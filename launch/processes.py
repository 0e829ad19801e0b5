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


def join(flags: argparse.Namespace) -> None:
    """Joins the other processes, if the flags say so; before any array exists."""
    import jax  # here, so that --help need not wait for it

    if flags.distributed or flags.coordinator_address:
        jax.distributed.initialize(flags.coordinator_address, flags.num_processes, flags.process_id)

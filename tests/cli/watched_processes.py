"""Processes that watch one another, with beats that are short enough for tests.

They are copies of this one, which imports JAX once: each line that it reads has a port, a folder
and what each copy does. A copy joins the others, says so in a file, and then does what it is told
to: exchanges values with them forever ("wait"), fails ("error"), refuses ("refuse", "refuse-later")
or is done ("done", "later"). Of copy N the folder has its id in `N.id`, what it wrote in `N.said`
and, when it has ended, its status in `N.status`.
"""

import atexit
import functools
import os
import pathlib
import sys
import time

# After JAX's own exit, which ends the service: nobody may then take the others for gone.
atexit.register(time.sleep, 2)

import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402

from gophercite.cli import other_processes, processes  # noqa: E402

processes.OtherProcesses = functools.partial(  # type: ignore[misc]
    other_processes.OtherProcesses, beat=0.3, silence=3.0
)
processes._GRACE = 2.0


def main(port: str, folder: pathlib.Path, count: int, index: int, does: str) -> int:
    parser = processes.argparse.ArgumentParser()
    processes.add_flags(parser)
    flags = [f"--coordinator_address=localhost:{port}", f"--num_processes={count}"]
    processes.join(parser.parse_args([*flags, f"--process_id={index}"]), "watched")
    multihost_utils.process_allgather(np.int32(0))
    (folder / f"{index}.joined").touch()
    if does == "error":
        raise KeyError("an error of the program")
    if does == "later":
        time.sleep(5)  # longer than others may be silent
    if does == "wait":
        try:
            while True:
                multihost_utils.process_allgather(np.int32(0))
                time.sleep(0.01)
        except ValueError as error:  # as commands do with what they refuse
            if processes.is_of_exchange(error):
                raise
            return 1
    if does == "refuse-later":
        time.sleep(1)
    return int(does.startswith("refuse"))


if __name__ == "__main__":
    for line in sys.stdin:
        port, where, *all_do = line.split()
        folder, copies = pathlib.Path(where), {}
        for index, does in enumerate(all_do):
            copy = os.fork()
            if not copy:
                said = os.open(folder / f"{index}.said", os.O_WRONLY | os.O_CREAT)
                os.dup2(said, sys.stderr.fileno())
                one = functools.partial(main, port, folder, len(all_do), index, does)
                sys.exit(processes.status_of(one, "watched"))
            copies[copy] = index
            (folder / f"{index}.id").write_text(str(copy))
        while copies:
            copy, status = os.wait()
            partial = folder / "status"
            partial.write_text(str(os.waitstatus_to_exitcode(status)))
            partial.rename(folder / f"{copies.pop(copy)}.status")

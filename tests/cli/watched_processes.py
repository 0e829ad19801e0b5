"""One of several processes that watch one another, with beats that are short enough for tests.

It joins the others, says so in a file, and then does what it is told to: exchanges values with them
forever ("wait"), fails ("error"), refuses ("refuse", "refuse later") or is done ("done", "later").
"""

import atexit
import functools
import pathlib
import sys
import time

# After JAX's own exit, which ends the service: nobody may then take the others for gone.
atexit.register(time.sleep, 2)

from gophercite.cli import other_processes, processes  # noqa: E402

processes.OtherProcesses = functools.partial(  # type: ignore[misc]
    other_processes.OtherProcesses, beat=0.3, silence=3.0
)
processes._GRACE = 2.0


def main() -> int:
    port, count, index, file, does = sys.argv[1:]
    parser = processes.argparse.ArgumentParser()
    processes.add_flags(parser)
    flags = [f"--coordinator_address=localhost:{port}", f"--num_processes={count}"]
    processes.join(parser.parse_args([*flags, f"--process_id={index}"]), "watched")
    import numpy as np
    from jax.experimental import multihost_utils

    multihost_utils.process_allgather(np.int32(0))
    pathlib.Path(file).touch()
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
    if does == "refuse later":
        time.sleep(1)
    return int(does.startswith("refuse"))


if __name__ == "__main__":
    sys.exit(processes.status_of(main, "watched"))

"""One of several processes: joins the others as its flags and environment say, and adds up.

Writes the process's number, how many there are, its devices, and the sum of all numbers plus one
into the file that it is told to. They are not printed: gloo prints lines of its own, from threads
of its own, which may land in the middle of another line.
"""

# ruff: noqa: E402  garbage is not looked for while libraries are imported

import argparse
import gc
import json
import pathlib
import sys

gc.disable()  # what is imported stays

from gophercite.cli import processes


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--found", type=pathlib.Path)
    processes.add_flags(parser)
    flags = parser.parse_args()
    processes.check(parser, flags)
    try:
        processes.join(flags, "join")
    except processes.JoinError as error:
        print(error, file=sys.stderr)
        return 1 if isinstance(error, processes.DisagreementError) else 69
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    mine = np.int32(jax.process_index() + 1)
    total = int(np.sum(multihost_utils.process_allgather(mine)))
    found = [jax.process_index(), jax.process_count(), jax.local_device_count(), total]
    flags.found.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

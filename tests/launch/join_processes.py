"""One of several processes: joins the others as its flags and environment say, and adds up.

Prints the process's number, how many there are, and the sum of all numbers plus one.
"""

import argparse
import sys

import processes


def main() -> int:
    parser = argparse.ArgumentParser()
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
    print("found", jax.process_index(), jax.process_count(), jax.local_device_count(), total)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Processes that share what importing takes: one imports everything, and the others are its copies.

Importing JAX and TensorFlow takes several seconds of a processor. A copy is made before JAX has
looked for devices, so each finds its own, as a process that was started by itself does.
"""

import gc
import os
import sys


def one_of(count: int) -> int:
    """Makes copies of this process, which must have imported everything and run nothing.

    Args:
      count: number of copies.

    Returns:
      The number of the copy, in each of them. The process itself waits for all of them and exits,
      with the highest of their statuses.
    """
    gc.collect()
    gc.freeze()  # what was imported stays, and is not looked through again in each copy
    copies = []
    for number in range(count):
        copy = os.fork()
        if not copy:
            return number
        copies.append(copy)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) for copy in copies]
    sys.exit(max(map(abs, statuses)))

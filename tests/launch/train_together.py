"""Processes of one run of launch/train.py: `train_together.py PROCESSES FLAGS OF EACH…`."""

# ruff: noqa: E402  garbage is not looked for while libraries are imported

import gc
import sys

gc.disable()  # what is imported stays

# What train.py imports before it joins the others.
import configuration  # noqa: F401
import data_survey  # noqa: F401
import train

from tests.forked import one_of

if __name__ == "__main__":
    count = int(sys.argv[1])
    process = one_of(count)
    sys.exit(train.main([*sys.argv[2:], f"--num_processes={count}", f"--process_id={process}"]))

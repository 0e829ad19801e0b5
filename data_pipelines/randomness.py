"""Random draws that depend on an example itself, not on where or when it is read.

Every draw of a pipeline is keyed by (run seed, epoch, purpose, example id). So an example is
prepared in the same way on one host as on many, and in a resumed run as in an uninterrupted one.
seqio's own seeds depend on positions, and are the same in each epoch.
"""

import hashlib
import random


def epoch_seed(seed: int, task: str, epoch: int) -> int:
    """Returns the seed of one pass over a task, below 2**31; seqio passes it to the source."""
    digest = hashlib.sha256(f"{seed}/{task}/{epoch}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def draws(seed: int, purpose: str, example_id: str) -> random.Random:
    """Returns the random numbers of one example for one purpose.

    Args:
      seed: the epoch's seed, which the example carries.
      purpose: names what is drawn, so that two preprocessors draw independently.
      example_id: identifies the example within its source.
    """
    return random.Random(f"{seed}/{purpose}/{example_id}")

"""Which process of several keeps the others waiting.

All processes run the same steps at the same pace, so none of their step times tells who is slow.
What does is the time that each one's own input takes from its steps: the others wait that long for
it in the next collective operation. Processes tell it one another through JAX's coordination
service, which takes no part in what the devices do.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax

_PREFIX = "gophercite/input_wait/"
_NOTABLE = 0.1  # of a step


def coordination() -> Any:
    """JAX's client for what the processes of a run tell one another; None for one process."""
    from jax._src import distributed  # JAX offers it in no other way; Orbax takes it there as well

    return distributed.global_state.client


def input_waits(seconds: float) -> dict[int, float]:
    """Tells the others how long this process waited for its input, and asks what they said.

    Args:
      seconds: of each step, in the mean since the last call.

    Returns:
      By process; empty in all but the first, and in a run of one process. What others say may be
      as old as their last call.
    """
    client = coordination()
    if client is None or jax.process_count() == 1:
        return {}
    try:
        client.key_value_set(f"{_PREFIX}{jax.process_index()}", json.dumps(seconds), True)
        if jax.process_index():
            return {}
        said = dict(client.key_value_dir_get(_PREFIX))
    except RuntimeError:  # the service is going; the run ends for a reason of its own
        return {}
    return {int(name.removeprefix(_PREFIX)): float(json.loads(text)) for name, text in said.items()}


def straggler(waits: Mapping[int, float], step: float) -> tuple[int, str] | None:
    """The process whose input holds up the others.

    Args:
      waits: seconds of a step by process.
      step: seconds that a step takes.

    Returns:
      The process, and a line for people; None where no input takes a tenth of a step.
    """
    if not waits:
        return None
    slowest = max(waits, key=lambda process: (waits[process], -process))
    if waits[slowest] < _NOTABLE * step:
        return None
    others = [seconds for process, seconds in waits.items() if process != slowest]
    beside = f"; the others at most {max(others):.2f} s" if others else ""
    return slowest, (
        f"process {slowest} waits for its input {waits[slowest]:.2f} s of each step of "
        f"{step:.2f} s{beside}: all processes go at its pace"
    )

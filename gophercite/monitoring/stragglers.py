"""Finds the process that keeps the others waiting.

All processes run the same steps at the same pace, so their step times don't tell which one is slow.
But the time that each spends waiting for its own input does: the others wait that long for it in
the next collective operation. Processes exchange these times through JAX's coordination service,
which does not involve the devices.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax

_PREFIX = "gophercite/input_wait/"
_NOTABLE = 0.1  # share of a step


def coordination() -> Any:
    """JAX's client for communication between a run's processes; None for a single process."""
    from jax._src import distributed  # JAX has no public API for this; Orbax does the same

    return distributed.global_state.client


def input_waits(seconds: float) -> dict[int, float]:
    """Publishes how long this process waited for its input, and reads the others' times.

    Args:
      seconds: mean wait per step since the last call.

    Returns:
      Seconds by process; empty in all processes except the first, and in a run of one process. The
      others' values date from their last call.
    """
    client = coordination()
    if client is None or jax.process_count() == 1:
        return {}
    try:
        client.key_value_set(f"{_PREFIX}{jax.process_index()}", json.dumps(seconds), True)
        if jax.process_index():
            return {}
        said = dict(client.key_value_dir_get(_PREFIX))
    except RuntimeError:  # the service is shutting down; the run ends for another reason
        return {}
    return {int(name.removeprefix(_PREFIX)): float(json.loads(text)) for name, text in said.items()}


def straggler(waits: Mapping[int, float], step: float) -> tuple[int, str] | None:
    """The process whose input holds up the others.

    Args:
      waits: seconds per step by process.
      step: duration of a step in seconds.

    Returns:
      The process, and a line for the user; None if no input takes a tenth of a step.
    """
    if not waits:
        return None
    slowest = max(waits, key=lambda process: (waits[process], -process))
    if waits[slowest] < _NOTABLE * step:
        return None
    others = [seconds for process, seconds in waits.items() if process != slowest]
    beside = f"; the others wait at most {max(others):.2f} s" if others else ""
    return slowest, (
        f"process {slowest} waits {waits[slowest]:.2f} s of each {step:.2f} s step for its "
        f"input{beside}. It slows all processes down"
    )

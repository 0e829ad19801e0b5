"""Training steps of several kinds, one after the other in one process: all see the same machine."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def seconds_in_turn(
    steps: Mapping[str, Callable[..., Any]], states: Mapping[str, Any], batch: Any, rounds: int
) -> dict[str, list[float]]:
    """Times each step as often as asked for, after one turn that is not counted.

    Args:
      steps: by name; (state, batch) to (state, metrics), which may take the state's memory over.
      states: where each begins, by name.
      batch: of all steps.
      rounds: turns that are counted.

    Returns:
      Seconds of each turn, by name: what stands at one place was measured in one turn.
    """
    now = dict(states)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            begun = time.perf_counter()
            now[name], metrics = step(now[name], batch)
            jax.block_until_ready(metrics)
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return seconds

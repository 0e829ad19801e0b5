"""A training step's metrics, fetched a step or two late so that the devices never wait for us."""

import math
from collections import deque
from collections.abc import Iterator, Mapping

import jax
import numpy as np

# Number of steps that may be in progress on the devices. Adding another waits for the oldest, which
# also keeps the host (and the batches it has placed) from running far ahead.
LATE = 2


class NonFiniteLossError(RuntimeError):
    """A loss or gradient norm was NaN or infinite; the message names the steps."""


class PendingMetrics:
    """Metrics on their way from the devices."""

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Mapping[str, jax.Array]]] = deque()

    def add(self, step: int, metrics: Mapping[str, jax.Array]) -> None:
        """Queues a step's metrics and starts to copy them."""
        for value in metrics.values():
            value.copy_to_host_async()
        self._queue.append((step, metrics))

    def arrived(self, *, wait: bool = False) -> Iterator[tuple[int, dict[str, float]]]:
        """Takes the metrics that have arrived, oldest first.

        Args:
          wait: take all, waiting for the newest.

        Yields:
          Step and metrics.

        Raises:
          NonFiniteLossError: a loss or gradient norm is not finite; the message names all steps
            known to be affected.
        """
        while self._queue and (wait or len(self._queue) > LATE):
            step, values = self._take()
            poisoned = _poisoned(values)
            if poisoned:
                raise NonFiniteLossError(self._explain(step, poisoned))
            yield step, values

    def _take(self) -> tuple[int, dict[str, float]]:
        step, metrics = self._queue.popleft()
        return step, {name: float(np.asarray(value)) for name, value in metrics.items()}

    def _explain(self, first: int, poisoned: str) -> str:
        steps = [first]
        while self._queue:
            step, values = self._take()
            if _poisoned(values):
                steps.append(step)
        named = f"step {first}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"
        return (
            f"{poisoned} in {named}. The last good state was the one after step {first - 1}; "
            "nothing later was saved. A lower learning rate, more warm-up or max_grad_norm may "
            "help"
        )


def _poisoned(values: Mapping[str, float]) -> str | None:
    """The first loss or gradient norm that is not finite: "loss/total is nan"."""
    for name, value in values.items():
        watched = name.startswith("loss/") or name.endswith("grad_norm")
        if watched and not math.isfinite(value):
            return f"{name} is {value}"
    return None

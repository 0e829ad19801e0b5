"""Feeds batches to the devices: a thread prefetches them, and each process reads its own rows."""

import math
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from gophercite.learning.state import HostBatch
from gophercite.partitioning import Partitioner

DeviceBatch = dict[str, Any]


def process_share(partitioner: Partitioner) -> tuple[int, int]:
    """Which rows of every global batch this process reads.

    Args:
      partitioner: determines which devices hold which rows.

    Returns:
      Index and count: the process reads the `index`-th of `count` equal ranges of rows. Processes
      whose devices hold the same rows (model parallelism across hosts) have the same index.

    Raises:
      ValueError: a process's rows are not contiguous.
    """
    sharding = batch_sharding(partitioner, 1)
    cuts = _cuts(partitioner)
    rows = sharding.addressable_devices_indices_map((cuts,))
    starts = {index[0].start or 0 for index in rows.values() if index}
    first, mine = min(starts), len(starts)
    if max(starts) + 1 - first != mine or cuts % mine or first % mine:
        raise ValueError(
            f"process {jax.process_index()}'s devices don't hold consecutive rows of the batch: "
            "order the mesh so that each host's devices are neighbours"
        )
    return first // mine, cuts // mine


def put(partitioner: Partitioner, batch: HostBatch) -> DeviceBatch:
    """Puts this process's rows of a batch on its devices.

    Args:
      partitioner: determines where they go.
      batch: arrays of the rows in `process_share`. A tree of arrays (tables that rows refer to)
        must be the same in every process, and is replicated to every device.

    Returns:
      Global arrays.

    Raises:
      ValueError: the number of rows is not a multiple of the number of data shards.
    """
    _, count = process_share(partitioner)

    def rows(array: np.ndarray) -> jax.Array:
        shape = (array.shape[0] * count, *array.shape[1:])
        refuse_uneven(partitioner, shape[0])
        return jax.make_array_from_process_local_data(
            batch_sharding(partitioner, array.ndim), array, shape
        )

    def whole(array: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(partitioner.replicated, array, array.shape)

    return {
        name: rows(part) if isinstance(part, np.ndarray) else jax.tree.map(whole, part)
        for name, part in batch.items()
    }


def refuse_uneven(partitioner: Partitioner, batch_size: int) -> None:
    """Refuses a batch size that the mesh can't shard evenly.

    Args:
      partitioner: mesh and rules.
      batch_size: number of rows in a global batch.

    Raises:
      ValueError: it is not a multiple of the size of the mesh's data axes.
    """
    cuts = _cuts(partitioner)
    if batch_size % cuts:
        raise ValueError(
            f"a batch of {batch_size} rows can't be divided evenly among the {cuts} devices of "
            f"the mesh's data axes ({dict(partitioner.mesh.shape)}): set the batch size to a "
            "multiple of that, or give more of the mesh to `model`"
        )


def batch_sharding(partitioner: Partitioner, rank: int) -> jax.sharding.NamedSharding:
    """The sharding of a batch's array, whose axes are rows, tokens and any others.

    Args:
      partitioner: mesh and rules.
      rank: number of axes.
    """
    axes = ("batch", "length", *[None] * rank)[:rank]
    return jax.sharding.NamedSharding(partitioner.mesh, partitioner.spec(axes))


def _cuts(partitioner: Partitioner) -> int:
    """The number of shards that a batch's rows are split into."""
    (axes,) = partitioner.spec(("batch",))
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(partitioner.mesh.shape[name] for name in names)


class Feed:
    """An iterator over batches that a thread prefetches."""

    def __init__(
        self, batches: Iterator[HostBatch], partitioner: Partitioner | None, ahead: int = 2
    ):
        """Starts reading.

        Args:
          batches: this process's rows of each batch.
          partitioner: determines their placement on devices; None leaves them on the host, for a
            collector.
          ahead: number of batches to prefetch.
        """
        self._waited = 0.0
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=ahead)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._read, args=(batches, partitioner), name="input", daemon=True
        )
        self._thread.start()

    def _read(self, batches: Iterator[HostBatch], partitioner: Partitioner | None) -> None:
        try:
            for batch in batches:
                if not self._offer(batch if partitioner is None else put(partitioner, batch)):
                    return
            self._offer(StopIteration())
        except BaseException as error:
            self._offer(error)

    def _offer(self, item: Any) -> bool:
        """Queues an item; returns False if the feed was closed in the meantime."""
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[DeviceBatch]:
        return self

    def __next__(self) -> DeviceBatch:
        start = time.monotonic()
        item = self._queue.get()
        self._waited += time.monotonic() - start
        if isinstance(item, BaseException):
            self._queue.put(item)  # every later call raises it, too
            raise item
        return item

    def take_wait(self) -> float:
        """Seconds spent waiting for input since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited

    def close(self) -> None:
        """Stops the thread."""
        self._stop.set()
        self._thread.join(timeout=10)

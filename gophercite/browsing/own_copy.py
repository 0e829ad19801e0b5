"""Parameters on this process's own devices, for programs that it runs without the other processes.

Environments answer at their own pace, so the processes of a run sample without waiting for one
another. That takes the whole policy on each process's devices: tensor-parallel as on the mesh that
trains, and otherwise replicated, with the batch divided among the copies.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import NamedSharding

from gophercite.models.parameters import Axes, Params
from gophercite.partitioning import Partitioner, make_mesh


def own_part(partitioner: Partitioner) -> Partitioner:
    """This process's devices of a mesh.

    Args:
      partitioner: a mesh over the devices of all processes.

    Returns:
      The same rules on a mesh of this process's devices, which has the same `model` axis.

    Raises:
      ValueError: the model axis extends over several processes.
    """
    rows = partitioner.mesh.devices.reshape(-1, partitioner.mesh.shape["model"])
    owners = np.vectorize(lambda device: device.process_index)(rows)
    if np.any(owners != owners[:, :1]):
        raise ValueError(
            f"partitioner.model = {rows.shape[1]}: the devices of one process must hold a whole "
            f"model to act in environments; use at most {jax.local_device_count()}, and a number "
            "that divides it"
        )
    own = rows[owners[:, 0] == jax.process_index()]
    mesh = make_mesh(len(own), 1, rows.shape[1], own.reshape(-1).tolist())
    return Partitioner(mesh, partitioner.rules)


class OwnCopy:
    """Gathers parameters for this process's devices; all processes must call it together.

    Args:
      partitioner: the mesh of all processes.
      own: its `own_part`.
    """

    def __init__(self, partitioner: Partitioner, own: Partitioner) -> None:
        self._mesh, self._own = partitioner.mesh, own
        self._gather: Callable[[Params], Params] | None = None

    def __call__(self, params: Params, axes: Axes) -> Params:
        """Waits for the copy.

        Args:
          params: parameters on the mesh of all processes; of the same shapes each time.
          axes: their logical axes, in a tree like the parameters.

        Returns:
          The parameters on this process's devices.
        """
        places = self._own.shardings(axes, params)
        if self._gather is None:
            everywhere = jax.tree.map(lambda place: NamedSharding(self._mesh, place.spec), places)
            self._gather = jax.jit(lambda parts: parts, out_shardings=everywhere)
        # One program, and nothing beside it: on CPUs, collectives of several programs at once can
        # take all threads and wait for each other.
        gathered = jax.block_until_ready(self._gather(params))
        copy: Params = jax.tree.map(_of_own, gathered, places)
        return copy


def _of_own(array: jax.Array, place: NamedSharding) -> jax.Array:
    shards = {shard.device: shard.data for shard in array.addressable_shards}
    parts = [shards[device] for device in place.mesh.devices.flat]
    return jax.make_array_from_single_device_arrays(array.shape, place, parts)

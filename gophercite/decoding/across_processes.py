"""Inputs and results of programs whose parameters are on the devices of several processes.

All processes run the same program on the same values, so that a model may be larger than what one
host can hold. All of them must call these functions together.
"""

import json
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gophercite.models.parameters import Params

_LEAST = 1024  # bytes; texts are padded to powers of two, so that few programs are compiled


def shared_mesh(params: Params) -> Mesh | None:
    """The mesh of parameters that several processes share; None if all are on this one's devices.

    Args:
      params: parameters; all that are sharded have the same mesh.
    """
    for leaf in jax.tree.leaves(params):
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            assert isinstance(leaf.sharding, NamedSharding)
            mesh = leaf.sharding.mesh
            assert isinstance(mesh, Mesh)
            return mesh
    return None


def on_all(mesh: Mesh | None, values: Any) -> Any:
    """Copies of arrays on every device of a mesh.

    Args:
      mesh: `shared_mesh`; None leaves the arrays as they are.
      values: a tree of arrays, the same in each process.
    """
    if mesh is None:
        return values
    place = NamedSharding(mesh, PartitionSpec())

    def whole(array: Any) -> jax.Array:
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            data = whole(jax.random.key_data(array))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, place, lambda where: host[where])

    return jax.tree.map(whole, values)


def on_host(mesh: Mesh | None, results: Any) -> Any:
    """Results as NumPy arrays, whole in each process.

    Args:
      mesh: `shared_mesh` of the program's parameters.
      results: a tree of arrays.
    """
    return jax.device_get(results if mesh is None else _everywhere(mesh)(results))


@cache
def _everywhere(mesh: Mesh) -> Any:
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec()))


def gather_json(value: Any) -> list[Any]:
    """Gives every process the values of all; all processes must call it together.

    Args:
      value: this process's value, as JSON.

    Returns:
      The values of all processes, in their order.
    """
    if jax.process_count() == 1:
        return [value]
    text = json.dumps(value).encode()
    sizes = multihost_utils.process_allgather(np.int32(len(text)))
    room = max(_LEAST, 1 << (int(sizes.max()) - 1).bit_length())
    padded = np.frombuffer(text.ljust(room), np.uint8)
    return [json.loads(row.tobytes()) for row in multihost_utils.process_allgather(padded)]

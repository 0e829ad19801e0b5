"""Processes that collect together: of each its rows, metrics and environments, into a file."""

# ruff: noqa: E402  garbage is not looked for while libraries are imported

import gc
import json
import pathlib
import sys

gc.disable()  # what is imported stays

import jax
import numpy as np

from gophercite.browsing.own_copy import own_part
from gophercite.partitioning import Partitioner, make_mesh
from tests.browsing import tiny
from tests.forked import one_of


def main(folder: str, index: int, count: int, port: int) -> None:
    """Collects twice, evaluates, and is interrupted.

    Args:
      folder: where `INDEX.npz` goes.
      index, count: which of how many processes this is; each has one device.
      port: of the first.
    """
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", count, index)
    partitioner = Partitioner(make_mesh(fsdp=-1))
    params = tiny.parameters()
    spread = jax.tree.map(
        lambda leaf, place: jax.make_array_from_callback(
            leaf.shape, place, lambda where: np.asarray(leaf)[where]
        ),
        params,
        partitioner.shardings(tiny.axes(), params),
    )
    of = tiny.collector(steps=tiny.FEW_STEPS, partitioner=partitioner)
    arrays, said, polled = {}, [], []

    def poll() -> bool:
        polled[-1] += 1
        return False

    for seed in range(2):
        polled.append(0)
        made = of.collect(spread, {}, jax.random.key(seed), poll)
        assert made is not None
        arrays |= {f"{seed}/{name}": part for name, part in made.experience.items()}
        said.append(made.totals)
    own = np.array([0, 1, 2]) if index == 0 else np.full(3, -1)  # one has nothing to do
    made = of.rehearse(spread, {"questions": own}, jax.random.key(0), tiny.NEVER)
    assert made is not None
    arrays |= {f"evaluated/{name}": part for name, part in made.experience.items()}
    said.append(made.totals)
    before = of.environments()
    stops = iter([False] * 15)
    stopped = of.collect(spread, {}, jax.random.key(9), lambda: next(stops, True))
    unchanged = of.environments() == before
    again = tiny.collector(steps=tiny.FEW_STEPS, partitioner=partitioner)
    again.resume(json.loads(json.dumps(before)))
    try:
        own_part(Partitioner(make_mesh(model=2)))
    except ValueError as error:
        refused = str(error)
    said += [stopped is None and unchanged, refused, polled, before, again.environments()]
    np.savez(pathlib.Path(folder) / f"{index}.npz", said=json.dumps(said), **arrays)
    jax.distributed.shutdown()


if __name__ == "__main__":
    where, processes, at = sys.argv[1], *map(int, sys.argv[2:])
    main(where, one_of(processes), processes, at)

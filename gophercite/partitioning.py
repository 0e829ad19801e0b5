"""Array sharding: one mesh and one table of logical axis rules, for one device or a pod.

Model and optimiser name the axes of their arrays ("embed", "mlp", "batch" …); a run's rules map
each name to the mesh axis that it is sharded over. On one device every rule is trivially met, so
the same program runs on a laptop, on simulated devices, over several processes and on a TPU slice.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

MESH_AXES = ("data", "fsdp", "model")

Rules = tuple[tuple[str, str | tuple[str, ...] | None], ...]

# Parameters are sharded twice: along the width of the residual stream over `fsdp` (gathered layer
# by layer when used; Rajbhandari et al. 2020) and along heads, MLP and vocabulary over `model`
# (Shoeybi et al. 2019). Between blocks, the residual stream is sharded along the sequence over
# `model` (Korthikanti et al. 2022), which also divides the activations kept for rematerialisation.
DEFAULT_RULES: Rules = (
    ("batch", ("data", "fsdp")),
    ("length", None),
    ("residual_length", "model"),
    ("layers", None),
    ("embed", "fsdp"),
    ("vocab", "model"),
    ("heads", "model"),
    ("kv_heads", "model"),
    ("mlp", "model"),
    ("activation_embed", None),
)


@dataclasses.dataclass(frozen=True)
class Partitioner:
    """A mesh and the rules that map logical axes to it.

    Attributes:
      mesh: devices along the axes `data` (parameters replicated), `fsdp` (parameters sharded, and
        gathered for use) and `model` (tensor parallelism).
      rules: logical axis to mesh axis; the first rule for a name applies. A name without a rule is
        an error, so that a new axis is never replicated by mistake.
    """

    mesh: Mesh
    rules: Rules = DEFAULT_RULES

    def spec(self, axes: Sequence[str | None], shape: Sequence[int] | None = None) -> PartitionSpec:
        """The mesh axes that an array's logical axes are sharded over.

        Args:
          axes: logical name of each axis; None is never sharded.
          shape: the array's shape. An axis that its mesh axes don't divide is not sharded (a norm's
            512 values over 96 devices, 2 key heads over 8).

        Returns:
          One entry per axis.

        Raises:
          ValueError: a name has no rule.
        """
        return _spec(dict(self.mesh.shape), self.rules, axes, shape)

    def shardings(self, axes: Any, shapes: Any) -> Any:
        """Shardings for a tree of arrays.

        Args:
          axes: tree whose leaves are tuples of logical axis names.
          shapes: the same tree of arrays or `jax.ShapeDtypeStruct`.

        Returns:
          The same tree of `NamedSharding`.
        """
        return jax.tree.map(
            lambda names, array: NamedSharding(self.mesh, self.spec(names, array.shape)),
            axes,
            shapes,
            is_leaf=is_axes,
        )

    @property
    def batch_sharding(self) -> NamedSharding:
        """The sharding of a batch's arrays, [batch, length]."""
        return NamedSharding(self.mesh, self.spec(("batch", "length")))

    @property
    def replicated(self) -> NamedSharding:
        """A full copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Makes `constrain` use this mesh and these rules for everything traced inside."""
        with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.rules):
            yield


def is_axes(leaf: object) -> bool:
    """Whether a tree node is a tuple of logical axis names."""
    return isinstance(leaf, tuple) and all(name is None or isinstance(name, str) for name in leaf)


def make_mesh(
    data: int = 1,
    fsdp: int = -1,
    model: int = 1,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """A mesh over all devices (or those given).

    At most one of the sizes may be -1, which stands for the number of remaining devices.

    Args:
      data: number of replicas of the parameters.
      fsdp: number of parameter shards that are gathered for use.
      model: number of tensor-parallel shards.
      devices: the devices; all devices of all processes by default.

    Returns:
      A mesh with the axes `MESH_AXES`.

    Raises:
      ValueError: the sizes don't multiply to the number of devices.
    """
    sizes = [data, fsdp, model]
    found = len(devices) if devices is not None else jax.device_count()
    if sizes.count(-1) == 1:
        rest = math.prod(s for s in sizes if s != -1)
        sizes[sizes.index(-1)] = found // rest if rest and found % rest == 0 else -1
    if math.prod(sizes) != found or min(sizes) < 1:
        raise ValueError(
            f"mesh data={data} × fsdp={fsdp} × model={model} does not match {found} devices: the "
            "product of the sizes must be that number (one of them may be -1)"
        )
    types = (AxisType.Auto,) * len(MESH_AXES)  # Flax's logical constraints need Auto, not Explicit
    if devices is None:
        return jax.make_mesh(tuple(sizes), MESH_AXES, axis_types=types)
    return Mesh(np.array(devices).reshape(sizes), MESH_AXES, axis_types=types)


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Shards an activation by its logical axes inside `Partitioner.activate`; else does nothing.

    Args:
      x: an array.
      *axes: one logical axis name, or None, for each of its axes.

    Returns:
      `x` with its sharding constrained.
    """
    if not nn.get_logical_axis_rules():
        return x
    return jax.lax.with_sharding_constraint(x, active_spec(axes, x.shape))


def active_spec(axes: Sequence[str | None], shape: Sequence[int]) -> PartitionSpec:
    """The mesh axes that logical axes are sharded over inside `Partitioner.activate`."""
    rules = tuple(nn.get_logical_axis_rules())
    return _spec(dict(jax.sharding.get_abstract_mesh().shape), rules, axes, shape)


def active_platform() -> str:
    """The platform that the traced program will run on: "tpu", "gpu" or "cpu".

    It is that of the mesh's devices, which may belong to a slice that is not present; without a
    mesh, JAX's default.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device is not None else jax.default_backend()


def _spec(
    sizes: dict[str, int],
    rules: Rules,
    axes: Sequence[str | None],
    shape: Sequence[int] | None,
) -> PartitionSpec:
    table = dict(reversed(rules))
    entries: list[str | tuple[str, ...] | None] = []
    used: set[str] = set()
    for i, name in enumerate(axes):
        if name is not None and name not in table:
            raise ValueError(
                f"logical axis {name!r} has no rule; known: {', '.join(sorted(table))}"
            )
        target = table[name] if name is not None else None
        names = (target,) if isinstance(target, str) else (target or ())
        size = math.prod(sizes[n] for n in names)
        cut = size > 1 and used.isdisjoint(names) and (shape is None or shape[i] % size == 0)
        entries.append(target if cut else None)
        used.update(names if cut else ())
    return PartitionSpec(*entries)

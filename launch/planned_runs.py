"""Builds the parts of a run that planning needs from gin files, without data if possible."""

import dataclasses
import math
import pathlib
from typing import Any

import configuration
import gin
import gin_files
import jax
import jax.numpy as jnp
import numpy as np

from gophercite.learning.a2c import A2CLearner
from gophercite.learning.reward import RewardLearner
from gophercite.learning.supervised import SupervisedLearner
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.planning.chips import Topology
from gophercite.training.feed import batch_sharding, refuse_uneven
from gophercite.training.program import Program

_AXES = ("data", "fsdp", "model")


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """A run's step on a slice.

    Attributes:
      program: the compiled step, on a mesh over the slice.
      batch: shapes with shardings.
      parameters: number of the model's parameters.
      needed_flops: operations of a step by analysis, as if all parameters were trained; None if
        unknown.
      turns: iterations of loops whose end depends on data, by name.
    """

    program: Program
    batch: Any
    parameters: int
    needed_flops: float | None
    turns: dict[str, int]


def planned_run(topology: Topology) -> PlannedRun:
    """Builds what gin files describe for a slice.

    Supervised fine-tuning and reward models are built from shapes alone. Other runs are built as
    they would be trained, with their models and their first batch.

    Raises:
      ValueError: the slice can't be divided in this way, or something is missing.
    """
    cuts = {axis: _setting(f"partitioner.{axis}") for axis in _AXES}
    mesh = make_mesh(
        **{axis: size for axis, size in cuts.items() if size is not None}, devices=topology.devices
    )
    partitioner = Partitioner(mesh)
    for axis, size in (("data", 1), ("fsdp", -1), ("model", 1)):
        gin.bind_parameter(f"partitioner.{axis}", size)  # for what is built on this machine
    selector = gin.query_parameter("Run.learner").selector.rpartition(".")[2]
    if selector in ("SupervisedLearner", "RewardLearner"):
        return _of_shapes(partitioner)
    return _built(partitioner)


def _of_shapes(partitioner: Partitioner) -> PlannedRun:
    _, folder = gin_files.follow("INITIAL_CHECKPOINT", _macro("INITIAL_CHECKPOINT"))
    if folder is not None and not pathlib.Path(str(folder)).is_dir():
        gin.bind_parameter("INITIAL_CHECKPOINT/gin.macro.value", None)  # its values don't matter
    learner = _made("Run.learner")
    initialisation = _made("Run.initialisation")
    config = learner.transformer.config
    if isinstance(learner, RewardLearner):
        rows, length = (_setting(f"ComparisonInput.{name}") for name in ("batch_size", "length"))
        shapes = {
            "tokens": ((rows, 2, length), jnp.int32),
            "lengths": ((rows, 2), jnp.int32),
            "preferred": ((rows,), jnp.float32),
            "preferred_weights": ((rows,), jnp.float32),
            "supported_and_plausible": ((rows, 2), jnp.float32),
            "label_weights": ((rows, 2), jnp.float32),
        }
        needed = config.training_flops(2 * rows, length)
    else:
        assert isinstance(learner, SupervisedLearner)
        rows, length = (_setting(f"Input.{name}") for name in ("batch_size", "length"))
        names = ("tokens", "targets", "positions", "segments")
        shapes = dict.fromkeys(names, ((rows, length), jnp.int32))
        shapes["weights"] = ((rows, length), jnp.float32)
        needed = config.training_flops(rows, length)
    refuse_uneven(partitioner, rows)
    batch = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(partitioner, len(shape)))
        for name, (shape, dtype) in shapes.items()
    }
    program = Program(learner, initialisation, partitioner)
    return PlannedRun(program, batch, config.parameters, needed, {})


def _built(partitioner: Partitioner) -> PlannedRun:
    run = configuration.build()
    if run.collector is not None:
        raise ValueError("runs that browse collect on the host: plan their updates by --dry_run")
    first = next(run.input.batches())
    refuse_uneven(partitioner, run.input.batch_size)

    def rows(array: np.ndarray) -> jax.ShapeDtypeStruct:
        place = batch_sharding(partitioner, array.ndim)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)

    def whole(array: np.ndarray) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=partitioner.replicated)

    batch = {
        name: rows(part) if isinstance(part, np.ndarray) else jax.tree.map(whole, part)
        for name, part in first.items()
    }
    program = Program(run.learner, run.initialisation, partitioner)
    turns = {}
    if isinstance(run.learner, A2CLearner):
        turns["phase.sampling"] = run.learner.plan.settings.max_tokens
    return PlannedRun(program, batch, run.transformer.config.parameters, None, turns)


def cuts_of(devices: int) -> list[int]:
    """The tensor-parallel degrees that a search tries: powers of two that divide the devices."""
    return [2**power for power in range(int(math.log2(devices)) + 1) if devices % 2**power == 0]


def _made(parameter: str) -> Any:
    """The object that the configuration's reference builds."""
    return gin.query_parameter(parameter).scoped_configurable_fn()


def _setting(parameter: str) -> Any:
    """A parameter's value, with macros followed; None if nothing sets it."""
    try:
        value = gin.query_parameter(parameter)
    except ValueError:
        return None
    return gin_files.follow(parameter, value)[1]


def _macro(name: str) -> Any:
    return gin.config._CONFIG.get((name, "gin.macro"), {}).get("value")

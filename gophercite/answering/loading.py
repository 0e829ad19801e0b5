"""Loads an answerer from folders, its models on one device or sharded over several."""

import dataclasses
from collections.abc import Callable
from concurrent import futures

import jax
from etils import epath

from gophercite.answering.answerer import Answerer
from gophercite.answering.settings import AnsweringSettings
from gophercite.model_folders.description import model_digest
from gophercite.model_folders.folder import (
    Model,
    begin_loading,
    load_model,
    load_reward_model,
)
from gophercite.model_folders.placement import folder_shardings
from gophercite.models.parameters import Params
from gophercite.native import load_numba
from gophercite.partitioning import Partitioner, make_mesh


def inference_partitioner(model_parallel: int = 1, data_parallel: int = 1) -> Partitioner | None:
    """Shards inference over this process's devices, or over all devices of several processes.

    The latter if several processes have joined one another, and the numbers multiply to all of
    their devices: all then answer the same questions together.

    Parameters are replicated along the data axis, not gathered: gathering them for each token would
    take longer than it saves.

    Args:
      model_parallel: number of devices that each model is sharded over, along heads, MLP and
        vocabulary.
      data_parallel: number of copies of the models, each with a share of the prompts, or of the
        samples of each prompt, where it divides these.

    Returns:
      The partitioner; None for a single device.

    Raises:
      ValueError: a number is less than 1, or there are fewer devices.
    """
    for name, value in (("model_parallel", model_parallel), ("data_parallel", data_parallel)):
        if value < 1:
            raise ValueError(f"{name} = {value}: must be at least 1")
    count, devices = model_parallel * data_parallel, jax.local_devices()
    if count == jax.device_count():
        devices = jax.devices()
    if count > len(devices):
        raise ValueError(
            f"model_parallel = {model_parallel} with data_parallel = {data_parallel} needs "
            f"{count} devices, and there {'is' if len(devices) == 1 else 'are'} {len(devices)}"
        )
    if count == 1:
        return None
    taken = devices[:count] if count < jax.device_count() else None
    return Partitioner(make_mesh(data_parallel, 1, model_parallel, taken))


def spans_processes(partitioner: Partitioner | None) -> bool:
    """Whether a mesh has devices of several processes."""
    if partitioner is None:
        return False
    return len({device.process_index for device in partitioner.mesh.devices.flat}) > 1


def load_models(
    model: epath.PathLike, reward_model: epath.PathLike | None, partitioner: Partitioner | None
) -> tuple[Model, Model | None]:
    """Loads a language model, and a reward model if there is one, onto a mesh.

    Args:
      model: folder of the language model, or of its training run.
      reward_model: folder of the reward model, if any.
      partitioner: where parameters go; None puts all on the first device.

    Returns:
      The language model, and the reward model.

    Raises:
      ValueError: the mesh does not divide a model's attention heads.
      ModelFolderError, TensorFileError, CheckpointError: there is no such model.
    """
    places = None if partitioner is None else folder_shardings(model, partitioner)
    judge = _judge(reward_model, partitioner)
    return load_model(model, shardings=places), judge


def _judge(folder: epath.PathLike | None, partitioner: Partitioner | None) -> Model | None:
    if folder is None:
        return None
    places = None
    if partitioner is not None:
        places = folder_shardings(folder, partitioner, with_heads=True)
    return load_reward_model(folder, shardings=places)


def load_answerer(
    model: epath.PathLike,
    settings: AnsweringSettings | None = None,
    *,
    reward_model: epath.PathLike | None = None,
    partitioner: Partitioner | None = None,
    wait: bool = True,
) -> Answerer:
    """Loads the models that answer; no device and no process ever holds more than its share.

    Args:
      model: folder of the language model, or of its training run.
      settings: how questions are answered.
      reward_model: folder of the reward model that chooses, if any.
      partitioner: where parameters go; None puts all on the first device.
      wait: whether to wait for the language model's parameters. Otherwise they are read while
        pages are found, prompts are built and the program is compiled, and the first answers raise
        what reading raises; and on a CPU they stay in the model's file where they can, which is
        for answering once (`begin_loading`). Processes that share a model always wait.

    Returns:
      The answerer.

    Raises:
      ValueError: the mesh does not divide a model's attention heads.
      ModelFolderError, TensorFileError, CheckpointError: there is no such model.
    """
    places = None if partitioner is None else folder_shardings(model, partitioner)
    coming: Callable[[], Params] | None = None
    beside = futures.ThreadPoolExecutor(3)
    try:
        beside.submit(load_numba)  # for the quote constraint
        # Before the model, because processes that share both must read them in the same order.
        judge = _judge(reward_model, partitioner)
        answering, params = begin_loading(model, beside, shardings=places, in_file=not wait)
        if wait or spans_processes(partitioner):
            answering = dataclasses.replace(answering, params=params.result())
        else:
            coming = params.result
    finally:
        beside.shutdown(wait=wait)
    return Answerer(
        answering,
        settings,
        str(model),
        reward_model=judge,
        reward_name=None if reward_model is None else str(reward_model),
        partitioner=partitioner,
        coming=coming,
        digests={
            "parameters_sha256": model_digest(model),
            "reward_model_sha256": None if reward_model is None else model_digest(reward_model),
        },
    )

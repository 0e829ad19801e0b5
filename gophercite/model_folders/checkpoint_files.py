"""Reads the arrays of a training checkpoint, each checked against its digest.

A checkpoint is a folder `checkpoints/STEP/` of a run. Orbax's item `state` holds named arrays with
one merged stack of layers ("params/trained_layers/mlp/up", "optimizer/…", "step", "key"); the item
`metadata` is JSON: shape, dtype and digest of every array, the input's position, and the metric by
which checkpoints are compared. Checkpoints are written in `gophercite.training.checkpoints`; they
are read here because a run's folder is also a model that inference can load.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from gophercite.model_folders.digests import Digest, digests
from gophercite.models.parameters import Params
from gophercite.storage.checkpoint_steps import checkpoints_folder, saved_steps
from gophercite.storage.paths import StorageError, naming_storage, trouble_of

PARAMETERS = "params/"
AVERAGES = "ema/"


class CheckpointError(RuntimeError):
    """A checkpoint can't be used; the message says which, why, and what to do."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint's files are incomplete or differ from what was saved."""


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """The metadata of one array."""

    shape: tuple[int, ...]
    dtype: str
    digest: Digest

    @classmethod
    def of(cls, array: jax.Array, digest: Digest) -> "StoredArray":
        """The metadata of an array that is about to be saved."""
        return cls(tuple(array.shape), str(array.dtype), digest)


@dataclasses.dataclass(frozen=True)
class Base:
    """The models that a run with adapters starts from, which its checkpoints don't contain.

    Attributes:
      lora: the adapters' settings (`LoRA.to_json`).
      digests: digests of these models' parameters (`folder.model_digest`), by role: "model", the
        one that is adapted, and "reward_model".
    """

    lora: Mapping[str, Any]
    digests: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Metadata:
    """A checkpoint's JSON item.

    Attributes:
      step: number of updates so far.
      frozen_layers: number of the merged stack's layers that were frozen; the optimiser's stacked
        arrays cover the rest.
      arrays: the arrays in the item `state`.
      progress: the training loop's JSON state (input position, early stopping).
      score: the metric that checkpoints are compared by, lower is better; None if the step was not
        evaluated.
      base: for a run with adapters; None if the arrays are the complete model.
    """

    step: int
    frozen_layers: int
    arrays: Mapping[str, StoredArray]
    progress: Mapping[str, Any]
    score: float | None
    base: Base | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON value to store: the contents and their SHA-256."""
        contents = dataclasses.asdict(self)
        return {"contents": contents, "sha256": _sha256(contents)}

    @classmethod
    def from_json(cls, stored: Any) -> "Metadata":
        """The inverse of `to_json`.

        Raises:
          ValueError: the contents don't match their hash.
          KeyError, TypeError: the contents are not a checkpoint's metadata.
        """
        contents = stored["contents"]
        if _sha256(contents) != stored["sha256"]:
            raise ValueError("the metadata differ from what was saved")
        arrays = {
            name: StoredArray(tuple(entry["shape"]), entry["dtype"], Digest(*entry["digest"]))
            for name, entry in contents["arrays"].items()
        }
        base = contents.get("base")
        found = None if base is None else Base(dict(base["lora"]), dict(base["digests"]))
        return cls(**{**contents, "arrays": arrays, "base": found})


def read_metadata(folder: epath.PathLike, step: int) -> Metadata:
    """A checkpoint's metadata.

    Args:
      folder: the run's folder.
      step: one of `saved_steps`.

    Returns:
      The metadata.

    Raises:
      DamagedCheckpointError: the item is missing, truncated or altered.
      StorageError: its bucket can't be used, which does not mean that the checkpoint is damaged.
    """
    path = checkpoints_folder(folder) / str(step) / "metadata" / "metadata"
    try:
        with naming_storage(path):
            text = path.read_text()
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise _damaged(path, "the file is missing", step) from error
    except OSError as error:
        raise _damaged(path, f"can't be read: {error.strerror or error}", step) from error
    except UnicodeDecodeError as error:
        raise _damaged(path, "is damaged: it is not text", step) from error
    try:
        return Metadata.from_json(json.loads(text))
    except json.JSONDecodeError as error:
        reason = (
            "is empty"
            if not text.strip()
            else (f"is cut short or damaged: it is not JSON ({error})")
        )
        raise _damaged(path, reason, step) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, "is damaged: it is not what was saved", step) from error


def read_arrays(
    folder: epath.PathLike, metadata: Metadata, shardings: Mapping[str, jax.sharding.Sharding]
) -> dict[str, jax.Array]:
    """Some of a checkpoint's arrays, each checked against its digest.

    Args:
      folder: the run's folder.
      metadata: the checkpoint's metadata.
      shardings: sharding of each array to read, by name, on any mesh; each process reads only what
        its devices hold.

    Returns:
      The arrays, in the shapes and dtypes that were stored.

    Raises:
      DamagedCheckpointError: files are missing, unreadable, or differ from what was saved.
      StorageError: their bucket can't be used, which does not mean that the checkpoint is damaged.
    """
    import orbax.checkpoint as ocp  # takes 0.15 s to load, and model folders don't need it

    path = checkpoints_folder(folder) / str(metadata.step) / "state"
    wanted = {
        name: jax.ShapeDtypeStruct(
            metadata.arrays[name].shape, np.dtype(metadata.arrays[name].dtype), sharding=sharding
        )
        for name, sharding in shardings.items()
    }
    arguments = ocp.args.PyTreeRestore(
        item=wanted,
        restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
        partial_restore=True,
    )
    try:
        with waiting_event_loops(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            arrays = checkpointer.restore(path, args=arguments)
    except jax.errors.JaxRuntimeError:
        raise  # a problem of the devices (memory), not of the files
    except Exception as error:  # Orbax and TensorStore raise many kinds for an unreadable file
        trouble = trouble_of(path, error)
        if trouble is not None:
            raise trouble from error
        reason = "files are missing, cut short or damaged: the arrays can't be read"
        raise _damaged(path, reason, metadata.step) from error
    # If damage hides an array's files, Orbax returns the requested shape without reading anything.
    if arrays.keys() != wanted.keys() or not all(
        isinstance(array, jax.Array) for array in arrays.values()
    ):
        reason = "files are missing, cut short or damaged: not all arrays were read"
        raise _damaged(path, reason, metadata.step)
    found = digests(arrays)
    altered = [name for name in sorted(found) if found[name] != metadata.arrays[name].digest]
    if altered:
        more = f" and {len(altered) - 1} more arrays" if len(altered) > 1 else ""
        reason = f"{altered[0]}{more}: the bits differ from those that were saved"
        raise _damaged(path, reason, metadata.step)
    return arrays


class _PatientLoop(asyncio.SelectorEventLoop):
    """Waits for its tasks before it closes; what is cancelled would still report to it."""

    def close(self) -> None:
        if not self.is_closed() and not self.is_running() and (tasks := asyncio.all_tasks(self)):
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        super().close()


class _PatientPolicy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _PatientLoop()


@contextlib.contextmanager
def waiting_event_loops() -> Iterator[None]:
    """Lets Orbax close an event loop only when nothing reads or writes for it any more.

    Orbax reads or writes all arrays at once. When one fails, it closes the loop and raises, while
    TensorStore's threads are still busy with others. What they then report to the closed loop is
    printed as tracebacks, around the message that the user should see.
    """
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_PatientPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)


def best_step(folder: epath.PathLike) -> int | None:
    """The step with the best score among a run's readable checkpoints; the newest without scores.

    Args:
      folder: the run's folder.

    Returns:
      A step, or None if there is no checkpoint.
    """
    readable: list[Metadata] = []
    for step in saved_steps(folder):
        with contextlib.suppress(DamagedCheckpointError):
            readable.append(read_metadata(folder, step))
    return best_of(readable).step if readable else None


def best_of(checkpoints: Sequence[Metadata]) -> Metadata:
    """The checkpoint with the best score; the newest without scores."""
    return min(
        checkpoints, key=lambda one: (math.inf if one.score is None else one.score, -one.step)
    )


def read_parameters(folder: epath.PathLike, step: int, shardings: Params | None = None) -> Params:
    """A checkpoint's parameters, with one merged stack of layers.

    If the run kept a moving average of the trained parameters, this reads the average, because
    evaluations used it.

    Args:
      folder: the run's folder.
      step: one of `saved_steps`.
      shardings: tree like the merged parameters; the first device when None.

    Returns:
      The parameters, as nested dictionaries.

    Raises:
      DamagedCheckpointError: as in `read_arrays`.
    """
    metadata = read_metadata(folder, step)
    names = [name for name in metadata.arrays if name.startswith(PARAMETERS)]
    if shardings is None:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        places: dict[str, jax.sharding.Sharding] = dict.fromkeys(names, here)
    else:
        places = {PARAMETERS + name: leaf for name, leaf in name_leaves(shardings).items()}
    means = {AVERAGES + name.removeprefix(PARAMETERS): name for name in places}
    means = {mean: name for mean, name in means.items() if mean in metadata.arrays}
    arrays = read_arrays(folder, metadata, places | {mean: places[means[mean]] for mean in means})
    for mean, name in means.items():
        join = jax.jit(_put_last, out_shardings=places[name])
        arrays[name] = join(arrays[name], arrays.pop(mean))
    params: Params = {}
    for name, array in arrays.items():
        *path, last = name.removeprefix(PARAMETERS).split("/")
        part = params
        for key in path:
            part = part.setdefault(key, {})
        part[last] = array
    return params


def _put_last(array: jax.Array, mean: jax.Array) -> jax.Array:
    """Puts the averages into an array; if a stack's first layers are frozen, into the last ones."""
    mean = mean.astype(array.dtype)
    if mean.shape == array.shape:
        return mean
    return jnp.concatenate([array[: -mean.shape[0]], mean])


def name_leaves(tree: Any) -> dict[str, Any]:
    """A tree's leaves by their paths: "params/embed/embedding"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _sha256(contents: Any) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _damaged(path: epath.Path, reason: str, step: int) -> DamagedCheckpointError:
    """The error for users; the library's own message stays in the exception's cause."""
    return DamagedCheckpointError(
        f"{path}: {reason}; copy checkpoint {step} again, or move it away to use the others"
    )

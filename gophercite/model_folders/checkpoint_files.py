"""Reads the arrays of a training checkpoint, each checked against its digest.

A checkpoint is a folder `checkpoints/STEP/` of a run. Orbax's item `state` holds named arrays with
one merged stack of layers ("params/trained_layers/mlp/up", "optimizer/…", "step", "key"); the item
`metadata` is JSON: shape, dtype and digest of every array, the input's position, and the metric by
which checkpoints are compared. If a state was evaluated only after it was saved, the result is in
`evaluation.json` beside them. Checkpoints are written in `gophercite.training.checkpoints`; they
are read here because a run's folder is also a model that inference can load.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from gophercite.model_folders.checkpoint_errors import (
    DamagedCheckpointError,
    damaged,
    share_damage,
    unusable,
)
from gophercite.model_folders.checkpoint_scores import Score, ranking
from gophercite.model_folders.digests import Digest, digests
from gophercite.model_folders.event_loops import waiting_event_loops
from gophercite.models.parameters import Params
from gophercite.storage.checkpoint_steps import checkpoints_folder, saved_steps
from gophercite.storage.paths import StorageError, naming_storage, trouble_of, write_file

PARAMETERS = "params/"
AVERAGES = "ema/"
_EVALUATION = "evaluation.json"

T = TypeVar("T")


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
      score: what checkpoints are compared by; None if the step was not evaluated.
      base: for a run with adapters; None if the arrays are the complete model.
    """

    step: int
    frozen_layers: int
    arrays: Mapping[str, StoredArray]
    progress: Mapping[str, Any]
    score: Score | None
    base: Base | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON value to store: the contents and their SHA-256."""
        score = None if self.score is None else self.score.to_json()
        return _sealed({**dataclasses.asdict(self), "score": score})

    @classmethod
    def from_json(cls, stored: Any) -> "Metadata":
        """The inverse of `to_json`.

        Raises:
          ValueError: the contents don't match their hash.
          KeyError, TypeError: the contents are not a checkpoint's metadata.
        """
        contents = _unsealed(stored)
        arrays = {
            name: StoredArray(tuple(entry["shape"]), entry["dtype"], Digest(*entry["digest"]))
            for name, entry in contents["arrays"].items()
        }
        base = contents.get("base")
        found = None if base is None else Base(dict(base["lora"]), dict(base["digests"]))
        score = Score.from_json(contents["score"])
        return cls(**{**contents, "arrays": arrays, "score": score, "base": found})


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    """The evaluation of a state that had been saved before: what it changes in the metadata."""

    progress: Mapping[str, Any]
    score: Score

    def to_json(self) -> dict[str, Any]:
        return _sealed({"progress": self.progress, "score": self.score.to_json()})

    @classmethod
    def from_json(cls, stored: Any) -> "_Evaluation":
        contents = _unsealed(stored)
        score = Score.from_json(contents["score"])
        if score is None:
            raise ValueError("there is no score")
        return cls(contents["progress"], score)


def read_metadata(folder: epath.PathLike, step: int) -> Metadata:
    """A checkpoint's metadata.

    Args:
      folder: the run's folder.
      step: one of `saved_steps`.

    Returns:
      The metadata.

    Raises:
      DamagedCheckpointError: the item is missing, truncated or altered.
      UnreadableCheckpointError: the system refuses to open it.
      StorageError: its bucket can't be used, which does not mean that the checkpoint is damaged.
    """
    place = checkpoints_folder(folder) / str(step)
    path = place / "metadata" / "metadata"
    metadata = _read(path, step, Metadata.from_json)
    if metadata is None:
        raise damaged(path, "the file is missing", step)
    later = _read(place / _EVALUATION, step, _Evaluation.from_json)
    if later is None:
        return metadata
    return dataclasses.replace(metadata, progress=later.progress, score=later.score)


def write_evaluation(
    folder: epath.PathLike, step: int, progress: Mapping[str, Any], score: Score
) -> None:
    """Adds an evaluation to a checkpoint that was saved without one.

    Args:
      folder: the run's folder.
      step: one of `saved_steps`.
      progress: replaces the progress that was saved.
      score: the state's score.

    Raises:
      StorageError: the bucket can't be used.
    """
    text = json.dumps(_Evaluation(progress, score).to_json())
    write_file(checkpoints_folder(folder) / str(step) / _EVALUATION, text)


def _read(path: epath.Path, step: int, parse: Callable[[Any], T]) -> T | None:
    """What one of a checkpoint's JSON files holds; None if there is no such file."""
    try:
        with naming_storage(path):
            text = path.read_text()
    except StorageError:
        raise
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, f"can't be read: {error.strerror or error}", step) from error
    except UnicodeDecodeError as error:
        raise damaged(path, "is damaged: it is not text", step) from error
    try:
        return parse(json.loads(text))
    except json.JSONDecodeError as error:
        reason = (
            "is empty"
            if not text.strip()
            else (f"is cut short or damaged: it is not JSON ({error})")
        )
        raise damaged(path, reason, step) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, "is damaged: it is not what was saved", step) from error


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
      DamagedCheckpointError: files are missing, or differ from what was saved.
      UnreadableCheckpointError: the system refuses to open some.
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
    damage = None
    try:
        # Not by a `Checkpointer`, which then waits for the other processes: one that finds damage
        # would not come.
        with waiting_event_loops(), contextlib.closing(ocp.PyTreeCheckpointHandler()) as handler:
            arrays = handler.restore(path, args=arguments)
    except jax.errors.JaxRuntimeError:
        raise  # a problem of the devices (memory), not of the files
    except Exception as error:  # Orbax and TensorStore raise many kinds for an unreadable file
        trouble = trouble_of(path, error)
        if trouble is not None:
            raise trouble from error
        reason = "files are missing, cut short or damaged: the arrays can't be read"
        damage = unusable(path, reason, metadata.step)
        damage.__cause__ = error
    else:
        # If damage hides an array's files, Orbax returns the requested shape without reading it.
        if arrays.keys() != wanted.keys() or not all(
            isinstance(array, jax.Array) for array in arrays.values()
        ):
            reason = "files are missing, cut short or damaged: not all arrays were read"
            damage = unusable(path, reason, metadata.step)
    share_damage(damage, path, metadata.step)
    found = digests(arrays)
    altered = [name for name in sorted(found) if found[name] != metadata.arrays[name].digest]
    if altered:
        more = f" and {len(altered) - 1} more arrays" if len(altered) > 1 else ""
        reason = f"{altered[0]}{more}: the bits differ from those that were saved"
        raise damaged(path, reason, metadata.step)
    return arrays


def best_step(folder: epath.PathLike) -> int | None:
    """The step of the best of a run's readable checkpoints (`best_of`).

    Args:
      folder: the run's folder.

    Returns:
      A step, or None if there is no checkpoint within the limits.
    """
    readable: list[Metadata] = []
    for step in saved_steps(folder):
        with contextlib.suppress(DamagedCheckpointError):
            readable.append(read_metadata(folder, step))
    best = best_of(readable)
    return None if best is None else best.step


def best_of(checkpoints: Sequence[Metadata]) -> Metadata | None:
    """The checkpoint with the best score; without scores the newest, unless it is beyond a limit.

    Args:
      checkpoints: those of one run.

    Returns:
      One of them; None if there is none within the limits of early stopping.
    """
    by_step = {each.step: each for each in checkpoints}
    ranked = ranking({step: each.score for step, each in by_step.items() if each.score})
    if ranked:
        return by_step[ranked[0]]
    within = [step for step, each in by_step.items() if not (each.score and each.score.beyond)]
    return by_step[max(within)] if within else None


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


def _sealed(contents: Mapping[str, Any]) -> dict[str, Any]:
    return {"contents": contents, "sha256": _sha256(contents)}


def _unsealed(stored: Any) -> Any:
    contents = stored["contents"]
    if _sha256(contents) != stored["sha256"]:
        raise ValueError("the contents differ from what was saved")
    return contents


def _sha256(contents: Any) -> str:
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()

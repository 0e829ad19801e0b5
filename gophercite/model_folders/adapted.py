"""A training run's folder that holds only adapters: the base model is in another folder.

The run's `model.json` names that folder (field `base`), and each of its checkpoints identifies the
base model's parameters (`checkpoint_files.Base`). Adapters of another model would load, but give
nonsense.
"""

from typing import NamedTuple

import jax
from etils import epath

from gophercite.model_folders.checkpoint_files import PARAMETERS, Metadata, read_parameters
from gophercite.model_folders.folder_contents import (
    DESCRIPTION,
    ModelFolderError,
    best_checkpoint,
    check_arrays,
)
from gophercite.models.lora import LoRA
from gophercite.models.parameters import ADAPTERS, HEADS, TRAINED, Params, depth

MODEL = "model"  # key of the adapted model among a run's bases


class Adapted(NamedTuple):
    """The best checkpoint of a run with adapters.

    Attributes:
      step: the checkpoint's step.
      lora: the adapters' settings.
      shapes: shapes of the checkpoint's parameters: adapters, and a reward model's heads.
    """

    step: int
    lora: LoRA
    shapes: Params


def find_adapters(root: epath.Path, merged: Params, base: str, digest: str) -> Adapted:
    """The adapters of a run's best checkpoint, which must fit the base model.

    Args:
      root: the run's folder.
      merged: shapes of the merged model's parameters, with one stack of layers.
      base: the base model's folder.
      digest: digest of its parameters (`parameters_digest`).

    Returns:
      The checkpoint's step and the adapters' settings and shapes.

    Raises:
      ModelFolderError: there is no checkpoint, it holds something else, or the base is not the
        model that the adapters were trained on.
      CheckpointError: the checkpoint is damaged.
    """
    metadata = best_checkpoint(root)
    if metadata.base is None:
        raise ModelFolderError(
            f"{root / DESCRIPTION}: field 'base' names a model, but checkpoint {metadata.step} "
            "holds a complete model"
        )
    trained_on = metadata.base.digests.get(MODEL)
    if trained_on != digest:
        raise ModelFolderError(
            f"{root}: the adapters were trained on another model than the one that is now in "
            f"{base} (the hash of its parameters is {digest[:12]}, not {str(trained_on)[:12]}): "
            "put the old model back, or write its new path to field 'base' of "
            f"{root / DESCRIPTION}"
        )
    try:
        lora = LoRA(**metadata.base.lora)
        adapters = _adapters(metadata, lora, merged[TRAINED])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"{root}: checkpoint {metadata.step}: adapters: {error}") from error
    shapes = {ADAPTERS: adapters, **({HEADS: merged[HEADS]} if HEADS in merged else {})}
    check_arrays(root, metadata, shapes)
    return Adapted(metadata.step, lora, shapes)


def merge_checkpoint(
    root: epath.Path, adapted: Adapted, base: Params, shardings: Params, dtype: str
) -> Params:
    """The merged parameters of a run with adapters.

    Args:
      root: the run's folder.
      adapted: the result of `find_adapters`.
      base: the base model's parameters, with one stack of layers.
      shardings: shardings of the merged parameters, with one stack of layers.
      dtype: dtype of the matrices that the adapters change.

    Returns:
      The merged parameters with these shardings, and heads as stored.
    """
    whole = _whole(shardings["embed"]["embedding"])
    places: Params = {ADAPTERS: jax.tree.map(lambda _: whole, adapted.shapes[ADAPTERS])}
    if HEADS in adapted.shapes:
        places[HEADS] = shardings[HEADS]
    own = read_parameters(root, adapted.step, places)
    return adapted.lora.merge({**base, **own}, dtype)


def _adapters(metadata: Metadata, lora: LoRA, layers: Params) -> Params:
    """Shapes of the adapters that a checkpoint must hold, for its number of adapted layers."""
    of_first = metadata.arrays[f"{PARAMETERS}{ADAPTERS}/{lora.targets[0]}/a"]
    below = depth(layers) - of_first.shape[0]
    key = jax.random.key(0)
    shapes: Params = jax.eval_shape(lambda layers: lora.init(key, layers, below), layers)
    return shapes


def _whole(sharding: jax.sharding.Sharding) -> jax.sharding.Sharding:
    """Replicates over a sharding's devices."""
    if isinstance(sharding, jax.sharding.NamedSharding):
        return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return sharding

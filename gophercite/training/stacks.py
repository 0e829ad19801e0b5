"""Converts a training state to named arrays and back, with any number of frozen layers.

Checkpoints hold one stack of all layers. For the optimiser (and for averages of the parameters)
they hold only the arrays of the trained layers, which are the last ones of the stack. A run that
freezes fewer layers starts fresh on the newly trained ones; one that freezes more drops the newly
frozen ones. For a run with adapters, checkpoints don't hold the base model's parameters: they are
read again from the base model.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.checkpoint_files import Metadata, name_leaves
from gophercite.models.parameters import (
    FROZEN,
    Params,
    frozen_layers,
    merge_layers,
    own_parts,
    split_layers,
)


def state_tree(state: TrainState) -> dict[str, Any]:
    """A state as stored in a checkpoint: parameters with one stack of layers, the key as integers.

    A state with adapters is stored without the base model's parameters.

    Args:
      state: the state's arrays.

    Returns:
      A tree whose leaf names (`name_leaves`) are those of the stored arrays.
    """
    params = own_parts(state.params)
    params = jax.jit(merge_layers)(params) if FROZEN in params else params
    return {
        "step": state.step,
        "params": params,
        "optimizer": state.optimizer,
        "ema": state.ema,
        "key": jax.random.key_data(state.key),
    }


def stored_shardings(metadata: Metadata, target: TrainState) -> dict[str, jax.sharding.Sharding]:
    """The checkpoint arrays that a run restores, with their shardings.

    Args:
      metadata: the checkpoint's metadata.
      target: the run's state as shapes with shardings; the layer axis must not be sharded.

    Returns:
      A sharding for each array to read.

    Raises:
      CheckpointError: the optimiser is of another kind, or the run trains with averages and the
        checkpoint has none.
    """
    shardings = _target_shardings(target)
    parts = set(target.params) - {FROZEN}
    stored_names = set(metadata.arrays)
    for part in [None, *sorted(parts)]:
        here = {name for name in shardings if _part(name, parts) == part}
        there = {name for name in stored_names if _part(name, parts) == part}
        state_here = {name for name in here if not name.startswith("params/")}
        state_there = {name for name in there if not name.startswith("params/")}
        # A part trained in only one of the runs is fresh or dropped; if trained in both, it must
        # match.
        if state_here and state_there and state_here != state_there:
            odd = sorted(state_here ^ state_there)[0]
            where = "this run" if odd in state_here else "the checkpoint"
            raise CheckpointError(
                f"checkpoint {metadata.step} belongs to another optimiser: only {where} has "
                f"{odd}. Set MODEL_DIR to a new folder, or configure the optimiser as before"
            )
    return {name: place for name, place in shardings.items() if name in stored_names}


def assemble(
    metadata: Metadata,
    arrays: dict[str, jax.Array],
    target: TrainState,
    fresh: Any,
    first: Callable[[], Params],
) -> TrainState:
    """Builds a state from a checkpoint's arrays, with layers split where this run freezes.

    Args:
      metadata: the checkpoint's metadata.
      arrays: the arrays named by `stored_shardings`; they may be donated.
      target: the run's state as shapes with shardings.
      fresh: creates a state from parameters and a key; called only if something starts fresh.
      first: creates the run's initial parameters; called only for those that no checkpoint holds.

    Returns:
      The state, with the target's shardings.
    """
    frozen = frozen_layers(target.params)
    own = own_parts(target.params)
    params = _build(jax.eval_shape(merge_layers, own), "params/", arrays)
    key = jax.random.wrap_key_data(arrays["key"])
    if FROZEN in own:
        split = jax.jit(
            split_layers,
            static_argnums=1,
            out_shardings=jax.tree.map(lambda leaf: leaf.sharding, target.params),
        )
        params = split(params, frozen)
    if len(own) < len(target.params):
        params = {**first(), **params}
    rest = {"optimizer": target.optimizer, "ema": target.ema}
    names = name_leaves(rest)
    missing = [name for name in names if name not in arrays]
    if missing or frozen < metadata.frozen_layers:
        new = jax.jit(fresh, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, target))(
            params, key
        )
        starts = name_leaves({"optimizer": new.optimizer, "ema": new.ema})
    else:
        starts = {}
    found = {
        name: _fit(arrays.get(name), starts.get(name), wanted) for name, wanted in names.items()
    }
    built = _build(rest, "", found)
    return TrainState(
        step=arrays["step"],
        params=params,
        optimizer=built["optimizer"],
        ema=built["ema"],
        key=key,
    )


def _fit(
    stored: jax.Array | None, fresh: jax.Array | None, wanted: jax.ShapeDtypeStruct
) -> jax.Array:
    """An optimiser's array with the wanted number of layers, the last ones from the checkpoint."""
    if stored is None:
        assert fresh is not None
        return fresh
    if stored.shape == wanted.shape:
        return stored
    surplus = stored.shape[0] - wanted.shape[0]
    if stored.shape[1:] != wanted.shape[1:]:
        raise CheckpointError(
            f"the optimiser's array of shape {list(stored.shape)} does not fit this run's "
            f"{list(wanted.shape)}: its settings were changed"
        )

    def last_layers(stored: jax.Array) -> jax.Array:
        return stored[surplus:]

    def after_fresh(stored: jax.Array, fresh: jax.Array) -> jax.Array:
        return jnp.concatenate([fresh[:-surplus], stored])

    if surplus > 0:
        return jax.jit(last_layers, out_shardings=wanted.sharding)(stored)
    return jax.jit(after_fresh, out_shardings=wanted.sharding)(stored, fresh)


def _target_shardings(target: TrainState) -> dict[str, jax.sharding.Sharding]:
    """Shardings by stored name; the merged stack is sharded like the trained one."""
    own = own_parts(target.params)
    params = {name: part for name, part in own.items() if name != FROZEN}
    tree = {
        "step": target.step,
        "params": params,
        "optimizer": target.optimizer,
        "ema": target.ema,
        "key": target.key,
    }
    return {name: leaf.sharding for name, leaf in name_leaves(tree).items()}


def _build(like: Any, prefix: str, arrays: dict[str, jax.Array]) -> Any:
    """A tree like another one, with arrays looked up by the leaves' names."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: arrays[prefix + jax.tree_util.keystr(path, simple=True, separator="/")],
        like,
    )


def _part(name: str, parts: set[str]) -> str | None:
    """The part of the model that a stored array belongs to; None for counts, step and key."""
    return next((key for key in name.split("/") if key in parts), None)

"""Parameters of small models: JAX takes a second to draw them, all of it compiling."""

import functools

import jax
import numpy as np

from gophercite.models.parameters import ADAPTERS, Params
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.models.value_head import ValueHead


def drawn_parameters(model: Transformer, seed: int = 0, frozen_layers: int = 0) -> Params:
    """Parameters that are distributed like those of `Transformer.init`, drawn by NumPy."""
    config, rng = model.config, np.random.default_rng(seed)
    branch = (2 * config.num_layers) ** -0.5
    norm = 0.0 if config.zero_centered_norms else 1.0

    def draw(path: tuple[jax.tree_util.DictKey, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = path[-1].key
        if name.endswith("bias") or (name == "b" and path[0].key == ADAPTERS):
            return np.zeros(leaf.shape, leaf.dtype)
        if name.endswith(("norm", "scale")):
            return np.full(leaf.shape, norm, leaf.dtype)
        fan_in = config.d_model if path[0].key == "embed" else leaf.shape[-2]
        std = fan_in**-0.5 * (branch if name in ("out", "down") else 1.0)
        return (std * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    return jax.device_put(jax.tree_util.tree_map_with_path(draw, _shapes(model, frozen_layers)))


def drawn_heads(model: RewardModel, seed: int = 0) -> Params:
    """Heads that are distributed like those of `RewardModel.init_heads`, drawn by NumPy."""
    rng, width = np.random.default_rng(seed), model.transformer.config.d_model

    def draw(path: tuple[jax.tree_util.DictKey, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        std = 0.0 if path[-1].key == "bias" else (width + 1) ** -0.5
        return (std * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    return jax.device_put(jax.tree_util.tree_map_with_path(draw, model.abstract_heads()))


def drawn_value_head(head: ValueHead, seed: int = 0) -> Params:
    """A head that is distributed like those of `ValueHead.init`, drawn by NumPy."""
    rng = np.random.default_rng(seed)

    def draw(path: tuple[jax.tree_util.DictKey, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        is_zero = path[0].key == "last" or path[-1].key == "bias"
        std = 0.0 if is_zero else (2 / leaf.shape[0]) ** 0.5
        return (std * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    return jax.device_put(jax.tree_util.tree_map_with_path(draw, head.abstract()))


@functools.cache
def _shapes(model: Transformer, frozen_layers: int) -> Params:
    return model.abstract(frozen_layers)

"""Per-layer settings as arrays to scan over, so that all layers share one program."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from gophercite.models.config import TransformerConfig
from gophercite.models.lora import with_adapters
from gophercite.models.parameters import ADAPTERS, FROZEN, TRAINED, Params, frozen_layers
from gophercite.models.positions import rotation_kinds, rotation_of_layers

Settings = dict[str, Array]


def layer_settings(config: TransformerConfig) -> Settings:
    """The settings that differ between an architecture's layers, each [layers].

    Settings that are the same for all layers are compiled into the program.
    """
    settings: Settings = {}
    if len(rotation_kinds(config)) > 1:
        settings["rotation"] = jnp.asarray(rotation_of_layers(config), jnp.int32)
    if isinstance(config.window, tuple):
        everything = jnp.iinfo(jnp.int32).max
        windows = [everything if w is None else w for w in config.window]
        settings["window"] = jnp.asarray(windows, jnp.int32)
    return settings


def stack_settings(config: TransformerConfig, params: Params) -> tuple[Settings, Settings]:
    """The settings of the frozen and of the trained stack of some parameters."""
    frozen = frozen_layers(params)
    settings = layer_settings(config)
    return (
        {name: values[:frozen] for name, values in settings.items()},
        {name: values[frozen:] for name, values in settings.items()},
    )


def stacks(config: TransformerConfig, params: Params) -> list[tuple[Any, Settings]]:
    """The existing stacks in order, each with its layers' settings.

    Adapters are included in the weights of their layers.
    """
    parts = zip((FROZEN, TRAINED), stack_settings(config, params), strict=True)
    of_layers = {**params, TRAINED: with_adapters(params[TRAINED], params.get(ADAPTERS))}
    return [(of_layers[part], settings) for part, settings in parts if part in params]

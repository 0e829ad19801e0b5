"""Settings that differ from layer to layer, as arrays to scan over: one program for all layers."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from gophercite.models.config import TransformerConfig
from gophercite.models.lora import with_adapters
from gophercite.models.parameters import ADAPTERS, FROZEN, TRAINED, Params, frozen_layers
from gophercite.models.positions import rotation_kinds, rotation_of_layers

Settings = dict[str, Array]


def layer_settings(config: TransformerConfig) -> Settings:
    """The settings that an architecture gives layer by layer, each [layers]; those of all alike
    are the program's own.
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
    """Those of the frozen and of the trained stack of a tree of parameters."""
    frozen = frozen_layers(params)
    settings = layer_settings(config)
    return (
        {name: values[:frozen] for name, values in settings.items()},
        {name: values[frozen:] for name, values in settings.items()},
    )


def stacks(config: TransformerConfig, params: Params) -> list[tuple[Any, Settings]]:
    """The stacks that there are, in turn, each with its layers' settings.

    Layers that have adapters have them among their weights.
    """
    parts = zip((FROZEN, TRAINED), stack_settings(config, params), strict=True)
    of_layers = {**params, TRAINED: with_adapters(params[TRAINED], params.get(ADAPTERS))}
    return [(of_layers[part], settings) for part, settings in parts if part in params]

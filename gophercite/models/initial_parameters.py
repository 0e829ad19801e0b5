"""A model's random initial parameters, with the logical axes that determine their sharding."""

from typing import Any

import flax.linen as nn
import jax
from jaxtyping import Array, Key

from gophercite.models.block import Block
from gophercite.models.config import TransformerConfig
from gophercite.models.distance_biases import DISTANCE_BIASES
from gophercite.models.parameters import TRAINED, Params


def boxed_parameters(config: TransformerConfig, key: Key[Array, ""]) -> Params:
    """Draws a model's parameters, with one stack of layers.

    Args:
      config: the architecture.
      key: a typed PRNG key.

    Returns:
      Parameters in `config.param_dtype`, in Flax's boxes with the logical axes.
    """
    c = config
    embed_key, layer_key, unembed_key = jax.random.split(key, 3)
    block = Block(c)

    def layer(key: Array) -> Params:
        # Accessing any parameter runs `setup`, which declares all of them, so the layer itself need
        # not be run.
        return block.init(key, method=lambda block: block.query)["params"]

    def matrix(
        key: Array, shape: tuple[int, int], axes: tuple[str | None, str | None], std: float
    ) -> Any:
        init = nn.with_logical_partitioning(nn.initializers.normal(std), axes)
        return init(key, shape, c.param_dtype)

    def vector(value: float) -> Any:
        init = nn.with_logical_partitioning(nn.initializers.constant(value), ("embed",))
        return init(key, (c.d_model,), c.param_dtype)

    # Tied embeddings also compute the logits, so they start small unless logits are scaled.
    shape = (c.vocab_size, c.d_model)
    std = 1.0 if c.scale_logits else c.d_model**-0.5
    params = {
        "embed": {"embedding": matrix(embed_key, shape, ("vocab", "embed"), std)},
        TRAINED: jax.vmap(layer)(jax.random.split(layer_key, c.num_layers)),
        "final_norm": {"scale": vector(0.0 if c.zero_centered_norms else 1.0)},
    }
    if c.norm == "layer":
        params["final_norm"]["bias"] = vector(0.0)
    if c.max_positions is not None:
        places = (c.max_positions, c.d_model)
        key = jax.random.fold_in(embed_key, 1)
        params["embed"]["positions"] = matrix(key, places, (None, "embed"), c.d_model**-0.5)
    if c.distance_buckets is not None:
        table, key = (c.num_heads, c.distance_buckets), jax.random.fold_in(embed_key, 1)
        params["embed"][DISTANCE_BIASES] = matrix(key, table, (None, None), c.num_heads**-0.5)
    if not c.tied_embeddings:
        params["unembed"] = {
            "kernel": matrix(unembed_key, shape[::-1], ("embed", "vocab"), c.d_model**-0.5)
        }
    return params

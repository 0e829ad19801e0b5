"""How many samples are drawn at a time: as many as have room for their keys and values.

All samples of all prompts at once are the fastest, and with 64 samples of 256 tokens after each of
five pages their keys and values are many times what a large model's parameters take. A row whose
sample has ended goes on with the next one, so fewer rows cost little, and samples do not depend on
how many there are.
"""

import jax
import jax.numpy as jnp

from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Params

# Where nobody says how many, keys and values of rows may take half of what the parameters do, and
# a gibibyte in any case. Over a mesh both are cut alike, so that it holds on each device.
_SHARE_OF_PARAMETERS = 0.5
_LEAST_BYTES = 2**30


def bytes_per_token(config: TransformerConfig) -> int:
    """Bytes of a token's keys and values in all layers.

    Args:
      config: the model's.
    """
    channels = config.num_layers * config.kv_heads * config.head_dim
    return 2 * channels * jnp.dtype(config.dtype).itemsize


def usual_max_num_seqs(config: TransformerConfig, params: Params, max_tokens: int) -> int:
    """Samples that are drawn at a time where nobody says how many.

    Args:
      config: the model's.
      params: its parameters, or their shapes and dtypes.
      max_tokens: that a sample may have.

    Returns:
      How many have room for their keys and values in half of the bytes that the parameters have, or
      in 1 GiB where that is more; at least 1.
    """
    parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    room = max(_LEAST_BYTES, int(_SHARE_OF_PARAMETERS * parameters))
    return max(1, room // (max_tokens * bytes_per_token(config)))


def rows_per_prompt(max_num_seqs: int, prompts: int) -> int:
    """Each prompt's share of the samples that are drawn at a time: at least one."""
    return max(1, max_num_seqs // prompts)

"""How many samples are drawn at a time: as many as keep a device busy and have room there.

An accelerator reads its parameters for one sample as for hundreds, so a question's answers, and
those of several questions, are best drawn at once; but with 64 samples of 256 tokens after each of
five pages their keys and values are many times what a large model's parameters take. A row whose
sample has ended goes on with the next one, so fewer rows cost little, and samples do not depend on
how many there are.
"""

import jax
import jax.numpy as jnp

from gophercite.models.config import TransformerConfig
from gophercite.models.kernel_attention import has_kernel
from gophercite.models.parameters import Params

# Where nobody says how many, keys and values of rows may take half of what the parameters do, and
# a gibibyte in any case. Over a mesh both are cut alike, so that it holds on each device.
_SHARE_OF_PARAMETERS = 0.5
_LEAST_BYTES = 2**30

# Keys and values of rows, in bytes, that are worth a loop for each of three sizes, where no kernel
# reads them.
_WORTH_GROWING = 2**25

# Samples in flight from which on a pass takes longer the more there are. An accelerator can do
# hundreds of operations for each byte of the parameters that it reads (TPU v4, bfloat16: 230); a
# CPU has no such surplus, and waits longer for the last of many answers (benchmarks/batch_size.py).
_ON_CPU, _ON_ACCELERATOR = 64, 256


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
    return max(1, _room(params) // (max_tokens * bytes_per_token(config)))


def usual_batch_size(
    config: TransformerConfig, params: Params, prompt_tokens: int, samples: int, platform: str
) -> int:
    """Questions that are answered at a time where nobody says how many.

    Args:
      config: the model's.
      params: its parameters, or their shapes and dtypes.
      prompt_tokens: of all prompts of a question together, at most.
      samples: of a question.
      platform: what the model runs on: "cpu", "gpu" or "tpu".

    Returns:
      As many as have the samples that a device draws in little more time than one, if their
      prompts' keys and values have room where `usual_max_num_seqs` puts those of samples; at least
      1.
    """
    busy = _ON_CPU if platform == "cpu" else _ON_ACCELERATOR
    fit = _room(params) // (prompt_tokens * bytes_per_token(config))
    return max(1, min(busy // samples, fit))


def _room(params: Params) -> int:
    """Bytes for keys and values."""
    parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    return max(_LEAST_BYTES, int(_SHARE_OF_PARAMETERS * parameters))


def rooms(config: TransformerConfig, rows: int, room: int) -> tuple[int, ...]:
    """How many tokens' keys and values each sample has room for: at first, then, and in the end.

    A pass reads all of it, filled or not (a kernel does not), and most samples never need it all.

    Args:
      config: the model's.
      rows: samples in flight.
      room: tokens that a sample may have.

    Returns:
      Rising numbers, the last of them `room`: a quarter, a half and the whole; where that is little
      to read, or a kernel reads what is filled, the whole alone, as for each a loop is compiled.
    """
    if has_kernel(config) or room < 4 or rows * room * bytes_per_token(config) < _WORTH_GROWING:
        return (room,)
    return room // 4, room // 2, room


def rows_per_prompt(max_num_seqs: int, prompts: int) -> int:
    """Each prompt's share of the samples that are drawn at a time: at least one."""
    return max(1, max_num_seqs // prompts)

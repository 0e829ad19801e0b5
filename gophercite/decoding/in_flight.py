"""How many samples are drawn at a time: as many as keep a device busy and have room there.

An accelerator reads its parameters for one sample as for hundreds, so a question's answers, and
those of several questions, are best drawn at once; but with 64 samples of 256 tokens after each of
five pages their keys and values are many times what a large model's parameters take. A row whose
sample has ended goes on with the next one, and prompts take the places of those that are done, so
few rows cost little, and samples do not depend on how many there are.
"""

from typing import NamedTuple

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
# CPU has no such surplus (benchmarks/batch_size.py).
_ON_CPU, _ON_ACCELERATOR = 64, 256

# Questions are asked together until so many times as many answers are to be drawn: at the end of a
# batch its last ones have the device for themselves. But their tables have to be in memory, about a
# mebibyte for a page.
_TIMES_BUSY, _MOST_PROMPTS = 8, 256


def bytes_per_token(config: TransformerConfig) -> int:
    """Bytes of a token's keys and values in all layers.

    Args:
      config: the model's.
    """
    channels = config.num_layers * config.kv_heads * config.head_dim
    return 2 * channels * jnp.dtype(config.dtype).itemsize


class Slots(NamedTuple):
    """What is in flight at a time.

    Attributes:
      prompts: whose samples are drawn.
      rows: samples of each.
    """

    prompts: int
    rows: int


def usual_slots(
    config: TransformerConfig,
    params: Params,
    prompts: int,
    prompt_tokens: int,
    samples: int,
    max_tokens: int,
    platform: str,
) -> Slots:
    """What is in flight at a time where nobody says how much.

    Args:
      config: the model's.
      params: its parameters, or their shapes and dtypes.
      prompts: that there are.
      prompt_tokens: of each, at most.
      samples: of each, at most.
      max_tokens: that a sample may have.
      platform: what the model runs on: "cpu", "gpu" or "tpu".

    Returns:
      As much as keeps the device busy, at least one prompt's samples, as far as keys and values of
      the prompts and those of the samples have each room in half of the bytes that the parameters
      have, or in 1 GiB where that is more; at least one row.
    """
    cached = _cache_bytes(params) // bytes_per_token(config)  # tokens
    rows = min(samples, max(1, cached // max_tokens))
    fit = max(1, min(cached // prompt_tokens, cached // (max_tokens * rows)))
    busy = _ON_CPU if platform == "cpu" else _ON_ACCELERATOR
    wanted = 1 << (-(-busy // rows) - 1).bit_length()  # a power of two: to be cut over a mesh
    return Slots(min(prompts, wanted, 1 << (fit.bit_length() - 1)), rows)


def slots(max_num_seqs: int, prompts: int, samples: int) -> Slots:
    """What is in flight at a time where so many samples may be.

    Args:
      max_num_seqs: how many.
      prompts: that there are.
      samples: of each, at most.
    """
    rows = min(samples, max_num_seqs)
    return Slots(min(prompts, max_num_seqs // rows), rows)


def usual_batch_size(prompts: int, samples: int, platform: str) -> int:
    """Questions that are answered at a time where nobody says how many.

    Args:
      prompts: of a question, at most.
      samples: of a question.
      platform: what the model runs on: "cpu", "gpu" or "tpu".

    Returns:
      As many as have several times the samples that are in flight, and tables that have room in
      memory; at least 1.
    """
    busy = _ON_CPU if platform == "cpu" else _ON_ACCELERATOR
    return max(1, min(_TIMES_BUSY * busy // samples, _MOST_PROMPTS // prompts))


def _cache_bytes(params: Params) -> int:
    """Bytes for keys and values."""
    parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    return max(_LEAST_BYTES, int(_SHARE_OF_PARAMETERS * parameters))


def capacities(config: TransformerConfig, rows: int, capacity: int) -> tuple[int, ...]:
    """How many tokens' keys and values a sample's cache holds: at first, then, and in the end.

    A pass reads all of it, filled or not (a kernel does not), and most samples never need it all.

    Args:
      config: the model's.
      rows: samples in flight.
      capacity: tokens that a sample may have.

    Returns:
      Rising numbers, the last of them `capacity`: a quarter, a half and the whole; where that is
      little to read, or a kernel reads what is filled, the whole alone, as for each a loop is
      compiled.
    """
    if (
        has_kernel(config)
        or capacity < 4
        or rows * capacity * bytes_per_token(config) < _WORTH_GROWING
    ):
        return (capacity,)
    return capacity // 4, capacity // 2, capacity

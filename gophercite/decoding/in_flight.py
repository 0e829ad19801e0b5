"""How many samples are drawn at a time: enough to keep a device busy, if its memory can hold them.

An accelerator reads the parameters once per pass, for one sample or for hundreds. So the answers to
a question, or to several questions, are best drawn together. But the keys and values of 64 samples
of 256 tokens after each of five pages take many times the memory of a large model's parameters. A
row whose sample has ended continues with the next one, and waiting prompts take the slots of
finished ones. So few rows cost little speed. The samples do not depend on the number of rows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gophercite.models.config import TransformerConfig
from gophercite.models.kernel_attention import has_kernel
from gophercite.models.parameters import Params

# By default, the rows' keys and values may take half of the parameters' memory, and at least one
# gibibyte. A mesh shards both alike, so this holds on each device.
_SHARE_OF_PARAMETERS = 0.5
_LEAST_BYTES = 2**30

# The rows' logits, in float32, may take this share of that memory. Drawing from them needs a few
# more arrays of the same size, and all of them come on top of the keys and values.
_SHARE_OF_LOGITS = 0.25

# If the rows' keys and values have at least this many bytes, it is worth compiling a loop for each
# of three cache sizes (unless a kernel reads only the filled entries).
_WORTH_GROWING = 2**25

# With more samples in flight than this, each pass takes longer. An accelerator can do
# hundreds of operations for each byte of the parameters that it reads (TPU v4, bfloat16: 230); a
# CPU has no such surplus (benchmarks/batch_size.py).
_ON_CPU, _ON_ACCELERATOR = 64, 256

# A batch has enough questions for this many times the samples in flight, because the device is
# underused while a batch's last samples finish. But the tables of all its prompts are in memory at
# once, about a mebibyte per page.
_TIMES_BUSY, _MOST_PROMPTS = 8, 256


def bytes_per_token(config: TransformerConfig) -> int:
    """Bytes of a token's keys and values in all layers.

    Args:
      config: the model's configuration.
    """
    channels = config.num_layers * config.kv_heads * config.head_dim
    return 2 * channels * jnp.dtype(config.dtype).itemsize


class Slots(NamedTuple):
    """How much is in flight at a time.

    Attributes:
      prompts: number of prompts whose samples are drawn.
      rows: number of samples per prompt.
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
    """The default number of prompts and rows in flight.

    Args:
      config: the model's configuration.
      params: its parameters, or their shapes and dtypes.
      prompts: number of prompts.
      prompt_tokens: maximum number of tokens per prompt.
      samples: maximum number of samples per prompt.
      max_tokens: maximum number of tokens per sample.
      platform: what the model runs on: "cpu", "gpu" or "tpu".

    Returns:
      As many as keep the device busy, if memory allows, and at least one prompt with one row. The
      prompts' keys and values may take half the bytes of the parameters, or 1 GiB if that is more.
      The samples' keys and values may take as much again, and their logits a quarter of it.
    """
    memory = _cache_bytes(params)
    cached = memory // bytes_per_token(config)  # tokens
    logits = 4 * config.vocab_size  # bytes of a row's, in float32
    most = min(cached // max_tokens, int(_SHARE_OF_LOGITS * memory) // logits)  # rows
    rows = min(samples, max(1, most))
    fit = max(1, min(cached // prompt_tokens, most // rows))
    busy = _ON_CPU if platform == "cpu" else _ON_ACCELERATOR
    wanted = 1 << (-(-busy // rows) - 1).bit_length()  # a power of two, to shard over a mesh
    return Slots(min(prompts, wanted, 1 << (fit.bit_length() - 1)), rows)


def slots(max_num_seqs: int, prompts: int, samples: int) -> Slots:
    """The number of prompts and rows in flight, given a maximum number of samples.

    Args:
      max_num_seqs: maximum number of samples in flight.
      prompts: number of prompts.
      samples: maximum number of samples per prompt.
    """
    rows = min(samples, max_num_seqs)
    return Slots(min(prompts, max_num_seqs // rows), rows)


def usual_batch_size(prompts: int, samples: int, platform: str) -> int:
    """The default number of questions that are answered together.

    Args:
      prompts: maximum number of prompts per question.
      samples: number of samples per question.
      platform: what the model runs on: "cpu", "gpu" or "tpu".

    Returns:
      Enough questions for several times the samples in flight, as far as their tables fit in
      memory; at least 1.
    """
    busy = _ON_CPU if platform == "cpu" else _ON_ACCELERATOR
    return max(1, min(_TIMES_BUSY * busy // samples, _MOST_PROMPTS // prompts))


def _cache_bytes(params: Params) -> int:
    """Bytes for keys and values."""
    parameters = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    return max(_LEAST_BYTES, int(_SHARE_OF_PARAMETERS * parameters))


def capacities(config: TransformerConfig, rows: int, capacity: int) -> tuple[int, ...]:
    """The sizes that a sample's cache grows through, in tokens.

    A pass reads the entire cache, filled or not (a kernel reads only what is filled), and most
    samples never need all of it.

    Args:
      config: the model's configuration.
      rows: number of samples in flight.
      capacity: maximum number of tokens per sample.

    Returns:
      Rising sizes, the last of them `capacity`: a quarter, a half and all of it. Only `capacity` if
      the cache is small, or if a kernel reads only filled entries, because a loop is compiled for
      each size.
    """
    if (
        has_kernel(config)
        or capacity < 4
        or rows * capacity * bytes_per_token(config) < _WORTH_GROWING
    ):
        return (capacity,)
    return capacity // 4, capacity // 2, capacity

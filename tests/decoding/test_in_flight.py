"""How many samples are drawn at a time, by the memory that they take."""

import functools

import jax
import jax.numpy as jnp
import pytest

from gophercite.decoding.in_flight import (
    bytes_per_token,
    rooms,
    rows_per_prompt,
    usual_batch_size,
    usual_max_num_seqs,
)
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("num_kv_heads", [None, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_token_takes_what_the_cache_has_for_it(
    dtype: str, num_kv_heads: int | None, scan_layers: bool
) -> None:
    config = TransformerConfig(
        vocab_size=32, d_model=16, num_layers=3, num_heads=4, head_dim=8, position="rope",
        num_kv_heads=num_kv_heads, dtype=dtype, scan_layers=scan_layers,
    )  # fmt: skip
    transformer, rows, room = Transformer(config), 5, 7
    tokens = jax.ShapeDtypeStruct((2, 64), jnp.int32)
    lengths = jax.ShapeDtypeStruct((2,), jnp.int32)
    cache = jax.eval_shape(
        lambda params, tokens, lengths: transformer.prefill(params, tokens, lengths, room, rows),
        transformer.abstract(), tokens, lengths,
    ).cache  # fmt: skip
    layers = cache.layers if isinstance(cache.layers, tuple) else (cache.layers,)
    if scan_layers:
        layers = (cache.layers,)
    own = [array for layer in layers for array in (layer.keys, layer.values)]
    taken = sum(array.size * array.dtype.itemsize for array in own)
    assert taken == 2 * rows * room * bytes_per_token(config)


def test_what_a_large_model_has_in_flight() -> None:
    """Gopher's 280B in bfloat16: 521 GiB of parameters, 1.25 GiB of keys and values a sample."""
    config = TransformerConfig(
        vocab_size=32_000, d_model=16_384, num_layers=80, num_heads=128, head_dim=128,
        param_dtype="bfloat16",
    )  # fmt: skip
    shapes = Transformer(config).abstract()
    most = usual_max_num_seqs(config, shapes, 256)
    sizes = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    of_one = 256 * 80 * 128 * 128 * 2 * 2
    assert most * of_one <= sizes < (most + 1) * of_one  # half of two bytes a parameter


def test_a_small_model_has_a_gibibyte() -> None:
    config = TransformerConfig(vocab_size=8, d_model=16, num_layers=1, num_heads=2, head_dim=8)
    shapes = Transformer(config).abstract()
    assert usual_max_num_seqs(config, shapes, 256) == 2**30 // (256 * 2 * 16 * 2)
    assert usual_max_num_seqs(config, shapes, 2**40) == 1


def test_prompts_share_the_rows_and_have_one_at_least() -> None:
    assert [rows_per_prompt(most, 5) for most in (1, 4, 5, 14, 64)] == [1, 1, 1, 2, 12]


def test_questions_are_together_until_the_device_is_busy_or_its_memory_full() -> None:
    config = TransformerConfig(vocab_size=8, d_model=16, num_layers=1, num_heads=2, head_dim=8)
    shapes = Transformer(config).abstract()
    size = functools.partial(usual_batch_size, config, shapes)
    assert [size(3840, samples, "cpu") for samples in (1, 4, 16, 64)] == [64, 16, 4, 1]
    assert [size(3840, samples, "tpu") for samples in (1, 16, 64)] == [256, 16, 4]
    tokens = 2**30 // bytes_per_token(config)  # that have room
    assert [size(tokens // most, 1, "gpu") for most in (1, 3, 1000)] == [1, 3, 256]
    assert size(2 * tokens, 1, "gpu") == 1


def test_much_room_is_given_bit_by_bit() -> None:
    config = TransformerConfig(vocab_size=8, d_model=16, num_layers=1, num_heads=2, head_dim=8)
    enough = 2**25 // (256 * bytes_per_token(config))
    assert rooms(config, enough, 256) == (64, 128, 256)
    assert rooms(config, enough, 271) == (67, 135, 271)
    assert rooms(config, enough - 1, 256) == (256,)
    assert rooms(config, 2**30, 3) == (3,)

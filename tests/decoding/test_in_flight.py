"""How many samples are drawn at a time, by the memory that they take."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from gophercite.decoding.in_flight import (
    Slots,
    bytes_per_token,
    capacities,
    slots,
    usual_batch_size,
    usual_slots,
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


SMALL = TransformerConfig(vocab_size=8, d_model=16, num_layers=1, num_heads=2, head_dim=8)


def usual(config, params, **changed) -> Slots:
    asked = {"prompts": 1024, "prompt_tokens": 512, "samples": 16, "max_tokens": 256}
    return usual_slots(config, params, **(asked | {"platform": "cpu"} | changed))


def test_what_a_large_model_has_in_flight() -> None:
    """Gopher's 280B in bfloat16: 521 GiB of parameters, 1.25 GiB of keys and values a sample."""
    config = TransformerConfig(
        vocab_size=32_000, d_model=16_384, num_layers=80, num_heads=128, head_dim=128,
        param_dtype="bfloat16",
    )  # fmt: skip
    shapes = Transformer(config).abstract()
    sizes = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    of_one = 256 * 80 * 128 * 128 * 2 * 2
    most = sizes // of_one  # half of two bytes a parameter
    assert usual(config, shapes, samples=1000, platform="tpu") == (1, most)
    prompts, rows = usual(config, shapes, platform="tpu")
    assert rows == 16
    assert prompts == 8  # of the 16 that are worth it
    assert prompts * rows <= most < 2 * prompts * rows
    assert usual(config, shapes, samples=1, prompt_tokens=3840, platform="tpu") == (8, 1)
    assert 8 * 15 * of_one <= sizes < 16 * 15 * of_one


def test_a_small_model_has_what_keeps_the_device_busy() -> None:
    shapes = Transformer(SMALL).abstract()
    seats_of = functools.partial(usual, SMALL, shapes)
    assert seats_of() == (4, 16)
    assert seats_of(platform="gpu") == (16, 16)
    assert seats_of(samples=1) == (64, 1)
    assert seats_of(samples=13) == (8, 13)  # a power of two, as a mesh would have it
    assert seats_of(prompts=5, samples=13) == (5, 13)
    assert seats_of(samples=200) == (1, 200)
    tokens = 2**30 // bytes_per_token(SMALL)  # that have room
    assert seats_of(prompt_tokens=tokens // 3) == (2, 16)
    assert seats_of(prompt_tokens=2 * tokens) == (1, 16)
    assert seats_of(max_tokens=tokens // 10) == (1, 10)
    assert seats_of(max_tokens=2 * tokens) == (1, 1)


def test_the_logits_of_all_rows_fit_too() -> None:
    """A quarter of a gibibyte holds 256 rows of 262,144 logits in float32."""
    large = dataclasses.replace(SMALL, vocab_size=2**18)
    seats_of = functools.partial(usual, large, Transformer(SMALL).abstract(), platform="gpu")
    assert seats_of(samples=2048) == (1, 256)
    assert seats_of(samples=48) == (4, 48)
    assert seats_of(samples=16) == (16, 16)
    assert usual(SMALL, Transformer(SMALL).abstract(), samples=2048, platform="gpu").rows == 2048


def test_no_more_samples_are_in_flight_than_are_asked_for() -> None:
    assert [slots(most, 5, 16) for most in (1, 16, 31, 40, 1000)] == [
        (1, 1), (1, 16), (1, 16), (2, 16), (5, 16),
    ]  # fmt: skip
    assert slots(64, 128, 1) == (64, 1)


def test_questions_are_together_as_long_as_they_keep_the_device_busy() -> None:
    assert [usual_batch_size(1, samples, "cpu") for samples in (1, 4, 16, 64)] == [256, 128, 32, 8]
    assert [usual_batch_size(5, samples, "cpu") for samples in (5, 16, 1000)] == [51, 32, 1]
    assert [usual_batch_size(5, samples, "tpu") for samples in (16, 256)] == [51, 8]
    assert usual_batch_size(1000, 1000, "gpu") == 1


def test_much_room_is_given_bit_by_bit() -> None:
    config = TransformerConfig(vocab_size=8, d_model=16, num_layers=1, num_heads=2, head_dim=8)
    enough = 2**25 // (256 * bytes_per_token(config))
    assert capacities(config, enough, 256) == (64, 128, 256)
    assert capacities(config, enough, 271) == (67, 135, 271)
    assert capacities(config, enough - 1, 256) == (256,)
    assert capacities(config, 2**30, 3) == (3,)

"""Models whose attention over a cache has a kernel read as they do without it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.decoding.in_flight import capacities
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.attention import attention
from gophercite.models.cache import forget_rows
from gophercite.models.config import TransformerConfig
from gophercite.models.kernel_attention import causal_attention_by_kernel, has_kernel
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from tests.drawn_parameters import drawn_parameters
from tests.long_forms import LONG

CONFIG = TransformerConfig(
    vocab_size=23, d_model=16, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    position="rope", gated_mlp=True, dtype="float32", scan_layers=False,
)  # fmt: skip
PROMPTS = [[3, 4, 5], [7], [9, 10, 11, 12, 13, 14, 15]]


@functools.cache
def parameters():
    """Whatever the dtype of what is computed, and whether layers are scanned."""
    return drawn_parameters(Transformer(CONFIG))


@pytest.mark.parametrize(
    ("changed", "has"),
    [
        ({}, True),
        ({"scan_layers": True}, True),
        ({"position": "learned", "max_positions": 64}, True),
        ({"num_kv_heads": None}, True),
        ({"dtype": "bfloat16"}, False),
        ({"position": "transformer_xl"}, False),
        ({"window": 4}, False),
        ({"window": (None, 4)}, False),
        ({"attention_softcap": 50.0}, False),
        ({"head_dim": 8}, False),
        ({"attention_kernel": "blocks"}, False),
    ],
)
def test_which_models_have_a_kernel(changed, has):
    config = dataclasses.replace(CONFIG, **changed)
    assert has_kernel(config) == has
    assert len(capacities(config, 2**20, 64)) == (1 if has else 3)
    with Partitioner(make_mesh(data=2, devices=jax.devices()[:2])).activate():
        assert not has_kernel(config)
    with Partitioner(make_mesh(devices=jax.devices()[:1])).activate():
        assert has_kernel(config) == has


@pytest.mark.parametrize("length", [1, 5, 64, 150])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_prompts_are_read_by_the_kernel_as_without(length, kv_heads):
    rng = np.random.default_rng(length)
    q, k, v = (
        rng.normal(size=(3, length, heads, 32)).astype(np.float32)
        for heads in (4, kv_heads, kv_heads)
    )
    lengths = rng.integers(1, length + 1, 3)
    lengths[0] = length
    real = np.arange(length) < lengths[:, None]
    found = np.asarray(jax.jit(causal_attention_by_kernel)(q, k, v, lengths, scale=0.3))
    without = functools.partial(attention, scale=0.3, kernel="blocks")
    wanted = np.asarray(jax.jit(without)(q, k, v, real.astype(np.int32)))
    assert found.dtype == wanted.dtype
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found[real], wanted[real], atol=1e-5)


def test_a_prompt_s_keys_are_those_of_the_whole_pass():
    model, params = Transformer(CONFIG), parameters()
    tokens, lengths = np.random.default_rng(0).integers(2, 23, (2, 70)), np.array([70, 66])
    read = jax.jit(lambda params: model.prefill(params, tokens, lengths, 4))
    text = read.lower(params).as_text()
    assert "gophercite_shared_prompt_attention" in text
    hidden, cache, _ = jax.device_get(read(params))
    places, real = np.tile(np.arange(70), (2, 1)), np.arange(70) < lengths[:, None]
    whole = np.asarray(jax.jit(model.apply)(params, tokens, places, real.astype(np.int32))[0])
    np.testing.assert_allclose(hidden[real], whole[real], atol=2e-5)
    other = Transformer(dataclasses.replace(CONFIG, attention_kernel="blocks"))
    expected = jax.jit(lambda params: other.prefill(params, tokens, lengths, 4))(params).cache
    np.testing.assert_allclose(
        cache.layers[1].prompt_keys, expected.layers[1].prompt_keys, atol=2e-5
    )


# Few rows, and rows that meet the prompt together.
@pytest.mark.parametrize(
    ("scan_layers", "samples"),
    [
        (False, 2),
        (True, 11),
        pytest.param(False, 11, marks=LONG),
        pytest.param(True, 2, marks=LONG),
    ],
)
def test_a_cache_is_read_as_the_whole_text_is(scan_layers, samples):
    """Several tokens at once, and more of them after."""
    model = Transformer(dataclasses.replace(CONFIG, scan_layers=scan_layers))
    rng = np.random.default_rng(samples)
    rows = 3 * samples
    prompts, lengths = np.zeros((3, 8), np.int32), np.array([len(p) for p in PROMPTS])
    for row, prompt in enumerate(PROMPTS):
        prompts[row, : len(prompt)] = prompt
    first, then = rng.integers(2, 23, (rows, 3)), rng.integers(2, 23, (rows, 4))
    start = np.repeat(lengths, samples)[:, None]

    @jax.jit
    def read(params):
        cache = model.prefill(params, prompts, lengths, 8, samples).cache
        everything = jnp.ones((rows, 3), bool)
        cache = model.decode(params, first, start + np.arange(3), everything, cache).cache
        everything = jnp.ones((rows, 4), bool)
        return model.decode(params, then, start + 3 + np.arange(4), everything, cache).hidden

    texts = [[*PROMPTS[row // samples], *first[row], *then[row]] for row in range(rows)]
    lengths_in_all = np.array([len(text) for text in texts])
    padded = np.array([text + [0] * (lengths_in_all.max() - len(text)) for text in texts])
    places = np.tile(np.arange(padded.shape[1]), (rows, 1))
    real = (places < lengths_in_all[:, None]).astype(np.int32)
    whole, _ = jax.jit(model.apply)(parameters(), padded, places, real)
    last = lengths_in_all[:, None] + np.arange(-4, 0)
    wanted = np.take_along_axis(np.asarray(whole), last[..., None], axis=1)
    np.testing.assert_allclose(read(parameters()), wanted, atol=2e-5)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_rows_that_begin_anew_forget_what_was_theirs(scan_layers):
    """Their entries are taken again, those of the oldest tokens first."""
    model = Transformer(dataclasses.replace(CONFIG, scan_layers=scan_layers))
    tokens, samples = np.random.default_rng(0).integers(2, 23, (9, 8, 1)), 8
    begun = [5 if row % 2 else 0 for row in range(samples)]

    @jax.jit
    def step(new, places, real, begins, cache):
        return model.decode(parameters(), new, places, real, forget_rows(cache, begins[None]))

    cache = jax.jit(
        lambda params: model.prefill(params, np.array([[3, 4, 5]]), np.array([3]), 5, samples).cache
    )(parameters())
    for turn in range(9):
        begins = np.array([turn == row for row in begun])
        places = np.array([[3 + turn - (row if turn >= row else 0)] for row in begun])
        real = np.array([[row == 5 or turn < 5] for row in begun])
        found, cache, _ = step(tokens[turn], places, real, begins, cache)
    text = np.concatenate([np.full((4, 3), [3, 4, 5]), tokens[5:, 1::2, 0].T], axis=1)
    places = np.tile(np.arange(7), (4, 1))
    whole, _ = jax.jit(model.apply)(parameters(), text, places, np.ones_like(text))
    np.testing.assert_allclose(np.asarray(found)[1::2, 0], np.asarray(whole)[:, -1], atol=2e-5)


def drawn(scan_layers, rows, params=None):
    model = Transformer(dataclasses.replace(CONFIG, scan_layers=scan_layers))
    settings = SamplingSettings(max_tokens=12, temperature=2.0)
    return sample(
        model,
        params or parameters(),
        PROMPTS,
        jax.random.key(1),
        settings,
        eos_id=1,
        pad_id=0,
        samples_per_prompt=12,
        rows_per_prompt=rows,
    )


@pytest.fixture(scope="module")
def cut():
    """Samples over a mesh, which has no kernel; rows that have ended go on with other samples."""
    partitioner = Partitioner(make_mesh(data=2, devices=jax.devices()[:2]))
    axes = Transformer(CONFIG).logical_axes()
    placed = jax.device_put(parameters(), partitioner.shardings(axes, parameters()))
    with partitioner.activate():
        return drawn(True, 5, placed)


@pytest.mark.parametrize(("scan_layers", "rows"), [(False, None), (True, 5)])
def test_samples_are_those_of_models_without(cut, scan_layers, rows):
    alone = drawn(scan_layers, rows)
    assert len(set(alone.lengths.tolist())) > 2
    assert np.array_equal(cut.tokens, alone.tokens)
    np.testing.assert_allclose(cut.log_probs, alone.log_probs, atol=1e-5)

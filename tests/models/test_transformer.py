import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from gophercite.model_folders.config_json import config_from_json, config_to_json
from gophercite.models.config import RopeScaling, TransformerConfig
from gophercite.models.families import GOPHER_SIZES, gemma, gopher, llama
from gophercite.models.parameters import (
    FROZEN,
    TRAINED,
    join_projections,
    merge_layers,
    split_layers,
    unstack_layers,
)
from gophercite.models.transformer import Transformer
from tests.long_forms import IS_LONG, LONG
from tests.models import reference

SMALL = TransformerConfig(
    vocab_size=31,
    d_model=16,
    num_layers=3,
    num_heads=4,
    head_dim=6,
    dtype="float32",
    attention_block=8,  # two blocks
)
VARIANTS = {
    "gopher": SMALL,
    "grouped queries": dataclasses.replace(SMALL, num_kv_heads=2),
    "llama": dataclasses.replace(
        SMALL,
        position="rope",
        gated_mlp=True,
        activation="silu",
        num_kv_heads=2,
        tied_embeddings=False,
    ),
    "gemma": dataclasses.replace(
        SMALL, position="rope", gated_mlp=True, num_kv_heads=1, scale_embeddings=True
    ),
    "window": dataclasses.replace(SMALL, position="rope", window=3),
    "window, soft cap, relative": dataclasses.replace(
        SMALL, num_kv_heads=2, window=3, attention_softcap=0.7, query_pre_attn_scalar=3.0
    ),
    "settings by layer": dataclasses.replace(
        SMALL, position="rope", window=(2, None, 5), rope_theta=(10_000.0, 500.0, 1e6)
    ),
    # Of the three pairs of channels one is left alone, one slowed in part, one in full.
    "scaled rotation": dataclasses.replace(
        SMALL, position="rope", rope_theta=9.0, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 26)
    ),
    "biases": dataclasses.replace(SMALL, position="rope", num_kv_heads=2, qkv_bias=True),
    "norms of queries and keys": dataclasses.replace(SMALL, position="rope", query_key_norm=True),
    "gemma 3": dataclasses.replace(
        SMALL,
        position="rope",
        gated_mlp=True,
        num_kv_heads=2,
        window=(2, None, 5),
        rope_theta=(500.0, 10_000.0, 500.0),
        rope_interpolation=(1.0, 8.0, 1.0),
        query_key_norm=True,
        query_pre_attn_scalar=3.0,
        attention_softcap=0.7,
        logit_softcap=2.0,
        zero_centered_norms=True,
        post_norms=True,
        scale_embeddings=True,
    ),
    "gpt neox": dataclasses.replace(
        SMALL,
        position="rope",
        rotary_fraction=2 / 3,
        norm="layer",
        activation="gelu_exact",
        parallel_residual=True,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        tied_embeddings=False,
    ),
    "gpt 2": dataclasses.replace(
        SMALL,
        position="learned",
        max_positions=13,
        norm="layer",
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
    ),
    "t5": dataclasses.replace(
        SMALL,
        position="t5",
        distance_buckets=6,
        max_distance=9,
        query_pre_attn_scalar=1.0,
        num_kv_heads=2,
        activation="relu",
        gated_mlp=True,
        scale_logits=True,
    ),
}
# All that these have, and how it goes together, is in "gemma 3"; biases are in "gpt neox", too, and
# grouped queries with relative positions in "window, soft cap, relative".
# Models like the last two are compared with `transformers` (tests/weights/test_parity.py).
IN_ANOTHER = (
    "grouped queries",
    "window",
    "settings by layer",
    "norms of queries and keys",
    "gemma",
    "biases",
    "llama",
    "scaled rotation",
)
variants = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG if name in IN_ANOTHER else ()) for name in VARIANTS]
)
# Several tokens at once: one of each kind of positions, with and without a window. Of rotations and
# relative positions others read one token at a time.
READ_TWO = ("gopher", "window, soft cap, relative", "gemma 3", "gpt 2", "t5")
ONLY_TWO = ("gopher", "gemma 3")


@functools.cache
def random_params(config, seed=0):
    """Random parameters, biases and scales too, which would begin as zeros and ones."""
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        ones = path[-1].key == "scale" and not config.zero_centered_norms
        return (ones + 0.4 * rng.normal(size=shape.shape)).astype(shape.dtype)

    return jax.device_put(jax.tree_util.tree_map_with_path(leaf, Transformer(config).abstract()))


def packed_batch():
    """Two rows: three sequences and padding, and one sequence."""
    segments = np.array([[1] * 5 + [2] * 3 + [3] * 2 + [0] * 3, [1] * 13])
    positions = np.array([[*range(5), *range(3), *range(2), 0, 0, 0], [*range(13)]])
    tokens = np.random.default_rng(0).integers(0, 31, (2, 13))
    return tokens, positions, segments


@functools.cache
def compiled(config):
    """`apply`, compiled once for all tests of an architecture: they share one shape."""
    return jax.jit(Transformer(config).apply)


@variants
def test_agrees_with_the_reference_on_packed_sequences(name):
    config, batch = VARIANTS[name], packed_batch()
    params = random_params(config)
    hidden, _ = compiled(config)(params, *batch)
    expected = reference.forward(config, params, *batch)
    real = batch[2] > 0
    np.testing.assert_allclose(np.asarray(hidden)[real], expected[real], rtol=2e-3, atol=2e-4)


@variants
def test_packed_sequences_do_not_see_each_other(name):
    config = VARIANTS[name]
    params = random_params(config)
    tokens, positions, segments = packed_batch()
    packed, _ = compiled(config)(params, tokens, positions, segments)
    alone = [np.zeros_like(array) for array in (tokens, positions, segments)]
    for array, of_batch in zip(alone, (tokens, positions, segments), strict=True):
        array[0, :3] = of_batch[0, 5:8]
    hidden, _ = compiled(config)(params, *alone)
    np.testing.assert_allclose(packed[0, 5:8], hidden[0, :3], rtol=1e-4, atol=1e-5)


@variants
def test_decoding_with_a_cache_equals_one_pass(name):
    """Ragged prompts, then several tokens one at a time, or two at once."""
    config = VARIANTS[name]
    model, params = Transformer(config), random_params(config)
    tokens = np.random.default_rng(5).integers(0, config.vocab_size, (2, 13))
    places = np.broadcast_to(np.arange(13), (2, 13))
    whole, _ = compiled(config)(params, tokens, places, np.ones_like(tokens))
    lengths = np.array([8, 3])
    prefill = jax.jit(model.prefill, static_argnames="capacity")
    hidden, cache, _ = prefill(params, tokens[:, :8], lengths, capacity=4)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(hidden[row, :length], whole[row, :length], rtol=1e-4, atol=1e-5)
    done = 0
    counts = (1, 1, 2) if name in READ_TWO or IS_LONG else (1, 1, 1, 1)
    for count in (2, 2) if name in ONLY_TWO and not IS_LONG else counts:
        at = np.stack([np.arange(n + done, n + done + count) for n in lengths])
        new = np.take_along_axis(tokens, at, axis=1)
        hidden, cache = compiled(config)(params, new, at, np.ones_like(new), cache)
        expected = np.take_along_axis(np.asarray(whole), at[..., None], axis=1)
        np.testing.assert_allclose(hidden, expected, rtol=1e-4, atol=1e-5)
        done += count


# The first has all that the others have.
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(dataclasses.replace(VARIANTS["gemma 3"], qkv_bias=True), id="gemma 3, biases"),
        *(pytest.param(VARIANTS[n], id=n, marks=LONG) for n in ("biases", "gemma 3", "gpt neox")),
    ],
)
def test_joined_projections_are_the_three_of_them(config):
    config = dataclasses.replace(config, scan_layers=False)
    model, params = Transformer(config), split_layers(jax.device_get(random_params(config)), 1)
    tokens = np.random.default_rng(5).integers(0, config.vocab_size, (2, 8))
    apart = unstack_layers(params)
    joined = join_projections(apart)
    assert {len(layer) for stack in (FROZEN, TRAINED) for layer in joined[stack]} == {
        len(apart[TRAINED][0]) + 1
    }
    new = tokens[:, :2], np.array([[8, 9], [3, 4]]), np.ones((2, 2), bool)
    cache = jax.jit(lambda params: model.prefill(params, tokens, np.array([8, 3]), 2).cache)(params)
    read = jax.jit(lambda params: model.decode(params, *new, cache).hidden)
    np.testing.assert_allclose(read(joined), read(apart), rtol=1e-5, atol=1e-6)


def test_projections_stay_apart_over_a_mesh():
    params = unstack_layers(jax.device_get(random_params(SMALL)))
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    with jax.sharding.use_abstract_mesh(mesh):
        assert join_projections(params) is params


def test_padding_does_not_outweigh_a_prompt():
    """Scores so far apart that a weight relative to padding's would be nothing.

    In layers with a window and without.
    """
    config = dataclasses.replace(VARIANTS["llama"], window=(3, None, 3))
    model, params = Transformer(config), random_params(config)
    layers = params["trained_layers"]
    params = params | {"trained_layers": layers | {"query": layers["query"] * 1e4}}
    tokens = np.random.default_rng(5).integers(0, config.vocab_size, (1, 16))
    after = np.array([[7]]), np.array([[3]]), np.ones((1, 1), bool)

    @jax.jit
    def read(shown):
        cache = model.prefill(params, shown, np.array([3]), capacity=1).cache
        return model.decode(params, *after, cache).hidden

    np.testing.assert_allclose(read(tokens), read(tokens[:, :3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("frozen", "remat_every"),
    [(1, 2), (2, 0), pytest.param(1, 0, marks=LONG), pytest.param(2, 2, marks=LONG)],
)
def test_a_split_stack_computes_what_one_stack_does(frozen, remat_every):
    config = dataclasses.replace(
        SMALL, remat_every=remat_every, rope_theta=(1e4, 5e2, 1e6), position="rope"
    )
    model, params, batch = Transformer(config), random_params(config), packed_batch()
    split = split_layers(jax.device_get(params), frozen)
    whole = compiled(dataclasses.replace(config, remat_every=0))(params, *batch)[0]
    np.testing.assert_allclose(compiled(config)(split, *batch)[0], whole, rtol=1e-5, atol=1e-6)
    assert jax.tree.all(jax.tree.map(np.array_equal, merge_layers(split), params))
    assert model.abstract(frozen).keys() == split.keys()


@functools.cache
def slope(config):
    """The gradient of a loss, compiled once, with attention in one block."""
    model, batch = Transformer(dataclasses.replace(config, attention_block=16)), packed_batch()
    return jax.jit(jax.grad(lambda p: jnp.sum(jnp.sin(model.apply(p, *batch)[0]))))


def test_unrolled_layers_compute_what_a_loop_does():
    params = random_params(SMALL)
    unrolled = dataclasses.replace(SMALL, scan_layers=False)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5),
        slope(unrolled)(params),
        slope(SMALL)(params),
    )


def kept_for_backward(config):
    """Shapes of the arrays that the backward pass gets from the forward pass."""
    model, batch = Transformer(config), packed_batch()
    pull_back = lambda p: jax.vjp(lambda p: model.apply(p, *batch)[0], p)[1]  # noqa: E731
    kept = jax.eval_shape(pull_back, model.abstract())
    return [leaf.shape for leaf in jax.tree.leaves(kept)]


@pytest.mark.parametrize(
    "variant", ["gopher", *(pytest.param(v, marks=LONG) for v in ("llama", "gemma", "biases"))]
)
def test_recomputing_what_lies_between_products_changes_no_gradient(variant):
    config = VARIANTS[variant]
    params = random_params(config)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5),
        slope(config)(params),
        slope(dataclasses.replace(config, elementwise_remat=False))(params),
    )


def test_only_products_and_attention_are_kept_if_the_rest_is_recomputed():
    lean = VARIANTS["llama"]
    shape = (lean.num_layers, *packed_batch()[0].shape)
    widths = [kept[-1] for kept in kept_for_backward(lean) if kept[:-1] == shape]
    heads, kv_heads, mlp = (
        lean.num_heads * lean.head_dim,
        lean.kv_heads * lean.head_dim,
        lean.mlp_width,
    )
    # The layer's input, query, key, value, attention's product with "out", "up" and "gate".
    expected = [lean.d_model, heads, kv_heads, kv_heads, lean.d_model, mlp, mlp]
    assert sorted(widths) == sorted(expected)
    everything = kept_for_backward(dataclasses.replace(lean, elementwise_remat=False))
    assert sum(kept[:-1] == shape for kept in everything) > 2 * len(expected)
    # Attention's probabilities, as it was told to keep them.
    probabilities = {(3, 2, 2, 2, 8, 8), (3, 2, 2, 2, 5, 13)}  # of the two blocks of rows
    assert not probabilities & set(kept_for_backward(lean))
    hoarding = dataclasses.replace(lean, attention_remat=False)
    assert probabilities < set(kept_for_backward(hoarding))


def scans(jaxpr):
    """The settings of a program's loops over layers."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            yield equation.params
        for inner in jaxprs_in_params(equation.params):
            yield from scans(inner)


@pytest.mark.parametrize(
    ("platform", "layers", "unrolled"),
    [
        ("cpu", 3, False),
        ("gpu", 3, True),
        ("gpu", 49, False),  # compiling so many would take long
        ("tpu", 3, False),
    ],
)
def test_a_few_layers_are_trained_without_a_loop_on_a_gpu(platform, layers, unrolled):
    device = jax.sharding.AbstractDevice(f"some {platform}", None, platform)
    mesh = jax.sharding.AbstractMesh((1,), ("data",), abstract_device=device)

    def unroll(scan_layers):
        config = dataclasses.replace(VARIANTS["llama"], num_layers=layers, scan_layers=scan_layers)
        model, batch = Transformer(config), packed_batch()
        with jax.sharding.use_abstract_mesh(mesh):
            program = jax.make_jaxpr(lambda p: model.apply(p, *batch)[0])(model.abstract())
        return [loop["unroll"] for loop in scans(program.jaxpr)]

    assert unroll(None) == [layers if unrolled else 1]
    assert (unroll(False), unroll(True)) == ([layers], [1])


def written(jaxpr):
    """Sizes of what a program writes into arrays in place."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dynamic_update_slice":
            yield equation.invars[1].aval.size
        for inner in jaxprs_in_params(equation.params):
            yield from written(inner)


@pytest.mark.parametrize("scan_layers", [True, False])
def test_a_step_writes_the_new_tokens_keys_and_values_alone(scan_layers):
    """Not the capacity of the layer, which is read in every step and should not be copied in it."""
    model = Transformer(dataclasses.replace(SMALL, scan_layers=scan_layers))
    rows, capacity = 6, 32
    tokens, lengths = jnp.ones((2, 8), jnp.int32), jnp.array([8, 5])

    def filled(params):
        return model.prefill(params, tokens, lengths, capacity, rows // 2).cache

    def step(params, cache):
        new = np.ones((rows, 1), np.int32)
        return model.decode(params, new, new, new > 0, cache).cache

    shapes = model.abstract()
    program = jax.make_jaxpr(step)(shapes, jax.eval_shape(filled, shapes))
    sizes = list(written(program.jaxpr))
    assert max(sizes) == rows * SMALL.num_heads * SMALL.head_dim
    assert len(sizes) == 2 + 2 * (1 if scan_layers else SMALL.num_layers)


# As those of imported models, and as the gradients of learners above frozen layers.
@LONG
def test_frozen_layers_get_no_gradient_and_the_rest_the_same_one():
    params = random_params(SMALL)
    split, whole = map(
        jax.device_get, (slope(SMALL)(split_layers(params, 2)), slope(SMALL)(params))
    )
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(split["frozen_layers"]))
    last = jax.tree.map(lambda leaf: leaf[2:], whole["trained_layers"])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5),
        split["trained_layers"],
        last,
    )


@pytest.mark.parametrize(
    ("size", "billions"),
    list(zip(GOPHER_SIZES, (0.044, 0.117, 0.417, 1.4, 7.1, 280), strict=True)),
)
def test_gopher_sizes_have_the_published_parameters(size, billions):
    config = gopher(size)
    shapes = Transformer(config).abstract()
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count == config.parameters
    assert count / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_parameters_are_counted(config):
    shapes = jax.tree.leaves(Transformer(config).abstract())
    assert sum(leaf.size for leaf in shapes) == config.parameters
    matrices = sum(x.size for x in shapes if x.ndim > 1 and x.shape[-2] > config.num_layers)
    matrices -= config.d_model * (config.max_positions or 0)
    if config.tied_embeddings and config.position == "rope":  # then only matrices are multiplied
        attention = 12 * config.num_heads * config.head_dim * config.num_layers
        assert config.training_flops(1, 1) == 6 * matrices + attention


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"factor": 0.0}, "factor"),
        ({"original_length": -1}, "original_length"),
        ({"high_frequency_factor": 1.0}, "high_frequency_factor"),
    ],
)
def test_impossible_scalings_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=f"rope_scaling.{named} ="):
        dataclasses.replace(RopeScaling(8.0, 1.0, 4.0, 26), **change)


def test_architectures_as_json_come_back():
    for config in VARIANTS.values():
        assert config_from_json(json.loads(json.dumps(config_to_json(config)))) == config
    scaled = config_to_json(VARIANTS["scaled rotation"])
    scaled["rope_scaling"]["factr"] = scaled["rope_scaling"].pop("factor")
    with pytest.raises(ValueError, match="'rope_scaling': field 'factr' is unknown; did you mean"):
        config_from_json(scaled)


def test_the_full_280b_model_is_right_in_shape():
    """Loss and gradient of 48 frozen and 32 trained layers, and a decoding step, without arrays."""
    config = gopher("280b", param_dtype="bfloat16", remat_every=3)
    model = Transformer(config)
    params = model.abstract(frozen_layers=48)
    assert params["frozen_layers"]["up"].shape == (48, 16384, 65536)
    assert params["trained_layers"]["relative"].shape == (32, 16384, 16384)
    tokens = jax.ShapeDtypeStruct((2, 128), jnp.int32)

    def loss(trained, params, tokens):
        hidden, _ = model.apply({**params, **trained}, tokens, tokens, tokens)
        return model.logits(params, hidden).sum()

    trained = {"trained_layers": params["trained_layers"]}
    gradients = jax.eval_shape(jax.grad(loss), trained, params, tokens)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), gradients) == jax.tree.map(
        lambda x: (x.shape, x.dtype), trained
    )
    lengths = jax.ShapeDtypeStruct((2,), jnp.int32)
    hidden, cache, _ = jax.eval_shape(lambda *a: model.prefill(*a, 64), params, tokens, lengths)
    one = jax.ShapeDtypeStruct((2, 1), jnp.int32)
    hidden, after = jax.eval_shape(model.apply, params, one, one, one, cache)
    assert hidden.shape == (2, 1, 16384)
    assert after.layers.prompt_keys.shape == (80, 2, 128, 128, 128)
    assert after.layers.keys.shape == (80, 2, 128, 64, 128)


def test_a_model_with_a_fused_kernel_begins_as_any_other():
    config = dataclasses.replace(SMALL, position="rope", dtype="bfloat16")
    first, *fused = (
        jax.jit(Transformer(dataclasses.replace(config, attention_kernel=kernel)).init)
        .lower(jax.random.key(0))
        .as_text()
        for kernel in ("auto", "cudnn", "splash")
    )
    for other in fused:
        assert other == first


def test_families_differ_where_they_should():
    ours = llama(32_000, 64, 2, 4, 128)
    assert set(Transformer(ours).abstract()) >= {"unembed"}
    assert "gate" in Transformer(ours).abstract()["trained_layers"]
    assert "unembed" not in Transformer(gemma(256, 512, 2, 2, 64)).abstract()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads"),
        ({"window": (1, 2)}, "window"),
        ({"d_model": 0}, "d_model"),
        ({"position": "rope", "head_dim": 5}, "head_dim"),
        ({"position": "ropee"}, "position"),
        ({"activation": "swoosh"}, "activation"),
        ({"dtype": "bflot16"}, "dtype"),
        ({"window": 0}, "window"),
        ({"num_kv_heads": 0}, "num_kv_heads"),
        ({"d_ff": -4}, "d_ff"),
        ({"norm_epsilon": -1}, "norm_epsilon"),
        ({"num_layers": "4"}, "num_layers"),
        ({"rope_theta": (1e4, -1.0, 1e4)}, "rope_theta"),
        ({"attention_kernel": "cudnn"}, "attention_kernel"),
        ({"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 26)}, "rope_scaling"),
        ({"rope_interpolation": 2.0}, "rope_interpolation"),
        ({"position": "rope", "rope_interpolation": (1.0, 0.0, 1.0)}, "rope_interpolation"),
        ({"position": "learned", "max_positions": 8, "rotary_fraction": 0.5}, "rotary_fraction"),
        ({"position": "rope", "rotary_fraction": 0.5}, "rotary_fraction"),
        ({"position": "rope", "rotary_fraction": 1.5}, "rotary_fraction"),
        ({"position": "learned"}, "max_positions"),
        ({"max_positions": 8}, "max_positions"),
        ({"position": "t5", "max_distance": 8}, "distance_buckets"),
        ({"position": "t5", "distance_buckets": 8}, "max_distance"),
        ({"position": "t5", "distance_buckets": 8, "max_distance": 4}, "max_distance"),
        ({"position": "t5", "distance_buckets": 8, "max_distance": 2**31 - 1}, "max_distance"),
        ({"position": "t5", "distance_buckets": 1, "max_distance": 4}, "distance_buckets"),
        ({"position": "rope", "distance_buckets": 8}, "distance_buckets"),
        ({"norm": "batch"}, "norm"),
        ({"logit_softcap": 0.0}, "logit_softcap"),
        ({"attention_softcap": "50"}, "attention_softcap"),
        ({"query_pre_attn_scalar": -1}, "query_pre_attn_scalar"),
        (
            {"position": "rope", "attention_softcap": 5.0, "attention_kernel": "cudnn"},
            "attention_kernel",
        ),
        ({"position": "rope", "attention_kernel": "cudnn"}, "attention_kernel"),  # float32
        (
            {"position": "rope", "window": (2, None, 5), "attention_kernel": "splash"},
            "attention_kernel",
        ),
    ],
)
def test_impossible_settings_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=f"TransformerConfig.{named} ="):
        dataclasses.replace(SMALL, **change)


def test_freezing_every_layer_is_refused():
    with pytest.raises(ValueError, match="freeze 3 of 3"):
        split_layers(random_params(SMALL), 3)


def test_rows_past_the_learned_positions_are_refused():
    model = Transformer(VARIANTS["gpt 2"])
    params, tokens = model.abstract(), jax.ShapeDtypeStruct((1, 12), jnp.int32)
    lengths = jax.ShapeDtypeStruct((1,), jnp.int32)
    with pytest.raises(ValueError, match=r"rows have 14 tokens .* only 13 learned positions"):
        jax.eval_shape(lambda *a: model.prefill(*a, capacity=2), params, tokens, lengths)
    long = jax.ShapeDtypeStruct((1, 15), jnp.int32)
    with pytest.raises(ValueError, match="rows have 15 tokens"):
        jax.eval_shape(model.apply, params, long, long, long)


def test_a_layer_without_a_matrix_is_named():
    model = Transformer(llama(17, d_model=8, num_layers=1, num_heads=1, d_ff=8))
    params = model.abstract()
    del params[TRAINED]["gate"]
    tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    with pytest.raises(KeyError, match="the layer's parameters lack 'gate'"):
        jax.eval_shape(model.apply, params, tokens, tokens, tokens)

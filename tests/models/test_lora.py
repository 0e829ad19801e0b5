"""Low-rank adapters: the base model at first, later what the merged matrices compute."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gophercite.models.block import linear
from gophercite.models.lora import Adapter, LoRA, adaptable
from gophercite.models.parameters import (
    ADAPTERS,
    FROZEN,
    merge_layers,
    split_layers,
    unstack_layers,
)
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from tests.long_forms import LONG
from tests.models.test_transformer import SMALL, VARIANTS, packed_batch, random_params


def adapted(config, frozen=0, targets=None):
    """A model with adapters of all matrices that have moved off their zeros, and its parameters."""
    model = Transformer(config, LoRA(rank=2, alpha=3.0, targets=targets or adaptable(config)))
    params = split_layers(jax.device_get(random_params(config)), frozen)
    shapes = jax.eval_shape(lambda: model.init_adapters(jax.random.key(0), frozen))
    draw = np.random.default_rng(7)
    moved = jax.tree.map(lambda x: 0.2 * draw.normal(size=x.shape).astype(np.float32), shapes)
    return model, {**params, ADAPTERS: moved}


def logits_of(model, *batch):
    return jax.jit(lambda params: model.logits(params, model.apply(params, *batch)[0]))


def test_adapters_begin_as_nothing():
    """Exactly: a sum with zeros. Programs of whole models are fused, and rounded, in other ways."""
    model, params = adapted(SMALL)
    start = jax.tree.map(np.zeros_like, params[ADAPTERS])
    nothing = {name: {**params[ADAPTERS][name], "b": start[name]["b"]} for name in start}
    merged = model.lora.merge({**params, ADAPTERS: nothing})
    jax.tree.map(np.testing.assert_array_equal, merged, random_params(SMALL))
    x = np.random.default_rng(1).normal(size=(2, 5, SMALL.d_model)).astype(np.float32)
    layer = jax.tree.map(lambda leaf: leaf[1], {"a": nothing["up"]["a"], "b": nothing["up"]["b"]})
    kernel, adapter = params["trained_layers"]["up"][1], Adapter(**layer, scale=1.5)
    np.testing.assert_array_equal(linear(x, kernel, None, adapter), linear(x, kernel))


# What T5's layers have, those of "gemma 3" have, too.
@pytest.mark.parametrize("family", ["gopher", "gemma 3", pytest.param("t5", marks=LONG)])
def test_merged_matrices_compute_what_matrices_and_adapters_do(family):
    config, batch = VARIANTS[family], packed_batch()
    model, params = adapted(config, frozen=1)
    merged = jax.jit(lambda params: model.lora.merge(merge_layers(params)))(params)
    base = random_params(config)
    assert merged.keys() == base.keys()
    plain, with_adapters = logits_of(Transformer(config), *batch), logits_of(model, *batch)
    np.testing.assert_allclose(with_adapters(params), plain(merged), rtol=1e-5, atol=1e-5)
    assert np.abs(plain(merged) - plain(base)).max() > 0.1
    start = {**params, ADAPTERS: jax.tree.map(np.zeros_like, params[ADAPTERS])}
    np.testing.assert_allclose(with_adapters(start), plain(base), rtol=1e-5, atol=1e-5)


TOKENS = np.random.default_rng(5).integers(0, SMALL.vocab_size, (2, 9))
PLACES = np.broadcast_to(np.arange(9), (2, 9))


@functools.cache
def read_at_once():
    model, params = adapted(SMALL, frozen=1)
    return jax.jit(model.apply)(params, TOKENS, PLACES, np.ones_like(TOKENS))[0]


@pytest.mark.parametrize("scan_layers", [True, False])
def test_reading_into_a_cache_uses_the_adapters(scan_layers):
    model, params = adapted(dataclasses.replace(SMALL, scan_layers=scan_layers), frozen=1)

    @jax.jit
    def read(params):
        first = model.prefill(params, TOKENS[:, :7], np.full(2, 7), capacity=2)
        apart = params if scan_layers else unstack_layers(params)
        real = np.ones((2, 2), bool)
        return first.hidden, model.decode(
            apart, TOKENS[:, 7:], PLACES[:, 7:], real, first.cache
        ).hidden

    in_parts = np.concatenate(read(params), 1)
    np.testing.assert_allclose(in_parts, read_at_once(), rtol=1e-4, atol=1e-5)


def test_rematerialised_layers_give_adapters_the_same_gradient_and_the_base_none():
    batch = packed_batch()
    slopes = []
    for remat_every in (0, 2):
        config = dataclasses.replace(SMALL, remat_every=remat_every, attention_block=16)
        model, params = adapted(config, targets=("relative", "up"))
        loss = lambda p, model=model: np.pi * model.apply(p, *batch)[0][..., 0].sum()  # noqa: E731
        slopes.append(jax.device_get(jax.jit(jax.grad(loss))(params)))
    for plain, grouped in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(grouped, plain, rtol=1e-4, atol=1e-4)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(slopes[0][ADAPTERS]))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slopes[0]["trained_layers"]))


def test_adapters_lie_above_the_frozen_layers_and_are_drawn_alike_whatever_is_frozen():
    model = Transformer(SMALL, LoRA(rank=3))
    init = jax.jit(lambda key, frozen: model.init(key, frozen)[ADAPTERS], static_argnums=1)
    whole, part = (jax.device_get(init(jax.random.key(1), frozen)) for frozen in (0, 2))
    assert model.abstract(2)[FROZEN]["query"].shape[0] == 2
    assert part["value"]["a"].shape == (1, SMALL.d_model, 3)
    last = jax.tree.map(lambda leaf: leaf[2:], whole)
    jax.tree.map(np.testing.assert_array_equal, part, last)
    half = Transformer(dataclasses.replace(SMALL, param_dtype="bfloat16"), model.lora).abstract()
    assert half["trained_layers"]["query"].dtype == "bfloat16"
    assert {leaf.dtype.name for leaf in jax.tree.leaves(half[ADAPTERS])} == {"float32"}


def test_adapters_are_cut_as_their_matrices_are():
    config = dataclasses.replace(SMALL, num_heads=2, head_dim=8, num_kv_heads=2)
    model = Transformer(config, LoRA(rank=2, targets=adaptable(config)))
    partitioner = Partitioner(make_mesh(fsdp=2, model=2, devices=jax.devices()[:4]))
    placed = partitioner.shardings(model.logical_axes(1), model.abstract(1))
    for name, adapter in placed[ADAPTERS].items():
        _, inputs, outputs = placed["trained_layers"][name].spec
        assert adapter["a"].spec == PartitionSpec(None, inputs, None)
        assert adapter["b"].spec == PartitionSpec(None, None, outputs)
    assert placed[ADAPTERS]["query"]["a"].spec == PartitionSpec(None, "fsdp", None)
    assert placed[ADAPTERS]["query"]["b"].spec == PartitionSpec(None, None, "model")
    assert placed[ADAPTERS]["down"]["a"].spec == PartitionSpec(None, "model", None)


def test_merging_rounds_once():
    model, params = adapted(SMALL, targets=("up",))
    kept = params["trained_layers"]["up"].astype("bfloat16")
    params["trained_layers"] = {"up": kept}
    merged = model.lora.merge(params)["trained_layers"]["up"]
    adapter = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params[ADAPTERS]["up"])
    exact = np.asarray(kept, np.float64) + 1.5 * adapter["a"] @ adapter["b"]
    assert merged.dtype == "bfloat16"
    gap = np.abs(np.asarray(merged, np.float64) - exact) / np.abs(exact)
    assert gap.max() < 2**-8 * (1 + 1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "LoRA.rank = 0: must be a whole number, at least 1"),
        ({"rank": 2.0}, "LoRA.rank = 2.0: must be a whole number, at least 1"),
        ({"alpha": 0}, "LoRA.alpha = 0: must be a number above 0"),
        ({"targets": ()}, r"LoRA.targets = \(\): must be different names of matrices"),
        ({"targets": "query"}, "LoRA.targets = 'query': must be different names of matrices"),
        ({"targets": ("up", "up")}, r"LoRA.targets = \('up', 'up'\): must be different names"),
    ],
)
def test_settings_that_adapt_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LoRA(**settings)


def test_targets_that_the_model_lacks_are_refused_with_those_that_it_has():
    right = "'gate', but a layer of this model has the matrices query, key, value, out, relative,"
    with pytest.raises(ValueError, match=right):
        Transformer(SMALL, LoRA(targets=("query", "gate")))
    assert LoRA(targets=["key", "out"]).targets == ("key", "out")  # as gin and JSON have them

"""What every optimiser does: applies updates per layer, in place, cut as the parameters are."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gophercite.learning.optimizers import Optimizer, adafactor, adam
from gophercite.partitioning import Partitioner, make_mesh

KEY = jax.random.key(7)
SHAPES = {
    "embed": {"embedding": (24, 8)},
    "trained_layers": {"kernel": (2, 8, 16), "scale": (2, 8)},
}
AXES = {
    "embed": {"embedding": ("vocab", "embed")},
    "trained_layers": {
        "kernel": ("layers", "embed", "mlp"),
        "scale": ("layers", "embed"),
    },
}


def random_tree(seed: int, dtype: Any = jnp.float32) -> Any:
    """Random arrays of `SHAPES`."""
    leaves, structure = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    arrays = [jax.random.normal(k, shape, dtype) for k, shape in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, arrays)


def unstack(tree: Any) -> Any:
    """The layers of each stacked leaf as separate leaves, for optimisers that know no stacks."""
    return {
        part: jax.tree.map(list, leaves) if part.endswith("_layers") else leaves
        for part, leaves in tree.items()
    }


def update_once(optimizer: Optimizer, params: Any, grads: Any, learning_rate: float) -> Any:
    """The first update, compiled: new parameters and state."""

    def update(grads: Any, params: Any) -> Any:
        state = optimizer.init(params)
        return optimizer.update(grads, state, params, learning_rate=learning_rate, key=KEY)

    return jax.jit(update)(grads, params)


def run(optimizer: Optimizer, params: Any, steps: int, learning_rate: float) -> Any:
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    for step in range(steps):
        key = jax.random.fold_in(KEY, step)
        grads = random_tree(100 + step)
        params, state = update(grads, state, params, learning_rate=learning_rate, key=key)
    return params


def run_optax(transformation: Any, params: Any, steps: int) -> Any:
    """Optax on every layer alone."""
    params = unstack(params)
    state = transformation.init(params)

    @jax.jit
    def update(grads: Any, state: Any, params: Any) -> Any:
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for step in range(steps):
        params, state = update(unstack(random_tree(100 + step)), state, params)
    return params


def is_matrix(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim >= 2, params)


ADAFACTORS = [
    {},
    {"multiply_by_parameter_scale": True},
    {"clipping_threshold": None},
    {"clipping_threshold": 0.3, "decay_rate": 0.5},
    {"min_dim_size_to_factor": 128},
]


@pytest.mark.parametrize("settings", ADAFACTORS, ids=str)
def test_adafactor_is_optax_on_each_layer(settings: dict[str, Any]) -> None:
    settings = {"min_dim_size_to_factor": 4, "multiply_by_parameter_scale": False} | settings
    params = random_tree(0)
    ours = run(adafactor(**settings), params, 5, 1e-2)
    theirs = run_optax(optax.adafactor(1e-2, **settings), params, 5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), unstack(ours), theirs
    )


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_is_optax_on_each_layer(weight_decay: float) -> None:
    params = random_tree(0)
    ours = run(adam(0.9, 0.95, 1e-6, weight_decay), params, 5, 1e-2)
    reference = optax.adamw(1e-2, 0.9, 0.95, 1e-6, weight_decay=weight_decay, mask=is_matrix)
    theirs = run_optax(reference, params, 5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), unstack(ours), theirs
    )


@pytest.mark.parametrize(
    "optimizer",
    [adam(weight_decay=0.1), adafactor(min_dim_size_to_factor=2)],
    ids=["adam", "factor"],
)
def test_a_network_within_the_parameters_is_updated_like_one_alone(optimizer: Optimizer) -> None:
    """PPO's value network has stacks of layers of its own, below the name of the network."""
    params, grads = random_tree(0), random_tree(1)
    grads["trained_layers"] = jax.tree.map(
        lambda leaf: leaf * jnp.geomspace(1e-3, 1e3, 2).reshape(2, *[1] * (leaf.ndim - 1)),
        grads["trained_layers"],
    )
    new, _ = update_once(optimizer, {**params, "inner": params}, {**grads, "inner": grads}, 0.1)
    inner = new.pop("inner")
    jax.tree.map(np.testing.assert_array_equal, inner, new)


def test_rows_that_are_never_used_get_no_step_beside_large_gradients() -> None:
    params = {"embedding": jnp.ones((512, 128))}
    grads = {"embedding": jnp.zeros((512, 128)).at[:50].set(1e5)}
    new, _ = update_once(adafactor(), params, grads, 1e-2)
    assert np.all(np.isfinite(new["embedding"]))
    np.testing.assert_array_equal(new["embedding"][50:], 1)


@pytest.mark.parametrize(
    ("ours", "theirs", "other"),
    [(adam, optax.adam, {}), (adafactor, optax.adafactor, {"multiply_by_parameter_scale": False})],
)
def test_defaults_are_those_of_optax(ours: Any, theirs: Any, other: dict[str, Any]) -> None:
    """Optax calls one field `eps` where Adafactor's authors and we have `epsilon`."""
    known = inspect.signature(theirs).parameters
    for name, parameter in inspect.signature(ours).parameters.items():
        name = "eps" if name == "epsilon" else name
        if name in known and name != "weight_decay":
            assert parameter.default == other.get(name, known[name].default), name


@pytest.mark.parametrize("make", [adafactor, adam])
def test_a_gradient_of_zero_changes_nothing(make: Any) -> None:
    params = random_tree(0)
    grads = jax.tree.map(jnp.zeros_like, params)
    new, _ = update_once(make(), params, grads, 1e-2)
    jax.tree.map(np.testing.assert_array_equal, new, params)


@pytest.mark.parametrize("make", [adafactor, adam])
def test_statistics_are_float32_for_bfloat16_parameters(make: Any) -> None:
    params = random_tree(0, jnp.bfloat16)
    state = jax.eval_shape(make().init, params)
    new_params, new_state = jax.eval_shape(lambda p: update_once(make(), p, p, 1e-3), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(new_params)} == {jnp.dtype(jnp.bfloat16)}
    assert {leaf.dtype for leaf in jax.tree.leaves(new_state.statistics)} == {jnp.dtype("float32")}
    assert new_state == state  # the same tree of shapes and dtypes


@pytest.mark.parametrize("make", [adafactor, adam])
@pytest.mark.parametrize("part", ["embed", "trained_layers"])
def test_small_update_survives_bfloat16_in_expectation(make: Any, part: str) -> None:
    """1.0 − 1e-4 lies far below half the gap to bfloat16's next value, which is 0.0039."""
    params = {part: {"kernel": jnp.ones((2, 256, 256), jnp.bfloat16)}}
    grads = jax.tree.map(jnp.ones_like, params)  # both optimisers' first direction is then 1

    def mean_change(optimizer: Optimizer) -> float:
        new, _ = update_once(optimizer, params, grads, 1e-4)
        return 1.0 - float(np.mean(np.asarray(new[part]["kernel"], np.float64)))

    assert mean_change(make(stochastic_rounding=False)) == 0.0
    # A draw is 0 or 0.0039 (below 1.0 the gap is half): standard error 1.7e-6 over 131,072.
    assert mean_change(make(stochastic_rounding=True)) == pytest.approx(1e-4, abs=1e-5)


def test_layers_and_parameters_are_rounded_with_different_draws() -> None:
    ones = jnp.ones((2, 128, 128), jnp.bfloat16)
    params = {"trained_layers": {"first": ones, "second": ones}}
    new, _ = update_once(adafactor(), params, params, 2e-3)
    first, second = (np.asarray(new["trained_layers"][n], np.float32) for n in ("first", "second"))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, second)


def test_draws_follow_the_name_not_the_company() -> None:
    """A head added beside the model leaves the model's own update as it was."""
    optimizer = adafactor()
    model = {"trained_layers": {"kernel": jnp.ones((2, 128, 128), jnp.bfloat16)}}
    with_head = {"reward_head": {"kernel": jnp.ones((128, 1), jnp.bfloat16)}, **model}

    def kernel(params: Any) -> np.ndarray:
        new, _ = update_once(optimizer, params, params, 2e-3)
        return np.asarray(new["trained_layers"]["kernel"], np.float32)

    np.testing.assert_array_equal(kernel(model), kernel(with_head))


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (
            adafactor(min_dim_size_to_factor=4),
            {"row": ("layers", "embed"), "column": ("layers", "mlp")},
        ),
        (adam(), dict.fromkeys(("first_moment", "second_moment"), ("layers", "embed", "mlp"))),
    ],
)
def test_state_axes_name_every_axis_of_the_state(optimizer: Any, expected: Any) -> None:
    params = random_tree(0)
    axes = optimizer.state_axes(AXES, params)
    state = jax.eval_shape(optimizer.init, params)
    assert axes.statistics["trained_layers"]["kernel"] == expected
    assert axes.count == ()

    def check(array: jax.ShapeDtypeStruct, names: tuple[str | None, ...]) -> None:
        assert len(names) == array.ndim
        sizes = {"vocab": 24, "embed": 8, "mlp": 16, "layers": 2}
        assert array.shape == tuple(sizes[name] for name in names)

    jax.tree.map(check, state, axes)


@pytest.mark.parametrize(
    "optimizer", [adafactor(min_dim_size_to_factor=4), adam()], ids=("adafactor", "adam")
)
def test_sharded_update_equals_the_whole_one_and_gathers_nothing(optimizer: Optimizer) -> None:
    partitioner = Partitioner(make_mesh(fsdp=4, model=2))
    params, grads = random_tree(0, jnp.bfloat16), random_tree(1)
    state = optimizer.init(params)
    param_cut = partitioner.shardings(AXES, params)
    state_cut = partitioner.shardings(optimizer.state_axes(AXES, params), state)

    def update(grads: Any, state: Any, params: Any) -> Any:
        return optimizer.update(grads, state, params, learning_rate=1e-2, key=KEY)

    whole = jax.jit(update)(grads, state, params)
    step = jax.jit(update, out_shardings=(param_cut, state_cut))
    arguments = jax.device_put(
        jax.device_get((grads, state, params)), (param_cut, state_cut, param_cut)
    )
    compiled = step.lower(*arguments).compile()
    assert "all-gather" not in compiled.as_text()
    sharded = compiled(*arguments)
    for ours, reference in zip(jax.tree.leaves(sharded), jax.tree.leaves(whole), strict=True):
        # Reductions add in another order; a draw at the edge may then round the other way.
        np.testing.assert_allclose(
            np.asarray(ours, np.float32), np.asarray(reference, np.float32), atol=2e-2, rtol=1e-5
        )


def compiled_memory(optimizer: Optimizer, layers: int, width: int) -> Any:
    """The compiler's count of a donated update of one stack of square float32 matrices."""
    shapes = {"trained_layers": {"k": jax.ShapeDtypeStruct((layers, width, width), jnp.float32)}}
    state = jax.eval_shape(optimizer.init, shapes)

    def update(grads: Any, state: Any, params: Any, key: jax.Array) -> Any:
        return optimizer.update(grads, state, params, learning_rate=1e-3, key=key)

    step = jax.jit(update, donate_argnums=(1, 2))
    return step.lower(shapes, state, shapes, KEY).compile().memory_analysis()


def test_temporaries_of_adafactor_do_not_grow_with_the_number_of_layers() -> None:
    """As the CPU compiler counts; docs/measurements/tpu.md has the TPU compiler's figures."""
    width = 256
    layer_bytes = 4 * width * width
    few, many = (compiled_memory(adafactor(), layers, width) for layers in (2, 16))
    assert many.temp_size_in_bytes <= few.temp_size_in_bytes + 0.25 * layer_bytes
    assert many.temp_size_in_bytes < 3 * layer_bytes
    # Parameters and statistics are written where they lie.
    assert many.alias_size_in_bytes >= 16 * layer_bytes


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (adafactor, {"decay_rate": 0.0}, "decay_rate"),
        (adafactor, {"clipping_threshold": 0.0}, "clipping_threshold"),
        (adafactor, {"epsilon": 0.0}, "epsilon"),
        (adam, {"b1": 1.0}, "b1"),
        (adam, {"b2": -0.1}, "b2"),
        (adam, {"eps": -1.0}, "eps"),
    ],
)
def test_settings_out_of_range_are_named(make: Any, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)

"""Steps of the optimisers and of the learners computed again in NumPy, with random settings."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from gophercite.learning import schedules
from gophercite.learning.optimizers import Optimizer, adafactor, adam
from gophercite.learning.reward import RewardLearner
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.training.program import evaluated_params
from tests.learning.papers_optimizers import (
    Moments,
    PaperAdafactor,
    PaperAdam,
    Reference,
    clipped,
    matrices,
    stepped,
)
from tests.long_forms import LONG

# Wide, tall and narrow matrices, vectors, a stack within another part, two matrices in one array.
SHAPES: dict[str, Any] = {
    "embed": {"embedding": (7, 5)},
    "trained_layers": {"up": (2, 4, 6), "out": (2, 6, 3), "scale": (2, 4)},
    "adapter_layers": {"query": {"a": (2, 4, 2), "b": (2, 2, 6)}},
    "pair": {"kernel": (2, 4, 5)},
    "heads": {"kernel": (6,), "bias": (1,)},
}
STEPS = 4
KEY = jax.random.key(0)


def draw(rng: np.random.Generator, shapes: Any, dtype: Any, scale: float = 1.0) -> Any:
    """Random arrays, with rows of very different sizes; some rows are 0."""
    if isinstance(shapes, dict):
        return {name: draw(rng, shape, dtype, scale) for name, shape in shapes.items()}
    rows = 10.0 ** rng.uniform(-2, 1, (*shapes[:-1], 1)) * (rng.random((*shapes[:-1], 1)) < 0.9)
    return jax.device_put((scale * rows * rng.normal(size=shapes)).astype(dtype))


def run(optimizer: Optimizer, params: Any, grads: list[Any], rates: np.ndarray) -> list[Any]:
    """The parameters before and after each step, compiled once."""

    @jax.jit
    def steps(params: Any, grads: Any, rates: Array) -> Any:
        def step(carry: Any, leaf: Any) -> Any:
            grads, rate, number = leaf
            key = jax.random.fold_in(KEY, number)
            carry = optimizer.update(grads, carry[1], carry[0], learning_rate=rate, key=key)
            return carry, carry[0]

        carry = params, optimizer.init(params)
        return jax.lax.scan(step, carry, (grads, rates, jnp.arange(len(rates))))[1]

    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *grads)
    after = jax.device_get(steps(params, stacked, np.float32(rates)))
    return [params, *(jax.tree.map(lambda leaf, t=t: leaf[t], after) for t in range(len(rates)))]


def assert_steps(
    reference: Reference,
    found: list[Any],
    grads: list[Any],
    rates: np.ndarray,
    weight_decay: float,
    gaps: float,
) -> None:
    """Each of the optimiser's steps against the paper's from the same parameters.

    Args:
      reference: the paper's method.
      found: the parameters before and after each step.
      grads: gradients of each step.
      rates: learning rate of each step.
      weight_decay: decoupled decay of matrices.
      gaps: how far a value may be from the paper's, in gaps between bfloat16's values around it; 0
        for float32.
    """
    moments: dict[str, Moments] = {name: {} for name in matrices(found[0])}
    for t, rate in enumerate(rates):
        before, after, slopes = (matrices(tree) for tree in (found[t], found[t + 1], grads[t]))
        for name, x in before.items():
            direction = reference.direction(t + 1, slopes[name], x, moments[name])
            expected = stepped(x, direction, rate, weight_decay)
            largest = np.abs(rate * direction).max() + np.abs(x).max()
            bound = 1e-5 * largest
            if gaps:
                exponent = np.floor(np.log2(np.maximum(np.abs(expected), 1e-30)))
                bound = bound + gaps * 2.0 ** (exponent - 7)
            error = np.abs(after[name] - expected)
            assert np.all(error <= bound), (name, t, (error - bound).max())


def assert_recomputed(
    rng: np.random.Generator, reference: Reference, optimizer: Optimizer, low: bool
) -> None:
    """Some steps at random rates, in float32 or with parameters and gradients in bfloat16."""
    dtype = jnp.bfloat16 if low else jnp.float32
    params = draw(rng, SHAPES, dtype)
    params["pair"]["kernel"] *= 1e-5  # below the least scale of a relative step
    grads = [draw(rng, SHAPES, dtype, 10.0**-t) for t in range(STEPS)]
    rates = rng.uniform(0.05, 0.3, STEPS)
    gaps = (1.0 if optimizer.stochastic_rounding else 0.5) if low else 0.0
    found = run(optimizer, params, grads, rates)
    assert_steps(reference, found, grads, rates, optimizer.weight_decay, gaps)


IN_LOW_PRECISION = [(0, "rounded stochastically"), (1, "rounded to the nearest")]


# The other seeds have all kinds of settings, too.
@pytest.mark.parametrize(
    ("seed", "rounding"),
    [
        *((n, None) for n in (0, 1, 3, 4)),
        pytest.param(2, None, marks=LONG),
        *IN_LOW_PRECISION,
    ],
)
def test_adafactor_is_the_paper_s(seed: int, rounding: str | None) -> None:
    rng = np.random.default_rng(seed)
    decay, least = rng.uniform(0.5, 1), int(rng.integers(3, 6))
    limit = None if seed == 0 else rng.uniform(0.1, 1.2)
    # Usually it only keeps a square from being 0; here it may be a good part of it, too.
    epsilon = 1e-30 if seed == 1 else 10.0 ** rng.uniform(-4, 0)
    relative = seed in (2, 3)
    weight_decay = rng.choice([0.0, 0.3])
    by_draws = rounding != "rounded to the nearest"
    ours = adafactor(decay, limit, least, relative, epsilon, weight_decay, by_draws)
    reference = PaperAdafactor(decay, limit, least, relative, epsilon)
    assert_recomputed(rng, reference, ours, rounding is not None)


@pytest.mark.parametrize(
    ("seed", "rounding"),
    [pytest.param(0, None, marks=LONG), (1, None), (2, None), *IN_LOW_PRECISION],
)
def test_adam_is_the_paper_s(seed: int, rounding: str | None) -> None:
    rng = np.random.default_rng(seed)
    settings = rng.uniform(0, 0.95), rng.uniform(0.5, 0.999), 10.0 ** rng.uniform(-8, 0)
    weight_decay = rng.choice([0.0, 0.3])
    ours = adam(*settings, weight_decay, rounding != "rounded to the nearest")
    assert_recomputed(rng, PaperAdam(*settings), ours, rounding is not None)


MODEL = Transformer(
    TransformerConfig(vocab_size=3, d_model=2, num_layers=1, num_heads=1, head_dim=2)
)
FROZEN = {"embed": {"embedding": (7, 5)}, "frozen_layers": {"up": (1, 4, 6)}}
LAYERS = {"trained_layers": {"up": (2, 4, 6), "scale": (2, 4)}, "final_norm": {"scale": (4,)}}
ADAPTERS = {"adapter_layers": SHAPES["adapter_layers"], "heads": SHAPES["heads"]}
PEAK, WARM, TOTAL, LEFT = 0.2, 2, 5, 0.1


def rate_at(step: int) -> float:
    """A warm-up whose first step is a step already, and a cosine from the peak to a tenth of it."""
    if step < WARM:
        return PEAK * (step + 1) / (WARM + 1)
    done = min(1.0, (step - WARM) / (TOTAL - WARM))
    return PEAK * (LEFT + (1 - LEFT) * (1 + np.cos(np.pi * done)) / 2)


@pytest.mark.parametrize(
    ("adapted", "limit", "averaged", "optimizer", "reference"),
    [
        (False, 2.0, 0.9, adam(0.8, 0.95, 1e-3, 0.2), PaperAdam(0.8, 0.95, 1e-3)),
        (False, None, None, adafactor(0.7, 0.5, 3), PaperAdafactor(0.7, 0.5, 3)),
        (True, 0.5, 0.6, adam(0.8, 0.95, 1e-3, 0.2), PaperAdam(0.8, 0.95, 1e-3)),
    ],
    ids=["above frozen layers", "without clipping", "adapters and heads"],
)
def test_a_learner_s_steps_are_recomputed(
    adapted: bool, limit: float | None, averaged: float | None, optimizer: Any, reference: Any
) -> None:
    """Clipping by the norm of what is trained, the step's rate, the optimiser, then the average.

    And the average is what evaluations see, if there is one.
    """
    rng = np.random.default_rng(int(adapted))
    params = draw(rng, FROZEN | LAYERS | (ADAPTERS if adapted else {}), jnp.float32)
    trained = ADAPTERS if adapted else LAYERS
    learner = SupervisedLearner(
        MODEL,
        optimizer,
        schedules.linear_warmup_cosine(PEAK, TOTAL, WARM, LEFT),
        () if adapted else ("embed",),
        max_grad_norm=limit,
        ema_decay=averaged,
    )
    descend = jax.jit(learner.descend)
    state = learner.init_state(params, KEY)
    expected = matrices({name: params[name] for name in trained})
    mean = dict(expected)
    moments: dict[str, Moments] = {name: {} for name in expected}
    for t in range(TOTAL + 2):
        grads = draw(rng, trained, jnp.float32, 10.0 ** rng.uniform(-2, 1))
        state, metrics = descend(state, grads)
        slopes, norm = clipped(matrices(grads), np.inf if limit is None else limit)
        for name, x in expected.items():
            direction = reference.direction(t + 1, slopes[name], x, moments[name])
            expected[name] = stepped(x, direction, rate_at(t), optimizer.weight_decay)
        np.testing.assert_allclose(metrics["optimizer/grad_norm"], norm, rtol=1e-5)
        np.testing.assert_allclose(metrics["optimizer/learning_rate"], rate_at(t), rtol=1e-5)
        assert_near({name: state.params[name] for name in trained}, expected)
        if averaged is not None:
            mean = {n: averaged * m + (1 - averaged) * expected[n] for n, m in mean.items()}
            assert_near(state.ema, mean)
    assert int(state.step) == TOTAL + 2
    evaluated = evaluated_params(state)
    assert_near(
        {name: evaluated.pop(name) for name in trained}, mean if averaged is not None else expected
    )
    jax.tree.map(np.testing.assert_array_equal, evaluated, {n: params[n] for n in evaluated})
    for name in params.keys() - trained.keys():
        jax.tree.map(np.testing.assert_array_equal, state.params[name], params[name])


def test_each_step_rounds_with_draws_of_its_own() -> None:
    """With the same ones, what one step rounds up the next would round up as well."""
    learner = SupervisedLearner(MODEL, adam(), schedules.constant(1e-3))
    params = {"trained_layers": {"up": jnp.ones((1, 32, 32), jnp.bfloat16)}}
    state = learner.init_state(params, KEY)
    descend = jax.jit(learner.descend)
    found = [
        descend(dataclasses.replace(state, step=jnp.int32(step)), params)[0].params
        for step in (0, 0, 1)
    ]
    first, again, other = (np.asarray(leaf["trained_layers"]["up"], np.float32) for leaf in found)
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


# T5's table is a part of the embedding, and all layers read it.
BIASES = {"distance_biases": (2, 4)}


@pytest.mark.parametrize(
    ("make", "embed", "separate", "frozen", "decayed"),
    [
        (SupervisedLearner, FROZEN["embed"], False, True, {"embed", "trained_layers"}),
        (SupervisedLearner, FROZEN["embed"], True, True, {"unembed", "trained_layers"}),
        (SupervisedLearner, FROZEN["embed"], True, False, {"embed", "unembed", "trained_layers"}),
        (SupervisedLearner, BIASES, True, True, {"embed", "unembed", "trained_layers"}),
        (RewardLearner, FROZEN["embed"], False, True, {"trained_layers"}),
        (RewardLearner, FROZEN["embed"], True, True, {"trained_layers"}),
        (RewardLearner, FROZEN["embed"], True, False, {"embed", "trained_layers"}),
        (RewardLearner, BIASES, False, True, {"embed", "trained_layers"}),
    ],
)
def test_an_embedding_that_only_frozen_layers_read_is_not_decayed(
    make: Any, embed: Any, separate: bool, frozen: bool, decayed: set[str]
) -> None:
    """It has no gradient, so that a decay would shrink what the frozen layers were trained on."""
    shapes = LAYERS | {"embed": embed}
    shapes |= {"frozen_layers": FROZEN["frozen_layers"]} if frozen else {}
    shapes |= {"unembed": {"kernel": (5, 7)}} if separate else {}
    params = draw(np.random.default_rng(0), shapes, jnp.float32)
    learner = make(MODEL, adam(weight_decay=0.5), schedules.constant(0.1))
    state = learner.init_state(params, KEY)
    slopes = jax.tree.map(jnp.zeros_like, learner.trained(params))
    after, _ = learner.descend(state, slopes)
    before, now = (matrices(tree) for tree in (params, after.params))
    moved = {name.partition("/")[0] for name in before if np.any(before[name] != now[name])}
    assert moved == decayed


def assert_near(found: Any, expected: dict[str, np.ndarray]) -> None:
    ours = matrices(found)
    assert ours.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(ours[name], x, rtol=1e-4, atol=1e-5, err_msg=name)

"""What the phases of a step take: found in a compiled program, and timed by the real profiler."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.learning.phases import phase, phase_of
from gophercite.monitoring.phase_times import (
    IDLE,
    OTHER,
    Event,
    instruction_phases,
    phase_seconds,
    profiled,
)

WIDTH = 128


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("jit(update)/phase.sampling/while/body/dot_general", "sampling"),
        ("jit(update)/phase.gradients/transpose(jvp(phase.policy))/mul", "policy"),
        ("jit(update)/phase.gradients/while/body/add", "gradients"),
        ("jit(update)/sampling/add", None),
    ],
)
def test_the_innermost_phase_counts(operation: str, expected: str | None) -> None:
    assert phase_of(operation) == expected


@pytest.fixture(scope="module")
def step() -> jax.stages.Compiled:
    """A loop of products in one phase; a product and its gradient in another."""

    def run(weights: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        with phase("sampling"):
            x = jax.lax.fori_loop(0, 5, lambda _, y: jnp.tanh(y @ weights), x)

        def loss(weights: jax.Array) -> jax.Array:
            with phase("policy"):
                return jnp.sum(jnp.sin(x @ weights))

        with phase("gradients"):
            slope = jax.grad(loss)(weights)
        return weights - slope, x

    array = jnp.zeros((WIDTH, WIDTH))
    return jax.jit(run).lower(array, array).compile()


def test_instructions_have_the_phase_they_were_traced_in(step: jax.stages.Compiled) -> None:
    text = step.as_text()
    phases = instruction_phases(text)
    instructions = [line.split(" = ", 1) for line in text.splitlines() if " = " in line]
    named = {name.replace("ROOT", "").strip(" %"): what for name, what in instructions}
    products = {name: what for name, what in named.items() if " dot(" in what}
    inside = {
        name: "sampling" if "/while/" in what else "policy" for name, what in products.items()
    }
    assert set(inside.values()) == {"sampling", "policy"}
    assert {name: phases[name] for name in products} == inside
    loops = {name for name, what in named.items() if " while(" in what}
    assert loops
    assert not loops & set(phases)


def test_a_profiled_step_is_a_step_and_its_phases_take_time(step: jax.stages.Compiled) -> None:
    rng = np.random.default_rng(0)
    weights, x = (rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) for _ in range(2))
    found, seconds = profiled(step, weights, x)
    jax.tree.map(np.testing.assert_array_equal, found, step(weights, x))
    assert {"sampling", "policy", IDLE} <= set(seconds) <= {
        "sampling", "policy", "gradients", OTHER, IDLE,
    }  # fmt: skip
    assert seconds["sampling"] > 0
    assert seconds["policy"] > 0


def test_a_step_goes_on_without_a_profile_while_another_is_taken(
    step: jax.stages.Compiled, tmp_path: pathlib.Path
) -> None:
    """TensorBoard may ask for a trace at any time."""
    values = np.zeros((WIDTH, WIDTH), np.float32)
    with jax.profiler.trace(str(tmp_path)):
        found, seconds = profiled(step, values, values)
    jax.tree.map(np.testing.assert_array_equal, found, step(values, values))
    assert seconds == {}


SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 9)), min_size=1
)


@given(st.lists(SPANS, min_size=1, max_size=3))
def test_a_phase_takes_the_time_in_which_any_of_it_runs(devices) -> None:
    """Against counting moments one by one."""
    events = [
        Event(str(device), name, start, start + length)
        for device, spans in enumerate(devices)
        for name, start, length in spans
    ]
    found = phase_seconds(events, {"a": "x", "b": "y"})
    expected = dict.fromkeys(("x", "y", IDLE), 0.0)
    for spans in devices:
        moments = {
            phase: {
                t
                for name, start, length in spans
                if name == of
                for t in range(start, start + length)
            }
            for phase, of in (("x", "a"), ("y", "b"))
        }
        busy = moments["x"] | moments["y"]
        ends = max(start + length for _, start, length in spans)
        expected["x"] += len(moments["x"])
        expected["y"] += len(moments["y"])
        expected[IDLE] += ends - min(start for _, start, _ in spans) - len(busy)
    for name, total in expected.items():
        assert found.get(name, 0) == pytest.approx(total / len(devices) / 1e9)


def test_nothing_that_the_profiler_saw() -> None:
    assert phase_seconds([Event("0", "elsewhere", 0, 1)], {"a": "x"}) == {}

"""Actor-critic on eight simulated devices: the same update as on one, from the same rollouts."""

import dataclasses

import jax
import numpy as np
import pytest

from gophercite.learning import optimizers
from gophercite.learning.a2c import A2CLearner, Collected, Shared
from gophercite.learning.rollouts import Rollouts
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.partitioning import DEFAULT_RULES, Partitioner, make_mesh
from tests.learning.test_a2c import batch, learner, parameters, rolled_out


@pytest.fixture(scope="module")
def made() -> tuple[A2CLearner, Params, Rollouts]:
    # Beyond so large an epsilon Adam's first step is not the sign of what is nearly zero.
    of = learner(optimizer=optimizers.adam(eps=1e-2), microbatches=2)
    params = parameters(of)
    return of, params, rolled_out(of, params)


@pytest.mark.parametrize(("data", "fsdp", "model"), [(2, 2, 2)])
def test_an_update_on_a_mesh(
    made: tuple[A2CLearner, Params, Rollouts], data: int, fsdp: int, model: int
) -> None:
    of, params, rollouts = made
    tables = batch()["quotes"]
    state = of.init_state(params, jax.random.key(2))
    expected, metrics = jax.jit(of.learn)(state, Collected(rollouts, tables))

    partitioner = Partitioner(make_mesh(data, fsdp, model), DEFAULT_RULES)
    shapes = jax.eval_shape(lambda: state)
    places = partitioner.shardings(of.state_axes(shapes.params), shapes)
    by_row = jax.sharding.NamedSharding(partitioner.mesh, partitioner.spec(("batch",)))
    placed = jax.device_put(state, places)
    rows = jax.device_put(rollouts, by_row)
    with partitioner.activate():
        found, of_mesh = jax.jit(of.learn)(placed, Collected(rows, tables))
    cut = [x for x in jax.tree.leaves(found.params) if not x.sharding.is_fully_replicated]
    assert cut
    for name, part in of.trained(expected.params).items():
        compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)  # noqa: E731
        jax.tree.map(compare, found.params[name], part)
    for name, value in metrics.items():
        np.testing.assert_allclose(of_mesh[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_microbatches_and_rematerialising_change_nothing(
    made: tuple[A2CLearner, Params, Rollouts],
) -> None:
    """With blocks rematerialised, microbatches add their gradients into one buffer."""
    of, params, rollouts = made
    again = Transformer(dataclasses.replace(of.transformer.config, remat_every=1))
    in_place = dataclasses.replace(of, transformer=again)
    shared = Shared(np.float32(1 / rollouts.responses.size), batch()["quotes"])
    whole = dataclasses.replace(of, microbatches=1)
    expected, *found = (
        jax.jit(lambda params, of=each: of.gradients(params, rollouts._asdict(), shared))(params)
        for each in (whole, of, in_place)
    )
    compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)  # noqa: E731
    for each in found:
        jax.tree.map(compare, each, expected)

"""PPO with frozen layers or adapters against whole copies of each network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.learning.experience import Experience, to_batch
from gophercite.learning.ppo import Judged, PPOLearner
from gophercite.models.lora import LoRA
from gophercite.models.parameters import (
    ADAPTERS,
    FROZEN,
    HEADS,
    REWARD_MODEL,
    TEACHER,
    TRAINED,
    VALUE_HEAD,
    VALUE_TRUNK,
    Params,
    merge_layers,
)
from gophercite.models.transformer import Transformer
from tests.drawn_parameters import drawn_heads, drawn_parameters, drawn_value_head
from tests.learning.test_ppo import CONFIG, WHOLE, learner, noisy, random_experience
from tests.long_forms import LONG

LORA = LoRA(rank=2, alpha=6.0, targets=("query", "out", "up"))


class Case(NamedTuple):
    """A learner that doesn't train everything, and its parameters once it has learnt something.

    The teacher is whole: the policy as it was, with one stack of layers.
    """

    of: PPOLearner
    params: Params
    teacher: Params


def make(frozen: int, lora: LoRA | None = None, **settings: Any) -> Case:
    of = learner(transformer=Transformer(CONFIG, lora), widths=2, **settings)
    policy = drawn_parameters(of.transformer, 1, frozen)
    base = {name: part for name, part in policy.items() if name != ADAPTERS}
    teacher = merge_layers(base)
    judge = {**teacher, HEADS: drawn_heads(WHOLE.reward_model, 1)}
    head = noisy(drawn_value_head(of.value_head, 2), 5, 0.3)
    params = of.with_extra_parts(policy, judge, head)
    trained = of.trained(params).keys() - {VALUE_HEAD}
    for number, name in enumerate(sorted(trained)):
        params[name] = noisy(params[name], number, 0.2)
    # What isn't trained is there once.
    assert params[TEACHER].keys() == trained - {VALUE_TRUNK, ADAPTERS}
    assert params[VALUE_TRUNK].keys() == trained - {VALUE_TRUNK}
    return Case(of, jax.tree.map(jnp.asarray, params), teacher)


CASES: dict[str, Callable[[], Case]] = {
    "frozen layers": lambda: make(1, frozen_parts=("embed",)),
    "frozen layers under a trained embedding": lambda: make(1),
    "adapters above frozen layers": lambda: make(1, LORA),
}


def whole_copies(params: Params, teacher: Params) -> Params:
    """The same networks, each with all of its parameters in one stack and without adapters."""

    def whole(network: Params) -> Params:
        names = ("embed", FROZEN, TRAINED, ADAPTERS, "final_norm")
        own = {name: network[name] for name in names if name in network}
        own = merge_layers(own)
        if ADAPTERS not in own:
            return own
        stack, last = dict(own[TRAINED]), own.pop(ADAPTERS)
        for name, each in last.items():
            change = LORA.scale * jnp.einsum("lir,lro->lio", each["a"], each["b"])
            below = stack[name].shape[0] - change.shape[0]
            stack[name] = stack[name] + jnp.pad(change, ((below, 0), (0, 0), (0, 0)))
        return {**own, TRAINED: stack}

    return {
        **whole(params),
        VALUE_HEAD: params[VALUE_HEAD],
        VALUE_TRUNK: whole({**params, **params[VALUE_TRUNK]}),
        TEACHER: teacher,
        REWARD_MODEL: params[REWARD_MODEL],
    }


@jax.jit
def judged(params: Params, experience: Experience) -> Judged:
    return WHOLE.judged(params, experience)


@jax.jit
@jax.value_and_grad
def loss_of_copies(params: Params, batch: Any) -> jax.Array:
    return WHOLE.losses(params, batch, jnp.float32(9), None)[0]


# The other two have frozen layers, too.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG if name == "frozen layers" else ()) for name in CASES]
)
def test_what_is_shared_changes_nothing(name: str) -> None:
    """Neither what is judged before an update nor the gradients of what is trained."""
    of, params, teacher = CASES[name]()
    trained = of.trained(params)
    experience = random_experience(3)
    wanted = judged(whole_copies(params, teacher), experience)
    found = jax.jit(of.judged)(params, experience)
    for mine, reference in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            np.where(experience.real, mine, 0),
            np.where(experience.real, reference, 0),
            rtol=1e-4,
            atol=1e-5,
        )
    assert float(jnp.max(jnp.abs(found.kl_samples))) > 0.1

    targets = {"advantages": wanted.kl_samples, "returns": 1 + wanted.values}
    batch = {**to_batch(experience), **targets}

    @jax.jit
    @jax.value_and_grad
    def objective(trained: Params) -> jax.Array:
        return of.losses({**params, **trained}, batch, jnp.float32(9), None)[0]

    @jax.jit
    def of_trained(slopes: Params) -> Params:
        """From the gradients of whole copies to those of what is trained."""
        copies = lambda trained: whole_copies({**params, **trained}, teacher)  # noqa: E731
        return jax.vjp(copies, trained)[1](slopes)[0]

    mine = jax.device_get(objective(trained))
    loss, slopes = loss_of_copies(whole_copies(params, teacher), batch)
    np.testing.assert_allclose(mine[0], loss, rtol=1e-5)
    expected = jax.device_get(of_trained(slopes))
    for part in (mine[1], expected):
        if FROZEN in params:  # an embedding gets no gradient through frozen layers
            part.pop("embed", None)
            part[VALUE_TRUNK].pop("embed", None)
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(expected))
    assert largest > 0.01
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * largest),
        mine[1],
        expected,
    )

"""What open families have of their own trains: in groups of layers, in pieces, some frozen."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gophercite.learning.optimizers import adafactor
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.parameters import split_layers
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from tests.learning.test_supervised import make_batch
from tests.long_forms import LONG
from tests.models.test_transformer import VARIANTS, random_params

FROZEN = 1
# All that the two have, which no other test trains.
OF_BOTH = dataclasses.replace(
    VARIANTS["gemma 3"],
    rotary_fraction=2 / 3,
    norm="layer",
    activation="gelu_exact",
    parallel_residual=True,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    tied_embeddings=False,
    attention_block=16,
)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(OF_BOTH, id="of both"),
        *(pytest.param(VARIANTS[n], id=n, marks=LONG) for n in ("gemma 3", "gpt neox")),
    ],
)
def test_a_step_follows_the_plain_formula_s_gradient(family):
    plain, config = Transformer(family), dataclasses.replace(family, remat_every=1)
    learner = SupervisedLearner(
        Transformer(config), adafactor(), lambda step: 1e-2, microbatches=2, loss_chunk=8
    )
    whole = jax.device_get(random_params(family))
    params = jax.device_put(split_layers(whole, FROZEN))
    batch = make_batch(rows=2, vocab=config.vocab_size)
    state = learner.init_state(params, jax.random.key(1))
    weight = np.sum(batch["weights"])

    def loss(params):
        tokens = (batch["tokens"], batch["positions"], batch["segments"])
        logits = plain.logits(params, plain.apply(params, *tokens)[0])
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
        return jnp.sum(nll * batch["weights"]) / weight

    @jax.jit
    def step(state):
        gradients, metrics = learner.gradients(state.params, batch, weight)
        return learner.descend(state, gradients)[0], gradients, metrics["loss/nll"]

    after, gradients, nll = jax.device_get(step(state))
    second = jax.jit(jax.value_and_grad(loss))
    expected_nll, expected = second(params)
    np.testing.assert_allclose(nll, expected_nll, rtol=1e-5)
    for name, part in gradients.items():
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-6),
            part,
            expected[name],
        )
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradients["trained_layers"]))
    assert float(second(after.params)[0]) < float(expected_nll)


@pytest.mark.parametrize("family", ["gemma 3", "gpt neox", "gpt 2"])
def test_every_parameter_has_its_place_on_a_mesh(family):
    model = Transformer(VARIANTS[family])
    shapes = model.abstract(FROZEN)
    mesh = make_mesh(devices=jax.devices()[:1])
    placed = Partitioner(mesh).shardings(model.logical_axes(FROZEN), shapes)
    assert jax.tree.structure(placed) == jax.tree.structure(shapes)

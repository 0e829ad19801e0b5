"""The first layers of imported models frozen: the same logits, and no gradient below."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.model_folders.folder import load_model
from gophercite.models.parameters import FROZEN, TRAINED, Params, frozen_layers
from gophercite.models.transformer import Transformer
from gophercite.weights.hugging_face import import_weights
from tests.long_forms import LONG
from tests.weights import parity
from tests.weights.samples import checkpoint


@pytest.mark.parametrize(
    "family",
    [
        pytest.param("gemma2", marks=LONG),
        "gemma3",
        "gpt2",
        "gpt_neox",
        "llama3",
        pytest.param("qwen3", marks=LONG),
    ],
)
@pytest.mark.parametrize("frozen", [2])
def test_the_first_layers_frozen(family: str, frozen: int, tmp_path: pathlib.Path) -> None:
    """Whatever an architecture gives layer by layer goes with the layer that has it."""
    import_weights(checkpoint(family, tmp_path / "source"), tmp_path / "model")
    model = load_model(tmp_path / "model", param_dtype="float32", frozen_layers=frozen)
    assert frozen_layers(model.params) == frozen
    config = dataclasses.replace(model.transformer.config, dtype="float32")
    transformer = Transformer(config)
    sequences, expected = parity.reference(family)
    tokens = sequences[0][None]
    places, ones = np.arange(tokens.shape[1])[None], np.ones_like(tokens)

    @jax.jit
    def slope(params: Params) -> tuple[Params, jax.Array]:
        def loss(params: Params) -> tuple[jax.Array, jax.Array]:
            hidden, _ = transformer.apply(params, tokens, places, ones)
            logits = transformer.logits(params, hidden)
            return jnp.sum(jax.nn.log_softmax(logits)[..., 7]), logits[0]

        return jax.grad(loss, has_aux=True)(params)

    gradients, logits = jax.device_get(slope(model.params))
    assert parity.largest_difference([np.asarray(logits)], expected[:1]) < 1e-4
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradients[FROZEN]))
    # A bias of keys moves all of a row's scores alike, which a softmax does not see.
    layers = {name: leaf for name, leaf in gradients[TRAINED].items() if name != "key_bias"}
    assert all(np.any(leaf) for leaf in layers.values())

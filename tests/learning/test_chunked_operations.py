"""The chunked loss in compiled programs: all its chunks count, however many there are."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from gophercite.learning.cross_entropy import correct_predictions, cross_entropy
from gophercite.models.unembedding import Unembedding
from gophercite.planning.compiled import costs

BATCH, LENGTH, VOCABULARY, WIDTH = 2, 32, 64, 16
PRODUCT = 2 * BATCH * LENGTH * VOCABULARY * WIDTH  # the logits' operations


def gradients(chunk: int, hidden: jax.Array, kernel: jax.Array, *rest: jax.Array) -> object:
    loss = lambda h, k: cross_entropy(h, Unembedding(k), *rest, 0.1, chunk)[0]  # noqa: E731
    return jax.value_and_grad(loss, (0, 1))(hidden, kernel)


def hits(chunk: int, hidden: jax.Array, kernel: jax.Array, *rest: jax.Array) -> object:
    return correct_predictions(hidden, Unembedding(kernel), *rest, chunk)


@pytest.mark.parametrize(("computed", "products"), [(gradients, 3), (hits, 1)])
def test_operations_do_not_depend_on_the_chunk(
    computed: Callable[..., object], products: int
) -> None:
    """The logits and, for gradients, two more products of their size."""
    rows = (BATCH, LENGTH)
    shapes = [
        jax.ShapeDtypeStruct((*rows, WIDTH), jnp.float32),
        jax.ShapeDtypeStruct((VOCABULARY, WIDTH), jnp.float32),
        jax.ShapeDtypeStruct(rows, jnp.int32),
        jax.ShapeDtypeStruct(rows, jnp.float32),
    ]
    for chunk in (8, BATCH * LENGTH):
        compiled = jax.jit(computed, static_argnums=0).lower(chunk, *shapes).compile()
        found = costs(compiled.as_text() or "").flops
        assert found == products * PRODUCT

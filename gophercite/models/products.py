"""Products of rows with a weight matrix, at the precision that JAX's settings ask for.

`JAX_DEFAULT_MATMUL_PRECISION=bfloat16` (or `jax.default_matmul_precision`) says that float32
factors may be rounded to bfloat16, with sums in float32: a TPU's default. XLA's CPU backend ignores
it, although cores with AMX multiply bfloat16 several times as fast as float32. So on CPUs the
factors are rounded here. Activations stay float32, which is why this is faster there than a model
in bfloat16: XLA's CPU backend converts bfloat16 to float32 and back around every other operation.

Adapters' own products, attention, and the logits that answers are sampled from are not rounded.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gophercite.partitioning import active_platform

# The names of this precision in JAX.
_ROUNDED = {"bfloat16", "BF16_BF16_F32"}


def product(
    rows: Float[Array, "rows k"], kernel: Float[Array, "..."], *, axis: int = 0, dtype: Any = None
) -> Float[Array, "rows out"]:
    """Multiplies rows by a matrix.

    Args:
      rows: vectors.
      kernel: the matrix, in the rows' dtype.
      axis: the matrix's axis that is summed over.
      dtype: the products' dtype; the rows' by default.

    Returns:
      The products. If JAX's default precision is bfloat16, the factors of a float32 product and of
      its gradients are rounded to bfloat16 on a CPU as well.
    """
    if rows.dtype == jnp.float32 and _is_rounded() and active_platform() == "cpu":
        return _rounded(axis, rows, kernel).astype(dtype or rows.dtype)
    return _products(rows, kernel, 1, axis, dtype)


def _is_rounded() -> bool:
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]  # made later
    return precision in _ROUNDED


def _products(x: Array, y: Array, of_x: int, of_y: int, dtype: Any) -> Array:
    summed = (((of_x,), (of_y,)), ((), ()))
    return jax.lax.dot_general(x, y, summed, preferred_element_type=dtype)


# Autodiff would multiply float32 slopes by bfloat16 factors, in float32.
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(axis: int, rows: Array, kernel: Array) -> Array:
    return _of_rounded(rows, kernel, 1, axis)


def _of_rounded(x: Array, y: Array, of_x: int, of_y: int) -> Array:
    factors = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    return _products(*factors, of_x, of_y, jnp.float32)


def _forward(axis: int, rows: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _rounded(axis, rows, kernel), (rows, kernel)


def _backward(axis: int, factors: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    rows, kernel = factors
    left, right = (rows, slope) if axis == 0 else (slope, rows)
    return _of_rounded(slope, kernel, 1, 1 - axis), _of_rounded(left, right, 0, 0)


_rounded.defvjp(_forward, _backward)

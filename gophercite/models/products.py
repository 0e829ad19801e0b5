"""Products of matrices, at the precision that JAX's settings ask for.

`JAX_DEFAULT_MATMUL_PRECISION=bfloat16` (or `jax.default_matmul_precision`) says that float32
factors may be rounded to bfloat16, with sums in float32: a TPU's default. XLA's CPU backend ignores
it, although cores with AMX multiply bfloat16 several times as fast as float32. So on CPUs the
factors are rounded here. Activations stay float32, which is why this is faster there than a model
in bfloat16: XLA's CPU backend converts bfloat16 to float32 and back around every other operation.

The logits that answers are sampled from are not rounded.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from gophercite.partitioning import active_platform

# The names of this precision in JAX.
_ROUNDED = {"bfloat16", "BF16_BF16_F32"}

KEPT = "kept"  # the name of arrays that are kept for the backward pass


def kept(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Marks a product that is kept for the backward pass where other activations are not.

    To compute it again would cost more than to keep it (`stack.run_stack`).
    """
    return checkpoint_name(x, KEPT)


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
      The products, as those of `batched_product`.
    """
    return batched_product("rk,nk->rn" if axis else "rk,kn->rn", rows, kernel, dtype=dtype)


def batched_product(
    axes: str, x: Float[Array, "..."], y: Float[Array, "..."], *, dtype: Any = None
) -> Float[Array, "..."]:
    """Multiplies matrices of two batches, or two matrices.

    Args:
      axes: both factors' axes and the product's as letters, as in `jnp.einsum`, such as
        "bqd,bkd->bqk". The batch's letters come first, in the product followed by the first
        factor's own and the second's; one letter is summed over.
      x: the first factor.
      y: the second factor, in the same dtype.
      dtype: the products' dtype; the factors' by default.

    Returns:
      The products. If JAX's default precision is bfloat16, the factors of a float32 product and of
      its gradients are rounded to bfloat16 on a CPU as well.
    """
    if x.dtype == jnp.float32 and _is_rounded() and active_platform() == "cpu":
        return _rounded(axes, x, y).astype(dtype or x.dtype)
    # As `jnp.einsum`, which takes several times as long to trace.
    of_x, _, rest = axes.partition(",")
    of_y, _, out = rest.partition("->")
    batch, shared = len(out) - 2, next(axis for axis in of_x if axis not in out)
    own = tuple(range(batch))
    places = ((of_x.index(shared),), (of_y.index(shared),)), (own, own)
    return jax.lax.dot_general(x, y, places, preferred_element_type=dtype or x.dtype)


def _is_rounded() -> bool:
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]  # made later
    return precision in _ROUNDED


# Autodiff would multiply float32 slopes by bfloat16 factors, in float32.
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(axes: str, x: Array, y: Array) -> Array:
    factors, out = axes.split("->")
    of_x, of_y = factors.split(",")
    x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    if of_x[-1] in out:  # x's rows are summed over, but XLA is only fast if its columns are
        if of_y[-1] in out and y.size < x.size and _tile(y.shape[-1]) > 1:
            swapped = f"{out[:-2]}{out[-1]}{out[-2]}"
            return _transposed(_by_columns(of_y, of_x, swapped, y, x))
        return _by_columns(of_x, of_y, out, x, y)
    return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)


def _by_columns(of_x: str, of_y: str, out: str, x: Array, y: Array) -> Array:
    """The products of factors in bfloat16; x's rows are summed over."""
    axes = f"{of_x[:-2]}{of_x[-1]}{of_x[-2]},{of_y}->{out}"
    return jnp.einsum(axes, _transposed(x), y, preferred_element_type=jnp.float32)


def _forward(axes: str, x: Array, y: Array) -> tuple[Array, tuple[Array, Array]]:
    return _rounded(axes, x, y), (x, y)


def _backward(axes: str, factors: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, y = factors
    of_x, of_y, out = axes.replace("->", ",").split(",")
    for_x = _rounded(f"{out},{of_y}->{of_x}", slope, y)
    if of_y[-1] == out[-1]:
        return for_x, _rounded(f"{of_x},{out}->{of_y}", x, slope)
    return for_x, _rounded(f"{out},{of_x}->{of_y}", slope, x)


_rounded.defvjp(_forward, _backward)


def _transposed(x: Float[Array, "*batch rows columns"]) -> Float[Array, "*batch columns rows"]:
    """Swaps the last two axes, if possible in a form that XLA does not take into the product.

    XLA would fold a plain transposition into the product, which its CPU backend then does in
    float32, at a fraction of the speed.
    """
    *batch, rows, columns = x.shape
    tile = _tile(rows)
    tiles = x.reshape(*batch, rows // tile, tile, columns)
    return jnp.moveaxis(tiles, -1, -3).reshape(*batch, columns, rows)


def _tile(rows: int) -> int:
    """How many rows are transposed together: a part of all, or 1."""
    return next((tile for tile in (16, 8, 4, 2) if rows % tile == 0 and rows > tile), 1)

"""The only place where logits are computed from representations: matrix and soft cap."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.products import product
from gophercite.models.soft_capping import soft_cap
from gophercite.partitioning import constrain


@partial(jax.tree_util.register_dataclass, data_fields=["kernel"], meta_fields=["softcap"])
@dataclasses.dataclass(frozen=True)
class Unembedding:
    """Maps representations to logits; a pytree, differentiable in `kernel`.

    Attributes:
      kernel: row v gives token v's logit.
      softcap: soft cap on the logits; None for none.
    """

    kernel: Float[Array, "vocab d_model"]
    softcap: float | None = None

    def logits(
        self, hidden: Float[Array, "batch length d_model"]
    ) -> Float[Array, "batch length vocab"]:
        """Unnormalised log-probabilities of the next token, in float32."""
        kernel = self.kernel.astype(hidden.dtype)
        logits = jnp.einsum("bld,vd->blv", hidden, kernel, preferred_element_type=jnp.float32)
        return soft_cap(constrain(logits, "batch", "length", "vocab"), self.softcap)

    def logits_by_row(
        self, hidden: Float[Array, "batch length d_model"]
    ) -> Float[Array, "batch length vocab"]:
        """The same for use with gradients, with tokens flattened to rows of one matrix.

        Otherwise gradients would sum over two axes, and operands would first be transposed.
        """
        rows = hidden.reshape(-1, hidden.shape[-1])
        kernel = self.kernel.astype(hidden.dtype)
        logits = product(rows, kernel, axis=1, dtype=jnp.float32)
        logits = constrain(logits.reshape(*hidden.shape[:-1], -1), "batch", "length", "vocab")
        return soft_cap(logits, self.softcap)

    def logits_of(
        self, hidden: Float[Array, "batch d_model"], tokens: Int[Array, "batch tokens"]
    ) -> Float[Array, "batch tokens"]:
        """Logits of some tokens only, in float32."""
        kernel = self.kernel[tokens].astype(hidden.dtype)
        logits = jnp.einsum("bd,btd->bt", hidden, kernel, preferred_element_type=jnp.float32)
        return soft_cap(logits, self.softcap)

"""The value function: what reward an answer that goes on from here will get (GopherCite, F.1).

It shares the trunk with the policy: a multi-layer perceptron over the final representation. Its
parameters are a part of the policy's, while there is one:

    {"value_head": {"first": {"kernel": [d_model, width], "bias": [width]},
                    "second": {"kernel": [width, width], "bias": [width]},
                    "last": {"kernel": [width, 1], "bias": [1]}}, ...}
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Axes, Params


@dataclasses.dataclass(frozen=True)
class ValueHead:
    """The functions of a value head; parameters are passed in.

    Attributes:
      config: of the trunk.
      width: of both hidden layers.
      scale: what the last layer gives is multiplied by: the size of rewards. An optimiser whose
        steps have one size whatever the gradient's (Adam, Adafactor) then moves values by as many
        times more a step.
    """

    config: TransformerConfig
    width: int = 2048
    scale: float = 1.0

    def init(self, key: Key[Array, ""]) -> Params:
        """Random hidden layers in the parameters' dtype; the last layer is zero, as is its value.

        A value that begins as noise would be noise in the first advantages.
        """
        dtype = self.config.param_dtype
        d_model = self.config.d_model

        def layer(key: Array, inputs: int) -> Params:
            kernel = jax.nn.initializers.he_normal()(key, (inputs, self.width), dtype)
            return {"kernel": kernel, "bias": jnp.zeros(self.width, dtype)}

        first, second = jax.random.split(key)
        return {
            "first": layer(first, d_model),
            "second": layer(second, self.width),
            "last": {"kernel": jnp.zeros((self.width, 1), dtype), "bias": jnp.zeros(1, dtype)},
        }

    def abstract(self) -> Params:
        """Shapes and dtypes of the parameters, without making them."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def axes(self) -> Axes:
        """Logical axis names of the parameters."""
        return {
            "first": {"kernel": ("embed", "mlp"), "bias": ("mlp",)},
            "second": {"kernel": ("embed", "mlp"), "bias": ("mlp",)},
            "last": {"kernel": ("mlp", None), "bias": (None,)},
        }

    def apply(
        self, params: Params, hidden: Float[Array, "*batch d_model"]
    ) -> Float[Array, "*batch"]:
        """The final reward that is expected from each representation on, in float32.

        Args:
          params: the head's.
          hidden: final representations.
        """
        x = hidden
        for name in ("first", "second"):
            weights = jax.tree.map(lambda leaf: leaf.astype(hidden.dtype), params[name])
            x = jax.nn.relu(x @ weights["kernel"] + weights["bias"])
        last = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params["last"])
        return self.scale * (x.astype(jnp.float32) @ last["kernel"] + last["bias"])[..., 0]

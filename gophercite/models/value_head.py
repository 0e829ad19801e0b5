"""The value function: predicts the reward of an answer from its beginning (GopherCite, F.1).

It is a multi-layer perceptron over the final representation and shares the trunk with the policy.
During reinforcement learning, its parameters are a part of the policy's:

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
      config: the trunk's configuration.
      width: width of both hidden layers.
      scale: factor on the last layer's output: the magnitude of rewards. With an optimiser whose
        step size does not depend on the gradient's (Adam, Adafactor), each step changes values by
        this factor more.
    """

    config: TransformerConfig
    width: int = 2048
    scale: float = 1.0

    def init(self, key: Key[Array, ""]) -> Params:
        """Random hidden layers in the parameters' dtype; the last layer and so the value are zero.

        Random initial values would add noise to the first advantages.
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
        """Shapes and dtypes of the parameters, without allocating them."""
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
        """The final reward expected at each representation, in float32.

        Args:
          params: the head's parameters.
          hidden: final representations.
        """
        x = hidden
        for name in ("first", "second"):
            weights = jax.tree.map(lambda leaf: leaf.astype(hidden.dtype), params[name])
            x = jax.nn.relu(x @ weights["kernel"] + weights["bias"])
        last = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params["last"])
        value = jnp.matmul(
            x.astype(jnp.float32), last["kernel"], precision=jax.lax.Precision.HIGHEST
        )
        return self.scale * (value + last["bias"])[..., 0]

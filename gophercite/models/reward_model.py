"""A reward model: the language model's trunk and two linear heads (GopherCite, 2.8 and E).

Its input is a question and a response, without documents, which is what a rater sees. The heads
read the representation of the response's last token. Its parameters are a Transformer's plus one
part:

    {"heads": {"reward": {"kernel": [d_model]},
               "supported_and_plausible": {"kernel": [d_model], "bias": [1]}}, ...}

The unembedding of a model without tied embeddings stays, unused, so that parameters can be
exchanged with a language model in both directions.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gophercite.models.parameters import HEADS, Axes, Params
from gophercite.models.transformer import Transformer
from gophercite.partitioning import constrain

REWARD, SUPPORTED_AND_PLAUSIBLE = "reward", "supported_and_plausible"


class Verdict(NamedTuple):
    """A reward model's outputs for responses, in float32.

    Attributes:
      reward: the difference between two responses' rewards is the log-odds that people prefer the
        first.
      supported_and_plausible: log-odds that raters find a response both supported and plausible.
    """

    reward: Float[Array, " batch"]
    supported_and_plausible: Float[Array, " batch"]


@dataclasses.dataclass(frozen=True)
class RewardModel:
    """The functions of a reward model of one architecture; parameters are passed in.

    Attributes:
      transformer: the trunk.
    """

    transformer: Transformer

    def init_heads(self, key: Key[Array, ""]) -> Params:
        """Random heads, in the parameters' dtype.

        Their kernels have standard deviation 1 / √(d_model + 1) (Stiennon et al. 2020), which gives
        rewards of variance 1 for normalised representations.
        """
        width, dtype = self.transformer.config.d_model, self.transformer.config.param_dtype

        def kernel(key: Array) -> Array:
            return (jax.random.normal(key, (width,)) * (width + 1) ** -0.5).astype(dtype)

        first, second = jax.random.split(key)
        return {
            REWARD: {"kernel": kernel(first)},
            SUPPORTED_AND_PLAUSIBLE: {"kernel": kernel(second), "bias": jnp.zeros(1, dtype)},
        }

    def abstract_heads(self) -> Params:
        """Shapes and dtypes of the heads, without allocating them."""
        return jax.eval_shape(self.init_heads, jax.random.key(0))

    def heads_axes(self) -> Axes:
        """Logical axis names of the heads' parameters."""
        return {
            REWARD: {"kernel": ("embed",)},
            SUPPORTED_AND_PLAUSIBLE: {"kernel": ("embed",), "bias": (None,)},
        }

    def judge(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        lengths: Int[Array, " batch"],
        *,
        accumulated: Any = None,
    ) -> Verdict:
        """Scores responses.

        Args:
          params: the reward model's parameters.
          tokens: each row is a question with a response (`prompts.encode_judged`), then padding.
          lengths: number of tokens in each row without padding; an empty row gets a meaningless
            verdict.
          accumulated: gradients of the trained stack to add to (see `models.stack.run_stack`).

        Returns:
          The verdict on each row.
        """
        places = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
        real = (places < lengths[:, None]).astype(jnp.int32)
        hidden, _ = self.transformer.apply(params, tokens, places, real, accumulated=accumulated)
        last = jnp.maximum(lengths - 1, 0)[:, None, None]
        hidden = jnp.take_along_axis(hidden, last, axis=1)[:, 0].astype(jnp.float32)
        hidden = constrain(hidden, "batch", "activation_embed")
        heads = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params[HEADS])
        second = heads[SUPPORTED_AND_PLAUSIBLE]
        # Float32 as such: accelerators would round the factors otherwise, to bfloat16 on a TPU.
        read_out = partial(jnp.matmul, hidden, precision=jax.lax.Precision.HIGHEST)
        return Verdict(
            read_out(heads[REWARD]["kernel"]), read_out(second["kernel"]) + second["bias"]
        )

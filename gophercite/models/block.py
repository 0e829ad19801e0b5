"""One Transformer block as a Flax module: parameters, their logical axes, and what they compute."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.attention import RelativePositions, attention, cached_attention
from gophercite.models.cache import LayerCache, Slots, add_tokens, first_slot
from gophercite.models.config import TransformerConfig
from gophercite.models.positions import rotary
from gophercite.partitioning import constrain

Hidden = Float[Array, "batch length d_model"]
Settings = dict[str, Float[Array, ""] | Int[Array, ""]]

_ACTIVATIONS = {"gelu": nn.gelu, "silu": nn.silu}


class Context(NamedTuple):
    """What all layers share in one pass over a batch.

    Attributes:
      positions: each token's place in its segment, from 0.
      segments: packed sequences are told apart by their number; 0 is padding.
      sinusoids: Transformer-XL's embedding of each distance; None with rotary positions.
    """

    positions: Int[Array, "batch length"]
    segments: Int[Array, "batch length"]
    sinusoids: Float[Array, "distances d_model"] | None


def rms_norm(
    x: Float[Array, "*tokens channels"], scale: Float[Array, " channels"], epsilon: float
) -> Float[Array, "*tokens channels"]:
    """Root-mean-square normalisation in float32 (Zhang and Sennrich 2019).

    Args:
      x: activations.
      scale: gain of each channel.
      epsilon: added to the mean square.

    Returns:
      Activations of unit root mean square times `scale`, in `x`'s dtype.
    """
    square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(square + epsilon) * scale).astype(x.dtype)


def linear(x: Hidden, kernel: Float[Array, "d_model out"]) -> Float[Array, "batch length out"]:
    """Multiplies each token's vector by a matrix, in the vectors' dtype.

    Tokens are rows of one matrix: the kernel's gradient sums over one axis, not over two, which
    XLA's CPU backend would answer with transposed copies of both factors.
    """
    y = x.reshape(-1, x.shape[-1]) @ kernel.astype(x.dtype)
    return y.reshape(*x.shape[:-1], -1)


class Block(nn.Module):
    """Pre-norm attention and MLP, each added to the residual stream.

    All matrices are two-dimensional, [in, out], heads side by side in one axis: the form that
    factored optimiser statistics, sharding rules and checkpoint importers all read.
    """

    config: TransformerConfig

    def setup(self) -> None:
        """Declares parameters with their logical axes."""
        c = self.config
        heads, kv = c.num_heads * c.head_dim, c.kv_heads * c.head_dim
        # Residual branches start small, so that depth does not blow the stream up (GPT-2).
        branch = (2 * c.num_layers) ** -0.5
        self.attention_norm = self._scale("attention_norm", c.d_model, "embed")
        self.query = self._matrix("query", (c.d_model, heads), ("embed", "heads"))
        self.key = self._matrix("key", (c.d_model, kv), ("embed", "kv_heads"))
        self.value = self._matrix("value", (c.d_model, kv), ("embed", "kv_heads"))
        self.out = self._matrix("out", (heads, c.d_model), ("heads", "embed"), branch)
        if c.position == "transformer_xl":
            self.relative = self._matrix("relative", (c.d_model, heads), ("embed", "heads"))
            self.content_bias = self._bias("content_bias", heads, "heads")
            self.position_bias = self._bias("position_bias", heads, "heads")
        if c.qkv_bias:
            self.query_bias = self._bias("query_bias", heads, "heads")
            self.key_bias = self._bias("key_bias", kv, "kv_heads")
            self.value_bias = self._bias("value_bias", kv, "kv_heads")
        if c.query_key_norm:
            self.query_norm = self._scale("query_norm", c.head_dim, None)
            self.key_norm = self._scale("key_norm", c.head_dim, None)
        self.mlp_norm = self._scale("mlp_norm", c.d_model, "embed")
        self.up = self._matrix("up", (c.d_model, c.mlp_width), ("embed", "mlp"))
        if c.gated_mlp:
            self.gate = self._matrix("gate", (c.d_model, c.mlp_width), ("embed", "mlp"))
        self.down = self._matrix("down", (c.mlp_width, c.d_model), ("mlp", "embed"), branch)

    def _matrix(
        self, name: str, shape: tuple[int, int], axes: tuple[str, str], gain: float = 1.0
    ) -> Any:
        init = nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal")
        return self.param(
            name, nn.with_logical_partitioning(init, axes), shape, self.config.param_dtype
        )

    def _scale(self, name: str, width: int, axis: str | None) -> Any:
        init = nn.with_logical_partitioning(nn.initializers.ones, (axis,))
        return self.param(name, init, (width,), self.config.param_dtype)

    def _bias(self, name: str, width: int, axis: str) -> Any:
        init = nn.with_logical_partitioning(nn.initializers.zeros, (axis,))
        return self.param(name, init, (width,), self.config.param_dtype)

    def __call__(
        self, x: Hidden, settings: Settings, context: Context
    ) -> tuple[Hidden, tuple[Array, Array]]:
        """A pass over whole sequences.

        Args:
          x: the residual stream.
          settings: what this layer has of its own: "rope_theta", "window", or nothing.
          context: what all layers share.

        Returns:
          The residual stream, and this layer's keys and values, each [batch, length, kv_heads,
          head_dim].
        """
        c = self.config
        q, k, v = self._project(x, settings, context.positions)
        relative = None
        if context.sinusoids is not None:
            relative = self._relative_positions(self._distances(context.sinusoids))
        mixed = attention(
            q,
            k,
            v,
            context.segments,
            relative=relative,
            window=settings.get("window", c.window),  # type: ignore[arg-type]
            kernel=c.attention_kernel,
            block=c.attention_block,
            remat=c.attention_remat,
        )
        return self._finish(x, mixed), (k, v)

    def decode(
        self, x: Hidden, settings: Settings, positions: Array, slots: Slots, cache: LayerCache
    ) -> tuple[Hidden, LayerCache]:
        """A pass over new tokens, which join the cache.

        Args:
          x: the residual stream of the new tokens.
          settings: this layer's own settings.
          positions: the new tokens' places, [batch, length].
          slots: the cache's layout, the new tokens already entered.
          cache: this layer's keys and values; the new tokens take the last `length` slots that
            were entered.

        Returns:
          The residual stream and the cache with the new tokens.
        """
        q, k, v = self._project(x, settings, positions)
        cache = add_tokens(cache, k, v, first_slot(slots, x.shape[1]))
        relative = self._relative_positions(cache.relative) if cache.relative is not None else None
        mixed = cached_attention(
            q,
            cache,
            positions,
            slots,
            relative=relative,
            window=settings.get("window", self.config.window),  # type: ignore[arg-type]
        )
        return self._finish(x, mixed), cache

    def project_distances(self, sinusoids: Float[Array, "n d_model"]) -> Array:
        """Transformer-XL's key of each distance, W_r R_d: [distances, heads, head_dim]."""
        return self._distances(sinusoids)

    def _project(
        self, x: Hidden, settings: Settings, positions: Int[Array, "batch length"]
    ) -> tuple[Array, Array, Array]:
        """Queries, keys and values by head, normalised and rotated where the model does so."""
        c = self.config
        normed = rms_norm(x, self.attention_norm, c.norm_epsilon)
        normed = constrain(normed, "batch", "length", "activation_embed")

        def by_head(name: str, heads: int, axis: str) -> Array:
            y = linear(normed, getattr(self, name))
            if c.qkv_bias:
                y += getattr(self, f"{name}_bias").astype(y.dtype)
            y = constrain(y, "batch", "length", axis)
            return y.reshape(*y.shape[:2], heads, c.head_dim)

        q = by_head("query", c.num_heads, "heads")
        k = by_head("key", c.kv_heads, "kv_heads")
        v = by_head("value", c.kv_heads, "kv_heads")
        if c.query_key_norm:
            q = rms_norm(q, self.query_norm, c.norm_epsilon)
            k = rms_norm(k, self.key_norm, c.norm_epsilon)
        if c.position == "rope":
            theta = settings.get("rope_theta", c.rope_theta)
            q, k = (
                rotary(y, positions, theta, c.rope_scaling)  # type: ignore[arg-type]
                for y in (q, k)
            )
        return q, k, v

    def _distances(self, sinusoids: Array) -> Array:
        c = self.config
        projected = sinusoids.astype(c.dtype) @ self.relative.astype(c.dtype)
        return constrain(projected, None, "heads").reshape(-1, c.num_heads, c.head_dim)

    def _relative_positions(self, keys: Array) -> RelativePositions:
        shape = (self.config.num_heads, self.config.head_dim)
        return RelativePositions(
            keys, self.content_bias.reshape(shape), self.position_bias.reshape(shape)
        )

    def _finish(self, x: Hidden, mixed: Array) -> Hidden:
        """Adds attention's output and the MLP to the residual stream."""
        c = self.config
        mixed = mixed.reshape(*mixed.shape[:2], -1)
        mixed = constrain(mixed, "batch", "length", "heads")
        x += constrain(linear(mixed, self.out), "batch", "residual_length", None)
        normed = rms_norm(x, self.mlp_norm, c.norm_epsilon)
        normed = constrain(normed, "batch", "length", "activation_embed")
        inner = constrain(linear(normed, self.up), "batch", "length", "mlp")
        activation = _ACTIVATIONS[c.activation]
        if c.gated_mlp:
            inner *= activation(constrain(linear(normed, self.gate), "batch", "length", "mlp"))
        else:
            inner = activation(inner)
        return x + constrain(linear(inner, self.down), "batch", "residual_length", None)

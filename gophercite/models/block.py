"""One Transformer block as a Flax module: parameters, their logical axes, and what they compute."""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gophercite.models.attention import RelativePositions, Segments, attention
from gophercite.models.cache import Entries, LayerCache, add_tokens, first_entry
from gophercite.models.cached_attention import cached_attention
from gophercite.models.config import TransformerConfig
from gophercite.models.distance_biases import Biases
from gophercite.models.kernel_attention import (
    cached_attention_by_kernel,
    causal_attention_by_kernel,
    has_kernel,
)
from gophercite.models.lora import OF_LAYER, Adapter, adapter_of
from gophercite.models.norms import Norm, normalise
from gophercite.models.parameters import PROJECTED, PROJECTIONS
from gophercite.models.positions import Rotations, rotary
from gophercite.models.products import kept, product
from gophercite.partitioning import constrain

Hidden = Float[Array, "batch length d_model"]
Settings = dict[str, Float[Array, ""] | Int[Array, ""]]

_ACTIVATIONS = {
    "gelu": nn.gelu,
    "gelu_exact": partial(nn.gelu, approximate=False),
    "silu": nn.silu,
    "relu": nn.relu,
}


class Context(NamedTuple):
    """What all layers share in one pass over a batch.

    Attributes:
      positions: each token's position in its segment, from 0.
      segments: segment number of each token in packed sequences; 0 is padding. They may branch.
      sinusoids: Transformer-XL's embedding of each distance; None for other kinds of positions.
      rotations: rotary angles at each token's position; None for other kinds of positions.
      biases: T5's bias for each distance; None for other kinds of positions.
      lengths: number of tokens in each sequence, if each is a single segment, padded on the right,
        and read without gradients; otherwise None.
    """

    positions: Int[Array, "batch length"]
    segments: Segments
    sinusoids: Float[Array, "distances d_model"] | None = None
    rotations: Rotations | None = None
    biases: Biases | None = None
    lengths: Int[Array, " batch"] | None = None


def linear(
    x: Hidden,
    kernel: Float[Array, "d_model out"],
    bias: Float[Array, " out"] | None = None,
    adapter: Adapter | None = None,
) -> Float[Array, "batch length out"]:
    """Multiplies each token's vector by a matrix, and adds a bias, in the vectors' dtype.

    Tokens are flattened to rows of one matrix, so that the kernel's gradient sums over one axis.
    For a sum over two axes, XLA's CPU backend would make transposed copies of both factors.
    """
    rows = x.reshape(-1, x.shape[-1])
    y = product(rows, kernel.astype(x.dtype))
    if adapter is not None:
        y += adapter(rows)
    return kept(_plus(y.reshape(*x.shape[:-1], -1), bias))


def _plus(y: Array, bias: Array | None) -> Array:
    return y if bias is None else y + bias.astype(y.dtype)


class Block(nn.Module):
    """Pre-norm attention and MLP, added to the residual stream in turn or in parallel.

    All matrices are two-dimensional, [in, out], with heads concatenated in one axis: the form that
    factored optimiser statistics, sharding rules and checkpoint importers expect. If a layer's
    weights have "adapters" (`lora`), their products are added to the matrices' products.
    """

    config: TransformerConfig
    adapter_scale: float = 1.0

    def setup(self) -> None:
        """Declares parameters with their logical axes."""
        c = self.config
        heads, kv = c.num_heads * c.head_dim, c.kv_heads * c.head_dim
        # Residual branches start small, so that the stream does not grow with depth (GPT-2).
        branch = (2 * c.num_layers) ** -0.5
        self.attention_norm = self._norm("attention_norm", c.d_model, "embed")
        # Scores have the same initial scale, whatever queries are divided by (T5: not divided).
        gain = ((c.query_pre_attn_scalar or c.head_dim) / c.head_dim) ** 0.5
        self.query = self._matrix("query", (c.d_model, heads), ("embed", "heads"), gain)
        self.key = self._matrix("key", (c.d_model, kv), ("embed", "kv_heads"))
        self.value = self._matrix("value", (c.d_model, kv), ("embed", "kv_heads"))
        self.out = self._matrix("out", (heads, c.d_model), ("heads", "embed"), branch)
        if c.position == "transformer_xl":
            self.relative = self._matrix("relative", (c.d_model, heads), ("embed", "heads"))
            self.content_bias = self._bias("content_bias", heads, "heads")
            self.position_bias = self._bias("position_bias", heads, "heads")
        self.query_bias = self._bias("query_bias", heads, "heads", c.qkv_bias)
        self.key_bias = self._bias("key_bias", kv, "kv_heads", c.qkv_bias)
        self.value_bias = self._bias("value_bias", kv, "kv_heads", c.qkv_bias)
        self.out_bias = self._bias("out_bias", c.d_model, "embed", c.out_bias)
        if c.query_key_norm:
            self.query_norm = self._norm("query_norm", c.head_dim, None)
            self.key_norm = self._norm("key_norm", c.head_dim, None)
        self.mlp_norm = self._norm("mlp_norm", c.d_model, "embed")
        if c.post_norms:
            self.attention_post_norm = self._norm("attention_post_norm", c.d_model, "embed")
            self.mlp_post_norm = self._norm("mlp_post_norm", c.d_model, "embed")
        self.up = self._matrix("up", (c.d_model, c.mlp_width), ("embed", "mlp"))
        self.up_bias = self._bias("up_bias", c.mlp_width, "mlp", c.mlp_bias)
        if c.gated_mlp:
            self.gate = self._matrix("gate", (c.d_model, c.mlp_width), ("embed", "mlp"))
            self.gate_bias = self._bias("gate_bias", c.mlp_width, "mlp", c.mlp_bias)
        self.down = self._matrix("down", (c.mlp_width, c.d_model), ("mlp", "embed"), branch)
        self.down_bias = self._bias("down_bias", c.d_model, "embed", c.mlp_bias)

    def _matrix(
        self, name: str, shape: tuple[int, int], axes: tuple[str, str], gain: float = 1.0
    ) -> Any:
        init = nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal")
        return self._parameter(name, init, shape, axes)

    def _norm(self, name: str, width: int, axis: str | None) -> Norm:
        c = self.config
        ones = nn.initializers.zeros if c.zero_centered_norms else nn.initializers.ones
        scale = self._parameter(name, ones, (width,), (axis,))
        return Norm(scale, self._bias(f"{name}_bias", width, axis, c.norm == "layer"))

    def _bias(self, name: str, width: int, axis: str | None, wanted: bool = True) -> Any:
        """A bias if the architecture has one, else None."""
        if not wanted:
            return None
        return self._parameter(name, nn.initializers.zeros, (width,), (axis,))

    def _parameter(
        self,
        name: str,
        init: nn.initializers.Initializer,
        shape: tuple[int, ...],
        axes: tuple[str | None, ...],
    ) -> Any:
        if self.is_initializing():
            boxed = nn.with_logical_partitioning(init, axes)
            return self.param(name, boxed, shape, self.config.param_dtype)
        # Without `param`, which traces the initialiser again to compare the shapes.
        given = self.get_variable("params", name)
        if given is None:
            raise KeyError(f"the layer's parameters lack {name!r}")
        return given

    def __call__(
        self, x: Hidden, settings: Settings, context: Context
    ) -> tuple[Hidden, tuple[Array, Array]]:
        """A pass over full sequences.

        Args:
          x: the residual stream.
          settings: per-layer settings: "rotation" (its kind), "window", or none.
          context: what all layers share.

        Returns:
          The residual stream, and this layer's keys and values, each [batch, length, kv_heads,
          head_dim].
        """
        c = self.config
        q, k, v = self._project(x, settings, context.rotations)
        if context.lengths is not None and has_kernel(c):
            mixed = causal_attention_by_kernel(q, k, v, context.lengths, scale=c.query_scale)
            return self._finish(x, mixed), (k, v)
        relative = None
        if context.sinusoids is not None:
            relative = self._relative_positions(self._distances(context.sinusoids))
        mixed = attention(
            q,
            k,
            v,
            context.segments,
            relative=relative,
            biases=context.biases,
            window=settings.get("window", c.window),  # type: ignore[arg-type]
            scale=c.query_scale,
            softcap=c.attention_softcap,
            kernel=c.attention_kernel,
            block=c.attention_block,
            remat=c.attention_remat,
        )
        return self._finish(x, mixed), (k, v)

    def decode(
        self,
        x: Hidden,
        settings: Settings,
        positions: Array,
        entries: Entries,
        cache: LayerCache,
        rotations: Rotations | None = None,
        biases: Biases | None = None,
    ) -> tuple[Hidden, LayerCache]:
        """A pass over new tokens, which are added to the cache.

        Args:
          x: the residual stream of the new tokens.
          settings: this layer's own settings.
          positions: the new tokens' positions, [batch, length].
          entries: the cache's layout, including the new tokens.
          cache: this layer's keys and values; the new tokens take the last `length` entries of the
            layout.
          rotations: rotary angles at the new tokens' positions.
          biases: T5's bias for each distance.

        Returns:
          The residual stream and the cache with the new tokens.
        """
        c = self.config
        q, k, v = self._project(x, settings, rotations)
        cache = add_tokens(cache, k, v, first_entry(entries, x.shape[1]))
        if has_kernel(c):
            mixed = cached_attention_by_kernel(q, cache, positions, entries, scale=c.query_scale)
            return self._finish(x, mixed), cache
        relative = self._relative_positions(cache.relative) if cache.relative is not None else None
        mixed = cached_attention(
            q,
            cache,
            positions,
            entries,
            relative=relative,
            biases=biases,
            window=settings.get("window", c.window),  # type: ignore[arg-type]
            scale=c.query_scale,
            softcap=c.attention_softcap,
        )
        return self._finish(x, mixed), cache

    def project_distances(self, sinusoids: Float[Array, "n d_model"]) -> Array:
        """Transformer-XL's key for each distance, W_r R_d: [distances, heads, head_dim]."""
        return self._distances(sinusoids)

    def _project(
        self, x: Hidden, settings: Settings, rotations: Rotations | None
    ) -> tuple[Array, Array, Array]:
        """Queries, keys and values by head, normalised and rotated if the model does so."""
        c = self.config
        normed = normalise(c, x, self.attention_norm)
        normed = constrain(normed, "batch", "length", "activation_embed")

        def by_head(y: Array, axis: str) -> Array:
            y = constrain(y, "batch", "length", axis)
            return y.reshape(*y.shape[:2], -1, c.head_dim)

        projected = self._projections(normed)
        q, k, v = map(by_head, projected, ("heads", "kv_heads", "kv_heads"))
        if c.query_key_norm:
            q = normalise(c, q, self.query_norm)
            k = normalise(c, k, self.key_norm)
        if rotations is not None:
            kind: Any = settings.get("rotation", 0)
            q, k = (rotary(y, rotations, kind) for y in (q, k))
        return q, k, v

    def _projections(self, x: Hidden) -> list[Array]:
        """Products with the query, key and value matrices, separate or joined into one."""
        together = self.get_variable("params", PROJECTIONS)
        if together is None:
            return [self._linear(x, name) for name in PROJECTED]
        ends = np.cumsum([getattr(self, name).shape[1] for name in PROJECTED])
        parts = jnp.split(linear(x, together), ends[:-1], axis=-1)
        biases = (getattr(self, f"{name}_bias") for name in PROJECTED)
        return [_plus(part, bias) for part, bias in zip(parts, biases, strict=True)]

    def _distances(self, sinusoids: Array) -> Array:
        c = self.config
        adapter = self._adapter("relative")
        projected = linear(sinusoids.astype(c.dtype), self.relative, adapter=adapter)
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
        attended = self._linear(mixed, "out")
        if c.post_norms:
            attended = normalise(c, attended, self.attention_post_norm)
        after = x + constrain(attended, "batch", "residual_length", None)
        changed = self._mlp(x if c.parallel_residual else after)
        if c.post_norms:
            changed = normalise(c, changed, self.mlp_post_norm)
        return after + constrain(changed, "batch", "residual_length", None)

    def _mlp(self, x: Hidden) -> Hidden:
        c = self.config
        normed = constrain(normalise(c, x, self.mlp_norm), "batch", "length", "activation_embed")
        inner = constrain(self._linear(normed, "up"), "batch", "length", "mlp")
        activation = _ACTIVATIONS[c.activation]
        if c.gated_mlp:
            gate = self._linear(normed, "gate")
            inner *= activation(constrain(gate, "batch", "length", "mlp"))
        else:
            inner = activation(inner)
        return self._linear(inner, "down")

    def _linear(self, x: Hidden, name: str) -> Array:
        """Products with one of the layer's matrices, with its bias and adapter if there are any."""
        bias = getattr(self, f"{name}_bias")
        return linear(x, getattr(self, name), bias, self._adapter(name))

    def _adapter(self, name: str) -> Adapter | None:
        return adapter_of(self.get_variable("params", OF_LAYER), name, self.adapter_scale)

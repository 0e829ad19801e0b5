"""A decoder-only Transformer as pure functions of its parameters (see `parameters`)."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.models.block import Block, Context
from gophercite.models.cache import Cache, LayerCache, empty_rows, empty_slots, enter_tokens
from gophercite.models.config import TransformerConfig
from gophercite.models.distance_biases import (
    DISTANCE_BIASES,
    lend_room,
    lend_table,
    shared_biases,
    take_back,
)
from gophercite.models.layer_settings import first_layer_settings, stack_settings, stacks
from gophercite.models.norms import Norm, normalise
from gophercite.models.parameters import (
    FROZEN,
    TRAINED,
    Axes,
    Params,
    depth,
    layer_at,
    split_layers,
)
from gophercite.models.positions import check_length, sinusoids
from gophercite.models.stack import run_stack
from gophercite.models.unembedding import Unembedding
from gophercite.partitioning import constrain


class Reading(NamedTuple):
    """What comes of reading tokens into a cache.

    Attributes:
      hidden: representations after the final norm.
      cache: with the tokens.
      boundary: what the trained stack read, see `Transformer.boundary`.
    """

    hidden: Float[Array, "batch length d_model"]
    cache: Cache
    boundary: Float[Array, "batch length d_model"]


@dataclasses.dataclass(frozen=True)
class Transformer:
    """The functions of a model of one architecture; parameters are passed in.

    Attributes:
      config: the architecture.
    """

    config: TransformerConfig

    def init(self, key: Key[Array, ""], frozen_layers: int = 0) -> Params:
        """Random parameters, the same whatever the number of frozen layers.

        Args:
          key: a typed PRNG key.
          frozen_layers: layers in the frozen stack, from the first.

        Returns:
          Parameters in `config.param_dtype`.
        """
        return split_layers(nn.meta.unbox(self._boxed(key)), frozen_layers)

    def logical_axes(self, frozen_layers: int = 0) -> Axes:
        """Logical axis names of each parameter, as a tree like the parameters."""
        boxed = jax.eval_shape(self._boxed, jax.random.key(0))

        def names(box: nn.LogicallyPartitioned) -> tuple[str, ...]:
            stacked = len(box.value.shape) - len(box.names)
            return ("layers",) * stacked + box.names

        axes = jax.tree.map(names, boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned))
        if not frozen_layers:
            return axes
        return {FROZEN: axes[TRAINED], **axes}

    def abstract(self, frozen_layers: int = 0) -> Params:
        """Shapes and dtypes of the parameters, without making them."""
        return jax.eval_shape(lambda: self.init(jax.random.key(0), frozen_layers))

    def _boxed(self, key: Key[Array, ""]) -> Params:
        """Parameters in Flax's boxes, which carry the logical axes."""
        c = self.config
        embed_key, layer_key, unembed_key = jax.random.split(key, 3)
        # One token is shown, which no fused kernel takes.
        block = Block(dataclasses.replace(c, attention_kernel="blocks"))
        x = jnp.zeros((1, 1, c.d_model), c.dtype)
        place = jnp.zeros((1, 1), jnp.int32)
        waves = self._sinusoids(1)

        def layer(key: Array) -> Params:
            context = Context(place, place, waves)
            return block.init(key, x, first_layer_settings(c), context)["params"]

        def matrix(
            key: Array, shape: tuple[int, int], axes: tuple[str | None, str | None], std: float
        ) -> Any:
            init = nn.with_logical_partitioning(nn.initializers.normal(std), axes)
            return init(key, shape, c.param_dtype)

        def vector(value: float) -> Any:
            init = nn.with_logical_partitioning(nn.initializers.constant(value), ("embed",))
            return init(key, (c.d_model,), c.param_dtype)

        # Tied embeddings read the stream out too, so they are kept small unless scaled there.
        shape = (c.vocab_size, c.d_model)
        std = 1.0 if c.scale_logits else c.d_model**-0.5
        params = {
            "embed": {"embedding": matrix(embed_key, shape, ("vocab", "embed"), std)},
            TRAINED: jax.vmap(layer)(jax.random.split(layer_key, c.num_layers)),
            "final_norm": {"scale": vector(0.0 if c.zero_centered_norms else 1.0)},
        }
        if c.norm == "layer":
            params["final_norm"]["bias"] = vector(0.0)
        if c.max_positions is not None:
            places = (c.max_positions, c.d_model)
            key = jax.random.fold_in(embed_key, 1)
            params["embed"]["positions"] = matrix(key, places, (None, "embed"), c.d_model**-0.5)
        if c.distance_buckets is not None:
            table, key = (c.num_heads, c.distance_buckets), jax.random.fold_in(embed_key, 1)
            params["embed"][DISTANCE_BIASES] = matrix(key, table, (None, None), c.num_heads**-0.5)
        if not c.tied_embeddings:
            params["unembed"] = {
                "kernel": matrix(unembed_key, shape[::-1], ("embed", "vocab"), c.d_model**-0.5)
            }
        return params

    def apply(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        segments: Int[Array, "batch length"],
        cache: Cache | None = None,
        *,
        accumulated: Any = None,
    ) -> tuple[Float[Array, "batch length d_model"], Cache | None]:
        """The final representation of each token.

        Args:
          params: the model's parameters.
          tokens: token ids.
          positions: each token's place in its segment, from 0.
          segments: packed sequences are told apart by their number; 0 is padding and is never
            attended to. With a cache: nonzero where a token is real.
          cache: tokens before these; the new ones join it.
          accumulated: gradients of the trained stack to add to (see `run_stack`).

        Returns:
          Representations after the final norm, in `config.dtype`, and the cache with the new
          tokens (None without one).
        """
        if cache is not None:
            return self.decode(params, tokens, positions, segments > 0, cache)[:2]
        x = self.boundary(params, tokens, positions, segments)
        return self.from_boundary(params, x, positions, segments, accumulated=accumulated), None

    def boundary(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        segments: Int[Array, "batch length"],
    ) -> Float[Array, "batch length d_model"]:
        """What the trained stack reads: what the frozen one makes of the embeddings.

        Args:
          params: the model's parameters.
          tokens: token ids.
          positions: each token's place in its segment, from 0.
          segments: as `apply` takes them.

        Returns:
          The residual stream; embeddings where nothing is frozen. Nothing frozen has a gradient.
        """
        x = self.embed(params, tokens, positions)
        if FROZEN not in params:
            return x
        x = run_stack(
            self._layer,
            jax.lax.stop_gradient(lend_table(params, FROZEN)),
            stack_settings(self.config, params)[0],
            jax.lax.stop_gradient(x),
            Context(positions, segments, self._sinusoids(tokens.shape[1])),
            unroll=not self.config.scan_layers,
        )
        return jax.lax.stop_gradient(x)

    def from_boundary(
        self,
        params: Params,
        x: Float[Array, "batch length d_model"],
        positions: Int[Array, "batch length"],
        segments: Int[Array, "batch length"],
        *,
        accumulated: Any = None,
    ) -> Float[Array, "batch length d_model"]:
        """The final representations, from what `boundary` gives; arguments as there.

        Models that differ in their trained stack alone share what they read.
        """
        c = self.config
        stack = lend_table(params, TRAINED)
        x = run_stack(
            self._layer,
            stack,
            stack_settings(c, params)[1],
            x,
            Context(positions, segments, self._sinusoids(x.shape[1])),
            remat_every=c.remat_every,
            unroll=not c.scan_layers,
            accumulated=lend_room(accumulated, stack),
        )
        return self._final_norm(params, x)

    def _final_norm(self, params: Params, x: Array) -> Array:
        return normalise(self.config, x, Norm(**params["final_norm"]))

    def _layer(self, weights: Params, settings: Any, x: Array, context: Context) -> Array:
        own, biases = take_back(self.config, weights)
        context = context._replace(biases=biases)
        y, _ = Block(self.config).apply({"params": own}, x, settings, context)
        return constrain(y, "batch", "residual_length", "activation_embed")

    def embed(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
    ) -> Float[Array, "batch length d_model"]:
        """Embeddings of tokens, and of positions where they are learned, in `config.dtype`."""
        c = self.config
        check_length(c, tokens.shape[1])
        x = params["embed"]["embedding"].astype(c.dtype)[tokens]
        if c.scale_embeddings:
            x *= jnp.asarray(c.d_model**0.5, c.dtype)
        if c.position == "learned":
            x += params["embed"]["positions"].astype(c.dtype)[positions]
        return constrain(x, "batch", "residual_length", "activation_embed")

    def unembedding(self, params: Params) -> Unembedding:
        """What turns representations into logits."""
        c = self.config
        kernel = (
            params["embed"]["embedding"] if c.tied_embeddings else params["unembed"]["kernel"].T
        )
        if c.scale_logits:
            kernel = kernel * jnp.asarray(c.d_model**-0.5, kernel.dtype)
        return Unembedding(kernel, c.logit_softcap)

    def logits(
        self, params: Params, hidden: Float[Array, "batch length d_model"]
    ) -> Float[Array, "batch length vocab"]:
        """Unnormalised log-probabilities of the next token, in float32."""
        return self.unembedding(params).logits(hidden)

    def logits_of(
        self,
        params: Params,
        hidden: Float[Array, "batch d_model"],
        tokens: Int[Array, "batch tokens"],
    ) -> Float[Array, "batch tokens"]:
        """Logits of some tokens only, in float32."""
        return self.unembedding(params).logits_of(hidden, tokens)

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "prompts length"],
        lengths: Int[Array, " prompts"],
        room: int,
        samples: int = 1,
    ) -> Reading:
        """Reads prompts of different lengths, padded on the right, into a new cache.

        Args:
          params: the model's parameters.
          tokens: prompts.
          lengths: tokens of each prompt that are real.
          room: tokens that can be added to each sequence.
          samples: sequences that go on from each prompt, which share its keys and values.

        Returns:
          The reading. Padding is never attended to; the next token of a prompt has the position
          `lengths[prompt]`.
        """
        c = self.config
        prompts, length = tokens.shape
        check_length(c, length + room)
        positions = jnp.broadcast_to(jnp.arange(length), (prompts, length))
        real = positions < lengths[:, None]
        context = Context(
            positions, real.astype(jnp.int32), self._sinusoids(length), shared_biases(c, params)
        )
        waves = self._sinusoids(length + room)
        block = Block(c)

        def layer(x: Array, leaf: tuple[Params, Any]) -> tuple[Array, LayerCache]:
            weights, settings = leaf
            variables = {"params": weights}
            x, (k, v) = block.apply(variables, x, settings, context)
            keys, values = (
                constrain(jnp.moveaxis(y, 1, 2), "batch", "kv_heads", "length", None)
                for y in (k, v)
            )
            own = empty_rows(keys, samples, room)
            relative = None
            if waves is not None:
                relative = block.apply(variables, waves, method=Block.project_distances)
            return x, LayerCache(keys, values, own, own, relative)

        x = self.embed(params, tokens, positions)
        parts: list[Any] = []
        for weights, settings in stacks(c, params):
            boundary = x
            if c.scan_layers:
                x, of_stack = jax.lax.scan(layer, x, (weights, settings))
                parts.append(of_stack)
                continue
            for i in range(depth(weights)):
                x, of_layer = layer(x, (layer_at(weights, i), layer_at(settings, i)))
                parts.append(of_layer)
        layers = tuple(parts)
        if c.scan_layers:
            layers = jax.tree.map(lambda *stacks: jnp.concatenate(stacks), *parts)
        hidden = self._final_norm(params, x)
        return Reading(hidden, Cache(layers, empty_slots(lengths, samples, room)), boundary)

    def decode(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        real: Bool[Array, "batch length"],
        cache: Cache,
    ) -> Reading:
        """Reads new tokens after those in a cache.

        Args:
          params: the model's parameters, in stacks or taken apart (`unstack_layers`).
          tokens: the new tokens, as many in each row; a prompt's samples are neighbours.
          positions: their places in their sequences.
          real: False where a row has ended and its token is padding.
          cache: with room for them.

        Returns:
          The reading; each layer's part of the cache is rewritten in place.
        """
        x = self.embed(params, tokens, positions)
        slots = enter_tokens(cache.slots, positions, real)
        biases = shared_biases(self.config, params)
        block = Block(self.config)

        def layer(x: Array, leaf: tuple[Params, Any], of_layer: LayerCache) -> Any:
            weights, settings = leaf
            new = (x, settings, positions, slots, of_layer, biases)
            return block.apply({"params": weights}, *new, method=Block.decode)

        layers, first = cache.layers, 0
        for weights, settings in stacks(self.config, params):
            boundary, last = x, first + depth(weights)
            if isinstance(layers, LayerCache):
                x, layers = _decode_in_a_loop(layer, x, (weights, settings), layers, first)
            else:
                written = []
                for i in range(first, last):
                    leaf = (layer_at(weights, i - first), layer_at(settings, i - first))
                    x, of_layer = layer(x, leaf, layers[i])
                    written.append(of_layer)
                layers = (*layers[:first], *written, *layers[last:])
            first = last
        hidden = self._final_norm(params, x)
        return Reading(hidden, Cache(layers, slots), boundary)

    def _sinusoids(self, distances: int) -> Float[Array, "distances d_model"] | None:
        if self.config.position != "transformer_xl":
            return None
        return sinusoids(jnp.arange(distances), self.config.d_model)


def _decode_in_a_loop(
    layer: Any, x: Array, stack: tuple[Params, Any], cache: LayerCache, first: int
) -> tuple[Array, LayerCache]:
    """Runs a stack, whose layers' own keys and values are rewritten in place from the first on."""

    def body(
        carry: tuple[Array, Array, Array], leaf: tuple[Any, ...]
    ) -> tuple[tuple[Array, Array, Array], None]:
        x, keys, values = carry
        weights_and_settings, prompt_keys, prompt_values, relative, index = leaf
        at = lambda rows: jax.lax.dynamic_index_in_dim(rows, index, keepdims=False)  # noqa: E731
        before = LayerCache(prompt_keys, prompt_values, at(keys), at(values), relative)
        x, after = layer(x, weights_and_settings, before)
        put = jax.lax.dynamic_update_index_in_dim
        return (x, put(keys, after.keys, index, 0), put(values, after.values, index, 0)), None

    last = first + depth(stack[0])
    read = (cache.prompt_keys, cache.prompt_values, cache.relative)
    read = jax.tree.map(lambda leaf: leaf[first:last], read)
    leaves = (stack, *read, jnp.arange(first, last))
    (x, keys, values), _ = jax.lax.scan(body, (x, cache.keys, cache.values), leaves)
    return x, cache._replace(keys=keys, values=values)

"""A decoder-only Transformer as pure functions of its parameters (see `parameters`)."""

import dataclasses
from functools import lru_cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.models.attention import Branched, Segments
from gophercite.models.block import Block, Context
from gophercite.models.cache import Cache, LayerCache, empty_entries, empty_rows, enter_tokens
from gophercite.models.config import TransformerConfig
from gophercite.models.distance_biases import (
    lend_room,
    lend_table,
    shared_biases,
    take_back,
)
from gophercite.models.initial_parameters import boxed_parameters
from gophercite.models.layer_settings import stack_settings, stacks
from gophercite.models.lora import LoRA, with_adapters
from gophercite.models.norms import Norm, normalise
from gophercite.models.parameters import (
    ADAPTERS,
    FROZEN,
    TRAINED,
    Axes,
    Params,
    depth,
    layer_at,
    split_layers,
)
from gophercite.models.positions import check_length, rotations, sinusoids
from gophercite.models.stack import Layer, run_cached_stack, run_stack
from gophercite.models.unembedding import Unembedding
from gophercite.partitioning import active_platform, constrain

# Compiling so many blocks separately takes seconds; of more, it might be minutes.
_FEW_LAYERS = 48


class Reading(NamedTuple):
    """The result of reading tokens into a cache.

    Attributes:
      hidden: representations after the final norm.
      cache: the cache with the tokens.
      frozen_activations: the trained stack's input, see `Transformer.frozen_activations`.
    """

    hidden: Float[Array, "batch length d_model"]
    cache: Cache
    frozen_activations: Float[Array, "batch length d_model"]


@dataclasses.dataclass(frozen=True)
class Transformer:
    """The functions of a model of one architecture; parameters are passed in.

    Attributes:
      config: the architecture.
      lora: the low-rank adapters that the parameters have; None if they have none.
    """

    config: TransformerConfig
    lora: LoRA | None = None

    def __post_init__(self) -> None:
        """Checks that the layers have the matrices that adapters target.

        Raises:
          ValueError: `lora` has a target that the architecture has no matrix for.
        """
        if self.lora is not None:
            self.lora.check(self.config)

    def init(self, key: Key[Array, ""], frozen_layers: int = 0) -> Params:
        """Random parameters, the same for any number of frozen layers.

        Args:
          key: a typed PRNG key.
          frozen_layers: number of first layers that form the frozen stack.

        Returns:
          Parameters in `config.param_dtype`.
        """
        return self._in_stacks(boxed_parameters(self.config, key), key, frozen_layers)

    def _in_stacks(self, boxed: Params, key: Array, frozen_layers: int) -> Params:
        params = split_layers(nn.meta.unbox(boxed), frozen_layers)
        if self.lora is not None:
            params[ADAPTERS] = self.init_adapters(jax.random.fold_in(key, 1), frozen_layers)
        return params

    def init_adapters(self, key: Key[Array, ""], frozen_layers: int = 0) -> Params:
        """Initial adapters, which change nothing yet (`LoRA.init`); requires `lora`."""
        assert self.lora is not None
        return self.lora.init(key, nn.meta.unbox(self._boxed_shapes())[TRAINED], frozen_layers)

    def logical_axes(self, frozen_layers: int = 0) -> Axes:
        """Logical axis names of each parameter, in a tree like the parameters."""

        def names(box: nn.LogicallyPartitioned) -> tuple[str, ...]:
            stacked = len(box.value.shape) - len(box.names)
            return ("layers",) * stacked + box.names

        boxed = self._boxed_shapes()
        axes = jax.tree.map(names, boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned))
        if self.lora is not None:
            axes[ADAPTERS] = self.lora.axes(axes[TRAINED])
        return {FROZEN: axes[TRAINED], **axes} if frozen_layers else axes

    def abstract(self, frozen_layers: int = 0) -> Params:
        """Shapes and dtypes of the parameters, without allocating them."""
        leaves, tree = _abstract(self, frozen_layers)
        shapes: Params = jax.tree.unflatten(tree, leaves)
        return shapes

    def _boxed_shapes(self) -> Params:
        leaves, tree = _boxed(self.config)
        shapes: Params = jax.tree.unflatten(tree, leaves)
        return shapes

    def apply(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        segments: Segments,
        cache: Cache | None = None,
        *,
        accumulated: Any = None,
    ) -> tuple[Float[Array, "batch length d_model"], Cache | None]:
        """The final representation of each token.

        Args:
          params: the model's parameters.
          tokens: token ids.
          positions: each token's position in its segment, from 0.
          segments: segment number of each token in packed sequences; 0 is padding and is never
            attended to. Segments may branch (`attention.Branched`). With a cache: nonzero for
            tokens that are not padding.
          cache: keys and values of preceding tokens; the new tokens are added to it.
          accumulated: gradients of the trained stack to add to (see `run_stack`).

        Returns:
          Representations after the final norm, in `config.dtype`, and the cache with the new
          tokens (None without one).
        """
        if cache is not None:
            if isinstance(segments, Branched):
                raise ValueError("rows with branching segments can't be read into a cache")
            return self.decode(params, tokens, positions, segments > 0, cache)[:2]
        x = self.frozen_activations(params, tokens, positions, segments)
        return self.from_frozen_activations(
            params, x, positions, segments, accumulated=accumulated
        ), None

    def frozen_activations(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        segments: Segments,
    ) -> Float[Array, "batch length d_model"]:
        """The trained stack's input, which is the frozen stack's output.

        Args:
          params: the model's parameters.
          tokens: token ids.
          positions: each token's position in its segment, from 0.
          segments: as in `apply`.

        Returns:
          The residual stream; the embeddings if nothing is frozen. Frozen layers have no gradient.
        """
        x = self.embed(params, tokens, positions)
        if FROZEN not in params:
            return x
        x = run_stack(
            self._layer,
            jax.lax.stop_gradient(lend_table(params, FROZEN)),
            stack_settings(self.config, params)[0],
            jax.lax.stop_gradient(x),
            self._context(positions, segments),
            unroll=self._unrolled,
        )
        return jax.lax.stop_gradient(x)

    def from_frozen_activations(
        self,
        params: Params,
        x: Float[Array, "batch length d_model"],
        positions: Int[Array, "batch length"],
        segments: Segments,
        *,
        accumulated: Any = None,
    ) -> Float[Array, "batch length d_model"]:
        """The final representations, from the result of `frozen_activations`; arguments as there.

        Models that differ only in their trained stack can share this input.
        """
        c = self.config
        layer: Layer = self._layer
        stack = lend_table(params, TRAINED)
        settings: Any = stack_settings(c, params)[1]
        if ADAPTERS in params:  # only adapters are differentiated; layers are passed as settings
            layer, settings = self._adapted_layer, (jax.lax.stop_gradient(stack), settings)
            stack = params[ADAPTERS]
        x = run_stack(
            layer,
            stack,
            settings,
            x,
            self._context(positions, segments),
            remat_every=c.remat_every,
            remat_elementwise=c.elementwise_remat,
            unroll=self._unrolled,
            accumulated=lend_room(accumulated, stack),
        )
        return self._final_norm(params, x)

    def _final_norm(self, params: Params, x: Array) -> Array:
        return normalise(self.config, x, Norm(**params["final_norm"]))

    def _layer(self, weights: Params, settings: Any, x: Array, context: Context) -> Array:
        own, biases = take_back(self.config, weights)
        context = context._replace(biases=biases)
        y, _ = self._block.apply({"params": own}, x, settings, context)
        return constrain(y, "batch", "residual_length", "activation_embed")

    def _adapted_layer(self, adapters: Params, base: Any, x: Array, context: Context) -> Array:
        weights, settings = base
        return self._layer(with_adapters(weights, adapters), settings, x, context)

    @property
    def _unrolled(self) -> bool:
        """Whether each block is compiled separately where activations are kept."""
        c = self.config
        if c.scan_layers is None:
            return active_platform() == "gpu" and c.num_layers <= _FEW_LAYERS
        return not c.scan_layers

    @property
    def _block(self) -> Block:
        return Block(self.config, 1.0 if self.lora is None else self.lora.scale)

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
        """The mapping from representations to logits."""
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
        capacity: int,
        samples: int = 1,
        entries: int | None = None,
    ) -> Reading:
        """Prefills a new cache with prompts of different lengths, padded on the right.

        Args:
          params: the model's parameters.
          tokens: prompts.
          lengths: number of tokens in each prompt without padding.
          capacity: number of tokens that can be added to each sequence.
          samples: number of sequences that continue each prompt and share its keys and values.
          entries: number of tokens to allocate room for at first, until `cache.with_capacity` adds
            more; `capacity` when None.

        Returns:
          The reading. Padding is never attended to; the next token of a prompt has the position
          `lengths[prompt]`.
        """
        c = self.config
        own_entries = capacity if entries is None else entries
        prompts, length = tokens.shape
        check_length(c, length + capacity)
        positions = jnp.broadcast_to(jnp.arange(length), (prompts, length))
        real = positions < lengths[:, None]
        context = self._context(positions, real.astype(jnp.int32))
        context = context._replace(biases=shared_biases(c, params), lengths=lengths)
        waves = self._sinusoids(length + capacity)
        block = self._block

        def layer(x: Array, leaf: tuple[Params, Any]) -> tuple[Array, LayerCache]:
            weights, settings = leaf
            variables = {"params": weights}
            x, (k, v) = block.apply(variables, x, settings, context)
            shown = real[:, :, None, None]
            k, v = jnp.where(shown, k, k[:, :1]), jnp.where(shown, v, jnp.zeros_like(v))
            keys, values = (
                constrain(jnp.moveaxis(y, 1, 2), "batch", "kv_heads", "length", None)
                for y in (k, v)
            )
            own = empty_rows(keys, samples, own_entries)
            relative = None
            if waves is not None:
                relative = block.apply(variables, waves, method=Block.project_distances)
            return x, LayerCache(keys, values, own, own, relative)

        x = self.embed(params, tokens, positions)
        parts: list[Any] = []
        for weights, settings in stacks(c, params):
            frozen_activations = x
            if c.loops_over_layers:
                x, of_stack = jax.lax.scan(layer, x, (weights, settings))
                parts.append(of_stack)
                continue
            for i in range(depth(weights)):
                x, of_layer = layer(x, (layer_at(weights, i), layer_at(settings, i)))
                parts.append(of_layer)
        layers = tuple(parts)
        if c.loops_over_layers:
            layers = jax.tree.map(lambda *stacks: jnp.concatenate(stacks), *parts)
        hidden = self._final_norm(params, x)
        layout = empty_entries(lengths, samples, own_entries)
        return Reading(
            hidden, Cache(layers, layout, rotations(c, length + capacity)), frozen_activations
        )

    def decode(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        real: Bool[Array, "batch length"],
        cache: Cache,
        seen: Bool[Array, "prompts samples length capacity"] | None = None,
    ) -> Reading:
        """Reads new tokens after those in a cache.

        Args:
          params: the model's parameters, stacked or not (`unstack_layers`).
          tokens: the new tokens, the same number in each row; a prompt's samples are adjacent.
          positions: the tokens' positions in their sequences.
          real: False where a row has ended and its token is padding.
          cache: the cache, with room for the tokens.
          seen: the entries of its row that each token may attend to, its own included. Entries of
            later positions are left out in any case. None means all entries.

        Returns:
          The reading; each layer's part of the cache is updated in place.
        """
        x = self.embed(params, tokens, positions)
        entries = enter_tokens(cache.entries, positions, real)._replace(seen=seen)
        biases = shared_biases(self.config, params)
        turns = cache.rotations.at(positions) if cache.rotations is not None else None
        block = self._block

        def layer(x: Array, leaf: tuple[Params, Any], of_layer: LayerCache) -> Any:
            weights, settings = leaf
            new = (x, settings, positions, entries, of_layer, turns, biases)
            return block.apply({"params": weights}, *new, method=Block.decode)

        layers, first = cache.layers, 0
        for weights, settings in stacks(self.config, params):
            frozen_activations, last = x, first + depth(weights)
            if isinstance(layers, LayerCache):
                x, layers = run_cached_stack(layer, x, (weights, settings), layers, first)
            else:
                written = []
                for i in range(first, last):
                    leaf = (layer_at(weights, i - first), layer_at(settings, i - first))
                    x, of_layer = layer(x, leaf, layers[i])
                    written.append(of_layer)
                layers = (*layers[:first], *written, *layers[last:])
            first = last
        hidden = self._final_norm(params, x)
        cache = cache._replace(layers=layers, entries=entries._replace(seen=None))
        return Reading(hidden, cache, frozen_activations)

    def _context(self, positions: Int[Array, "batch length"], segments: Segments) -> Context:
        """What all layers share in one pass over a batch, except T5's biases."""
        length = positions.shape[1]
        table = rotations(self.config, length)
        turns = table.at(positions) if table is not None else None
        return Context(positions, segments, self._sinusoids(length), turns)

    def _sinusoids(self, distances: int) -> Float[Array, "distances d_model"] | None:
        if self.config.position != "transformer_xl":
            return None
        return sinusoids(jnp.arange(distances), self.config.d_model)


@lru_cache(maxsize=64)  # tracing a model's initial parameters takes a tenth of a second
def _boxed(config: TransformerConfig) -> tuple[list[Any], Any]:
    draw: Any = partial(boxed_parameters, config)
    return jax.tree.flatten(jax.eval_shape(draw, jax.random.key(0)))


@lru_cache(maxsize=64)
def _abstract(model: Transformer, frozen_layers: int) -> tuple[list[Any], Any]:
    parts: Any = partial(model._in_stacks, frozen_layers=frozen_layers)
    return jax.tree.flatten(jax.eval_shape(parts, model._boxed_shapes(), jax.random.key(0)))

"""A decoder-only Transformer as pure functions of its parameters.

Parameters are a dictionary of named parts:

    {"embed": {"embedding": [vocab, d_model]},
     "frozen_layers": {...: [frozen, ...]},      # absent when nothing is frozen
     "trained_layers": {...: [trained, ...]},
     "final_norm": {"scale": [d_model]},
     "unembed": {"kernel": [d_model, vocab]}}    # absent when embeddings are tied

The two stacks of layers run one after the other, the frozen one under `stop_gradient` in a scan of
its own: it keeps no activations, has no backward pass and no optimiser state. A mask over one
stack's update would save none of these. Checkpoints hold one stack (`merge_layers`), which a run
splits where it freezes (`split_layers`).
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.models.block import Block, Context, rms_norm
from gophercite.models.cache import Cache, LayerCache, empty_rows, empty_slots, enter_tokens
from gophercite.models.config import TransformerConfig
from gophercite.models.positions import sinusoids
from gophercite.models.stack import run_stack
from gophercite.partitioning import constrain

Params = dict[str, Any]
Axes = dict[str, Any]

FROZEN, TRAINED = "frozen_layers", "trained_layers"
HEADS = "heads"  # what a model has beside the language model's: a reward model's linear heads


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
            return block.init(key, x, self._first_settings(), Context(place, place, waves))[
                "params"
            ]

        def matrix(key: Array, shape: tuple[int, int], axes: tuple[str, str], std: float) -> Any:
            init = nn.with_logical_partitioning(nn.initializers.normal(std), axes)
            return init(key, shape, c.param_dtype)

        # Tied embeddings read the stream out too, so they are kept small unless scaled on entry.
        scale = nn.with_logical_partitioning(nn.initializers.ones, ("embed",))
        shape = (c.vocab_size, c.d_model)
        params = {
            "embed": {"embedding": matrix(embed_key, shape, ("vocab", "embed"), c.d_model**-0.5)},
            TRAINED: jax.vmap(layer)(jax.random.split(layer_key, c.num_layers)),
            "final_norm": {"scale": scale(key, (c.d_model,), c.param_dtype)},
        }
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
            return self.decode(params, tokens, positions, segments > 0, cache)
        c = self.config
        context = Context(positions, segments, self._sinusoids(tokens.shape[1]))

        def layer(weights: Params, settings: Any, x: Array, context: Context) -> Array:
            y, _ = Block(c).apply({"params": weights}, x, settings, context)
            return constrain(y, "batch", "residual_length", "activation_embed")

        x = self.embed(params, tokens)
        frozen, trained = self._settings(params)
        if FROZEN in params:
            weights = jax.lax.stop_gradient(params[FROZEN])
            x = run_stack(
                layer,
                weights,
                frozen,
                jax.lax.stop_gradient(x),
                context,
                unroll=not c.scan_layers,
            )
            x = jax.lax.stop_gradient(x)
        x = run_stack(
            layer,
            params[TRAINED],
            trained,
            x,
            context,
            remat_every=c.remat_every,
            unroll=not c.scan_layers,
            accumulated=accumulated,
        )
        return rms_norm(x, params["final_norm"]["scale"], c.norm_epsilon), None

    def embed(
        self, params: Params, tokens: Int[Array, "batch length"]
    ) -> Float[Array, "batch length d_model"]:
        """Token embeddings, in `config.dtype`."""
        c = self.config
        x = params["embed"]["embedding"].astype(c.dtype)[tokens]
        if c.scale_embeddings:
            x *= jnp.asarray(c.d_model**0.5, c.dtype)
        return constrain(x, "batch", "residual_length", "activation_embed")

    def unembedding(self, params: Params) -> Float[Array, "vocab d_model"]:
        """The matrix whose rows meet a representation to give each token's logit."""
        if self.config.tied_embeddings:
            return params["embed"]["embedding"]
        return params["unembed"]["kernel"].T

    def logits(
        self, params: Params, hidden: Float[Array, "batch length d_model"]
    ) -> Float[Array, "batch length vocab"]:
        """Unnormalised log-probabilities of the next token, in float32."""
        kernel = self.unembedding(params).astype(hidden.dtype)
        logits = jnp.einsum("bld,vd->blv", hidden, kernel, preferred_element_type=jnp.float32)
        return constrain(logits, "batch", "length", "vocab")

    def logits_of(
        self,
        params: Params,
        hidden: Float[Array, "batch d_model"],
        tokens: Int[Array, "batch tokens"],
    ) -> Float[Array, "batch tokens"]:
        """Logits of some tokens only, in float32."""
        kernel = self.unembedding(params)[tokens].astype(hidden.dtype)
        return jnp.einsum("bd,btd->bt", hidden, kernel, preferred_element_type=jnp.float32)

    def prefill(
        self,
        params: Params,
        tokens: Int[Array, "prompts length"],
        lengths: Int[Array, " prompts"],
        room: int,
        samples: int = 1,
    ) -> tuple[Float[Array, "prompts length d_model"], Cache]:
        """Reads prompts of different lengths, padded on the right, into a new cache.

        Args:
          params: the model's parameters.
          tokens: prompts.
          lengths: tokens of each prompt that are real.
          room: tokens that can be added to each sequence.
          samples: sequences that go on from each prompt, which share its keys and values.

        Returns:
          Representations after the final norm, and the cache. Padding is never attended to; the
          next token of a prompt has the position `lengths[prompt]`.
        """
        c = self.config
        prompts, length = tokens.shape
        positions = jnp.broadcast_to(jnp.arange(length), (prompts, length))
        real = positions < lengths[:, None]
        context = Context(positions, real.astype(jnp.int32), self._sinusoids(length))
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

        x = self.embed(params, tokens)
        merged = merge_layers(params)
        weights, settings = merged[TRAINED], self._settings(merged)[1]
        layers: Any
        if c.scan_layers:
            x, layers = jax.lax.scan(layer, x, (weights, settings))
        else:
            layers = ()
            for i in range(c.num_layers):
                x, of_layer = layer(x, (_layer_at(weights, i), _layer_at(settings, i)))
                layers += (of_layer,)
        hidden = rms_norm(x, params["final_norm"]["scale"], c.norm_epsilon)
        return hidden, Cache(layers, empty_slots(lengths, samples, room))

    def decode(
        self,
        params: Params,
        tokens: Int[Array, "batch length"],
        positions: Int[Array, "batch length"],
        real: Bool[Array, "batch length"],
        cache: Cache,
    ) -> tuple[Float[Array, "batch length d_model"], Cache]:
        """Reads new tokens after those in a cache.

        Args:
          params: the model's parameters, in stacks or taken apart (`unstack_layers`).
          tokens: the new tokens, as many in each row; a prompt's samples are neighbours.
          positions: their places in their sequences.
          real: False where a row has ended and its token is padding.
          cache: with room for them.

        Returns:
          Representations after the final norm, and the cache with the new tokens, each layer's part
          rewritten in place.
        """
        x = self.embed(params, tokens)
        slots = enter_tokens(cache.slots, positions, real)
        block = Block(self.config)

        def layer(x: Array, leaf: tuple[Params, Any], of_layer: LayerCache) -> Any:
            weights, settings = leaf
            return block.apply(
                {"params": weights}, x, settings, positions, slots, of_layer, method=Block.decode
            )

        parts = [
            (params[part], settings)
            for part, settings in zip((FROZEN, TRAINED), self._settings(params), strict=True)
            if part in params
        ]
        layers: Any
        if isinstance(cache.layers, LayerCache):
            x, layers = _decode_in_a_loop(layer, x, parts, cache.layers)
        else:
            layers = ()
            leaves = [
                (_layer_at(weights, i), _layer_at(settings, i))
                for weights, settings in parts
                for i in range(_depth(weights))
            ]
            for leaf, of_layer in zip(leaves, cache.layers, strict=True):
                x, after = layer(x, leaf, of_layer)
                layers += (after,)
        hidden = rms_norm(x, params["final_norm"]["scale"], self.config.norm_epsilon)
        return hidden, Cache(layers, slots)

    def _sinusoids(self, distances: int) -> Float[Array, "distances d_model"] | None:
        if self.config.position != "transformer_xl":
            return None
        return sinusoids(jnp.arange(distances), self.config.d_model)

    def _layer_settings(self) -> dict[str, Array]:
        """Settings that differ from layer to layer, as arrays to scan over: one program for all."""
        c = self.config
        settings: dict[str, Array] = {}
        if isinstance(c.rope_theta, tuple):
            settings["rope_theta"] = jnp.asarray(c.rope_theta, jnp.float32)
        if isinstance(c.window, tuple):
            everything = jnp.iinfo(jnp.int32).max
            windows = [everything if w is None else w for w in c.window]
            settings["window"] = jnp.asarray(windows, jnp.int32)
        return settings

    def _first_settings(self) -> dict[str, Array]:
        return {name: values[0] for name, values in self._layer_settings().items()}

    def _settings(self, params: Params) -> tuple[dict[str, Array], dict[str, Array]]:
        """Per-layer settings of the frozen and of the trained stack."""
        frozen = frozen_layers(params)
        settings = self._layer_settings()
        return (
            {name: values[:frozen] for name, values in settings.items()},
            {name: values[frozen:] for name, values in settings.items()},
        )


def _decode_in_a_loop(
    layer: Any, x: Array, parts: list[tuple[Params, Any]], cache: LayerCache
) -> tuple[Array, LayerCache]:
    """Runs the stacks of layers, whose own keys and values are rewritten in place."""

    def body(
        carry: tuple[Array, Array, Array], leaf: tuple[Any, ...]
    ) -> tuple[tuple[Array, Array, Array], None]:
        x, keys, values = carry
        weights_and_settings, prompt_keys, prompt_values, relative, index = leaf
        at = lambda stack: jax.lax.dynamic_index_in_dim(stack, index, keepdims=False)  # noqa: E731
        before = LayerCache(prompt_keys, prompt_values, at(keys), at(values), relative)
        x, after = layer(x, weights_and_settings, before)
        put = jax.lax.dynamic_update_index_in_dim
        return (x, put(keys, after.keys, index, 0), put(values, after.values, index, 0)), None

    carry = (x, cache.keys, cache.values)
    first = 0
    for part in parts:
        last = first + _depth(part[0])
        read = (cache.prompt_keys, cache.prompt_values, cache.relative)
        read = jax.tree.map(lambda leaf: leaf[first:last], read)  # noqa: B023
        carry, _ = jax.lax.scan(body, carry, (part, *read, jnp.arange(first, last)))
        first = last
    x, keys, values = carry
    return x, cache._replace(keys=keys, values=values)


def frozen_layers(params: Params) -> int:
    """Layers in the frozen stack of a tree of parameters (or of anything shaped like it)."""
    if FROZEN not in params:
        return 0
    return _depth(params[FROZEN])


def unstack_layers(params: Params) -> Params:
    """Takes the layers apart, each stack a tuple, for `decode` without a loop over them.

    A loop over tokens would cut the layers out of their stack for every token.
    """
    return {
        name: tuple(_layer_at(part, i) for i in range(_depth(part)))
        if name in (FROZEN, TRAINED)
        else part
        for name, part in params.items()
    }


def _layer_at(stack: Any, index: int) -> Any:
    return stack[index] if isinstance(stack, tuple) else jax.tree.map(lambda x: x[index], stack)


def _depth(stack: Any) -> int:
    return len(stack) if isinstance(stack, tuple) else jax.tree.leaves(stack)[0].shape[0]


def split_layers(params: Params, frozen: int) -> Params:
    """Divides the layers into a frozen and a trained stack.

    Args:
      params: parameters with one stack, `trained_layers` (else it is merged first).
      frozen: layers in the frozen stack, from the first.

    Returns:
      The same parameters in the two stacks.

    Raises:
      ValueError: fewer layers than that, or none left to train.
    """
    merged = merge_layers(params)
    depth = _depth(merged[TRAINED])
    if not 0 <= frozen < depth:
        raise ValueError(f"can't freeze {frozen} of {depth} layers: 0 to {depth - 1} are possible")
    if frozen == 0:
        return merged
    first = jax.tree.map(lambda leaf: leaf[:frozen], merged[TRAINED])
    rest = jax.tree.map(lambda leaf: leaf[frozen:], merged[TRAINED])
    return {FROZEN: first, **merged, TRAINED: rest}


def merge_layers(params: Params) -> Params:
    """Joins the frozen and the trained stack into one, `trained_layers`, as checkpoints hold it."""
    if FROZEN not in params:
        return params
    rest = {name: part for name, part in params.items() if name != FROZEN}
    rest[TRAINED] = jax.tree.map(
        lambda first, second: jnp.concatenate([first, second]), params[FROZEN], params[TRAINED]
    )
    return rest

"""Our models as T5X models, for T5X's own `train.py`, `eval.py` and `infer.py`.

This needs T5X (docs/t5x.md); nothing else here imports this module. A gin file imports it:

    from data_pipelines import t5x_bridge
    MODEL = @t5x_bridge.GopherCiteModel()
    t5x_bridge.GopherCiteModel.model = "models/qwen3"   # a model folder: architecture and tokenizer
    t5x_bridge.GopherCiteModel.optimizer_def = @adafactor.Adafactor()

T5X's trainer, partitioner and checkpointer then see the parameters of `models.parameters`, with one
stack of layers, and the logical axes of T5X's own networks.
"""

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import t5x.models
from flax.linen import partitioning as flax_partitioning
from jaxtyping import Array, Float, Int

from data_pipelines.features import DecoderFeatureConverter, SeqioVocabulary
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.folder import read_description, read_vocabulary
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.partitioning import is_axes

# Names of our logical axes in T5X's rules for partitioning and for Adafactor's factors. An axis
# without a name is neither sharded nor factored.
_AXES = {"heads": "joined_kv", "kv_heads": "joined_kv", None: "relpos_buckets"}

# The names that T5X's losses use for the features of our tasks.
_FEATURES = {
    "tokens": "decoder_input_tokens",
    "targets": "decoder_target_tokens",
    "weights": "decoder_loss_weights",
    "positions": "decoder_positions",
    "segments": "decoder_segment_ids",
}

Batch = Mapping[str, Array]


def feature_converter(
    pack: bool = True, use_custom_packing_ops: bool = False
) -> DecoderFeatureConverter:
    """Returns the converter for our own tasks; it takes the arguments that T5X passes.

    Args:
      pack: whether several examples share a row.
      use_custom_packing_ops: ignored; T5X passes it to every converter.
    """
    del use_custom_packing_ops
    return DecoderFeatureConverter(pack=pack)


class _Vocabulary(SeqioVocabulary):
    """A vocabulary that equals any other with the same tokens, because T5X compares the two.

    T5X compares the task's vocabulary with the model's. Python calls the method of the model's
    vocabulary, though it is on the right, because its class is derived from that of the task's.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SeqioVocabulary):
            return False
        ours, theirs = self.plain, other.plain
        return (ours.size, ours.eos_id) == (theirs.size, theirs.eos_id) and all(
            ours.token_bytes(id) == theirs.token_bytes(id) for id in range(ours.size)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = SeqioVocabulary.__hash__


class GopherCiteModel(t5x.models.BaseTransformerModel):
    """One of our models, for training, evaluation and inference by T5X.

    Args:
      model: a model folder, or the folder of a training run, for architecture and vocabulary.
        Parameters are random, or come from `utils.RestoreCheckpointConfig`; docs/t5x.md says how to
        convert the folder's parameters to such a checkpoint.
      optimizer_def: T5X's optimizer.
      feature_converter_cls: builds batches from a task's examples; the default is for the tasks in
        `data_pipelines`. Use `@seqio.DecoderFeatureConverter` for tasks with "targets", or with
        "inputs" and "targets", whose rows begin with token 0 in T5X.
      temperature: sampling temperature for `predict_batch`; 0 takes the most likely token.
      changes: fields of the architecture that control computation (`dtype`, `remat_every`, …).
      **options: arguments of `t5x.models.BaseTransformerModel`: `label_smoothing`, `z_loss`,
        `loss_normalizing_factor`.

    Raises:
      ModelFolderError: there is no such model.
    """

    def __init__(
        self,
        model: str,
        optimizer_def: Any,
        feature_converter_cls: Callable[..., Any] = feature_converter,
        temperature: float = 0.0,
        changes: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.FEATURE_CONVERTER_CLS = feature_converter_cls
        config = read_description(model).config
        self.transformer = Transformer(dataclasses.replace(config, **(changes or {})))
        self._temperature = temperature
        vocabulary = _Vocabulary(read_vocabulary(model))
        super().__init__(
            module=None,
            input_vocabulary=vocabulary,
            output_vocabulary=vocabulary,
            optimizer_def=optimizer_def,
            **options,
        )

    def get_initial_variables(
        self,
        rng: Array,
        input_shapes: Mapping[str, Any],
        input_types: Mapping[str, Any] | None = None,
    ) -> flax.core.FrozenDict:
        """Random parameters and their logical axes, as returned by T5X's networks.

        Args:
          rng: a key.
          input_shapes: shapes of a batch; parameters don't depend on them.
          input_types: likewise.

        Returns:
          The collections "params" and "params_axes".
        """
        del input_shapes, input_types
        variables = {
            "params": self.transformer.init(_typed(rng)),
            "params_axes": _t5x_axes(self.transformer.logical_axes()),
        }
        return flax.core.freeze(variables)

    def loss_fn(
        self, params: Params, batch: Batch, dropout_rng: Array | None
    ) -> tuple[Float[Array, ""], Any]:
        """T5X's loss and metrics, for batches of our own tasks and of T5X's."""
        return super().loss_fn(params, _renamed(batch), dropout_rng)

    def _compute_logits(
        self, params: Params, batch: Batch, dropout_rng: Array | None = None
    ) -> Float[Array, "batch length vocab"]:
        """Logits of the next token; our models have no dropout."""
        del dropout_rng
        tokens = batch["decoder_input_tokens"]
        places = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        positions = batch.get("decoder_positions", places)
        whole = (batch["decoder_target_tokens"] > 0).astype(jnp.int32)
        segments = batch.get("decoder_segment_ids", whole)
        unfrozen = flax.core.unfreeze(params)
        hidden, _ = self.transformer.apply(unfrozen, tokens, positions, segments)
        return self.transformer.logits(unfrozen, hidden)

    def score_batch(self, params: Params, batch: Batch) -> Float[Array, " batch"]:
        """Log-probability of each row's weighted targets, in nats."""
        batch = _renamed(batch)
        logs = jax.nn.log_softmax(self._compute_logits(params, batch))
        targets = batch["decoder_target_tokens"][..., None]
        found = jnp.take_along_axis(logs, targets, axis=-1)[..., 0]
        return jnp.sum(found * batch["decoder_loss_weights"], axis=-1)

    def predict_batch_with_aux(
        self,
        params: Params,
        batch: Batch,
        rng: Array | None = None,
        *,
        return_all_decodes: bool = False,
        num_decodes: int = 1,
        decoder_params: MutableMapping[str, Any] | None = None,
    ) -> tuple[Int[Array, "batch *decodes length"], dict[str, Array]]:
        """Continues the inputs of each row, up to the row's length.

        Args:
          params: the model's parameters.
          batch: batch of `seqio.DecoderFeatureConverter`, with inputs.
          rng: a key; greedy decoding needs none.
          return_all_decodes: return all continuations, the most likely last, instead of one.
          num_decodes: number of continuations per row.
          decoder_params: "decode_rng", as T5X's evaluation passes it.

        Returns:
          The continuations, padded with 0, and their log-probabilities as "scores".

        Raises:
          ValueError: the batch has no inputs.
        """
        if "decoder_causal_attention" not in batch:
            raise ValueError(
                "there are no inputs to continue: for predictions, use a task with 'inputs' and "
                "feature_converter_cls = @seqio.DecoderFeatureConverter"
            )
        key = rng if rng is not None else (decoder_params or {}).get("decode_rng")
        shown = batch["decoder_causal_attention"]
        tokens, lengths = batch["decoder_input_tokens"] * shown, jnp.sum(shown, axis=-1)
        rows, length = tokens.shape
        plan = Plan(
            self.transformer,
            SamplingSettings(max_tokens=length, temperature=self._temperature),
            eos_id=self.output_vocabulary.eos_id,
            pad_id=0,
            vocabulary_size=self.output_vocabulary.vocab_size,
            samples=num_decodes,
            rows=num_decodes,
        )
        keys = jax.random.split(jax.random.key(0) if key is None else _typed(key), rows)
        decoded = decode(plan, flax.core.unfreeze(params), tokens, lengths, keys, None, None)
        # The row's inputs, without the token that T5X puts first, count towards its length.
        kept = jnp.arange(length) < (length - lengths + 1)[:, None, None]
        assert decoded.log_probs is not None
        scores = jnp.sum(jnp.where(kept, decoded.log_probs, 0.0), axis=-1)
        order = jnp.argsort(scores, axis=-1)
        decodes = jnp.where(kept, decoded.tokens, 0)
        decodes = jnp.take_along_axis(decodes, order[..., None], axis=1)
        scores = jnp.take_along_axis(scores, order, axis=1)
        if return_all_decodes:
            return decodes, {"scores": scores}
        return decodes[:, -1], {"scores": scores[:, -1]}


def _renamed(batch: Batch) -> Batch:
    return {_FEATURES.get(name, name): feature for name, feature in batch.items()}


def _typed(key: Array) -> Array:
    """Converts T5X's keys, which are plain arrays."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    return jax.random.wrap_key_data(key)


def _t5x_axes(axes: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of axes in Flax's form: a parameter's axes are under its name with "_axes"."""
    tree: dict[str, Any] = {}
    for name, part in axes.items():
        if is_axes(part):
            names = tuple(_AXES.get(axis, axis) for axis in part)
            tree[f"{name}_axes"] = flax_partitioning.AxisMetadata(names)
        else:
            tree[name] = _t5x_axes(part)
    return tree

"""What the `config.json` of a Hugging Face checkpoint says, as our architecture.

Whatever would compute something else than our Transformer does is refused by name: a model that
answers nearly as it should is worse than none.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from gophercite.json_fields import JsonFields, describe
from gophercite.models.config import Activation, RopeScaling, TransformerConfig

_ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu"}

_MOST_LAYERS = 1000

_Window = int | tuple[int | None, ...] | None


def read_architecture(value: object) -> TransformerConfig:
    """The architecture that a checkpoint's `config.json` describes.

    Args:
      value: the decoded JSON.

    Returns:
      The architecture, computed as by default; the dtypes are for the caller to set.

    Raises:
      ValueError: a family that is not known, a setting that our Transformer can't express, or a
        field that is missing or of another kind; the message names the field.
    """
    fields = JsonFields(value, None, Counter())
    family = fields.text("model_type")
    if family not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise fields.error("model_type", f"{family!r} is not among the known ones ({known})")
    _refuse(fields, "quantization_config", "only unquantised weights are read")
    layers = fields.integer("num_hidden_layers")
    if not 1 <= layers <= _MOST_LAYERS:  # a file that claims more would only fill the memory
        raise fields.error("num_hidden_layers", f"{layers} must be from 1 to {_MOST_LAYERS}")
    return _FAMILIES[family](fields)


def _llama(fields: JsonFields) -> TransformerConfig:
    for name in ("attention_bias", "mlp_bias"):
        _refuse(fields, name, "Llamas with biases are not known")
    return _config(fields)


def _mistral(fields: JsonFields) -> TransformerConfig:
    if "sliding_window" not in fields.values:
        raise fields.error("sliding_window", "is missing, and must be a whole number or null")
    window = fields.integer("sliding_window") if "sliding_window" in fields else None
    return _config(fields, window=window)


def _qwen2(fields: JsonFields) -> TransformerConfig:
    return _config(fields, window=_windows(fields), qkv_bias=True)


def _qwen3(fields: JsonFields) -> TransformerConfig:
    _refuse(fields, "attention_bias", "a Qwen3 with biases is not known")
    return _config(fields, window=_windows(fields), query_key_norm=True)


_FAMILIES: dict[str, Callable[[JsonFields], TransformerConfig]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}


def _config(fields: JsonFields, **own: Any) -> TransformerConfig:
    """What all families have: RMSNorm, rotary positions, a gated MLP."""
    width, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    if "head_dim" in fields:
        head_dim = fields.integer("head_dim")
    elif heads < 1 or width % heads:
        raise fields.error("num_attention_heads", f"{heads} must divide hidden_size ({width})")
    else:
        head_dim = width // heads
    activation = fields.text("hidden_act")
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise fields.error("hidden_act", f"{activation!r} is not among the known ones ({known})")
    theta, scaling = _rope(fields)
    return TransformerConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=width,
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=heads,
        head_dim=head_dim,
        num_kv_heads=fields.integer("num_key_value_heads")
        if "num_key_value_heads" in fields
        else None,
        d_ff=fields.integer("intermediate_size"),
        activation=_ACTIVATIONS[activation],
        gated_mlp=True,
        position="rope",
        rope_theta=theta,
        rope_scaling=scaling,
        norm_epsilon=_number(fields, "rms_norm_eps"),
        tied_embeddings=fields.flag("tie_word_embeddings") or False,
        **own,
    )


def _rope(fields: JsonFields) -> tuple[float, RopeScaling | None]:
    """Base and scaling of the rotation; older files keep the base apart from the scaling."""
    name = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
    rope = JsonFields(fields.values.get(name) or {}, None, Counter(), name)
    theta = rope.optional_number("rope_theta") or fields.optional_number("rope_theta") or 10_000.0
    for holder in (rope, fields):
        if (holder.optional_number("partial_rotary_factor") or 1.0) != 1.0:
            raise holder.error("partial_rotary_factor", "only whole heads are rotated")
    kind = rope.optional_text("rope_type") or rope.optional_text("type") or "default"
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise rope.error("rope_type", f"{kind!r} is not among the known ones (default, llama3)")
    return theta, RopeScaling(
        factor=_number(rope, "factor"),
        low_frequency_factor=_number(rope, "low_freq_factor"),
        high_frequency_factor=_number(rope, "high_freq_factor"),
        original_length=rope.integer("original_max_position_embeddings"),
    )


def _windows(fields: JsonFields) -> _Window:
    """Qwen's windows, which the first `max_window_layers` layers don't have."""
    if not fields.flag("use_sliding_window"):
        return None
    window, layers = fields.integer("sliding_window"), fields.integer("num_hidden_layers")
    kinds = fields.values.get("layer_types")
    if kinds is None:
        first = fields.integer("max_window_layers")
        return tuple(None if layer < first else window for layer in range(layers))
    known = {"full_attention": None, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.error("layer_types", f"expected a list of {layers}, got {describe(kinds)}")
    for index, kind in enumerate(kinds):
        if not isinstance(kind, str) or kind not in known:
            raise fields.error(
                f"layer_types[{index}]", f"{describe(kind)} is not one of {', '.join(known)}"
            )
    return tuple(known[kind] for kind in kinds)


def _number(fields: JsonFields, name: str) -> float:
    value = fields.optional_number(name)
    if value is None:
        raise fields.error(name, "is missing, and must be a number")
    return value


def _refuse(fields: JsonFields, name: str, reason: str) -> None:
    """Raises where a setting is there and is not false."""
    value = fields.values.get(name)
    if value is not None and value is not False:
        raise fields.error(name, f"got {describe(value)}: {reason}")

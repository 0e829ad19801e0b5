"""What the `config.json` of a Hugging Face checkpoint says, as our architecture.

Whatever would compute something else than our Transformer does is refused by name: a model that
answers nearly as it should is worse than none.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from gophercite.json_fields import JsonFields, describe
from gophercite.models.config import Activation, RopeScaling, TransformerConfig

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
}

_MOST_LAYERS = 1000

_FULL, _SLIDING = "full_attention", "sliding_attention"


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
    return _FAMILIES[family](fields)


def _llama(fields: JsonFields) -> TransformerConfig:
    for name in ("attention_bias", "mlp_bias"):
        _refuse(fields, name, "Llamas with biases are not known")
    return _config(fields, **_rope(fields))


def _mistral(fields: JsonFields) -> TransformerConfig:
    if "sliding_window" not in fields.values:
        raise fields.error("sliding_window", "is missing, and must be a whole number or null")
    window = fields.integer("sliding_window") if "sliding_window" in fields else None
    return _config(fields, window=window, **_rope(fields))


def _qwen2(fields: JsonFields) -> TransformerConfig:
    return _config(fields, window=_qwen_windows(fields), qkv_bias=True, **_rope(fields))


def _qwen3(fields: JsonFields) -> TransformerConfig:
    _refuse(fields, "attention_bias", "a Qwen3 with biases is not known")
    return _config(fields, window=_qwen_windows(fields), query_key_norm=True, **_rope(fields))


def _gemma2(fields: JsonFields) -> TransformerConfig:
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if name not in fields.values:
            raise fields.error(name, "is missing, and must be a number or null")
    kinds = _kinds_of_layers(fields, every=2)
    return _gemma(fields, kinds, **_rope(fields))


def _gemma3_text(fields: JsonFields) -> TransformerConfig:
    every = 6
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        if name in fields:
            every = fields.integer(name)
    kinds = _kinds_of_layers(fields, every)
    ropes = {
        _FULL: (_part(fields, "rope_parameters", _FULL, "rope_scaling"), "rope_theta", 1e6),
        _SLIDING: (_part(fields, "rope_parameters", _SLIDING), "rope_local_base_freq", 1e4),
    }
    theta, factor = {}, {}
    for kind, (rope, older_name, default) in ropes.items():
        theta[kind] = _first(
            rope.optional_number("rope_theta"), fields.optional_number(older_name), default
        )
        scaling = _rope_scaling(rope)
        if "rope_scaling" in scaling:
            raise rope.error("rope_type", "a Gemma 3 of that scaling is not known")
        factor[kind] = scaling.get("rope_interpolation", 1.0)
    return _gemma(
        fields,
        kinds,
        query_key_norm=True,
        rope_theta=tuple(theta[kind] for kind in kinds),
        rope_interpolation=tuple(factor[kind] for kind in kinds),
    )


def _gemma3(fields: JsonFields) -> TransformerConfig:
    """The text part of a Gemma 3 that reads images too."""
    if "text_config" not in fields:
        raise fields.error("text_config", "is missing, and must be an object")
    text = _part(fields, "text_config", None)
    if text.values.get("model_type", "gemma3_text") != "gemma3_text":
        raise text.error("model_type", "only gemma3_text is known within gemma3")
    _refuse(text, "quantization_config", "only unquantised weights are read")
    tied = {"tie_word_embeddings": fields.values.get("tie_word_embeddings")}
    values = {**_GEMMA_3_DEFAULTS, **tied, **text.values}
    return _gemma3_text(JsonFields(values, None, Counter(), "text_config"))


def _gemma(fields: JsonFields, kinds: list[str], **own: Any) -> TransformerConfig:
    """What Gemma 2 and 3 share."""
    _refuse(fields, "attention_bias", "a Gemma with biases is not known")
    _refuse(fields, "use_bidirectional_attention", "only causal attention is computed")
    config = _config(
        fields,
        "hidden_activation",
        window=_windows(kinds, fields.integer("sliding_window")),
        query_pre_attn_scalar=_number(fields, "query_pre_attn_scalar"),
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        logit_softcap=fields.optional_number("final_logit_softcapping"),
        zero_centered_norms=True,
        post_norms=True,
        scale_embeddings=True,
        **own,
    )
    tied = fields.flag("tie_word_embeddings") is not False
    return dataclasses.replace(config, tied_embeddings=tied)


def _gpt_neox(fields: JsonFields) -> TransformerConfig:
    if fields.flag("attention_bias") is False:
        raise fields.error("attention_bias", "a GPT-NeoX without biases is not known")
    rope = _part(fields, "rope_parameters", None, "rope_scaling")
    numbers = rope.optional_number, fields.optional_number
    return TransformerConfig(
        **_sizes(fields),
        activation=_activation(fields, "hidden_act"),
        position="rope",
        rope_theta=_first(numbers[0]("rope_theta"), numbers[1]("rotary_emb_base"), 10_000.0),
        rotary_fraction=_first(numbers[0]("partial_rotary_factor"), numbers[1]("rotary_pct"), 0.25),
        norm="layer",
        norm_epsilon=_number(fields, "layer_norm_eps"),
        parallel_residual=fields.flag("use_parallel_residual") is not False,
        tied_embeddings=fields.flag("tie_word_embeddings") or False,
        **_BIASES,
        **_rope_scaling(rope),
    )


def _gpt2(fields: JsonFields) -> TransformerConfig:
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        _refuse(fields, name, "a GPT-2 with it is not known")
    if fields.flag("scale_attn_weights") is False:
        raise fields.error("scale_attn_weights", "a GPT-2 without it is not known")
    width, heads = fields.integer("n_embd"), fields.integer("n_head")
    return TransformerConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=width,
        num_layers=_layers(fields, "n_layer"),
        num_heads=heads,
        head_dim=_head_dim(fields, "n_head", heads, width),
        d_ff=fields.integer("n_inner") if "n_inner" in fields else None,
        activation=_activation(fields, "activation_function"),
        position="learned",
        max_positions=fields.integer("n_positions"),
        norm="layer",
        norm_epsilon=_number(fields, "layer_norm_epsilon"),
        tied_embeddings=fields.flag("tie_word_embeddings") is not False,
        **_BIASES,
    )


_BIASES: dict[str, Any] = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}


# What the nested part of a published `config.json` leaves out; that of text alone is whole.
_GEMMA_3_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}


_FAMILIES: dict[str, Callable[[JsonFields], TransformerConfig]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3_text,
    "gemma3": _gemma3,
    "gpt_neox": _gpt_neox,
    "gpt2": _gpt2,
}


def _config(fields: JsonFields, activation: str = "hidden_act", **own: Any) -> TransformerConfig:
    """What Llama and its like have: RMSNorm, rotary positions, a gated MLP."""
    return TransformerConfig(
        **_sizes(fields),
        num_kv_heads=fields.integer("num_key_value_heads")
        if "num_key_value_heads" in fields
        else None,
        activation=_activation(fields, activation),
        gated_mlp=True,
        position="rope",
        norm_epsilon=_number(fields, "rms_norm_eps"),
        tied_embeddings=fields.flag("tie_word_embeddings") or False,
        **own,
    )


def _sizes(fields: JsonFields) -> dict[str, Any]:
    """Sizes under the names that most families give them."""
    width, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    return {
        "vocab_size": fields.integer("vocab_size"),
        "d_model": width,
        "num_layers": _layers(fields, "num_hidden_layers"),
        "num_heads": heads,
        "head_dim": fields.integer("head_dim")
        if "head_dim" in fields
        else _head_dim(fields, "num_attention_heads", heads, width),
        "d_ff": fields.integer("intermediate_size"),
        "context_length": fields.integer("max_position_embeddings")
        if "max_position_embeddings" in fields
        else None,
    }


def _layers(fields: JsonFields, name: str) -> int:
    layers = fields.integer(name)
    if not 1 <= layers <= _MOST_LAYERS:  # a file that claims more would only fill the memory
        raise fields.error(name, f"{layers} must be from 1 to {_MOST_LAYERS}")
    return layers


def _head_dim(fields: JsonFields, name: str, heads: int, width: int) -> int:
    if heads < 1 or width % heads:
        raise fields.error(name, f"{heads} must divide the model's width ({width})")
    return width // heads


def _activation(fields: JsonFields, name: str) -> Activation:
    activation = fields.text(name)
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise fields.error(name, f"{activation!r} is not among the known ones ({known})")
    return _ACTIVATIONS[activation]


def _rope(fields: JsonFields) -> dict[str, Any]:
    """Base and scaling of the rotation; older files keep the base apart from the scaling."""
    rope = _part(fields, "rope_parameters", None, "rope_scaling")
    for holder in (rope, fields):
        if _first(holder.optional_number("partial_rotary_factor"), 1.0) != 1.0:
            raise holder.error("partial_rotary_factor", "only whole heads are rotated")
    own, older = rope.optional_number("rope_theta"), fields.optional_number("rope_theta")
    return {"rope_theta": _first(own, older, 10_000.0), **_rope_scaling(rope)}


def _rope_scaling(rope: JsonFields) -> dict[str, Any]:
    kind = rope.optional_text("rope_type") or rope.optional_text("type") or "default"
    if kind == "default":
        return {}
    if kind == "linear":
        return {"rope_interpolation": _number(rope, "factor")}
    if kind != "llama3":
        known = "default, linear, llama3"
        raise rope.error("rope_type", f"{kind!r} is not among the known ones ({known})")
    scaling = RopeScaling(
        factor=_number(rope, "factor"),
        low_frequency_factor=_number(rope, "low_freq_factor"),
        high_frequency_factor=_number(rope, "high_freq_factor"),
        original_length=rope.integer("original_max_position_embeddings"),
    )
    return {"rope_scaling": scaling}


def _part(fields: JsonFields, name: str, key: str | None, older: str | None = None) -> JsonFields:
    """The object under a name (and a key in it), or under an older name; empty where none is."""
    if name not in fields and older is not None:
        name, key = older, None
    value = fields.values.get(name) or {}
    part = JsonFields(value, None, Counter(), name)
    if key is None:
        return part
    return JsonFields(part.values.get(key) or {}, None, Counter(), f"{name}.{key}")


def _qwen_windows(fields: JsonFields) -> tuple[int | None, ...] | None:
    """Qwen's windows, which the first `max_window_layers` layers don't have."""
    if not fields.flag("use_sliding_window"):
        return None
    window, layers = fields.integer("sliding_window"), _layers(fields, "num_hidden_layers")
    if "layer_types" not in fields:
        first = fields.integer("max_window_layers")
        return tuple(None if layer < first else window for layer in range(layers))
    return _windows(_kinds_of_layers(fields, every=1), window)


def _windows(kinds: list[str], window: int) -> tuple[int | None, ...]:
    return tuple(window if kind == _SLIDING else None for kind in kinds)


def _kinds_of_layers(fields: JsonFields, every: int) -> list[str]:
    """Each layer's attention; where the file has no list, one layer in so many sees all."""
    layers = _layers(fields, "num_hidden_layers")
    if "layer_types" not in fields:
        if every < 1:
            raise fields.error("sliding_window_pattern", f"{every} must be at least 1")
        return [_SLIDING if (layer + 1) % every else _FULL for layer in range(layers)]
    kinds = fields.values["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.error("layer_types", f"expected a list of {layers}, got {describe(kinds)}")
    for index, kind in enumerate(kinds):
        if kind not in (_FULL, _SLIDING):
            raise fields.error(
                f"layer_types[{index}]", f"{describe(kind)} is not one of {_FULL}, {_SLIDING}"
            )
    return kinds


def _first(*values: float | None) -> float:
    """The first value that there is; the last one is."""
    return next(value for value in values if value is not None)


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

"""Converts the `config.json` of a Hugging Face checkpoint to our architecture.

Any setting that our Transformer would compute differently is refused by name, because a model that
is nearly right is worse than none.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from gophercite.models.config import Activation, TransformerConfig
from gophercite.storage.json_fields import JsonFields, describe
from gophercite.weights.foreign_fields import refuse_foreign
from gophercite.weights.layer_windows import (
    FULL,
    SLIDING,
    kinds_of_layers,
    qwen_windows,
    read_layers,
    refuse_windows,
    windows_of,
)
from gophercite.weights.rotations import NEWER, OLDER, first, read_object, read_part, read_rotation

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
}


def read_architecture(value: object) -> TransformerConfig:
    """The architecture that a checkpoint's `config.json` describes.

    Args:
      value: the decoded JSON.

    Returns:
      The architecture, with default settings for its computation; the caller sets the dtypes.

    Raises:
      ValueError: the family is unknown, our Transformer can't express a setting, or a field is
        missing or of the wrong type; the message names the field.
    """
    fields = JsonFields(value, None, Counter())
    family = fields.text("model_type", raw=True)
    if family not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise fields.error("model_type", f"{family!r} is not among the known ones ({known})")
    _refuse_for_all(fields)
    return _FAMILIES[family](fields)


def _llama(fields: JsonFields) -> TransformerConfig:
    for name in ("attention_bias", "mlp_bias"):
        _refuse(fields, name, "Llamas with biases are not known")
    refuse_foreign(fields, _ROPE)
    refuse_windows(fields)
    _require_even_split(fields)
    return _config(fields, kv_heads=_kv_heads(fields, missing=True), **_whole_rotation(fields))


def _mistral(fields: JsonFields) -> TransformerConfig:
    refuse_foreign(fields, (*_ROPE, "sliding_window"))
    if "sliding_window" not in fields.values:
        raise fields.error("sliding_window", "is missing, and must be a whole number or null")
    window = fields.integer("sliding_window") if "sliding_window" in fields else None
    kind = FULL if window is None else SLIDING
    if "layer_types" in fields and set(kinds_of_layers(fields, every=1)) != {kind}:
        raise fields.error(
            "layer_types",
            f"all must be {kind!r}, by sliding_window: a Mistral has one window for all its layers "
            "(models with several are of the type 'ministral')",
        )
    return _config(fields, kv_heads=_kv_heads(fields), window=window, **_whole_rotation(fields))


def _qwen2(fields: JsonFields) -> TransformerConfig:
    refuse_foreign(fields, (*_ROPE, "sliding_window"))
    return _config(
        fields,
        kv_heads=_kv_heads(fields),
        window=qwen_windows(fields),
        qkv_bias=True,
        **_whole_rotation(fields),
    )


def _qwen3(fields: JsonFields) -> TransformerConfig:
    _refuse(fields, "attention_bias", "a Qwen3 with biases is not known")
    refuse_foreign(fields, (*_ROPE, "sliding_window"))
    fields.integer("head_dim")
    return _config(
        fields,
        kv_heads=_kv_heads(fields),
        window=qwen_windows(fields),
        query_key_norm=True,
        **_whole_rotation(fields),
    )


def _gemma2(fields: JsonFields) -> TransformerConfig:
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if name not in fields.values:
            raise fields.error(name, "is missing, and must be a number or null")
    refuse_foreign(fields, (*_ROPE, *_GEMMA, "attn_logit_softcapping"))
    kinds = kinds_of_layers(fields, every=2)
    return _gemma(fields, kinds, **_whole_rotation(fields))


def _gemma3_text(fields: JsonFields) -> TransformerConfig:
    # Its scores have no soft cap: `transformers` has the field but ignores it.
    own = (*_ROPE, *_GEMMA, "rope_local_base_freq", "sliding_window_pattern")
    refuse_foreign(fields, own)
    kinds = kinds_of_layers(fields, _pattern(fields))
    if first(fields.optional_number("partial_rotary_factor"), 1.0) != 1:
        raise fields.error("partial_rotary_factor", "only whole heads are rotated")
    by_kind = read_object(fields, NEWER)
    if others := by_kind.keys() - {FULL, SLIDING}:
        raise fields.error(f"{NEWER}.{min(others)}", f"only {FULL} and {SLIDING} are known")
    holder = JsonFields(by_kind, None, Counter(), NEWER)
    full = read_object(holder, FULL) | read_object(fields, OLDER)
    base = first(fields.optional_number("rope_theta"), 1e6)
    local = first(fields.optional_number("rope_local_base_freq"), 1e4)
    rotations = {
        FULL: read_part(full, f"{NEWER}.{FULL}", base, fields),
        SLIDING: read_part(read_object(holder, SLIDING), f"{NEWER}.{SLIDING}", local, fields),
    }
    for kind, rotation in rotations.items():
        if rotation.scaling is not None or rotation.fraction != 1:
            raise fields.error(f"{NEWER}.{kind}", "a Gemma 3 of that rotation is not known")
    return _gemma(
        fields,
        kinds,
        query_key_norm=True,
        rope_theta=tuple(rotations[kind].theta for kind in kinds),
        rope_interpolation=tuple(rotations[kind].interpolation for kind in kinds),
    )


def _pattern(fields: JsonFields) -> int:
    """The interval of global-attention layers, for a Gemma 3 that does not list its layers."""
    name, kept = "sliding_window_pattern", "_sliding_window_pattern"
    every = fields.integer(name) if name in fields.values else 6
    # No version of `transformers` reads the second name back, under which newer files store it.
    if kept in fields and "layer_types" not in fields and fields.integer(kept) != every:
        raise fields.error(kept, f"{fields.integer(kept)} is not what {name} says ({every})")
    return every


def _gemma3(fields: JsonFields) -> TransformerConfig:
    """The text part of a multimodal Gemma 3."""
    if "text_config" not in fields:
        raise fields.error("text_config", "is missing, and must be an object")
    refuse_foreign(fields, ())
    text = JsonFields(read_object(fields, "text_config"), None, Counter(), "text_config")
    if text.values.get("model_type", "gemma3_text") != "gemma3_text":
        raise text.error("model_type", "only gemma3_text is known within gemma3")
    _refuse_for_all(text)
    tied = [_tied(part, True) for part in (fields, text)]
    if tied[0] != tied[1]:
        raise text.error("tie_word_embeddings", "is not what the file says outside of text_config")
    values = {**_GEMMA_3_DEFAULTS, **text.values, "tie_word_embeddings": tied[0]}
    return _gemma3_text(JsonFields(values, None, Counter(), "text_config"))


def _gemma(fields: JsonFields, kinds: list[str], **own: Any) -> TransformerConfig:
    """The settings that Gemma 2 and 3 share."""
    _refuse(fields, "attention_bias", "a Gemma with biases is not known")
    _require_even_split(fields)
    names = ("hidden_act", "hidden_activation")
    if "hidden_act" in fields and len({fields.text(name, raw=True) for name in names}) > 1:
        raise fields.error("hidden_act", "is not what hidden_activation says")
    fields.integer("head_dim")
    config = _config(
        fields,
        "hidden_activation",
        kv_heads=fields.integer("num_key_value_heads"),
        window=windows_of(kinds, fields.integer("sliding_window")),
        query_pre_attn_scalar=_number(fields, "query_pre_attn_scalar"),
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        logit_softcap=fields.optional_number("final_logit_softcapping"),
        zero_centered_norms=True,
        post_norms=True,
        scale_embeddings=True,
        **own,
    )
    return dataclasses.replace(config, tied_embeddings=_tied(fields, True))


def _gpt_neox(fields: JsonFields) -> TransformerConfig:
    if fields.flag("attention_bias") is False:
        raise fields.error("attention_bias", "a GPT-NeoX without biases is not known")
    refuse_foreign(fields, (*_ROPE, "rotary_pct", "rotary_emb_base", "use_parallel_residual"))
    refuse_windows(fields)
    _require_even_split(fields)
    rotation = read_rotation(fields, base="rotary_emb_base", share="rotary_pct", default_share=0.25)
    return TransformerConfig(
        **_sizes(fields),
        activation=_activation(fields, "hidden_act"),
        position="rope",
        norm="layer",
        norm_epsilon=_number(fields, "layer_norm_eps"),
        parallel_residual=fields.flag("use_parallel_residual") is not False,
        tied_embeddings=_tied(fields, False),
        **_BIASES,
        **rotation.settings(),
    )


def _gpt2(fields: JsonFields) -> TransformerConfig:
    refuse_foreign(fields, ())
    refuse_windows(fields, "n_layer")
    if fields.flag("scale_attn_weights") is False:
        raise fields.error("scale_attn_weights", "a GPT-2 without it is not known")
    for (
        other,
        name,
    ) in _OTHER_NAMES_OF_GPT2.items():  # `transformers` accepts this name, too
        if other in fields.values and fields.values[other] != fields.values.get(name):
            raise fields.error(other, f"{describe(fields.values[other])} is not what {name} says")
    width, heads = fields.integer("n_embd"), fields.integer("n_head")
    return TransformerConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=width,
        num_layers=read_layers(fields, "n_layer"),
        num_heads=heads,
        head_dim=_head_dim(fields, "n_head", heads, width),
        d_ff=fields.integer("n_inner") if "n_inner" in fields else None,
        activation=_activation(fields, "activation_function"),
        position="learned",
        max_positions=fields.integer("n_positions"),
        norm="layer",
        norm_epsilon=_number(fields, "layer_norm_epsilon"),
        tied_embeddings=_tied(fields, True),
        **_BIASES,
    )


# Fields of `foreign_fields` that families with rotary positions, and Gemmas, have.
_ROPE = (NEWER, OLDER, "partial_rotary_factor")
_GEMMA = ("sliding_window", "query_pre_attn_scalar", "final_logit_softcapping")

_OTHER_NAMES_OF_GPT2 = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}

_BIASES: dict[str, Any] = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}


# Fields missing in the nested part of a published `config.json`; text-only ones are complete.
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


def _config(
    fields: JsonFields, activation: str = "hidden_act", *, kv_heads: int | None, **own: Any
) -> TransformerConfig:
    """The settings of Llama-like families: RMSNorm, rotary positions, a gated MLP."""
    return TransformerConfig(
        **_sizes(fields),
        num_kv_heads=kv_heads,
        activation=_activation(fields, activation),
        gated_mlp=True,
        position="rope",
        norm_epsilon=_number(fields, "rms_norm_eps"),
        tied_embeddings=_tied(fields, False),
        **own,
    )


def _kv_heads(fields: JsonFields, missing: bool = False) -> int | None:
    """Number of key and value heads; None for all. The default differs between families."""
    name = "num_key_value_heads"
    if name not in fields.values and not missing:
        raise fields.error(name, "is missing, and must be a whole number or null")
    return fields.integer(name) if name in fields else None


def _tied(fields: JsonFields, default: bool) -> bool:
    """Whether embeddings are tied."""
    name = "tie_word_embeddings"
    if name not in fields.values:
        return default
    if (tied := fields.flag(name)) is None:
        raise fields.error(name, "is null, and must be true or false")
    return tied


def _sizes(fields: JsonFields) -> dict[str, Any]:
    """Sizes, under the names that most families use."""
    width, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    return {
        "vocab_size": fields.integer("vocab_size"),
        "d_model": width,
        "num_layers": read_layers(fields, "num_hidden_layers"),
        "num_heads": heads,
        "head_dim": fields.integer("head_dim")
        if "head_dim" in fields
        else _head_dim(fields, "num_attention_heads", heads, width),
        "d_ff": fields.integer("intermediate_size"),
        "context_length": fields.integer("max_position_embeddings")
        if "max_position_embeddings" in fields
        else None,
    }


def _head_dim(fields: JsonFields, name: str, heads: int, width: int) -> int:
    if heads < 1 or width % heads:
        raise fields.error(name, f"{heads} must divide the model's width ({width})")
    return width // heads


def _require_even_split(fields: JsonFields) -> None:
    """Refuses a width that heads don't divide, as `transformers` does for any `head_dim`."""
    heads = fields.integer("num_attention_heads")
    _head_dim(fields, "num_attention_heads", heads, fields.integer("hidden_size"))


def _activation(fields: JsonFields, name: str) -> Activation:
    activation = fields.text(name, raw=True)
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise fields.error(name, f"{activation!r} is not among the known ones ({known})")
    return _ACTIVATIONS[activation]


def _whole_rotation(fields: JsonFields) -> dict[str, Any]:
    """The rotation of families that rotate all channels of a head."""
    rotation = read_rotation(fields)
    if rotation.fraction != 1:
        raise fields.error("partial_rotary_factor", "only whole heads are rotated")
    return rotation.settings()


def _number(fields: JsonFields, name: str) -> float:
    value = fields.optional_number(name)
    if value is None:
        raise fields.error(name, "is missing, and must be a number")
    return value


def _refuse_for_all(fields: JsonFields) -> None:
    """Refuses settings that are not supported for any family."""
    _refuse(fields, "quantization_config", "only unquantised weights are read")
    _refuse(fields, "use_bidirectional_attention", "only causal attention is computed")
    if fields.values.get("is_causal", True) is not True:  # `transformers` reads null as False
        raise fields.error("is_causal", "only causal attention is computed")


def _refuse(fields: JsonFields, name: str, reason: str) -> None:
    """Raises if a setting is present and not false."""
    value = fields.values.get(name)
    if value is not None and value is not False:
        raise fields.error(name, f"got {describe(value)}: {reason}")

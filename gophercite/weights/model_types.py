"""Converts our architectures to the `config.json` of families in `transformers`.

The result is read back by `architectures` and must give the same architecture, so that we never
write a folder that another program would compute differently.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from gophercite.models.config import Activation, TransformerConfig
from gophercite.weights.architectures import read_architecture

Fields = dict[str, Any]

# Fields on how to compute a model, and its intended context: they don't change the results.
_COMPUTING = (
    "context_length",
    "dtype",
    "param_dtype",
    "remat_every",
    "scan_layers",
    "attention_kernel",
    "attention_block",
    "attention_remat",
    "elementwise_remat",
)

_ACTIVATIONS: dict[Activation, str] = {
    "silu": "silu",
    "gelu": "gelu_pytorch_tanh",
    "gelu_exact": "gelu",
    "relu": "relu",
}
_FULL, _SLIDING = "full_attention", "sliding_attention"


def write_architecture(config: TransformerConfig) -> Fields:
    """The `config.json` of an architecture: the inverse of `read_architecture`.

    Args:
      config: the architecture.

    Returns:
      The fields of the first family that supports it, including `model_type` and `architectures`.

    Raises:
      ValueError: no family supports it; the message names the differences to the closest one.
    """
    wanted = comparable(config)
    nearest: tuple[int, str] | None = None
    for family, (name, write) in _FAMILIES.items():
        fields = {"architectures": [name], "model_type": family, **write(config)}
        if config.context_length is not None and config.max_positions is None:
            fields["max_position_embeddings"] = config.context_length
        try:
            found = comparable(read_architecture(fields))
        except ValueError:
            continue
        others = [field for field, value in wanted.items() if found[field] != value]
        if not others:
            return fields
        if nearest is None or len(others) < nearest[0]:
            has = ", ".join(f"{field} = {wanted[field]!r}" for field in others)
            nearest = len(others), f"{family} comes nearest, but has no {has}"
    reason = nearest[1] if nearest else "its sizes fit none of them"
    raise ValueError(f"no published family ({', '.join(_FAMILIES)}) has the architecture: {reason}")


def comparable(config: TransformerConfig) -> Fields:
    """An architecture's fields, with defaults filled in."""
    fields = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in _COMPUTING
    }
    fields |= {
        "num_kv_heads": config.kv_heads,
        "d_ff": config.mlp_width,
        "query_pre_attn_scalar": config.query_pre_attn_scalar or config.head_dim,
    }
    for name, value in fields.items():
        if isinstance(value, tuple) and len(set(value)) == 1:  # equal in all layers
            fields[name] = value[0]
    return fields


def _llama(config: TransformerConfig) -> Fields:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.mlp_width,
        "hidden_act": _ACTIVATIONS.get(config.activation),
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied_embeddings,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(config),
    }


def _mistral(config: TransformerConfig) -> Fields:
    window = comparable(config)["window"]
    return {**_llama(config), "sliding_window": window}


def _qwen(config: TransformerConfig) -> Fields:
    window, kinds = _windows(config)
    return {
        **_llama(config),
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "max_window_layers": kinds.count(_FULL),
        "layer_types": kinds,
    }


def _gemma(config: TransformerConfig) -> Fields:
    fields = _llama(config)
    activation = fields.pop("hidden_act")
    window, kinds = _windows(config)
    scalar = config.query_pre_attn_scalar or config.head_dim
    return {
        **fields,
        "hidden_activation": activation,
        # `transformers` expects an integer if it is one.
        "query_pre_attn_scalar": int(scalar) if scalar == int(scalar) else scalar,
        "attn_logit_softcapping": config.attention_softcap,
        "final_logit_softcapping": config.logit_softcap,
        "sliding_window": window,
        "layer_types": kinds,
    }


def _gemma3(config: TransformerConfig) -> Fields:
    """Gemma 3's fields, with separate rotations for global layers and layers with a window."""
    fields = _gemma(config)
    kinds = fields["layer_types"]

    def of_kind(values: float | tuple[float, ...], kind: str, default: float) -> float:
        if not isinstance(values, tuple):
            return values
        return values[kinds.index(kind)] if kind in kinds else default

    factor = of_kind(config.rope_interpolation, _FULL, 1.0)
    return {
        **fields,
        "rope_theta": of_kind(config.rope_theta, _FULL, 1e6),
        "rope_local_base_freq": of_kind(config.rope_theta, _SLIDING, 1e4),
        "rope_scaling": None if factor == 1 else {"rope_type": "linear", "factor": factor},
    }


def _gpt_neox(config: TransformerConfig) -> Fields:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_width,
        "hidden_act": _ACTIVATIONS[config.activation],
        "layer_norm_eps": config.norm_epsilon,
        "attention_bias": True,
        "use_parallel_residual": config.parallel_residual,
        "rotary_pct": config.rotary_fraction,
        "rotary_emb_base": config.rope_theta,
        "rope_scaling": _rope_scaling(config),
        "tie_word_embeddings": config.tied_embeddings,
    }


def _gpt2(config: TransformerConfig) -> Fields:
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.max_positions,
        "n_embd": config.d_model,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.mlp_width,
        "activation_function": "gelu_new" if config.activation == "gelu" else "gelu",
        "layer_norm_epsilon": config.norm_epsilon,
        "tie_word_embeddings": config.tied_embeddings,
    }


def _windows(config: TransformerConfig) -> tuple[int | None, list[str]]:
    """The largest window of any layer, and each layer's kind."""
    windows = config.window
    if not isinstance(windows, tuple):
        windows = (windows,) * config.num_layers
    sizes = (window for window in windows if window is not None)
    return max(sizes, default=None), [_FULL if w is None else _SLIDING for w in windows]


def _rope_scaling(config: TransformerConfig) -> Fields | None:
    """Llama 3's or linear scaling, with names that all versions of `transformers` read."""
    scaling = config.rope_scaling
    if scaling is None:
        factor = config.rope_interpolation
        return None if factor == 1 else {"rope_type": "linear", "factor": factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_frequency_factor,
        "high_freq_factor": scaling.high_frequency_factor,
        "original_max_position_embeddings": scaling.original_length,
    }


# In order of preference, by `model_type`: the class that computes it, and its writer of fields.
_FAMILIES: dict[str, tuple[str, Callable[[TransformerConfig], Fields]]] = {
    "llama": ("LlamaForCausalLM", _llama),
    "mistral": ("MistralForCausalLM", _mistral),
    "qwen2": ("Qwen2ForCausalLM", _qwen),
    "qwen3": ("Qwen3ForCausalLM", _qwen),
    "gemma2": ("Gemma2ForCausalLM", _gemma),
    "gemma3_text": ("Gemma3ForCausalLM", _gemma3),
    "gpt_neox": ("GPTNeoXForCausalLM", _gpt_neox),
    "gpt2": ("GPT2LMHeadModel", _gpt2),
}

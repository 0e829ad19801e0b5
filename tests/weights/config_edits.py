"""Random edits of a family's `config.json`, for `config_fuzz` and the tests.

Fields are dropped, added, changed and given another type: the family's own, those of other
families, and older spellings, with the values that published files have and some that none has.
Sizes stay small, because `transformers` makes whatever a file asks for.
"""

import copy
import pathlib
import random
from typing import Any, NamedTuple

Fields = dict[str, Any]

# Some edits, and what `transformers` computed of them: the logits at `SHOWN`.
STORED = pathlib.Path(__file__).parent / "edited_checkpoints.json"
SHOWN = (slice(8, None, 7), slice(None, None, 24))

LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
_ROPES: list[Any] = [
    None,
    {},
    {"rope_type": "default"},
    {"rope_type": "default", "rope_theta": 200.0},
    {"type": "linear", "factor": 4.0},
    {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    {"rope_type": "linear", "type": "dynamic", "factor": 3.0},
    {"factor": 2.0},
    {"rope_type": None, "type": "linear", "factor": 2.0},
    LLAMA_3,
    {**LLAMA_3, "rope_theta": 5e5},
    {name: value for name, value in LLAMA_3.items() if name != "original_max_position_embeddings"},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"type": "dynamic", "factor": 2.0},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 1.0},
    {"full_attention": {"rope_type": "linear", "factor": 2.0}},
    {
        "full_attention": {"rope_type": "default", "rope_theta": 300.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
    {"full_attention": None, "sliding_attention": {"rope_type": "default"}},
]
_FLAGS = [True, False, None]
_ACTIVATIONS = ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "quick_gelu"]
_FULL, _SLIDING = "full_attention", "sliding_attention"

# Of each field that some family, or some version of a library, reads: values to give it.
VALUES: dict[str, list[Any]] = {
    "rope_parameters": _ROPES,
    "rope_scaling": _ROPES,
    "hidden_act": _ACTIVATIONS,
    "hidden_activation": _ACTIVATIONS,
    "activation_function": _ACTIVATIONS,
    "rms_norm_eps": [1e-6, 1e-3, 0.1],
    "layer_norm_eps": [1e-6, 1e-3, 0.1],
    "layer_norm_epsilon": [1e-6, 0.1],
    "rope_theta": [100, 1e4, 5e5],
    "rope_local_base_freq": [20.0, 1e4],
    "rotary_emb_base": [100, 1e4],
    "rotary_pct": [0.25, 0.5, 1.0],
    "partial_rotary_factor": [0.25, 0.5, 1.0],
    "rotary_dim": [2],
    "original_max_position_embeddings": [16, 512],
    "sliding_window": [None, 3, 5, 4096],
    "sliding_window_size": [3],
    "use_sliding_window": _FLAGS,
    "max_window_layers": [0, 1, 2, 28],
    "layer_types": [
        None,
        [_FULL] * 3,
        [_SLIDING] * 3,
        [_SLIDING, _FULL, _SLIDING],
        [_FULL, _SLIDING, _FULL],
        [_FULL, _FULL],
        ["attention", _SLIDING, _FULL],
        [_FULL, "chunked_attention", _FULL],
    ],
    "sliding_window_pattern": [1, 2, 3, 6],
    "_sliding_window_pattern": [2, 3],
    "attention_chunk_size": [None, 4],
    "attn_logit_softcapping": [None, 1.5, 50.0],
    "final_logit_softcapping": [None, 2.5, 30.0],
    "query_pre_attn_scalar": [3, 8, 256],
    "num_attention_heads": [2, 4, 8],
    "num_key_value_heads": [None, 1, 2, 4],
    "head_dim": [None, 4, 6, 8],
    "hidden_size": [16, 32],
    "intermediate_size": [24, 48],
    "num_hidden_layers": [2, 3, 4],
    "vocab_size": [256, 288],
    "max_position_embeddings": [8, 64, 4096],
    "n_embd": [16, 32],
    "n_head": [2, 4, 8],
    "n_layer": [2, 3],
    "n_inner": [None, 24],
    "n_positions": [32, 96],
    "n_ctx": [32, 96],
    "scale_attn_weights": _FLAGS,
    "scale_attn_by_inverse_layer_idx": _FLAGS,
    "reorder_and_upcast_attn": _FLAGS,
    "add_cross_attention": _FLAGS,
    "use_parallel_residual": _FLAGS,
    "use_bidirectional_attention": _FLAGS,
    "tie_word_embeddings": _FLAGS,
    "attention_bias": _FLAGS,
    "mlp_bias": _FLAGS,
    "qkv_bias": _FLAGS,
    "use_qk_norm": _FLAGS,
    "is_causal": _FLAGS,
    "is_decoder": _FLAGS,
    "is_encoder_decoder": _FLAGS,
    "use_cache": _FLAGS,
    "per_layer_config": [{}, {"1": {"sliding_window": 3}}, {"0": {"rms_norm_eps": 0.5}}],
    "no_rope_layers": [[1, 1, 0]],
    "rope_interleaved": _FLAGS,
    "embedding_multiplier": [1.0, 12.0],
    "logits_scaling": [1.0, 8.0],
    "logit_scale": [0.0625],
    "scale_embedding": _FLAGS,
    "alibi": _FLAGS,
    "num_local_experts": [2],
    "attention_dropout": [0.0, 0.5],
    "resid_pdrop": [0.5],
    "pretraining_tp": [1, 2],
    "initializer_range": [0.5],
    "pad_token_id": [None, 0, 7],
    "eos_token_id": [None, 0, [0, 3]],
    "torch_dtype": ["float16", "float32"],
    "dtype": ["float32"],
    "transformers_version": ["4.38.0"],
    "quantization_config": [None, {"quant_method": "gptq", "bits": 4}],
    "model_type": ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "mixtral"],
}
# What an edit takes most often: where files of different ages and families differ.
_OFTEN = (
    *("rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "layer_types"),
    *("sliding_window_pattern", "use_sliding_window", "max_window_layers"),
    *("attn_logit_softcapping", "final_logit_softcapping", "tie_word_embeddings"),
    *("partial_rotary_factor", "num_key_value_heads", "head_dim"),
)
_OTHER_TYPES: list[Any] = [None, True, "4", 0, -1, 2.5, [], {}, [1, 2]]


class Edit(NamedTuple):
    """What is changed in a `config.json`.

    Attributes:
      part: the object that has the fields; "" for the whole file.
      changes: new values by name.
      dropped: names that go.
    """

    part: str
    changes: Fields
    dropped: tuple[str, ...]

    def apply(self, fields: Fields) -> Fields:
        """The edited file."""
        edited = copy.deepcopy(fields)
        part = edited[self.part] if self.part else edited
        part.update(copy.deepcopy(self.changes))
        for name in self.dropped:
            part.pop(name, None)
        return edited


_LONGER = {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0}
_ROTATED = ("llama2", "llama3", "mistral", "qwen2", "qwen2_windows", "qwen3", "gemma2")

# What once came out wrong without a word, in the form that is right.
NAMED: dict[str, list[Edit]] = {
    **{family: [Edit("", {"rope_scaling": _LONGER}, ())] for family in _ROTATED},
    "gemma3": [
        Edit("", {"sliding_window_pattern": 2, "_sliding_window_pattern": 2}, ("layer_types",)),
        Edit("", {"rope_scaling": {"factor": 2.0}}, ()),
    ],
    "gemma3_images": [Edit("text_config", {"rope_scaling": _LONGER}, ())],
    "gpt_neox": [
        Edit("", {"rope_scaling": {**_LONGER, "partial_rotary_factor": 0.25}}, ("rope_parameters",))
    ],
    "gpt2": [Edit("", {"n_head": 2, "num_attention_heads": 2}, ())],
}


def random_edit(fields: Fields, draw: random.Random) -> Edit:
    """One to three changes of a `config.json`."""
    part = "text_config" if "text_config" in fields and draw.random() < 0.8 else ""
    there = sorted(fields[part] if part else fields)
    changes: Fields = {}
    dropped: list[str] = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        kind = draw.choice(["drop", "change", "add", "add", "retype"])
        if kind == "drop":
            dropped.append(draw.choice(there))
        elif kind == "retype":
            changes[draw.choice(there)] = draw.choice(_OTHER_TYPES)
        else:
            names = [name for name in VALUES if (name in there) == (kind == "change")]
            often = [name for name in names if name in _OFTEN]
            name = draw.choice(often if often and draw.random() < 0.5 else names)
            changes[name] = draw.choice(VALUES[name])
    return Edit(part, changes, tuple(dropped))

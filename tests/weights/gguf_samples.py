"""GGUF files of the small checkpoints, written byte by byte, as llama.cpp's conversion has them."""

import json
import pathlib
import struct
from collections.abc import Mapping
from typing import Any

import gguf.quants
import numpy as np
from gguf.constants import GGMLQuantizationType
from tokenizers import pre_tokenizers

from gophercite.weights.checkpoint import Checkpoint
from tests.weights.samples import checkpoint, edit_config

# What `config.json` must say so that GGUF can say the same.
EXPRESSIBLE: dict[str, dict[str, Any]] = {
    "llama2": {},
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    },
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"query_pre_attn_scalar": 6, "layer_types": ...},
    "gemma3": {
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention"] * 3,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        },
    },
}
ARCHITECTURES = {"llama2": "llama", "llama3": "llama"}

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

Tensor = tuple[np.ndarray, str]


def source(family: str, folder: pathlib.Path) -> pathlib.Path:
    """A checkpoint in Hugging Face's form of which there can be a GGUF file."""
    copy = checkpoint(family, folder)
    edit_config(copy, **EXPRESSIBLE[family])
    return copy


def fields_of(family: str, folder: pathlib.Path) -> dict[str, Any]:
    """What the conversion writes of a checkpoint's `config.json`, and a tokenizer of bytes."""
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES.get(family, family)
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    own = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if config.get("head_dim"):
        own |= {f"attention.{kind}_length": config["head_dim"] for kind in ("key", "value")}
    if rope["rope_type"] == "linear":
        own |= {"rope.scaling.type": "linear", "rope.scaling.factor": rope["factor"]}
    if arch.startswith("gemma"):
        own["attention.sliding_window"] = config["sliding_window"]
    if arch == "gemma2":
        own |= {
            name: config[name] for name in ("attn_logit_softcapping", "final_logit_softcapping")
        }
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {
        "general.architecture": arch,
        **{f"{arch}.{name}": value for name, value in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["<|endoftext|>", *alphabet],
        "tokenizer.ggml.token_type": [3, *[1] * len(alphabet)],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": 0,
    }


def tensors_of(family: str, folder: pathlib.Path) -> dict[str, Tensor]:
    """A checkpoint's tensors as the conversion writes them, in float32."""
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES.get(family, family)
    names = _NAMES | (_GEMMA_NAMES if arch.startswith("gemma") else {})
    stored = Checkpoint(folder)
    tensors: dict[str, Tensor] = {}
    for name in stored.names:
        values = np.concatenate(list(stored.chunks(name, False))).astype(np.float32)
        values = values.reshape(stored.shape(name))
        stem = name.removesuffix(".weight").removesuffix(".bias")
        kind = name.rsplit(".", 1)[1]
        if stem in _WHOLE:
            theirs = _WHOLE[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            theirs = f"blk.{layer}.{names[part]}"
        if arch == "llama" and theirs.endswith(("attn_q", "attn_k")):
            key = "num_attention_heads" if theirs.endswith("q") else "num_key_value_heads"
            values = np.concatenate(
                [
                    np.stack([head[: len(head) // 2], head[len(head) // 2 :]], 1).reshape(
                        len(head), -1
                    )
                    for head in np.split(values, config[key])
                ]
            )
        if arch.startswith("gemma") and stem.endswith("norm"):
            values = values + 1
        tensors[f"{theirs}.{kind}"] = (values, "F32")
    if family == "llama3":
        tensors["rope_freqs.weight"] = (_llama_3_factors(config), "F32")
    return tensors


def _llama_3_factors(config: Mapping[str, Any]) -> np.ndarray:
    """By how much each pair of channels turns more slowly, one pair at a time."""
    rope, dim = config["rope_parameters"], config["head_dim"]
    factors = []
    for pair in range(dim // 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (2 * pair / dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        if turns > rope["high_freq_factor"]:
            factors.append(1.0)
        elif turns < rope["low_freq_factor"]:
            factors.append(rope["factor"])
        else:
            smooth = (turns - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def write(path: pathlib.Path, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes a GGUF file of version 3."""
    header = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(fields))]
    for key, value in fields.items():
        kind, content = _value(value)
        header += [_string(key), struct.pack("<I", kind), content]
    data, offset = [], 0
    for name, (values, kind_name) in tensors.items():
        kind = GGMLQuantizationType[kind_name]
        content = np.ascontiguousarray(gguf.quants.quantize(values, kind)).tobytes()
        content += bytes(-len(content) % 32)
        shape = values.shape[::-1]
        header += [
            _string(name),
            struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset),
        ]
        data.append(content)
        offset += len(content)
    start = b"".join(header)
    path.write_bytes(start + bytes(-len(start) % 32) + b"".join(data))


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 12, struct.pack("<d", value)
    if isinstance(value, str):
        return 8, _string(value)
    items = [_value(item) for item in value] or [(8, b"")]
    length = len(value)
    return 9, struct.pack("<IQ", items[0][0], length) + b"".join(content for _, content in items)

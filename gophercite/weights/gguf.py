"""Imports GGUF files, llama.cpp's format: one file with weights, sizes and tokenizer.

The conversion to GGUF reorders and shifts some tensors (llama.cpp's convert_hf_to_gguf.py). That is
undone here, so that the model computes the same as the published one, except for quantisation
errors. The metadata is translated to the fields of a `config.json` and read by `architectures`, so
that the same settings are refused as for any other checkpoint.
"""

import collections
import os
import pathlib
from typing import Any

import numpy as np

from gophercite.model_folders.folder import Description
from gophercite.models.config import TransformerConfig
from gophercite.storage.json_fields import JsonFields
from gophercite.weights.architectures import read_architecture
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.gguf_file import MAGIC, GGUFFile, GGUFTensors
from gophercite.weights.gguf_tokenizer import read_tokenizer
from gophercite.weights.importing import Dtype, Source, make_model_folder
from gophercite.weights.layer_windows import read_layers
from gophercite.weights.names import GGUF_NAMES

_EMBEDDING, _UNEMBEDDING, _ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"

# The family's name in `config.json`, by `general.architecture`. Mistral's files say llama.
_FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
_GEMMAS = ("gemma2", "gemma3")
_SILU, _GELU = {"hidden_act": "silu"}, {"hidden_activation": "gelu_pytorch_tanh"}

# The known keys of an architecture. Any other key may be a setting that we don't compute.
_KEYS = frozenset(
    {
        *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"),
        *("attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"),
        *("attention.key_length", "attention.value_length", "attention.sliding_window"),
        *("rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor"),
        *("rope.scaling.original_context_length", "rope.scaling.finetuned"),
        *("attn_logit_softcapping", "final_logit_softcapping"),
    }
)

# llama.cpp's constants: the interval of layers without a window, and the window's rope base.
_WINDOW_EVERY = {"gemma2": 2, "gemma3": 6}
_LOCAL_ROPE_BASE = 1e4
# Gemmas with 27 billion parameters scale attention by model width per head, others by head width.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}

# Llama 3's scaling: the file has only one factor for each pair of channels.
_LLAMA_3_LOW, _LLAMA_3_HIGH, _LLAMA_3_LENGTH = 1.0, 4.0, 8192


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Whether a path has GGUF's suffix, or is a file with GGUF's magic number."""
    path = pathlib.Path(path)
    if not path.is_file():
        return path.suffix.lower() == ".gguf"
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC or path.suffix.lower() == ".gguf"


def import_gguf(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    dtype: Dtype | None = None,
) -> Description:
    """Converts a GGUF file to a model folder, atomically.

    It supports Llama, Mistral, Qwen 2 and 3, Gemma 2 and 3, and tensors of the kinds in
    `gguf_file.KINDS`. Only one tensor is in memory at a time, never the entire model.

    Args:
      source: the file; needs the `gguf` package.
      folder: a new folder, or a model folder to replace.
      dtype: dtype of the parameters and of the computation; by default float32, which is lossless.

    Returns:
      The contents of the new `model.json`.

    Raises:
      WeightsError: the file is damaged, its architecture or a tensor's kind is unknown, or its
        tensors don't fit; the message names the key or tensor.
      VocabularyError: the tokenizer can't be used.
      ModelFolderError: `folder` holds something else.
    """
    file = GGUFFile(source)
    try:
        config = _architecture(file)
    except ValueError as error:
        raise WeightsError(f"{file.path}: {error}") from error
    arch = file.fields["general.architecture"]
    heads = {"attn_q.weight": config.num_heads, "attn_k.weight": config.kv_heads}

    def row_order(name: str, rows: int) -> np.ndarray | None:
        of_heads = heads.get(name.split(".", 2)[-1]) if arch == "llama" else None
        return None if of_heads is None else _rotated_halves(rows, of_heads)

    def added(name: str) -> float:
        return 1.0 if arch in _GEMMAS and name.endswith("norm.weight") else 0.0

    return make_model_folder(
        Source(
            file.path,
            GGUFTensors(file, row_order, added),
            config,
            "its metadata",
            GGUF_NAMES,
            read_tokenizer(file),
        ),
        folder,
        dtype,
        _provenance(file),
    )


def _rotated_halves(rows: int, heads: int) -> np.ndarray:
    """The positions of queries' or keys' rows in a layout that pairs a head's two halves.

    llama.cpp rotates adjacent channels, so the conversion interleaved each head's halves.
    """
    if rows % heads or rows // heads % 2:
        return np.arange(rows)  # a wrong shape, which is refused elsewhere
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _provenance(file: GGUFFile) -> dict[str, Any]:
    """The provenance of the weights for `model.json`."""
    known = {"imported_from": file.path.name}
    for key in ("general.name", "general.license"):
        if isinstance(value := file.fields.get(key), str):
            known[key.removeprefix("general.")] = value
    counted = collections.Counter(file.kind(name) for name in file.names)
    return {**known, "tensors": dict(counted.most_common())}


def _architecture(file: GGUFFile) -> TransformerConfig:
    """The architecture in a file's metadata; a `ValueError` names the key."""
    fields = JsonFields(file.fields, None, collections.Counter())
    arch = fields.text("general.architecture", raw=True)
    if arch not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise fields.error(
            "general.architecture", f"{arch!r} is not among the known ones ({known})"
        )
    for key in file.fields:
        own = key.removeprefix(f"{arch}.")
        if own != key and own not in _KEYS:
            raise fields.error(key, "is not known, and may say that the model computes otherwise")
    config = _common(file, fields, arch)
    config |= _rope(file, fields, arch, config)
    if arch in _GEMMAS:
        config |= _gemma(fields, arch, config)
    elif f"{arch}.attention.sliding_window" in fields:
        raise fields.error(f"{arch}.attention.sliding_window", f"is not known of {arch}")
    return read_architecture(config)


def _common(file: GGUFFile, fields: JsonFields, arch: str) -> dict[str, Any]:
    """Sizes and other settings that most families share."""
    if _EMBEDDING not in file.names:
        raise ValueError(f"tensor {_EMBEDDING!r} is missing")
    width = fields.integer(f"{arch}.embedding_length")
    if (heads := fields.integer(f"{arch}.attention.head_count")) < 1:
        raise fields.error(f"{arch}.attention.head_count", f"{heads} must be at least 1")
    of_heads = [
        fields.integer(f"{arch}.{key}")
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")
        if f"{arch}.{key}" in fields
    ]
    if len(set(of_heads)) > 1:
        raise fields.error(
            f"{arch}.attention.key_length",
            "keys, values and what is rotated of them must have one width, got "
            f"{', '.join(map(str, of_heads))}",
        )
    own = {"head_dim": of_heads[0]} if of_heads else {}
    kv_heads = f"{arch}.attention.head_count_kv"
    return {
        "model_type": _FAMILIES[arch],
        "vocab_size": file.shape(_EMBEDDING)[0],
        "hidden_size": width,
        "num_hidden_layers": read_layers(fields, f"{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.integer(kv_heads) if kv_heads in fields else heads,
        "intermediate_size": fields.integer(f"{arch}.feed_forward_length"),
        "max_position_embeddings": fields.integer(f"{arch}.context_length"),
        "rms_norm_eps": fields.optional_number(f"{arch}.attention.layer_norm_rms_epsilon"),
        **(_GELU if arch in _GEMMAS else _SILU),
        "tie_word_embeddings": _UNEMBEDDING not in file.names,
        **own,
    }


def _rope(file: GGUFFile, fields: JsonFields, arch: str, common: dict[str, Any]) -> dict[str, Any]:
    """The rotation's base and scaling."""
    base = fields.optional_number(f"{arch}.rope.freq_base")
    of_type, of_factor = f"{arch}.rope.scaling.type", f"{arch}.rope.scaling.factor"
    kind = "linear" if of_factor in fields else "none"  # llama.cpp's default
    if of_type in fields:
        kind = fields.text(of_type, raw=True)
    if kind not in ("none", "linear"):
        raise fields.error(of_type, f"{kind!r} is not among the known ones (none, linear)")
    scaling: dict[str, Any] | None = None
    if kind == "linear":
        scaling = {"rope_type": "linear", "factor": fields.optional_number(of_factor)}
    if _ROPE_FACTORS in file.names:
        if arch != "llama" or scaling is not None:
            raise ValueError(f"tensor {_ROPE_FACTORS!r} is known of llama without scaling only")
        shape, pairs = file.shape(_ROPE_FACTORS), _head_dim(common) // 2
        if shape != (pairs,):
            raise ValueError(
                f"tensor {_ROPE_FACTORS!r} has the shape {list(shape)}, must be [{pairs}]: a "
                "factor for each pair of channels"
            )
        scaling = _llama_3_scaling(file, base or 1e4)
    return {"rope_theta": base or 1e4, "rope_scaling": scaling}


def _llama_3_scaling(file: GGUFFile, base: float) -> dict[str, Any]:
    """Llama 3's settings, inferred from the factors; other factors are refused."""
    found = file.rows(_ROPE_FACTORS)[0].astype(np.float64)
    factor = float(found.max())
    lengths = 2 * np.pi * base ** (np.arange(len(found)) / len(found))  # wavelengths in tokens
    low, high, original = _LLAMA_3_LOW, _LLAMA_3_HIGH, _LLAMA_3_LENGTH
    between = (original / lengths - low) / (high - low)
    expected = 1 / np.clip((1 - between) / factor + between, 1 / factor, 1)
    if factor < 1 or not np.allclose(found, expected, rtol=1e-4):
        raise ValueError(
            f"tensor {_ROPE_FACTORS!r}: these are not Llama 3's factors (frequency factors {low:g} "
            f"and {high:g} from a length of {original})"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _head_dim(common: dict[str, Any]) -> int:
    """Width of a head; the model's width is shared out if the file doesn't give it."""
    own: int | None = common.get("head_dim")
    return own or common["hidden_size"] // common["num_attention_heads"]


def _gemma(fields: JsonFields, arch: str, common: dict[str, Any]) -> dict[str, Any]:
    """Gemma's additional settings, including those that are constants in llama.cpp."""
    layers, every = common["num_hidden_layers"], _WINDOW_EVERY[arch]
    of_head = _head_dim(common)
    if layers == _LAYERS_OF_27B[arch]:
        of_head = common["hidden_size"] // common["num_attention_heads"]
    own: dict[str, Any] = {
        "query_pre_attn_scalar": of_head,
        "sliding_window": fields.integer(f"{arch}.attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if (layer + 1) % every else "full_attention"
            for layer in range(layers)
        ],
    }
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        own[cap] = fields.optional_number(f"{arch}.{cap}")
        if arch == "gemma2" and own[cap] is None:
            raise fields.error(f"{arch}.{cap}", "is missing, and must be a number")
    if arch == "gemma3":
        own["rope_local_base_freq"] = _LOCAL_ROPE_BASE
        if f"{arch}.rope.freq_base" not in fields:
            own["rope_theta"] = 1e6
        if own["attn_logit_softcapping"] is not None:
            raise fields.error(f"{arch}.attn_logit_softcapping", "is not known of gemma3")
    return own

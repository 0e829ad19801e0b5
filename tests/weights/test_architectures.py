"""What `config.json` says, in the forms that files of different ages have it."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from gophercite.model_folders.folder import load_model
from gophercite.weights.architectures import read_architecture
from gophercite.weights.hugging_face import import_weights
from tests.weights.samples import CHECKPOINTS, checkpoint

Fields = dict[str, Any]

GEMMA = {
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "head_dim": 256,
    "num_hidden_layers": 26,
    "rms_norm_eps": 1e-6,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
}
# As published: sizes, and the number of parameters that the models' cards say.
PUBLISHED: dict[str, tuple[Fields, int]] = {
    "gemma-2-2b": (
        GEMMA
        | {
            "model_type": "gemma2",
            "vocab_size": 256_000,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "rope_theta": 10_000.0,
        },
        2_614_341_888,
    ),
    "gemma-3-1b": (
        GEMMA
        | {
            "model_type": "gemma3_text",
            "vocab_size": 262_144,
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
            "rope_theta": 1_000_000,
            "rope_local_base_freq": 10_000,
        },
        999_885_952,
    ),
    "pythia-70m": (
        {
            "model_type": "gpt_neox",
            "vocab_size": 50_304,
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_attention_heads": 8,
            "num_hidden_layers": 6,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "rotary_emb_base": 10_000,
            "rotary_pct": 0.25,
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
        },
        70_426_624,
    ),
    "gpt2": (
        {
            "model_type": "gpt2",
            "vocab_size": 50_257,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
        },
        124_439_808,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_have_the_published_parameters(name: str) -> None:
    fields, parameters = PUBLISHED[name]
    assert read_architecture(fields).parameters == parameters


def stored(family: str) -> Fields:
    fields: Fields = json.loads((CHECKPOINTS / family / "config.json").read_text("utf-8"))
    return fields


def test_an_older_gemma_3_is_the_same() -> None:
    fields = stored("gemma3")
    config = read_architecture(fields)
    assert config.window == (4, None, 4)
    assert config.rope_theta == (100.0, 1e4, 100.0)
    assert config.rope_interpolation == (1.0, 8.0, 1.0)
    for name in ("rope_parameters", "layer_types", "_sliding_window_pattern"):
        del fields[name]
    fields |= {"rope_theta": 1e4, "rope_local_base_freq": 100, "sliding_window_pattern": 2}
    fields["rope_scaling"] = {"rope_type": "linear", "factor": 8}
    assert read_architecture(fields) == config


def test_an_older_gpt_neox_is_the_same() -> None:
    fields = stored("gpt_neox")
    older = {name: value for name, value in fields.items() if name != "rope_parameters"}
    older |= {"rotary_pct": 0.5, "rotary_emb_base": 1000}
    assert read_architecture(older) == read_architecture(fields)


def test_files_saved_without_a_head_and_with_masks(tmp_path: pathlib.Path) -> None:
    """As GPT-2 was published: no prefix, and causal masks among the tensors."""
    source = checkpoint("gpt2", tmp_path / "source")
    import_weights(source, tmp_path / "model")
    path = source / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    older = {name.removeprefix("transformer."): values for name, values in tensors.items()}
    older["h.0.attn.bias"] = np.ones((1, 1, 32, 32), np.float32)
    safetensors.numpy.save_file(older, path)
    import_weights(source, tmp_path / "older", dtype="bfloat16")
    first, second = (load_model(tmp_path / name).params for name in ("model", "older"))
    np.testing.assert_array_equal(first["trained_layers"]["key"], second["trained_layers"]["key"])
    fused = tensors["transformer.h.1.attn.c_attn.weight"]
    np.testing.assert_array_equal(first["trained_layers"]["key"][1], fused[:, 16:32])


REFUSED: dict[str, tuple[str, Fields, str]] = {
    "no cap": ("gemma2", {"attn_logit_softcapping": ...}, "attn_logit_softcapping': is missing"),
    "biases": ("gemma2", {"attention_bias": True}, "'attention_bias'.*with biases is not known"),
    "both ways": ("gemma3", {"use_bidirectional_attention": True}, "only causal attention"),
    "pattern": (
        "gemma3",
        {"layer_types": ..., "sliding_window_pattern": 0, "_sliding_window_pattern": ...},
        "'sliding_window_pattern': 0 must be at least 1",
    ),
    "kind": ("gemma3", {"layer_types": ["full_attention", [], "x"]}, r"layer_types\[1\]"),
    "scaling": (
        "gemma3",
        {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
        "'rope_parameters.full_attention.rope_type': 'yarn' is not among",
    ),
    "no biases": ("gpt_neox", {"attention_bias": False}, "without biases is not known"),
    "share": (
        "gpt_neox",
        {"rope_parameters": {"partial_rotary_factor": 0.4}},
        "rotary_fraction = 0.4: must be 1, or a fraction",
    ),
    "heads": ("gpt2", {"n_head": 5}, r"'n_head': 5 must divide the model's width \(16\)"),
    "layers": ("gpt2", {"n_layer": 10**12}, "'n_layer'.*from 1 to 1000"),
    "cross": ("gpt2", {"add_cross_attention": True}, "'add_cross_attention'"),
    "unscaled": ("gpt2", {"scale_attn_weights": False}, "'scale_attn_weights'"),
    # What `transformers` computes otherwise, or reads otherwise in another version.
    "layer types": (
        "mistral",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "'layer_types': all must be 'sliding_attention'",
    ),
    "no windows": ("llama2", {"layer_types": ["sliding_attention"] * 3}, "'layer_types'"),
    "off": (
        "qwen2",
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "'layer_types': .*without a window",
    ),
    "capped scores": ("gemma3", {"attn_logit_softcapping": 50.0}, "'attn_logit_softcapping'"),
    "kept pattern": (
        "gemma3",
        {"layer_types": ..., "_sliding_window_pattern": 2},
        r"'_sliding_window_pattern': 2 is not what sliding_window_pattern says \(6\)",
    ),
    "lost base": (
        "qwen3",
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        r"'rope_scaling': holds in place of rope_parameters.*rope_theta is 10000, not 1e\+06",
    ),
    "yarn": (
        "qwen2",
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        "'rope_scaling.type': 'yarn'",
    ),
    "two kinds": (
        "llama2",
        {"rope_parameters": {"rope_type": "linear", "type": "dynamic", "factor": 2.0}},
        "'rope_parameters.type': 'dynamic' is not what rope_type says",
    ),
    "rotation by layer": (
        "qwen2",
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
        "'rope_parameters.full_attention'",
    ),
    "another length": (
        "llama3",
        {"original_max_position_embeddings": 16},
        r"'original_max_position_embeddings': 16 is not what the rotation has \(512\)",
    ),
    "not causal": ("qwen2", {"is_causal": False}, "'is_causal': only causal attention"),
    "not causal by null": ("qwen3", {"is_causal": None}, "'is_causal': only causal attention"),
    "capped": ("llama2", {"final_logit_softcapping": 30.0}, "'final_logit_softcapping'"),
    "layer by layer": (
        "llama2",
        {"per_layer_config": {"1": {"rms_norm_eps": 0.5}}},
        "'per_layer_config'",
    ),
    "own code": ("llama2", {"auto_map": {"AutoModelForCausalLM": "m.M"}}, "'auto_map'"),
    "two names": ("gpt2", {"num_attention_heads": 2}, "'num_attention_heads'.*not what n_head"),
    "two activations": ("gemma2", {"hidden_act": "gelu"}, "'hidden_act': is not what"),
    "tied or not": ("gemma3_images", {"tie_word_embeddings": False}, "outside of text_config"),
    "tied null": ("llama2", {"tie_word_embeddings": None}, "must be true or false"),
    "groups": ("qwen2", {"num_key_value_heads": ...}, "'num_key_value_heads': is missing"),
}


@pytest.mark.parametrize(
    "name", ["use_bidirectional_attention", "attn_logit_softcapping", "quantization_config"]
)
def test_what_is_refused_is_refused_within_another_model(name: str) -> None:
    fields = stored("gemma3_images")
    fields["text_config"][name] = True if name.startswith("use") else 2.0
    with pytest.raises(ValueError, match=f"'text_config.{name}'"):
        read_architecture(fields)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_computed_is_refused_by_name(name: str) -> None:
    family, changes, message = REFUSED[name]
    fields = stored(family) | changes
    with pytest.raises(ValueError, match=message):
        read_architecture({name: value for name, value in fields.items() if value is not ...})


def test_scaling_in_the_older_spelling_holds() -> None:
    """As model cards say for longer contexts: added beside what a newer library saved."""
    for theta in (1e6, 300.0):  # as in `rope_parameters` there, or said anew
        scaling = {"rope_type": "linear", "factor": 4.0, "rope_theta": theta}
        config = read_architecture(stored("qwen3") | {"rope_scaling": scaling})
        assert (config.rope_interpolation, config.rope_theta) == (4.0, theta)
    gemma = read_architecture(stored("gemma3") | {"rope_scaling": {"factor": 2.0}})
    assert gemma.rope_interpolation == (
        1.0,
        2.0,
        1.0,
    )  # of layers that see all
    assert gemma.rope_theta == (100.0, 1e4, 100.0)


def test_what_says_nothing_is_passed_over() -> None:
    fields = stored("llama2")
    nothing: Fields = {"sliding_window": None, "layer_types": ["full_attention"] * 3}
    nothing |= {"per_layer_config": {}, "is_causal": True, "partial_rotary_factor": 1.0, "x": [7]}
    assert read_architecture(fields | nothing) == read_architecture(fields)


def test_linear_scaling_divides_positions() -> None:
    rope = {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}
    config = read_architecture(stored("llama2") | {"rope_parameters": rope})
    assert (config.rope_interpolation, config.rope_scaling) == (4.0, None)

"""Makes the small checkpoints in `checkpoints/` and the logits that `transformers` has for them.

Needs torch and transformers (the extra `benchmarks`), which the tests themselves don't:

    python tests/weights/make_checkpoints.py

Weights are random, wide enough that a wrong detail shows in the logits, and kept as published
checkpoints keep theirs: 16 bits, one of them in several files. The reference computes in float32.
"""

import pathlib

import numpy as np
import torch
import transformers

CHECKPOINTS = pathlib.Path(__file__).parent / "checkpoints"
LENGTHS = (16, 7, 3)

SIZES = {
    "vocab_size": 288,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "bos_token_id": None,
    "eos_token_id": 0,
}
LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,  # of four pairs the second is slowed in part
}
GEMMA_3 = {
    **SIZES,
    "head_dim": 8,
    "query_pre_attn_scalar": 3,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
    },
}
FAMILIES = {
    "llama2": transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama3": transformers.LlamaConfig(
        **SIZES, head_dim=8, rope_parameters=LLAMA_3_ROPE, tie_word_embeddings=True
    ),
    "mistral": transformers.MistralConfig(**SIZES, head_dim=6, sliding_window=5),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2_windows": transformers.Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "qwen3": transformers.Qwen3Config(
        **SIZES, head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    ),
    # Windows, caps and scales so small that the short sequences meet them.
    "gemma2": transformers.Gemma2Config(
        **SIZES,
        head_dim=6,
        query_pre_attn_scalar=3,
        sliding_window=5,
        attn_logit_softcapping=1.5,
        final_logit_softcapping=2.5,
    ),
    "gemma3": transformers.Gemma3TextConfig(**GEMMA_3),
    "gpt_neox": transformers.GPTNeoXConfig(
        vocab_size=288,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=64,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e3,
            "partial_rotary_factor": 0.5,
        },
        bos_token_id=None,
        eos_token_id=0,
    ),
    "gpt2": transformers.GPT2Config(
        vocab_size=288,
        n_positions=96,
        n_embd=16,
        n_layer=3,
        n_head=4,
        n_inner=24,
        bos_token_id=None,
        eos_token_id=0,
    ),
    "gemma3_images": transformers.Gemma3Config(
        text_config=GEMMA_3,
        vision_config={
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        mm_tokens_per_image=4,
    ),
}


def make(name: str, seed: int) -> None:
    """Writes one checkpoint and its logits."""
    torch.manual_seed(seed)
    config = FAMILIES[name]
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()  # without dropout
    half = torch.float16 if name == "llama2" else torch.bfloat16
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(std=1.5 * parameter.shape[1] ** -0.5)
            else:  # scales leave their ones, biases their zeros
                parameter.add_(0.3 * torch.randn_like(parameter))
            parameter.copy_(parameter.to(half).float())
    tokens = np.random.default_rng(seed).integers(
        0, SIZES["vocab_size"], (len(LENGTHS), LENGTHS[0])
    )
    logits = {}
    with torch.no_grad():
        for row, length in enumerate(LENGTHS):
            ids = torch.from_numpy(tokens[row : row + 1, :length])
            logits[f"logits_{length}"] = model(ids).logits[0].numpy()
    folder = CHECKPOINTS / name
    model.to(half).save_pretrained(folder, max_shard_size="20KB" if name == "llama3" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    np.savez_compressed(folder / "logits.npz", tokens=tokens, **logits)


if __name__ == "__main__":
    for number, family in enumerate(FAMILIES):
        make(family, number)

"""The architecture that training and sampling are compared on, ours and Hugging Face's, by size."""

from typing import Any, NamedTuple

import numpy as np


class Size(NamedTuple):
    """Sizes of a model as Llama's, with as many heads of keys as of queries and tied embeddings."""

    layers: int
    width: int
    heads: int
    head_dim: int
    mlp: int
    vocabulary: int


# `small` is for a few cores; the two largest are for accelerators.
SIZES = {
    "toy": Size(2, 64, 4, 16, 128, 2048),
    "small": Size(6, 256, 8, 32, 1024, 8192),
    "440m": Size(24, 1024, 16, 64, 4096, 32768),
    "1.3b": Size(24, 2048, 16, 128, 5632, 32768),
}
SMALL = SIZES["small"]


def our_config(size: Size = SMALL, dtype: str = "float32", **settings: Any) -> Any:
    """The model's configuration; `settings` say how it is computed."""
    from gophercite.models.config import TransformerConfig

    return TransformerConfig(
        size.vocabulary,
        size.width,
        size.layers,
        size.heads,
        size.head_dim,
        d_ff=size.mlp,
        activation="silu",
        gated_mlp=True,
        position="rope",
        dtype=dtype,
        **settings,
    )


def training_batch(row: np.ndarray) -> dict[str, np.ndarray]:
    """A batch of our supervised learner: each row of [rows, length + 1] tokens is one sequence."""
    rows, length = row.shape[0], row.shape[1] - 1
    return {
        "tokens": row[:, :-1],
        "targets": row[:, 1:],
        "weights": np.ones((rows, length), np.float32),
        "positions": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "segments": np.ones((rows, length), np.int32),
    }


def hugging_face_model(size: Size = SMALL, attention: str = "sdpa", positions: int = 1024) -> Any:
    """The same of Hugging Face, in float32 with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        head_dim=size.head_dim,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        attn_implementation=attention,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    return transformers.LlamaForCausalLM(config).float()


def hugging_face_samples(
    model: Any, prompt: list[int], samples: int, tokens: int, seed: int, **options: Any
) -> int:
    """Draws samples with exactly so many tokens by `generate`; returns how many tokens there are.

    With a static cache, as its documentation advises for speed, unless `options` name another.
    """
    import torch

    torch.manual_seed(seed)
    shown = torch.tensor([prompt], device=model.device)
    with torch.inference_mode():
        made = model.generate(
            shown,
            attention_mask=torch.ones_like(shown),
            do_sample=True,
            top_k=0,
            num_return_sequences=samples,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=0,
            **{"cache_implementation": "static", **options},
        )
    return made[:, len(prompt) :].cpu().numel()

"""The one architecture that training and sampling are compared on, ours and Hugging Face's."""

from typing import Any

LAYERS, WIDTH, HEADS, HEAD_DIM, MLP, VOCAB = 6, 256, 8, 32, 1024, 8192


def our_config(**settings: Any) -> Any:
    """Six layers as in Llama, tied embeddings, float32; `settings` say how it is computed."""
    from gophercite.models.config import TransformerConfig

    return TransformerConfig(
        VOCAB,
        WIDTH,
        LAYERS,
        HEADS,
        HEAD_DIM,
        d_ff=MLP,
        activation="silu",
        gated_mlp=True,
        position="rope",
        dtype="float32",
        **settings,
    )


def hugging_face_model() -> Any:
    """The same of Hugging Face, in float32 with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    return transformers.LlamaForCausalLM(config).float()

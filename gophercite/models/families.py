"""Named architectures: Gopher's sizes as published, and blocks of open families."""

import dataclasses
from typing import Any

from gophercite.models.config import TransformerConfig

# Rae et al. 2021, table 1: layers, heads, key/value size, model width. With one relative-position
# projection per layer and tied embeddings of 32,000 pieces, the parameter counts match the names.
_GOPHER = {
    "44m": (8, 16, 32, 512),
    "117m": (12, 12, 64, 768),
    "417m": (12, 12, 128, 1536),
    "1.4b": (24, 16, 128, 2048),
    "7.1b": (32, 32, 128, 4096),
    "280b": (80, 128, 128, 16384),
}

GOPHER_SIZES = tuple(_GOPHER)


def gopher(size: str, **changes: Any) -> TransformerConfig:
    """A member of the Gopher family (Rae et al. 2021, table 1).

    Args:
      size: one of `GOPHER_SIZES`.
      **changes: other fields of `TransformerConfig`.

    Returns:
      The architecture.

    Raises:
      ValueError: the size is unknown.
    """
    if size not in _GOPHER:
        raise ValueError(
            f"there is no Gopher of size {size!r}; the sizes are {', '.join(GOPHER_SIZES)}"
        )
    layers, heads, head_dim, width = _GOPHER[size]
    config = TransformerConfig(
        vocab_size=32_000,
        d_model=width,
        num_layers=layers,
        num_heads=heads,
        head_dim=head_dim,
    )
    return dataclasses.replace(config, **changes)


def llama(
    vocab_size: int, d_model: int, num_layers: int, num_heads: int, d_ff: int, **changes: Any
) -> TransformerConfig:
    """A Llama-like architecture: rotary positions, gated SiLU MLP, separate unembedding.

    Args:
      vocab_size: rows of the embedding.
      d_model: width of the residual stream.
      num_layers: blocks.
      num_heads: number of query heads, of width `d_model / num_heads`.
      d_ff: width of the MLP.
      **changes: other fields of `TransformerConfig`.

    Returns:
      The architecture.

    Raises:
      ValueError: `d_model` is not a multiple of `num_heads`.
    """
    if d_model % num_heads:
        raise ValueError(f"llama: num_heads = {num_heads} must divide d_model = {d_model}")
    config = TransformerConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        head_dim=d_model // num_heads,
        d_ff=d_ff,
        activation="silu",
        gated_mlp=True,
        position="rope",
        norm_epsilon=1e-5,
        tied_embeddings=False,
    )
    return dataclasses.replace(config, **changes)


def gemma(
    vocab_size: int, d_model: int, num_layers: int, num_heads: int, d_ff: int, **changes: Any
) -> TransformerConfig:
    """A Gemma-like architecture: rotary positions, gated GELU MLP, tied and scaled embeddings.

    Args:
      vocab_size: rows of the embedding.
      d_model: width of the residual stream.
      num_layers: blocks.
      num_heads: number of query heads, of width 256.
      d_ff: width of the MLP.
      **changes: other fields of `TransformerConfig`.

    Returns:
      The architecture.
    """
    config = TransformerConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        head_dim=256,
        d_ff=d_ff,
        activation="gelu",
        gated_mlp=True,
        position="rope",
        scale_embeddings=True,
    )
    return dataclasses.replace(config, **changes)

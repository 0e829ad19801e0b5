"""The architecture of a decoder-only Transformer, as one frozen dataclass."""

import dataclasses
import math
from typing import Literal

from gophercite.models.config_checks import check_config, require

Activation = Literal["gelu", "gelu_exact", "silu", "relu"]
NormKind = Literal["rms", "layer"]
Position = Literal["rope", "transformer_xl", "learned", "t5"]
AttentionKernel = Literal["auto", "blocks", "cudnn", "splash"]


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Slower rotary frequencies for contexts longer than the first training's (Llama 3.1).

    A pair of channels that turns fewer than `low_frequency_factor` times in the original context
    turns `factor` times slower, one that turns more than `high_frequency_factor` times as before;
    between the two the change is linear in the number of turns.

    Attributes:
      factor: how much slower the slowest pairs turn.
      low_frequency_factor: turns in the original context up to which a pair is slowed in full.
      high_frequency_factor: turns from which a pair is left alone.
      original_length: tokens of the context before it was extended.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_length: int

    def __post_init__(self) -> None:
        """Refuses factors that are out of range, naming them.

        Raises:
          ValueError: a field is not over 0, or the factors are in the wrong order.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            fits = isinstance(value, int | float) and value > 0
            require(fits, f"rope_scaling.{field.name}", value, "a number over 0")
        require(
            self.high_frequency_factor > self.low_frequency_factor,
            "rope_scaling.high_frequency_factor",
            self.high_frequency_factor,
            f"over low_frequency_factor ({self.low_frequency_factor})",
        )


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """What a model is (architecture) and how it is computed (dtypes, blocks, rematerialisation).

    The defaults are the Gopher family's (Rae et al. 2021: RMSNorm, Transformer-XL relative
    positions, GELU MLP of four times the width); Llama- and Gemma-like models set
    `position="rope"`, `gated_mlp=True` and `num_kv_heads`, GPT-NeoX-like ones `norm="layer"`,
    `parallel_residual=True` and biases.

    Attributes:
      vocab_size: rows of the embedding.
      d_model: width of the residual stream.
      num_layers: Transformer blocks, frozen and trained together.
      num_heads: query heads.
      head_dim: width of a head; `num_heads * head_dim` may differ from `d_model`.
      num_kv_heads: key and value heads, `num_heads` when None (multi-head attention); a divisor
        of `num_heads` (grouped-query attention, Ainslie et al. 2023).
      d_ff: width of the MLP, `4 * d_model` when None.
      activation: the MLP's non-linearity; "gelu" is the tanh approximation, "gelu_exact" by the
        error function.
      gated_mlp: `activation(gate(x)) * up(x)` (Shazeer 2020) instead of `activation(up(x))`.
      position: rotary embeddings (Su et al. 2021), Transformer-XL's relative positions (Dai et al.
        2019, section 3.3), embeddings of positions, learned and added to the tokens' (GPT-2), or
        biases by distance, learned and added to the scores of all layers (T5).
      max_positions: learned positions that there are; None with the other kinds.
      distance_buckets: biases that there are a head; None with other kinds than T5's.
      max_distance: from which on all distances have the last bias; None likewise.
      context_length: tokens of the longest rows that a published model was made for, None if not
        known; nothing is computed by it, and exports say it.
      rope_theta: base of the rotary frequencies; one for all layers, or one a layer.
      rope_scaling: slower rotary frequencies in all layers, as Llama 3.1 has them.
      rope_interpolation: what rotary positions are divided by (Chen et al. 2023); one for all
        layers, or one a layer (Gemma 3).
      rotary_fraction: share of a head's channels that are rotated, from the first (GPT-NeoX).
      qkv_bias: queries, keys and values have biases (Qwen2).
      out_bias: attention's output has a bias.
      mlp_bias: the MLP's matrices have biases.
      query_key_norm: norm of each head's query and key, before the rotation (Qwen3).
      query_pre_attn_scalar: queries are divided by its root; `head_dim` when None (Gemma 2).
      attention_softcap: attention's scores are pressed into (-cap, cap) by tanh (Gemma 2).
      window: how many tokens back a query sees, itself included; None is all; one for all layers,
        or one a layer.
      norm: RMSNorm, or LayerNorm with a bias.
      norm_epsilon: added to the mean square, or the variance.
      zero_centered_norms: norms multiply by 1 + scale (Gemma). Kept as they are published, scales
        near 1 lose nothing in bfloat16.
      post_norms: norms of what attention and MLP add to the residual stream as well (Gemma 2).
      parallel_residual: attention and MLP read the same residual stream, and both are added to it
        at once (GPT-NeoX).
      tied_embeddings: logits by the embedding's transpose; otherwise by a matrix of their own.
      scale_embeddings: multiply embeddings by sqrt(d_model) (Gemma).
      scale_logits: divide logits by sqrt(d_model) (T5, where embeddings are tied).
      logit_softcap: logits are pressed into (-cap, cap) by tanh (Gemma 2).
      dtype: activations ("bfloat16" or "float32"); softmax, norms and losses are float32 always.
      param_dtype: parameters.
      remat_every: blocks a rematerialisation group; only a group's input is kept for the backward
        pass (GopherCite, D.1: every 3 blocks). 0 keeps all activations.
      scan_layers: one loop over the blocks, compiled once. Without, and with `remat_every` 0, they
        are compiled one after the other: on CPU a few per cent faster.
      attention_kernel: "blocks" is our own (any platform), "cudnn" and "splash" are the GPU's and
        TPU's fused ones (no positions of Transformer-XL or T5; cuDNN's no soft cap), "auto" takes
        the platform's where it applies, and a CPU's (`kernels`) where no gradients are needed.
      attention_block: query rows a block of our own attention.
      attention_remat: recompute a block's probabilities in the backward pass instead of keeping
        them.
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    head_dim: int
    num_kv_heads: int | None = None
    d_ff: int | None = None
    activation: Activation = "gelu"
    gated_mlp: bool = False
    position: Position = "transformer_xl"
    max_positions: int | None = None
    context_length: int | None = None
    distance_buckets: int | None = None
    max_distance: int | None = None
    rope_theta: float | tuple[float, ...] = 10_000.0
    rope_scaling: RopeScaling | None = None
    rope_interpolation: float | tuple[float, ...] = 1.0
    rotary_fraction: float = 1.0
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    query_key_norm: bool = False
    query_pre_attn_scalar: float | None = None
    attention_softcap: float | None = None
    window: int | tuple[int | None, ...] | None = None
    norm: NormKind = "rms"
    norm_epsilon: float = 1e-6
    zero_centered_norms: bool = False
    post_norms: bool = False
    parallel_residual: bool = False
    tied_embeddings: bool = True
    scale_embeddings: bool = False
    scale_logits: bool = False
    logit_softcap: float | None = None
    dtype: str = "bfloat16"
    param_dtype: str = "float32"
    remat_every: int = 0
    scan_layers: bool = True
    attention_kernel: AttentionKernel = "auto"
    attention_block: int = 512
    attention_remat: bool = True

    def __post_init__(self) -> None:
        """Refuses settings that no model can have, naming the field.

        Raises:
          ValueError: a field is out of range, or two fields contradict each other.
        """
        for name in ("rope_theta", "rope_interpolation", "window"):
            value = getattr(self, name)
            if isinstance(value, list):  # JSON and gin have lists; a frozen config is hashable
                object.__setattr__(self, name, tuple(value))
        check_config(self)

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def mlp_width(self) -> int:
        """Width of the MLP."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block."""
        heads, kv = self.num_heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.d_model * (2 * heads + 2 * kv)
        if self.position == "transformer_xl":
            attention += self.d_model * heads + 2 * heads
        mlp = self.d_model * self.mlp_width * (3 if self.gated_mlp else 2)
        return attention + mlp + self._layer_vectors

    @property
    def rotary_channels(self) -> int:
        """Channels of a head that are rotated, with rotary positions."""
        if self.rotary_fraction == 1:
            return self.head_dim
        return round(self.head_dim * self.rotary_fraction)

    @property
    def query_scale(self) -> float | None:
        """What queries are multiplied by before they meet keys; None for `head_dim ** -0.5`."""
        scalar = self.query_pre_attn_scalar
        return None if scalar is None else scalar**-0.5

    @property
    def _norm_vectors(self) -> int:
        """Vectors of a norm's parameters."""
        return 2 if self.norm == "layer" else 1

    @property
    def _layer_vectors(self) -> int:
        """Parameters of one block that multiply no matrix: norms and biases."""
        norms = (4 if self.post_norms else 2) * self.d_model
        if self.query_key_norm:
            norms += 2 * self.head_dim
        vectors = norms * self._norm_vectors
        if self.qkv_bias:
            vectors += (self.num_heads + 2 * self.kv_heads) * self.head_dim
        if self.out_bias:
            vectors += self.d_model
        if self.mlp_bias:
            vectors += self.mlp_width * (2 if self.gated_mlp else 1) + self.d_model
        return vectors

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        embeddings = self.vocab_size * self.d_model * (1 if self.tied_embeddings else 2)
        return embeddings + self.num_layers * self.layer_parameters + self._other_vectors

    @property
    def _other_vectors(self) -> int:
        """Parameters outside of blocks that multiply no matrix: final norm, and of positions."""
        vectors = (self._norm_vectors + (self.max_positions or 0)) * self.d_model
        return vectors + self.num_heads * (self.distance_buckets or 0)

    def training_flops(self, batch: int, length: int) -> int:
        """Floating-point operations that a training step must do, nothing recomputed.

        Matrix products only: two operations a multiply-add, three products a weight (forward, and
        backward for activations and weights); attention counts the causal half alone. Relative
        positions add a third product to attention's two, and their projection, done once a batch.

        Args:
          batch: sequences a step.
          length: tokens a sequence.

        Returns:
          Operations a step.
        """
        heads = self.num_heads * self.head_dim
        weights = self.parameters - (0 if self.tied_embeddings else self.vocab_size * self.d_model)
        weights -= self.num_layers * self._layer_vectors + self._other_vectors
        products = 2
        projection = 0
        if self.position == "transformer_xl":
            products = 3
            weights -= self.num_layers * (self.d_model * heads + 2 * heads)
            projection = 6 * self.num_layers * length * self.d_model * heads
        pairs = math.comb(length + 1, 2)
        attention = 3 * products * 2 * self.num_layers * batch * pairs * heads
        return 6 * weights * batch * length + attention + projection

"""The architecture of a decoder-only Transformer, as one frozen dataclass."""

import dataclasses
import math
from typing import Literal

from gophercite.models.config_checks import check_config, is_positive, require

Activation = Literal["gelu", "gelu_exact", "silu", "relu"]
NormKind = Literal["rms", "layer"]
Position = Literal["rope", "transformer_xl", "learned", "t5"]
AttentionKernel = Literal["auto", "blocks", "cudnn", "splash"]


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Slower rotary frequencies for contexts longer than the original training's (Llama 3.1).

    A pair of channels that turns fewer than `low_frequency_factor` times in the original context
    turns `factor` times slower; one that turns more than `high_frequency_factor` times is
    unchanged. Between the two, the change is linear in the number of turns.

    Attributes:
      factor: how much slower the slowest pairs turn.
      low_frequency_factor: number of turns in the original context below which a pair is fully
        slowed.
      high_frequency_factor: number of turns above which a pair is unchanged.
      original_length: number of tokens in the original context.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_length: int

    def __post_init__(self) -> None:
        """Checks the factors.

        Raises:
          ValueError: a field (named in the message) is not a finite number above 0, or the factors
            are in the wrong order.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            right = "a finite number above 0"
            require(is_positive(value), f"rope_scaling.{field.name}", value, right)
        require(
            self.high_frequency_factor > self.low_frequency_factor,
            "rope_scaling.high_frequency_factor",
            self.high_frequency_factor,
            f"above low_frequency_factor ({self.low_frequency_factor})",
        )


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """A model's architecture, and how to compute it (dtypes, blocks, rematerialisation).

    The defaults are the Gopher family's (Rae et al. 2021: RMSNorm, Transformer-XL relative
    positions, GELU MLP of four times the width); Llama- and Gemma-like models set
    `position="rope"`, `gated_mlp=True` and `num_kv_heads`, GPT-NeoX-like ones `norm="layer"`,
    `parallel_residual=True` and biases.

    Attributes:
      vocab_size: number of rows in the embedding.
      d_model: width of the residual stream.
      num_layers: number of Transformer blocks, frozen and trained together.
      num_heads: number of query heads.
      head_dim: width of a head; `num_heads * head_dim` may differ from `d_model`.
      num_kv_heads: number of key and value heads, `num_heads` when None (multi-head attention); a
        divisor of `num_heads` (grouped-query attention, Ainslie et al. 2023).
      d_ff: width of the MLP, `4 * d_model` when None.
      activation: the MLP's non-linearity; "gelu" is the tanh approximation, "gelu_exact" uses the
        error function.
      gated_mlp: `activation(gate(x)) * up(x)` (Shazeer 2020) instead of `activation(up(x))`.
      position: the kind of positions: rotary embeddings (Su et al. 2021), Transformer-XL's relative
        positions (Dai et al. 2019, section 3.3), learned position embeddings added to the tokens'
        embeddings (GPT-2), or learned biases by distance added to the scores of all layers (T5).
      max_positions: number of learned positions; None for the other kinds.
      distance_buckets: number of biases per head; None for kinds other than T5's.
      max_distance: distance from which on all distances share the last bias, at most 2**20; None
        for kinds other than T5's.
      context_length: maximum number of tokens that a published model was trained for, None if not
        known; computations ignore it, exports include it.
      rope_theta: base of the rotary frequencies; one for all layers, or one per layer.
      rope_scaling: slower rotary frequencies in all layers, as in Llama 3.1.
      rope_interpolation: divisor of rotary positions (Chen et al. 2023); one for all layers, or one
        per layer (Gemma 3).
      rotary_fraction: share of a head's channels that are rotated, from the first (GPT-NeoX).
      qkv_bias: queries, keys and values have biases (Qwen2).
      out_bias: attention's output has a bias.
      mlp_bias: the MLP's matrices have biases.
      query_key_norm: norm of each head's query and key, before the rotation (Qwen3).
      query_pre_attn_scalar: queries are divided by its square root; `head_dim` when None (Gemma 2).
      attention_softcap: attention scores are squashed into (-cap, cap) by tanh (Gemma 2).
      window: number of tokens back that a query attends to, including itself; None for all; one for
        all layers, or one per layer.
      norm: RMSNorm, or LayerNorm with a bias.
      norm_epsilon: added to the mean square, or the variance.
      zero_centered_norms: norms multiply by 1 + scale (Gemma). Storing `scale` as published keeps
        gains near 1 precise in bfloat16.
      post_norms: additional norms on the outputs of attention and MLP (Gemma 2).
      parallel_residual: attention and MLP read the same residual stream, and both outputs are added
        to it (GPT-NeoX).
      tied_embeddings: compute logits with the embedding's transpose; otherwise with a separate
        matrix.
      scale_embeddings: multiply embeddings by sqrt(d_model) (Gemma).
      scale_logits: divide logits by sqrt(d_model) (T5, where embeddings are tied).
      logit_softcap: logits are squashed into (-cap, cap) by tanh (Gemma 2).
      dtype: dtype of activations ("bfloat16" or "float32"); softmax, norms and losses are always
        float32.
      param_dtype: dtype of parameters.
      remat_every: number of blocks per rematerialisation group; only a group's input is kept for
        the backward pass (GopherCite, D.1: every 3 blocks). 0 is no groups.
      scan_layers: compile the blocks as one loop. If False, and `remat_every` is 0 where a model is
        trained, each block is compiled separately. That takes longer to compile, but on a GPU a
        training step takes 0.8 to 0.85 of the time, because activations are not copied into the
        loop's arrays and back; on CPU it is a few per cent faster. None is a loop, except for the
        training of up to 48 blocks on a GPU.
      attention_kernel: "blocks" is our own (any platform); "cudnn" and "splash" are the GPU's and
        TPU's fused kernels (without Transformer-XL's or T5's positions, and with one window for all
        layers; cuDNN in bfloat16, without soft cap; splash for rows of a multiple of 128 tokens);
        "auto" takes the platform's kernel where it applies, and the CPU kernel (`kernels`) where no
        gradients are needed.
      attention_block: number of query rows per block of our own attention.
      attention_remat: recompute a block's probabilities in the backward pass instead of keeping
        them.
      elementwise_remat: where `remat_every` is 0, keep only products of matrices and the output of
        attention for the backward pass, and recompute what lies between them: norms, activation
        functions, rotations. Activations take half the memory or less, and a step is faster, as it
        moves less.
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
    scan_layers: bool | None = None
    attention_kernel: AttentionKernel = "auto"
    attention_block: int = 512
    attention_remat: bool = True
    elementwise_remat: bool = True

    def __post_init__(self) -> None:
        """Checks that the settings are valid and consistent.

        Raises:
          ValueError: a field (named in the message) is out of range, or two fields contradict each
            other.
        """
        for name in ("rope_theta", "rope_interpolation", "window"):
            value = getattr(self, name)
            if isinstance(value, list):  # JSON and gin have lists; a frozen config must be hashable
                object.__setattr__(self, name, tuple(value))
        check_config(self)

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def mlp_width(self) -> int:
        """Width of the MLP."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def loops_over_layers(self) -> bool:
        """Whether samplers compile the blocks as one loop."""
        return self.scan_layers is not False

    @property
    def layer_parameters(self) -> int:
        """Number of parameters in one block."""
        heads, kv = self.num_heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.d_model * (2 * heads + 2 * kv)
        if self.position == "transformer_xl":
            attention += self.d_model * heads + 2 * heads
        mlp = self.d_model * self.mlp_width * (3 if self.gated_mlp else 2)
        return attention + mlp + self._layer_vectors

    @property
    def rotary_channels(self) -> int:
        """Number of channels per head that rotary positions rotate."""
        if self.rotary_fraction == 1:
            return self.head_dim
        return round(self.head_dim * self.rotary_fraction)

    @property
    def query_scale(self) -> float | None:
        """Factor on queries before the product with keys; None for `head_dim ** -0.5`."""
        scalar = self.query_pre_attn_scalar
        return None if scalar is None else scalar**-0.5

    @property
    def _norm_vectors(self) -> int:
        """Number of vectors among a norm's parameters."""
        return 2 if self.norm == "layer" else 1

    @property
    def _layer_vectors(self) -> int:
        """Number of a block's parameters outside matrices: norms and biases."""
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
        """Number of parameters in the model."""
        embeddings = self.vocab_size * self.d_model * (1 if self.tied_embeddings else 2)
        return embeddings + self.num_layers * self.layer_parameters + self._other_vectors

    @property
    def _other_vectors(self) -> int:
        """Number of parameters outside blocks and matrices: final norm and positions."""
        vectors = (self._norm_vectors + (self.max_positions or 0)) * self.d_model
        return vectors + self.num_heads * (self.distance_buckets or 0)

    def training_flops(self, batch: int, length: int) -> int:
        """Floating-point operations of a training step, without recomputation.

        Counts only matrix products: two operations per multiply-add, three products per weight
        (forward, and backward for activations and weights); attention counts only pairs of tokens
        of which one sees the other. Relative positions add a third product to attention's two, and
        their projection once per batch.

        Args:
          batch: number of sequences per step.
          length: number of tokens per sequence.

        Returns:
          Operations per step.
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
        windows = (
            self.window if isinstance(self.window, tuple) else (self.window,) * self.num_layers
        )
        pairs = sum(_pairs(length, window) for window in windows)
        attention = 3 * products * 2 * batch * pairs * heads
        return 6 * weights * batch * length + attention + projection


def _pairs(length: int, window: int | None) -> int:
    """Number of pairs of a token and one that it attends to, itself included."""
    full = length if window is None else min(window, length)
    return math.comb(full + 1, 2) + (length - full) * full

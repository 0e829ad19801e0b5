"""The architecture of a decoder-only Transformer, as one frozen dataclass."""

import dataclasses
import math
from typing import Literal, get_args

Activation = Literal["gelu", "silu"]
Position = Literal["rope", "transformer_xl"]
AttentionKernel = Literal["auto", "blocks", "cudnn", "splash"]

_SIZES = ("vocab_size", "d_model", "num_layers", "num_heads", "head_dim", "attention_block")
_OPTIONAL_SIZES = ("num_kv_heads", "d_ff")
_CHOICES = {
    "activation": get_args(Activation),
    "position": get_args(Position),
    "attention_kernel": get_args(AttentionKernel),
    "dtype": ("bfloat16", "float32"),
    "param_dtype": ("bfloat16", "float32"),
}


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
            _require(fits, f"rope_scaling.{field.name}", value, "a number over 0")
        _require(
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
    `position="rope"`, `gated_mlp=True` and `num_kv_heads`.

    Attributes:
      vocab_size: rows of the embedding.
      d_model: width of the residual stream.
      num_layers: Transformer blocks, frozen and trained together.
      num_heads: query heads.
      head_dim: width of a head; `num_heads * head_dim` may differ from `d_model`.
      num_kv_heads: key and value heads, `num_heads` when None (multi-head attention); a divisor
        of `num_heads` (grouped-query attention, Ainslie et al. 2023).
      d_ff: width of the MLP, `4 * d_model` when None.
      activation: the MLP's non-linearity.
      gated_mlp: `activation(gate(x)) * up(x)` (Shazeer 2020) instead of `activation(up(x))`.
      position: rotary embeddings (Su et al. 2021) or Transformer-XL's relative positions (Dai et
        al. 2019, section 3.3).
      rope_theta: base of the rotary frequencies; one for all layers, or one a layer.
      rope_scaling: slower rotary frequencies in all layers, as Llama 3.1 has them.
      qkv_bias: queries, keys and values have biases (Qwen2).
      query_key_norm: RMSNorm of each head's query and key, before the rotation (Qwen3).
      window: how many tokens back a query sees, itself included; None is all; one for all layers,
        or one a layer.
      norm_epsilon: added to the mean square in RMSNorm.
      tied_embeddings: logits by the embedding's transpose; otherwise by a matrix of their own.
      scale_embeddings: multiply embeddings by sqrt(d_model) (Gemma).
      dtype: activations ("bfloat16" or "float32"); softmax, norms and losses are float32 always.
      param_dtype: parameters.
      remat_every: blocks a rematerialisation group; only a group's input is kept for the backward
        pass (GopherCite, D.1: every 3 blocks). 0 keeps all activations.
      scan_layers: one loop over the blocks, compiled once. Without, and with `remat_every` 0, they
        are compiled one after the other: on CPU a few per cent faster.
      attention_kernel: "blocks" is our own (any platform), "cudnn" and "splash" are the GPU's and
        TPU's fused ones (rotary positions only), "auto" takes the platform's where it applies.
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
    rope_theta: float | tuple[float, ...] = 10_000.0
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    query_key_norm: bool = False
    window: int | tuple[int | None, ...] | None = None
    norm_epsilon: float = 1e-6
    tied_embeddings: bool = True
    scale_embeddings: bool = False
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
        for name in (*_SIZES, *_OPTIONAL_SIZES):
            value = getattr(self, name)
            fits = type(value) is int and value >= 1
            missing = value is None and name in _OPTIONAL_SIZES
            _require(fits or missing, name, value, "a whole number, at least 1")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            _require(value in choices, name, value, f"one of {', '.join(map(repr, choices))}")
        remat_every, epsilon = self.remat_every, self.norm_epsilon
        fits = type(remat_every) is int and remat_every >= 0
        _require(fits, "remat_every", remat_every, "a whole number, 0 for none")
        fits = isinstance(epsilon, int | float) and epsilon > 0
        _require(fits, "norm_epsilon", epsilon, "a number over 0")
        _require(
            self.num_heads % self.kv_heads == 0,
            "num_kv_heads",
            self.num_kv_heads,
            f"a divisor of num_heads ({self.num_heads})",
        )
        if self.position == "rope":
            _require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "even for rotary positions")
        for name in ("rope_theta", "window"):
            value = getattr(self, name)
            if isinstance(value, list):  # JSON and gin have lists; a frozen config is hashable
                object.__setattr__(self, name, tuple(value))
            if isinstance(value, list | tuple):
                _require(
                    len(value) == self.num_layers,
                    name,
                    value,
                    f"one value for all layers, or {self.num_layers} (num_layers)",
                )
        for theta in self.rope_theta if isinstance(self.rope_theta, tuple) else (self.rope_theta,):
            fits = isinstance(theta, int | float) and theta > 0
            _require(fits, "rope_theta", theta, "a number over 0")
        for window in self.window if isinstance(self.window, tuple) else (self.window,):
            fits = window is None or (type(window) is int and window >= 1)
            _require(
                fits, "window", window, "a whole number of tokens, at least 1, or None for all"
            )
        if self.position == "transformer_xl":
            _require(
                self.rope_scaling is None,
                "rope_scaling",
                self.rope_scaling,
                "None: Transformer-XL positions do not rotate",
            )
            _require(
                self.attention_kernel in ("auto", "blocks"),
                "attention_kernel",
                self.attention_kernel,
                "'auto' or 'blocks': no fused kernel knows Transformer-XL positions",
            )

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
    def _layer_vectors(self) -> int:
        """Parameters of one block that multiply no matrix: scales of norms, biases of heads."""
        vectors = 2 * self.d_model
        if self.qkv_bias:
            vectors += (self.num_heads + 2 * self.kv_heads) * self.head_dim
        if self.query_key_norm:
            vectors += 2 * self.head_dim
        return vectors

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        embeddings = self.vocab_size * self.d_model * (1 if self.tied_embeddings else 2)
        return embeddings + self.num_layers * self.layer_parameters + self.d_model

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
        weights -= self.num_layers * self._layer_vectors + self.d_model
        products = 2
        projection = 0
        if self.position == "transformer_xl":
            products = 3
            weights -= self.num_layers * (self.d_model * heads + 2 * heads)
            projection = 6 * self.num_layers * length * self.d_model * heads
        pairs = math.comb(length + 1, 2)
        attention = 3 * products * 2 * self.num_layers * batch * pairs * heads
        return 6 * weights * batch * length + attention + projection


def _require(holds: bool, field: str, value: object, right: str) -> None:
    if not holds:
        raise ValueError(f"TransformerConfig.{field} = {value!r}: must be {right}")

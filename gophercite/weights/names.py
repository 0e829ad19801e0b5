"""The names of our parameters in each family's checkpoints, for import and export."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gophercite.models.parameters import TRAINED

LAYERS = f"{TRAINED}/"


class Fused(NamedTuple):
    """A parameter of ours that shares a tensor with others, concatenated along the outputs.

    Attributes:
      part: index of the parameter among them, from 0.
      parts: number of parameters, all of the same width.
      by_head: True if they alternate head by head (GPT-NeoX), False if each is contiguous (GPT-2).
    """

    part: int
    parts: int
    by_head: bool

    def columns(self, width: int, heads: int) -> list[slice]:
        """The ranges of the tensor's outputs that belong to this parameter, in order.

        Args:
          width: the parameter's own number of outputs.
          heads: number of heads that the outputs are divided into.
        """
        turns = heads if self.by_head else 1
        step = width // turns
        starts = ((turn * self.parts + self.part) * step for turn in range(turns))
        return [slice(start, start + step) for start in starts]


class Place(NamedTuple):
    """The place of one of our parameters in a checkpoint.

    Attributes:
      tensor: the tensor's name, with `{}` for the layer's number.
      transposed: whether the tensor is [out, in], as in PyTorch's linear layers; our matrices are
        [in, out].
      fused: which part of the tensor it is; None for the entire tensor.
    """

    tensor: str
    transposed: bool = False
    fused: Fused | None = None

    def tensor_shape(self, own: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape, from our parameter's shape in one layer."""
        *inputs, outputs = own
        shape = (*inputs, outputs * (self.fused.parts if self.fused else 1))
        return shape[::-1] if self.transposed else shape


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """The places of our parameters in a family's checkpoints.

    Attributes:
      places: places by our parameters' names; those in `LAYERS` have a tensor for each layer.
      prefix: prefix of the tensors below the head; files that were saved without a head lack it.
      derived: suffixes of tensors that follow from the architecture and that older files contain.
      nests: for larger models that contain this one: what replaces the prefix in their files, and
        what precedes the head.
      others: prefixes of the tensors of that model's other parts, which are not imported.
    """

    places: Mapping[str, Place]
    prefix: str
    derived: tuple[str, ...] = ()
    nests: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()

    def of_files(self, tensors: Collection[str]) -> "TensorNames":
        """The places with a file's actual names: in a larger model, with the prefix, or without."""
        for body, head in self.nests:
            if any(tensor.startswith(body) for tensor in tensors):
                return self._renamed(body, head)
        if any(tensor.startswith(self.prefix) for tensor in tensors):
            return self
        return self._renamed("", "")

    def _renamed(self, body: str, head: str) -> "TensorNames":
        """The places with another prefix, and with `head` before those that have no prefix."""

        def rename(tensor: str) -> str:
            below = tensor.removeprefix(self.prefix)
            return head + tensor if below == tensor else body + below

        places = {
            ours: place._replace(tensor=rename(place.tensor)) for ours, place in self.places.items()
        }
        return dataclasses.replace(self, places=places)


def _linear(ours: str, theirs: str, bias: bool = False) -> dict[str, Place]:
    """A linear layer's matrix, and its bias if the family may have one."""
    places = {ours: Place(f"{theirs}.weight", transposed=True)}
    return places | {f"{ours}_bias": Place(f"{theirs}.bias")} if bias else places


def _with_bias(ours: str, theirs: str) -> dict[str, Place]:
    """A norm's scale, or an untransposed matrix, with its bias."""
    return {ours: Place(f"{theirs}.weight"), f"{ours}_bias": Place(f"{theirs}.bias")}


def _query_key_value(theirs: str, transposed: bool, by_head: bool) -> dict[str, Place]:
    """Matrices and biases of queries, keys and values, with one tensor for the three of each."""
    places = {}
    for part, ours in enumerate(("query", "key", "value")):
        fused = Fused(part, 3, by_head)
        places[ours] = Place(f"{theirs}.weight", transposed, fused)
        places[f"{ours}_bias"] = Place(f"{theirs}.bias", fused=fused)
    return places


def _layers(prefix: str, places: Mapping[str, Place]) -> dict[str, Place]:
    """The places of a layer's parameters under their names in the entire model."""
    return {
        LAYERS + ours: place._replace(tensor=f"{prefix}.{{}}.{place.tensor}")
        for ours, place in places.items()
    }


_LLAMA = TensorNames(
    {
        "embed/embedding": Place("model.embed_tokens.weight"),
        "final_norm/scale": Place("model.norm.weight"),
        **_linear("unembed/kernel", "lm_head"),
        **_layers(
            "model.layers",
            {
                "attention_norm": Place("input_layernorm.weight"),
                **_linear("query", "self_attn.q_proj", bias=True),
                **_linear("key", "self_attn.k_proj", bias=True),
                **_linear("value", "self_attn.v_proj", bias=True),
                **_linear("out", "self_attn.o_proj"),
                "query_norm": Place("self_attn.q_norm.weight"),
                "key_norm": Place("self_attn.k_norm.weight"),
                "mlp_norm": Place("post_attention_layernorm.weight"),
                **_linear("gate", "mlp.gate_proj"),
                **_linear("up", "mlp.up_proj"),
                **_linear("down", "mlp.down_proj"),
            },
        ),
    },
    prefix="model.",
    derived=("rotary_emb.inv_freq",),
)

# Norms before and after both halves of a block; Llama uses the second one's name for another norm.
_GEMMA = dataclasses.replace(
    _LLAMA,
    places={
        **_LLAMA.places,
        **_layers(
            "model.layers",
            {
                "attention_post_norm": Place("post_attention_layernorm.weight"),
                "mlp_norm": Place("pre_feedforward_layernorm.weight"),
                "mlp_post_norm": Place("post_feedforward_layernorm.weight"),
            },
        ),
    },
)

# Multimodal Gemma 3: with the published names and with the library's present names.
_GEMMA_WITH_IMAGES = dataclasses.replace(
    _GEMMA,
    nests=(("language_model.model.", "language_model."), ("model.language_model.", "")),
    others=tuple(
        f"{before}{part}."
        for before in ("", "model.")
        for part in ("vision_tower", "multi_modal_projector")
    ),
)

_GPT_NEOX = TensorNames(
    {
        "embed/embedding": Place("gpt_neox.embed_in.weight"),
        "final_norm/scale": Place("gpt_neox.final_layer_norm.weight"),
        "final_norm/bias": Place("gpt_neox.final_layer_norm.bias"),
        **_linear("unembed/kernel", "embed_out"),
        **_layers(
            "gpt_neox.layers",
            {
                **_with_bias("attention_norm", "input_layernorm"),
                **_query_key_value("attention.query_key_value", transposed=True, by_head=True),
                **_linear("out", "attention.dense", bias=True),
                **_with_bias("mlp_norm", "post_attention_layernorm"),
                **_linear("up", "mlp.dense_h_to_4h", bias=True),
                **_linear("down", "mlp.dense_4h_to_h", bias=True),
            },
        ),
    },
    prefix="gpt_neox.",
    derived=("rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"),
)

_GPT2 = TensorNames(
    {
        "embed/embedding": Place("transformer.wte.weight"),
        "embed/positions": Place("transformer.wpe.weight"),
        "final_norm/scale": Place("transformer.ln_f.weight"),
        "final_norm/bias": Place("transformer.ln_f.bias"),
        **_linear("unembed/kernel", "lm_head"),
        **_layers(
            "transformer.h",
            {  # its linear layers are [in, out], like ours
                **_with_bias("attention_norm", "ln_1"),
                **_query_key_value("attn.c_attn", transposed=False, by_head=False),
                **_with_bias("out", "attn.c_proj"),
                **_with_bias("mlp_norm", "ln_2"),
                **_with_bias("up", "mlp.c_fc"),
                **_with_bias("down", "mlp.c_proj"),
            },
        ),
    },
    prefix="transformer.",
    derived=(".attn.bias", ".attn.masked_bias"),
)

# llama.cpp's names, the same for every family; a model uses those of the parameters that it has.
GGUF_NAMES = TensorNames(
    {
        "embed/embedding": Place("token_embd.weight"),
        "final_norm/scale": Place("output_norm.weight"),
        **_linear("unembed/kernel", "output"),
        **_layers(
            "blk",
            {
                "attention_norm": Place("attn_norm.weight"),
                **_linear("query", "attn_q", bias=True),
                **_linear("key", "attn_k", bias=True),
                **_linear("value", "attn_v", bias=True),
                **_linear("out", "attn_output"),
                "query_norm": Place("attn_q_norm.weight"),
                "key_norm": Place("attn_k_norm.weight"),
                "attention_post_norm": Place("post_attention_norm.weight"),
                "mlp_norm": Place("ffn_norm.weight"),
                **_linear("gate", "ffn_gate"),
                **_linear("up", "ffn_up"),
                **_linear("down", "ffn_down"),
                "mlp_post_norm": Place("post_ffw_norm.weight"),
            },
        ),
    },
    prefix="blk.",
    derived=("rope_freqs.weight",),
)

NAMES: dict[str, TensorNames] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "gemma3": _GEMMA_WITH_IMAGES,
    "gpt_neox": _GPT_NEOX,
    "gpt2": _GPT2,
}
"""By the `model_type` of `config.json`; a model has those of the parameters that it has."""

"""Fields with which other families, or other versions of a library, compute something else.

`transformers` makes every field of a `config.json` an attribute, whether the family has it or not,
and some of its code reads an attribute wherever it exists. So if a file sets a field that its
family does not have, it may mean another model than the one we would compute.
"""

from collections.abc import Collection
from typing import Any

from gophercite.storage.json_fields import JsonFields, describe

# Neutral values by name; null is always neutral.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # which tokens are attended to
    "sliding_window": (),
    "sliding_window_pattern": (),
    "attention_chunk_size": (),
    "alibi": (False,),
    # positions
    "rope_parameters": ({},),
    "rope_scaling": ({},),
    "rope_local_base_freq": (),
    "rotary_pct": (),
    "rotary_emb_base": (),
    "partial_rotary_factor": (1,),
    "rope_interleaved": (False,),
    "no_rope_layers": ([],),
    # scores, logits and the residual stream
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "query_pre_attn_scalar": (),
    "attention_multiplier": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "scale_embedding": (False,),
    "clip_qkv": (),
    "scale_attn_by_inverse_layer_idx": (False,),
    "use_parallel_residual": (),
    # layers
    "mlp_bias": (False,),
    "use_qk_norm": (False,),
    "qk_layernorm": (False,),
    "num_local_experts": (),
    "num_experts": (),
    "per_layer_config": ({},),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    # the checkpoint's own code
    "auto_map": ({},),
}


def refuse_foreign(fields: JsonFields, read: Collection[str]) -> None:
    """Refuses fields that a family does not have, unless their value is neutral.

    Args:
      fields: the fields of `config.json`.
      read: names of the fields that the family has.

    Raises:
      ValueError: there is such a field; the message names it.
    """
    for name in sorted(_NEUTRAL.keys() - set(read)):
        value = fields.values.get(name)
        if value is not None and not any(_same(value, neutral) for neutral in _NEUTRAL[name]):
            raise fields.error(
                name,
                f"got {describe(value)}: models of this type have no such setting, and programs "
                "that go by it compute something else; take it out if it says nothing",
            )


def _same(value: object, neutral: object) -> bool:
    """Whether two JSON values are equal, without Python's `True == 1`."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)

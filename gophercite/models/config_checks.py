"""Checks an architecture's settings; errors name the field."""

import math
import typing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gophercite.models.config import TransformerConfig

_SIZES = ("vocab_size", "d_model", "num_layers", "num_heads", "head_dim", "attention_block")
_OPTIONAL_SIZES = (
    *("num_kv_heads", "d_ff", "max_positions", "context_length"),
    *("distance_buckets", "max_distance"),
)
# Fields that one kind of positions requires and no other has, with descriptions.
_OF_POSITIONS = {
    "max_positions": ("learned", "the number of learned positions"),
    "distance_buckets": ("t5", "the number of biases per head"),
    "max_distance": ("t5", "the distance from which on all keys have the last bias"),
}
_POSITIVE = ("norm_epsilon", "rotary_fraction")
_OPTIONAL_POSITIVE = ("query_pre_attn_scalar", "attention_softcap", "logit_softcap")
_BY_LAYER = ("rope_theta", "rope_interpolation", "window")
_CHOICES = ("activation", "norm", "position", "attention_kernel")
_DTYPES = ("bfloat16", "float32")
_TOO_LARGE = 2**31  # positions and shapes are 32-bit integers
_MOST_LAYERS = 1000  # a larger claim would only fill the memory
_LARGEST_DISTANCE = 2**20  # likewise: there is a bias for each distance up to the largest
_LONGEST = 80  # characters of a wrong value in a message
_EVEN_SHARE = "1, or a fraction of head_dim that gives an even number of channels"


def require(holds: bool, field: str, value: object, right: str) -> None:
    """Raises a ValueError that names the field and a correct value, unless `holds`."""
    if not holds:
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
        raise ValueError(f"TransformerConfig.{field} = {shown}: must be {right}")


def check_config(config: "TransformerConfig") -> None:
    """Checks that settings are valid and consistent.

    Args:
      config: the settings, with tuples instead of lists.

    Raises:
      ValueError: a field (named in the message) is out of range, or two fields contradict each
        other.
    """
    _check_sizes(config)
    _check_choices(config)
    _check_by_layer(config)
    _check_positions(config)
    _check_kernel(config)


def is_positive(value: object) -> bool:
    """Whether a value is a finite number above 0; whole numbers beyond all floats are not."""
    try:
        return isinstance(value, int | float) and value > 0 and math.isfinite(value)
    except OverflowError:
        return False


def _is_size(value: object) -> bool:
    return type(value) is int and 1 <= value < _TOO_LARGE


def _check_sizes(config: "TransformerConfig") -> None:
    for name in (*_SIZES, *_OPTIONAL_SIZES):
        value = getattr(config, name)
        missing = value is None and name in _OPTIONAL_SIZES
        right = f"a whole number, at least 1 and below {_TOO_LARGE}"
        require(_is_size(value) or missing, name, value, right)
    layers = config.num_layers
    require(layers <= _MOST_LAYERS, "num_layers", layers, f"at most {_MOST_LAYERS}")
    remat_every = config.remat_every
    fits = type(remat_every) is int and remat_every >= 0
    require(fits, "remat_every", remat_every, "a whole number, 0 for none")
    for name in (*_POSITIVE, *_OPTIONAL_POSITIVE):
        value = getattr(config, name)
        missing = value is None and name in _OPTIONAL_POSITIVE
        require(is_positive(value) or missing, name, value, "a finite number above 0")
    require(
        config.num_heads % config.kv_heads == 0,
        "num_kv_heads",
        config.num_kv_heads,
        f"a divisor of num_heads ({config.num_heads})",
    )


def _check_choices(config: "TransformerConfig") -> None:
    hints = typing.get_type_hints(type(config))
    choices = {name: typing.get_args(hints[name]) for name in _CHOICES}
    for name, known in (choices | {"dtype": _DTYPES, "param_dtype": _DTYPES}).items():
        value = getattr(config, name)
        require(value in known, name, value, f"one of {', '.join(map(repr, known))}")


def _check_by_layer(config: "TransformerConfig") -> None:
    for name in _BY_LAYER:
        value = getattr(config, name)
        if isinstance(value, tuple):
            require(
                len(value) == config.num_layers,
                name,
                value,
                f"one value for all layers, or {config.num_layers} (num_layers)",
            )
        for one in value if isinstance(value, tuple) else (value,):
            if name == "window":
                right = f"a whole number of tokens from 1 to {_TOO_LARGE - 1}, or None for all"
                require(one is None or _is_size(one), name, one, right)
            else:
                require(is_positive(one), name, one, "a finite number above 0")


def _check_positions(config: "TransformerConfig") -> None:
    if config.position == "rope" and config.rotary_fraction == 1:
        right = "even for rotary positions"
        require(config.head_dim % 2 == 0, "head_dim", config.head_dim, right)
    elif config.position == "rope":
        require(_is_even_share(config), "rotary_fraction", config.rotary_fraction, _EVEN_SHARE)
    else:
        neutral = {"rope_scaling": None, "rope_interpolation": 1.0, "rotary_fraction": 1.0}
        for name, unset in neutral.items():
            value = getattr(config, name)
            right = f"{unset}: {config.position!r} positions do not rotate"
            require(value == unset, name, value, right)
    for name, (kind, meaning) in _OF_POSITIONS.items():
        value, needed = getattr(config, name), config.position == kind
        right = meaning if needed else f"None: only {kind!r} positions use it"
        require((value is not None) == needed, name, value, right)
    buckets, farthest = config.distance_buckets, config.max_distance
    if buckets is not None and farthest is not None:
        require(buckets >= 2, "distance_buckets", buckets, "at least 2")
        right = f"above half of distance_buckets ({buckets})"
        require(farthest > buckets // 2, "max_distance", farthest, right)
        right = f"at most {_LARGEST_DISTANCE}"
        require(farthest <= _LARGEST_DISTANCE, "max_distance", farthest, right)


def _is_even_share(config: "TransformerConfig") -> bool:
    if not (config.rotary_fraction < 1 and config.head_dim < 2**53):  # where floats are exact
        return False
    channels = config.head_dim * config.rotary_fraction
    return channels >= 2 and channels % 2 == 0


def _check_kernel(config: "TransformerConfig") -> None:
    kernel = config.attention_kernel
    if config.position in ("transformer_xl", "t5"):
        right = f"'auto' or 'blocks': no fused kernel knows {config.position!r} positions"
        require(kernel in ("auto", "blocks"), "attention_kernel", kernel, right)
    if config.attention_softcap is not None:
        right = "another one: cuDNN knows no soft cap (attention_softcap)"
        require(kernel != "cudnn", "attention_kernel", kernel, right)
    if isinstance(config.window, tuple):  # layers share a program, in which each reads its own
        right = "'auto' or 'blocks': fused kernels need the same window in all layers"
        require(kernel in ("auto", "blocks"), "attention_kernel", kernel, right)
    if config.dtype == "float32":
        right = "another one: cuDNN needs dtype = 'bfloat16'"
        require(kernel != "cudnn", "attention_kernel", kernel, right)

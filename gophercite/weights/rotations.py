"""Reads rotary embeddings' settings from a `config.json`, in its newer and its older format.

Newer files have everything in `rope_parameters`. Older ones have the base in `rope_theta` and the
rest in `rope_scaling`. Model cards tell users to add `rope_scaling` for longer contexts, so a file
may have both. Then `transformers` (5.23) uses only `rope_scaling`; so do we, unless a setting in
`rope_parameters` would be lost.
"""

from collections import Counter
from typing import Any, NamedTuple

from gophercite.models.config import RopeScaling
from gophercite.storage.json_fields import JsonFields, describe

NEWER, OLDER = "rope_parameters", "rope_scaling"

_DEFAULT_BASE = 10_000.0
_NAMES = (
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"),
    *("low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
)


class Rotation(NamedTuple):
    """A rotation, with the settings of `TransformerConfig`.

    Attributes:
      theta: the base.
      interpolation: divisor of positions.
      scaling: Llama 3.1's scaling, or None.
      fraction: share of a head's channels that are rotated.
    """

    theta: float
    interpolation: float
    scaling: RopeScaling | None
    fraction: float

    def settings(self) -> dict[str, Any]:
        """The rotation as fields of `TransformerConfig`."""
        return {
            "rope_theta": self.theta,
            "rope_interpolation": self.interpolation,
            "rope_scaling": self.scaling,
            "rotary_fraction": self.fraction,
        }


def read_rotation(
    fields: JsonFields,
    *,
    base: str = "rope_theta",
    share: str = "partial_rotary_factor",
    default_share: float = 1.0,
) -> Rotation:
    """Reads the rotation for all layers.

    Args:
      fields: the fields of `config.json`.
      base, share: the family's names for the base and the rotated share outside the objects.
      default_share: rotated share of a head if the file does not say.

    Raises:
      ValueError: the scaling is unknown, or two fields contradict each other.
    """
    newer, older = _object(fields, NEWER), _object(fields, OLDER)
    rope = older if older.values else newer
    outside = Rotation(
        first(fields.optional_number(base), _DEFAULT_BASE),
        1.0,
        None,
        first(fields.optional_number(share), default_share),
    )
    taken = _rotation(rope, outside, fields)
    if rope is older:
        for name, value in (("rope_theta", taken.theta), ("partial_rotary_factor", taken.fraction)):
            lost = None if name in older else newer.optional_number(name)
            if lost is not None and lost != value:
                raise fields.error(
                    OLDER,
                    f"holds in place of {NEWER}, and so {name} is {value:g}, not {lost:g} as there:"
                    f" write {name} into {OLDER}, or everything into {NEWER}",
                )
    # If given under other families' or versions' names, too, the values must be equal.
    for name, value in (("rope_theta", taken.theta), ("partial_rotary_factor", taken.fraction)):
        elsewhere = fields.optional_number(name)
        if name not in (base, share) and elsewhere is not None and elsewhere != value:
            raise fields.error(
                name, f"{elsewhere:g} is not what the rotation has elsewhere ({value:g})"
            )
    return taken


def read_part(values: dict[str, Any], path: str, base: float, fields: JsonFields) -> Rotation:
    """Reads the rotation for one kind of layers.

    Args:
      values: the settings for this kind.
      path: their path in the file, for messages.
      base: the base if `values` has none.
      fields: the fields of `config.json`.

    Raises:
      ValueError: as in `read_rotation`.
    """
    return _rotation(_part(values, path), Rotation(base, 1.0, None, 1.0), fields)


def read_object(fields: JsonFields, name: str) -> dict[str, Any]:
    """The object under a name; empty if there is none.

    Raises:
      ValueError: the field holds something else.
    """
    value = fields.values.get(name)
    if not isinstance(value, dict | None):
        raise fields.error(name, f"expected an object or null, got {describe(value)}")
    return value or {}


def first(*values: float | None) -> float:
    """The first value that is not None; the last one must not be None."""
    return next(value for value in values if value is not None)


def _object(fields: JsonFields, name: str) -> JsonFields:
    return _part(read_object(fields, name), name)


def _part(values: dict[str, Any], path: str) -> JsonFields:
    rope = JsonFields(values, None, Counter(), path)
    for name, value in values.items():
        if name not in _NAMES and value is not None:
            known = ", ".join(_NAMES)
            raise rope.error(name, f"got {describe(value)}: only {known} are known of a rotation")
    return rope


def _rotation(rope: JsonFields, outside: Rotation, fields: JsonFields) -> Rotation:
    """The rotation in an object, with defaults from outside it."""
    theta = first(rope.optional_number("rope_theta"), outside.theta)
    fraction = first(rope.optional_number("partial_rotary_factor"), outside.fraction)
    plain = outside._replace(theta=theta, fraction=fraction)
    kind = _kind(rope)
    if kind == "default":
        return plain
    if kind == "linear":
        return plain._replace(interpolation=_number(rope, "factor"))
    if kind != "llama3":
        known = "default, linear, llama3"
        written = "rope_type" if "rope_type" in rope.values else "type"
        raise rope.error(written, f"{kind!r} is not among the known ones ({known})")
    name = "original_max_position_embeddings"
    length = rope.integer(name)
    if name in fields and fields.integer(name) != length:
        raise fields.error(name, f"{fields.integer(name)} is not what the rotation has ({length})")
    scaling = RopeScaling(
        factor=_number(rope, "factor"),
        low_frequency_factor=_number(rope, "low_freq_factor"),
        high_frequency_factor=_number(rope, "high_freq_factor"),
        original_length=length,
    )
    return plain._replace(scaling=scaling)


def _kind(rope: JsonFields) -> str:
    names = [name for name in ("rope_type", "type") if name in rope.values]
    kinds = {rope.text(name, raw=True) for name in names}
    if len(kinds) > 1:
        raise rope.error("type", f"{rope.values['type']!r} is not what rope_type says")
    return kinds.pop() if kinds else "default"


def _number(fields: JsonFields, name: str) -> float:
    value = fields.optional_number(name)
    if value is None:
        raise fields.error(name, "is missing, and must be a number")
    return value

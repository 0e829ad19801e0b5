"""How a `config.json` says the rotation of queries and keys, in its newer and its older spelling.

Newer files have `rope_parameters` with everything in it. Older ones keep the base in `rope_theta`
and the rest in `rope_scaling`. Model cards tell people to add that one for longer contexts, so a
file may have both. Then `transformers` (5.23) goes by `rope_scaling` alone; so do we, unless
something that `rope_parameters` says would be lost.
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
    """A rotation as `TransformerConfig` has it.

    Attributes:
      theta: the base.
      interpolation: what positions are divided by.
      scaling: Llama 3.1's, or None.
      fraction: share of a head's channels that are rotated.
    """

    theta: float
    interpolation: float
    scaling: RopeScaling | None
    fraction: float

    def settings(self) -> dict[str, Any]:
        """The fields of `TransformerConfig` that say it."""
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
    """The rotation that all layers have.

    Args:
      fields: those of `config.json`.
      base, share: what the family calls the base and the rotated share outside of the objects.
      default_share: of a head that is rotated where the file does not say.

    Raises:
      ValueError: a scaling that is not known, or two fields that contradict each other.
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
    # Written under the names of other families or versions, they must say the same.
    for name, value in (("rope_theta", taken.theta), ("partial_rotary_factor", taken.fraction)):
        other = fields.optional_number(name)
        if name not in (base, share) and other is not None and other != value:
            raise fields.error(
                name, f"{other:g} is not what the rotation has elsewhere ({value:g})"
            )
    return taken


def read_part(values: dict[str, Any], path: str, base: float, fields: JsonFields) -> Rotation:
    """The rotation of one kind of layers.

    Args:
      values: what is said of it.
      path: where, for messages.
      base: where `values` has none.
      fields: those of `config.json`.

    Raises:
      ValueError: as `read_rotation`.
    """
    return _rotation(_part(values, path), Rotation(base, 1.0, None, 1.0), fields)


def read_object(fields: JsonFields, name: str) -> dict[str, Any]:
    """The object under a name, empty where there is none.

    Raises:
      ValueError: the field holds something else.
    """
    value = fields.values.get(name)
    if not isinstance(value, dict | None):
        raise fields.error(name, f"expected an object or null, got {describe(value)}")
    return value or {}


def first(*values: float | None) -> float:
    """The first value that there is; the last one is."""
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
    """What an object says of the rotation, else what stands outside of it."""
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
        raise rope.error("rope_type", f"{kind!r} is not among the known ones ({known})")
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
    kinds = {rope.text(name) for name in names}
    if len(kinds) > 1:
        raise rope.error("type", f"{rope.values['type']!r} is not what rope_type says")
    return kinds.pop() if kinds else "default"


def _number(fields: JsonFields, name: str) -> float:
    value = fields.optional_number(name)
    if value is None:
        raise fields.error(name, "is missing, and must be a number")
    return value

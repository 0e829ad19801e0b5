"""Checks of learners' and optimisers' settings; errors name the setting and a correct value."""

import sys


def require_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    otherwise: str = "",
) -> None:
    """Refuses a setting that is not a finite number within bounds.

    Args:
      name: the setting as the message names it, such as "PPOLearner.clip".
      value: its value; a boolean is no number.
      above: the value must be larger than this.
      least: the value must be at least this.
      below: the value must be smaller than this.
      most: the value must be at most this.
      otherwise: what else is possible, such as ", or None for no clipping".

    Raises:
      ValueError: it is out of range.
    """
    bounds = {"above": above, "at least": least, "below": below, "at most": most}
    said = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
    if not (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # NaN is not, nor is a whole number beyond all floats
        and (above is None or value > above)
        and (least is None or value >= least)
        and (below is None or value < below)
        and (most is None or value <= most)
    ):
        raise ValueError(f"{name} = {value!r}: must be a finite number {said}{otherwise}")


def require_count(name: str, value: object, otherwise: str = "") -> None:
    """Refuses a setting that is not a whole number of at least 1.

    Args:
      name: the setting as the message names it, such as "PPOLearner.epochs".
      value: its value.
      otherwise: what else is possible.

    Raises:
      ValueError: it isn't one.
    """
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} = {value!r}: must be a whole number, at least 1{otherwise}")

"""For short trials of long runs: shortens a warm-up to fit, and reports it."""

import gin
import gin_files

_SCHEDULES = ("linear_warmup_cosine", "linear_warmup_linear")
_SHARE = 10  # if its warm-up doesn't fit, a tenth of the run is warm-up


def shorten() -> list[str]:
    """Shortens each schedule's warm-up that is at least as long as its run.

    Returns:
      One line for each.
    """
    lines = []
    for (scope, selector), parameters in list(gin.config._CONFIG.items()):
        name = selector.removeprefix("gophercite.")
        if name not in _SCHEDULES:
            continue
        full = f"{scope}/{name}" if scope else name
        steps, total = (
            gin_files.follow(f"{full}.{field}", parameters.get(field))
            for field in ("warmup_steps", "total_steps")
        )
        if not (_is_count(steps[1]) and _is_count(total[1]) and steps[1] >= total[1]):
            continue
        fitting = total[1] // _SHARE
        gin.bind_parameter(f"{full}.warmup_steps", fitting)
        lines.append(
            f"{steps[0]} = {steps[1]} does not fit into {total[0]} = {total[1]}: this run warms up "
            f"for {fitting} steps"
        )
    return lines


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0

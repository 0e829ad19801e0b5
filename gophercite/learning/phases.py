"""Names for the phases of a training step, so that a profile can attribute time to them."""

import contextlib
import re

import jax

_MARK = "phase."
_MARKED = re.compile(re.escape(_MARK) + r"(\w+)")


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Marks everything traced inside as one phase of a step; the innermost phase counts.

    Args:
      name: letters, digits and underscores.

    Returns:
      A context manager.
    """
    return jax.named_scope(_MARK + name)


def phase_of(operation: str) -> str | None:
    """The phase that an operation was traced in.

    Args:
      operation: the operation's name in a compiled program's metadata, such as
        "jit(update)/phase.sampling/while/body/dot_general".

    Returns:
      The phase's name; None outside all phases.
    """
    found = _MARKED.findall(operation)
    return found[-1] if found else None

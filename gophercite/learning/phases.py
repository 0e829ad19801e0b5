"""Names for the parts of a training step, by which a profile tells what each of them takes."""

import contextlib
import re

import jax

_MARK = "phase."
_MARKED = re.compile(re.escape(_MARK) + r"(\w+)")


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Marks what is traced inside as one phase of a step; of nested ones the innermost counts.

    Args:
      name: letters, digits and underscores.

    Returns:
      A context.
    """
    return jax.named_scope(_MARK + name)


def phase_of(operation: str) -> str | None:
    """The phase that an operation was traced in.

    Args:
      operation: its name in a compiled program's metadata, such as
        "jit(update)/phase.sampling/while/body/dot_general".

    Returns:
      The phase's name, None outside all of them.
    """
    found = _MARKED.findall(operation)
    return found[-1] if found else None

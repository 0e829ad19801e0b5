"""Imports TensorFlow without optional packages that Keras looks for and nothing here needs."""

import contextlib
import sys
from collections.abc import Iterator

# Keras uses matplotlib and IPython and wraps scikit-learn's estimators, but works without them.
_EXTRAS = ("IPython", "matplotlib", "sklearn")


@contextlib.contextmanager
def keras_alone() -> Iterator[None]:
    """Inside, imports see no matplotlib, scikit-learn and IPython, as if not installed.

    TensorFlow imports Keras, which imports them if it can: this takes a quarter of the time until
    a run begins. Afterwards they can be imported as before; modules loaded earlier stay loaded.
    """
    hidden = [name for name in _EXTRAS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be found
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]

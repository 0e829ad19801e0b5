"""TensorFlow without what Keras looks for and nothing here needs."""

import contextlib
import sys
from collections.abc import Iterator

# Keras draws with matplotlib, wraps scikit-learn's estimators and asks whether IPython is there. It
# does without where they are not installed.
_EXTRAS = ("IPython", "matplotlib", "sklearn")


@contextlib.contextmanager
def keras_alone() -> Iterator[None]:
    """What is imported inside finds no matplotlib, scikit-learn and IPython, as if not installed.

    TensorFlow imports Keras, which imports them where it can: a quarter of the time until a run
    begins. Afterwards they can be imported as before; what was there already stays.
    """
    hidden = [name for name in _EXTRAS if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be found
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]

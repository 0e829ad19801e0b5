"""Language models that answer a question and prove it with a verbatim quote, in JAX.

    gophercite.answer("When was the lighthouse built?", "notes/", "runs/quickstart")

is `gophercite.answering.answer.answer`. Importing the package alone loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gophercite.answering.answer import answer

__version__ = "0.1.0"
__all__ = ["__version__", "answer"]


def __getattr__(name: str) -> Any:
    if name == "answer":
        from gophercite.answering.answer import answer

        return answer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

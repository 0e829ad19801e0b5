"""Language models that answer a question and prove it with a verbatim quote, in JAX.

    answer = gophercite.answer("When was the lighthouse built?", "notes/", "runs/quickstart")
    gophercite.highlight(answer, "notes/")  # the quotes in their pages, for a notebook

are functions of `gophercite.answering`. Importing the package itself loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gophercite.answering.answer import answer
    from gophercite.answering.highlighting import highlight

__version__ = "0.1.0"
__all__ = ["__version__", "answer", "highlight"]


def __getattr__(name: str) -> Any:
    if name == "answer":
        from gophercite.answering.answer import answer

        return answer
    if name == "highlight":
        from gophercite.answering.highlighting import highlight

        return highlight
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

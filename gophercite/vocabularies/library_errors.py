"""Errors of the `tokenizers` library, which a file from elsewhere can cause in any of its calls."""

from collections.abc import Callable
from typing import TypeVar

from gophercite.vocabularies.errors import VocabularyError

T = TypeVar("T")

_PANIC = "PanicException"  # of code in Rust; a `BaseException` in no module that can be imported


def naming_library_errors(call: Callable[[], T], problem: str) -> T:
    """Calls the library.

    Args:
      call: what to call.
      problem: what it means if the library fails.

    Returns:
      The call's result.

    Raises:
      VocabularyError: the library failed; it raises plain `Exception`, or panics.
    """
    try:
        return call()
    except VocabularyError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            raise VocabularyError(f"{problem} ({error})") from None
        raise

"""What a run that goes on does otherwise than before: it may be meant, and may be a mistake."""

import contextlib
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

from etils import epath
from gin import config_parser

from gophercite.storage import naming_storage

_SHOWN, _LONGEST = 6, 60  # settings, and characters of a value
_UNREADABLE = ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError
_ELSEWHERE = "MODEL_DIR"  # the same folder may be named in several ways


def announce(kept: epath.Path, now: str) -> None:
    """Says on stderr which settings differ from those of a run's last start, if any.

    Args:
      kept: the run's `config.gin`; there is none before its first start.
      now: the settings of this start, as gin writes them.

    Raises:
      StorageError: the run's bucket can't be used.
    """
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError), naming_storage(kept):
        if differ := changes(kept.read_text(), now):
            print(f"train: other settings than at the last start: {differ}", file=sys.stderr)


def changes(before: str, now: str) -> str | None:
    """Compares the settings of two starts of a run.

    Args:
      before: as gin wrote them then; the file may have been altered.
      now: as gin writes them.

    Returns:
      The settings in both with other values, on one line; None if there are none, or if gin can't
      read the earlier ones.
    """
    try:
        old, new = dict(_settings(before)), dict(_settings(now))
    except _UNREADABLE:
        return None
    differ = [
        f"{name} = {_short(new[name])} (was {_short(old[name])})"
        for name in sorted(old.keys() & new.keys() - {_ELSEWHERE})
        if old[name] != new[name]
    ]
    more = [f"{len(differ) - _SHOWN} more"] if len(differ) > _SHOWN else []
    return ", ".join(differ[:_SHOWN] + more) or None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _settings(text: str) -> Iterator[tuple[str, Any]]:
    for statement in config_parser.ConfigParser(text, _AsWritten()):
        if isinstance(statement, config_parser.BindingStatement):
            scope, selector, parameter, value, _ = statement
            name = f"{selector}.{parameter}" if parameter else selector
            yield f"{scope}/{name}" if scope else name, value


class _Written(str):
    """A reference or a macro."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _AsWritten(config_parser.ParserDelegate):
    """Leaves references and macros as they are written."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> _Written:
        return _Written(f"@{scoped_configurable_name}{'()' if evaluate else ''}")

    def macro(self, macro_name: str) -> _Written:
        return _Written(f"%{macro_name}")

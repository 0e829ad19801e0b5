"""Where the names in gin files were set and used: file and line, or the flag."""

import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from gin import config_parser

ROOT = pathlib.Path(__file__).resolve().parents[1]
_MODULE = "gophercite."  # of our objects' names in gin; nobody needs to type it


def where_set(name: str, files: Iterable[pathlib.Path], bindings: Mapping[str, str]) -> str:
    """Where a macro or parameter was given its value, as the user typed it.

    Args:
      name: `TRAIN_STEPS`, `train.log_every`.
      files: the files that were read, each followed by those that it includes.
      bindings: flag bindings, which are applied after the files.

    Returns:
      `--gin.NAME`, or `NAME in FILE:LINE`.
    """
    return _where(name, name.__eq__, files, bindings)


def where_scoped(path: str, files: Iterable[pathlib.Path], bindings: Mapping[str, str]) -> str:
    """The same for the parameters of a scope.

    Args:
      path: the scope, with those around it (`validation`, `a/b`).
      files, bindings: as in `where_set`.
    """
    return _where(f"{path}/…", lambda name: name.startswith(f"{path}/"), files, bindings)


def where_used(name: str, files: Iterable[pathlib.Path], bindings: Mapping[str, str]) -> str:
    """Where a macro is used: the flag, or file and line.

    Args:
      name: the macro.
      files, bindings: as in `where_set`.
    """
    pattern = rf"%{re.escape(name)}(?![\w./])"
    for flag, value in bindings.items():
        if re.search(pattern, value):
            return f"--gin.{flag}"
    for file in files:
        for number, text in enumerate(text_of(file).splitlines(), 1):
            if re.search(pattern, text.partition("#")[0]):
                return f"{short(file)}:{number}"
    return f"%{name}"


def text_of(file: pathlib.Path) -> str:
    """The text of a gin file that gin has read."""
    return file.read_text(encoding="utf-8-sig")


def short(path: pathlib.Path) -> str:
    """A path as a message names it: a file of this repository relative to it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _where(
    shown: str,
    is_meant: Callable[[str], bool],
    files: Iterable[pathlib.Path],
    bindings: Mapping[str, str],
) -> str:
    """The last flag that is meant, or else the last line of the files, which overrides others."""
    flags = [f"--gin.{flag}" for flag in bindings if is_meant(_plain(flag))]
    if flags:
        return flags[-1]
    lines = [
        f"{shown} in {short(file)}:{line}"
        for name, file, line in _settings(files)
        if is_meant(name)
    ]
    return lines[-1] if lines else shown


def _settings(files: Iterable[pathlib.Path]) -> Iterator[tuple[str, pathlib.Path, int]]:
    """What files set, on lines of their own or in blocks, and where, in gin's order.

    Args:
      files: each is followed by those that it includes.
    """
    left = iter(files)

    def within(file: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, int]]:
        for statement in config_parser.ConfigParser(text_of(file), _NoValues()):
            if isinstance(statement, config_parser.IncludeStatement):
                included = next(left, None)
                if included is not None:
                    yield from within(included)
            elif isinstance(statement, config_parser.BindingStatement):
                scope, selector, parameter, _, location = statement
                name = f"{selector}.{parameter}" if parameter else selector
                yield _plain(f"{scope}/{name}" if scope else name), file, location.line_num

    for file in left:
        yield from within(file)


def _plain(name: str) -> str:
    scope, slash, rest = name.rpartition("/")
    return f"{scope}{slash}{rest.removeprefix(_MODULE)}"


class _NoValues(config_parser.ParserDelegate):
    """Lets gin's parser read references and macros without looking them up."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> None:
        pass

    def macro(self, macro_name: str) -> None:
        pass

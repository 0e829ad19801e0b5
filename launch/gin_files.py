"""Reads gin files and flags, with errors that say in one line what is wrong and where.

Gin itself ignores a macro or a scope that nothing uses, so `--gin.TRAIN_STEP=7` would change
nothing and print nothing. Here every macro and scope that is set must be used, every macro that is
used must be set, and for a name that gin doesn't know the error suggests the nearest known one.
"""

import argparse
import ast
import contextlib
import difflib
import inspect
import io
import os
import pathlib
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import gin
from gin_places import ROOT as ROOT
from gin_places import short, text_of, where_scoped, where_used
from gin_places import where_set as where_set

from gophercite.storage import StorageError

_NAME = re.compile(r"\w([\w./]*\w)?")
_SHOWN = 40  # characters of a flag's value that a message repeats
_LINE = 100  # the same for a line of a file
_DEEPEST = 50  # brackets within one another
_OFTEN = 20  # a file that is opened more often includes itself


class ConfigurationError(ValueError):
    """A gin file or flag is wrong; the message is one line."""


def add_flags(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds the flags for gin files; `read_bindings` reads the remaining arguments."""
    parser.add_argument(
        "--gin_file",
        action="append",
        required=required,
        default=None if required else [],
        metavar="FILE",
        help="may be repeated",
    )
    parser.add_argument(
        "--gin_search_paths",
        type=lambda text: text.split(","),
        default=[],
        metavar="DIR,…",
        help="folders to search for gin files, in addition to this one and the repository",
    )
    parser.add_argument(
        "--gin.NAME=VALUE",
        dest="_",
        default=None,
        metavar="",
        help="set a macro (TRAIN_STEPS) or a parameter (train.log_every); applied after the files",
    )


def read_bindings(parser: argparse.ArgumentParser, rest: Sequence[str]) -> dict[str, str]:
    """The arguments `--gin.NAME=VALUE` by name; any others are wrong usage.

    Args:
      parser: reports wrong usage.
      rest: the arguments that the parser did not know.
    """
    bindings = {}
    for argument in rest:
        name, equals, value = argument.removeprefix("--gin.").partition("=")
        if not argument.startswith("--gin.") or not equals or not name:
            parser.error(f"unknown argument {argument!r}; settings are --gin.NAME=VALUE")
        bindings[name] = value
    return bindings


def load(
    files: Sequence[str],
    bindings: Mapping[str, str],
    search_paths: Sequence[str] = (),
    *,
    unset: list[str] | None = None,
) -> list[pathlib.Path]:
    """Reads gin files in order, then bindings, and checks all names.

    Args:
      files: paths, looked for here, in the search paths and in the repository.
      bindings: names (`TRAIN_STEPS`, `train.log_every`) and their values as gin writes them; a
        value that gin can't read is taken as text, so `--gin.MODEL_DIR=runs/a` needs no quotes.
      search_paths: more folders to search for files, including included ones.
      unset: receives the macros that nothing sets, which become None; without it they are errors.

    Returns:
      The files that were read, including included ones.

    Raises:
      ConfigurationError: a file is missing, or a line, name or value is wrong.
    """
    gin.clear_config()
    folders = [*search_paths, str(ROOT), str(ROOT / "gin_configs")]
    for folder in folders:
        gin.add_config_file_search_path(folder)
    files_read: list[pathlib.Path] = []
    for file in files:
        found = _find(file, folders)
        if found is None:
            raise ConfigurationError(_no_file(file, folders))
        try:
            with _reading_files():
                files_read += _files_read(gin.parse_config_file(str(found)), folders)
        except Exception as error:
            raise ConfigurationError(_explain(error, folders)) from error
    for name, value in bindings.items():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"--gin.{name}: this can't be the name of a setting")
        try:
            gin.parse_config(f"{name} = {_literal(value)}")
        except (SyntaxError, tokenize.TokenError, RecursionError) as error:
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
            raise ConfigurationError(
                f"--gin.{name} = {shown}: gin can't read this value; text that begins like this "
                f"needs quotes: '--gin.{name}=\"{shown}\"'"
            ) from error
        except Exception as error:
            raise ConfigurationError(f"--gin.{name}: {_explain(error, folders)}") from error
    _check_macros(files_read, bindings, unset)
    _check_scopes(files_read, bindings)
    return files_read


def imports_modules(file: pathlib.Path) -> bool:
    """Whether a gin file imports Python modules, which may register more names."""
    return re.search(r"^\s*(import|from)\s", text_of(file), re.MULTILINE) is not None


@contextlib.contextmanager
def _reading_files() -> Iterator[None]:
    """Has gin read files as UTF-8, whatever the locale, and look for them in folders alone.

    Among Python's packages it would mistake a folder `models` in the current folder for one, fail
    on one without `__init__.py`, and log an error for each place without the file.
    """
    readers = gin.config._FILE_READERS
    kept = list(readers)
    times = Counter[str]()

    def read(path: str) -> io.StringIO:
        times[path] += 1
        if times[path] > _OFTEN:
            raise ConfigurationError(
                f"{short(pathlib.Path(path))}:1: includes itself, directly or through other files"
            )
        return _open(path)

    readers[:] = [(read, os.path.isfile)]
    try:
        yield
    finally:
        readers[:] = kept


def _open(path: str) -> io.StringIO:
    """Opens a gin file.

    Raises:
      ConfigurationError: it is not UTF-8, or has a bracket or a text that is never closed, or
        brackets too deep within one another.
    """
    content = pathlib.Path(path).read_bytes()
    try:
        file = io.StringIO(content.decode("utf-8-sig"), newline=None)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{short(pathlib.Path(path))}:{line}: byte {content[error.start]:#04x} is not UTF-8: "
            "save the file as UTF-8"
        ) from None
    if trouble := _trouble_with_brackets(file.getvalue()):
        line, what = trouble
        raise ConfigurationError(f"{short(pathlib.Path(path))}:{line}: {what}")
    setattr(file, "name", path)  # noqa: B010 -- gin names it in messages
    return file


def _trouble_with_brackets(text: str) -> tuple[int, str] | None:
    """The line where something begins that gin would not name by its place, and what is wrong."""
    open_brackets: list[int] = []
    last = 1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            last = token.end[0]
            if token.string in ("(", "[", "{"):
                open_brackets.append(last)
                if len(open_brackets) > _DEEPEST:
                    return open_brackets[0], "has too many brackets within brackets"
            elif token.string in (")", "]", "}") and open_brackets:
                open_brackets.pop()
    except tokenize.TokenError:
        # A text in three quotes has no token: it begins after the last one.
        if open_brackets:
            return open_brackets[0], "the bracket is never closed"
        return last, "the text is never closed"
    except SyntaxError:  # gin says what it is
        pass
    return None


def _literal(value: str) -> str:
    """A flag's value in gin's syntax; bare text is quoted."""
    # "{folder}/…" is a path whose folder is filled in later (`Loop`).
    if value.startswith(("@", "%", "[", "(", "{")) and not re.match(r"\{\w+\}", value):
        return value
    try:
        ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return repr(value)
    return value


def _check_macros(
    files: Sequence[pathlib.Path], bindings: Mapping[str, str], unset: list[str] | None
) -> None:
    """Raises for a macro that is set but used nowhere, or is used but not set."""
    config = gin.config._CONFIG
    macro = gin.get_configurable(gin.config.macro)
    bound = {scope for scope, selector in config if selector == "gin.macro"}
    used = {"/".join(r.scopes) for r in gin.config.iterate_references(config, to=macro)}
    for name in sorted(bound):
        follow(name, config[name, "gin.macro"].get("value"))
    # A binding that replaces a macro's use leaves the macro unused, which is no mistake.
    written = {name for file in files for name in re.findall(r"%([\w./]+)", text_of(file))}
    for name in sorted(bound - used - written):
        near = nearest(name, used)
        place = where_set(name, files, bindings)
        if not used:
            raise ConfigurationError(
                f"{place}: the gin files use no macro, so they describe no run; is one missing?"
            )
        raise ConfigurationError(f"{place}: nothing uses a macro of this name{near}")
    missing = sorted(used - bound)
    for name in missing:
        close = difflib.get_close_matches(name, bound, n=1, cutoff=0.8)
        if close:
            place = where_used(name, files, bindings)
            raise ConfigurationError(f"{place}: nothing sets %{name}; did you mean %{close[0]}?")
    if unset is not None:
        unset += missing
        for name in missing:
            gin.parse_config(f"{name} = None")
    elif missing:
        many = f" (nor are {', '.join(missing[1:])})" if len(missing) > 1 else ""
        raise ConfigurationError(f"{missing[0]} is not set{many}: add --gin.{missing[0]}=VALUE")


def _check_scopes(files: Sequence[pathlib.Path], bindings: Mapping[str, str]) -> None:
    """Raises for a parameter of a scope, such as `validation/Input.split`, that nothing enters."""
    macro = gin.get_configurable(gin.config.macro)
    entered = {
        scope
        for reference in gin.config.iterate_references(gin.config._CONFIG)
        if reference.configurable.wrapper != macro
        for scope in reference.scopes
    }
    for file in files:  # replacing a reference leaves its scope unused, which is no mistake
        for path in re.findall(r"@([\w./]+)/", text_of(file)):
            entered.update(path.split("/"))
    for path, selector in gin.config._CONFIG:
        unknown = [scope for scope in path.split("/") if scope and scope not in entered]
        if unknown and selector != "gin.macro":
            place = where_scoped(path, files, bindings)
            near = nearest(unknown[0], entered)
            raise ConfigurationError(
                f"{place}: nothing is configured in scope {unknown[0]!r}{near}"
            )


def _find(file: str, folders: Iterable[str]) -> pathlib.Path | None:
    """Finds a file here, or in the first of the folders that has it."""
    paths = (pathlib.Path(folder, file) for folder in ("", *folders))
    return next((path for path in paths if path.is_file()), None)


def _files_read(parsed: Any, folders: Sequence[str]) -> list[pathlib.Path]:
    """The files that gin read: a file and those it includes."""
    path = _find(parsed.filename, folders)
    included = [
        included_file for part in parsed.includes for included_file in _files_read(part, folders)
    ]
    return [path, *included] if path else included


def _explain(error: Exception, folders: Sequence[str]) -> str:
    """Gin's message, which may have many lines, as one line with the nearest known name."""
    message = str(error)
    if isinstance(error, ConfigurationError):
        return message.splitlines()[0]
    if isinstance(error, SyntaxError) and error.lineno:
        return _of_syntax(error)
    place = re.search(r'In file "([^"]+)", line (\d+)', message)
    prefix = f"{short(pathlib.Path(place[1]))}:{place[2]}: " if place else ""
    if missing := re.search(r"Unable to open file: (.*?)\. Searched config paths", message):
        return prefix + _no_file(missing[1], folders)
    if unknown := re.search(
        r"Configurable '(.+?)' doesn't have a parameter named '(.+?)'", message
    ):
        return prefix + unknown_parameter(unknown[1], unknown[2])
    if unknown := re.search(r"No configurable matching (?:reference )?'@?(.+?)(?:\(\))?'", message):
        names = [selector.split(".")[-1] for selector, _ in gin.config._REGISTRY.items()]
        return f"{prefix}nothing is named {unknown[1]!r}{nearest(unknown[1], names)}"
    first = next((line.strip() for line in message.splitlines() if line.strip()), repr(error))
    return prefix + re.sub(r"^\[Errno \d+\] ", "", first)


def _of_syntax(error: SyntaxError) -> str:
    """The message for a line that gin can't read."""
    place = f"{short(pathlib.Path(error.filename))}:" if error.filename else ""
    line = (error.text or "").strip()
    shown = line if len(line) <= _LINE else f"{line[:_LINE]}…"
    if token := re.search(r"Failed to parse token '(.*)'", error.msg):
        return f"{place}{error.lineno}: {token[1]!r} is no value: text needs quotes"
    if "Unable to parse value" in error.msg:
        return f"{place}{error.lineno}: can't read the value: {shown!r}"
    reason = error.msg.splitlines()[0].rstrip(".")
    return f"{place}{error.lineno}: {reason}: {shown!r}"


def _no_file(file: str, folders: Sequence[str]) -> str:
    """The message for a file that is in none of the folders, with a hint if the name is close."""
    for path in (pathlib.Path(folder, file) for folder in ("", *folders) if file):
        if path.exists():
            kind = "a folder" if path.is_dir() else "not an ordinary file"
            return f"{file}: is {kind}; expected a gin file"
    found: dict[str, str] = {}
    for folder in map(pathlib.Path, folders):
        for path in sorted([*folder.glob("*.gin"), *folder.glob("gin_configs/**/*.gin")]):
            found.setdefault(path.name, short(path))
    close = difflib.get_close_matches(pathlib.Path(file).name, found, n=1, cutoff=0.85)
    near = f"; did you mean {found[close[0]]}?" if close else ""
    return f"there is no gin file {file!r}{near}"


def unknown_parameter(configurable: str, parameter: str) -> str:
    """The message for a parameter that a configurable doesn't have.

    Args:
      configurable: its name in gin.
      parameter: the unknown name.

    Returns:
      One line with the nearest right name.
    """
    names: list[str] = []
    for selector in gin.config._REGISTRY.matching_selectors(configurable):
        names += inspect.signature(gin.config._REGISTRY[selector].wrapped).parameters
    near = nearest(parameter, names, configurable + ".")
    return f"{configurable} has no parameter {parameter!r}{near}"


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Suggests the nearest known name.

    Args:
      name: what was written.
      known: what could have been meant.
      prefix: put before the suggested name.

    Returns:
      "; did you mean NAME?", or else the known names, for the end of a message.
    """
    known = sorted(set(known))
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    return f"; there are {', '.join(known)}" if known else ""


@contextlib.contextmanager
def one_line(
    files: Sequence[pathlib.Path] = (), bindings: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Converts errors that objects raise for wrong settings during construction into one line.

    Args:
      files: the files that `load` read.
      bindings: flag bindings.

    Raises:
      ConfigurationError: instead of ValueError, TypeError and file errors.
      StorageError: a bucket could not be used, which may pass.
    """
    try:
        yield
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        message = str(error)
        refused = re.search(
            r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword .*?'(\w+)'", message
        )
        if refused:
            raise ConfigurationError(unknown_parameter(refused[1], refused[2])) from error
        unset = re.search(r"(\w+)(?:\.__init__)?\(\) missing \d+ required .*?: (.+)", message)
        if unset:
            raise ConfigurationError(_nothing_sets(unset[1], unset[2])) from error
        first = next((line.strip() for line in message.splitlines() if line.strip()), repr(error))
        if isinstance(error, StorageError):
            raise StorageError(first) from error
        raise ConfigurationError(_as_typed(first, files, bindings or {})) from error


def _nothing_sets(made: str, quoted: str) -> str:
    """The message for parameters without a value, of what Python calls `made`."""
    registered = gin.config._REGISTRY.items()
    names = (selector for selector, each in registered if each.wrapped.__name__ == made)
    first, *others = re.findall(r"'(\w+)'", quoted)
    many = f" (nor {', '.join(others)})" if others else ""
    return f"nothing sets {next(names, made).rpartition('.')[2]}.{first}{many}"


def _as_typed(message: str, files: Sequence[pathlib.Path], bindings: Mapping[str, str]) -> str:
    """An object's message, `CLASS.FIELD = VALUE: …`, in terms of the setting that gave the
    value."""
    about = re.match(r"(\w+)\.(\w+) (= .*)", message)
    if about is None:
        return message
    for (scope, selector), parameters in gin.config._CONFIG.items():
        configurable = gin.config._REGISTRY.get(selector)
        if configurable and configurable.wrapped.__name__ == about[1] and about[2] in parameters:
            name = "/".join(filter(None, [scope, selector.rpartition(".")[2]]))
            typed, _ = follow(f"{name}.{about[2]}", parameters[about[2]])
            return f"{where_set(typed, files, bindings)} {about[3]} ({about[1]}.{about[2]})"
    return message


def follow(name: str, value: Any) -> tuple[str, Any]:
    """Follows macros to find how a parameter's value was typed.

    Args:
      name: the parameter's name.
      value: the value as gin holds it.

    Returns:
      The name of the last macro, or `name`, and the value.

    Raises:
      ConfigurationError: a macro refers to itself.
    """
    macro = gin.get_configurable(gin.config.macro)
    passed = {name}
    while (
        isinstance(value, gin.config.ConfigurableReference) and value.configurable.wrapper == macro
    ):
        name = "/".join(value.scopes)
        if name in passed:
            raise ConfigurationError(f"%{name} refers to itself: set it to a value")
        passed.add(name)
        value = gin.config._CONFIG.get((name, "gin.macro"), {}).get("value")
    return name, value


def texts(value: Any) -> Iterator[str]:
    """Yields the texts in a setting's value, however nested.

    Args:
      value: as gin holds it; references and macros are not followed.
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)

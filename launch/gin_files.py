"""Reading gin files and flags, with errors that say in one line what is wrong and where.

Gin itself ignores a macro that nothing uses, so `--gin.TRAIN_STEP=7` would change nothing and say
nothing. Here every macro that is set must be used, every macro that is used must be set, and a name
that gin doesn't know is answered with the nearest that it does.
"""

import ast
import contextlib
import difflib
import inspect
import logging
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import gin

ROOT = pathlib.Path(__file__).resolve().parents[1]


class ConfigurationError(ValueError):
    """A gin file or flag is wrong; the message is one line."""


def load(
    files: Sequence[str], bindings: Mapping[str, str], search_paths: Sequence[str] = ()
) -> None:
    """Reads gin files in order, then bindings, and checks all names.

    Args:
      files: paths, looked for here, in the search paths and in the repository.
      bindings: names (`TRAIN_STEPS`, `train.log_every`) and their values as gin writes them; a
        value that gin can't read is taken as text, so `--gin.MODEL_DIR=runs/a` needs no quotes.
      search_paths: more folders to look for files in, included ones too.

    Raises:
      ConfigurationError: a file is missing, or a line, name or value is wrong.
    """
    gin.clear_config()
    folders = [*search_paths, str(ROOT), str(ROOT / "gin_configs")]
    for folder in folders:
        gin.add_config_file_search_path(folder)
    for file in files:
        if not any(pathlib.Path(folder, file).is_file() for folder in ("", *folders)):
            raise ConfigurationError(_no_file(file, folders))
        try:
            with _silent():
                gin.parse_config_file(file)
        except Exception as error:
            raise ConfigurationError(_explain(error, folders)) from error
    for name, value in bindings.items():
        try:
            gin.parse_config(f"{name} = {_literal(value)}")
        except Exception as error:
            raise ConfigurationError(f"--gin.{name}: {_explain(error, folders)}") from error
    _check_macros(files, bindings)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Gin logs an error for every folder that a file is not in, found or not."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _literal(value: str) -> str:
    """A flag's value as gin reads it; bare text is put in quotes."""
    if value.startswith(("@", "%", "[", "(", "{")):
        return value
    try:
        ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return repr(value)
    return value


def _check_macros(files: Sequence[str], bindings: Mapping[str, str]) -> None:
    """Raises for a macro that is set and not used, or used and not set."""
    bound = {scope for scope, selector in gin.config._CONFIG if selector == "gin.macro"}
    used = set(_used_macros(gin.config._CONFIG))
    for name in sorted(bound - used):
        flag = f"--gin.{name}" if name in bindings else f"{name} in {_where(name, files)}"
        raise ConfigurationError(
            f"{flag}: nothing uses a macro of this name{nearest(name, used - bound or used)}"
        )
    missing = sorted(used - bound)
    if missing:
        many = f" (nor are {', '.join(missing[1:])})" if len(missing) > 1 else ""
        raise ConfigurationError(f"{missing[0]} is not set{many}: add --gin.{missing[0]}=VALUE")


def _used_macros(config: Any) -> Iterator[str]:
    for reference in gin.config.iterate_references(
        config, to=gin.get_configurable(gin.config.macro)
    ):
        yield "/".join(reference.scopes)


def _where(name: str, files: Iterable[str]) -> str:
    """The file and line that sets a macro, as far as the named files show it."""
    for file in files:
        for folder in ("", str(ROOT), str(ROOT / "gin_configs")):
            path = pathlib.Path(folder, file)
            if not path.is_file():
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.match(rf"{re.escape(name)}\s*=", line):
                    return f"{file}:{number}"
    return "an included file"


def _explain(error: Exception, folders: Sequence[str]) -> str:
    """Gin's message, which can run over many lines, as one line with the nearest right name."""
    message = str(error)
    place = re.search(r'In file "([^"]+)", line (\d+)', message)
    prefix = f"{place[1]}:{place[2]}: " if place else ""
    if missing := re.search(r"Unable to open file: (.+?)\. Searched config paths", message):
        return prefix + _no_file(missing[1], folders)
    if unknown := re.search(
        r"Configurable '(.+?)' doesn't have a parameter named '(.+?)'", message
    ):
        return prefix + unknown_parameter(unknown[1], unknown[2])
    if unknown := re.search(r"No configurable matching (?:reference )?'@?(.+?)(?:\(\))?'", message):
        known = [selector.split(".")[-1] for selector, _ in gin.config._REGISTRY.items()]
        return f"{prefix}nothing is named {unknown[1]!r}{nearest(unknown[1], known)}"
    first = next((line.strip() for line in message.splitlines() if line.strip()), repr(error))
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.filename or 'the value'}:{error.lineno}: {error.msg}: {error.text!r}"
    return prefix + first


def _no_file(file: str, folders: Sequence[str]) -> str:
    """The message for a file that is in none of the folders."""
    found = []
    for folder in map(pathlib.Path, folders):
        for path in sorted([*folder.glob("*.gin"), *folder.glob("gin_configs/**/*.gin")]):
            found.append(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path))
    return f"there is no gin file {file!r}{nearest(file, found)}"


def unknown_parameter(configurable: str, parameter: str) -> str:
    """The message for a parameter that a configurable doesn't have.

    Args:
      configurable: its name in gin.
      parameter: the name that was tried.

    Returns:
      One line with the nearest right name.
    """
    known: list[str] = []
    for selector in gin.config._REGISTRY.matching_selectors(configurable):
        known += inspect.signature(gin.config._REGISTRY[selector].wrapped).parameters
    near = nearest(parameter, known, configurable + ".")
    return f"{configurable} has no parameter {parameter!r}{near}"


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Says which known name is nearest.

    Args:
      name: what was written.
      known: what could have been meant.
      prefix: put before the name that is suggested.

    Returns:
      "; did you mean NAME?", else the known names, for the end of a message.
    """
    known = sorted(set(known))
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    return f"; there are {', '.join(known)}" if known else ""


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turns what objects say of wrong settings while gin makes them into one line.

    Raises:
      ConfigurationError: instead of ValueError, TypeError and errors of files.
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
        first = next((line.strip() for line in message.splitlines() if line.strip()), repr(error))
        raise ConfigurationError(first) from error

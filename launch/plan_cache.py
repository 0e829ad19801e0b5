"""Names of cached plans: a hash of everything that a plan depends on."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

import gin
import gin_files
import setting_names

_CODE = "gophercite/**/*.py", "data_pipelines/**/*.py", "launch/*.py"
_COMPILERS = "jax", "jaxlib", "libtpu"
# Settings of JAX and the compilers, without those that say where compiled programs are kept.
_VARIABLES = re.compile(r"JAX_(?!COMPILATION_CACHE|PERSISTENT_CACHE)|XLA_FLAGS$|LIBTPU_INIT_ARGS$")


def names(
    commands: Sequence[Sequence[str]],
    files: Sequence[str],
    bindings: Sequence[Mapping[str, str]],
    search_paths: Sequence[str],
    reward_model: str | None,
) -> list[str | None]:
    """Names for the plans of several commands that read the same gin files.

    Args:
      commands: arguments of each plan's command.
      files: gin files.
      bindings: of each command, as for `gin_files.load`.
      search_paths: folders to search for gin files.
      reward_model: the gin file with the reward model's architecture.

    Returns:
      By command, a name that changes when its plan may; None if that can't be known, because the
      plan depends on the user's own Python modules, or on the records of a run.
    """
    shared = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(gin_files.ROOT.glob(pattern)):
            shared.update(path.read_bytes())
    shared.update(json.dumps([_version(package) for package in _COMPILERS]).encode())
    variables = {name: value for name, value in os.environ.items() if _VARIABLES.match(name)}
    shared.update(json.dumps(variables, sort_keys=True).encode())
    found: list[str | None] = []
    with setting_names.names_only():
        of_judge = _settings([reward_model], {}, []) if reward_model else b""
        for command, of_command in zip(commands, bindings, strict=True):
            settings = _settings(files, of_command, search_paths)
            if settings is None or of_judge is None:
                found.append(None)
                continue
            name = shared.copy()
            name.update(json.dumps(list(command)).encode() + settings + of_judge)
            found.append(name.hexdigest()[:32])
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _settings(
    files: Sequence[str], bindings: Mapping[str, str], search_paths: Sequence[str]
) -> bytes | None:
    """The contents of gin files and of the models that they name; None if that is not all."""
    try:
        read = gin_files.load(files, bindings, search_paths, unset=[])
    except gin_files.ConfigurationError:
        return None  # the command itself says what is wrong
    if any(map(gin_files.imports_modules, read)) or _is_built():
        return None
    models = [
        pathlib.Path(text) / "model.json" for text in sorted({*gin_files.texts(gin.config._CONFIG)})
    ]
    found = [*read, *(path for path in models if path.is_file())]
    return b"".join(hashlib.sha256(path.read_bytes()).digest() for path in found)


def _is_built() -> bool:
    """Whether the step is planned for the run's own models and first batch (`planned_runs`)."""
    learner = gin.config._CONFIG.get(("", "gophercite.Run"), {}).get("learner")
    if not getattr(learner, "selector", "").endswith("A2CLearner"):
        return False
    macros = ("INITIAL_CHECKPOINT", "REWARD_MODEL")
    values = [
        gin_files.follow("", gin.config._CONFIG.get((name, "gin.macro"), {}).get("value"))[1]
        for name in macros
    ]
    return all(isinstance(value, str) and pathlib.Path(value).is_dir() for value in values)

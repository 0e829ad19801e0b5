"""The available settings, read from the sources without importing the library.

A typing mistake is then reported at once, and not after JAX and TensorFlow have been loaded.
Objects
that `configuration.py` registers with gin are looked up by its imports, down to the fields of a
dataclass or the parameters of a function.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import pathlib
from collections.abc import Callable, Iterable, Iterator

import gin
from gin import selector_map

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIGURATION = ROOT / "launch" / "configuration.py"
TASKS = ROOT / "data_pipelines" / "tasks.py"

_MODULE = "gophercite"  # of all that the configuration registers

Definition = ast.ClassDef | ast.FunctionDef
_ANNOTATED = ast.arg | ast.AnnAssign


@dataclasses.dataclass(frozen=True)
class Setting:
    """An object that gin can build.

    Attributes:
      name: its name in gin files.
      parameters: annotation of each parameter, as in its source; "" for none.
      any_parameter: whether it accepts other parameters, too.
      source: where it is defined.
    """

    name: str
    parameters: dict[str, str]
    any_parameter: bool
    source: "tuple[_Module, Definition]" = dataclasses.field(repr=False, compare=False)

    @functools.cached_property
    def parts(self) -> "dict[str, Part]":
        """Names in the annotations that no literal can stand for: our classes, and functions."""
        return _parts(*self.source)

    @functools.cached_property
    def result(self) -> "tuple[str, dict[str, Part]]":
        """What it makes, as an annotation, "" if its source does not say; and the parts in that."""
        place, node = self.source
        if isinstance(node, ast.ClassDef):
            return node.name, {node.name: self.source}
        return _text(node.returns), _named(place, [node.returns])


class _Module:
    """A source file: what it defines, and where its other names come from."""

    def __init__(self, path: pathlib.Path) -> None:
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.definitions: dict[str, Definition] = {
            node.name: node
            for node in self.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        self.functions = {  # types such as Schedule = Callable[…]
            _text(node.targets[0])
            for node in self.tree.body
            if isinstance(node, ast.Assign) and _text(node.value).startswith("Callable[")
        }
        self.imports: dict[str, tuple[str, str]] = {}  # module and name in it
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = node.module, alias.name


# Where a class is defined; None for a type of functions, such as `Schedule`.
Part = tuple[_Module, Definition] | None


@functools.cache
def _module(path: pathlib.Path) -> _Module:
    return _Module(path)


def _file_of(module: str) -> pathlib.Path | None:
    """The source of one of our modules; None for other modules."""
    path = ROOT.joinpath(*module.split("."))
    neighbour = CONFIGURATION.with_name(f"{module}.py")  # in the same folder as the configuration
    found = (path.with_suffix(".py"), path / "__init__.py", neighbour)
    return next((file for file in found if file.is_file()), None)


def _resolve(place: _Module, name: ast.expr) -> tuple[_Module, Definition] | None:
    """The definition that an expression names; None if it is not one of ours."""
    if isinstance(name, ast.Subscript):  # Generic[T]
        return _resolve(place, name.value)
    if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):
        module, inside = place.imports.get(name.value.id, ("", ""))
        file = _file_of(f"{module}.{inside}")
        return _defined(_module(file), name.attr) if file else None
    return _defined(place, name.id) if isinstance(name, ast.Name) else None


def _defined(place: _Module, name: str) -> tuple[_Module, Definition] | None:
    if name in place.definitions:
        return place, place.definitions[name]
    module, inside = place.imports.get(name, ("", ""))
    file = _file_of(module) if module else None
    return _defined(_module(file), inside) if file else None


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _parameters(place: _Module, node: Definition) -> tuple[dict[str, str], bool]:
    """Annotations by name, and whether there may be other parameters."""
    if isinstance(node, ast.FunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = {each.arg: _text(each.annotation) for each in arguments if each.arg != "self"}
        result = _resolve(place, node.returns) if node.args.kwarg and node.returns else None
        if result and isinstance(result[1], ast.ClassDef):  # other arguments are passed on to it
            return {**_parameters(*result)[0], **named}, False
        return named, node.args.kwarg is not None
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            return _parameters(place, inner)
    found: dict[str, str] = {}
    for base in reversed(node.bases):
        resolved = _resolve(place, base)
        if resolved and isinstance(resolved[1], ast.ClassDef):
            found |= _parameters(*resolved)[0]
    if _is_dataclass(node):
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                found.pop(line.target.id, None)
                value = _text(line.value)
                if "ClassVar" not in _text(line.annotation) and "init=False" not in value:
                    found[line.target.id] = _text(line.annotation)
    return found, False


def _parts(place: _Module, node: Definition) -> dict[str, Part]:
    """Our classes, and functions, in a definition's and its bases' annotations."""
    found = _named(
        place, [each.annotation for each in ast.walk(node) if isinstance(each, _ANNOTATED)]
    )
    others = node.bases if isinstance(node, ast.ClassDef) else [node.returns]
    for other in others:
        resolved = _resolve(place, other) if other else None
        if resolved:
            found = _parts(*resolved) | found
    return found


def _named(place: _Module, annotations: Iterable[ast.expr | None]) -> dict[str, Part]:
    """Our classes, and types of functions, that annotations name."""
    found: dict[str, Part] = {}
    for annotation in filter(None, annotations):
        for each in ast.walk(annotation):
            if not isinstance(each, ast.Name):
                continue
            resolved = _defined(place, each.id)
            if each.id in place.functions:
                found[each.id] = None
            elif resolved and isinstance(resolved[1], ast.ClassDef):
                found[each.id] = resolved
    return found


def can_be(part: Part, wanted: Part) -> bool:
    """Whether a class is another one, inherits from it, or has all methods of a protocol."""
    if part is None or wanted is None:
        return part is wanted
    if wanted[1] in (node for _, node in _family(*part)):
        return True
    is_protocol = any(_text(base) == "Protocol" for base in getattr(wanted[1], "bases", ()))
    return is_protocol and _methods(*wanted) <= _methods(*part)


def _family(place: _Module, node: Definition) -> "Iterator[tuple[_Module, Definition]]":
    """A class and those it inherits from."""
    yield place, node
    for base in getattr(node, "bases", ()):
        resolved = _resolve(place, base)
        if resolved:
            yield from _family(*resolved)


def _methods(place: _Module, node: Definition) -> set[str]:
    return {
        inner.name
        for _, each in _family(place, node)
        for inner in each.body
        if isinstance(inner, ast.FunctionDef)
    }


def _text(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def read_settings(source: pathlib.Path = CONFIGURATION) -> list[Setting]:
    """The objects that a file registers with gin by `gin.external_configurable`.

    Args:
      source: the file; it may loop over a tuple of names.

    Returns:
      The registered objects.
    """
    place = _module(source)
    found: list[Setting] = []
    for outer in ast.walk(place.tree):
        if isinstance(outer, ast.For) and isinstance(outer.iter, ast.Tuple | ast.List):
            if any(_registered(node) for node in ast.walk(outer)):
                found += [_setting(place, name, {}) for name in outer.iter.elts]
        elif (call := _registered(outer)) and _resolve(place, call.args[0]):
            keywords = {each.arg: each.value for each in call.keywords if each.arg}
            found.append(_setting(place, call.args[0], keywords))
    return found


def _registered(node: ast.AST) -> ast.Call | None:
    is_call = isinstance(node, ast.Call) and _text(node.func) == "gin.external_configurable"
    return node if is_call and isinstance(node, ast.Call) else None


def _setting(place: _Module, name: ast.expr, keywords: dict[str, ast.expr]) -> Setting:
    resolved = _resolve(place, name)
    if resolved is None:
        raise LookupError(f"{_text(name)} in {CONFIGURATION} is not defined here")
    known = ast.literal_eval(keywords["name"]) if "name" in keywords else resolved[1].name
    return Setting(known, *_parameters(*resolved), resolved)


def read_constants(source: pathlib.Path = CONFIGURATION) -> list[str]:
    """The names that a file registers with `gin.constant`."""
    calls = (node for node in ast.walk(_module(source).tree) if isinstance(node, ast.Call))
    return [ast.literal_eval(c.args[0]) for c in calls if _text(c.func) == "gin.constant"]


def read_tasks(source: pathlib.Path = TASKS) -> list[str]:
    """The tasks and mixtures that exist without any of the user's files."""
    found = []
    for node in _module(source).tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            first = node.value.args[0] if node.value.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.append(first.value)
    return found


@contextlib.contextmanager
def names_only(source: pathlib.Path = CONFIGURATION) -> Iterator[dict[str, Setting]]:
    """Lets gin read files as if a source were imported; nothing can be built from them.

    What modules register that the files import stays: Python imports a module only once.

    Args:
      source: the file that registers objects with gin.

    Yields:
      The settings by name.
    """
    settings = {setting.name: setting for setting in read_settings(source)}
    before, meanwhile = gin.config._REGISTRY, selector_map.SelectorMap()
    _copy_others(before, meanwhile, settings)
    gin.config._REGISTRY = meanwhile
    constants = [
        name
        for name in read_constants(source)
        if not gin.config._CONSTANTS.matching_selectors(name)
    ]
    try:
        for setting in settings.values():
            gin.external_configurable(_stand_in(setting), name=setting.name, module=_MODULE)
        for name in constants:
            gin.constant(name, "")
        yield settings
    finally:
        gin.clear_config()
        _copy_others(meanwhile, before, settings)
        gin.config._REGISTRY = before
        for name in constants:
            gin.config._CONSTANTS.pop(name)


def _copy_others(
    registry: selector_map.SelectorMap, to: selector_map.SelectorMap, settings: Iterable[str]
) -> None:
    """Copies all but the settings: gin's macros, and what modules of users register."""
    known = {f"{_MODULE}.{name}" for name in settings}
    for selector, configurable in registry.items():
        if selector not in known:
            to[selector] = configurable


def _stand_in(setting: Setting) -> Callable[..., None]:
    """A function with a setting's parameters that does nothing."""

    def nothing(**_: object) -> None: ...

    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in setting.parameters]
    if setting.any_parameter:
        parameters.append(kinds("others", kinds.VAR_KEYWORD))
    nothing.__name__ = setting.name
    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return nothing

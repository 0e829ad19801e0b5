"""Keeps the sampling program as it was traced, so that the next process need not trace it again.

JAX's compilation cache keeps machine code, but finds it by the lowered program. For a command that
answers one question, tracing and lowering the model takes as long as loading it. So if that cache
is a local folder, the lowered program is kept there, too (`jax.export`). Its key covers all that it
is made from: what `decode` is compiled for, the shapes, JAX's settings, the device, the versions
and the sources of this package.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import flax
import jax
import jaxlib
import numpy as np
from jax import export

from gophercite import storage
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.decoded import Decoded
from gophercite.kernels import attention
from gophercite.models.parameters import Params

_FOLDER = "sampling_programs"
_VERSIONS = 4  # number of versions whose programs are kept: the most recently used
_PACKAGE = pathlib.Path(__file__).resolve().parents[1]

# Custom calls of sampling programs: our own kernel, and cuDNN's attention. JAX doesn't promise that
# they stay compatible, but only the same version of JAX reads the file.
_CALLED = attention.NAME, "__cudnn$fmhaSoftmax", "__cudnn$fmhaScaleBiasSoftmax"

Program = Callable[..., Decoded]

_in_process: dict[pathlib.Path, Program] = {}  # programs from `compiled`, by their files


def compiled(plan: Plan, params: Params, *inputs: Any) -> Program:
    """Compiles `decode`, tracing it only if no earlier process has kept it.

    Args:
      plan: what the program is compiled for.
      params: the model's parameters, or their shapes and dtypes (`jax.ShapeDtypeStruct`).
      inputs: the other arguments of `decode`.

    Returns:
      A function of the parameters and of the other arguments, with these shapes.
    """
    path = _path(plan, params, inputs)
    if path is not None and path not in _in_process:
        program = _kept(plan, path, (params, *inputs))
        if program is not None:
            _in_process[path] = program
    if path in _in_process:
        return _in_process[path]
    decode.lower(plan, params, *inputs).compile()  # the calls will use it
    return functools.partial(decode, plan)


def ready(plan: Plan, params: Params, *inputs: Any) -> Program:
    """Returns a program at once: one that this process has from `compiled`, or else `decode`.

    Arguments are those of `compiled`. `decode` is traced and compiled when it is called.
    """
    path = _path(plan, params, inputs) if _in_process else None
    return _in_process[path] if path in _in_process else functools.partial(decode, plan)


def _kept(plan: Plan, path: pathlib.Path, arguments: tuple[Any, ...]) -> Program | None:
    """Compiles the program in a file, which is written first if it is missing or damaged.

    Returns None if `decode` can't be exported.
    """
    leaves, tree = jax.tree.flatten(arguments)
    exported = _read(path)
    if exported is None:

        def decode_leaves(*leaves: jax.Array) -> dict[str, jax.Array]:
            decoded = decode(plan, *jax.tree.unflatten(tree, leaves))
            return {name: part for name, part in decoded._asdict().items() if part is not None}

        called = [export.DisabledSafetyCheck.custom_call(name) for name in _CALLED]
        try:
            exported = export.export(jax.jit(decode_leaves), disabled_checks=called)(*leaves)
            program = bytes(exported.serialize())
        except (ValueError, NotImplementedError):  # it has a custom call that JAX doesn't export
            return None
        _write(path, program)
    with _no_lapack():
        lowered = jax.jit(exported.call).lower(*leaves)
    runs = lowered.compile()

    def run(*arguments: Any) -> Decoded:
        parts = runs(*jax.tree.leaves(arguments))
        return Decoded(**{name: parts.get(name) for name in Decoded._fields})

    return run


@contextlib.contextmanager
def _no_lapack() -> Iterator[None]:
    """JAX imports SciPy for every exported program (0.2 s), lest it call LAPACK; ours does not."""
    from jax._src.lax import linalg  # JAX has no public API for this

    load = linalg.initialize_lapack
    linalg.initialize_lapack = lambda: None
    try:
        yield
    finally:
        linalg.initialize_lapack = load


def _read(path: pathlib.Path) -> export.Exported | None:
    try:
        digest, _, program = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(program).hexdigest().encode() != digest:
        return None
    try:
        with contextlib.suppress(OSError):  # the versions used last are kept
            os.utime(path.parent)
        return export.deserialize(bytearray(program))
    except Exception:  # the file holds no program: trace it again and replace the file
        return None


def _write(path: pathlib.Path, program: bytes) -> None:
    """Keeps a program and deletes those of old versions; ignores errors such as a full disk."""
    digest = hashlib.sha256(program).hexdigest().encode()
    try:
        storage.write_file(path, digest + b"\n" + program)
        versions = sorted(path.parent.parent.iterdir(), key=lambda each: -each.stat().st_mtime)
        for version in versions[_VERSIONS:]:
            shutil.rmtree(version, ignore_errors=True)
    except OSError:
        pass


def _path(plan: Plan, params: Params, inputs: tuple[Any, ...]) -> pathlib.Path | None:
    """The file of a program; None if it should not be kept, or has no key that will recur."""
    # Unlike the values, the attributes include what a `with` has set; some settings have none.
    usual = sorted(jax.config.values.items())
    settings = {name: getattr(jax.config, name, value) for name, value in usual}
    cache = settings["jax_compilation_cache_dir"]
    if not cache or not settings["jax_enable_compilation_cache"] or storage.is_remote(cache):
        return None
    leaves, tree = jax.tree.flatten((params, *inputs))
    if jax.process_count() > 1 or any(is_spread(leaf) for leaf in leaves):
        return None
    made_from = (
        plan,
        tree,
        [(leaf.shape, str(leaf.dtype), getattr(leaf, "weak_type", False)) for leaf in leaves],
        settings,
        [(device.platform, device.device_kind) for device in jax.local_devices()],
        sorted({device.id for leaf in jax.tree.leaves(params) for device in _devices(leaf)}),
        attention.is_available(),  # which also makes it callable
    )
    described = repr(made_from)
    if " at 0x" in described:  # an address, which differs in the next process
        return None
    name = hashlib.sha256(described.encode()).hexdigest()[:32]
    return pathlib.Path(cache, _FOLDER, _version(), name)


def is_spread(leaf: Any) -> bool:
    """Whether an array is on several devices, so that its program depends on a mesh."""
    return len(_devices(leaf)) > 1


def _devices(leaf: Any) -> set[jax.Device]:
    """The devices that an array is on; if it is on none yet, the one that it will be put on."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is not None:
        return set(sharding.device_set)
    usual = jax.config.jax_default_device  # type: ignore[attr-defined]
    return {usual if isinstance(usual, jax.Device) else jax.local_devices(backend=usual)[0]}


@functools.cache
def _version() -> str:
    """A digest of the package's sources and of the libraries that trace and lower them."""
    digest = hashlib.sha256()
    versions = (jax, jaxlib, flax, np)
    for version in [platform.python_version(), *(each.__version__ for each in versions)]:
        digest.update(f"{version}\n".encode())
    for source in sorted(_PACKAGE.rglob("*.py")):
        content = source.read_bytes()
        digest.update(f"{source.relative_to(_PACKAGE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:32]

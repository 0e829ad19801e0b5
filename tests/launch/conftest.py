"""What tests of the commands share."""

import functools
import types
from collections.abc import Iterator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from gophercite.training.program import Program
from tests.shared_programs import shared_programs


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A flag for runs of the same settings: what one has compiled, the next one only reads."""
    folder = str(tmp_path_factory.mktemp("cache"))
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = [getattr(jax.config, name) for name in names]
    for name, value in zip(names, (folder, 0.0), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # or JAX goes on without, as it began
    yield f"--compilation_cache={folder}"
    for name, value in zip(names, before, strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def two_devices() -> Iterator[None]:
    """Runs are on two of the devices: their programs are cut as for eight, and take less."""
    import configuration  # with TensorFlow, which many tests do without

    of_two = functools.partial(configuration.make_mesh, devices=jax.devices()[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration, "make_mesh", of_two)
        yield


@pytest.fixture(scope="module")
def same_programs() -> Iterator[None]:
    """Runs of a file whose batches and states have the same shapes share their compiled programs.

    So all of their settings that these programs depend on must be the same.
    """
    with shared_programs(lambda program: type(program.learner)):
        yield


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dry runs compile no step, and show no memory: test_train.py has one that does."""
    compiled = types.SimpleNamespace(memory_analysis=lambda: None)
    monkeypatch.setattr(Program, "compile_update", lambda *_: compiled)

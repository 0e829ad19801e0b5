"""What tests of the commands share."""

from collections.abc import Iterator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


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

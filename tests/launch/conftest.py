"""What tests of the commands share: these turn JAX's compilation cache on; others do without."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _cache_as_before():
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)

"""Before anything of ours is imported: eight simulated devices, and signatures that are checked."""

import atexit
import functools
import gc
import os
import shutil
import signal
import sqlite3  # noqa: F401  before TensorFlow's, which lacks what ours uses
import tempfile

# A shell lets what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What programs keep for the user, and what libraries leave behind, goes into a folder that is taken
# away in the end; processes side by side share that of the first. pytest keeps its own folders.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="gophercite-tests-")
    os.chmod(tempfile.tempdir, 0o711)  # PostgreSQL runs as a user of its own
    os.environ["XDG_CACHE_HOME"] = os.path.join(tempfile.tempdir, "cache")
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# XLA runs the collectives of simulated devices in a pool with one thread a core, and each holds its
# thread until all devices have come. When two of a program are ready at once and cores are few, the
# last devices find no thread and none ever goes on.
os.environ.setdefault("PJRT_NPROC", "32")
# On a busy machine devices may wait for one another for longer than the 40 seconds after which they
# pass for stuck, and the process is aborted. And most of the tests' time went into compiling
# programs that run for milliseconds: LLVM is asked for no more than it must do, in one piece, and
# loops are written by XLA's older emitters, which take a third of the time. XLA's own passes are
# all made.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_collective_call_terminate_timeout_seconds=900 "
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_use_fusion_emitters=false",
)
# Where in the source each operation comes from is of use to those who read programs, and takes a
# tenth of the time until they run.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

from collections.abc import Iterator

# Nearly all that is made while libraries are imported and tests are collected stays.
gc.disable()

import hypothesis
import jax
import jaxtyping
import pytest
from jax._src.interpreters import mlir
from jax.experimental.compilation_cache import compilation_cache

import tests.signatures  # noqa: F401  the hook below imports its first word only
from gophercite import importing
from tests.long_forms import IS_LONG

# Modules whose types and shapes every call in a test is checked against.
CHECKED = [
    *(
        f"gophercite.learning.{name}"
        for name in ("adafactor", "adam", "clipping", "ema", "optimizers", "rounding", "schedules")
    ),
    "gophercite.model_folders.config_json",
    "gophercite.model_folders.folder",
    "gophercite.model_folders.tensors",
]

jax.config.update("jax_num_cpu_devices", 8)
# That of the environment is for the programs that tests start.
jax.config.update("jax_compilation_cache_dir", None)
jaxtyping.install_import_hook(CHECKED, "tests.signatures.checked")

# JAX gives each program's MLIR a context of its own, which takes 5 milliseconds and a megabyte.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)

# What a file has compiled is hardly ever asked for by another one.
MANY_PROGRAMS = 300
_compiled = 0


def _count(event: str, _seconds: float, **_: str | int) -> None:
    global _compiled
    _compiled += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.fixture(scope="module", autouse=True)
def _forget_programs() -> Iterator[None]:
    global _compiled
    yield
    if _compiled > MANY_PROGRAMS:
        jax.clear_caches()
        _compiled = 0


@pytest.fixture(autouse=True)
def _cache_as_before() -> Iterator[None]:
    """Commands turn JAX's compilation cache on; the tests after one do without."""
    before = jax.config.values["jax_compilation_cache_dir"]
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    if before is None:
        compilation_cache.reset_cache()  # or JAX goes on to write what it compiles there


# What takes longest comes first, so that no process is left alone with it in the end. Rooms whose
# tests wait a lot, for processes and for Chromium, lie apart: others compute meanwhile.
FIRST = (
    *("launch", "notebooks", "kernels", "learning", "training", "quoting", "decoding"),
    *("ratings", "planning", "browsing", "models", "weights", "answering", "evaluation"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.path.parent.name
        return FIRST.index(folder) if folder in FIRST else len(FIRST)

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    # What was imported stays: Python need not look through it again and again for what can go.
    gc.freeze()
    gc.enable()
    # Nor often: tracing and lowering make many objects at once, and most of them stay.
    importing.look_for_garbage_rarely()


# A deadline for each example tells how busy the machine is, not whether the code is right. Each run
# draws other examples, so many runs with a few see as much as few with many.
hypothesis.settings.register_profile("ours", deadline=None, max_examples=100 if IS_LONG else 40)
hypothesis.settings.load_profile("ours")

import dataclasses
import functools
import hashlib
import os
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lax import linalg
from jax.experimental.compilation_cache import compilation_cache

from gophercite.decoding import kept_programs
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from tests.drawn_parameters import drawn_parameters
from tests.quoting.quote_worlds import HOSTILE_PIECES, TokenList

VOCABULARY = TokenList(HOSTILE_PIECES)
CONFIG = TransformerConfig(
    vocab_size=VOCABULARY.size, d_model=16, num_layers=1, num_heads=2, head_dim=8, dtype="float32",
    scan_layers=False,
)  # fmt: skip
MODEL = Transformer(CONFIG)
SETTINGS = SamplingSettings(max_tokens=20, temperature=1.5)
CONSTRAINT = QuoteConstraint(VOCABULARY)
QUOTES = CONSTRAINT.tables([CONSTRAINT.graph([Document("a", "a", "The cat sat.")])], 20)
TRACED: list[str] = []


@functools.cache
def parameters():
    return drawn_parameters(MODEL)


def note_trace(event: str, _seconds: float, **details: str | int) -> None:
    if event == "/jax/core/compile/jaxpr_trace_duration":
        TRACED.append(str(details.get("fun_name")))


jax.monitoring.register_event_duration_secs_listener(note_trace)


def run(**options):
    """Samples of another process, and whether it had to trace the program."""
    jax.clear_caches()
    kept_programs._in_process.clear()
    return run_again(**options)


def run_again(**options):
    TRACED.clear()
    options = {"settings": SETTINGS, "quotes": QUOTES, "branches": (), **options}
    key, ends = jax.random.key(1), {"eos_id": VOCABULARY.eos_id, "pad_id": VOCABULARY.pad_id}
    drawn = sample(MODEL, parameters(), [[3, 4, 5]], key, samples_per_prompt=4, **ends, **options)
    return drawn, any(name.startswith("decode") for name in TRACED)


def coming():
    return parameters()


@pytest.fixture
def cache(tmp_path):
    """The folder of JAX's compilation cache."""
    settings = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = [jax.config.values[name] for name in settings]
    for name, value in zip(settings, (str(tmp_path), 0.5), strict=True):
        jax.config.update(name, value)
    yield tmp_path
    kept_programs._in_process.clear()
    for name, value in zip(settings, before, strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def kept(cache: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in cache.glob("sampling_programs/*/*") if path.is_file()]


def same(one, other):
    for part, again in zip(one, other, strict=True):
        np.testing.assert_array_equal(part, again)


@pytest.fixture(scope="module")
def plain():
    return run()[0]


def test_a_program_is_traced_once_and_draws_the_same_samples(cache, plain, monkeypatch):
    def load_scipy():
        raise AssertionError("SciPy takes long to import, and no sampling program needs it")

    monkeypatch.setattr(linalg, "initialize_lapack", load_scipy)
    others = [cache / "sampling_programs" / f"version_{age}" for age in range(5)]
    for age, version in enumerate(others):
        version.mkdir(parents=True)
        os.utime(version, (1e9 - age, 1e9 - age))
    first, traced = run(coming=coming)
    assert traced
    (file,) = kept(cache)
    assert [version.exists() for version in others] == [True, True, True, False, False]
    second, traced = run(coming=coming)
    assert not traced
    assert linalg.initialize_lapack is load_scipy, "other programs may need it"
    same(plain, first)
    same(plain, second)
    for waits in (None, coming):  # the same process: for the next question, or to draw again
        more, traced = run_again(coming=waits)
        assert not traced
        same(plain, more)

    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    third, traced = run(coming=coming)
    assert traced
    same(plain, third)
    assert kept_programs._read(file) is not None

    # Where nothing can be written, the program runs all the same.
    shutil.rmtree(cache / "sampling_programs")
    (cache / "sampling_programs").write_text("not a folder")
    fourth, traced = run(coming=coming)
    assert traced
    same(plain, fourth)


def test_a_file_that_is_no_program_is_passed_over_and_reading_is_use(tmp_path):
    file = tmp_path / "version" / "program"
    file.parent.mkdir()
    for program in (b"", b"hellohello", bytes(1000)):
        file.write_bytes(hashlib.sha256(program).hexdigest().encode() + b"\n" + program)
        os.utime(file.parent, (1e9, 1e9))
        assert kept_programs._read(file) is None
        assert file.parent.stat().st_mtime > 1e9


def place(plan=None, params=None, tokens=(1, 3), **changes):
    usual = Plan(MODEL, SETTINGS, 1, 0, VOCABULARY.size, samples=4, rows=4)
    inputs = jnp.zeros(tokens, jnp.int32), jnp.ones(tokens[0], jnp.int32), QUOTES
    params = params or parameters()
    return kept_programs._path(dataclasses.replace(plan or usual, **changes), params, inputs)


def test_what_a_program_is_made_from_tells_it_from_others(cache):
    usual = place()
    assert usual == place()
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), parameters())
    lower = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), parameters())
    assert place(params=lower) == usual  # parameters that are still to come
    wider = dataclasses.replace(CONFIG, rope_theta=500.0)
    others = [
        place(samples=5),
        place(settings=dataclasses.replace(SETTINGS, temperature=1.0)),
        place(transformer=Transformer(wider)),
        place(tokens=(1, 4)),
        place(tokens=(2, 3)),
        place(params=half),
        place(params=jax.device_put(parameters(), jax.local_devices()[1])),
    ]
    with jax.default_matmul_precision("bfloat16"):
        others.append(place())
    assert len({usual, *others}) == len(others) + 1


def test_nothing_is_kept_without_a_local_folder_or_for_several_devices(cache):
    assert place() is not None
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    spread = jax.NamedSharding(mesh, jax.P())
    assert place(params=jax.device_put(parameters(), spread)) is None
    for folder in (None, "gs://bucket/compiled"):
        jax.config.update("jax_compilation_cache_dir", folder)
        assert place() is None


def test_other_sources_are_another_version(tmp_path, monkeypatch):
    def version(**sources: str) -> str:
        for old in tmp_path.rglob("*.py"):
            old.unlink()
        for name, text in sources.items():
            (tmp_path / f"{name}.py").write_text(text)
        return kept_programs._version.__wrapped__()

    monkeypatch.setattr(kept_programs, "_PACKAGE", tmp_path)
    usual = version(a="x = 1\n", b="y = 1\n")
    assert usual == version(b="y = 1\n", a="x = 1\n")
    others = (
        version(a="x = 2\n", b="y = 1\n"),
        version(a="x = 1\n", c="y = 1\n"),
        version(a="x = 1\n"),
    )
    assert len({usual, *others}) == 4

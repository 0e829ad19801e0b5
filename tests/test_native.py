"""Machine code is kept between runs, and only as long as it is that of the sources."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

from gophercite import native

# Imports numba once, and goes on in a new process for each step: the next one waits for its end.
STEPS = """
import os, sys
import gophercite.native

for text in {texts!r}:
    with open("called.py", "w") as called:
        called.write(text)
    process = os.fork()
    if process == 0:
        import caller
        sys.stdout.flush()
        assert "numba.np.arraymath" in sys.modules and "scipy.linalg" not in sys.modules
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
"""
CALLER = """
from gophercite.native import native
from called import FACTOR, added

@native
def answer(x):
    return FACTOR * added(x)

print(answer(5), sum(answer.stats.cache_hits.values()))
"""
CALLED = """
from gophercite.native import native, native_inline

FACTOR = {factor}

@native{inline}
def added(x):
    return x + {term}
"""


STEPS_AND_ANSWERS = [
    ((2, 1, ""), [12, 0]),
    ((2, 1, ""), [12, 1]),
    ((2, 2, ""), [14, 0]),
    ((3, 2, ""), [21, 0]),
    ((3, 4, "_inline"), [27, 0]),
    ((3, 4, "_inline"), [27, 1]),
    ((3, 4, ""), [27, 0]),
]


def test_machine_code_is_kept_until_what_a_function_calls_has_changed(
    tmp_path: pathlib.Path,
) -> None:
    """What a process answers, and how often it found its machine code."""
    (tmp_path / "caller.py").write_text(CALLER)
    texts = [
        CALLED.format(factor=factor, term=term, inline=inline)
        for (factor, term, inline), _ in STEPS_AND_ANSWERS
    ]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    environment.pop("NUMBA_CACHE_DIR", None)
    made = subprocess.run(
        [sys.executable, "-B", "-c", STEPS.format(texts=texts)],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = [[int(number) for number in line.split()] for line in made.stdout.splitlines()]
    assert found == [answers for _, answers in STEPS_AND_ANSWERS]


def test_numba_looks_for_scipy_when_matrices_are_multiplied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a notebook's own functions may; not while numba itself is imported."""
    asked: list[bool] = []
    ensure = native._later(lambda: asked.append(True))
    importing = types.ModuleType("numba.np.arraymath")
    monkeypatch.setitem(sys.modules, importing.__name__, importing)
    ensure()
    assert not asked
    importing._HAVE_BLAS = True  # type: ignore[attr-defined]
    ensure()
    assert asked

"""Machine code is kept between runs, and only as long as it is that of the sources."""

import os
import pathlib
import subprocess
import sys

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


def run(folder: pathlib.Path, factor: int, term: int, inline: str = "") -> list[int]:
    """What the caller answers in a process of its own, and how often it found its machine code."""
    called = folder / "called.py"
    text = CALLED.format(factor=factor, term=term, inline=inline)
    if not called.exists() or called.read_text() != text:
        called.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    environment.pop("NUMBA_CACHE_DIR", None)
    made = subprocess.run(
        [sys.executable, "-B", "caller.py"],
        cwd=folder, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [int(number) for number in made.stdout.split()]


def test_machine_code_is_kept_until_what_a_function_calls_has_changed(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    assert run(tmp_path, 2, 1) == [12, 0]
    assert run(tmp_path, 2, 1) == [12, 1]
    assert run(tmp_path, 2, 2) == [14, 0]
    assert run(tmp_path, 3, 2) == [21, 0]
    assert run(tmp_path, 3, 4, "_inline") == [27, 0]
    assert run(tmp_path, 3, 4, "_inline") == [27, 1]
    assert run(tmp_path, 3, 4) == [27, 0]

"""Where the tests' time goes: by folder and by file, in Python, in XLA's compiler, in processes.

    python benchmarks/suite_time.py
    python benchmarks/suite_time.py tests/learning tests/decoding

Runs pytest as launch/test.sh does, with this module as its plugin, and prints a table: computing
seconds of the tests themselves and of the processes that they start, and of the former, seconds in
JAX's tracing, lowering and compiling (by the clock), with the number of programs.
"""

import collections
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest

FOLDER = "SUITE_TIME"  # of the environment: where each process writes its tests' times
PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
COLUMNS = "own", "started", "trace", "lower", "compile", "programs"
_phases: collections.Counter[str] = collections.Counter()


# --- The plugin, in each of pytest's processes ---


def _computing() -> tuple[float, float]:
    """Seconds of this process, and of those that it started and waited for."""
    own, started = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, started.ru_utime + started.ru_stime


def _count(event: str, seconds: float, **_: Any) -> None:
    if phase := PHASES.get(event):
        _phases[phase] += seconds
        _phases["programs"] += phase == "compile"


def _write(test: str, own: float, started: float) -> None:
    if folder := os.environ.get(FOLDER):
        with (pathlib.Path(folder) / str(os.getpid())).open("a") as file:
            file.write(json.dumps({"test": test, "own": own, "started": started, **_phases}) + "\n")


def pytest_collection_finish() -> None:
    """Notes what importing and collecting took, and begins to count programs."""
    import jax  # not before tests/conftest.py, which sets what it reads

    jax.monitoring.register_event_duration_secs_listener(_count)
    _write("imports", *_computing())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Notes what a test took, its fixtures included."""
    _phases.clear()
    before = _computing()
    result = yield
    _write(item.nodeid, *(now - then for now, then in zip(_computing(), before, strict=True)))
    return result


# --- The table ---


def _times(folder: pathlib.Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The file of each test, or "imports", and its times."""
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            times = json.loads(line)
            yield times.pop("test").partition("::")[0], times


def table(folder: pathlib.Path, files: int = 30) -> str:
    """A row for all tests, for each folder, and for the files that take longest."""
    kinds: list[dict[str, collections.Counter[str]]] = [{}, {}, {}]
    for file, times in _times(folder):
        names = "all", str(pathlib.PurePath(file).parent), file
        for kind, name in zip(kinds, names, strict=True):
            kind.setdefault(name, collections.Counter()).update(times)
    lines = [" ".join(f"{column:>8}" for column in COLUMNS)]
    for kind in kinds:
        longest = sorted(kind.items(), key=lambda each: -each[1]["own"] - each[1]["started"])
        for name, times in longest[:files]:
            lines.append(" ".join(f"{times[column]:8.1f}" for column in COLUMNS) + f"  {name}")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    root = pathlib.Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.suite_time"]
        command += ["--numprocesses", str(min(4, (os.cpu_count() or 1) + 1)), "--dist", "loadfile"]
        command += ["--no-loadscope-reorder", *sys.argv[1:]]
        environment = os.environ | {FOLDER: folder, "JAX_PLATFORMS": "cpu"}
        status = subprocess.run(command, cwd=root, env=environment, check=False).returncode
        print(table(pathlib.Path(folder)))
    return status


if __name__ == "__main__":
    sys.exit(main())

"""The kernel as it is compiled for older processors, and so that a read out of bounds ends it."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

from tests.long_forms import LONG

ROOT = pathlib.Path(__file__).parents[2]
ON_X86 = platform.machine() in ("x86_64", "AMD64")


def run(flags: str, **environment: str) -> None:
    """Runs the kernel's tests with other flags of the compiler."""
    file = "tests/kernels/test_attention.py"
    # How threads meet does not depend on the build, and takes most of the time under a sanitizer.
    left_out = f"--deselect={file}::test_calls_at_the_same_time_do_not_meet"
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", file, left_out]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "CXXFLAGS": flags} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert " passed" in ended.stdout


def library_of_gcc(name: str) -> str | None:
    """Where a library is that comes with GCC; None if it isn't there."""
    if shutil.which("g++") is None:
        return None
    said = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = said.stdout.strip()
    return path if pathlib.Path(path).is_absolute() else None


@pytest.mark.skipif(library_of_gcc("libasan.so") is None, reason="needs g++ with AddressSanitizer")
def test_nothing_is_read_out_of_bounds_and_haswell_s_registers_suffice():
    # Both in one build: each takes as long as the other.
    flags = "-Og -fsanitize=address" + (" -march=haswell" if ON_X86 else "")
    first = " ".join(filter(None, map(library_of_gcc, ("libasan.so", "libstdc++.so.6"))))
    run(flags, CXX="g++", LD_PRELOAD=first, ASAN_OPTIONS="detect_leaks=0")


@LONG
@pytest.mark.skipif(not ON_X86, reason="x86's processors")
@pytest.mark.parametrize("processor", ["haswell", "sandybridge", "nehalem"])
def test_the_kernel_is_right_on_older_processors(processor: str) -> None:
    run(f"-march={processor}")

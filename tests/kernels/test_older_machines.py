"""Kernels as they are compiled for machines with shorter registers than this one may have."""

import os
import pathlib
import platform
import subprocess
import sys

import llvmlite.binding
import pytest

from tests.long_forms import LONG

ROOT = pathlib.Path(__file__).parents[2]
HAS_AVX_512 = llvmlite.binding.get_host_cpu_features().get("avx512f", False)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86's features")
@pytest.mark.parametrize(
    ("name", "features"),
    [
        pytest.param(
            "haswell",
            "+sse4.2,+avx,+avx2,+fma",
            marks=pytest.mark.skipif(
                not HAS_AVX_512, reason="this machine is one: the tests beside this were on it"
            ),
        ),
        pytest.param("sandybridge", "+sse4.2,+avx,-avx2,-fma", marks=LONG),
    ],
)
def test_kernels_are_right_without_avx_512(
    name: str, features: str, tmp_path: pathlib.Path
) -> None:
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    tests = [f"tests/kernels/test_{name}.py" for name in ("lanes", "attention")]
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *tests]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert " passed" in ended.stdout

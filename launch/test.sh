#!/usr/bin/env bash
# Checks style, then runs the tests and checks types. Arguments go to pytest:
#
#   launch/test.sh                        everything
#   launch/test.sh tests/test_evidence.py -k parse
set -euo pipefail
source "$(dirname "$0")/environment.sh"

# Tests run the same everywhere; tests with many devices simulate them on the CPU.
export JAX_PLATFORMS=cpu
# The tests' many processes share Python's compiled bytecode, if it can be stored.
unset PYTHONDONTWRITEBYTECODE
# The programs that they start share their compiled programs with runs in this checkout.
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$ROOT/.jax_cache}"

# The TPU's own compiler, for testing plans; kept apart, so that nothing else looks for TPUs.
LIBTPU="libtpu==0.0.42.1" # the one that the pinned jax asks for
if [ "$(cat .venv/libtpu/installed 2>/dev/null)" != "$LIBTPU" ]; then
  rm -rf .venv/libtpu
  python -m pip install --quiet --disable-pip-version-check --no-deps --target .venv/libtpu "$LIBTPU" &&
    echo "$LIBTPU" >.venv/libtpu/installed ||
    echo "libtpu could not be fetched: the tests that need it are skipped" >&2
fi

ruff check .
ruff format --check .
# Types are checked in what the tests leave of the cores, and what is said of them comes last. The
# kernel is compiled once for all processes.
TYPES="$(mktemp)"
trap 'rm -f "$TYPES"' EXIT
nice -n 19 mypy ${CI:+--cache-dir=/dev/null} >"$TYPES" 2>&1 & # nobody asks CI a second time
MYPY=$!
python -c "from gophercite.kernels.attention import is_available; is_available()"
# In a fresh clone one process makes the bytecode that the others would each make at the same time.
compgen -G "tests/__pycache__/conftest.*-pytest-*.pyc" >/dev/null ||
  python -m pytest --collect-only --quiet >/dev/null || true  # what is wrong is said below

# Whole files run in parallel, so that fixtures shared within a file are built once, in the order of
# tests/conftest.py; in one process more than there are cores, because some tests wait for other
# processes. If a process dies, the run ends: its test would only die again.
PROCESSES="$(python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')"
STATUS=0
python -m pytest --numprocesses "$PROCESSES" --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0 "$@" || STATUS=$?
wait "$MYPY" || STATUS=$?
cat "$TYPES"
exit "$STATUS"

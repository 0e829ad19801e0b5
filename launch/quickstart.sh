#!/usr/bin/env bash
# Fine-tunes the bundled small model on the sample world, then lets it answer questions about names
# that it never saw, and checks every quote against its page.
#
#   launch/quickstart.sh [MODEL_DIR] [arguments of launch/train.py …]
#
# MODEL_DIR defaults to runs/quickstart. An interrupted run resumes from its newest
# checkpoint; a finished one is evaluated again.
set -euo pipefail
source "$(dirname "$0")/environment.sh"

model_dir=runs/quickstart
if [[ $# -gt 0 && "$1" != -* ]]; then
  model_dir="$1"
  shift
fi

python launch/train.py \
  --gin_file=gin_configs/sft_sample_world.gin \
  --gin.MODEL_DIR="$model_dir" \
  "$@"

# Pages and questions of the world's test split: no name in them occurs in the training split.
python -m data_pipelines.sample_world --out "$model_dir/sample_world" --questions 200 >/dev/null
evaluate() { # OUTPUT FLAG …
  local output="$1"
  shift
  python launch/eval.py \
    --model "$model_dir" \
    --questions "$model_dir/sample_world/questions_test.jsonl" \
    --max-tokens 128 \
    --output "$model_dir/$output" \
    "$@"
}
evaluate test --examples 5
# Once more, allowing only answers that are well formed and verbatim (docs/constrained.md).
evaluate test_constrained --constrained --no-baselines --examples 1

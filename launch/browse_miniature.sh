#!/usr/bin/env bash
# Learning to browse in miniature: a web, behaviour cloning, comparisons, a reward model, PPO, and
# best of n for both policies (docs/learning_to_browse.md).
#
#   launch/browse_miniature.sh [MODEL_DIR] [--help]
#   SEED=1 launch/browse_miniature.sh runs/browse_miniature_1
#
# MODEL_DIR defaults to runs/browse_miniature. Started again, it resumes.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec python launch/browse_miniature.py --seed "${SEED:-0}" "$@"

#!/usr/bin/env bash
# Learning to browse in miniature: a web, behaviour cloning, comparisons, a reward model, PPO, and
# best-of-n of both policies (docs/learning_to_browse.md).
#
#   launch/browse_miniature.sh [MODEL_DIR] [--help]
#   SEED=1 launch/browse_miniature.sh runs/browse_miniature_1
#
# MODEL_DIR is runs/browse_miniature when not given. Started again, it goes on where it was.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec python launch/browse_miniature.py --seed "${SEED:-0}" "$@"

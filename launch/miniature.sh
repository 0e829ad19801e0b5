#!/usr/bin/env bash
# The whole paper in miniature: from the bundled pretrained model to a report on the effect of
# supervised fine-tuning, a reward model and reinforcement learning (docs/miniature.md).
#
#   launch/miniature.sh [MODEL_DIR] [--seeds N] [--help]
#   SEED=1 launch/miniature.sh runs/miniature_1
#
# MODEL_DIR defaults to runs/miniature. Started again, it resumes.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec python launch/miniature.py --seed "${SEED:-0}" "$@"

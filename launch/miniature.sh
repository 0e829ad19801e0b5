#!/usr/bin/env bash
# The whole paper in miniature: from the bundled pretrained model to a report on what supervised
# fine-tuning, a reward model and reinforcement learning make of it (docs/miniature.md).
#
#   launch/miniature.sh [MODEL_DIR] [--seeds N] [--help]
#   SEED=1 launch/miniature.sh runs/miniature_1
#
# MODEL_DIR is runs/miniature when not given. Started again, it goes on where it was.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec python launch/miniature.py --seed "${SEED:-0}" "$@"

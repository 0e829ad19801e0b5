#!/usr/bin/env bash
# The loop of figure 3: sample, rate, train, evaluate, and repeat (docs/loop.md).
#
#   launch/loop.sh FOLDER --gin_file=FILE [--gin.NAME=VALUE …] [--seeds N] [--help]
#
# Started again, it resumes.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec python launch/loop.py "$@"

#!/usr/bin/env bash
# Runs on a worker of a TPU VM, where launch/tpu.py copies it: a training run that outlives the
# connection.
#
#   tpu_worker.sh start RUN ARCHIVE [FLAGS]   unpacks the code, makes the environment, trains
#   tpu_worker.sh status                      reports the state of the training run
#   tpu_worker.sh logs LINES                  prints the end of its log
#   tpu_worker.sh stop                        tells it to save and end
#
# RUN identifies the training run. An active one is not started again: a lock is held as long as
# any of
# its processes lives. A finished one starts again, because other workers may need it to end with
# them.
set -u
CODE="$HOME/gophercite"
STATE="$HOME/gophercite-run"
WORKER="$(hostname)"

# One line for launch/tpu.py: host, absent, running or ended, which run, exit status, last line.
report() {
  local state=absent run=- status=- line=
  [ -s "$STATE/run" ] && run="$(cat "$STATE/run")"
  if [ -e "$STATE/lock" ] && ! flock -n "$STATE/lock" true; then
    state=running
  elif [ -s "$STATE/status" ]; then
    state=ended
    status="$(cat "$STATE/status")"
  fi
  [ -e "$STATE/log" ] && line="$(tail -n 1 "$STATE/log" | tr -d '\000-\037\177' | cut -c 1-200)"
  printf 'gophercite-worker\t%s\t%s\t%s\t%s\t%s\n' "$WORKER" "$state" "$run" "$status" "$line"
}

start() {
  mkdir -p "$STATE"
  exec 9>>"$STATE/lock"
  if flock -n 9; then
    rm -f "$STATE/status" "$STATE/pid"
    echo "$1" >"$STATE/run"
    # Descriptor 9, and with it the lock, is inherited by everything it starts.
    setsid nohup bash "$0" work "${@:2}" >>"$STATE/log" 2>&1 </dev/null &
    exec 9>&-
  fi
  report
}

# The process that `start` leaves running: its exit status is saved before the lock is released.
work() {
  local told= child= code
  trap 'told=1; [ -n "$child" ] && kill -TERM "$child"' TERM
  echo $$ >"$STATE/pid"
  echo "$(date -u +%FT%TZ) $(cat "$STATE/run") begins"
  train "$@" &
  child=$!
  wait "$child"
  code=$?
  while [ -n "$told" ] && kill -0 "$child" 2>/dev/null; do # a signal ended the waiting, not the training
    wait "$child"
    code=$?
  done
  echo "$(date -u +%FT%TZ) $(cat "$STATE/run") ended with status $code"
  echo "$code" >"$STATE/status"
}

train() {
  mkdir -p "$CODE" && cd "$CODE" || exit 1
  find . -mindepth 1 -maxdepth 1 ! -name .venv ! -name .jax_cache -exec rm -rf {} +
  tar -xzf "$HOME/$1" || exit 1
  source launch/tpu_setup.sh || exit 1
  exec python launch/keep_running.py -- python launch/train.py --distributed "${@:2}"
}

case "${1-}" in
  start | work) "$@" ;;
  status) report ;;
  logs) tail -n "$2" "$STATE/log" 2>&1 | tr -d '\000-\010\013-\037\177' | sed "s/^/$WORKER| /" ;;
  stop)
    if [ -e "$STATE/lock" ] && ! flock -n "$STATE/lock" true; then
      [ -s "$STATE/pid" ] && kill -TERM "$(cat "$STATE/pid")"
    fi
    report
    ;;
  *)
    echo "tpu_worker.sh: start, status, logs or stop" >&2
    exit 2
    ;;
esac

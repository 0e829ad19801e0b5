#!/usr/bin/env bash
# A real language model learns to browse real pages, and answers questions about pages that it never
# saw, beside `ask` with the model that it began with (docs/browsing_real_pages.md).
#
#   launch/browse_real_pages.sh DATA
#   STEPS=1000 launch/browse_real_pages.sh DATA
#
# DATA holds the public files (docs/public_data.md says where they come from); all output is in
# runs/real_pages. What already exists is not built again, and an interrupted training run resumes
# from its newest checkpoint. STEPS is the number of training steps (default 900).
set -euo pipefail

advice="docs/public_data.md says where each file comes from"
if [ $# -ne 1 ]; then
  echo "usage: launch/browse_real_pages.sh DATA (a folder; $advice)" >&2
  exit 2
fi
if [ ! -d "$1" ]; then
  echo "$1: there is no such folder; $advice" >&2
  exit 1
fi
data="$(cd "$1" && pwd)"
for name in squad/wikipedia.json.gz squad/shifts_new_wiki.json.gz \
  natural_questions/gold_passages.jsonl.gz; do
  if [ ! -e "$data/$name" ]; then
    echo "$1/$name: there is no such file; $advice" >&2
    exit 1
  fi
done

source "$(dirname "$0")/environment.sh"
made=runs/real_pages
sets="wikipedia new_wiki natural_questions"
rules="--view-lines 16 --lines-above 4 --results 5"
mkdir -p "$made/data"

# Writes standard output to a file that exists only when it is complete.
whole() { # FILE
  cat >"$1.partial"
  mv "$1.partial" "$1"
}

# 1. Pages and questions. Articles never cross splits: those of the test stay unseen.
convert() { # FORMAT NAME FILE [OPTION]
  [ -e "$made/data/$2" ] && return
  rm -rf "$made/data/$2.partial"
  python -m data_pipelines.convert "$1" "$data/$3" "$made/data/$2.partial" \
    --validation 0.03 --test 0.1 "${@:4}"
  mv "$made/data/$2.partial" "$made/data/$2"
}
convert squad wikipedia squad/wikipedia.json.gz --articles
convert squad new_wiki squad/shifts_new_wiki.json.gz --articles
convert natural_questions natural_questions natural_questions/gold_passages.jsonl.gz
for split in train test; do
  for name in $sets; do cat "$made/data/$name/questions_$split.jsonl"; done |
    whole "$made/questions_$split.jsonl"
done
if [ ! -e "$made/sets/questions_test.jsonl" ]; then # about a hundred of the test questions
  python -m data_pipelines.question_sets "$made/questions_test.jsonl" "$made/sets" \
    --share test=1 --share others=17
fi

# 2. A web of all these pages, and of 92 pages with links if they are there.
if [ ! -e "$made/world" ]; then
  others=()
  [ -e "$data/html/articles.jsonl.gz" ] && others=("$data/html/articles.jsonl.gz")
  python -m data_pipelines.record_web "$made"/data/*/documents_*.jsonl \
    ${others[@]+"${others[@]}"} --out "$made/world"
fi

# 3. Demonstrations on the training pages, and what they teach.
if [ ! -e "$made/demonstrations.jsonl.gz" ]; then
  python -m data_pipelines.demonstrators "$made/world" "$made/questions_train.jsonl" \
    "$made/partial.jsonl.gz" --styles brief --noise 0.3 $rules
  mv "$made/partial.jsonl.gz" "$made/demonstrations.jsonl.gz"
fi
[ -e models/smollm2-citing ] || launch/smollm2.sh
if [ ! -e "$made/completions" ]; then
  rm -rf "$made/completions.partial"
  python -m data_pipelines.browsing_completions "$made/world" "$made/demonstrations.jsonl.gz" \
    "$made/completions.partial" --vocabulary models/smollm2-citing --prompt-tokens 640 \
    --held-out 0.02 --supported
  mv "$made/completions.partial" "$made/completions"
fi

# 4. Behaviour cloning.
python launch/train.py --gin_file=gin_configs/bc_smollm2.gin --gin.MODEL_DIR="$made/bc" \
  --gin.DEMONSTRATIONS="'$made/completions'" --gin.TRAIN_STEPS="${STEPS:-900}"

# 5. The test questions: browsed, and asked of the model that cloning began with.
browse() { # OUTPUT [OPTION …]
  [ -e "$1/summary.json" ] && return
  python launch/browse_questions.py --model "$made/bc" --world "$made/world" \
    --questions "$made/sets/questions_test.jsonl" --output "$1" --temperature 0 --actions 12 \
    --prompt-tokens 640 --max-tokens 96 --at-once 128 $rules "${@:2}"
}
browse "$made/browsed" --find-present
browse "$made/browsed_free" --free
if [ ! -e "$made/found.jsonl" ]; then
  python -m data_pipelines.search questions "$made/sets/questions_test.jsonl" \
    "$made/partial.jsonl" --index "$made/world/index.db" --results 5 --found-only
  mv "$made/partial.jsonl" "$made/found.jsonl"
fi
python launch/eval.py --model models/smollm2-citing --questions "$made/found.jsonl" \
  --index "$made/world/index.db" --constrained --max-tokens 128 --max-prompt-tokens 2048 \
  --batch-size 16 --output "$made/asked"

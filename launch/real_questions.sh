#!/usr/bin/env bash
# From public questions to a small model that answers them with quotes, and its score on documents
# that it never saw (docs/real_questions.md).
#
#   launch/real_questions.sh DATA
#
# DATA holds the public files (docs/public_data.md says where they come from); all output is in
# runs/real_questions. What already exists is not built again, and an interrupted training run
# resumes from its newest checkpoint.
set -euo pipefail

advice="docs/public_data.md says where each file comes from"
if [ $# -ne 1 ]; then
  echo "usage: launch/real_questions.sh DATA (a folder; $advice)" >&2
  exit 2
fi
given="$1"
if [ ! -d "$given" ]; then
  echo "$given: there is no such folder; $advice" >&2
  exit 1
fi
data="$(cd "$given" && pwd)"
made=runs/real_questions
root="$(cd "$(dirname "$0")/.." && pwd)"

# Says before anything slow which file is missing.
need() { # NAME FILE …: the files of a set that is not made yet
  [ -e "$root/$made/data/$1" ] && return
  local name
  for name in "${@:2}"; do
    compgen -G "$data/$name" >/dev/null && continue
    echo "$given/$name: there is no such file; $advice" >&2
    exit 1
  done
}
need wikipedia squad/wikipedia.json.gz
need new_wiki squad/shifts_new_wiki.json.gz
need reddit squad/shifts_reddit.json.gz
need amazon squad/shifts_amazon_reviews.json.gz
need policyqa squad/policyqa_dev.json.gz
need natural_questions natural_questions/gold_passages.jsonl.gz
need fairytaleqa fairytaleqa/train.jsonl.gz fairytaleqa/val.jsonl.gz
need textbooks 'text/openstax_*.jsonl.gz'

source "$root/launch/environment.sh"
sets="wikipedia new_wiki reddit amazon policyqa natural_questions fairytaleqa"

# 1. Records. Articles, stories and sections never cross splits; the test stays unseen.
convert() { # FORMAT NAME SHARE_OF_VALIDATION SHARE_OF_TEST FILE …
  local format="$1" name="$2" validation="$3" test="$4"
  shift 4
  [ -e "$made/data/$name" ] && return
  echo "$name" >&2
  rm -rf "$made/data/$name.partial"
  python -m data_pipelines.convert "$format" "$@" "$made/data/$name.partial" \
    --validation "$validation" --test "$test"
  mv "$made/data/$name.partial" "$made/data/$name"
}
convert squad wikipedia 0.03 0.1 "$data/squad/wikipedia.json.gz"
convert squad new_wiki 0.03 0.1 "$data/squad/shifts_new_wiki.json.gz"
convert squad reddit 0.03 0.1 "$data/squad/shifts_reddit.json.gz"
convert squad amazon 0.03 0.1 "$data/squad/shifts_amazon_reviews.json.gz"
convert squad policyqa 0.03 0.1 "$data/squad/policyqa_dev.json.gz"
convert natural_questions natural_questions 0.03 0.1 \
  "$data/natural_questions/gold_passages.jsonl.gz"
convert fairytaleqa fairytaleqa 0.03 0.1 "$data"/fairytaleqa/{train,val}.jsonl.gz
convert textbooks textbooks 0.01 0 "$data"/text/openstax_*.jsonl.gz

# 2. A vocabulary, from training texts only.
if [ ! -e "$made/vocabulary" ]; then
  python launch/train_vocabulary.py --size 2048 --sample-lines 20000 \
    --input "$made"/data/*/documents_train.jsonl --output "$made/vocabulary"
fi

# 3. A language model that copies, then one that also looks up; then answers with inline evidence.
python launch/train.py --gin_file=gin_configs/copy_real_questions.gin
python launch/train.py --gin_file=gin_configs/pretrain_real_questions.gin
python launch/train.py --gin_file=gin_configs/sft_real_questions.gin

# 4. The score on each set's test questions, next to the sentence baselines: for free samples, and
# for samples under the quote constraint.
for name in $sets; do
  for constrained in "" --constrained; do
    python launch/eval.py --model "$made/sft" \
      --questions "$made/data/$name/questions_test.jsonl" \
      --max-prompt-tokens 600 --max-tokens 192 --batch-size 64 --examples 2 \
      --output "$made/test_$name${constrained:+_constrained}" $constrained
  done
done

"""Whether samples that were written to a file are well formed and verbatim, by a judge of its own.

    python launch/eval.py --model models/smollm2-citing --constrained --samples 16 \\
      --temperature 1 --questions questions.jsonl --output samples
    python benchmarks/judged_samples.py samples_samples.jsonl --questions questions.jsonl

The judge (tests/quoting/answer_judge.py) shares no code with the quote constraint, nor does what
tells it where words begin and end (tests/text/word_breaks.py). It reads texts here, not tokens:
legal_answers.py also judges ends and padding. Prints how many samples were read, how many of them
differ, and the first faults; exits with status 1 if there are any. The prompts must have shown the
pages whole: none was longer than eval's --max-prompt-tokens.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite import records
from gophercite.documents import Document
from tests.quoting import answer_judge, shown_pages

SHOWN = 10  # faults


def opened(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def faulty(
    lines: Iterator[str], pages: dict[str, list[answer_judge.Page]], rules: answer_judge.Rules
) -> Iterator[tuple[str, str, list[str]]]:
    """Yields each sample's question id, its text, and what is wrong with it."""
    for line in lines:
        sample = json.loads(line)
        id, text = sample["question_id"], sample["text"]
        if id not in pages:
            raise SystemExit(f"question {id!r} is in none of the files of --questions")
        yield id, text, answer_judge.faults_of_text(text, pages[id], rules)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("samples", nargs="+", type=Path, help="PREFIX_samples.jsonl, or .jsonl.xz")
    parser.add_argument("--questions", nargs="+", type=Path, required=True)
    parser.add_argument(
        "--boundaries", choices=("words", "sentences", "characters"), default="words"
    )
    flags = parser.parse_args()
    pages: dict[str, list[answer_judge.Page]] = {}
    for path in flags.questions:
        for question in records.read(path, records.Question):
            whole = [page for page in question.documents if isinstance(page, Document)]
            pages[question.id] = [shown_pages.shown(page, flags.boundaries) for page in whole]
    rules = answer_judge.Rules(max_tokens=sys.maxsize)  # of which a text says nothing
    samples, different, faults, asked = 0, set(), 0, set()
    for path in flags.samples:
        with opened(path) as lines:
            for id, text, found in faulty(lines, pages, rules):
                samples += 1
                different.add((id, text))
                asked.add(id)
                faults += bool(found)
                if found and faults <= SHOWN:
                    print(f"{id}: {text!r}: {'; '.join(found)}")
    print(
        f"{samples:,} samples of {len(asked):,} questions, {len(different):,} of them different: "
        f"{faults:,} with a fault"
    )
    return 1 if faults or not samples else 0


if __name__ == "__main__":
    sys.exit(main())

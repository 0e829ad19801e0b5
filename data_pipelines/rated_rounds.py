"""Merges the ratings of all rounds so far into the files that the next training runs read.

    python -m data_pipelines.rated_rounds OUT_DIR ROUND_DIR …

Each ROUND_DIR has rated_answers.jsonl and comparisons.jsonl, as `gophercite rate export` writes
them. OUT_DIR gets

  answers/round_N.jsonl                 the good answers, for supervised fine-tuning
                                        (gin_configs/sft_own_records.gin)
  comparisons/comparisons_train.jsonl   for a reward model
  comparisons/comparisons_validation.jsonl
  counts.json                           what each round has added

An answer is good if most of its raters found it plausible, and most found it supported. All
comparisons of one question are in the same split, and stay there when rounds are added. If there
are too few answers or comparisons of any kind, nothing is written.
"""

import argparse
import dataclasses
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.records import Comparison, RatedAnswer
from gophercite.storage.json_fields import in_one_line
from gophercite.text.counting import counted


@dataclasses.dataclass(frozen=True)
class RoundCounts:
    """Counts of what the raters of one round have contributed.

    Attributes:
      answers: number of rated answers.
      good: number rated as plausible and supported; supervised fine-tuning learns from them.
      comparisons: number of comparisons of two answers.
      decided: number of these in which one answer was preferred.
    """

    answers: int
    good: int
    comparisons: int
    decided: int


def merge(rounds: Sequence[Path], out: Path, held_out: float) -> list[RoundCounts]:
    """Merges rounds.

    Args:
      rounds: the folders of the rounds, the first round first.
      out: the folder to write to.
      held_out: share of the questions that is used to validate the reward model.

    Returns:
      The counts of each round.

    Raises:
      OSError: a file is missing or can't be written.
      ValueError: no answer is good, or no decided comparison is left for training or validation.
    """
    counts, good = [], list[list[RatedAnswer]]()
    train, validation = list[Comparison](), list[Comparison]()
    for folder in rounds:
        answers = list(records.read(folder / "rated_answers.jsonl", RatedAnswer, strict=True))
        compared = list(records.read(folder / "comparisons.jsonl", Comparison, strict=True))
        good.append([each for each in answers if each.plausible and each.supported])
        for each in compared:
            is_held_out = zlib.crc32(each.question.encode()) / 2**32 < held_out
            (validation if is_held_out else train).append(each)
        counts.append(RoundCounts(len(answers), len(good[-1]), len(compared), _decided(compared)))
    if not any(each.good for each in counts):
        raise ValueError(
            f"none of the {sum(each.answers for each in counts)} answers was rated plausible and "
            "supported: there is nothing to learn from. Sample at a lower temperature, more "
            "answers to each question, or from a better model"
        )
    if not (_decided(train) and _decided(validation)):
        # The best checkpoint is chosen by accuracy, which ties don't have.
        raise ValueError(
            f"{_decided(train)} decided comparisons for training and {_decided(validation)} for "
            "validation: both need at least one; have more items rated"
        )
    written = [f"round_{number}.jsonl" for number in range(len(rounds))]
    (out / "answers").mkdir(parents=True, exist_ok=True)
    for name, answers in zip(written, good, strict=True):
        records.write(out / "answers" / name, answers)
    for path in (out / "answers").glob("round_*.jsonl"):
        if path.name not in written:  # from an earlier merge of more rounds
            path.unlink()
    (out / "comparisons").mkdir(parents=True, exist_ok=True)
    records.write(out / "comparisons" / "comparisons_train.jsonl", train)
    records.write(out / "comparisons" / "comparisons_validation.jsonl", validation)
    text = json.dumps([dataclasses.asdict(each) for each in counts], indent=2) + "\n"
    (out / "counts.json").write_text(text, "utf-8")
    return counts


def _decided(comparisons: Sequence[Comparison]) -> int:
    return sum(each.preferred in (0.0, 1.0) for each in comparisons)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files; returns 1 if there is too little data."""
    flags = _parse(arguments)
    try:
        counts = merge(flags.rounds, flags.out, flags.held_out)
    except (OSError, ValueError) as error:
        print(f"rated_rounds: {in_one_line(error)}", file=sys.stderr)
        return 1
    for number, each in enumerate(counts):
        print(
            f"round {number}: {counted(each.answers, 'answer')}, {each.good} good; "
            f"{counted(each.comparisons, 'comparison')}, {each.decided} decided"
        )
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.rated_rounds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", type=path_on_disk, metavar="OUT_DIR", help="folder to write to")
    add(
        "rounds",
        type=path_on_disk,
        nargs="+",
        metavar="ROUND_DIR",
        help="folders of exports, in order",
    )
    add(
        "--held-out",
        type=float,
        default=0.1,
        help="share of the questions for validation (default 0.1)",
    )
    flags = parser.parse_args(arguments)
    if not 0 < flags.held_out < 1:
        parser.error(f"--held-out is {flags.held_out}: must be between 0 and 1")
    return flags


if __name__ == "__main__":
    sys.exit(main())

"""Compares browsed answers by the known truth, to train a reward model for long answers.

    python -m data_pipelines.browsing_comparisons QUESTIONS.jsonl EPISODES.jsonl.gz … --out FOLDER
    python -m data_pipelines.browsing_comparisons questions.jsonl runs/bc/episodes.jsonl.gz \\
        --out runs/comparisons --held-out 0.1 --validation-model 0.3

Two answers to the same question are compared as by a rater who knows the proof. An answer that is
right and supported by what it cites is better than one that is only right, which is better
than one that is wrong. Equally good answers are a tie, with target 0.5. With --no-ties they are not
compared: a small model learns more from the other pairs. "Much better" (supported against wrong) is
merged into "better", as in WebGPT (3.2); the ratings keep the five points.

OUT gets `comparisons_train.jsonl` and `comparisons_validation.jsonl`. With --validation-model, that
share of the questions goes to `validation_model/` in the same form, for a second reward model that
judges the answers chosen by the first one (appendix I).

--share uses only that share of the questions for training comparisons, as in WebGPT's scaling of
reward models (section 5.2). A larger share includes all smaller ones. The held-out questions stay
the same.
"""

import argparse
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from data_pipelines.demonstrators.truth import judge
from data_pipelines.disk_paths import path_on_disk
from data_pipelines.question_sets import in_share, set_of
from gophercite import records
from gophercite.browser.encoding import long_answer
from gophercite.browser.episodes import Episode, read_episodes
from gophercite.browser.state import State
from gophercite.records import Comparison, Question
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted

_POINTS = ("much better", "better")


def worth(question: Question, end: State) -> int:
    """How good an episode's answer is: 2 if it is right and supported, 1 if only right, else 0."""
    verdict = judge(question, end)
    return verdict.right + verdict.supported


def comparisons(
    question: Question, episodes: Sequence[Episode], most: int, seed: str, ties: bool = True
) -> Iterator[Comparison]:
    """Yields comparisons of different answers to a question, decided ones first.

    Args:
      question: the question, with its evidence.
      episodes: its episodes; those without an answer are ignored.
      most: maximum number of decided comparisons per question. There are at most as many ties in
        addition, or one if there are no decided comparisons.
      seed: seed for choosing among them.
      ties: whether to include ties.
    """
    distinct = {}
    for each in episodes:
        if (each.end.answer or "").strip():
            answer = long_answer(each.end)
            distinct[answer] = worth(question, each.end)
    draws = random.Random(seed)
    pairs = list(itertools.combinations(distinct.items(), 2))
    draws.shuffle(pairs)
    decided = [pair for pair in pairs if pair[0][1] != pair[1][1]][:most]
    tied = [pair for pair in pairs if pair[0][1] == pair[1][1]] if ties else []
    for number, pair in enumerate([*decided, *tied[: min(most, max(1, len(decided)))]]):
        (first, low), (second, high) = pair if draws.random() < 0.5 else pair[::-1]
        points = abs(low - high)
        rating = {"rater": "truth", "points": _POINTS[2 - points] if points else "tie"}
        yield Comparison(
            id=f"{question.id}/{number}",
            question=question.question,
            source=question.source,
            responses=(first, second),
            preferred=0.5 if low == high else float(high > low),
            supported_and_plausible=(low == 2, high == 2),
            ratings=(rating,),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parse(arguments)
    report = records.Report()
    written = {
        f"{model} {part}": folder / f"comparisons_{part}.jsonl"
        for model, folder in (("first", options.out), ("second", options.out / "validation_model"))
        for part in ("train", "validation")
    }
    try:
        refuse_overwriting(written.values(), [options.questions, *options.episodes])
        questions = {
            each.id: each
            for each in records.read(options.questions, Question, report=report)
            if each.evidence
        }
        by_question: dict[str, list[Episode]] = defaultdict(list)
        for path in options.episodes:
            for episode in read_episodes(path, report=report):
                by_question[episode.question_id].append(episode)
        by_split: dict[str, list[Comparison]] = defaultdict(list)
        shares = {"second": options.validation_model, "first": 1 - options.validation_model}
        for id, episodes in by_question.items():
            if id not in questions:
                continue
            question = questions[id]
            parts = {"validation": options.held_out, "train": 1 - options.held_out}
            # Each choice has its own prefix: all questions may be in one set by their plain text.
            model, part = (
                set_of(f"{choice} of {question.question}", of)
                for choice, of in (("model", shares), ("part", parts))
            )
            if part == "train" and not in_share(question.question, options.share):
                continue
            by_split[f"{model} {part}"] += comparisons(
                question, episodes, options.each, id, not options.no_ties
            )
        for problem in report.errors:
            print(problem, file=sys.stderr)
        if not by_split["first train"]:
            raise ValueError("no question has two different answers to compare")
        for name, path in written.items():
            if found := by_split[name]:
                path.parent.mkdir(parents=True, exist_ok=True)
                records.write(path, found)
            else:  # one of an earlier run may have what is learnt from now
                path.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        print(f"browsing_comparisons: {in_one_line(error)}", file=sys.stderr)
        return 1
    for name, found in by_split.items():
        if found:
            print(f"{name}: {_said(found)}")
    return 0


def _said(made: Iterable[Comparison]) -> str:
    made = list(made)
    ties = sum(each.preferred == 0.5 for each in made)
    return f"{counted(len(made), 'comparison')}, {ties} of them ties"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.browsing_comparisons",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("questions", type=path_on_disk, metavar="QUESTIONS", help="question records with evidence")
    add("episodes", nargs="+", metavar="EPISODES", help="episodes, .jsonl or .jsonl.gz")
    add("--out", type=path_on_disk, required=True, metavar="DIR", help="folder to write to")
    add(
        "--held-out",
        type=float,
        default=0.1,
        help="share of the questions to hold out for validation (default 0.1)",
    )
    add(
        "--validation-model",
        type=float,
        default=0.0,
        help="share of the questions to keep for a validation reward model (default 0)",
    )
    add(
        "--share",
        type=float,
        default=1.0,
        help="share of the remaining questions to learn from (default 1)",
    )
    add("--no-ties", action="store_true", help="don't compare answers that are equally good")
    add(
        "--each",
        type=int,
        default=4,
        help="maximum number of decided comparisons per question (default 4)",
    )
    options = parser.parse_args(arguments)
    for name in ("held_out", "validation_model"):
        if not 0 <= (share := getattr(options, name)) < 1:
            parser.error(f"--{name.replace('_', '-')} is {share}: must be at least 0 and below 1")
    if options.each < 1:
        parser.error(f"--each is {options.each}: must be at least 1")
    if not 0 < options.share <= 1:
        parser.error(f"--share is {options.share}: must be above 0 and at most 1")
    return options


if __name__ == "__main__":
    sys.exit(main())

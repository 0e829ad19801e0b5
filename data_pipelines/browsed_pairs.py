"""Writes pairs for raters: browsed answers against demonstrations or the data set's answers.

    python -m data_pipelines.browsed_pairs runs/bc/episodes.jsonl.gz --out pairs.jsonl \\
        --demonstrations demonstrations.jsonl.gz
    python -m data_pipelines.browsed_pairs runs/bc/episodes.jsonl.gz --out pairs.jsonl \\
        --reference-answers questions.jsonl

These are the two evaluations of WebGPT's section 4.1. In pairs with demonstrations (or with another
model's episodes), both answers keep their references; rate them with
`gophercite rate new … --form long-comparison`. In pairs with the data set's answer (the first of a
question's `answers`), citations and references are stripped; rate them with `--form minimal`. The
second response is always the model's. launch/browse_report.py says how often it is preferred.

If a question has several episodes, the one with the highest reward counts (of the first N with
--best-of N); without rewards, the first. If questions have evidence, --truth QUESTIONS.jsonl can
replace the raters: supported is better than right, and right is better than wrong.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipelines.browsing_comparisons import worth
from data_pipelines.demonstrators.truth import judge
from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.browser.browsed_answers import without_citations
from gophercite.browser.encoding import long_answer
from gophercite.browser.episodes import Episode, read_episodes
from gophercite.records import Comparison, LongAnswer, Question
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted


def chosen(episodes: Iterable[Episode], best_of: int | None = None) -> dict[str, Episode]:
    """Returns the episode that counts for each question, by the question's id.

    Args:
      episodes: one model's or people's episodes.
      best_of: number of a question's episodes to consider, the first ones; None for all.
    """
    by_question: dict[str, list[Episode]] = {}
    for each in episodes:
        by_question.setdefault(each.question_id, []).append(each)
    return {id: _best(found[:best_of]) for id, found in by_question.items()}


def against_episodes(
    model: Mapping[str, Episode], others: Mapping[str, Episode]
) -> Iterator[tuple[Comparison, Episode, Episode]]:
    """Yields comparisons with others' answers, each with the other's and the model's episode.

    Args:
      model, others: episodes by question; if either has no answer, there is no comparison.
    """
    for id, mine in model.items():
        other = others.get(id)
        if other is None or not (_answer(mine) and _answer(other)):
            continue
        yield _comparison(id, mine, long_answer(other.end), long_answer(mine.end)), other, mine


def against_answers(
    model: Mapping[str, Episode], questions: Iterable[Question]
) -> Iterator[tuple[Comparison, Question, Episode]]:
    """Yields comparisons of the data set's answers with the model's, without its citations.

    Args:
      model: episodes by question.
      questions: questions with answers.
    """
    for question in questions:
        mine = model.get(question.id)
        if mine is None or not question.answers:
            continue
        text = without_citations(_answer(mine))
        if text:
            yield _comparison(question.id, mine, question.answers[0], text), question, mine


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parse(arguments)
    report = records.Report()
    try:
        given = [*options.episodes, *(options.demonstrations or ())]
        refuse_overwriting([options.out], [*given, options.reference_answers, options.truth])
        model = chosen(_episodes(options.episodes, report), options.best_of)
        truth = {each.id: each for each in _questions(options.truth, report) if each.evidence}
        pairs: list[Comparison] = []
        if options.demonstrations:
            others = chosen(_episodes(options.demonstrations, report))
            for pair, other, mine in against_episodes(model, others):
                question = truth.get(mine.question_id)
                pairs += _rated(
                    pair, options, None if question is None else _by_truth(question, other, mine)
                )
        else:
            questions = _questions(options.reference_answers, report)
            for pair, question, mine in against_answers(model, questions):
                known = truth.get(question.id)
                pairs += _rated(
                    pair, options, None if known is None else _by_rightness(known, mine)
                )
        for problem in report.errors:
            print(problem, file=sys.stderr)
        if not pairs:
            raise ValueError("no question has both answers")
        records.write(options.out, pairs)
    except (OSError, ValueError) as error:
        print(f"browsed_pairs: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(
        f"{options.out}: {counted(len(pairs), 'comparison')}, of "
        f"{counted(len(model), 'browsed question')}"
    )
    return 0


def _rated(
    pair: Comparison, options: argparse.Namespace, points: dict[str, int] | None
) -> Iterator[Comparison]:
    """Yields the comparison, with a verdict if one is asked for; nothing if it can't be given."""
    if options.truth is None:
        yield pair
    elif points is not None:
        overall = points["overall"]
        preferred = 0.5 + 0.5 * ((overall > 0) - (overall < 0))
        rating: dict[str, Any] = {"rater": "truth", "preferred": preferred, **points}
        verdict = Comparison(pair.id, pair.question, pair.source, pair.responses, preferred,
                             ratings=(rating,))  # fmt: skip
        yield verdict


def _by_truth(question: Question, other: Episode, mine: Episode) -> dict[str, int]:
    """The five-point ratings, overall and of accuracy, of a rater who knows the proof."""
    right = judge(question, mine.end).right - judge(question, other.end).right
    return {"overall": worth(question, mine.end) - worth(question, other.end), "accuracy": right}


def _by_rightness(question: Question, mine: Episode) -> dict[str, int]:
    """The same ratings for texts without citations, against an answer that is right."""
    points = int(judge(question, mine.end).right) - 1
    return {"overall": points, "accuracy": points}


def _comparison(id: str, mine: Episode, first: LongAnswer | str, second: LongAnswer | str
) -> Comparison:  # fmt: skip
    return Comparison(id, mine.start.question, mine.world, (first, second), None)


def _best(episodes: Sequence[Episode]) -> Episode:
    if any(each.reward is None for each in episodes):
        return episodes[0]
    return max(episodes, key=lambda each: each.reward or 0.0)


def _answer(episode: Episode) -> str:
    return (episode.end.answer or "").strip()


def _episodes(paths: Iterable[Path], report: records.Report) -> Iterator[Episode]:
    for path in paths:
        yield from read_episodes(path, report=report)


def _questions(path: Path | None, report: records.Report) -> Iterator[Question]:
    if path is not None:
        yield from records.read(path, Question, report=report)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.browsed_pairs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "episodes",
        nargs="+",
        type=path_on_disk,
        metavar="EPISODES",
        help="episodes, .jsonl or .jsonl.gz",
    )
    add(
        "--out",
        type=path_on_disk,
        required=True,
        metavar="FILE",
        help="file to write the comparisons to (docs/records.md)",
    )
    others = parser.add_mutually_exclusive_group(required=True)
    others.add_argument(
        "--demonstrations",
        nargs="+",
        type=path_on_disk,
        metavar="FILE",
        help="episodes to compare with",
    )
    others.add_argument(
        "--reference-answers",
        type=path_on_disk,
        metavar="FILE",
        help="questions with their answers",
    )
    add(
        "--best-of",
        type=int,
        metavar="N",
        help="use the best of the first N episodes of each question",
    )
    add(
        "--truth",
        type=path_on_disk,
        metavar="FILE",
        help="questions with evidence, by which to rate the answers",
    )
    options = parser.parse_args(arguments)
    if options.best_of is not None and options.best_of < 1:
        parser.error(f"--best-of is {options.best_of}: must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())

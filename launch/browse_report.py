"""Compares policies that browsed for the same questions: what their answers are worth, best of n.

    python launch/browse_report.py bc=runs/answers/bc ppo=runs/answers/ppo --output report.md

Each NAME=FOLDER is what launch/browse_questions.py wrote. The best of n episodes is chosen by the
reward model, and judged by what is true and by the validation reward model, by WebGPT's estimator
over all subsets (appendix I). Intervals are of 90 %, by resampling questions.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gophercite.evaluation.best_of_n import best_of_n
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.json_lines import read_json_lines

_RESAMPLES = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="browse_report.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="FILE")
    flags = parser.parse_args(arguments)
    try:
        sections = []
        for given in flags.results:
            name, equals, folder = given.partition("=")
            if not equals:
                parser.error(f"{given}: expected NAME=FOLDER")
            sections.append((name, *read_scores(pathlib.Path(folder))))
        text = report(sections)
        flags.output.write_text(text)
    except (OSError, ValueError) as error:
        print(f"browse_report: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(text)
    return 0


def read_scores(
    folder: pathlib.Path,
) -> tuple[dict[str, Any], dict[str, Float[np.ndarray, "questions episodes"]]]:
    """Reads what a policy's episodes are worth.

    Args:
      folder: what launch/browse_questions.py wrote.

    Returns:
      Its summary, and by name of a score an array of [questions, episodes].

    Raises:
      ValueError: questions have different numbers of episodes.
    """
    summary = json.loads((folder / "summary.json").read_text())
    rows: dict[str, list[dict[str, Any]]] = {}
    for number, value in read_json_lines(folder / "scores.jsonl"):
        if not isinstance(value, dict) or "question_id" not in value:
            raise ValueError(f"{folder / 'scores.jsonl'}:{number}: is no line of scores")
        rows.setdefault(value["question_id"], []).append(value)
    sizes = {len(each) for each in rows.values()}
    if len(sizes) != 1:
        raise ValueError(f"{folder}: questions have from {min(sizes)} to {max(sizes)} episodes")
    scores = {}
    for name in ("reward", "validation_reward", "right", "supported"):
        if all(line[name] is not None for of in rows.values() for line in of):
            scores[name] = np.array([[float(line[name]) for line in of] for of in rows.values()])
    return summary, scores


def interval(by_question: Float[np.ndarray, " questions"]) -> tuple[float, float, float]:
    """A mean over questions with its 90 % interval."""
    draws = np.random.default_rng(0)
    picked = draws.integers(0, len(by_question), (_RESAMPLES, len(by_question)))
    low, high = np.quantile(by_question[picked].mean(axis=1), (0.05, 0.95))
    return float(by_question.mean()), float(low), float(high)


def report(sections: Sequence[tuple[str, dict[str, Any], dict[str, Any]]]) -> str:
    """The report as Markdown.

    Args:
      sections: of each policy its name, and what `read_scores` gives.
    """
    lines = ["# Learning to browse", "", "## One episode a question", ""]
    lines += ["| Policy | Supported | Right | Reward | Validation reward | Actions | Invalid |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, summary, scores in sections:
        cells = [
            _cell(scores[each].mean(axis=1), each in ("supported", "right"))
            if each in scores
            else "–"
            for each in ("supported", "right", "reward", "validation_reward")
        ]
        cells += [f"{summary['actions']:.1f}", f"{100 * summary['invalid']:.1f} %"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## Best of n episodes, chosen by the reward model", ""]
    lines += ["| Policy | n | Supported | Reward | Validation reward |", "|---|---|---|---|---|"]
    for name, _, scores in sections:
        if "reward" not in scores:
            continue
        most = scores["reward"].shape[1]
        sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most]
        judged = {
            each: best_of_n(scores["reward"], scores[each], sizes)
            for each in ("supported", "reward", "validation_reward")
            if each in scores
        }
        for place, n in enumerate(sizes):
            cells = [
                _cell(judged[each][:, place], each == "supported") if each in judged else "–"
                for each in ("supported", "reward", "validation_reward")
            ]
            lines.append(f"| {name} | {n} | {' | '.join(cells)} |")
    counts = ", ".join(
        f"{name}: {summary['questions']} questions × {summary['episodes_each']} episodes, "
        f"seed {summary['seed']}"
        for name, summary, _ in sections
    )
    return "\n".join([*lines, "", f"Means with 90 % intervals over questions. {counts}.", ""])


def _cell(by_question: Float[np.ndarray, " questions"], share: bool) -> str:
    mean, low, high = interval(by_question)
    if share:
        return f"{100 * mean:.1f} % ({100 * low:.1f}–{100 * high:.1f})"
    return f"{mean:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    sys.exit(main())

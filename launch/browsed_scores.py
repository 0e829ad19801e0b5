"""What launch/browse_questions.py says of the episodes: scores, verdicts, means, and their cost."""

import argparse
import dataclasses
import json
import statistics
from collections.abc import Sequence
from typing import Any

import jax
from kept_episodes import Browsed

from data_pipelines.demonstrators.truth import compare, judge
from gophercite import records
from gophercite.browser.encoding import encode_judged_response
from gophercite.browser.episodes import Episode, write_episodes
from gophercite.browsing.judging import Judge, judged
from gophercite.model_folders.folder import Model, load_reward_model
from gophercite.records import Question


def write_results(
    flags: argparse.Namespace,
    model: Model,
    by: str,
    questions: Sequence[Question],
    browsed: Sequence[Browsed],
) -> None:
    """Judges the episodes, writes them with their scores, and prints the summary.

    Args:
      flags: the command's flags.
      model: the policy.
      by: its name.
      questions: what was asked.
      browsed: what became of each environment.
    """
    followed = [each.followed for each in browsed for _ in each.episodes]
    tokens_written = sum(each.tokens_written for each in browsed)
    tokens_read = sum(each.tokens_read for each in browsed)
    seconds = sum(each.seconds for each in browsed)
    by_id = {question.id: question for question in questions}
    episodes = _judged(flags, [each for some in browsed for each in some.episodes], by_id)
    judging = _operations_of_judging(flags, episodes)
    second = _scores(flags.validation_reward_model, flags, episodes)
    compared = [_compared(by_id[each.question_id], each) for each in episodes]
    write_episodes(flags.output / "episodes.jsonl.gz", episodes)
    lines = [
        {
            "question_id": each.question_id,
            "id": each.id,
            "reward": each.reward,
            "validation_reward": None if second is None else second[place],
            "right": each.right,
            "supported": each.supported,
            **followed[place],
            **compared[place],
            "actions": len(each.end.actions),
            "invalid": sum(action.invalid is not None for action in each.end.actions),
            "answered": bool(each.end.answer),
        }
        for place, each in enumerate(episodes)
    ]
    records.write_json(flags.output / "scores.jsonl", lines)
    summary = _summary(lines) | {
        "model": by,
        "questions": len(questions),
        "episodes_each": flags.episodes,
        "answers_each": flags.answers,
        "constrained": not flags.free,
        "seed": flags.seed,
        "tokens_per_second": round(tokens_written / seconds, 1),
        "parameters": count_parameters(model.params),
        "operations": round(
            (2 * count_parameters(model.params) * (tokens_read + tokens_written) + judging)
            / len(episodes)
        ),
    }
    (flags.output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))


def _judged(
    flags: argparse.Namespace, episodes: list[Episode], questions: dict[str, Question]
) -> list[Episode]:
    """The episodes with their rewards and, where evidence is known, verdicts."""
    scores = _scores(flags.reward_model, flags, episodes)
    scored = []
    for place, each in enumerate(episodes):
        question = questions[each.question_id]
        if question.evidence:
            verdict = judge(question, each.end)
            each = dataclasses.replace(each, right=verdict.right, supported=verdict.supported)
        scored.append(each if scores is None else dataclasses.replace(each, reward=scores[place]))
    return scored


def _compared(question: Question, episode: Episode) -> dict[str, Any]:
    """How an answer compares with the accepted ones; nothing if none is known."""
    return dataclasses.asdict(compare(question, episode.end)) if question.answers else {}


def _scores(
    folder: str | None, flags: argparse.Namespace, episodes: Sequence[Episode]
) -> list[float] | None:
    """Scores each episode by a reward model; an episode without an answer gets its rules' score."""
    if folder is None:
        return None
    model = load_reward_model(folder)
    scorer = Judge(model.transformer, model.vocabulary, flags.prefix_tokens)
    answered = [place for place, each in enumerate(episodes) if each.end.answer]
    found = scorer.scores(model.params, [episodes[place].end for place in answered])
    scores = [each.start.settings.score_without_answer for each in episodes]
    for place, score in zip(answered, found, strict=True):
        scores[place] = float(score)
    return scores


def _operations_of_judging(flags: argparse.Namespace, episodes: Sequence[Episode]) -> int:
    """Floating point operations of the reward model: two per parameter and token read."""
    if flags.reward_model is None:
        return 0
    model = load_reward_model(flags.reward_model)
    tokens = sum(
        len(encode_judged_response(model.vocabulary, *judged(each.end), flags.prefix_tokens))
        for each in episodes
        if each.end.answer
    )
    return 2 * count_parameters(model.params) * tokens


def count_parameters(params: Any) -> int:
    """The total number of values in a tree of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over episodes, and the shares of actions that were invalid and of vain finds."""
    means = {}
    names = ("right", "supported", "exact", "f1", "quote_contains_answer")
    way = ("offered", "opened", "overlaps", "finds", "absent_finds", "actions", "answered")
    for name in (*names, "reward", "validation_reward", *way):
        values = [float(line[name]) for line in lines if line.get(name) is not None]
        if values:
            means[name] = round(statistics.fmean(values), 4)
    actions = sum(line["actions"] for line in lines)
    invalid = sum(line["invalid"] for line in lines)
    return {**means, "invalid": round(invalid / max(actions, 1), 4), "episodes": len(lines)}

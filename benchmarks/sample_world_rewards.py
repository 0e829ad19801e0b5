"""What a reward model is worth in the sample world, on names that no training saw.

    launch/quickstart.sh
    python launch/train.py --gin_file=gin_configs/rm_sample_world.gin \\
      --gin.MODEL_DIR=runs/rm_sample_world
    python benchmarks/sample_world_rewards.py

Prints of comparisons by fault how often the good answer is preferred and by how much. With 90 %
intervals over questions, what share of answers is supported and plausible (the world's own truth)
when the first of 64 samples is taken, the likeliest, and the one of n with the
highest reward (the unbiased estimate of WebGPT's appendix I); how quality rises as fewer questions
are answered; and how often a threshold with a promise keeps it (1,000 draws of labelled answers).
Writes all numbers and curves to OUTPUT/rewards.json and the figures beside it.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import time
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from data_pipelines.sample_world.convert import to_comparison  # noqa: E402
from data_pipelines.sample_world.world import COMPARED, World, judge  # noqa: E402
from data_pipelines.sources import comparison_of  # noqa: E402
from gophercite.answering.answerer import Answerer  # noqa: E402
from gophercite.answering.pages import FoundPages  # noqa: E402
from gophercite.answering.settings import AnsweringSettings  # noqa: E402
from gophercite.decoding.abstention import TooFewLabelsError, promise_quality  # noqa: E402
from gophercite.decoding.rerank import Scorer  # noqa: E402
from gophercite.decoding.sampling_settings import SamplingSettings  # noqa: E402
from gophercite.evaluation.abstention import CoverageCurve, coverage_curve  # noqa: E402
from gophercite.evaluation.best_of_n import best_of_n  # noqa: E402
from gophercite.evaluation.intervals import Estimate, estimate  # noqa: E402
from gophercite.evaluation.roc import roc_curve  # noqa: E402
from gophercite.model_folders.folder import (  # noqa: E402
    Model,
    load_model,
    load_reward_model,
)
from gophercite.records import Comparison, from_json  # noqa: E402
from gophercite.reports.figures import best_of_figure, coverage_figure, png  # noqa: E402
from gophercite.retrieval.contexts import SearchResult  # noqa: E402

SIZES = (1, 2, 4, 8, 16, 32, 64)
QUALITY, CONFIDENCE, LABELLED, DRAWS = 0.9, 0.95, 300, 1000


class Sampled(NamedTuple):
    """Of each question's samples: what they are scored by, and whether they are good."""

    reward: np.ndarray  # [questions, samples], as all of them
    total: np.ndarray  # log-probabilities, summed
    mean: np.ndarray  # over the tokens
    good: np.ndarray


def main() -> None:
    flags = _parse()
    start = time.monotonic()
    model, reward_model = load_model(flags.model), load_reward_model(flags.reward_model)
    world = World(split="test")
    results: dict[str, Any] = {"pairs": _pairs(world, reward_model, flags.pairs)}
    print(_row("pairs", **results["pairs"]))
    results["pairs by fault"] = _by_fault(world, reward_model, flags.pairs // 5)
    for fault, found in results["pairs by fault"].items():
        print(_row(f"pairs, {fault}", **found))
    if not flags.questions:
        return
    sampled = _sample(world, model, reward_model, flags.questions)
    chosen = _chosen(sampled)
    results["supported and plausible"] = {
        name: dataclasses.asdict(each) for name, each in chosen.items()
    }
    for name, share in chosen.items():
        print(f"{name:45} {share}")
    curves = _curves(sampled)
    results["coverage"] = {name: _curve(*each) for name, each in curves.items()}
    for name, curve in results["coverage"].items():
        print(_row(f"coverage, {name}", **{k: v for k, v in curve.items() if k != "points"}))
    results["promise"] = {
        name: _promises(scores, sampled.good[:, 0])
        for name, scores in (
            ("reward", sampled.reward[:, 0]),
            ("log-probability", sampled.total[:, 0]),
        )
    }
    for name, promise in results["promise"].items():
        print(_row(f"promise by {name}", **promise))
    results["seconds"] = time.monotonic() - start
    print(f"{results['seconds']:.0f} s")
    _write(flags.output, results, sampled, {name: curve for name, (curve, _) in curves.items()})


def _pairs(world: World, reward_model: Model, count: int) -> dict[str, float]:
    """Preference accuracy (ties left out), and the area under the ROC curve of the judgements."""
    compared = [from_json(comparison_of(world, index), Comparison) for index in range(count)]
    rewards = Scorer(reward_model).score_each(
        [(each.question, response) for each in compared for response in each.responses]
    )
    margin = np.diff(rewards.reward.reshape(-1, 2))[:, 0]
    preferred = np.array([each.preferred for each in compared])
    decided = preferred != 0.5
    right = (margin > 0) == (preferred == 1)
    both = np.array([each.supported_and_plausible for each in compared]).reshape(-1)
    return {
        "count": count,
        "preference accuracy": float(right[decided].mean()),
        "S&P area under ROC": roc_curve(rewards.supported_and_plausible, both).area,
    }


def _by_fault(world: World, reward_model: Model, count: int) -> dict[str, dict[str, float]]:
    """How often the good answer has the higher reward, and by how much in the mean, by what is
    wrong with the other: the first `count` questions with each fault."""
    wide = dataclasses.replace(world, max_documents=8, max_sentences=80)
    found = {}
    for fault in COMPARED:
        compared = [to_comparison(wide.comparison(index, fault)) for index in range(count)]
        rewards = Scorer(reward_model).score_each(
            [(each.question, response) for each in compared for response in each.responses]
        )
        first, second = rewards.reward.reshape(-1, 2).T
        margin = np.where([each.preferred == 1 for each in compared], 1, -1) * (second - first)
        found[fault] = {
            "preference accuracy": float((margin > 0).mean()),
            "margin": float(margin.mean()),
        }
    return found


def _sample(world: World, model: Model, reward_model: Model, count: int) -> Sampled:
    """Samples answers under the quote constraint, all pages in one prompt, as in training."""
    settings = AnsweringSettings(
        samples=SIZES[-1], prompt_tokens=256, joint=True, sampling=SamplingSettings(max_tokens=96)
    )
    answerer = Answerer(model, settings, reward_model=reward_model)
    rows = []
    for index in range(count):
        question = world.question(index)
        pages = {page.document.id: page for page in question.pages}
        found = FoundPages(tuple(SearchResult(page.document) for page in question.pages))
        answer = answerer.answer(question.text, found, seed=index, keep_samples=True)
        assert len(answer.samples) == SIZES[-1], answer.reason
        row = []
        for each in answer.samples:
            (citation,) = each.citations
            page = pages[citation.document]
            good = all(judge(question, citation.claim, page, citation.quote))
            row.append((each.reward, each.likelihood, each.likelihood / each.tokens, good))
        rows.append(row)
        if sys.stderr.isatty():
            print(f"\r{index + 1} of {count} questions", end="", file=sys.stderr)
    reward, total, mean, good = np.moveaxis(np.array(rows, float), 2, 0)
    return Sampled(reward, total, mean, good.astype(bool))


def _chosen(sampled: Sampled) -> dict[str, Estimate]:
    """Share of supported and plausible answers by who chooses among how many."""
    most = SIZES[-1]
    shares = {"first sample": estimate(sampled.good[:, 0].astype(float))}
    for name, scores in (
        ("log-probability", sampled.total),
        ("mean log-probability", sampled.mean),
    ):
        likeliest = best_of_n(scores, sampled.good, [most])[:, 0]
        shares[f"likeliest of {most}, {name}"] = estimate(likeliest)
    by_reward = best_of_n(sampled.reward, sampled.good, SIZES)
    for n, share in zip(SIZES, by_reward.T, strict=True):
        shares[f"highest reward of {n}"] = estimate(share)
    shares[f"any of {most}"] = estimate(sampled.good.any(axis=1).astype(float))
    return shares


def _curves(sampled: Sampled) -> dict[str, tuple[CoverageCurve, float]]:
    """Coverage curves, each with the p-value of no relation between score and quality."""
    best = sampled.reward.argmax(axis=1)[:, None]
    first = sampled.good[:, 0]
    top, good = (np.take_along_axis(part, best, 1)[:, 0] for part in (sampled.reward, sampled.good))
    curves = {}
    for name, scores, labels in (
        (f"reward, best of {SIZES[-1]}", top, good),
        ("reward, first sample", sampled.reward[:, 0], first),
        ("log-probability, first sample", sampled.total[:, 0], first),
        ("mean log-probability, first sample", sampled.mean[:, 0], first),
    ):
        test = stats.mannwhitneyu(scores[labels], scores[~labels], alternative="greater")
        curves[name] = coverage_curve(scores, labels), float(test.pvalue)
    return curves


def _curve(curve: CoverageCurve, no_relation: float) -> dict[str, Any]:
    at = {share: int(np.searchsorted(curve.coverage, share)) for share in (0.5, 0.7, 1.0)}
    return {
        "area": curve.area,
        **{f"quality at {share:.0%}": float(curve.quality[i]) for share, i in at.items()},
        "p of no relation": no_relation,
        "points": {
            name: getattr(curve, name).tolist()
            for name in ("threshold", "coverage", "quality", "low", "high")
        },
    }


def _promises(scores: np.ndarray, good: np.ndarray) -> dict[str, float]:
    """How often a promise holds: labelled answers are drawn from these, which are the truth."""
    random = np.random.default_rng(0)
    broken, coverage = 0, []
    for _ in range(DRAWS):
        drawn = random.integers(len(scores), size=LABELLED)
        try:
            promise = promise_quality(scores[drawn], good[drawn], QUALITY, CONFIDENCE)
        except TooFewLabelsError:
            continue
        given = scores > promise.threshold
        broken += bool(good[given].mean() < QUALITY) if given.any() else 0
        coverage.append(given.mean())
    test = stats.binomtest(broken, DRAWS, 1 - CONFIDENCE, alternative="greater")
    return {
        "quality": QUALITY,
        "confidence": CONFIDENCE,
        "labelled": LABELLED,
        "draws": DRAWS,
        "promised": len(coverage),
        "broken": broken,
        "p of keeping it": float(test.pvalue),
        "mean coverage": float(np.mean(coverage)) if coverage else 0.0,
    }


def _row(name: str, **values: Any) -> str:
    said = ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in values.items()
    )
    return f"{name}: {said}"


def _write(
    folder: pathlib.Path,
    results: dict[str, Any],
    sampled: Sampled,
    curves: dict[str, CoverageCurve],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rewards.json").write_text(json.dumps(results, indent=1))
    (folder / "coverage.png").write_bytes(png(coverage_figure(curves)))
    by_n = {
        name: dict(zip(SIZES, map(estimate, best_of_n(scores, sampled.good, SIZES).T), strict=True))
        for name, scores in (("reward", sampled.reward), ("mean log-probability", sampled.mean))
    }
    (folder / "best_of_n.png").write_bytes(png(best_of_figure(by_n)))
    print(f"{folder}: rewards.json, coverage.png, best_of_n.png")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(ROOT / "runs" / "quickstart"))
    parser.add_argument("--reward-model", default=str(ROOT / "runs" / "rm_sample_world"))
    parser.add_argument("--questions", type=int, default=200, help="0: pairs alone")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "runs" / "rm_sample_world" / "report"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()

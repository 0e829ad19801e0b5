"""Several runs of launch/browse_miniature.sh with different seeds, together.

    for seed in 0 1 2 3 4; do SEED=$seed launch/browse_miniature.sh runs/browse_$seed; done
    python benchmarks/browsing_seeds.py runs/browse_0 runs/browse_1 …

Each run has its own web, questions, cloned policy, reward models and PPO. Shares are means over
the questions of all runs with 90 % bootstrap intervals; a difference is given over questions and,
by Student's t, over runs. *Best of n* is chosen by the run's reward model, over all subsets of its
episodes (WebGPT, appendix I).
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.evaluation.browsed_results import TRUTH, BrowsedPolicy, read_policy, resampled
from gophercite.evaluation.differences import mean_difference

POLICIES = ("bc", "ppo")
SIZES = (1, 4, 16)


def supported(policies: list[BrowsedPolicy], n: int) -> list[np.ndarray]:
    """By run, the share of supported answers of the best of n for each question."""
    return [policy.best_of(TRUTH, [n])[:, 0] for policy in policies]


def difference(label: str, first: list[np.ndarray], second: list[np.ndarray]) -> str:
    """A row: the second's mean minus the first's, over questions and over runs."""
    by_run = [b - a for a, b in zip(first, second, strict=True)]
    questions = mean_difference(np.concatenate(by_run).tolist())
    runs = mean_difference([float(each.mean()) for each in by_run])
    return f"| {label} | {questions} | {runs} |"


def chosen_divergence(run: Path) -> tuple[int, float]:
    """The step of the checkpoint that PPO chose, and its nats per episode on held-out questions."""
    best, found = -np.inf, (0, 0.0)
    for line in (run / "ppo/metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        reward = values.get("eval/validation/reward")
        # The cloned policy itself, evaluated at step 0, is no checkpoint of the run.
        if reward is not None and values["step"] > 0 and reward > best:
            best, found = reward, (values["step"], values["eval/validation/kl"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="MODEL_DIR of each run")
    runs = parser.parse_args().runs
    read = {
        name: [read_policy(name, run / "answers" / name / "of") for run in runs]
        for name in POLICIES
    }
    by_size = {(name, n): supported(read[name], n) for name in POLICIES for n in SIZES}

    print(
        "| Supported answers, % | " + " | ".join(f"best of {n}" for n in SIZES) + " | any of 16 |"
    )
    print("|---|" + "---|" * (len(SIZES) + 1))
    for name in POLICIES:
        cells = [resampled(np.concatenate(by_size[name, n])).percent for n in SIZES]
        any_of = np.concatenate([each.scores[TRUTH].max(axis=1) for each in read[name]])
        print(f"| {name} | {' | '.join(cells)} | {resampled(any_of).percent} |")
    print("\n| Run | " + " | ".join(f"{name}, best of {n}" for name, n in by_size) + " |")
    print("|---|" + "---|" * len(by_size))
    for number, run in enumerate(runs):
        cells = [f"{100 * each[number].mean():.1f}" for each in by_size.values()]
        print(f"| {run.name} | {' | '.join(cells)} |")
    print("\n| Gain in points | over questions | over runs |\n|---|---|---|")
    for n in SIZES:
        print(difference(f"PPO over cloning, best of {n}", by_size["bc", n], by_size["ppo", n]))
    for name in POLICIES:
        for n in SIZES[1:]:
            label = f"best of {n} over one, {name}"
            print(difference(label, by_size[name, 1], by_size[name, n]))
    print("\n| Episodes | right, % | invalid actions, % | actions an episode | answered, % |")
    print("|---|---|---|---|---|")
    for name in (*POLICIES, *(f"{policy}_constrained" for policy in POLICIES)):
        folders = [run / "answers" / name / "of" for run in runs]
        if not all((folder / "summary.json").exists() for folder in folders):
            continue
        lines = [
            json.loads(line)
            for folder in folders
            for line in (folder / "scores.jsonl").read_text().splitlines()
        ]
        actions = sum(line["actions"] for line in lines)
        invalid = 100 * sum(line["invalid"] for line in lines) / actions
        right, answered = (
            100 * float(np.mean([line[kind] for line in lines])) for kind in ("right", "answered")
        )
        each = actions / len(lines)
        print(f"| {name} | {right:.1f} | {invalid:.1f} | {each:.1f} | {answered:.1f} |")
    if all((run / "answers/ppo_constrained/of/summary.json").exists() for run in runs):
        first, second = (
            [read_policy(name, run / "answers" / f"{name}_constrained/of") for run in runs]
            for name in POLICIES
        )
        print("\n| By construction | supported, one episode, % |\n|---|---|")
        for name, of in zip(POLICIES, (first, second), strict=True):
            print(f"| {name} | {resampled(np.concatenate(supported(of, 1))).percent} |")
        print("\n| Gain in points | over questions | over runs |\n|---|---|---|")
        label = "PPO over cloning, by construction"
        print(difference(label, supported(first, 1), supported(second, 1)))
    print("\n| Variance of *supported* | within a question, % |\n|---|---|")
    for name in POLICIES:
        scores = np.concatenate([each.scores[TRUTH] for each in read[name]])
        within = scores.var(axis=1, ddof=1).mean() / scores.var()
        print(f"| {name} | {100 * within:.0f} |")
    print("\n| PPO's checkpoint | step | nats per episode |\n|---|---|---|")
    for run in runs:
        step, nats = chosen_divergence(run)
        print(f"| {run.name} | {step} | {nats:.1f} |")


if __name__ == "__main__":
    main()

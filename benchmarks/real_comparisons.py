"""Real comparisons by two baselines, and by a reward model that docs/reward_models.md trains.

    python -m data_pipelines.convert qa_feedback FILE … OUT/qa_feedback
    python -m data_pipelines.convert fool_me_twice_comparisons FILE … OUT/fool_me_twice
    python -m data_pipelines.convert fever_symmetric_comparisons FILE … OUT/fever_symmetric
    python benchmarks/real_comparisons.py OUT/* [--reward-model FOLDER]

For each source: preference accuracy on the test split (ties left out), and the area under the ROC
curve of supported-and-plausible judgements, where answers have such labels; without --reward-model
of the baselines alone. *Majority* prefers the
side that most of the training split prefers; which response is the first carries no meaning for a
reward model. *Overlap* prefers the response with the larger share of its words in its quote, or in
the question where it quotes nothing.
"""

import argparse
import collections
import pathlib
import sys
from collections.abc import Callable, Sequence

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from gophercite import records
from gophercite.decoding.rerank import Rewards, Scorer
from gophercite.evaluation.roc import roc_curve
from gophercite.model_folders.folder import load_reward_model
from gophercite.records import Comparison, Response
from gophercite.text import tfidf

Judge = Callable[[Sequence[tuple[str, Response]]], Rewards]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reward-model", metavar="FOLDER")
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    flags = parser.parse_args()
    judges: dict[str, Judge] = {"overlap": _overlaps}
    if flags.reward_model is not None:
        judges["reward model"] = Scorer(
            load_reward_model(flags.reward_model), batch_size=8
        ).score_each
    train, test = (_read(flags.folders, split) for split in ("train", "test"))
    headings = [
        "source",
        "decided pairs",
        "majority",
        *judges,
        *(f"S&P: {name}" for name in judges),
    ]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    for source, compared in test.items():
        sides = [c.preferred for c in train.get(source, []) if c.preferred in (0.0, 1.0)]
        side = float(np.mean(sides) >= 0.5) if sides else 1.0
        answered = [(c.question, response) for c in compared for response in c.responses]
        found = [judge(answered) for judge in judges.values()]
        preferred = np.array([np.nan if c.preferred is None else c.preferred for c in compared])
        decided = np.isin(preferred, (0.0, 1.0))
        accuracies = [(preferred[decided] == side).mean()]
        accuracies += [_accuracy(each.reward, preferred, decided) for each in found]
        cells = [f"{100 * share:.1f} %" for share in accuracies]
        cells += [_area(each.supported_and_plausible, compared) for each in found]
        print(f"| {source} | {decided.sum()} | {' | '.join(cells)} |")


def _read(folders: list[pathlib.Path], split: str) -> dict[str, list[Comparison]]:
    """The comparisons of a split by their source."""
    found = collections.defaultdict(list)
    for folder in folders:
        for comparison in records.read(folder / f"comparisons_{split}.jsonl", Comparison):
            found[comparison.source].append(comparison)
    return dict(sorted(found.items()))


def _overlaps(answered: Sequence[tuple[str, Response]]) -> Rewards:
    scores = np.array([_overlap(*each) for each in answered])
    return Rewards(scores, scores)


def _overlap(question: str, response: Response) -> float:
    """The share of a response's words that its quotes have; of the question's, without a quote."""
    if isinstance(response, str):
        asked = tfidf.words(question)
        return len(asked & tfidf.words(response)) / max(len(asked), 1)
    said = set().union(*(tfidf.words(f"{question} {triple.claim}") for triple in response))
    quoted = set().union(*(tfidf.words(triple.quote) for triple in response))
    return len(said & quoted) / max(len(said), 1)


def _accuracy(scores: np.ndarray, preferred: np.ndarray, decided: np.ndarray) -> float:
    """Of decided pairs; equal scores are right by half."""
    margin = np.diff(scores.reshape(-1, 2))[:, 0] * np.where(preferred == 1, 1, -1)
    return float(np.where(margin == 0, 0.5, margin > 0)[decided].mean())


def _area(scores: np.ndarray, compared: list[Comparison]) -> str:
    labels = [label for c in compared for label in c.supported_and_plausible]
    known = np.array([label is not None for label in labels])
    good = np.array([label is True for label in labels])[known]
    if not known.any() or good.all() or not good.any():
        return "–"
    return f"{roc_curve(scores[known], good).area:.3f}"


if __name__ == "__main__":
    main()

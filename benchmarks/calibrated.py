"""Whether a calibration holds for other answers: what it promises, and what `ask` says of each.

    gophercite calibrate answers_test.jsonl --questions gold.jsonl --out test.json
    python benchmarks/calibrated.py adapters/smollm2-citing/calibration.json test.json

Both files are calibrations of the same system. Prints how many of the first one's answers are good
in ranges of their scores; for each quality that it can promise with 95 % confidence, how many of
the second one's answers are given and how many of these are good; and the mean squared error of the
shares that `ask` says of the second one's answers (Brier), beside that of saying the first one's
share of all.
"""

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.answering.declining import read_calibration
from gophercite.decoding.abstention import TooFewLabelsError

EDGES = (0, 0.5, 0.7, 0.85, 0.95, 1)
QUALITIES = (0.5, 0.6, 0.7, 0.8, 0.9)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("calibration")
    parser.add_argument("other")
    options = parser.parse_args()
    calibration, other = (read_calibration(path) for path in (options.calibration, options.other))
    scores, good = np.array(calibration.scores), np.array(calibration.good)
    for low, high in itertools.pairwise(EDGES):
        among = good[(scores >= low) & ((scores < high) | (high == EDGES[-1]))]
        print(f"score from {low} to {high}: {among.sum()} of {len(among)} good")
    are_good = np.array(other.good)
    for quality in QUALITIES:
        try:
            promise = calibration.promise(quality)
        except TooFewLabelsError:
            break
        given = are_good[np.array(other.scores) > promise.threshold]
        print(
            f"{quality:.0%} promised, answering {promise.coverage:.0%}: of the others "
            f"{len(given)} of {len(are_good)} given, {given.sum()} of these good"
        )
    records = [calibration.track_record(score) for score in other.scores]
    said = np.array([record.good / record.of for record in records])
    brier, constant = (np.mean((share - are_good) ** 2) for share in (said, good.mean()))
    print(f"squared error: {brier:.3f}; the share of all, {good.mean():.3f}: {constant:.3f}")
    least = said < 0.5
    print(
        f"{least.sum()} others of which less than half were to be good: {said[least].mean():.0%} "
        f"were to be, {are_good[least].mean():.0%} are"
    )


if __name__ == "__main__":
    main()

"""Quality control against theory: who is promoted and discarded, and how right labels are.

    python benchmarks/simulated_raters.py

Simulated raters of known accuracy, each judgement right by chance of its own, go through a real
study: its data base, assignment, screening, attention checks and export. Beside each share stands
what the binomial distribution says:

  promoted   by a screening of 20 items (section C.1): 85 % of 40 judgements of Plausible, of 40 of
             Supported, and of 20 preferences
  discarded  by attention checks: fewer than 3 of 4 right, where a check is right when all its five
             judgements are
  labels     right after the vote of 3 and of 6 raters; of six, a tie is the lower label, false
"""

import argparse
import math
import pathlib
import random
import sys
import tempfile
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite import records  # noqa: E402
from gophercite.ratings import quality  # noqa: E402
from gophercite.ratings.assignment import Role  # noqa: E402
from gophercite.ratings.counting import Rules  # noqa: E402
from gophercite.ratings.experiments import (  # noqa: E402
    Experiment,
    Settings,
    add_rater,
    create_experiment,
)
from gophercite.ratings.export import Exporter  # noqa: E402
from gophercite.ratings.items import Answer, Claim, Item, NewItem, add_items, items_of  # noqa: E402
from gophercite.ratings.simulated import SimulatedRater, simulate  # noqa: E402
from gophercite.ratings.study import Study  # noqa: E402
from gophercite.records import RatedAnswer  # noqa: E402

ACCURACIES = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
LEAST = 0.85
JUDGED = ("plausible_0", "supported_0", "plausible_1", "supported_1")


def at_least(count: int, least: int, share: float) -> float:
    """The probability that so many of `count` are right."""
    return sum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(least, count + 1)
    )


def truths(count: int, draw: random.Random) -> dict[str, dict[str, str]]:
    """What is right of items; half of all judgements are yes."""
    made = {}
    for number in range(count):
        values = {name: draw.choice(("yes", "no")) for name in JUDGED}
        made[f"item {number}"] = values | {"preferred": draw.choice("01")}
    return made


def experiment_of(
    study: Study, name: str, truth: dict[str, dict[str, str]], role: Role, settings: Settings
) -> Experiment:
    """An experiment with an item for each truth."""
    experiment = create_experiment(study.store, name, "comparison", "wide", settings)
    answers = tuple(Answer((Claim(claim, "Mill", "It burned."),)) for claim in ("a", "b"))
    add_items(
        study.store,
        experiment,
        [
            NewItem(
                item,
                Item(item, f"When was {item}?", "simulated", answers),
                role,
                None if role is Role.ITEM else values,
            )
            for item, values in truth.items()
        ],
    )
    return experiment


def promoted(study: Study, accuracy: float, raters: int) -> tuple[float, float]:
    """The share of raters who pass a screening, and what theory says."""
    truth = truths(20, random.Random(0))
    settings = Settings(gold_every=1, comment_words=0)
    experiment = experiment_of(study, f"screening {accuracy}", truth, Role.GOLD, settings)
    names = [f"screened {accuracy} {number}" for number in range(raters)]
    simulate(study.store, experiment, truth, dict.fromkeys(names, SimulatedRater(accuracy)), seed=1)
    with study.store.writing() as connection:
        found = quality.promote(connection, study.store.now(), experiment, LEAST, "super")
    judgements, preferences = math.ceil(LEAST * 40), math.ceil(LEAST * 20)
    theory = at_least(40, judgements, accuracy) ** 2 * at_least(20, preferences, accuracy)
    return sum(each.passed for each in found) / raters, theory


def discarded(study: Study, accuracy: float, raters: int) -> tuple[float, float]:
    """The share of raters who fail the attention checks, and what theory says."""
    truth, draw = truths(4, random.Random(1)), random.Random(2)
    experiment = experiment_of(study, f"checks {accuracy}", truth, Role.CHECK, Settings())
    rater = SimulatedRater(accuracy)
    excluded = 0
    for number in range(raters):
        id = add_rater(study.store, f"checked {accuracy} {number}", "wide").id
        with study.store.writing() as connection:
            for item in items_of(connection, experiment, Role.CHECK):
                vote = rater.vote(truth[item.name], draw)
                now = study.store.now()
                quality.answer_check(connection, now, experiment, item.id, id, vote)
            excluded += quality.check_state(connection, experiment, id).passed is not True
    return excluded / raters, 1 - at_least(4, 3, accuracy ** (len(JUDGED) + 1))


def labels(study: Study, accuracy: float, votes: int, count: int) -> tuple[float, float]:
    """The share of exported labels that are right, and what theory says."""
    truth = truths(count, random.Random(3))
    settings = Settings(raters=votes, comment_words=0)
    name = f"labels {accuracy} {votes}"
    experiment = experiment_of(study, name, truth, Role.ITEM, settings)
    names = [f"{name} {number}" for number in range(votes)]
    simulate(study.store, experiment, truth, dict.fromkeys(names, SimulatedRater(accuracy)), seed=4)
    path = study.folder / f"{name}.jsonl"
    Exporter(study.store, study.secret, experiment, Rules()).write("rated-answers", path)
    right = said = 0
    expected = 0.0
    most, ties = votes // 2 + 1, votes // 2 if votes % 2 == 0 else votes // 2 + 1
    for place, rated in enumerate(records.read(path, RatedAnswer, strict=True)):
        values = truth[rated.question_id]
        for judged in ("plausible", "supported"):
            is_true = values[f"{judged}_{place % 2}"] == "yes"
            right += getattr(rated, judged) is is_true
            expected += at_least(votes, most if is_true else ties, accuracy)
            said += 1
    return right / said, expected / said


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table; returns 1 where a share is more than four standard errors from theory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--raters", type=int, default=200, help="of each accuracy (default: 200)")
    parser.add_argument("--items", type=int, default=300, help="that are labelled (default: 300)")
    flags = parser.parse_args(arguments)
    print("| accuracy | promoted % | discarded % | labels of 3 % | labels of 6 % |")
    print("|---|---|---|---|---|")
    off = 0
    with tempfile.TemporaryDirectory() as folder:
        study = Study.create(pathlib.Path(folder) / "study")
        for accuracy in ACCURACIES:
            found = [
                (*promoted(study, accuracy, flags.raters), flags.raters),
                (*discarded(study, accuracy, flags.raters), flags.raters),
                *(
                    (*labels(study, accuracy, votes, flags.items), 4 * flags.items)
                    for votes in (3, 6)
                ),
            ]
            cells = []
            for share, theory, count in found:
                error = math.sqrt(theory * (1 - theory) / count)
                off += abs(share - theory) > 4 * error + 1 / count
                cells.append(f"{100 * share:.1f} (theory {100 * theory:.1f})")
            print(f"| {accuracy} | {' | '.join(cells)} |", flush=True)
        study.store.close()
    print(f"{off} of {4 * len(ACCURACIES)} shares are off")
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main())

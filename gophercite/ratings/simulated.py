"""Simulated raters of known accuracy: to try out a study, for `launch/loop.py`, for tests."""

import dataclasses
import random
from collections.abc import Mapping

from gophercite.ratings import assignment
from gophercite.ratings.experiments import Experiment, add_rater
from gophercite.ratings.items import item_of
from gophercite.ratings.store import Store

_OPPOSITE = {"yes": "no", "no": "yes", "0": "1", "1": "0"}


@dataclasses.dataclass(frozen=True)
class SimulatedRater:
    """A rater who errs at random.

    Attributes:
      accuracy: probability that a judgement is right, if the rater makes one.
      unsure: probability that the rater makes no judgement.
    """

    accuracy: float
    unsure: float = 0.0

    def vote(self, truth: Mapping[str, str], draw: random.Random) -> dict[str, str]:
        """Returns a vote on an item.

        Args:
          truth: the right values by the form's fields, in the answers' own order. A value without
            an opposite, such as a tie, is always given as it is.
          draw: the source of randomness.
        """
        return {name: self._judge(value, draw) for name, value in truth.items()}

    def _judge(self, value: str, draw: random.Random) -> str:
        if value not in _OPPOSITE:
            return value
        if draw.random() < self.unsure:
            return "unsure"
        return value if draw.random() < self.accuracy else _OPPOSITE[value]


def simulate(
    store: Store,
    experiment: Experiment,
    truth: Mapping[str, Mapping[str, str]],
    raters: Mapping[str, SimulatedRater],
    seed: int = 0,
) -> int:
    """Lets raters take turns until they have rated everything that the experiment gives them.

    A vote depends only on the seed, the rater and the item, so an interrupted simulation can be
    continued with the same result. Nobody takes attention checks.

    Args:
      store: the study's store.
      experiment: an experiment with pairs of answers.
      truth: the right values of each item, by its name. If two answers are judged separately, the
        preference follows from a rater's own judgements. Items missing here are skipped.
      raters: by name; new ones join the pool.
      seed: seed of their votes.

    Returns:
      How many votes were added.
    """
    ids = {name: add_rater(store, name, experiment.pool).id for name in raters}
    waiting, votes = list(raters), 0
    while waiting:
        for name in list(waiting):
            now = store.now()
            with store.writing() as connection:
                lease = assignment.next_item(connection, now, experiment, ids[name])
                if lease is None:
                    waiting.remove(name)
                    continue
                item = item_of(connection, lease.item_id)
                right = truth.get(item.name)
                if right is None:
                    assignment.skip(connection, now, item.id, ids[name])
                    continue
                values = raters[name].vote(right, random.Random(f"{seed} {name} {item.name}"))
                values = _with_preference(values)
                assignment.vote(connection, now, experiment, item.id, ids[name], values, now)
                votes += 1
    return votes


def _with_preference(values: dict[str, str]) -> dict[str, str]:
    """Prefers the answer that alone is plausible and supported, as the form requires (table 8)."""
    if "preferred" in values or "supported_1" not in values:
        return values
    good = [values[f"plausible_{a}"] == values[f"supported_{a}"] == "yes" for a in (0, 1)]
    tie = "both_good" if all(good) else "both_bad"
    return values | {"preferred": tie if good[0] == good[1] else str(good.index(True))}

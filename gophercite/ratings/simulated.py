"""Raters of known accuracy: for trying a study out, for the loop, and to check quality control."""

import dataclasses
import random
from collections.abc import Mapping

_OPPOSITE = {"yes": "no", "no": "yes", "0": "1", "1": "0"}


@dataclasses.dataclass(frozen=True)
class SimulatedRater:
    """A rater who errs at random.

    Attributes:
      accuracy: the probability of each judgement to be right, of those that they make.
      unsure: the probability of not making one.
    """

    accuracy: float
    unsure: float = 0.0

    def vote(self, truth: Mapping[str, str], draw: random.Random) -> dict[str, str]:
        """Returns a vote on an item.

        Args:
          truth: what is right, by the names of a form, by the answers' own order. What has no
            opposite, such as a tie, is said as it is.
          draw: where chance comes from.
        """
        return {name: self._judge(value, draw) for name, value in truth.items()}

    def _judge(self, value: str, draw: random.Random) -> str:
        if value not in _OPPOSITE:
            return value
        if draw.random() < self.unsure:
            return "unsure"
        return value if draw.random() < self.accuracy else _OPPOSITE[value]

"""A model before and after reinforcement learning, by samples of both for the same questions.

A reward model has scored the samples, and the questions' gold evidence tells which are supported
and plausible. A "first answer" is any one sample: its quality is the mean over a question's
samples. The best of N is likewise a mean, over all choices of N of them (`best_of_n`).

The effect of another seed is estimated from complete chains: a supervised model, a reward model and
a policy trained with both, all three with that seed. Different seeds of reinforcement learning
alone, from one supervised model and one reward model, say nothing about other such models.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from gophercite.evaluation.abstention import CoverageCurve, coverage_curve
from gophercite.evaluation.best_of_n import best_of_n, put_last
from gophercite.evaluation.curves import Line
from gophercite.evaluation.differences import Difference, mean_difference
from gophercite.evaluation.intervals import Estimate, estimate


class SampleError(ValueError):
    """Samples that can't be compared; the message says whose, and what is wrong."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """Samples of a model.

    Attributes:
      name: the model's name.
      samples: lines of all samples of all questions (`results.sample_line`), each with `reward`,
        `log_prob` and `supported`.
      free: lines of unconstrained samples, to count their faults; may be empty.
      kl: how far the model has moved from its starting point, in nats per sample; None if it has
        not moved, or this is unknown.
    """

    name: str
    samples: Sequence[Line]
    free: Sequence[Line] = ()
    kl: float | None = None


class Drawn(NamedTuple):
    """A policy's samples, question by question.

    Attributes:
      reward: reward of each sample.
      log_prob: the policy's own log-probability of each sample, in nats.
      good: whether each sample is supported and plausible.
      distinct: number of distinct texts among a question's samples.
      last: whether each sample's quote lacks its claim, so that it is chosen last.
    """

    reward: Float[np.ndarray, "questions samples"]
    log_prob: Float[np.ndarray, "questions samples"]
    good: Bool[np.ndarray, "questions samples"]
    distinct: Float[np.ndarray, " questions"]
    last: Bool[np.ndarray, "questions samples"]


class Chain(NamedTuple):
    """A model before and after reinforcement learning.

    Attributes:
      before: the supervised model, scored by its chain's reward model.
      after: the policy, scored by the same reward model.
    """

    before: Policy
    after: Policy


@dataclasses.dataclass(frozen=True)
class PolicyStudy:
    """Models before and after reinforcement learning: a chain for each seed.

    Only questions for which every policy has all samples are scored. Several policies together
    stand for their mean, question by question; intervals are over questions unless stated
    otherwise.

    Attributes:
      chains: at least one.
    """

    chains: Sequence[Chain]

    def __post_init__(self) -> None:
        """Refuses what can't be compared.

        Raises:
          SampleError: there is no chain, two policies have the same name, samples lack a reward,
            log-probability or judgement, or no question has all samples of every policy.
        """
        if not self.chains:
            raise SampleError(
                "give at least one pair of models, before and after reinforcement learning"
            )
        for name, count in Counter(policy.name for policy in self.policies).items():
            if count > 1:
                raise SampleError(f"{count} policies have the name {name!r}")
        for policy in self.policies:
            for field in ("reward", "log_prob", "supported"):
                if any(line.get(field) is None for line in policy.samples):
                    raise SampleError(f"{policy.name}: a sample has no {field!r}")
        if not self.questions:
            raise SampleError("no question has enough samples from every policy")

    @property
    def before(self) -> tuple[Policy, ...]:
        """The models before reinforcement learning."""
        return tuple(chain.before for chain in self.chains)

    @property
    def after(self) -> tuple[Policy, ...]:
        """The models after it, in the same order."""
        return tuple(chain.after for chain in self.chains)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """All policies, those before reinforcement learning first."""
        return (*self.before, *self.after)

    @functools.cached_property
    def samples(self) -> int:
        """Number of samples per question, for each policy."""
        counts = [len(found) for of_policy in self._by_question for found in of_policy.values()]
        return max(counts, default=0)

    @functools.cached_property
    def questions(self) -> list[str]:
        """The ids of the questions that are scored."""
        return [
            question
            for question in self._by_question[0]
            if all(len(found.get(question, ())) == self.samples for found in self._by_question)
        ]

    @property
    def sizes(self) -> list[int]:
        """The values of N for the best of N: 1, 2, 4 … and all."""
        powers = {2**power for power in range(self.samples.bit_length())}
        return sorted({size for size in powers if size <= self.samples} | {self.samples})

    def drawn(self, policy: Policy) -> Drawn:
        """Returns a policy's samples of the scored questions."""
        names = [known.name for known in self.policies]
        of_policy = self._by_question[names.index(policy.name)]
        rows = [of_policy[question] for question in self.questions]
        return Drawn(
            np.array([[line["reward"] for line in row] for row in rows], float),
            np.array([[line["log_prob"] for line in row] for row in rows], float),
            np.array([[line["supported"] for line in row] for row in rows], bool),
            np.array([len({line["text"] for line in row}) for row in rows], float),
            np.array([[line.get("quote_lacks_claim") is True for line in row] for row in rows]),
        )

    def by_question(self, policies: Sequence[Policy], size: int) -> Float[np.ndarray, " questions"]:
        """Returns how often the best of N is good, for each question, averaged over policies.

        Args:
          policies: policies of this study.
          size: the N.
        """
        shares = []
        for policy in policies:
            drawn = self.drawn(policy)
            shares.append(best_of_n(drawn.reward, drawn.good, [size], drawn.last)[:, 0])
        return np.clip(np.mean(shares, axis=0), 0.0, 1.0)

    def quality(self, policies: Sequence[Policy]) -> dict[int, Estimate]:
        """Returns the share of good answers by N (figure 5), averaged over policies."""
        return {size: estimate(self.by_question(policies, size).tolist()) for size in self.sizes}

    def likeliest(self, policies: Sequence[Policy]) -> Estimate:
        """Returns the share of good answers when the policy's own likelihood chooses among all.

        A reward model is worth its cost if the best of all by reward beats this.

        Args:
          policies: policies of this study.
        """
        shares = []
        for policy in policies:
            drawn = self.drawn(policy)
            of_all = best_of_n(drawn.log_prob, drawn.good, [self.samples], drawn.last)
            shares.append(of_all[:, 0])
        return estimate(np.clip(np.mean(shares, axis=0), 0.0, 1.0).tolist())

    def gain(self, size: int) -> Difference:
        """Returns how much the best of N improved by reinforcement learning, over questions."""
        after = self.by_question(self.after, size)
        return mean_difference((after - self.by_question(self.before, size)).tolist())

    def gain_over_chains(self, size: int) -> Difference:
        """Returns the same over chains: an interval for repeating all trainings with new seeds.

        Args:
          size: the N.
        """
        return mean_difference(
            [
                float(np.mean(self.by_question([after], size) - self.by_question([before], size)))
                for before, after in self.chains
            ]
        )

    def coverage(self, policy: Policy) -> CoverageCurve:
        """Returns quality by coverage when the best of all samples is given only if its reward
        reaches a threshold (figure 4)."""
        drawn = self.drawn(policy)
        best = put_last(drawn.reward, drawn.last).argmax(axis=1)[:, None]
        found = drawn.reward, drawn.good
        scores, good = (np.take_along_axis(part, best, axis=1)[:, 0] for part in found)
        return coverage_curve(scores, good)

    def distinct(self, policies: Sequence[Policy]) -> float:
        """Returns the mean number of distinct texts among a question's samples."""
        return float(np.mean([np.mean(self.drawn(policy).distinct) for policy in policies]))

    @functools.cached_property
    def _by_question(self) -> list[dict[str, list[Line]]]:
        """For each policy, its samples by question."""
        found = []
        for policy in self.policies:
            of_policy: dict[str, list[Line]] = {}
            for line in policy.samples:
                of_policy.setdefault(line["question_id"], []).append(line)
            found.append(of_policy)
        return found


def faulty(lines: Sequence[Line]) -> Estimate:
    """Returns the share of samples that have any syntax fault.

    Args:
      lines: samples. Those for one question, even of several policies, are not independent, so the
        interval is over questions.
    """
    of_question: dict[str, list[bool]] = {}
    for line in lines:
        of_question.setdefault(line["question_id"], []).append(bool(line["faults"]))
    return estimate([float(np.mean(found)) for found in of_question.values()])


def fault_shares(lines: Sequence[Line]) -> Mapping[str, float]:
    """Returns the share of samples that have each fault, for the faults that occur."""
    counts = Counter(fault for line in lines for fault in line["faults"])
    return {fault: count / len(lines) for fault, count in sorted(counts.items())}

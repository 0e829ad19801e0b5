"""A model before and after reinforcement learning, by samples of both for the same questions.

A reward model has scored the samples, and the questions' gold evidence tells which are supported
and plausible. A "first answer" is any one sample: its quality is the mean over a question's
samples. The best of N is likewise a mean, over all choices of N of them (`best_of_n`). Questions
may have different numbers of samples, as those with several pages have.

The effect of another seed is estimated from complete chains: a supervised model, a reward model and
a policy trained with both, all three with that seed. Different seeds of reinforcement learning
alone, from one supervised model and one reward model, say nothing about other such models.
"""

import dataclasses
import functools
import math
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

_NEEDED = ("text", "reward", "log_prob", "supported", "faults")  # of each sample


class SampleError(ValueError):
    """Samples that can't be compared; the message says whose, and what is wrong."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """Samples of a model.

    Attributes:
      name: the model's name.
      samples: lines of all samples of all questions (`results.sample_line`), each with `reward`,
        `log_prob`, `supported`, `text` and `faults`.
      free: lines of unconstrained samples, to count their faults; may be empty.
      kl: how far the model has moved from its starting point, in nats per sample; None if it has
        not moved, or this is unknown.
    """

    name: str
    samples: Sequence[Line]
    free: Sequence[Line] = ()
    kl: float | None = None


class Drawn(NamedTuple):
    """A policy's samples for one question.

    Attributes:
      texts: each sample's text.
      reward: reward of each sample.
      good: whether each sample is supported and plausible.
      log_prob: the policy's own log-probability of each sample, in nats.
      last: whether each sample's quote lacks its claim, so that it is chosen last.
    """

    texts: tuple[str, ...]
    reward: Float[np.ndarray, " samples"]
    good: Bool[np.ndarray, " samples"]
    log_prob: Float[np.ndarray, " samples"]
    last: Bool[np.ndarray, " samples"]


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

    Only questions for which every policy has samples are scored: all of them for first answers, and
    for the best of several those with enough samples (`complete`). Several policies together stand
    for their mean, question by question; intervals are over questions unless stated otherwise.

    Attributes:
      chains: at least one.
    """

    chains: Sequence[Chain]

    def __post_init__(self) -> None:
        """Refuses what can't be compared.

        Raises:
          SampleError: there is no chain, two policies have the same name, samples lack a text,
            reward, log-probability, judgement or faults, or no question has samples of every
            policy.
        """
        if not self.chains:
            raise SampleError(
                "give at least one pair of models, before and after reinforcement learning"
            )
        for name, count in Counter(policy.name for policy in self.policies).items():
            if count > 1:
                raise SampleError(f"{count} policies have the name {name!r}")
        for policy in self.policies:
            for lines, fields in ((policy.samples, _NEEDED), (policy.free, ["faults"])):
                for field in fields:
                    if any(line.get(field) is None for line in lines):
                        raise SampleError(f"{policy.name}: a sample has no {field!r}")
        if not self.questions:
            raise SampleError("no question has samples of every model")

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
        """The commonest number of samples that a question has of every policy."""
        counts = Counter(self._shared_samples.values())
        return max(counts, key=lambda number: (counts[number], -number))

    @functools.cached_property
    def questions(self) -> list[str]:
        """The ids of the questions for which every policy has samples."""
        return list(self._shared_samples)

    @functools.cached_property
    def complete(self) -> list[str]:
        """The ids of those with at least `samples` of every policy.

        Only for these can the best of so many be chosen. Those with more count with all of them.
        """
        shared = self._shared_samples
        return [question for question in shared if shared[question] >= self.samples]

    @property
    def unshared(self) -> int:
        """Number of questions that are left out, since only some policies have samples for them."""
        return len(set[str]().union(*self._by_question)) - len(self.questions)

    @property
    def sizes(self) -> list[int]:
        """The values of N for the best of N: 1, 2, 4 … and all."""
        powers = {2**power for power in range(self.samples.bit_length())}
        return sorted({size for size in powers if size <= self.samples} | {self.samples})

    def drawn(self, policy: Policy, questions: Sequence[str]) -> list[Drawn]:
        """Returns a policy's samples of each of these questions."""
        names = [known.name for known in self.policies]
        of_policy = self._by_question[names.index(policy.name)]
        return [
            Drawn(
                tuple(line["text"] for line in of_policy[question]),
                np.array([line["reward"] for line in of_policy[question]], float),
                np.array([line["supported"] for line in of_policy[question]], bool),
                np.array([line["log_prob"] for line in of_policy[question]], float),
                np.array([line.get("quote_lacks_claim") is True for line in of_policy[question]]),
            )
            for question in questions
        ]

    def by_question(self, policies: Sequence[Policy], size: int) -> Float[np.ndarray, " questions"]:
        """Returns how often the best of N is good, averaged over policies.

        Args:
          policies: policies of this study.
          size: the N.

        Returns:
          A share for each of `questions` if N is 1, and otherwise for each of `complete`.
        """
        questions = self.questions if size == 1 else self.complete
        shares = [
            [_best_of(drawn, drawn.reward, size) for drawn in self.drawn(policy, questions)]
            for policy in policies
        ]
        return np.clip(np.mean(shares, axis=0), 0.0, 1.0)

    def quality(self, policies: Sequence[Policy]) -> dict[int, Estimate]:
        """Returns the share of good answers by N (figure 5), averaged over policies."""
        return {size: estimate(self.by_question(policies, size).tolist()) for size in self.sizes}

    def likeliest(self, policies: Sequence[Policy]) -> Estimate:
        """Returns the share of good answers when the policy's own likelihood chooses.

        A reward model is worth its cost if the best of all by reward beats this.

        Args:
          policies: policies of this study.
        """
        shares = [
            [
                _best_of(drawn, drawn.log_prob, self.samples)
                for drawn in self.drawn(policy, self.complete)
            ]
            for policy in policies
        ]
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
        """Returns quality by coverage when the best of a question's samples, of all that there are,
        is given only if its reward reaches a threshold (figure 4)."""
        scores, good = [], []
        for drawn in self.drawn(policy, self.complete):
            best = put_last(drawn.reward, drawn.last).argmax()
            scores.append(drawn.reward[best])
            good.append(drawn.good[best])
        return coverage_curve(np.array(scores), np.array(good))

    def distinct(self, policies: Sequence[Policy]) -> float:
        """Returns the mean number of distinct texts among so many samples of a question."""
        found = [
            _distinct(drawn.texts, self.samples)
            for policy in policies
            for drawn in self.drawn(policy, self.complete)
        ]
        return float(np.mean(found))

    @functools.cached_property
    def _shared_samples(self) -> dict[str, int]:
        """The number of samples that every policy has of a question, if that is not none."""
        first, *others = self._by_question
        return {
            question: min(len(samples), *(len(each[question]) for each in others))
            for question, samples in first.items()
            if all(question in each for each in others)
        }

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


def _best_of(drawn: Drawn, chosen_by: Float[np.ndarray, " samples"], size: int) -> float:
    """How often the best of N samples is good."""
    return float(best_of_n(chosen_by[None], drawn.good[None], [size], drawn.last[None])[0, 0])


def _distinct(texts: Sequence[str], size: int) -> float:
    """The expected number of distinct texts among `size` of them, drawn without replacement."""
    every = math.comb(len(texts), size)
    absent = (math.comb(len(texts) - count, size) for count in Counter(texts).values())
    return sum(1 - missed / every for missed in absent)


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

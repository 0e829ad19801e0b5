"""Advantage actor-critic against a reward model (GopherCite, 2.8 and F.1).

One compiled step samples, judges, and updates: nothing goes to the host. What the frozen layers
make of prompts and samples is computed while sampling, once, and read by policy, value and teacher;
the teacher holds only what the policy trains.
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gophercite.decoding.decode_state import Plan
from gophercite.decoding.response_automaton import FAULTS
from gophercite.learning.gradient_learner import GradientLearner, cut_rows
from gophercite.learning.phases import phase
from gophercite.learning.policy_terms import Places, Readouts, policy_terms
from gophercite.learning.rollouts import Rewards, Rollouts, distinct_samples, roll_out
from gophercite.learning.state import Batch, Metrics, Totals, TrainState
from gophercite.models.parameters import (
    ADAPTERS,
    BESIDE_THE_POLICY,
    HEADS,
    REWARD_MODEL,
    TEACHER,
    VALUE_HEAD,
    Axes,
    Params,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.unembedding import Unembedding
from gophercite.models.value_head import ValueHead
from gophercite.quoting.quote_state import QuoteTables

AverageOver = Literal["response_tokens", "max_tokens"]

_ROLLOUTS, _EVALUATION = 1, 2  # what a key is folded with, by purpose


class Collected(NamedTuple):
    """What A2C learns from.

    Attributes:
      rollouts: samples with their rewards.
      quotes: the tables that they were constrained by.
    """

    rollouts: Rollouts
    quotes: QuoteTables | None


class Shared(NamedTuple):
    """What all microbatches of rollouts share.

    Attributes:
      scale: of their sums.
      quotes: the tables that samples were constrained by.
    """

    scale: Float[Array, ""]
    quotes: QuoteTables | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CLearner(GradientLearner):
    """One synchronous update a batch of prompts.

    The objective is α · KL(policy ‖ teacher) + (1 − α) · (policy loss + w · value loss), each a sum
    over the batch's response tokens, end of sequence included, divided by one number for the whole
    batch (`average_over`). The policy loss of a token is −advantage · log π, its value loss the
    square of the advantage, and the advantage is the sample's reward less the value there: the
    final reward that is expected from this token on, undiscounted. The policy's gradient does not
    go through the advantage. Batches are described in `rollouts`.

    The two divisors differ by more than a constant. The number of response tokens depends on what
    was sampled, so a mean over them is a ratio of two random numbers: in expectation its gradient
    is not quite that of the expected sum, by an error that falls as 1 / samples in a batch, and a
    batch of short samples makes larger steps. Dividing by a fixed number has no such bias, but
    makes steps small where samples are far shorter than `max_tokens`, and so changes what a
    learning rate and a clipping norm mean whenever that limit is changed.

    The parameters are the policy's with three parts more: `value_head`; `teacher`, the trained
    parts as they were at first; and `reward_model`. The last two are not trained. A policy with
    adapters has its teacher in itself: without them it is what it was at first.

    Attributes:
      rewards: what samples are rewarded for.
      plan: how they are sampled: from the model's own distribution among what is allowed.
      kl_weight: α.
      value_weight: w, which multiplies (reward − value)², not half of it.
      average_over: "response_tokens" divides by the tokens that the batch's samples have;
        "max_tokens" by samples × the most tokens that a sample may have, so that places after a
        sample's end count as zeros. Samples of weight 0 count in neither.
      value_width: of the value's two hidden layers.
      value_scale: what the value's last layer gives is multiplied by (`ValueHead.scale`).
      loss_chunk: places whose logits exist at once.
      rollout_pieces: that a batch's prompts are cut into, sampled one after the other; divides the
        memory for keys and values, and changes no sample.
    """

    rewards: Rewards
    plan: Plan
    kl_weight: float = 0.1
    value_weight: float = 0.5
    average_over: AverageOver = "response_tokens"
    value_width: int = 2048
    value_scale: float = 1.0
    loss_chunk: int = 512
    rollout_pieces: int = 1

    def __post_init__(self) -> None:
        """Refuses what would not be the policy's gradient.

        Raises:
          ValueError: a setting is out of range, or samples are not drawn from the distribution
            itself.
        """
        if not 0 <= self.kl_weight <= 1:
            raise ValueError(f"A2CLearner.kl_weight = {self.kl_weight}: must be from 0 to 1")
        if self.value_weight < 0:
            raise ValueError(f"A2CLearner.value_weight = {self.value_weight}: must be at least 0")
        if self.value_scale <= 0:
            raise ValueError(f"A2CLearner.value_scale = {self.value_scale}: must be above 0")
        if self.average_over not in get_args(AverageOver):
            known = " or ".join(f'"{name}"' for name in get_args(AverageOver))
            raise ValueError(f'A2CLearner.average_over = "{self.average_over}": must be {known}')
        drawn = self.plan.settings
        if drawn.temperature != 1 or drawn.top_p != 1 or drawn.top_k is not None:
            raise ValueError(
                f"A2CLearner samples with {drawn}: the policy's gradient is that of its own "
                "distribution; set temperature = 1, top_p = 1 and top_k = None"
            )

    @property
    def value_head(self) -> ValueHead:
        """The value function."""
        return ValueHead(self.transformer.config, self.value_width, self.value_scale)

    @property
    def reward_model(self) -> RewardModel:
        """What judges samples."""
        return self.rewards.model

    def policy_parts(self, params: Params) -> Params:
        """The language model's parts alone."""
        return {name: part for name, part in params.items() if name not in BESIDE_THE_POLICY}

    def trained(self, params: Params) -> Params:
        """The parts of a tree of parameters that are trained."""
        parts = super().trained(params)
        return {name: parts[name] for name in parts if name not in (TEACHER, REWARD_MODEL)}

    def with_extra_parts(self, policy: Params, reward_model: Params, value_head: Params) -> Params:
        """The parameters of a run's first step, from those of a policy.

        Args:
          policy: a language model's, split where the run freezes layers.
          reward_model: a reward model's, its heads included.
          value_head: the value function's.

        Returns:
          All parts; the teacher is a copy of what is trained of the policy, less its adapters.
        """
        teacher = {n: part for n, part in super().trained(policy).items() if n != ADAPTERS}
        return {
            **policy,
            VALUE_HEAD: value_head,
            TEACHER: jax.tree.map(jnp.copy, teacher),
            REWARD_MODEL: reward_model,
        }

    def logical_axes(self, params: Params) -> Axes:
        """Logical axis names of each parameter, for parameters or their shapes."""
        policy = super().logical_axes(params)
        judge = self.rewards.model
        return {
            **policy,
            VALUE_HEAD: self.value_head.axes(),
            TEACHER: {name: policy[name] for name in params[TEACHER]},
            REWARD_MODEL: {**judge.transformer.logical_axes(), HEADS: judge.heads_axes()},
        }

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """Samples, judges, and takes one step.

        Args:
          state: before the step; may be donated.
          batch: see `rollouts`.

        Returns:
          The state after it, and metrics (docs/reinforcement_learning.md names each).
        """
        key = jax.random.fold_in(jax.random.fold_in(state.key, _ROLLOUTS), state.step)
        return self.learn(state, self.collect(state.params, batch, key))

    def collect(self, params: Params, batch: Batch, key: Key[Array, ""]) -> Collected:
        """Samples and judges; nothing leaves the device.

        Args:
          params: all parameters.
          batch: see `rollouts`.
          key: of the draws.

        Returns:
          What `learn` takes.
        """
        rollouts = roll_out(self.plan, self.rewards, params, batch, key, self.rollout_pieces)
        return Collected(rollouts, batch.get("quotes"))  # type: ignore[arg-type]

    def learn(self, state: TrainState, experience: Collected) -> tuple[TrainState, Metrics]:
        """The step from given experience on.

        Args:
          state: before the step.
          experience: of its policy.

        Returns:
          As `update`.
        """
        rollouts, quotes = experience
        shared = Shared(1 / self.divisor(rollouts), quotes)
        gradients, sums = self.gradients(state.params, rollouts._asdict(), shared)
        after, metrics = self.descend(state, gradients)
        return after, {**metrics, **_loss_metrics(sums), **self._rollout_metrics(rollouts)}

    def divisor(self, rollouts: Rollouts) -> Float[Array, ""]:
        """What a whole batch's sums are divided by, however it is cut into microbatches."""
        if self.average_over == "response_tokens":
            count = jnp.sum(rollouts.weights * rollouts.response_lengths)
        else:
            count = jnp.sum(rollouts.weights) * rollouts.responses.shape[1]
        return jnp.maximum(count.astype(jnp.float32), 1)

    def losses(
        self, params: Params, batch: Any, weights: Any, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Metrics]:
        """See `GradientLearner`; `batch` are rows of rollouts, `weights` what they share."""
        objective, sums = self._totals(params, Rollouts(**batch), weights.quotes, accumulated)
        total = weights.scale * objective
        return total, {**sums, "loss/total": total}

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """One sample of each prompt, judged; the draws are the same at every evaluation.

        Args:
          params: all parameters.
          batch: see `rollouts`.

        Returns:
          Totals of `reward`, `score`, `supported_and_plausible`, `length`, `kl` (of a sample, in
          nats) and of each kind of fault, with the samples' number.
        """
        plan = dataclasses.replace(self.plan, samples=1, rows=1)
        key: Key[Array, ""] = jax.random.key(_EVALUATION)
        count = batch["prompts"].shape[0]  # what its size has no part of is cut into fewer
        sampled, learnt = (math.gcd(n, count) for n in (self.rollout_pieces, self.microbatches))
        rollouts = roll_out(plan, self.rewards, params, batch, key, sampled)
        quotes: Any = batch.get("quotes")
        kl = jax.lax.map(
            lambda rows: self._totals(params, Rollouts(**rows), quotes, None)[1]["kl"],
            cut_rows(rollouts._asdict(), learnt),
        )
        weight = jnp.sum(rollouts.weights)
        return {
            **{name: (total, weight) for name, total in _sample_sums(rollouts).items()},
            "kl": (jnp.sum(kl), weight),
        }

    def _totals(
        self,
        params: Params,
        rollouts: Rollouts,
        quotes: QuoteTables | None,
        accumulated: Params | None,
    ) -> tuple[Float[Array, ""], Metrics]:
        """The objective of some rows of rollouts, not yet scaled, and sums over their places."""
        rows, places = rollouts.responses.shape
        place = jnp.arange(places)
        real = place < rollouts.response_lengths[:, None]
        weights = real * rollouts.weights[:, None]
        hidden, reference = self._representations(params, rollouts, accumulated)
        with phase("values"):
            values = self.value_head.apply(params[VALUE_HEAD], hidden)
        rewards = rollouts.rewards[:, None]
        advantages = jax.lax.stop_gradient(rewards - values)
        with phase("distributions"):
            objective, sums = policy_terms(
                Readouts(hidden, self.transformer.unembedding(params)),
                Readouts(reference, self._teacher_unembedding(params)),
                Places(
                    rollouts.responses,
                    jnp.broadcast_to(self.plan.settings.max_tokens - place, (rows, places)),
                    weights,
                    advantages,
                    rollouts.quote,
                ),
                quotes,
                self.kl_weight,
                self.plan.vocabulary_size,
                self.loss_chunk,
            )
        value_loss = jnp.sum(weights * jnp.square(rewards - values))
        objective += (1 - self.kl_weight) * self.value_weight * value_loss
        rewarded = jnp.broadcast_to(rewards, weights.shape)
        return objective, {
            **sums._asdict(),
            "value_loss": value_loss,
            "places": jnp.sum(weights),
            "rows": jnp.sum(rollouts.weights),
            "advantage": jnp.sum(weights * advantages),
            "advantage_square": jnp.sum(weights * jnp.square(advantages)),
            "reward": jnp.sum(weights * rewarded),
            "reward_square": jnp.sum(weights * jnp.square(rewarded)),
        }

    def _representations(
        self, params: Params, rollouts: Rollouts, accumulated: Params | None
    ) -> tuple[Float[Array, "rows places d_model"], Float[Array, "rows places d_model"]]:
        """What policy and teacher have before each token of the samples."""
        positions = jnp.broadcast_to(jnp.arange(rollouts.tokens.shape[1]), rollouts.tokens.shape)
        ends = rollouts.prompt_lengths + rollouts.response_lengths
        segments = (positions < ends[:, None]).astype(jnp.int32)
        before = rollouts.prompt_lengths[:, None] - 1 + jnp.arange(rollouts.responses.shape[1])

        def read(params: Params, **options: Any) -> Array:
            x = rollouts.frozen_activations
            if x is None:
                x = self.transformer.embed(params, rollouts.tokens, positions)
            hidden = self.transformer.from_frozen_activations(
                params, x, positions, segments, **options
            )
            return jnp.take_along_axis(hidden, before[..., None], axis=1)

        with phase("teacher"):
            reference = jax.lax.stop_gradient(read(_teacher(params)))
        with phase("policy"):
            return read(params, accumulated=accumulated), reference

    def _teacher_unembedding(self, params: Params) -> Unembedding:
        teacher = self.transformer.unembedding(_teacher(params))
        stopped: Unembedding = jax.lax.stop_gradient(teacher)
        return stopped

    def _rollout_metrics(self, rollouts: Rollouts) -> Metrics:
        count = jnp.maximum(jnp.sum(rollouts.weights), 1)
        means = {name: total / count for name, total in _sample_sums(rollouts).items()}
        real = rollouts.weights > 0
        faults = {f"faults/{n}": means[n] for n in [_name(i) for i in range(len(FAULTS))]}
        return {
            "objective/scores": means["score"],
            "objective/rlhf_reward": means["reward"],
            "reward/min": jnp.min(rollouts.rewards, where=real, initial=jnp.inf),
            "reward/max": jnp.max(rollouts.rewards, where=real, initial=-jnp.inf),
            "reward/supported_and_plausible": means["supported_and_plausible"],
            "faults/any": means["faults"],
            **faults,
            "samples/length": means["length"],
            "samples/distinct": distinct_samples(rollouts.responses, self.plan.samples),
            "throughput/samples": count,
        }


def _teacher(params: Params) -> Params:
    """The policy's parameters as they were at first."""
    return {n: part for n, part in params.items() if n != ADAPTERS} | params[TEACHER]


def _name(fault: int) -> str:
    return FAULTS[fault].name.lower()


def _sample_sums(rollouts: Rollouts) -> Metrics:
    """Sums over samples of what there is one of for each."""
    total = lambda values: jnp.sum(rollouts.weights * values)  # noqa: E731
    verdicts = rollouts.verdicts
    return {
        "reward": total(rollouts.rewards),
        "score": total(verdicts.reward),
        "supported_and_plausible": total(jax.nn.sigmoid(verdicts.supported_and_plausible)),
        "length": total(rollouts.response_lengths),
        "faults": total(rollouts.faults != 0),
        **{_name(i): total(rollouts.faults >> i & 1) for i in range(len(FAULTS))},
    }


def _loss_metrics(sums: Metrics) -> Metrics:
    """Means of the sums over places of a whole batch."""
    places, rows = jnp.maximum(sums["places"], 1), jnp.maximum(sums["rows"], 1)
    mean = {name: total / places for name, total in sums.items()}
    spread = mean["reward_square"] - jnp.square(mean["reward"])
    error = mean["advantage_square"] - jnp.square(mean["advantage"])
    varies = spread > 1e-6 * mean["reward_square"]  # beyond what float32 makes of equal rewards
    return {
        "loss/total": sums["loss/total"],
        "loss/policy_avg": -mean["advantage_log_prob"],
        "loss/value_avg": mean["value_loss"],
        "critic/vf_explained_var": jnp.where(varies, 1 - error / spread, 0),
        "objective/kl": sums["kl"] / rows,
        "objective/entropy": sums["entropy"] / rows,
        "policy/kl_avg": mean["kl"],
        "policy/entropy_avg": mean["entropy"],
        "policy/log_prob_avg": mean["log_prob"],
        "policy/outside_claims": mean["outside_claims"],
        "policy/forced": mean["forced"],
        "advantage/mean": mean["advantage"],
        "advantage/std": jnp.sqrt(jnp.maximum(error, 0)),
    }

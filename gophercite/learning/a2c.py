"""Advantage actor-critic against a reward model (GopherCite, 2.8 and F.1).

One compiled step samples, scores, and updates: nothing goes to the host. The frozen layers'
activations of prompts and samples are computed once, while sampling, and are shared by policy,
value function and, unless the embedding is trained, teacher; the teacher holds only the parts that
the policy trains.
"""

import dataclasses
import math
from typing import Any, ClassVar, Literal, NamedTuple, get_args

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
    initial_policy,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.unembedding import Unembedding
from gophercite.models.value_head import ValueHead
from gophercite.quoting.quote_state import QuoteTables

AverageOver = Literal["response_tokens", "max_tokens"]

_ROLLOUTS, _EVALUATION = 1, 2  # folded into a key, by purpose


class Collected(NamedTuple):
    """The experience that A2C learns from.

    Attributes:
      rollouts: samples with their rewards.
      quotes: the tables that constrained the samples; None without a constraint.
    """

    rollouts: Rollouts
    quotes: QuoteTables | None


class Shared(NamedTuple):
    """What all microbatches of rollouts share.

    Attributes:
      scale: factor on their sums.
      quotes: the tables that constrained the samples; None without a constraint.
    """

    scale: Float[Array, ""]
    quotes: QuoteTables | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CLearner(GradientLearner):
    """One synchronous update per batch of prompts.

    The objective is α · KL(policy ‖ teacher) + (1 − α) · (policy loss + w · value loss), each a sum
    over the batch's response tokens, including the end of sequence, divided by one number for the
    entire batch (`average_over`). The policy loss of a token is −advantage · log π, its value loss
    is the square of the advantage. The advantage is the sample's reward minus the value at the
    token, which predicts the final reward, undiscounted. The policy's gradient does not flow
    through the advantage. Batches are described in `rollouts`.

    The two divisors differ by more than a constant. The number of response tokens depends on the
    samples, so a mean over them is a ratio of two random numbers: its expected gradient differs
    from that of the expected sum, by an error that falls as 1 / samples in a batch, and a batch of
    short samples takes larger steps. Dividing by a fixed number has no such bias. But it makes
    steps small if samples are far shorter than `max_tokens`, so changing that limit changes the
    effect of a learning rate and a clipping norm.

    The parameters are the policy's plus three parts: `value_head`; `teacher`, the initial values of
    the trained parts; and `reward_model`. The last two are not trained. A policy with adapters
    needs no copy as its teacher: without the adapters it is the initial policy.

    Attributes:
      rewards: what samples are rewarded for.
      plan: how samples are drawn: from the model's own distribution over the allowed tokens.
      kl_weight: α.
      value_weight: w, the factor on (reward − value)², not on half of it.
      average_over: "response_tokens" divides by the number of tokens in the batch's samples;
        "max_tokens" by the number of samples × the maximum tokens per sample, so that positions
        after a sample's end count as zeros. Samples of weight 0 count in neither.
      value_width: width of the value head's two hidden layers.
      value_scale: factor on the output of the value head's last layer (`ValueHead.scale`).
      loss_chunk: number of positions whose logits are in memory at once; None is the platform's
        usual number (`cross_entropy.in_chunks`).
      rollout_pieces: number of pieces that a batch's prompts are split into, which are sampled one
        after the other; divides the memory of the KV cache and does not change the samples.
    """

    added_parts: ClassVar = (VALUE_HEAD, TEACHER, REWARD_MODEL)

    rewards: Rewards
    plan: Plan
    kl_weight: float = 0.1
    value_weight: float = 0.5
    average_over: AverageOver = "response_tokens"
    value_width: int = 2048
    value_scale: float = 1.0
    loss_chunk: int | None = None
    rollout_pieces: int = 1

    def __post_init__(self) -> None:
        """Refuses settings under which the update would not be the policy gradient.

        Raises:
          ValueError: a setting is out of range, or samples are not drawn from the policy's own
            distribution.
        """
        super().__post_init__()
        self._require_counts("rollout_pieces", "value_width")
        self._require_numbers("kl_weight", least=0, most=1)
        self._require_numbers("value_weight", least=0)
        self._require_numbers("value_scale", above=0)
        self._require_chunk(self.loss_chunk)
        if self.average_over not in get_args(AverageOver):
            known = " or ".join(f'"{name}"' for name in get_args(AverageOver))
            raise ValueError(f'A2CLearner.average_over = "{self.average_over}": must be {known}')
        drawn = self.plan.settings
        if drawn.temperature != 1 or drawn.top_p != 1 or drawn.top_k is not None:
            raise ValueError(
                f"A2CLearner samples with {drawn}: the policy's gradient is that of its own "
                "distribution; set temperature = 1, top_p = 1 and top_k = None"
            )

    def check_batch(self, rows: int) -> None:
        """Refuses a number of prompts that the settings can't divide; see `GradientLearner`."""
        self._refuse_uneven("rollout_pieces", rows, "prompts")
        super().check_batch(rows * self.plan.samples)

    @property
    def value_head(self) -> ValueHead:
        """The value function's head."""
        return ValueHead(self.transformer.config, self.value_width, self.value_scale)

    @property
    def reward_model(self) -> RewardModel:
        """The model that scores samples."""
        return self.rewards.model

    def policy_parts(self, params: Params) -> Params:
        """The language model's parts only."""
        return {name: part for name, part in params.items() if name not in BESIDE_THE_POLICY}

    def trained(self, params: Params) -> Params:
        """The parts of a tree of parameters that are trained."""
        parts = super().trained(params)
        return {name: parts[name] for name in parts if name not in (TEACHER, REWARD_MODEL)}

    def with_extra_parts(self, policy: Params, reward_model: Params, value_head: Params) -> Params:
        """The parameters at a run's first step, from a policy's parameters.

        Args:
          policy: a language model's parameters, split if the run freezes layers.
          reward_model: a reward model's parameters, including its heads.
          value_head: the value head's parameters.

        Returns:
          All parts; the teacher is a copy of the policy's trained parts, without adapters.
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
        """Samples, scores, and takes one step.

        Args:
          state: the state before the step; may be donated.
          batch: see `rollouts`.

        Returns:
          The state after the step, and metrics (docs/reinforcement_learning.md names each).
        """
        key = jax.random.fold_in(jax.random.fold_in(state.key, _ROLLOUTS), state.step)
        return self.learn(state, self.collect(state.params, batch, key))

    def collect(self, params: Params, batch: Batch, key: Key[Array, ""]) -> Collected:
        """Samples and scores; nothing leaves the device.

        Args:
          params: all parameters.
          batch: see `rollouts`.
          key: random key of the draws.

        Returns:
          The experience for `learn`.
        """
        rollouts = roll_out(self.plan, self.rewards, params, batch, key, self.rollout_pieces)
        return Collected(rollouts, batch.get("quotes"))  # type: ignore[arg-type]

    def learn(self, state: TrainState, experience: Collected) -> tuple[TrainState, Metrics]:
        """Takes one step from given experience.

        Args:
          state: the state before the step.
          experience: experience of this state's policy.

        Returns:
          As in `update`.
        """
        rollouts, quotes = experience
        shared = Shared(1 / self.divisor(rollouts), quotes)
        gradients, sums = self.gradients(state.params, rollouts._asdict(), shared)
        after, metrics = self.descend(state, gradients)
        return after, {**metrics, **_loss_metrics(sums), **self._rollout_metrics(rollouts)}

    def divisor(self, rollouts: Rollouts) -> Float[Array, ""]:
        """The divisor of the entire batch's sums, independent of microbatches."""
        if self.average_over == "response_tokens":
            count = jnp.sum(rollouts.weights * rollouts.response_lengths)
        else:
            count = jnp.sum(rollouts.weights) * rollouts.responses.shape[1]
        return jnp.maximum(count.astype(jnp.float32), 1)

    def losses(
        self, params: Params, batch: Any, weights: Any, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Metrics]:
        """See `GradientLearner`; `batch` is rows of rollouts, `weights` is their `Shared`."""
        objective, sums = self._totals(params, Rollouts(**batch), weights.quotes, accumulated)
        total = weights.scale * objective
        return total, {**sums, "loss/total": total}

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Draws and scores one sample per prompt, with the same random numbers at every evaluation.

        Args:
          params: all parameters.
          batch: see `rollouts`.

        Returns:
          Totals of `reward`, `score`, `supported_and_plausible`, `length`, `kl` (per sample, in
          nats) and of each kind of fault, with the number of samples.
        """
        plan = dataclasses.replace(self.plan, samples=1, rows=1)
        key: Key[Array, ""] = jax.random.key(_EVALUATION)
        count = batch["prompts"].shape[0]  # pieces must divide it: else use fewer
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
        """The unscaled objective of some rows of rollouts, and sums over their positions."""
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
        """The policy's and the teacher's representations before each token of the samples."""
        positions = jnp.broadcast_to(jnp.arange(rollouts.tokens.shape[1]), rollouts.tokens.shape)
        ends = rollouts.prompt_lengths + rollouts.response_lengths
        segments = (positions < ends[:, None]).astype(jnp.int32)
        before = rollouts.prompt_lengths[:, None] - 1 + jnp.arange(rollouts.responses.shape[1])

        def read(params: Params, x: Array | None, **options: Any) -> Array:
            if x is None:
                x = self.transformer.frozen_activations(
                    params, rollouts.tokens, positions, segments
                )
            hidden = self.transformer.from_frozen_activations(
                params, x, positions, segments, **options
            )
            return jnp.take_along_axis(hidden, before[..., None], axis=1)

        x = rollouts.frozen_activations
        with phase("teacher"):
            # The frozen layers' activations are shared unless the embedding below is trained.
            of_teacher = None if "embed" in params[TEACHER] else x
            reference = jax.lax.stop_gradient(read(initial_policy(params), of_teacher))
        with phase("policy"):
            return read(params, x, accumulated=accumulated), reference

    def _teacher_unembedding(self, params: Params) -> Unembedding:
        teacher = self.transformer.unembedding(initial_policy(params))
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


def _name(fault: int) -> str:
    return FAULTS[fault].name.lower()


def _sample_sums(rollouts: Rollouts) -> Metrics:
    """Sums over samples of the per-sample metrics."""
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
    """Means, from the sums over all positions of a batch."""
    places, rows = jnp.maximum(sums["places"], 1), jnp.maximum(sums["rows"], 1)
    mean = {name: total / places for name, total in sums.items()}
    spread = mean["reward_square"] - jnp.square(mean["reward"])
    error = mean["advantage_square"] - jnp.square(mean["advantage"])
    varies = spread > 1e-6 * mean["reward_square"]  # more than float32 rounding of equal rewards
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

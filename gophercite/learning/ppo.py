"""Proximal policy optimisation over episodes of completions (WebGPT, 3.2 and E; Schulman et al.
2017).

An environment on the host provides the experience. One compiled step evaluates it with the
behaviour-cloned policy and the value network, estimates advantages, and trains on it in
minibatches.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.learning.advantages import Advantages, completion_advantages, normalised
from gophercite.learning.clipping import clip_by_global_norm, global_norm
from gophercite.learning.episode_metrics import episode_metrics
from gophercite.learning.experience import Experience, of_batch, to_batch
from gophercite.learning.gradient_learner import GradientLearner, cut_rows, join_rows
from gophercite.learning.phases import phase
from gophercite.learning.row_widths import by_length, reading_widths, take_rows
from gophercite.learning.state import Batch, Metrics, Totals, TrainState
from gophercite.learning.token_log_probs import token_log_probs
from gophercite.models.parameters import (
    ADAPTERS,
    BESIDE_THE_POLICY,
    HEADS,
    REWARD_MODEL,
    TEACHER,
    VALUE_HEAD,
    VALUE_TRUNK,
    Axes,
    Params,
    initial_policy,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.value_head import ValueHead
from gophercite.partitioning import constrain

T = TypeVar("T")

_SHUFFLE = 5  # folded into a step's key to shuffle rows
# A token's log ρ is bounded by this, far beyond any clip: ρ would become infinite, and its gradient
# NaN, even where it is clipped.
_LARGEST_LOG_RATIO = 20.0


class Targets(NamedTuple):
    """What is fixed before the first minibatch, by row and token.

    Attributes:
      advantages: each token's advantage, normalised if the learner normalises.
      returns: the value network's targets.
    """

    advantages: Float[Array, "rows places"]
    returns: Float[Array, "rows places"]


class Judged(NamedTuple):
    """The behaviour-cloned policy's and the value network's outputs, by row and token.

    Attributes:
      kl_samples: log-probability of the drawn token under the sampler minus that under the
        behaviour-cloned policy, whose mean estimates the KL divergence; 0 where there is no token.
      values: value before each token; a row without tokens has its prompt's value first.
    """

    kl_samples: Float[Array, "rows places"]
    values: Float[Array, "rows places"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOLearner(GradientLearner):
    """One update from the experience of one rollout, in minibatches.

    A token's reward is the environment's reward plus −β (log π_old − log π_BC), where log π_old is
    the sampler's log-probability. Advantages are those of `advantages.completion_advantages`: a
    time step is a completion, and the baseline is per token. A minibatch minimises

        Σ max(−A ρ, −A clip(ρ, 1 − ε, 1 + ε)) / n  +  w Σ (V − return)² / 2n

    over its response tokens, where ρ = π / π_old of the token, renormalised over the allowed
    tokens, and n is the mean number of response tokens per minibatch: the same for all minibatches,
    so that those with fewer tokens don't take larger steps. There is no entropy bonus. Prompts and
    padding are excluded from the sums.

    The parameters are the policy's plus four parts: `value_trunk` and `value_head`, a separate
    network with the policy's architecture; `teacher`, the policy after behaviour cloning; and
    `reward_model`. The last two are not trained. What the policy doesn't train (frozen layers, a
    frozen embedding, the model under its adapters) is there once: the value network and the teacher
    hold only their own values of the rest. If the embedding is among it, the frozen layers are
    computed once for the three of them.

    Attributes:
      reward_model: scores answers, with the parameters in the part `reward_model`.
      vocabulary_size: the tokenizer's; the model's ids from here on are unused.
      kl_reward: β, in reward per nat.
      clip: ε.
      trace: λ of the estimator, from one completion to the next.
      discount: γ, likewise.
      value_weight: w. The networks share no parameters, so it only matters with weight decay or
        clipping, and for optimisers whose steps depend on the gradient's size.
      normalise: whether advantages are shifted and scaled over all tokens of the rollout.
      minibatches: number of minibatches per epoch; each is one step of the optimiser.
      trained_rows: number of rows of which the minibatches are made: at least the maximum number
        of rows with a response. Rows without one are read for their value, so that they need not
        be in a minibatch, whose size then suits a mesh better. None takes all rows.
      epochs: number of passes over the experience.
      value_width: width of the value head's two hidden layers.
      value_scale: factor on the output of the value head's last layer (`ValueHead.scale`).
      loss_chunk: number of positions whose logits are in memory at once; None is the platform's
        usual number (`cross_entropy.in_chunks`).
      widths: number of widths to which microbatches are cut. Rows of similar length share a
        microbatch, which is read only as far as its longest row needs; each width adds a compiled
        copy of the forward and backward pass.
    """

    added_parts: ClassVar = BESIDE_THE_POLICY

    reward_model: RewardModel
    vocabulary_size: int
    kl_reward: float = 0.02
    clip: float = 0.2
    trace: float = 0.95
    discount: float = 1.0
    value_weight: float = 1.0
    normalise: bool = True
    minibatches: int = 128
    trained_rows: int | None = None
    epochs: int = 1
    value_width: int = 2048
    value_scale: float = 1.0
    loss_chunk: int | None = None
    widths: int = 4

    def __post_init__(self) -> None:
        """Checks that each field is in its range.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        super().__post_init__()
        self._require_counts("minibatches", "epochs", "value_width", "widths")
        self._require_numbers("kl_reward", "value_weight", least=0)
        self._require_numbers("clip", "value_scale", above=0)
        self._require_numbers("trace", "discount", least=0, most=1)
        self._require_chunk(self.loss_chunk)
        if self.trained_rows is not None:
            self._require_counts("trained_rows")
            if self.trained_rows % (pieces := self.minibatches * self.microbatches):
                raise ValueError(
                    f"{self._set('trained_rows')}: must be a multiple of minibatches × "
                    f"microbatches = {pieces}"
                )

    @property
    def value_head(self) -> ValueHead:
        """The value network's head."""
        return ValueHead(self.transformer.config, self.value_width, self.value_scale)

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
          policy: the parameters after behaviour cloning, split if the run freezes layers; adapters
            change nothing yet.
          reward_model: a reward model's parameters, including its heads.
          value_head: the parameters of the value network's head.

        Returns:
          All parts; the value network is initialised with the policy's layers or adapters.
        """
        trained = super().trained(policy)

        def copy(without: str) -> Params:
            return {n: jax.tree.map(jnp.copy, x) for n, x in trained.items() if n != without}

        return {
            **policy,
            VALUE_HEAD: value_head,
            VALUE_TRUNK: copy("unembed"),
            TEACHER: copy(ADAPTERS),
            REWARD_MODEL: reward_model,
        }

    def logical_axes(self, params: Params) -> Axes:
        """Logical axis names of each parameter, for parameters or their shapes."""
        policy = super().logical_axes(params)
        return {
            **policy,
            VALUE_HEAD: self.value_head.axes(),
            **{
                part: {name: policy[name] for name in params[part]}
                for part in (VALUE_TRUNK, TEACHER)
            },
            REWARD_MODEL: {
                **self.reward_model.transformer.logical_axes(),
                HEADS: self.reward_model.heads_axes(),
            },
        }

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """See `learn`; the batch is an `Experience` as a mapping of its fields."""
        return self.learn(state, of_batch(batch))

    def learn(self, state: TrainState, experience: Experience) -> tuple[TrainState, Metrics]:
        """One update from the experience of a rollout.

        Args:
          state: the state before the update; may be donated.
          experience: experience of this state's policy; `trained_rows`, or the number of rows, is
            a multiple of `minibatches` times `microbatches`.

        Returns:
          The state after the update, and metrics (docs/learning_to_browse.md names each).
        """
        judged = self.judged(state.params, experience)
        estimated = self.advantages(experience, judged)
        real = experience.real
        advantages = estimated.advantages
        if self.normalise:
            advantages = normalised(advantages, real)
        rows = {**to_batch(experience), **Targets(advantages, estimated.returns)._asdict()}
        divisor = jnp.maximum(jnp.sum(real) / self.minibatches, 1)
        key = jax.random.fold_in(jax.random.fold_in(state.key, _SHUFFLE), state.step)

        def minibatch(state: TrainState, numbered: tuple[Array, Any]) -> tuple[TrainState, Metrics]:
            number, own = numbered
            own = take_rows(own, by_length(own, self.microbatches))
            own = jax.tree.map(
                lambda part: constrain(part, "batch", *[None] * (part.ndim - 1)), own
            )
            gradients, sums = self.gradients(state.params, own, divisor)
            # The state counts updates, so each optimiser step within one folds in its own number.
            of_step = dataclasses.replace(state, key=jax.random.fold_in(key, number))
            after, metrics = self.descend(of_step, gradients)
            return dataclasses.replace(after, step=state.step, key=state.key), {**sums, **metrics}

        # Which rows share a minibatch must not depend on which process collected them.
        empty = ~jnp.any(real, axis=1)
        by_episode = jnp.lexsort((experience.step, experience.episode, empty))

        def epoch(state: TrainState, number: Array) -> tuple[TrainState, Metrics]:
            order = jax.random.permutation(
                jax.random.fold_in(key, number), self._trained_rows(experience)
            )
            shuffled = take_rows(rows, by_episode[order])
            numbers = number * self.minibatches + jnp.arange(self.minibatches)
            return jax.lax.scan(minibatch, state, (numbers, cut_rows(shuffled, self.minibatches)))

        after, steps = jax.lax.scan(epoch, state, jnp.arange(self.epochs))
        metrics = self._step_metrics(steps, jnp.maximum(jnp.sum(real), 1) * self.epochs)
        known = episode_metrics(experience, judged.kl_samples, estimated)
        return dataclasses.replace(after, step=state.step + 1), {**metrics, **known}

    def judged(self, params: Params, experience: Experience) -> Judged:
        """Evaluates the behaviour-cloned policy and the value network, some rows at a time."""

        def some(rows: Any) -> Judged:
            own = of_batch(rows)
            x = self._shared_activations(params, own)
            reference = self._log_probs(initial_policy(params), own, x)[0]
            kl = jnp.where(own.real, own.log_probs - reference, 0)
            return Judged(kl, self._values(params, own, x))

        with phase("judging"):
            count = experience.tokens.shape[0]
            pieces = self._pieces(experience)
            filled = jnp.minimum(jnp.arange(-(-count // pieces) * pieces), count - 1)
            rows = take_rows(to_batch(experience), filled)
            order = by_length(rows, pieces)
            of_pieces = jax.lax.map(
                lambda piece: self.at_width(some, piece), cut_rows(take_rows(rows, order), pieces)
            )
            made: Judged = take_rows(join_rows(of_pieces), jnp.argsort(order)[:count])
        return jax.lax.stop_gradient(made)

    def at_width(self, function: Callable[[Batch], T], batch: Batch) -> T:
        """Applies a function to rows of experience, cut to the least of some widths that they fit.

        Args:
          function: takes experience as a mapping of its fields; its result has the same shape for
            all widths.
          batch: such rows; only `tokens` is cut.
        """
        widths = reading_widths(batch["tokens"].shape[1], self.widths)
        # A row without a response needs one more place: `Experience.before` reads up to the last
        # but one.
        needed = jnp.max(batch["prompt_lengths"] + batch["response_lengths"]) + 1
        chosen = jnp.sum(needed > jnp.array(widths[:-1], jnp.int32))

        def at(width: int) -> Callable[[Batch], T]:
            return lambda rows: function({**rows, "tokens": rows["tokens"][:, :width]})

        made: T = jax.lax.switch(chosen, [at(width) for width in widths], batch)
        return made

    def advantages(self, experience: Experience, judged: Judged) -> Advantages:
        """The unnormalised advantages of a rollout's tokens, and the returns."""
        return completion_advantages(
            experience.rewards - self.kl_reward * judged.kl_samples,
            judged.values,
            experience.real,
            experience.episode,
            experience.step,
            self.trace,
            self.discount,
        )

    def losses(
        self, params: Params, batch: Any, weights: Array, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Metrics]:
        """See `GradientLearner`; sums over tokens are divided by `weights`."""
        fixed = Targets(*(batch[name] for name in Targets._fields))
        own = of_batch({name: batch[name] for name in batch if name not in Targets._fields})
        real = own.real
        with phase("shared"):
            x = self._shared_activations(params, own)
        with phase("policy"):
            log_probs, entropy = self._log_probs(params, own, x, accumulated)
        with phase("values"):
            values = self._values(params, own, x)
        change = jnp.where(real, log_probs - own.log_probs, 0)
        change = jnp.minimum(change, _LARGEST_LOG_RATIO)
        ratio = jnp.exp(change)
        inside = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        gains = fixed.advantages * ratio, fixed.advantages * inside
        policy = -jnp.sum(jnp.where(real, jnp.minimum(*gains), 0))
        value = 0.5 * jnp.sum(jnp.where(real, jnp.square(values - fixed.returns), 0))
        total = (policy + self.value_weight * value) / weights
        over = lambda part: jnp.sum(jnp.where(real, part, 0))  # noqa: E731
        return total, {
            "loss/policy_avg": policy,
            "loss/value_avg": value,
            "policy/clipfrac_avg": over(jnp.abs(ratio - 1) > self.clip),
            "policy/approxkl_avg": over(jnp.expm1(change) - change),
            "policy/entropy_avg": over(entropy),
            "val/ratio": over(ratio),
        }

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Totals over complete episodes that the policy played in evaluation.

        Args:
          params: all parameters.
          batch: experience.

        Returns:
          `reward` and `kl` (in nats) per episode, `length` (in tokens) per completion and
          `completions` per episode, with the numbers of episodes or completions.
        """
        experience = of_batch(batch)
        judged = self.judged(params, experience)
        own = experience.weights * (1 - experience.extra)
        episodes = jnp.sum(own * experience.ends)
        by_row = lambda part: jnp.sum(own * jnp.sum(jnp.where(experience.real, part, 0), axis=1))  # noqa: E731
        return {
            "reward": (by_row(experience.rewards), episodes),
            "kl": (by_row(judged.kl_samples), episodes),
            "length": (jnp.sum(own * experience.response_lengths), jnp.sum(own)),
            "completions": (jnp.sum(own), episodes),
        }

    def clipped(self, gradients: Params) -> tuple[Params, Float[Array, ""]]:
        """Clips the gradients of each network by that network's own global norm."""
        norm = global_norm(gradients)
        if self.max_grad_norm is None:
            return gradients, norm
        value_parts = (VALUE_HEAD, VALUE_TRUNK)
        of_value = {name: part for name, part in gradients.items() if name in value_parts}
        of_policy = {name: part for name, part in gradients.items() if name not in value_parts}
        first, second = (
            clip_by_global_norm(part, self.max_grad_norm)[0] for part in (of_policy, of_value)
        )
        return {name: {**first, **second}[name] for name in gradients}, norm

    def _shared_activations(
        self, params: Params, experience: Experience
    ) -> Float[Array, "rows length d_model"] | None:
        """The trained layers' input; None if the networks' embeddings, and so their inputs, differ.

        Those of the policy and of its teacher differ as soon as the embedding is trained.
        """
        if "embed" in params[TEACHER]:
            return None
        return self.transformer.frozen_activations(
            params, experience.tokens, *_positions_and_segments(experience)
        )

    def _log_probs(
        self,
        params: Params,
        experience: Experience,
        x: Float[Array, "rows length d_model"] | None,
        accumulated: Params | None = None,
    ) -> tuple[Float[Array, "rows places"], Float[Array, "rows places"]]:
        """Log-probabilities of the responses' tokens under a policy, and its entropy there."""
        hidden = self._read(params, experience, x, accumulated)
        return token_log_probs(
            experience.before(hidden),
            self.transformer.unembedding(params),
            experience.responses,
            experience.allowed,
            self.vocabulary_size,
            self.loss_chunk,
        )

    def _values(
        self,
        params: Params,
        experience: Experience,
        x: Float[Array, "rows length d_model"] | None,
    ) -> Float[Array, "rows places"]:
        hidden = self._read({**params, **params[VALUE_TRUNK]}, experience, x)
        return self.value_head.apply(params[VALUE_HEAD], experience.before(hidden))

    def _read(
        self,
        params: Params,
        experience: Experience,
        x: Float[Array, "rows length d_model"] | None,
        accumulated: Params | None = None,
    ) -> Float[Array, "rows length d_model"]:
        """A network's final representations, from the trained layers' input or from the tokens."""
        places = _positions_and_segments(experience)
        if x is None:
            x = self.transformer.frozen_activations(params, experience.tokens, *places)
        return self.transformer.from_frozen_activations(params, x, *places, accumulated=accumulated)

    def _trained_rows(self, experience: Experience) -> int:
        return self.trained_rows or experience.tokens.shape[0]

    def _pieces(self, experience: Experience) -> int:
        """The number of pieces, as large as microbatches, where no gradients are needed."""
        size = self._trained_rows(experience) // (self.minibatches * self.microbatches)
        return -(-experience.tokens.shape[0] // max(size, 1))

    def _step_metrics(self, steps: Metrics, tokens: Array) -> Metrics:
        """Means over tokens of the minibatches' sums; last values of metrics that are not sums."""
        averages = {
            name: jnp.sum(values) / tokens
            for name, values in steps.items()
            if not name.startswith("optimizer/")
        }
        return {
            **averages,
            "loss/total": averages["loss/policy_avg"]
            + self.value_weight * averages["loss/value_avg"],
            "optimizer/grad_norm": jnp.mean(steps["optimizer/grad_norm"]),
            "optimizer/learning_rate": steps["optimizer/learning_rate"][-1, -1],
        }


def _positions_and_segments(
    experience: Experience,
) -> tuple[Int[Array, "rows length"], Int[Array, "rows length"]]:
    """The tokens' positions, and their segments: 1, or 0 for padding."""
    positions = jnp.broadcast_to(jnp.arange(experience.tokens.shape[1]), experience.tokens.shape)
    ends = experience.prompt_lengths + experience.response_lengths
    return positions, (positions < ends[:, None]).astype(jnp.int32)

"""Reward modelling: which of two responses people prefer (GopherCite, 2.8 and E; WebGPT, 3.2)."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gophercite.learning import preference_metrics
from gophercite.learning.gradient_learner import GradientLearner, cut_rows
from gophercite.learning.state import Batch, HostTotals, Metrics, Totals, TrainState
from gophercite.models.parameters import HEADS, Axes, Params
from gophercite.models.reward_model import RewardModel, Verdict


@dataclasses.dataclass(frozen=True)
class RewardLearner(GradientLearner):
    """Pairwise cross-entropy, averaged with that of supported-and-plausible judgements.

    The probability that the second response is preferred is the sigmoid of the difference of the
    rewards; a tie's target is 0.5. Both responses of a pair go through one forward pass.

    A batch has

    * `tokens` [pairs, 2, length], questions with responses, and `lengths` [pairs, 2];
    * `preferred` [pairs], the probability that the second is better, and `preferred_weights`
      [pairs], 0 where that is not known;
    * `supported_and_plausible` [pairs, 2] (0 or 1) and `label_weights` [pairs, 2], 0 where a label
      is missing.

    Each loss is the mean over what is known in the whole batch, however it is cut into
    microbatches, and 0 where nothing is.

    Attributes:
      auxiliary_weight: of the supported-and-plausible loss, the preference loss has the rest: 0.5
        takes the average of the two, as GopherCite; 0 is WebGPT's reward model.
    """

    auxiliary_weight: float = 0.5

    def __post_init__(self) -> None:
        """Refuses a weight out of range.

        Raises:
          ValueError: it is not in [0, 1).
        """
        if not 0 <= self.auxiliary_weight < 1:
            raise ValueError(
                f"RewardLearner.auxiliary_weight = {self.auxiliary_weight}: must be at least 0 and "
                "below 1"
            )

    @property
    def model(self) -> RewardModel:
        """The trunk with its heads."""
        return RewardModel(self.transformer)

    def logical_axes(self, params: Params) -> Axes:
        """Logical axis names of each parameter, for parameters or their shapes."""
        return {**super().logical_axes(params), HEADS: self.model.heads_axes()}

    def trained(self, params: Params) -> Params:
        """The parts of a tree of parameters that are trained; an unembedding has no use here."""
        parts = super().trained(params)
        return {name: part for name, part in parts.items() if name != "unembed"}

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """One step of gradient descent.

        Args:
          state: before the step; may be donated.
          batch: see the class.

        Returns:
          The state after it, and: `loss/total` (the objective), `loss/preference`,
          `loss/supported_and_plausible` (nats), `reward/accuracy` (of preferences that are not
          ties), `optimizer/grad_norm`, `optimizer/learning_rate`, `throughput/pairs` (a step).
        """
        decided = batch["preferred_weights"] * (batch["preferred"] != 0.5)
        sums = {
            "pairs": jnp.sum(batch["preferred_weights"]),
            "labels": jnp.sum(batch["label_weights"]),
            "decided": jnp.sum(decided),
        }
        weights = jax.tree.map(lambda total: jnp.maximum(total, 1e-9), sums)
        gradients, losses = self.gradients(state.params, batch, weights)
        after, metrics = self.descend(state, gradients)
        return after, {**losses, **metrics, "throughput/pairs": sums["pairs"]}

    def losses(
        self, params: Params, batch: Batch, weights: Any, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Metrics]:
        """See `GradientLearner`; `weights` counts the whole batch's pairs, labels and non-ties."""
        totals = self._totals(params, batch, accumulated)
        preference = totals["preference_loss"][0] / weights["pairs"]
        auxiliary = totals["supported_and_plausible_loss"][0] / weights["labels"]
        total = (1 - self.auxiliary_weight) * preference + self.auxiliary_weight * auxiliary
        return total, {
            "loss/total": total,
            "loss/preference": preference,
            "loss/supported_and_plausible": auxiliary,
            "reward/accuracy": totals["preference_accuracy"][0] / weights["decided"],
        }

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Totals of a batch.

        Args:
          params: all parameters.
          batch: see the class.

        Returns:
          What `summarise` takes, summed over batches.
        """
        # What does not fit at once in training does not fit here.
        pieces = math.gcd(self.microbatches, batch["tokens"].shape[0])
        by_piece = jax.lax.map(
            lambda piece: self._totals(params, piece, None), cut_rows(batch, pieces)
        )
        return jax.tree.map(lambda total: jnp.sum(total, axis=0), by_piece)

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        """Metrics of a whole set, see `preference_metrics.summarise`."""
        return preference_metrics.summarise(totals)

    def _totals(self, params: Params, batch: Batch, accumulated: Params | None) -> Totals:
        return preference_metrics.preference_totals(
            self.verdicts(params, batch, accumulated), batch
        )

    def verdicts(self, params: Params, batch: Batch, accumulated: Params | None = None) -> Verdict:
        """The verdicts on both responses of each pair, [pairs, 2], by one forward pass."""
        tokens = batch["tokens"]
        pairs, two, length = tokens.shape
        verdict = self.model.judge(
            params,
            tokens.reshape(pairs * two, length),
            batch["lengths"].reshape(pairs * two),
            accumulated=accumulated,
        )
        return Verdict(*(values.reshape(pairs, two) for values in verdict))

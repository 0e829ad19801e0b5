"""Reward modelling: predicts which response people prefer (GopherCite, 2.8 and E; WebGPT, 3.2)."""

import dataclasses
import math
from typing import Any, ClassVar

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
    """Pairwise cross-entropy, averaged with the cross-entropy of supported-and-plausible labels.

    The probability that the second response is preferred is the sigmoid of the difference between
    the rewards; a tie has the target 0.5. Both responses of a pair go through one forward pass.

    A batch has

    * `tokens` [pairs, 2, length], questions with responses, and `lengths` [pairs, 2];
    * `preferred` [pairs], the probability that the second is better, and `preferred_weights`
      [pairs], 0 where it is not known;
    * `supported_and_plausible` [pairs, 2] (0 or 1) and `label_weights` [pairs, 2], 0 where a label
      is missing.

    Each loss is the mean over the known labels of the entire batch, independent of microbatches,
    and 0 if none is known.

    Attributes:
      auxiliary_weight: weight of the supported-and-plausible loss; the preference loss has 1 minus
        this. 0.5 averages the two, as in GopherCite; 0 gives WebGPT's reward model.
      centering: weight of the squared sum of a pair's rewards (Eisenstein et al. 2023). Preferences
        leave the rewards' zero open; this puts it near the mean reward of the compared responses,
        so that rewards can be set against a constant, such as that of giving no answer.
    """

    computes_logits: ClassVar = False

    auxiliary_weight: float = 0.5
    centering: float = 0.0

    def __post_init__(self) -> None:
        """Checks that each field is in its range.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        super().__post_init__()
        self._require_numbers("centering", least=0)
        self._require_numbers("auxiliary_weight", least=0, below=1)

    @property
    def model(self) -> RewardModel:
        """The trunk with its heads."""
        return RewardModel(self.transformer)

    def logical_axes(self, params: Params) -> Axes:
        """Logical axis names of each parameter, for parameters or their shapes."""
        return {**super().logical_axes(params), HEADS: self.model.heads_axes()}

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """One step of gradient descent.

        Args:
          state: the state before the step; may be donated.
          batch: see the class.

        Returns:
          The state after the step, and: `loss/total` (the objective), `loss/preference`,
          `loss/supported_and_plausible` (nats), `reward/accuracy` (over preferences that are not
          ties), `reward/mean` (over both responses of each compared pair), `optimizer/grad_norm`,
          `optimizer/learning_rate`, `throughput/pairs` (per step).
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
        """See `GradientLearner`; `weights` counts the entire batch's pairs, labels and non-ties."""
        verdicts = self.verdicts(params, batch, accumulated)
        totals = preference_metrics.preference_totals(verdicts, batch)
        preference = totals["preference_loss"][0] / weights["pairs"]
        auxiliary = totals["supported_and_plausible_loss"][0] / weights["labels"]
        total = (1 - self.auxiliary_weight) * preference + self.auxiliary_weight * auxiliary
        sums = jnp.sum(verdicts.reward, axis=1)
        of_pairs = lambda values: jnp.sum(batch["preferred_weights"] * values) / weights["pairs"]  # noqa: E731
        if self.centering:
            total += self.centering * of_pairs(jnp.square(sums))
        return total, {
            "loss/total": total,
            "loss/preference": preference,
            "loss/supported_and_plausible": auxiliary,
            "reward/accuracy": totals["preference_accuracy"][0] / weights["decided"],
            "reward/mean": of_pairs(sums / 2),
        }

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Totals of a batch.

        Args:
          params: all parameters.
          batch: see the class.

        Returns:
          Totals for `summarise`, once summed over batches.
        """
        # A batch that must be split in training must be split here, too.
        pieces = math.gcd(self.microbatches, batch["tokens"].shape[0])
        by_piece = jax.lax.map(
            lambda piece: self._totals(params, piece, None), cut_rows(batch, pieces)
        )
        return jax.tree.map(lambda total: jnp.sum(total, axis=0), by_piece)

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        """Metrics of a dataset, see `preference_metrics.summarise`."""
        return preference_metrics.summarise(totals)

    def _totals(self, params: Params, batch: Batch, accumulated: Params | None) -> Totals:
        return preference_metrics.preference_totals(
            self.verdicts(params, batch, accumulated), batch
        )

    def verdicts(self, params: Params, batch: Batch, accumulated: Params | None = None) -> Verdict:
        """The verdicts on both responses of each pair, [pairs, 2], in one forward pass."""
        tokens = batch["tokens"]
        pairs, two, length = tokens.shape
        verdict = self.model.judge(
            params,
            tokens.reshape(pairs * two, length),
            batch["lengths"].reshape(pairs * two),
            accumulated=accumulated,
        )
        return Verdict(*(values.reshape(pairs, two) for values in verdict))

"""Supervised fine-tuning: maximum likelihood of the responses (GopherCite, 2.7 and D.1)."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gophercite.learning.cross_entropy import correct_predictions, cross_entropy
from gophercite.learning.gradient_learner import GradientLearner, cut_rows
from gophercite.learning.state import Batch, Metrics, Totals, TrainState
from gophercite.models.attention import Branched, Segments
from gophercite.models.parameters import Params


@dataclasses.dataclass(frozen=True)
class SupervisedLearner(GradientLearner):
    """Next-token loss on weighted targets, one optimiser step per batch.

    A batch has `tokens`, `targets`, `weights`, `positions` and `segments`, each [batch, length];
    packed sequences have different segment numbers, and prompts and padding have weight 0. If
    segments branch, there is `branches`, too (`models.attention.Branched`). The loss is the
    weighted mean over the entire batch, independent of microbatches.

    Attributes:
      z_loss: coefficient of log²Z.
      loss_chunk: number of tokens whose logits are in memory at once; None is the platform's usual
        number (`cross_entropy.in_chunks`).
    """

    z_loss: float = 0.0
    loss_chunk: int | None = None

    def __post_init__(self) -> None:
        """Checks that each field is in its range.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        super().__post_init__()
        self._require_numbers("z_loss", least=0)
        self._require_chunk(self.loss_chunk)

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """One step of gradient descent.

        Args:
          state: the state before the step; may be donated.
          batch: see the class.

        Returns:
          The state after the step, and: `loss/total` (the objective), `loss/nll` (nats per target),
          `optimizer/grad_norm`, `optimizer/learning_rate`, `throughput/target_tokens` (per step).
        """
        weight = jnp.maximum(jnp.sum(batch["weights"]), 1e-9)
        gradients, losses = self.gradients(state.params, batch, weight)
        after, metrics = self.descend(state, gradients)
        targets = jnp.sum(batch["weights"] > 0).astype(jnp.float32)
        return after, {**losses, **metrics, "throughput/target_tokens": targets}

    def losses(
        self, params: Params, batch: Batch, weights: Array, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Metrics]:
        """See `GradientLearner`; `weights` is the sum of the entire batch's weights."""
        hidden, _ = self.transformer.apply(
            params,
            batch["tokens"],
            batch["positions"],
            _segments(batch),
            accumulated=accumulated,
        )
        objective, nll = cross_entropy(
            hidden,
            self.transformer.unembedding(params),
            batch["targets"],
            batch["weights"],
            self.z_loss,
            self.loss_chunk,
        )
        total = objective / weights
        return total, {"loss/total": total, "loss/nll": nll / weights}

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Loss and accuracy totals of a batch.

        Args:
          params: all parameters.
          batch: see the class.

        Returns:
          `loss` (nats) and `accuracy` of next tokens, each with the targets' total weight.
        """
        unembedding = self.transformer.unembedding(params)

        def totals(batch: Batch) -> Totals:
            hidden, _ = self.transformer.apply(
                params, batch["tokens"], batch["positions"], _segments(batch)
            )
            rest = (batch["targets"], batch["weights"])
            nll = cross_entropy(hidden, unembedding, *rest, 0.0, self.loss_chunk)[1]
            right = correct_predictions(hidden, unembedding, *rest, self.loss_chunk)
            weight = jnp.sum(batch["weights"])
            return {"loss": (nll, weight), "accuracy": (right, weight)}

        # A batch that must be split in training must be split here, too.
        pieces = math.gcd(self.microbatches, batch["tokens"].shape[0])
        by_piece = jax.lax.map(totals, cut_rows(batch, pieces))
        return jax.tree.map(lambda total: jnp.sum(total, axis=0), by_piece)


def _segments(batch: Batch) -> Segments:
    numbers = batch["segments"]
    return Branched(numbers, batch["branches"]) if "branches" in batch else numbers

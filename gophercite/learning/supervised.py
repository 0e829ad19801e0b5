"""Supervised fine-tuning: maximum likelihood of the responses (GopherCite, 2.7 and D.1)."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gophercite.learning import ema
from gophercite.learning.clipping import clip_by_global_norm, global_norm
from gophercite.learning.cross_entropy import correct_predictions, cross_entropy
from gophercite.learning.optimizers import Optimizer
from gophercite.learning.state import Batch, Metrics, Totals, TrainState
from gophercite.models.transformer import FROZEN, TRAINED, Params, Transformer, frozen_layers

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


@dataclasses.dataclass(frozen=True)
class SupervisedLearner:
    """Next-token loss on weighted targets, one optimiser step a batch.

    A batch has `tokens`, `targets`, `weights`, `positions` and `segments`, each [batch, length];
    packed sequences have their own segment numbers, and prompts and padding have weight 0. The
    loss is the weighted mean over the whole batch, however it is cut into microbatches.

    Attributes:
      transformer: the model.
      optimizer: applies gradients to the trained parts.
      schedule: step to learning rate.
      frozen_parts: top-level parts of the parameters that are not trained ("embed" in the paper's
        run). The stack `frozen_layers` never is.
      microbatches: pieces that a batch is cut into, one after the other; divides the memory for
        activations. Gradients are added up in the parameters' dtype: bfloat16 sums of n pieces
        carry a relative error of about n · 2⁻⁹ at worst.
      max_grad_norm: clips gradients to this global norm; None does not.
      z_loss: coefficient of log²Z.
      ema_decay: of the moving average of parameters; None keeps none.
      loss_chunk: tokens whose logits exist at once.
    """

    transformer: Transformer
    optimizer: Optimizer
    schedule: Schedule
    frozen_parts: tuple[str, ...] = ()
    microbatches: int = 1
    max_grad_norm: float | None = None
    z_loss: float = 0.0
    ema_decay: float | None = None
    loss_chunk: int = 512

    def init_state(self, params: Params, key: Key[Array, ""]) -> TrainState:
        """A state at step 0.

        Args:
          params: parameters, already split where the run freezes layers.
          key: the run's key.

        Returns:
          The state; the optimiser's part covers the trained parts alone.
        """
        trained = self.trained(params)
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            optimizer=self.optimizer.init(trained),
            ema=ema.init(trained) if self.ema_decay is not None else None,
            key=key,
        )

    def state_axes(self, params: Params) -> TrainState:
        """Logical axis names of each array of the state.

        Args:
          params: parameters, or their shapes.

        Returns:
          A state of tuples of names.
        """
        axes = self.transformer.logical_axes(frozen_layers(params))
        trained = self.trained(axes)
        return TrainState(
            step=(),  # type: ignore[arg-type]
            params=axes,
            optimizer=self.optimizer.state_axes(trained, self.trained(params)),
            ema=trained if self.ema_decay is not None else None,
            key=(),  # type: ignore[arg-type]
        )

    def trained(self, params: Params) -> Params:
        """The parts of a tree of parameters that are trained."""
        unknown = set(self.frozen_parts) - set(params)
        if unknown - {FROZEN}:
            raise ValueError(
                f"frozen_parts names {', '.join(sorted(unknown))}, but the model's parts are "
                f"{', '.join(sorted(params))}"
            )
        return {
            name: part
            for name, part in params.items()
            if name != FROZEN and name not in self.frozen_parts
        }

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """One step of gradient descent.

        Args:
          state: before the step; may be donated.
          batch: see the class.

        Returns:
          The state after it, and: `loss/total` (the objective), `loss/nll` (nats a target),
          `optimizer/grad_norm`, `optimizer/learning_rate`, `throughput/target_tokens` (a step).
        """
        weight = jnp.maximum(jnp.sum(batch["weights"]), 1e-9)
        gradients, (objective, nll) = self.gradients(state.params, batch, weight)
        if self.max_grad_norm is None:
            norm = global_norm(gradients)
        else:
            gradients, norm = clip_by_global_norm(gradients, self.max_grad_norm)
        learning_rate = self.schedule(state.step)
        trained, optimizer = self.optimizer.update(
            gradients,
            state.optimizer,
            self.trained(state.params),
            learning_rate=learning_rate,
            key=jax.random.fold_in(state.key, state.step),
        )
        averages = state.ema
        if self.ema_decay is not None:
            averages = ema.update(state.ema, trained, self.ema_decay)
        metrics = {
            "loss/total": objective,
            "loss/nll": nll,
            "optimizer/grad_norm": norm,
            "optimizer/learning_rate": jnp.asarray(learning_rate, jnp.float32),
            "throughput/target_tokens": jnp.sum(batch["weights"] > 0).astype(jnp.float32),
        }
        after = TrainState(
            step=state.step + 1,
            params={**state.params, **trained},
            optimizer=optimizer,
            ema=averages,
            key=state.key,
        )
        return after, metrics

    def gradients(
        self, params: Params, batch: Batch, weight: Float[Array, ""]
    ) -> tuple[Params, tuple[Float[Array, ""], Float[Array, ""]]]:
        """Gradients of the batch's loss with respect to the trained parts.

        Args:
          params: all parameters.
          batch: see the class.
          weight: what the sum of losses is divided by.

        Returns:
          Gradients in the parameters' dtypes; the objective and the negative log-likelihood.
        """
        trained = self.trained(params)
        in_place = self.transformer.config.remat_every > 0

        def loss(
            trained: Params, batch: Batch, accumulated: Params | None
        ) -> tuple[Array, tuple[Array, Array]]:
            objective, nll = self._losses({**params, **trained}, batch, accumulated)
            return objective / weight, (objective / weight, nll / weight)

        slope = jax.grad(loss, has_aux=True)
        if self.microbatches == 1:
            return slope(trained, batch, None)

        def body(total: tuple[Params, Any], batch: Batch) -> tuple[tuple[Params, Any], None]:
            sums, losses = total
            accumulated = sums[TRAINED] if in_place else None
            new, new_losses = slope(trained, batch, accumulated)
            added = {
                name: part
                if in_place and name == TRAINED
                else jax.tree.map(jnp.add, sums[name], part)
                for name, part in new.items()
            }
            return (added, jax.tree.map(jnp.add, losses, new_losses)), None

        zeros = jax.tree.map(jnp.zeros_like, trained)
        start = (zeros, (jnp.zeros(()), jnp.zeros(())))
        return jax.lax.scan(body, start, self._cut(batch, self.microbatches))[0]

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Loss and accuracy totals of a batch.

        Args:
          params: all parameters.
          batch: see the class.

        Returns:
          `loss` (nats) and `accuracy` of next tokens, each with the targets' total weight.
        """
        kernel = self.transformer.unembedding(params)

        def totals(batch: Batch) -> Totals:
            hidden, _ = self.transformer.apply(
                params, batch["tokens"], batch["positions"], batch["segments"]
            )
            rest = (batch["targets"], batch["weights"])
            nll = cross_entropy(hidden, kernel, *rest, 0.0, self.loss_chunk)[1]
            right = correct_predictions(hidden, kernel, *rest, self.loss_chunk)
            weight = jnp.sum(batch["weights"])
            return {"loss": (nll, weight), "accuracy": (right, weight)}

        # What does not fit at once in training does not fit here.
        pieces = math.gcd(self.microbatches, batch["tokens"].shape[0])
        by_piece = jax.lax.map(totals, self._cut(batch, pieces))
        return jax.tree.map(lambda total: jnp.sum(total, axis=0), by_piece)

    def _losses(
        self, params: Params, batch: Batch, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        hidden, _ = self.transformer.apply(
            params,
            batch["tokens"],
            batch["positions"],
            batch["segments"],
            accumulated=accumulated,
        )
        return cross_entropy(
            hidden,
            self.transformer.unembedding(params),
            batch["targets"],
            batch["weights"],
            self.z_loss,
            self.loss_chunk,
        )

    def _cut(self, batch: Batch, pieces: int) -> Batch:
        """Takes every n-th row for a microbatch, so that each has rows of every device."""
        rows = batch["tokens"].shape[0]
        if rows % pieces:
            raise ValueError(f"{pieces} microbatches don't divide a batch of {rows}")

        def cut(array: Array) -> Array:
            shape = (rows // pieces, pieces, *array.shape[1:])
            return jnp.moveaxis(array.reshape(shape), 1, 0)

        return jax.tree.map(cut, batch)

"""What all gradient-descent learners share: state, microbatches, one optimiser step."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from gophercite.learning import ema
from gophercite.learning.clipping import clip_by_global_norm, global_norm
from gophercite.learning.optimizers import Optimizer
from gophercite.learning.phases import phase
from gophercite.learning.ranges import require_count, require_number
from gophercite.learning.state import Batch, HostTotals, Metrics, TrainState, means
from gophercite.models.distance_biases import DISTANCE_BIASES
from gophercite.models.parameters import (
    ADAPTERS,
    FROZEN,
    TRAINED,
    Axes,
    Params,
    frozen_layers,
    own_parts,
)
from gophercite.models.transformer import Transformer

T = TypeVar("T")

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


@dataclasses.dataclass(frozen=True)
class GradientLearner(abc.ABC):
    """One optimiser step per batch; a subclass defines the objective in `losses`.

    Attributes:
      transformer: the model.
      optimizer: applies gradients to the trained parts.
      schedule: maps the step to the learning rate.
      frozen_parts: top-level parts of the parameters that are not trained ("embed" in the paper's
        supervised run). The stack `frozen_layers` is never trained; in a transformer with adapters,
        only these and heads are trained.
      microbatches: number of pieces that a batch is split into, processed one after the other;
        divides the memory for activations. Gradients are accumulated in the parameters' dtype:
        bfloat16 sums of n pieces have a relative error of about n · 2⁻⁹ at worst.
      max_grad_norm: clips gradients to this global norm; None does not clip.
      ema_decay: decay of the moving average of parameters; None keeps no average.
      added_parts: names of the parts that the learner adds to a model's parameters. They may be
        among the frozen ones, too.
      computes_logits: whether the objective depends on the model's logits.
    """

    added_parts: ClassVar[tuple[str, ...]] = ()
    computes_logits: ClassVar[bool] = True

    transformer: Transformer
    optimizer: Optimizer
    schedule: Schedule
    frozen_parts: tuple[str, ...] = ()
    microbatches: int = 1
    max_grad_norm: float | None = None
    ema_decay: float | None = None

    def __post_init__(self) -> None:
        """Refuses settings that would train nothing, or the wrong way.

        Raises:
          ValueError: a setting is out of range; the message names it.
        """
        self._require_counts("microbatches")
        if self.max_grad_norm is not None:
            self._require_numbers("max_grad_norm", above=0, otherwise=", or None for no clipping")
        if self.ema_decay is not None:
            otherwise = ", or None for no average"
            self._require_numbers("ema_decay", least=0, below=1, otherwise=otherwise)

    def check_batch(self, rows: int) -> None:
        """Refuses a batch that the settings can't divide.

        Args:
          rows: number of its rows, or of its prompts.

        Raises:
          ValueError: they can't be divided evenly; the message names the setting.
        """
        self._refuse_uneven("microbatches", rows, "rows")

    def _require_counts(self, *names: str) -> None:
        for name in names:
            require_count(f"{type(self).__name__}.{name}", getattr(self, name))

    def _require_numbers(self, *names: str, **range: Any) -> None:
        for name in names:
            require_number(f"{type(self).__name__}.{name}", getattr(self, name), **range)

    def _require_chunk(self, chunk: int | None) -> None:
        if chunk is not None:
            otherwise = ", or None for the platform's usual number"
            require_count(f"{type(self).__name__}.loss_chunk", chunk, otherwise)

    def _refuse_uneven(self, name: str, count: int, of: str) -> None:
        if count % getattr(self, name):
            raise ValueError(f"{self._set(name)}: must divide the {count} {of} of a batch")

    def _set(self, name: str) -> str:
        return f"{type(self).__name__}.{name} = {getattr(self, name)!r}"

    @abc.abstractmethod
    def losses(
        self, params: Params, batch: Batch, weights: Any, accumulated: Params | None
    ) -> tuple[Float[Array, ""], Metrics]:
        """A microbatch's contribution to the loss of its batch.

        Args:
          params: all parameters.
          batch: some rows of the batch.
          weights: divisors of the entire batch's sums, as passed to `gradients`.
          accumulated: gradients of the trained stack (of the adapters, if there are any) to add to
            (see `models.stack.run_stack`).

        Returns:
          The objective, and metrics; both add up over microbatches.
        """

    def logical_axes(self, params: Params) -> Axes:
        """Logical axis names of each parameter, for parameters or their shapes."""
        return self.transformer.logical_axes(frozen_layers(params))

    def init_state(self, params: Params, key: Key[Array, ""]) -> TrainState:
        """A state at step 0.

        Args:
          params: parameters, already split if the run freezes layers.
          key: the run's key.

        Returns:
          The state; the optimiser's state covers only the trained parts.
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
          A state whose leaves are tuples of names.
        """
        axes = self.logical_axes(params)
        trained = self.trained(axes)
        return TrainState(
            step=(),  # type: ignore[arg-type]
            params=axes,
            optimizer=self.optimizer.state_axes(trained, self.trained(params)),
            ema=trained if self.ema_decay is not None else None,
            key=(),  # type: ignore[arg-type]
        )

    def trained(self, params: Params) -> Params:
        """The parts of a tree of parameters that are trained.

        A separate unembedding is not among them if there are no logits, nor is an embedding that
        only frozen layers read. They have no gradient, so only weight decay would change them.
        """
        unknown = set(self.frozen_parts) - {FROZEN, *params, *self.added_parts}
        if unknown:
            named = ", ".join(map(repr, sorted(unknown)))
            raise ValueError(
                f"{self._set('frozen_parts')}: the model has no part {named}; its parts are "
                f"{', '.join(sorted(params))}"
            )
        return {
            name: part
            for name, part in own_parts(params).items()
            if name not in {FROZEN, *self.frozen_parts, *self._unused(params)}
        }

    def _unused(self, params: Params) -> set[str]:
        """The parts of the model that the objective does not read, except through frozen layers."""
        unused = set() if self.computes_logits else {"unembed"}
        computes_them = self.computes_logits and "unembed" not in params
        # T5's table of biases is in the embedding, and the trained layers read it as well.
        if FROZEN in params and not computes_them and DISTANCE_BIASES not in params["embed"]:
            unused.add("embed")
        return unused

    def at_width(self, function: Callable[[Batch], T], batch: Batch) -> T:
        """Applies a function to a microbatch; a subclass may first cut off what only pads it."""
        return function(batch)

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        """Metrics of a dataset, from its batches' summed totals: their means."""
        return means(totals)

    def descend(self, state: TrainState, gradients: Params) -> tuple[TrainState, Metrics]:
        """One step of the optimiser.

        Args:
          state: the state before the step.
          gradients: gradients of the trained parts.

        Returns:
          The state after the step, and `optimizer/grad_norm` (before clipping) and
          `optimizer/learning_rate`.
        """
        with phase("optimizer"):
            gradients, norm = self.clipped(gradients)
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
        after = TrainState(
            step=state.step + 1,
            params={**state.params, **trained},
            optimizer=optimizer,
            ema=averages,
            key=state.key,
        )
        metrics = {
            "optimizer/grad_norm": norm,
            "optimizer/learning_rate": jnp.asarray(learning_rate, jnp.float32),
        }
        return after, metrics

    def clipped(self, gradients: Params) -> tuple[Params, Float[Array, ""]]:
        """Clips gradients to `max_grad_norm`; also returns their norm before clipping."""
        if self.max_grad_norm is None:
            return gradients, global_norm(gradients)
        return clip_by_global_norm(gradients, self.max_grad_norm)

    def gradients(self, params: Params, batch: Batch, weights: Any) -> tuple[Params, Metrics]:
        """Gradients of the batch's loss with respect to the trained parts.

        Args:
          params: all parameters.
          batch: arrays of [rows, …].
          weights: divisors of the entire batch's sums.

        Returns:
          Gradients in the parameters' dtypes, and the metrics of `losses` over the batch.
        """
        trained = self.trained(params)
        stack = ADAPTERS if ADAPTERS in trained else TRAINED
        in_place = self.transformer.config.remat_every > 0 and stack in trained

        def loss(
            trained: Params, batch: Batch, accumulated: Params | None
        ) -> tuple[Array, Metrics]:
            return self.losses({**params, **trained}, batch, weights, accumulated)

        slope = jax.grad(loss, has_aux=True)
        if self.microbatches == 1:
            with phase("gradients"):
                return self.at_width(lambda batch: slope(trained, batch, None), batch)

        def body(sums: Params, batch: Batch) -> tuple[Params, Metrics]:
            accumulated = sums[stack] if in_place else None
            new, metrics = self.at_width(lambda batch: slope(trained, batch, accumulated), batch)
            added = {
                name: part
                if in_place and name == stack
                else jax.tree.map(jnp.add, sums[name], part)
                for name, part in new.items()
            }
            return added, metrics

        zeros = jax.tree.map(jnp.zeros_like, trained)
        with phase("gradients"):
            sums, metrics = jax.lax.scan(body, zeros, cut_rows(batch, self.microbatches))
        return sums, jax.tree.map(lambda values: jnp.sum(values, axis=0), metrics)


def cut_rows(batch: Any, pieces: int) -> Any:
    """Splits a batch into pieces of every n-th row, so that each has rows of every device.

    Args:
      batch: a tree of arrays of [rows, …].
      pieces: number of pieces.

    Returns:
      Arrays of [pieces, rows / pieces, …].

    Raises:
      ValueError: the number of rows is not a multiple of `pieces`.
    """
    rows = jax.tree.leaves(batch)[0].shape[0]
    if rows % pieces:
        raise ValueError(
            f"a batch of {rows} rows can't be divided into {pieces} equal pieces: see the "
            "learner's `microbatches` (and `rollout_pieces`, for prompts)"
        )

    def cut(array: Array) -> Array:
        shape = (rows // pieces, pieces, *array.shape[1:])
        return jnp.moveaxis(array.reshape(shape), 1, 0)

    return jax.tree.map(cut, batch)


def join_rows(pieces: Any) -> Any:
    """The inverse of `cut_rows`.

    Args:
      pieces: a tree of arrays of [pieces, rows / pieces, …].

    Returns:
      Arrays of [rows, …].
    """
    return jax.tree.map(
        lambda array: jnp.moveaxis(array, 0, 1).reshape(-1, *array.shape[2:]), pieces
    )

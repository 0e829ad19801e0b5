"""Adafactor's rule for one matrix (Shazeer and Stern 2018), with float32 statistics."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32

from gophercite.learning.ranges import require_count, require_number

# The floor of a parameter's root mean square when updates are scaled by it (epsilon_2 there).
_SMALLEST_SCALE = 1e-3


@dataclasses.dataclass(frozen=True)
class AdafactorRule:
    """The second moment of a matrix's gradient as the product of a row and a column of means.

    Attributes:
      decay_rate: at step t, the old moving average has weight 1 - t**-decay_rate.
      clipping_threshold: maximum root mean square of a matrix's update; None never clips.
      min_dim_size_to_factor: the second moment of a matrix with a smaller side is not factored.
      multiply_by_parameter_scale: make the learning rate relative to the matrix's root mean square.
      epsilon: added to squared gradients.
    """

    decay_rate: float
    clipping_threshold: float | None
    min_dim_size_to_factor: int
    multiply_by_parameter_scale: bool
    epsilon: float

    def __post_init__(self) -> None:
        """Checks that each field is in its range.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        require_number("adafactor: decay_rate", self.decay_rate, above=0, most=1)
        if self.clipping_threshold is not None:
            otherwise = ", or None for no clipping"
            threshold = self.clipping_threshold
            require_number("adafactor: clipping_threshold", threshold, above=0, otherwise=otherwise)
        require_count("adafactor: min_dim_size_to_factor", self.min_dim_size_to_factor)
        require_number("adafactor: epsilon", self.epsilon, above=0)

    def statistics(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Which axes of a parameter each of its statistics keeps.

        Args:
          shape: the parameter's shape.

        Returns:
          `row` without the last axis and `column` without the second-to-last if both axes are large
          enough; otherwise `second_moment` with all axes.
        """
        axes = tuple(range(len(shape)))
        if len(shape) < 2 or min(shape[-2:]) < self.min_dim_size_to_factor:
            return {"second_moment": axes}
        return {"row": axes[:-1], "column": (*axes[:-2], axes[-1])}

    def direction(
        self,
        gradient: Float32[Array, "*shape"],
        statistics: dict[str, Float32[Array, "..."]],
        parameter: Float32[Array, "*shape"],
        step: Int32[Array, ""],
    ) -> tuple[Float32[Array, "*shape"], dict[str, Float32[Array, "..."]]]:
        """What to subtract from a parameter, per unit of learning rate.

        Args:
          gradient: gradient of the loss.
          statistics: statistics of the previous step; zeros at the first.
          parameter: the parameter before the update; used only with `multiply_by_parameter_scale`.
          step: 1 at the first update.

        Returns:
          The direction, and the new statistics.
        """
        decay = 1.0 - step.astype(jnp.float32) ** -self.decay_rate
        squares = jnp.square(gradient) + self.epsilon

        def average(name: str, new: jax.Array) -> jax.Array:
            return decay * statistics[name] + (1.0 - decay) * new

        if "row" in statistics:
            row = average("row", squares.mean(axis=-1))
            column = average("column", squares.mean(axis=-2))
            # Row and column both hold means, so their product is divided by the overall mean.
            # Apart from each other: the quotient of a row that is never used could become 0.
            row_factor = jax.lax.rsqrt(row) * jnp.sqrt(row.mean(axis=-1, keepdims=True))
            column_factor = jax.lax.rsqrt(column)
            update = gradient * row_factor[..., :, None] * column_factor[..., None, :]
            new = {"row": row, "column": column}
        else:
            new = {"second_moment": average("second_moment", squares)}
            update = gradient * jax.lax.rsqrt(new["second_moment"])
        if self.clipping_threshold is not None:
            update /= jnp.maximum(1.0, _root_mean_square(update) / self.clipping_threshold)
        if self.multiply_by_parameter_scale:
            update *= jnp.maximum(_root_mean_square(parameter), _SMALLEST_SCALE)
        return update, new


def _root_mean_square(x: Float32[Array, "..."]) -> Float32[Array, ""]:
    return jnp.sqrt(jnp.mean(jnp.square(x)))

"""Adam's rule for one matrix (Kingma and Ba 2015): Optax's arithmetic, with float32 moments."""

import dataclasses

import optax
from jaxtyping import Array, Float32, Int32

from gophercite.learning.ranges import require_number


@dataclasses.dataclass(frozen=True)
class AdamRule:
    """Moving averages of a matrix's gradient and of its square, not factored.

    Attributes:
      b1: decay of the gradient's average.
      b2: decay of the squared gradient's average.
      eps: added to the root of the second moment.
    """

    b1: float
    b2: float
    eps: float

    def __post_init__(self) -> None:
        """Checks that each field is in its range.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        require_number("adam: b1", self.b1, least=0, below=1)
        require_number("adam: b2", self.b2, least=0, below=1)
        # Without it, the step of a parameter without gradient would be 0 / 0.
        require_number("adam: eps", self.eps, above=0)

    def statistics(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Which axes of a parameter each of its statistics keeps.

        Args:
          shape: the parameter's shape.

        Returns:
          `first_moment` and `second_moment`, both with all axes.
        """
        axes = tuple(range(len(shape)))
        return {"first_moment": axes, "second_moment": axes}

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
          parameter: not used.
          step: 1 at the first update.

        Returns:
          The direction, and the new statistics.
        """
        del parameter
        before = optax.ScaleByAdamState(
            count=step - 1, mu=statistics["first_moment"], nu=statistics["second_moment"]
        )
        adam = optax.scale_by_adam(self.b1, self.b2, self.eps)
        update, after = adam.update(gradient, before)
        return update, {"first_moment": after.mu, "second_moment": after.nu}

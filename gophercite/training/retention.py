"""Which checkpoints of a run stay."""

import dataclasses
from collections.abc import Mapping, Sequence

from orbax.checkpoint import checkpoint_managers

from gophercite.model_folders.checkpoint_scores import Score, ranking


@dataclasses.dataclass(frozen=True)
class Keep:
    """Orbax's preservation policy: keeps the newest checkpoints and those with the best scores."""

    newest: int
    best: int
    scores: Mapping[int, Score]  # shared with `Checkpoints`, which adds to it

    def should_preserve(
        self,
        checkpoints: Sequence[checkpoint_managers.PolicyCheckpointInfo],
        *,
        context: checkpoint_managers.PreservationContext,
    ) -> list[bool]:
        """Whether to keep each of the checkpoints."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        ranked = ranking({step: self.scores[step] for step in steps if step in self.scores})
        kept = {*sorted(steps)[-self.newest :], *ranked[: self.best]}
        return [step in kept for step in steps]

"""A model that browses (WebGPT, section 2): it reads a state's prompt, and writes a command or the
answer.

By default nothing can be written that the environment would refuse (`decoding.commands`).
"""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from gophercite.browser.environment import step
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.browsing.writer import BrowsingSettings, Writer, Written
from gophercite.models.folder import Model


class BrowsingModel:
    """Browses with one model.

    Args:
      model: what browses.
      settings: how.
      name: what the model is called where its provenance has no `id`.

    Attributes:
      name: what the model is called.
      settings: how it browses.

    Raises:
      NoLegalAnswer: no command can be written in so few tokens.
    """

    def __init__(
        self, model: Model, settings: BrowsingSettings | None = None, name: str = "model"
    ) -> None:
        self.name = str(model.provenance.get("id", name))
        self.settings = settings or BrowsingSettings()
        self._model = model
        self._writers: dict[int, Writer] = {}
        self._writer(1)

    def write(
        self, world: World, states: Sequence[State], keys: Key[Array, " states"]
    ) -> list[Written]:
        """Writes what comes next in some states, which may be in either phase.

        Args:
          world: what is browsed.
          states: of episodes that are not over, at least one.
          keys: of the draws.

        Raises:
          ValueError: an episode is over, or the shortest prompt has too many tokens.
        """
        writer = self._writer(len(states))
        written = writer.take(writer.ask(self._model.params, world, states, keys))
        return [text for (text,) in written]

    def browse(self, world: World, state: State, seed: int = 0) -> Iterator[State]:
        """Browses on from a state, step by step.

        Args:
          world: what is browsed.
          state: of an episode that is not over.
          seed: of the draws; from the same state the same seed gives the same.

        Yields:
          The state after each step; the last one's episode is over.
        """
        while not state.done:
            state = step(world, state, self.next_text(world, state, seed)).state
            yield state

    def next_text(self, world: World, state: State, seed: int = 0) -> str:
        """Writes what comes next in one state; see `browse`."""
        key = jax.random.fold_in(jax.random.key(seed), len(state.texts))
        (written,) = self.write(world, [state], jnp.stack([key]))
        return written.text

    def _writer(self, states: int) -> Writer:
        if states not in self._writers:
            first = self._writers.get(1)
            self._writers[states] = Writer(
                self._model.transformer,
                self._model.vocabulary,
                self.settings,
                states=states,
                constraint=None if first is None else first.constraint,
            )
        return self._writers[states]

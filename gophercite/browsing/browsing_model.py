"""A model that browses (WebGPT, section 2): it reads a state's prompt, and writes a command or the
answer.

By default it can only write what the environment accepts (`gophercite.commands`).
"""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from gophercite.browser.environment import step
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.browsing.writer import BrowsingSettings, Writer, Written
from gophercite.model_folders.folder import Model


class BrowsingModel:
    """Browses with one model.

    Args:
      model: the model.
      settings: how it browses.
      name: the model's name where its provenance has no `id`.

    Attributes:
      name: the model's name.
      settings: how it browses.

    Raises:
      NoLegalAnswer: the shortest command has more tokens than are allowed.
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
        """Writes the next text for some states, which may be in either phase.

        Args:
          world: the world that is browsed.
          states: of episodes that are not over, at least one.
          keys: key of the sampling for each state.

        Raises:
          ValueError: an episode is over, or the shortest prompt has too many tokens.
        """
        writer = self._writer(len(states))
        written = writer.take(writer.ask(self._model.params, world, states, keys))
        return [text for (text,) in written]

    def browse(self, world: World, state: State, seed: int = 0) -> Iterator[State]:
        """Continues browsing from a state, step by step.

        Args:
          world: the world that is browsed.
          state: of an episode that is not over.
          seed: seed of the sampling; the same state and seed give the same episode.

        Yields:
          The state after each step; the last state's episode is over.
        """
        while not state.done:
            state = step(world, state, self.next_text(world, state, seed)).state
            yield state

    def next_text(self, world: World, state: State, seed: int = 0) -> str:
        """Writes the next text for one state; see `browse`."""
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

"""A model that browses (WebGPT, section 2): it reads a state's prompt, and writes a command or the
answer.

By default nothing can be written that the environment would refuse (`decoding.commands`).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import page_of, step
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.decoding.commands import CommandConstraint, CommandSettings
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.folder import Model

_LEAST_WIDTH = 256  # tokens of the narrowest program


@dataclasses.dataclass(frozen=True)
class BrowsingSettings:
    """How a model browses.

    Attributes:
      constrained: whether only what is valid can be written; otherwise anything, and the log counts
        what is invalid.
      prompt_tokens: longest prompt, which is shortened to it (`observation.TokenBudget`); with what
        is written it has to fit what the model was trained for.
      sampling: how tokens are drawn, and how many for a command or an answer.
      commands: what may be written, where it is constrained.
    """

    constrained: bool = True
    prompt_tokens: int = 2048
    sampling: SamplingSettings = dataclasses.field(
        default_factory=lambda: SamplingSettings(max_tokens=128, free_log_probs=False)
    )
    commands: CommandSettings = dataclasses.field(default_factory=CommandSettings)

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise ValueError(f"prompt_tokens = {self.prompt_tokens}: must be at least 1")


class Written(NamedTuple):
    """What a model wrote.

    Attributes:
      text: without white space around it.
      tokens: ids, the end of sequence included where there is one.
    """

    text: str
    tokens: tuple[int, ...]


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
        self._constraint: CommandConstraint | None = None
        if self.settings.constrained:
            self._constraint = CommandConstraint(
                model.vocabulary, self.settings.sampling.max_tokens, self.settings.commands
            )

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
        model, settings, vocabulary = self._model, self.settings, self._model.vocabulary
        prompts = [encode_state(vocabulary, state, settings.prompt_tokens) for state in states]
        # Prompts are as wide as a power of two, so that few programs serve all of an episode.
        width = _LEAST_WIDTH
        while width < max(map(len, prompts)):
            width *= 2
        quotes = None
        if self._constraint is not None:
            graphs = [self._constraint.graph(page_of(world, state), state) for state in states]
            quotes = self._constraint.tables(graphs)
        made = sample(
            model.transformer,
            model.params,
            prompts,
            keys,
            settings.sampling,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
            quotes=quotes,
            vocabulary_size=vocabulary.size,
            other_eos_ids=vocabulary.other_eos_ids,
            least_width=min(width, settings.prompt_tokens),
        )
        rows = zip(made.tokens.tolist(), made.lengths.tolist(), strict=True)
        written = [tuple(tokens[:length]) for tokens, length in rows]
        return [Written(vocabulary.decode(tokens).strip(), tokens) for tokens in written]

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

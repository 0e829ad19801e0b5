"""Samples texts for many states at once: prompts go to the device, and the host need not wait."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt8

from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import page_of
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.commands.constraint import CommandConstraint, CommandSettings
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.decoded import Decoded
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampler import require_numbers
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.learning.token_log_probs import packed
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_state import QuoteTables, advance, allowed, initial
from gophercite.vocabularies import Vocabulary

_LEAST_WIDTH = 256  # smallest padded prompt length, in tokens


@dataclasses.dataclass(frozen=True)
class BrowsingSettings:
    """How a model browses.

    Attributes:
      constrained: whether only valid actions can be written; otherwise anything can, and invalid
        actions are counted in the log.
      prompt_tokens: maximum prompt length, to which prompts are shortened
        (`observation.TokenBudget`); together with the response it must fit the length that the
        model was trained for.
      sampling: how tokens are drawn, and the maximum length of a command or an answer.
      commands: what may be written, if constrained.
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
    """A text that a model wrote.

    Attributes:
      text: the text without surrounding white space.
      prompt: token ids of its prompt.
      tokens: ids of the sampled tokens, including the end of sequence if there is one.
      log_probs: each token's log-probability in the distribution it was sampled from, in nats.
      allowed: which tokens were allowed at each place (`Experience.allowed`); None if that was not
        requested, or if all were.
    """

    text: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    log_probs: Float[np.ndarray, " tokens"]
    allowed: UInt8[np.ndarray, "tokens bytes"] | None = None


class Asked(NamedTuple):
    """Texts that are being sampled.

    Attributes:
      prompts: the prompt of each state.
      samples: number of texts for each state.
      decoded: the device's results; the program may still be running.
      allowed: likewise; see `Written`.
    """

    prompts: list[list[int]]
    samples: list[int]
    decoded: Decoded
    allowed: UInt8[Array, "prompts samples max_tokens bytes"] | None


class Writer:
    """Samples texts for batches of one size, so that few programs are compiled.

    Args:
      transformer: the model.
      vocabulary: its tokenizer.
      settings: how it browses.
      states: maximum number of states in a batch.
      samples: maximum number of texts per state.
      keep_allowed: whether to record which tokens were allowed, for training.
      constraint: what may be written, if the settings are constrained; built when None. Writers of
        one model may share it.

    Raises:
      NoLegalAnswer: the shortest command has more tokens than are allowed.
    """

    def __init__(
        self,
        transformer: Transformer,
        vocabulary: Vocabulary,
        settings: BrowsingSettings,
        *,
        states: int,
        samples: int = 1,
        keep_allowed: bool = False,
        constraint: CommandConstraint | None = None,
    ) -> None:
        if states < 1 or samples < 1:
            raise ValueError(f"states = {states}, samples = {samples}: must be at least 1")
        self.states, self.samples, self.vocabulary = states, samples, vocabulary
        self.settings, self._keep_allowed = settings, keep_allowed
        self.constraint = constraint
        if settings.constrained and constraint is None:
            self.constraint = CommandConstraint(
                vocabulary, settings.sampling.max_tokens, settings.commands
            )
        self._plan = Plan(
            transformer,
            settings.sampling,
            vocabulary.eos_id,
            vocabulary.pad_id,
            vocabulary.size,
            samples,
            samples,
            other_eos_ids=tuple(vocabulary.other_eos_ids),
        )

    def ask(
        self,
        params: Params,
        world: World,
        states: Sequence[State],
        keys: Key[Array, " keys"],
        samples: Sequence[int] | None = None,
    ) -> Asked:
        """Starts sampling texts; returns while the device is still working.

        Args:
          params: the model's parameters.
          world: the world that is browsed.
          states: of episodes that are not over, in either phase; from 1 to `states` of them.
          keys: keys of the sampling, at least one per state. A text depends on its own key and
            number, and on no other state.
          samples: number of texts for each state; None for `samples` each.

        Raises:
          ValueError: an episode is over, the shortest prompt has too many tokens, or there are too
            many states.
        """
        if not 1 <= len(states) <= self.states:
            raise ValueError(f"{len(states)} states: must be from 1 to {self.states}")
        counts = [self.samples] * len(states) if samples is None else list(samples)
        missing = self.states - len(states)
        most = self.settings.prompt_tokens
        prompts = [encode_state(self.vocabulary, state, most) for state in states]
        # Prompts are padded to a power of two, so that few programs serve a whole episode.
        width = _LEAST_WIDTH
        while width < max(map(len, prompts)):
            width *= 2
        tables = None
        if self.constraint is not None:
            graphs = [self.constraint.graph(page_of(world, state), state) for state in states]
            tables = self.constraint.tables(graphs + graphs[:1] * missing)
        filled = prompts + prompts[:1] * missing
        positions = self._plan.transformer.config.max_positions
        room = None if positions is None else positions - self._plan.settings.max_tokens
        tokens, lengths = padded_rows(
            filled, self.vocabulary.pad_id, "prompt", min(width, most), room
        )
        if len(keys) < self.states:
            keys = jnp.concatenate([keys, keys[:1].repeat(self.states - len(keys))])
        wanted = np.array(counts + [0] * missing, np.int32)
        decoded = decode(self._plan, params, tokens, lengths, keys, tables, None, wanted)
        allowed_tokens = None
        if self._keep_allowed and tables is not None:
            allowed_tokens = _allowed(tables, decoded.tokens, self._plan.settings.max_tokens)
        return Asked(prompts, counts, decoded, allowed_tokens)

    def take(self, asked: Asked) -> list[list[Written]]:
        """Waits for the texts.

        Args:
          asked: the result of `ask`.

        Returns:
          The texts of each state.

        Raises:
          NotNumbersError: the model's logits are NaN or infinite.
        """
        decoded, allowed_tokens = jax.device_get((asked.decoded, asked.allowed))
        drawn_from = decoded.constrained_log_probs
        if drawn_from is None:
            drawn_from = decoded.log_probs
        drawn = [drawn_from[state, :count] for state, count in enumerate(asked.samples)]
        require_numbers(self._plan.transformer, *drawn)

        def one(state: int, sample: int) -> Written:
            length = int(decoded.lengths[state, sample])
            tokens = tuple(decoded.tokens[state, sample, :length].tolist())
            return Written(
                self.vocabulary.decode(tokens).strip(),
                tuple(asked.prompts[state]),
                tokens,
                drawn_from[state, sample, :length],
                None if allowed_tokens is None else allowed_tokens[state, sample, :length],
            )

        return [[one(i, j) for j in range(count)] for i, count in enumerate(asked.samples)]


@partial(jax.jit, static_argnums=2)
def _allowed(
    tables: QuoteTables, tokens: Int[Array, "prompts samples max_tokens"], max_tokens: int
) -> UInt8[Array, "prompts samples max_tokens bytes"]:
    """Which tokens the constraint allowed at each place; meaningless after the end of a text."""
    prompts, samples, places = tokens.shape
    rows = tokens.reshape(-1, places)
    of_row = jnp.repeat(jnp.arange(prompts), samples)

    def place(state: tuple, now: tuple[Array, Array]) -> tuple:
        token, number = now
        left = jnp.full(token.shape, max_tokens - number)
        return advance(tables, state, token), packed(allowed(tables, state, left))  # type: ignore[arg-type]

    start = initial(tables, of_row, jnp.tile(jnp.arange(samples), prompts))
    by_place: Array = jax.lax.scan(place, start, (rows.T, jnp.arange(places)))[1]
    return jnp.moveaxis(by_place, 0, 1).reshape(prompts, samples, places, -1)

"""Many environments at once: some step on the host while the device samples for others (WebGPT, E).

Texts are sampled for half of the environments at a time: while the device works on one half, the
host steps the environments of the other. The composition of batches depends only on the order of
the texts, never on timing, so the same start gives the same episodes, bit for bit.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from gophercite.browser.environment import step
from gophercite.browser.state import State, state_from_json, state_to_json
from gophercite.browser.worlds import World
from gophercite.browsing.writer import Asked, BrowsingSettings, Writer, Written
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.storage.json_fields import RecordError
from gophercite.vocabularies import Vocabulary

_IN_FLIGHT = 2  # batches: one on the device, and one that the host works on


@dataclasses.dataclass(frozen=True)
class Lane:
    """An environment and its current episode.

    Attributes:
      state: state of the episode, which is not over; while answers are sampled, the state before
        them.
      question: index of the question.
      number: index of the episode in this environment.
      given: number of answers that were already sampled for this episode's references.
    """

    state: State
    question: int
    number: int = 0
    given: int = 0

    def to_json(self) -> dict[str, Any]:
        """The lane as JSON."""
        numbers = {"question": self.question, "number": self.number, "given": self.given}
        return {"state": state_to_json(self.state), **numbers}

    @classmethod
    def from_json(cls, value: Any) -> "Lane":
        """The inverse of `to_json`.

        Raises:
          RecordError: it is not a lane.
        """
        names = ("question", "number", "given")
        if not isinstance(value, dict) or not all(isinstance(value.get(n), int) for n in names):
            raise RecordError("expected an environment's state, question, number and given")
        return cls(state_from_json(value.get("state")), *(value[name] for name in names))


class Turn(NamedTuple):
    """A text that was written, and its result.

    Attributes:
      written: the text, with the prompt.
      before: the state before it.
      after: the state after it.
      lane: index of the environment.
      question: index of the question.
      number: index of the episode in its environment.
      extra: 0 for the episode's own texts, n for its n-th further answer.
      invalid: why it was not a valid action; None if it was.
    """

    written: Written
    before: State
    after: State
    lane: int
    question: int
    number: int
    extra: int
    invalid: str | None

    @property
    def ends(self) -> bool:
        """Whether the episode, or the further answer, ends with this text."""
        return self.after.done


class Played(NamedTuple):
    """The result of `Player.play`.

    Attributes:
      turns: each environment's texts, in order.
      lanes: where each environment continues; None if nothing followed its last episode.
    """

    turns: list[list[Turn]]
    lanes: list[Lane | None]


@dataclasses.dataclass
class _Slot:
    """An environment in play."""

    lane: Lane | None
    turns: list[Turn]
    room: int | None
    texts: int = 0


class Player:
    """Plays episodes with one model.

    Args:
      transformer: the model.
      vocabulary: its tokenizer.
      settings: how it browses.
      together: number of states in a batch: half of the environments.
      answers: number of answers sampled for each episode's references: 1, plus the further ones
        (WebGPT, 3.2: 16 in all). They are sampled together, with one prefill of their prompt.
      chunk: tokens per row of experience, which is the unit of `room`. A longer text takes several
        rows.
      keep_allowed: see `Writer`.

    Raises:
      NoLegalAnswer: the shortest command has more tokens than are allowed.
      ValueError: a number is less than 1.
    """

    def __init__(
        self,
        transformer: Transformer,
        vocabulary: Vocabulary,
        settings: BrowsingSettings,
        *,
        together: int,
        answers: int = 1,
        chunk: int = 64,
        keep_allowed: bool = False,
    ) -> None:
        for name, value in (("together", together), ("answers", answers), ("chunk", chunk)):
            if value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        self.transformer, self.settings = transformer, settings
        self.answers, self.chunk = answers, chunk
        self.keeps_allowed = keep_allowed and settings.constrained
        self._browse = Writer(
            transformer, vocabulary, settings, states=together, keep_allowed=keep_allowed
        )
        self._answer = Writer(
            transformer,
            vocabulary,
            settings,
            states=max(1, together // answers),
            samples=answers,
            keep_allowed=keep_allowed,
            constraint=self._browse.constraint,
        )

    @property
    def most_rows(self) -> int:
        """Number of rows of experience that the longest text takes."""
        return -(-self.settings.sampling.max_tokens // self.chunk)

    def play(
        self,
        params: Params,
        world: World,
        lanes: Sequence[Lane],
        key: Key[Array, ""],
        *,
        after: Callable[[int, Lane], Lane | None],
        room: int | None = None,
        interrupted: Callable[[float], bool] = lambda share: False,
        first: int = 0,
    ) -> Played | None:
        """Plays until no environment has room left or an episode to continue with.

        Args:
          params: the model's parameters.
          world: the world that is browsed.
          lanes: the current state of each environment.
          key: base key of the sampling; text n of environment i uses (key, first + i, n).
          after: returns what an environment continues with when an episode is over and its answers
            are sampled; None stops the environment.
          room: rows of experience that each environment may fill; None for no limit.
          interrupted: called before each batch of texts, with the share that has been played.
          first: number of environments before these, which other processes play.

        Returns:
          What was played; None when interrupted.
        """
        slots = [_Slot(lane, [], room) for lane in lanes]
        ready = collections.deque(i for i, slot in enumerate(slots) if self._wants(slot))
        flights: collections.deque[tuple[Writer, list[int], Asked]] = collections.deque()
        while ready or flights:
            if interrupted(_share(slots, room)):
                return None
            while len(flights) < _IN_FLIGHT and (chosen := self._choose(slots, ready, not flights)):
                writer, numbers = chosen
                flights.append(
                    (writer, numbers, self._ask(writer, params, world, slots, numbers, key, first))
                )
            writer, numbers, asked = flights.popleft()
            for number, texts in zip(numbers, writer.take(asked), strict=True):
                self._act(world, number, slots[number], texts, after)
                if self._wants(slots[number]):
                    ready.append(number)
        return Played([slot.turns for slot in slots], [slot.lane for slot in slots])

    def _wants(self, slot: _Slot) -> int:
        """Number of texts that an environment has room for now."""
        if slot.lane is None:
            return 0
        wanted = self.answers - slot.lane.given if slot.lane.state.phase == "answering" else 1
        return wanted if slot.room is None else min(wanted, slot.room // self.most_rows)

    def _choose(
        self, slots: Sequence[_Slot], ready: collections.deque[int], some: bool
    ) -> tuple[Writer, list[int]] | None:
        """Chooses ready environments for a batch: a full one, or, if `some`, an incomplete one."""
        kinds: list[tuple[Writer, list[int]]] = [(self._browse, []), (self._answer, [])]
        for number in ready:
            lane = slots[number].lane
            assert lane is not None
            kinds[lane.state.phase == "answering"][1].append(number)
        for writer, numbers in sorted(kinds, key=lambda kind: -len(kind[1]) / kind[0].states):
            if len(numbers) >= writer.states or (some and numbers):
                chosen = numbers[: writer.states]
                for number in chosen:
                    ready.remove(number)
                return writer, chosen
        return None

    def _ask(
        self,
        writer: Writer,
        params: Params,
        world: World,
        slots: Sequence[_Slot],
        numbers: Sequence[int],
        key: Key[Array, ""],
        first: int,
    ) -> Asked:
        chosen = [slots[number] for number in numbers]
        filled = [*numbers, *[0] * (writer.states - len(numbers))]  # padded: one program for all
        texts = jnp.array([slots[number].texts for number in filled])
        keys = _keys(key, first + jnp.array(filled), texts)
        for slot in chosen:
            slot.texts += 1
        states = [slot.lane.state for slot in chosen if slot.lane is not None]
        return writer.ask(params, world, states, keys, [self._wants(slot) for slot in chosen])

    def _act(
        self,
        world: World,
        number: int,
        slot: _Slot,
        texts: Sequence[Written],
        after: Callable[[int, Lane], Lane | None],
    ) -> None:
        lane = slot.lane
        assert lane is not None
        for text in texts:
            outcome = step(world, lane.state, text.text)
            slot.turns.append(
                Turn(
                    text, lane.state, outcome.state, number, lane.question, lane.number, lane.given,
                    outcome.invalid,
                )
            )  # fmt: skip
            if slot.room is not None:
                slot.room -= -(-len(text.tokens) // self.chunk)
            if lane.state.phase == "answering":
                lane = dataclasses.replace(lane, given=lane.given + 1)
                over = lane.given == self.answers
            else:
                lane = dataclasses.replace(lane, state=outcome.state)
                over = outcome.done
            slot.lane = after(number, lane) if over else lane


def _share(slots: Sequence[_Slot], room: int | None) -> float:
    """How much has been played, from 0 to 1: of the room, or without a limit of the episodes."""
    left = [float(slot.lane is not None) if room is None else slot.room or 0 for slot in slots]
    return 1 - sum(left) / (len(slots) * (1 if room is None else room))


@jax.jit
def _keys(key: Key[Array, ""], lanes: Array, texts: Array) -> Key[Array, " lanes"]:
    return jax.vmap(lambda i, n: jax.random.fold_in(jax.random.fold_in(key, i), n))(lanes, texts)

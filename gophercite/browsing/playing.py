"""Many environments at once: they step on the host while the device writes for others (WebGPT, E).

Texts are asked for in two halves: while the device is at one, the host steps the environments of
the other. What is asked for together depends on the order of texts alone, never on how long
anything took, so that the same start gives the same episodes, bit for bit.
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

_IN_FLIGHT = 2  # batches: one that the device is at, and one that the host is


@dataclasses.dataclass(frozen=True)
class Lane:
    """An environment: the episode that it is in.

    Attributes:
      state: of the episode, which is not over; while answers are given, the state before them.
      question: number of the question.
      number: of the episode, among those of this environment.
      given: answers that were given on this episode's references.
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
          RecordError: it is no lane.
        """
        names = ("question", "number", "given")
        if not isinstance(value, dict) or not all(isinstance(value.get(n), int) for n in names):
            raise RecordError("expected an environment's state, question, number and given")
        return cls(state_from_json(value.get("state")), *(value[name] for name in names))


class Turn(NamedTuple):
    """A text that was written and what it led to.

    Attributes:
      written: with what was read.
      before: the state.
      after: the state that it led to.
      lane: number of the environment.
      question: number of the question.
      number: of the episode, among the environment's.
      extra: 0 for the episode's own texts, n for its n-th further answer.
      invalid: why it was no valid action; None where it was.
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
        """Whether the episode, or the further answer, ends with it."""
        return self.after.done


class Played(NamedTuple):
    """What was played.

    Attributes:
      turns: of each environment, in order.
      lanes: where each goes on; None where nothing followed its last episode.
    """

    turns: list[list[Turn]]
    lanes: list[Lane | None]


@dataclasses.dataclass
class _Slot:
    """An environment at play."""

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
      together: states that are written for at a time: half of the environments.
      answers: that are given on each episode's references: 1, and those that are inserted (WebGPT,
        3.2: 16 in all). They are drawn together, with their prompt read once.
      chunk: tokens of a row of experience; what `room` counts. A longer text is several.
      keep_allowed: see `Writer`.

    Raises:
      NoLegalAnswer: no command can be written in so few tokens.
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
        self.settings, self.answers, self.chunk = settings, answers, chunk
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
        """Rows of experience that the longest text is."""
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
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Played | None:
        """Plays until no environment has room, or anything to go on with.

        Args:
          params: the model's.
          world: what is browsed.
          lanes: where each environment is.
          key: of all draws; text n of environment i draws by (key, i, n).
          after: what an environment goes on with when an episode is over and its answers given;
            None ends it.
          room: rows of experience that each may fill; None for any number.
          interrupted: asked before each batch of texts.

        Returns:
          What was played; None when interrupted.
        """
        slots = [_Slot(lane, [], room) for lane in lanes]
        ready = collections.deque(i for i, slot in enumerate(slots) if self._wants(slot))
        flights: collections.deque[tuple[Writer, list[int], Asked]] = collections.deque()
        while ready or flights:
            if interrupted():
                return None
            while len(flights) < _IN_FLIGHT and (chosen := self._choose(slots, ready, not flights)):
                writer, numbers = chosen
                flights.append(
                    (writer, numbers, self._ask(writer, params, world, slots, numbers, key))
                )
            writer, numbers, asked = flights.popleft()
            for number, texts in zip(numbers, writer.take(asked), strict=True):
                self._act(world, number, slots[number], texts, after)
                if self._wants(slots[number]):
                    ready.append(number)
        return Played([slot.turns for slot in slots], [slot.lane for slot in slots])

    def _wants(self, slot: _Slot) -> int:
        """How many texts an environment has room for now."""
        if slot.lane is None:
            return 0
        wanted = self.answers - slot.lane.given if slot.lane.state.phase == "answering" else 1
        return wanted if slot.room is None else min(wanted, slot.room // self.most_rows)

    def _choose(
        self, slots: Sequence[_Slot], ready: collections.deque[int], some: bool
    ) -> tuple[Writer, list[int]] | None:
        """Takes environments from those that are ready: as many as fit, or any if `some`."""
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
    ) -> Asked:
        chosen = [slots[number] for number in numbers]
        filled = [*numbers, *[0] * (writer.states - len(numbers))]  # one program for any number
        keys = _keys(key, jnp.array(filled), jnp.array([slots[number].texts for number in filled]))
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
            made = step(world, lane.state, text.text)
            slot.turns.append(
                Turn(
                    text, lane.state, made.state, number, lane.question, lane.number, lane.given,
                    made.invalid,
                )
            )  # fmt: skip
            if slot.room is not None:
                slot.room -= -(-len(text.tokens) // self.chunk)
            if lane.state.phase == "answering":
                lane = dataclasses.replace(lane, given=lane.given + 1)
                over = lane.given == self.answers
            else:
                lane = dataclasses.replace(lane, state=made.state)
                over = made.done
            slot.lane = after(number, lane) if over else lane


@jax.jit
def _keys(key: Key[Array, ""], lanes: Array, texts: Array) -> Key[Array, " lanes"]:
    return jax.vmap(lambda i, n: jax.random.fold_in(jax.random.fold_in(key, i), n))(lanes, texts)

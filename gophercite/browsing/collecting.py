"""Experience of browsing, for PPO: environments that persist across rollouts (WebGPT, 3.2, E).

A text of more than `chunk` tokens is split into several completions, each of which follows what was
written before it; this costs no action. At the end of a rollout, an unfinished episode gets a row
without a response, whose value stands for the rest of the episode.

Each process of a run has an equal share of the environments, and samples for them on its own
devices.
"""

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import reset
from gophercite.browser.settings import Settings
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.browsing.between_processes import Polls, summed
from gophercite.browsing.judging import Judge
from gophercite.browsing.own_copy import OwnCopy, own_part
from gophercite.browsing.playing import Lane, Played, Player, Turn
from gophercite.decoding.across_processes import gather_json
from gophercite.learning.experience import Experience, nothing, to_batch
from gophercite.learning.state import Collected
from gophercite.models.parameters import (
    BESIDE_THE_POLICY,
    HEADS,
    REWARD_MODEL,
    Params,
    frozen_layers,
)
from gophercite.models.reward_model import RewardModel
from gophercite.partitioning import Partitioner


@dataclasses.dataclass(frozen=True)
class Asked:
    """A question to browse for.

    Attributes:
      id: the question's id.
      question: its text.
      reference_answer: if given, pages that repeat ten words of it are censored.
    """

    id: str
    question: str
    reference_answer: str | None = None


Measure = Callable[[Asked, State], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Rollout:
    """How much experience is collected per update.

    Attributes:
      environments: number of environments that are played at once, over all processes.
      steps: rows per environment (T in table 7).
      chunk: tokens per row.
      extra_answers: further answers for each episode's references (15 in WebGPT, 3.2).
    """

    environments: int = 256
    steps: int = 256
    chunk: int = 64
    extra_answers: int = 15

    def __post_init__(self) -> None:
        """Refuses impossible numbers.

        Raises:
          ValueError: a number is out of range.
        """
        for name in ("environments", "steps", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"Rollout.{name} = {getattr(self, name)}: must be at least 1")
        if self.extra_answers < 0:
            raise ValueError(f"Rollout.extra_answers = {self.extra_answers}: must be at least 0")

    @property
    def rows(self) -> int:
        """Rows of a rollout: for each environment, one more for an episode that continues."""
        return self.environments * (self.steps + 1)


class BrowsingCollector:
    """A `gophercite.learning.state.Collector`.

    Question n of the run, counted over all environments, is drawn from (seed, n) alone. Each
    question is drawn once per epoch, and each epoch has its own order.

    Args:
      world: the world that is browsed.
      questions: training questions; not those of demonstrations and comparisons.
      rules: rules of the episodes.
      player: plays with the policy, for this process's environments.
      rollout: how much to collect, over all processes.
      judge: scores answers.
      evaluated: questions for evaluation; evaluation batches refer to them by index.
      evaluated_world: the world in which these are browsed; `world` when None.
      measure: further metrics of a finished episode, such as whether the answer is true.
      seed: seed for the order of questions, and for the episodes' numbers of actions.
      partitioner: the mesh of the parameters; None for a single device of a single process.

    Attributes:
      rollout: how much is collected.

    Raises:
      ValueError: there are no questions, the longest text does not fit a rollout, the sampling
        settings differ from the policy's own distribution, or the processes can't share the
        environments or the mesh.
    """

    def __init__(
        self,
        world: World,
        questions: Sequence[Asked],
        rules: Settings,
        player: Player,
        rollout: Rollout,
        judge: Judge,
        *,
        evaluated: Sequence[Asked] = (),
        evaluated_world: World | None = None,
        measure: Measure | None = None,
        seed: int = 0,
        partitioner: Partitioner | None = None,
    ) -> None:
        if not questions:
            raise ValueError("there are no questions to learn from")
        if rollout.steps < player.most_rows:
            raise ValueError(
                f"Rollout.steps = {rollout.steps}: the longest text is {player.most_rows} rows of "
                f"{rollout.chunk} tokens"
            )
        drawn = player.settings.sampling
        if drawn.temperature != 1 or drawn.top_p != 1 or drawn.top_k is not None:
            raise ValueError(
                f"texts are sampled with {drawn}: PPO learns of the policy's own distribution; set "
                "temperature = 1, top_p = 1 and top_k = None"
            )
        if rollout.environments % jax.process_count():
            raise ValueError(
                f"Rollout.environments = {rollout.environments}: must be a multiple of the "
                f"{jax.process_count()} processes, which share them equally"
            )
        self._world, self._questions, self._rules = world, questions, rules
        self._player, self.rollout, self._judge = player, rollout, judge
        self._evaluated, self._measure, self._seed = evaluated, measure, seed
        self._evaluated_world = evaluated_world or world
        self._own: Partitioner | None = None
        if partitioner is not None and partitioner.mesh.size > 1:
            self._own = own_part(partitioner)
            self._own_policy = OwnCopy(partitioner, self._own)
            self._own_judge = OwnCopy(partitioner, self._own)
        self._orders: dict[int, list[int]] = {}
        self._lanes = self._first_lanes()

    @property
    def _shared(self) -> range:
        """The numbers of this process's environments, among those of all processes."""
        each = self.rollout.environments // jax.process_count()
        return range(each * jax.process_index(), each * (jax.process_index() + 1))

    def collect(
        self,
        params: Params,
        batch: Any,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """See `Collector`; the batch is ignored, as the environments choose the questions."""
        steps, first = self.rollout.steps, self._shared.start

        def after(number: int, lane: Lane) -> Lane:
            return self._begin(first + number, lane.number + 1)

        policy, judge = self._acting(params)
        played = self._play(
            policy, self._world, self._lanes, key, interrupted, after=after, room=steps, first=first
        )
        if played is None:
            return None
        rows = len(self._lanes) * (steps + 1)
        collected = self._collected(judge, played, rows, self._questions, _Place(first, steps + 1))
        self._lanes = [lane for lane in played.lanes if lane is not None]
        return collected

    def rehearse(
        self,
        params: Params,
        batch: Any,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """See `Collector`; the batch has `questions`: indices in `evaluated`, -1 for padding."""
        numbers = [int(n) for n in np.asarray(batch["questions"]) if n >= 0]
        given = self._player.answers - 1  # pretend that these were given: one answer is enough here
        lanes = [
            dataclasses.replace(self._lane(self._evaluated[n], n, 0, "evaluation"), given=given)
            for n in numbers
        ]
        policy, judge = self._acting(params)
        first = jax.process_index() * len(batch["questions"])
        played = self._play(
            policy, self._evaluated_world, lanes, key, interrupted, after=_nothing, first=first
        )
        if played is None:
            return None
        # All processes have as many rows, and so has each of their copies of the model.
        copies = 1 if self._own is None else self._own.mesh.shape["data"]
        most = max(gather_json(sum(map(self._rows_of, played.turns))))
        rows = copies << max(-(-most // copies) - 1, 0).bit_length()
        place = _Place(first, rows, given)
        return self._collected(judge, played, rows, self._evaluated, place)

    def room(self) -> dict[str, Any]:
        """This process's arrays of an empty rollout, to compile ahead of time."""
        rows = len(self._shared) * (self.rollout.steps + 1)
        return to_batch(self._room(rows))

    def environments(self) -> Any:
        """See `Collector`."""
        of_processes = gather_json([lane.to_json() for lane in self._lanes])
        return list(itertools.chain.from_iterable(of_processes))

    def resume(self, environments: Any) -> None:
        """See `Collector`.

        Raises:
          ValueError: the number of environments is not that of this run.
        """
        if environments is None:
            self._lanes = self._first_lanes()
            return
        if len(environments) != self.rollout.environments:
            raise ValueError(
                f"the checkpoint has {len(environments)} environments, but this run has "
                f"{self.rollout.environments}: set Rollout.environments to that"
            )
        self._lanes = [Lane.from_json(environments[number]) for number in self._shared]

    def _first_lanes(self) -> list[Lane]:
        return [self._begin(number, 0) for number in self._shared]

    def _acting(self, params: Params) -> tuple[Params, Params]:
        """The policy and the reward model, on this process's devices."""
        policy, judge = _policy(params), params[REWARD_MODEL]
        if self._own is None:
            return policy, judge
        of_policy = self._player.transformer.logical_axes(frozen_layers(policy))
        of_judge = self._judge.transformer.logical_axes()
        of_judge = {**of_judge, HEADS: RewardModel(self._judge.transformer).heads_axes()}
        return self._own_policy(policy, of_policy), self._own_judge(judge, of_judge)

    def _on_own_devices(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._own is None else self._own.activate()

    def _play(
        self,
        policy: Params,
        world: World,
        lanes: Sequence[Lane],
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
        **how: Any,
    ) -> Played | None:
        polls = Polls(interrupted, jax.process_count() > 1)
        with self._on_own_devices():
            played = self._player.play(
                policy, world, lanes, _on_host(key), interrupted=polls, **how
            )
        return None if played is None or polls.last() else played

    def _begin(self, lane: int, number: int) -> Lane:
        """Episode `number` of an environment."""
        place = lane + number * self.rollout.environments
        epoch, index = divmod(place, len(self._questions))
        if epoch not in self._orders:
            order = list(range(len(self._questions)))
            random.Random(f"{self._seed}:{epoch}").shuffle(order)
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: order}
        question = self._orders[epoch][index]
        return self._lane(self._questions[question], question, number, f"{self._seed}:{place}")

    def _lane(self, asked: Asked, question: int, number: int, seed: str) -> Lane:
        state = reset(
            asked.question,
            self._rules,
            reference_answer=asked.reference_answer,
            seed=random.Random(seed).randrange(1 << 31),
        )
        return Lane(state, question, number)

    def _rows_of(self, turns: Sequence[Turn]) -> int:
        return sum(-(-len(turn.written.tokens) // self.rollout.chunk) for turn in turns)

    def _collected(
        self,
        judge: Params,
        played: Played,
        rows: int,
        questions: Sequence[Asked],
        place: "_Place",
    ) -> Collected:
        ended = [turn for turns in played.turns for turn in turns if turn.ends]
        answered = [turn for turn in ended if turn.after.answer]
        with self._on_own_devices():
            found = self._judge.scores(judge, [turn.after for turn in answered])
        scores = dict(zip(map(id, answered), found, strict=True))
        rewards = {
            id(turn): scores.get(id(turn), self._rules.score_without_answer) for turn in ended
        }
        experience = self._experience(played, rows, rewards, place)
        totals = summed(gather_json(self._totals(played, rewards, questions, place.given)))
        return Collected(to_batch(experience), totals)

    def _experience(
        self, played: Played, rows: int, rewards: Mapping[int, float], place: "_Place"
    ) -> Experience:
        settings, chunk = self._player.settings, self.rollout.chunk
        vocabulary = self._judge.vocabulary
        out = self._room(rows)
        row = 0
        for number, (turns, lane) in enumerate(zip(played.turns, played.lanes, strict=True)):
            episode, step, before = (place.first + number) * place.most - 1, 0, None
            for turn in turns:
                of = turn.number, turn.extra if turn.before.phase == "answering" else place.given
                if of != before:
                    # The episode's own answer continues it; each further one stands alone.
                    step, episode, before = 0, episode + 1, of
                tokens, written = turn.written.tokens, turn.written
                for start in range(0, len(tokens), chunk):
                    piece = tokens[start : start + chunk]
                    prefix = [*written.prompt, *tokens[:start]]
                    last = start + chunk >= len(tokens)
                    out.tokens[row, : len(prefix) + len(piece)] = [*prefix, *piece]
                    out.prompt_lengths[row] = len(prefix)
                    out.response_lengths[row] = len(piece)
                    out.log_probs[row, : len(piece)] = written.log_probs[start : start + chunk]
                    if out.allowed is not None and written.allowed is not None:
                        out.allowed[row, : len(piece)] = written.allowed[start : start + chunk]
                    out.episode[row], out.step[row], out.weights[row] = episode, step, 1
                    out.extra[row] = turn.extra > place.given
                    if last and turn.ends:
                        out.ends[row] = 1
                        out.rewards[row, len(piece) - 1] = rewards[id(turn)]
                    row, step = row + 1, step + 1
            if turns and not turns[-1].ends and lane is not None:
                prompt = encode_state(vocabulary, lane.state, settings.prompt_tokens)
                out.tokens[row, : len(prompt)] = prompt
                out.prompt_lengths[row], out.episode[row], out.step[row] = (
                    len(prompt),
                    episode,
                    step,
                )
                row += 1
        return out

    def _room(self, rows: int) -> Experience:
        settings, vocabulary = self._player.settings, self._judge.vocabulary
        return nothing(
            rows,
            settings.prompt_tokens + settings.sampling.max_tokens,
            self.rollout.chunk,
            vocabulary.pad_id,
            vocabulary.size if self._player.keeps_allowed else None,
        )

    def _totals(
        self,
        played: Played,
        rewards: Mapping[int, float],
        questions: Sequence[Asked],
        given: int,
    ) -> dict[str, tuple[float, float]]:
        """Metrics of the finished episodes, and of the actions in all episodes, from the host."""
        totals: dict[str, list[float]] = {}

        def add(name: str, value: float) -> None:
            total = totals.setdefault(f"episodes/{name}", [0.0, 0.0])
            total[0] += value
            total[1] += 1

        for turn in (turn for turns in played.turns for turn in turns):
            if turn.before.phase == "browsing":
                add("invalid", turn.invalid is not None)
            if not turn.ends:
                continue
            if turn.extra > given:
                add("extra_score", rewards[id(turn)])
                continue
            add("score", rewards[id(turn)])
            add("answered", bool(turn.after.answer))
            add("actions", len(turn.after.actions))
            add("references", len(turn.after.references))
            if self._measure is not None:
                for name, value in self._measure(questions[turn.question], turn.after).items():
                    add(name, value)
        return {name: (total, weight) for name, (total, weight) in totals.items()}


def _policy(params: Params) -> Params:
    return {name: part for name, part in params.items() if name not in BESIDE_THE_POLICY}


class _Place(NamedTuple):
    """Where a process's episodes are among those of all.

    Attributes:
      first: number of its first environment.
      most: maximum number of rows, and so of episodes, in an environment.
      given: number of answers of an episode before the one that continues it.
    """

    first: int
    most: int
    given: int = 0


def _nothing(number: int, lane: Lane) -> None:
    """What follows an evaluated episode."""


def _on_host(key: Key[Array, ""]) -> Key[Array, ""]:
    """A key that is on no device of another process."""
    data = jnp.asarray(np.asarray(jax.random.key_data(key)))
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(key))

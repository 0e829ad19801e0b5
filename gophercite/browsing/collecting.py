"""Experience of browsing, for PPO: environments that persist across rollouts (WebGPT, 3.2, E).

A text of more than `chunk` tokens is split into several completions, each of which follows what was
written before it; this costs no action. At the end of a rollout, an unfinished episode gets a row
without a response, whose value stands for the rest of the episode.
"""

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from gophercite.browser.encoding import PREFIX_TOKENS, encode_state
from gophercite.browser.environment import reset
from gophercite.browser.settings import Settings
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.browsing.playing import Lane, Played, Player, Turn
from gophercite.decoding.rerank import Scorer
from gophercite.learning.experience import Experience, nothing, to_batch
from gophercite.learning.state import Collected
from gophercite.model_folders.folder import Model
from gophercite.models.parameters import BESIDE_THE_POLICY, REWARD_MODEL, Params
from gophercite.models.transformer import Transformer
from gophercite.records import Extract, LongAnswer
from gophercite.vocabularies import Vocabulary

_WIDTHS = 128  # judged texts are padded to a multiple of this, so that few programs are compiled


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
      environments: number of environments that are played at once.
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


@dataclasses.dataclass(frozen=True)
class Judge:
    """A reward model, whose parameters are the entry `reward_model`.

    Attributes:
      transformer: its trunk.
      vocabulary: its tokenizer.
      prefix_tokens: maximum tokens of question and references, as in its training.
      batch_size: number of answers per batch.
    """

    transformer: Transformer
    vocabulary: Vocabulary
    prefix_tokens: int = PREFIX_TOKENS
    batch_size: int = 16

    def scores(self, params: Params, states: Sequence[State]) -> list[float]:
        """Returns the score of each answered episode."""
        if not states:
            return []
        model = Model(self.transformer, params, self.vocabulary, {})
        scorer = Scorer(model, self.batch_size, self.prefix_tokens, _WIDTHS)
        return list(scorer.score_each([judged(state) for state in states]).reward)


def judged(state: State) -> tuple[str, LongAnswer]:
    """What a reward model reads of an answered episode: question, and answer with references."""
    references = tuple(
        Extract(each.title, each.extract, each.domain, each.url or None)
        for each in state.references
    )
    return state.question, LongAnswer(state.answer or "", references)


class BrowsingCollector:
    """A `gophercite.learning.state.Collector`.

    Question n of the run, counted over all environments, is drawn from (seed, n) alone. Each
    question is drawn once per epoch, and each epoch has its own order.

    Args:
      world: the world that is browsed.
      questions: training questions; not those of demonstrations and comparisons.
      rules: rules of the episodes.
      player: plays with the policy.
      rollout: how much to collect.
      judge: scores answers.
      evaluated: questions for evaluation; evaluation batches refer to them by index.
      evaluated_world: the world in which these are browsed; `world` when None.
      measure: further metrics of a finished episode, such as whether the answer is true.
      seed: seed for the order of questions, and for the episodes' numbers of actions.

    Raises:
      ValueError: there are no questions, the longest text does not fit a rollout, or the sampling
        settings differ from the policy's own distribution.
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
        if jax.process_count() > 1:
            raise ValueError(
                "collecting from environments works in a single process only: start just one"
            )
        self._world, self._questions, self._rules = world, questions, rules
        self._player, self._rollout, self._judge = player, rollout, judge
        self._evaluated, self._measure, self._seed = evaluated, measure, seed
        self._evaluated_world = evaluated_world or world
        self._lanes = self._first_lanes()
        self._orders: dict[int, list[int]] = {}

    def collect(
        self,
        params: Params,
        batch: Any,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """See `Collector`; the batch is ignored, as the environments choose the questions."""
        count = self._rollout.environments

        def after(number: int, lane: Lane) -> Lane:
            return self._begin(number, lane.number + 1)

        played = self._player.play(
            _policy(params),
            self._world,
            self._lanes,
            key,
            after=after,
            room=self._rollout.steps,
            interrupted=interrupted,
        )
        if played is None:
            return None
        collected = self._collected(
            params, played, count * (self._rollout.steps + 1), self._questions
        )
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
        played = self._player.play(
            _policy(params),
            self._evaluated_world,
            lanes,
            key,
            after=lambda number, lane: None,
            interrupted=interrupted,
        )
        if played is None:
            return None
        rows = 1 << (sum(map(self._rows_of, played.turns)) - 1).bit_length()
        return self._collected(params, played, rows, self._evaluated, first=given)

    def room(self) -> dict[str, Any]:
        """The arrays of an empty rollout, to compile ahead of time."""
        rows = self._rollout.environments * (self._rollout.steps + 1)
        return to_batch(self._room(rows, self._player.settings.constrained))

    def environments(self) -> Any:
        """See `Collector`."""
        return [lane.to_json() for lane in self._lanes]

    def resume(self, environments: Any) -> None:
        """See `Collector`.

        Raises:
          ValueError: the number of environments is not that of this run.
        """
        if environments is None:
            self._lanes = self._first_lanes()
            return
        if len(environments) != self._rollout.environments:
            raise ValueError(
                f"the checkpoint has {len(environments)} environments, but this run has "
                f"{self._rollout.environments}: set Rollout.environments to that"
            )
        self._lanes = [Lane.from_json(value) for value in environments]

    def _first_lanes(self) -> list[Lane]:
        self._orders = {}
        return [self._begin(number, 0) for number in range(self._rollout.environments)]

    def _begin(self, lane: int, number: int) -> Lane:
        """Episode `number` of an environment."""
        place = lane + number * self._rollout.environments
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
        return sum(-(-len(turn.written.tokens) // self._rollout.chunk) for turn in turns)

    def _collected(
        self,
        params: Params,
        played: Played,
        rows: int,
        questions: Sequence[Asked],
        first: int = 0,
    ) -> Collected:
        ended = [turn for turns in played.turns for turn in turns if turn.ends]
        answered = [turn for turn in ended if turn.after.answer]
        found = self._judge.scores(params[REWARD_MODEL], [turn.after for turn in answered])
        scores = dict(zip(map(id, answered), found, strict=True))
        rewards = {
            id(turn): scores.get(id(turn), self._rules.score_without_answer) for turn in ended
        }
        experience = self._experience(played, rows, rewards, first)
        totals = self._totals(played, rewards, questions, first)
        return Collected(to_batch(experience), totals)

    def _experience(
        self, played: Played, rows: int, rewards: Mapping[int, float], first: int
    ) -> Experience:
        settings, chunk = self._player.settings, self._rollout.chunk
        vocabulary = self._judge.vocabulary
        keeps = any(turn.written.allowed is not None for turns in played.turns for turn in turns)
        out = self._room(rows, keeps)
        row, episode = 0, -1
        for turns, lane in zip(played.turns, played.lanes, strict=True):
            step, before = 0, None
            for turn in turns:
                of = turn.number, turn.extra if turn.before.phase == "answering" else first
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
                    out.extra[row] = turn.extra > first
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

    def _room(self, rows: int, constrained: bool) -> Experience:
        settings, vocabulary = self._player.settings, self._judge.vocabulary
        return nothing(
            rows,
            settings.prompt_tokens + settings.sampling.max_tokens,
            self._rollout.chunk,
            vocabulary.pad_id,
            vocabulary.size if constrained else None,
        )

    def _totals(
        self,
        played: Played,
        rewards: Mapping[int, float],
        questions: Sequence[Asked],
        first: int,
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
            if turn.extra > first:
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

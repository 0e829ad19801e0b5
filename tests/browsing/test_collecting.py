"""Experience of many environments: what the rows are, and that it goes on bit for bit."""

import dataclasses
import functools
import itertools
import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import replay
from gophercite.browser.settings import Settings
from gophercite.browsing.collecting import Asked, BrowsingCollector, Rollout
from gophercite.browsing.judging import Judge, judged
from gophercite.browsing.playing import Lane, Player
from gophercite.browsing.writer import BrowsingSettings
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.scoring import score
from gophercite.learning.experience import of_batch
from gophercite.learning.state import Collected
from gophercite.learning.token_log_probs import token_log_probs
from gophercite.model_folders.folder import Model, read_vocabulary
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    BESIDE_THE_POLICY,
    HEADS,
    REWARD_MODEL,
    Params,
    merge_layers,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.storage.json_fields import RecordError
from tests.browser.sites import site

VOCABULARY = read_vocabulary(
    pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model"
)
TRUNK = Transformer(
    TransformerConfig(
        vocab_size=2048, d_model=16, num_layers=2, num_heads=2, head_dim=8, dtype="float32"
    )
)
FROZEN_LAYERS = 1
QUESTIONS = [Asked(f"q{n}", f"lighthouse {n}?") for n in range(5)]
PROMPT, MOST, CHUNK, STEPS, ENVIRONMENTS = 192, 24, 8, 14, 6
FEW_STEPS = 8  # two collections have ends, further answers and chunks
NEVER = lambda: False  # noqa: E731
QUOTED = ["Search lighthouse", "Clicked on link 0", "Quote: was built"]
RULES = Settings(actions=(4, 6), view_lines=6, results=3)


@functools.cache
def parameters() -> Params:
    params = TRUNK.init(jax.random.key(0), FROZEN_LAYERS)
    judge = {**merge_layers(params), HEADS: RewardModel(TRUNK).init_heads(jax.random.key(1))}
    return {**params, REWARD_MODEL: judge, "value_head": {}, "teacher": {}}


@functools.cache
def policy() -> Params:
    """What texts are drawn with."""
    return {n: p for n, p in parameters().items() if n not in BESIDE_THE_POLICY}


@functools.cache
def player(constrained: bool = True, extra: int = 3) -> Player:
    sampling = SamplingSettings(max_tokens=MOST, free_log_probs=False)
    return Player(
        TRUNK,
        VOCABULARY,
        BrowsingSettings(constrained, PROMPT, sampling),
        together=ENVIRONMENTS // 2,
        answers=1 + extra,
        chunk=CHUNK,
        keep_allowed=constrained,
    )


class Begun(BrowsingCollector):
    """Two episodes in three have quoted something already: few random texts get so far."""

    def _lane(self, asked: Asked, question: int, number: int, seed: str) -> Lane:
        lane = super()._lane(asked, question, number, seed)
        if question % 3 == 2:
            return lane
        return dataclasses.replace(lane, state=replay(self._world, lane.state, QUOTED))


def collector(constrained: bool = True, steps: int = STEPS, **changes: Any) -> BrowsingCollector:
    return Begun(
        site(),
        QUESTIONS,
        RULES,
        player(constrained),
        Rollout(ENVIRONMENTS, steps, CHUNK, 3),
        Judge(TRUNK, VOCABULARY, PROMPT, 4),
        **{"evaluated": QUESTIONS[:3], **changes},
    )


def collect(of: BrowsingCollector, seed: int) -> Collected:
    made = of.collect(parameters(), {}, jax.random.key(seed), NEVER)
    assert made is not None
    return made


@functools.cache
def rollouts() -> tuple[list[Collected], list[Any]]:
    """Four in a row, and the environments before each of them and after the last."""
    of = collector()
    lanes, made = [of.environments()], []
    for seed in range(4):
        made.append(collect(of, seed))
        lanes.append(of.environments())
    return made, lanes


def test_rows_are_completions_and_their_ids_are_the_sampler_s() -> None:
    unembedding = TRUNK.unembedding(policy())
    read = jax.jit(lambda tokens, places, real: TRUNK.apply(policy(), tokens, places, real)[0])
    kinds = set()
    for made in rollouts()[0]:
        experience = of_batch(made.experience)
        assert experience.tokens.shape == (ENVIRONMENTS * (STEPS + 1), PROMPT + MOST)
        assert experience.rewards.shape[1] == CHUNK
        places = np.broadcast_to(np.arange(PROMPT + MOST), experience.tokens.shape)
        ends = experience.prompt_lengths + experience.response_lengths
        hidden = read(experience.tokens, places, (places < ends[:, None]).astype(np.int32))
        again = token_log_probs(
            experience.before(hidden),
            unembedding,
            experience.responses,
            experience.allowed,
            VOCABULARY.size,
        )
        real = np.asarray(experience.real)
        # Of the very tokens and masks that the sampler drew by.
        np.testing.assert_allclose(
            np.where(real, again.log_prob, 0), np.where(real, experience.log_probs, 0), atol=2e-3
        )
        assert np.all(np.asarray(experience.rewards)[~real] == 0)
        assert np.all(np.asarray(experience.log_probs)[real] <= 0)
        for episode in set(experience.episode.tolist()) - {-1}:
            rows = np.flatnonzero(experience.episode == episode)
            assert experience.step[rows].tolist() == list(range(len(rows)))
            counted = rows[np.asarray(experience.weights)[rows] > 0]
            assert len(counted) >= len(rows) - 1
            last = counted[-1]
            n = int(experience.response_lengths[last])
            over = bool(experience.ends[last])
            rewarded = np.argwhere(np.asarray(experience.rewards)[rows])
            if over:
                assert len(counted) == len(rows)
                assert rewarded.tolist() in ([[len(rows) - 1, n - 1]], [])
            else:  # a row that says how it goes on, without a token
                assert len(rewarded) == 0
                assert experience.response_lengths[rows[-1]] == 0
            kinds.add((over, bool(experience.extra[last]), len(rows) > 3))
            for row, following in itertools.pairwise(rows):
                end = int(experience.prompt_lengths[row]) + int(experience.response_lengths[row])
                if experience.tokens[row][end - 1] != VOCABULARY.eos_id and (
                    experience.step[following] > 0 and experience.response_lengths[row] == CHUNK
                    and experience.prompt_lengths[following] == end
                ):  # fmt: skip
                    kinds.add("chunks")
                    whole = experience.tokens[following][:end]
                    np.testing.assert_array_equal(whole, experience.tokens[row][:end])
    assert {(True, True, False), (True, False, True), (False, False, True), "chunks"} <= kinds


def test_scores_are_the_reward_model_s_and_totals_those_of_the_rows() -> None:
    made, lanes = rollouts()
    answers = scored = 0
    for each in made:
        experience = of_batch(each.experience)
        own = np.asarray(experience.ends) * (1 - np.asarray(experience.extra))
        total, count = each.totals["episodes/score"]
        assert count == own.sum()
        np.testing.assert_allclose(
            total, (own * np.asarray(experience.rewards).sum(axis=1)).sum(), rtol=1e-5
        )
        assert each.totals["episodes/invalid"][0] == 0
        answers += each.totals["episodes/answered"][0]
        scored += (np.asarray(experience.rewards) == RULES.score_without_answer).sum()
    assert answers > 3
    assert scored > 0
    assert lanes[0] != lanes[1]
    assert {lane["number"] for lane in lanes[-1]} - {0}


def test_it_goes_on_bit_for_bit_and_an_interruption_changes_nothing() -> None:
    made, lanes = rollouts()
    again = collector()
    again.resume(json.loads(json.dumps(lanes[2])))
    stops = iter([False] * 5)
    asked = again.collect(parameters(), {}, jax.random.key(9), lambda: next(stops, True))
    assert asked is None
    assert json.dumps(again.environments()) == json.dumps(lanes[2])
    for place in (2, 3):
        found = collect(again, place)
        assert found.totals == made[place].totals
        for name, part in made[place].experience.items():
            np.testing.assert_array_equal(found.experience[name], part, name)
    again.resume(None)
    assert json.dumps(again.environments()) == json.dumps(lanes[0])
    with pytest.raises(ValueError, match="this run has 6"):
        again.resume(lanes[0][:2])
    with pytest.raises(RecordError, match="question, number"):
        again.resume([{}] * ENVIRONMENTS)


def test_the_reward_lies_on_the_answer_and_is_of_the_answer_as_text() -> None:
    """What the judge reads is what a record of the episode would give it."""
    lane = Lane(collector()._lane(QUESTIONS[0], 0, 0, "s").state, 0)
    shares: list[float] = []
    played = player(True).play(
        policy(), site(), [lane] * 6, jax.random.key(3), after=lambda n, lane: None,
        interrupted=lambda share: bool(shares.append(share)),  # type: ignore[func-returns-value]
    )  # fmt: skip
    assert played is not None
    assert shares == sorted(shares)
    assert shares[0] == 0 < shares[-1] < 1
    answered = [t for turns in played.turns for t in turns if t.after.answer]
    model = Model(TRUNK, parameters()[REWARD_MODEL], VOCABULARY, {})
    alone = Scorer(model, 1, PROMPT).score_each([judged(turn.after) for turn in answered]).reward
    together = Judge(TRUNK, VOCABULARY, PROMPT, 4).scores(
        parameters()[REWARD_MODEL], [turn.after for turn in answered]
    )
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-5)
    by_lane = [[turn.extra for turn in turns if turn.ends] for turns in played.turns]
    assert [0, 1, 2, 3] in by_lane, "further answers on the same references"
    for turns in played.turns:
        prompts = {t.written.prompt for t in turns if t.before.phase == "answering"}
        assert len(prompts) <= 1
        for turn in turns:
            prompt = encode_state(VOCABULARY, turn.before, PROMPT)
            assert list(turn.written.prompt) == prompt
            assert turn.invalid is None


def test_free_texts_have_the_model_s_own_log_probabilities() -> None:
    of = collector(constrained=False)
    made = collect(of, 0)
    experience = of_batch(made.experience)
    assert experience.allowed is None
    assert made.totals["episodes/invalid"][0] > 0
    rows = [row for row in range(60) if experience.response_lengths[row] == CHUNK][:3]
    for row in rows:
        start = int(experience.prompt_lengths[row])
        tokens = experience.tokens[row].tolist()
        found = score(
            TRUNK, policy(), [tokens[:start]], [[tokens[start : start + CHUNK]]], pad_id=0
        ).log_probs[0]
        # Ids to spare are never drawn; there are none here.
        np.testing.assert_allclose(found, experience.log_probs[row], atol=2e-3)


def test_an_evaluation_plays_whole_episodes_and_leaves_the_environments_alone() -> None:
    of = collector(measure=lambda asked, state: {"asked": float(asked.id == "q1")})
    before = of.environments()
    batch = {"questions": np.array([0, 1, 2, -1])}
    made = of.rehearse(parameters(), batch, jax.random.key(0), NEVER)
    assert made is not None
    assert of.environments() == before
    experience = of_batch(made.experience)
    assert made.totals["episodes/score"][1] == 3 == np.asarray(experience.ends).sum()
    assert made.totals["episodes/asked"] == (1.0, 3.0)
    assert not np.asarray(experience.extra).any()
    rows = len(experience.tokens)
    assert rows & (rows - 1) == 0
    again = of.rehearse(parameters(), batch, jax.random.key(0), NEVER)
    assert again is not None
    np.testing.assert_array_equal(again.experience["tokens"], experience.tokens)


def test_each_question_is_asked_once_an_epoch() -> None:
    of = collector()
    asked = [of._begin(n % ENVIRONMENTS, n // ENVIRONMENTS).question for n in range(20)]
    for epoch in range(4):
        assert sorted(asked[5 * epoch : 5 * epoch + 5]) == list(range(5))
    limits = {of._begin(n % ENVIRONMENTS, n // ENVIRONMENTS).state.limit for n in range(20)}
    assert limits == {4, 5, 6}


def test_what_can_t_be_learnt_from_is_refused() -> None:
    with pytest.raises(ValueError, match="no questions"):
        BrowsingCollector(site(), [], RULES, player(), Rollout(6, 14, 8), Judge(TRUNK, VOCABULARY))
    with pytest.raises(ValueError, match="the longest text is 3 rows"):
        BrowsingCollector(
            site(), QUESTIONS, RULES, player(), Rollout(6, 2, 8), Judge(TRUNK, VOCABULARY)
        )
    for name in ("environments", "steps", "chunk"):
        with pytest.raises(ValueError, match=f"Rollout.{name} = 0"):
            Rollout(**{name: 0})

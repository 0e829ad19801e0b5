"""Experience of many environments: what the rows are, that it goes on bit for bit, and that two
processes share the environments of one: the same episodes, rows, metrics and checkpoints.
"""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import page_of
from gophercite.browsing.collecting import BrowsingCollector, Rollout
from gophercite.browsing.judging import Judge, judged
from gophercite.browsing.own_copy import own_part
from gophercite.browsing.playing import Lane
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.scoring import score
from gophercite.learning.experience import Experience, of_batch
from gophercite.learning.state import Collected
from gophercite.learning.token_log_probs import TokenLogProbs, token_log_probs
from gophercite.model_folders.folder import Model
from gophercite.models.parameters import REWARD_MODEL
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.storage.json_fields import RecordError
from tests.browser.sites import site
from tests.browsing.tiny import (
    CHUNK,
    ENVIRONMENTS,
    FEW_STEPS,
    MOST,
    NEVER,
    PROMPT,
    QUESTIONS,
    RULES,
    STEPS,
    TRUNK,
    VOCABULARY,
    axes,
    collect,
    collector,
    parameters,
    player,
    policy,
)
from tests.long_forms import LONG

SCRIPT = pathlib.Path(__file__).with_name("share_environments.py")
PATIENCE = 600  # seconds, on the slowest of machines


@functools.cache
def free() -> Collected:
    """What is collected without a constraint."""
    return collect(collector(constrained=False), 0)


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
    @jax.jit
    def read(experience: Experience, places: jax.Array, real: jax.Array) -> TokenLogProbs:
        hidden = TRUNK.apply(policy(), experience.tokens, places, real)[0]
        return token_log_probs(
            experience.before(hidden),
            TRUNK.unembedding(policy()),
            experience.responses,
            experience.allowed,
            VOCABULARY.size,
        )

    kinds = set()
    for made in rollouts()[0]:
        experience = of_batch(made.experience)
        assert experience.tokens.shape == (ENVIRONMENTS * (STEPS + 1), PROMPT + MOST)
        assert experience.rewards.shape[1] == CHUNK
        places = np.broadcast_to(np.arange(PROMPT + MOST), experience.tokens.shape)
        ends = experience.prompt_lengths + experience.response_lengths
        again = read(experience, places, (places < ends[:, None]).astype(np.int32))
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
    made = free()
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


# --- processes that share the environments ---


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, np.ndarray], Any]]:
    """What each of two processes collected: arrays by name, and the rest as JSON."""
    folder = tmp_path_factory.mktemp("shares")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
    pair = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "2", str(port)],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert pair.returncode == 0, pair.stderr
    found = []
    for index in (0, 1):
        with np.load(folder / f"{index}.npz") as file:
            arrays = {name: file[name] for name in file.files}
        found.append((arrays, json.loads(str(arrays.pop("said")))))
    return found


@functools.cache
def alone() -> tuple[list[Collected], Any]:
    """What one process on one device collects in two goes, and the environments after them."""
    of = collector(steps=FEW_STEPS)
    made = [collect(of, seed) for seed in range(2)]
    experience = [each.experience for each in made]
    assert sum(part["extra"].sum() for part in experience) > 3, "further answers"
    assert sum(part["ends"].sum() for part in experience) > 6, "episodes begin and end"
    return made, of.environments()


def in_order(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of episodes in their order, without those that only fill the batch."""
    order = np.lexsort((rows["step"], rows["episode"]))
    order = order[rows["episode"][order] >= 0]
    return {name: part[order] for name, part in rows.items() if name != "episode"}


def together(shares: list[Any], kind: str) -> dict[str, np.ndarray]:
    """The rows of both processes, as they are put on the devices."""
    names = [name for name in shares[0][0] if name.startswith(f"{kind}/")]
    arrays = {name: np.concatenate([arrays[name] for arrays, _ in shares]) for name in names}
    return {name.removeprefix(f"{kind}/"): part for name, part in arrays.items()}


def same(rows: dict[str, np.ndarray], whole: dict[str, np.ndarray]) -> None:
    ours, theirs = in_order(rows), in_order(whole)
    assert set(ours) == set(theirs)
    for name, part in theirs.items():
        np.testing.assert_allclose(ours[name], part, atol=1e-4, err_msg=name)


def totals_are(found: dict[str, Any], whole: dict[str, Any]) -> None:
    assert set(found) == set(whole)
    for name, value in whole.items():
        assert found[name] == pytest.approx(list(value), rel=1e-4), name


def test_two_processes_collect_what_one_does(shares: list[Any]) -> None:
    made, lanes = alone()
    for number in range(2):
        rows = together(shares, str(number))
        same(rows, dict(made[number].experience))
        # The learner's order of rows must not depend on who collected them.
        assert len(rows["tokens"]) == len(made[number].experience["tokens"])
        for _, said in shares:
            totals_are(said[number], made[number].totals)
    for _, said in shares:
        assert said[-2] == json.loads(json.dumps(lanes))
        assert said[-1] == said[-2], "a checkpoint of both, restored by both"


def test_they_evaluate_what_one_does_and_stop_together(shares: list[Any]) -> None:
    batch = {"questions": np.array([0, 1, 2, -1])}
    of = collector()
    whole = of.rehearse(parameters(), batch, jax.random.key(0), NEVER)
    assert whole is not None
    same(together(shares, "evaluated"), dict(whole.experience))
    for arrays, said in shares:
        totals_are(said[2], whole.totals)
        assert said[3] is True, "stopped at the same question, and left the environments alone"
        assert "partitioner.model = 2: the devices of one process must hold" in said[4]
        assert said[5] == [64, 64], "they ask equally often, whatever they have played"
        # One process has no question, and as many rows as the other.
        assert len(arrays["evaluated/tokens"]) == len(shares[0][0]["evaluated/tokens"])


def test_several_devices_of_a_process_collect_what_one_does() -> None:
    partitioner = Partitioner(make_mesh(fsdp=2, model=2, devices=jax.devices()[:4]))
    assert dict(own_part(partitioner).mesh.shape) == {"data": 2, "fsdp": 1, "model": 2}
    params = jax.device_put(parameters(), partitioner.shardings(axes(), parameters()))
    found = collector(constrained=False, partitioner=partitioner).collect(
        params, {}, jax.random.key(0), NEVER
    )
    assert found is not None
    same(dict(found.experience), dict(free().experience))
    totals_are(found.totals, dict(free().totals))


def test_tables_that_are_used_again_ask_for_no_other_program() -> None:
    """On several devices, where an array that has been put on all of them is of another kind."""
    constraint = player()._browse.constraint
    assert constraint is not None
    state = collector()._lane(QUESTIONS[0], 0, 0, "s").state
    graph = constraint.graph(page_of(site(), state), state)
    moved = dataclasses.replace(graph, start=graph.start + 1)
    with Partitioner(make_mesh(fsdp=2, devices=jax.devices()[:2])).activate():
        before, after = constraint.tables([graph]), constraint.tables([moved])
    assert after.first.tolist() == [before.first.item() + 1]
    assert after.token is before.token
    assert after.first.sharding == before.first.sharding


@LONG  # with a constraint, which tests of decoding and quoting have on several devices, too
def test_eight_devices_collect_what_one_does() -> None:
    made, _ = alone()
    partitioner = Partitioner(make_mesh(fsdp=4, model=2))
    assert dict(own_part(partitioner).mesh.shape) == {"data": 4, "fsdp": 1, "model": 2}
    params = jax.device_put(parameters(), partitioner.shardings(axes(), parameters()))
    of = collector(steps=FEW_STEPS, partitioner=partitioner)
    for number in range(2):
        found = of.collect(params, {}, jax.random.key(number), NEVER)
        assert isinstance(found, Collected)
        same(dict(found.experience), dict(made[number].experience))
        totals_are(found.totals, dict(made[number].totals))

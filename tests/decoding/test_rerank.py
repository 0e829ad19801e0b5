"""Samples in turn are the sampler's own, and scores do not depend on what is scored beside them."""

import dataclasses
import functools
import pathlib

import jax
import numpy as np
import pytest

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.rerank import Scorer, sample_in_turn
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evidence import Evidence
from gophercite.model_folders.folder import Model
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.prompts import encode_judged
from gophercite.vocabularies import load_vocabulary
from tests.drawn_parameters import drawn_heads, drawn_parameters
from tests.long_forms import IS_LONG, LONG

VOCABULARY = (
    pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model" / "vocabulary"
)
CONFIG = TransformerConfig(
    vocab_size=2048, d_model=16, num_layers=1, num_heads=2, head_dim=8, dtype="float32",
    scan_layers=False,
)  # fmt: skip
SETTINGS = SamplingSettings(max_tokens=8)
QUESTION = "When was the mill built?"
ANSWERS = [
    (Evidence("1812", "The mill", "It was built in 1812."),),
    "In 1812, they say.",
    (Evidence("1874", "The mill", "It burned down in the summer of 1874, and nobody knows why."),),
    (Evidence("1812", "The mill", "It was built in 1812."),),
    (Evidence("Yes", "The mill", "Grain"), Evidence("No", "The mill", "Flour")),
]


@functools.cache
def model(with_heads: bool = False) -> Model:
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    if with_heads:
        params = {**params, HEADS: drawn_heads(RewardModel(transformer), 1)}
    return Model(transformer, params, load_vocabulary(VOCABULARY), {})


def test_samples_go_round_the_prompts() -> None:
    prompts = [[5, 6, 7], [8, 9]]
    key = jax.random.key(3)
    (found,) = sample_in_turn(model(), [prompts], 5, key[None], SETTINGS)
    assert [candidate.prompt for candidate in found] == [0, 1, 0, 1, 0]
    vocabulary = model().vocabulary
    drawn = sample(
        model().transformer, model().params, prompts, key, SETTINGS, samples_per_prompt=3,
        eos_id=vocabulary.eos_id, pad_id=vocabulary.pad_id, vocabulary_size=vocabulary.size,
    )  # fmt: skip
    assert drawn.log_probs is not None
    for candidate, row in zip(found, (0, 3, 1, 4, 2), strict=True):
        tokens = drawn.tokens[row, : drawn.lengths[row]].tolist()
        assert list(candidate.tokens) == tokens
        assert candidate.text == vocabulary.decode(tokens)
        assert candidate.log_prob == pytest.approx(drawn.log_probs[row].sum(), rel=1e-5)
        assert candidate.mean_log_prob == pytest.approx(candidate.log_prob / len(tokens))
        assert candidate.constrained_log_prob is None


def test_samples_do_not_depend_on_how_many_are_in_flight() -> None:
    """One at a time; how others share them out is tested in test_in_flight.py."""
    prompts = [[5, 6, 7], [8, 9]]
    key = jax.random.key(3)[None]
    (together,) = sample_in_turn(model(), [prompts], 5, key, SETTINGS)
    for at_a_time in (1, 4) if IS_LONG else (1,):
        (few,) = sample_in_turn(model(), [prompts], 5, key, SETTINGS, max_num_seqs=at_a_time)
        assert [candidate.tokens for candidate in few] == [each.tokens for each in together]
        for one, other in zip(few, together, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
    with pytest.raises(ValueError, match="max_num_seqs = 0: must be at least 1"):
        sample_in_turn(model(), [prompts], 5, key, SETTINGS, max_num_seqs=0)


# Fewer than there are prompts, as many, and a number that leaves them unequal.
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=LONG), 5])
def test_a_question_s_samples_do_not_depend_on_those_beside_it(count: int) -> None:
    questions = [[[5, 6, 7], [8, 9]], [[10], [11, 12, 13, 14]], [[15, 16], [17]]]
    keys = jax.vmap(jax.random.key)(np.arange(3))
    together = sample_in_turn(model(), questions, count, keys, SETTINGS)
    assert [len(candidates) for candidates in together] == [count] * 3
    for number, prompts in enumerate(questions):
        (alone,) = sample_in_turn(model(), [prompts], count, keys[number, None], SETTINGS)
        for one, other in zip(together[number], alone, strict=True):
            assert one.prompt == other.prompt
            assert one.tokens == other.tokens
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_few_programs_serve_all_numbers_of_questions() -> None:
    keys = jax.vmap(jax.random.key)(np.arange(4))
    questions = [[[number + 5]] for number in range(4)]
    sample_in_turn(model(), questions[:3], 1, keys[:3], SETTINGS)
    before = decode._cache_size()
    sample_in_turn(model(), questions, 1, keys, SETTINGS)
    sample_in_turn(model(), questions[:1], 1, keys[:1], SETTINGS, batch_size=4)
    assert decode._cache_size() == before
    with pytest.raises(ValueError, match="batch_size = 3: is too small for 4 questions"):
        sample_in_turn(model(), questions, 1, keys, SETTINGS, batch_size=3)


@pytest.mark.parametrize("questions", [[], [[]], [[[5]], [[6], [7]]]])
def test_questions_need_as_many_prompts(questions: list[list[list[int]]]) -> None:
    keys = jax.vmap(jax.random.key)(np.arange(len(questions)))
    with pytest.raises(ValueError, match="the same number of prompts"):
        sample_in_turn(model(), questions, 3, keys, SETTINGS)


def test_without_likelihoods_there_is_nothing_to_compare() -> None:
    settings = SamplingSettings(max_tokens=8, free_log_probs=False)
    with pytest.raises(ValueError, match="free_log_probs=False"):
        sample_in_turn(model(), [[[5]]], 1, jax.random.key(0)[None], settings)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        sample_in_turn(model(), [[[]]], 1, jax.random.key(0)[None], SETTINGS)


def test_scores_are_those_of_each_response_alone() -> None:
    judge = jax.jit(RewardModel(model(True).transformer).judge)
    found = Scorer(model(True), batch_size=2).score(QUESTION, ANSWERS)
    for number, answer in enumerate(ANSWERS):
        ids = encode_judged(model().vocabulary, QUESTION, answer)
        tokens = np.zeros((1, 64), np.int32)
        tokens[0, : len(ids)] = ids
        verdict = judge(model(True).params, tokens, np.array([len(ids)]))
        assert found.reward[number] == pytest.approx(float(verdict.reward[0]), abs=1e-5)
        both = 1 / (1 + np.exp(-float(verdict.supported_and_plausible[0])))
        assert found.supported_and_plausible[number] == pytest.approx(both, abs=1e-5)
    assert found.reward[0] == found.reward[3] != found.reward[2]


def test_padding_does_not_exceed_the_learned_positions() -> None:
    longest = max(len(encode_judged(model().vocabulary, QUESTION, each)) for each in ANSWERS)
    assert longest % 64
    config = dataclasses.replace(CONFIG, position="learned", max_positions=longest)
    transformer = Transformer(config)
    judge = RewardModel(transformer)
    params = {**drawn_parameters(transformer), HEADS: drawn_heads(judge, 1)}
    learned = Model(transformer, params, model().vocabulary, {})
    assert np.isfinite(Scorer(learned).score(QUESTION, ANSWERS).reward).all()


def test_no_responses_have_no_scores() -> None:
    found = Scorer(model(True)).score(QUESTION, [])
    assert found.reward.shape == found.supported_and_plausible.shape == (0,)
    with pytest.raises(ValueError, match="batch_size = 0"):
        Scorer(model(True), batch_size=0)

"""Environments of a small model of random weights, and what collects experience in them."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax

from gophercite.browser.environment import replay
from gophercite.browser.settings import Settings
from gophercite.browsing.collecting import Asked, BrowsingCollector, Rollout
from gophercite.browsing.judging import Judge
from gophercite.browsing.playing import Lane, Player
from gophercite.browsing.writer import BrowsingSettings
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.learning.state import Collected
from gophercite.model_folders.folder import read_vocabulary
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    BESIDE_THE_POLICY,
    HEADS,
    REWARD_MODEL,
    Axes,
    Params,
    split_layers,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from tests.browser.sites import site
from tests.drawn_parameters import drawn_heads, drawn_parameters

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
    params = drawn_parameters(TRUNK)
    judge = {**params, HEADS: drawn_heads(RewardModel(TRUNK), 1)}
    policy = jax.jit(split_layers, static_argnums=1)(params, FROZEN_LAYERS)
    return {**policy, REWARD_MODEL: judge, "value_head": {}, "teacher": {}}


def axes() -> Axes:
    """Those of the parameters."""
    judge = {**TRUNK.logical_axes(), HEADS: RewardModel(TRUNK).heads_axes()}
    policy = TRUNK.logical_axes(FROZEN_LAYERS)
    return {**policy, REWARD_MODEL: judge, "value_head": {}, "teacher": {}}


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

"""Settings that would train nothing, or the wrong way, are refused where they are made, by name."""

import math
import re
from typing import Any

import pytest

from gophercite.learning import schedules
from gophercite.learning.optimizers import adafactor, adam
from gophercite.learning.reward import RewardLearner
from gophercite.learning.rollouts import Rewards
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.lora import LoRA
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from tests.learning import test_a2c, test_ppo

MODEL = Transformer(test_ppo.CONFIG)


def supervised(**settings: Any) -> SupervisedLearner:
    return SupervisedLearner(MODEL, adam(), schedules.constant(1.0), **settings)


def reward(**settings: Any) -> RewardLearner:
    return RewardLearner(MODEL, adam(), schedules.constant(1.0), **settings)


def rewards(**settings: Any) -> Rewards:
    return Rewards(RewardModel(MODEL), **settings)


def adapted(**settings: Any) -> Transformer:
    return Transformer(test_ppo.CONFIG, LoRA(**settings))


NO_COUNT = (0, -1, 2.0, True, math.nan)
NO_WEIGHT = (-0.1, math.nan, math.inf)
NO_SCALE = (0.0, *NO_WEIGHT)
NO_DECAY = (1.0, *NO_WEIGHT)


@pytest.mark.parametrize(
    ("make", "setting", "wrong"),
    [
        (supervised, "microbatches", NO_COUNT),
        (supervised, "max_grad_norm", (0, -1.0, math.nan, math.inf)),
        (supervised, "ema_decay", (1, -0.1, math.nan)),
        (supervised, "loss_chunk", NO_COUNT),
        (supervised, "z_loss", NO_WEIGHT),
        (reward, "centering", NO_WEIGHT),
        (reward, "auxiliary_weight", NO_DECAY),
        (rewards, "syntax_penalty", NO_WEIGHT),
        (test_a2c.learner, "kl_weight", (1.1, *NO_WEIGHT)),
        (test_a2c.learner, "value_weight", NO_WEIGHT),
        (test_a2c.learner, "value_scale", NO_SCALE),
        (test_a2c.learner, "value_width", NO_COUNT),
        (test_a2c.learner, "loss_chunk", NO_COUNT),
        (test_a2c.learner, "rollout_pieces", NO_COUNT),
        *((test_ppo.learner, name, NO_WEIGHT) for name in ("kl_reward", "value_weight")),
        *((test_ppo.learner, name, NO_SCALE) for name in ("clip", "value_scale")),
        *((test_ppo.learner, name, (1.1, *NO_WEIGHT)) for name in ("trace", "discount")),
        *(
            (test_ppo.learner, name, NO_COUNT)
            for name in ("minibatches", "epochs", "widths", "value_width", "loss_chunk")
        ),
        (test_ppo.learner, "trained_rows", (2.0, *NO_COUNT)),
        *((adam, name, NO_DECAY) for name in ("b1", "b2")),
        (adam, "eps", NO_SCALE),
        (adam, "weight_decay", NO_WEIGHT),
        (adafactor, "weight_decay", NO_WEIGHT),
        (adafactor, "decay_rate", (1.1, *NO_SCALE)),
        (adafactor, "clipping_threshold", (0.0, -1.0, math.nan, math.inf)),
        (adafactor, "min_dim_size_to_factor", (0, -1)),
        (adafactor, "epsilon", NO_SCALE),
        (schedules.constant, "learning_rate", (-1.0, math.nan, math.inf)),
        (adapted, "rank", (*NO_COUNT, test_ppo.CONFIG.d_model + 1)),
        (adapted, "alpha", (0, -1.0, math.nan, math.inf)),
        # As gin has them if they are written with quotation marks.
        (test_ppo.learner, "clip", ("0.2", None, True, 10**400)),
        (test_ppo.learner, "epochs", ("2", None)),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(make: Any, setting: str, wrong: Any) -> None:
    for value in wrong:
        with pytest.raises(ValueError, match=rf"{setting} = {re.escape(repr(value))}: must be "):
            make(**{setting: value})


def test_the_ends_of_a_range_that_mean_something_are_allowed() -> None:
    supervised(z_loss=0, loss_chunk=1, max_grad_norm=None, ema_decay=0)
    test_ppo.learner(kl_reward=0, value_weight=0, clip=1e-3, trace=0, discount=1, loss_chunk=None)
    adam(b1=0.0, weight_decay=0.0)
    adafactor(decay_rate=1.0, clipping_threshold=None)
    adapted(rank=test_ppo.CONFIG.d_model)

"""A model that browses: nothing that it writes is refused, and its episode is replayed and kept."""

import dataclasses
import functools
import json
import pathlib

import jax
import numpy as np
import pytest

from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import replay, reset, step
from gophercite.browser.episodes import episode_from_json, episode_to_json, played, replayed
from gophercite.browser.observation import prompt
from gophercite.browser.settings import Settings
from gophercite.browsing.browsing_model import BrowsingModel
from gophercite.browsing.writer import BrowsingSettings
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.sampler import NotNumbersError
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.folder import Model, load_model
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import NoLegalAnswer
from tests.browser.sites import site
from tests.drawn_parameters import drawn_parameters

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model"
SAMPLING = SamplingSettings(max_tokens=24, free_log_probs=False)
ON_A_PAGE = ["Search lighthouse", "Clicked on link 0"]


@functools.cache
def model() -> Model:
    return load_model(MODEL)


@functools.cache
def browsing() -> BrowsingModel:
    return BrowsingModel(model(), BrowsingSettings(prompt_tokens=256, sampling=SAMPLING), "tiny")


SHORTER = BrowsingSettings(constrained=False, prompt_tokens=251, sampling=SAMPLING)


@functools.cache
def learned() -> Model:
    """Of random weights, with a learned position for each token and none for padding."""
    config = dataclasses.replace(
        model().transformer.config, position="learned", rotary_fraction=1.0,
        max_positions=SHORTER.prompt_tokens + SAMPLING.max_tokens,
    )  # fmt: skip
    transformer = Transformer(config)
    return dataclasses.replace(
        model(), transformer=transformer, params=drawn_parameters(transformer)
    )


def test_all_that_a_model_writes_is_valid_by_default() -> None:
    world, programs = site(), decode._cache_size()
    kinds = set()
    for seed in range(3):
        start = replay(world, reset("Who?", Settings(actions=12)), ON_A_PAGE[: seed % 3])
        states = list(browsing().browse(world, start, seed))
        end = states[-1]
        assert end.done
        assert not any(state.done for state in states[:-1])
        assert not [action for action in end.actions if action.invalid]
        kinds |= {action.text.split()[0] for action in end.actions}
        episode = played(
            world, reset("Who?", Settings(actions=12)), end.texts, id="e", question_id="q", by="m"
        )
        again = episode_from_json(json.loads(json.dumps(episode_to_json(episode))))
        assert replayed(world, again).end == end
    assert len(kinds) >= 4, kinds
    assert decode._cache_size() <= programs + 1, "one program for all pages"


def test_the_seed_decides_and_an_episode_can_be_gone_on_with() -> None:
    world, start = site(), reset("Who?", Settings(actions=5))
    whole = list(browsing().browse(world, start, 3))
    assert list(browsing().browse(world, whole[1], 3)) == whole[2:]
    assert list(browsing().browse(world, start, 4)) != whole


def test_states_in_both_phases_are_written_side_by_side() -> None:
    world = site()
    page = replay(world, reset("Who?"), ON_A_PAGE)
    answering = replay(world, page, ["Quote: was built", "Quote: in 1874", "End: Answer"])
    states = [page, answering, reset("Who?"), answering]
    keys = jax.random.split(jax.random.key(0), len(states))
    for written, state in zip(browsing().write(world, states, keys), states, strict=True):
        after, done, invalid = step(world, state, written.text)
        assert invalid is None
        assert done == (state is answering) or after.end is not None
        assert len(written.tokens) <= SAMPLING.max_tokens
        assert model().vocabulary.decode(written.tokens).strip() == written.text


def test_prompts_fit_their_tokens() -> None:
    vocabulary, state = model().vocabulary, replay(site(), reset("Who?"), ON_A_PAGE)
    whole = encode_state(vocabulary, state, 4096)
    assert vocabulary.decode(whole) == prompt(state) + "\n"
    shorter = encode_state(vocabulary, state, len(whole) - 1)
    assert len(shorter) < len(whole)
    assert vocabulary.decode(shorter).endswith("♦Next action\n")
    answering = replay(site(), state, ["Quote: was built", "End: Answer"])
    assert vocabulary.decode(encode_state(vocabulary, answering, 4096)) == prompt(answering)
    with pytest.raises(ValueError, match="does not fit 10 tokens"):
        encode_state(vocabulary, state, 10)


@pytest.mark.parametrize("constrained", [True, False])
def test_a_model_whose_logits_are_not_numbers_is_named(constrained: bool) -> None:
    whole, settings = (model(), browsing().settings) if constrained else (learned(), SHORTER)

    def nan(leaf: jax.Array) -> jax.Array:
        made = np.full(leaf.shape, np.nan, leaf.dtype)
        # Bound to their device if these are, or another program would be compiled for them.
        return jax.device_put(made, leaf.sharding if leaf.committed else None)

    damaged = jax.tree.map(nan, whole.params)
    browser = BrowsingModel(dataclasses.replace(whole, params=damaged), settings)
    with pytest.raises(NotNumbersError, match="the model's logits are not numbers"):
        next(browser.browse(site(), reset("Who?", Settings(actions=12))))


def test_free_sampling_writes_anything_and_its_faults_are_counted() -> None:
    """And with its prompt it takes the last of the learned positions."""
    world, start = site(), reset("Who?", Settings(actions=4))
    (*_, end) = BrowsingModel(learned(), SHORTER).browse(world, start, 1)
    assert [action for action in end.actions if action.invalid]


def test_settings_that_leave_no_room_are_refused() -> None:
    with pytest.raises(ValueError, match="prompt_tokens = 0"):
        BrowsingSettings(prompt_tokens=0)
    with pytest.raises(NoLegalAnswer, match="max_tokens = 2: the shortest action has"):
        BrowsingModel(
            model(),
            dataclasses.replace(browsing().settings, sampling=SamplingSettings(max_tokens=2)),
        )

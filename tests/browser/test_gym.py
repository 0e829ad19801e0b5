"""The Gymnasium adapter, by Gymnasium's own checker, alone and side by side."""

import gymnasium
import pytest
from browser.sites import site
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gophercite.browser.environment import replay, reset
from gophercite.browser.gym import AnyText, BrowserEnvironment
from gophercite.browser.observation import TokenBudget, prompt
from gophercite.browser.settings import Settings
from gophercite.browser.state import dumps

TEXTS = ("Search lighthouse", "Clicked on link 0", "Quote: anna vell", "End: Answer", "Her [1].")


def environment() -> BrowserEnvironment:
    return BrowserEnvironment(
        site(),
        ["Who?", "When?", "Why?"],
        Settings(actions=(20, 100)),
        TokenBudget(2000, len),
        score=lambda state: float(len(state.references)),
    )


@pytest.mark.filterwarnings("ignore:.*(Box|no render fps|custom).*")
def test_gymnasiums_checker_has_nothing_to_say() -> None:
    check_env(environment(), skip_render_check=True)


def test_an_episode_is_the_environments_own() -> None:
    it = environment()
    observation, info = it.reset(seed=3, options={"question": "Who built it?"})
    state = info["state"]
    assert observation == prompt(state) == it.render()
    rewards = []
    for text in TEXTS:
        observation, reward, done, truncated, info = it.step(text)
        rewards.append(reward)
        assert not truncated
    assert (rewards, done, observation) == ([0, 0, 0, 0, 1], True, "")
    assert dumps(info["state"]) == dumps(replay(site(), state, TEXTS))
    with pytest.raises(ValueError, match="over"):
        it.step("Top")
    with pytest.raises(ValueError, match="reset"):
        environment().step("Top")
    it.reset(seed=3)
    assert it.step("End: Nonsense")[1:3] == (-1.0, True)


def test_the_seed_chooses_question_and_limit() -> None:
    drawn = [environment().reset(seed=seed)[1]["state"] for seed in range(20)]
    assert drawn == [environment().reset(seed=seed)[1]["state"] for seed in range(20)]
    assert {state.question for state in drawn} == {"Who?", "When?", "Why?"}
    assert len({state.limit for state in drawn}) > 10
    assert reset("Who?").limit == 100


def test_side_by_side_nothing_resets_by_itself() -> None:
    vector = SyncVectorEnv([environment] * 3, autoreset_mode=AutoresetMode.DISABLED)
    observations, _ = vector.reset(seed=1)
    assert len(observations) == 3
    actions = ("Search lighthouse", "End: Answer", "nonsense")
    observations, rewards, done, _, infos = vector.step(actions)
    assert list(done) == [False, True, False]
    assert list(rewards) == [0, -1, 0]
    assert observations[1] == ""
    assert infos["invalid"][2] == "is none of the commands"


def test_the_space_is_of_texts() -> None:
    space = AnyText(seed=1)
    assert isinstance(space, gymnasium.Space)
    assert space.contains(space.sample())
    assert not space.contains(7)
    assert space == AnyText()
    with pytest.raises(ValueError, match="at least one"):
        BrowserEnvironment(site(), [])

"""Advantages of completions against a few lines of NumPy, on random episodes."""

from typing import Any

import jax
import numpy as np
import pytest

from gophercite.learning.advantages import completion_advantages, normalised

ROWS, PLACES = 12, 5
estimate = jax.jit(completion_advantages)


def reference(
    episodes: list[list[tuple[np.ndarray, np.ndarray]]], trace: float, discount: float
) -> list[list[np.ndarray]]:
    """By episode and completion: its rewards and values (one more where the episode is cut)."""
    made = []
    for episode in episodes:
        after_value = after_advantage = 0.0
        of_episode = []
        for rewards, values in reversed(episode):
            if len(rewards) == 0:  # nothing more is known: its value stands for the rest
                after_value, after_advantage = values[0], 0.0
                of_episode.append(np.zeros(0))
                continue
            advantages = np.zeros(len(rewards))
            for i in range(len(rewards)):
                gain = sum(rewards[j] for j in range(i, len(rewards)))
                later = discount * (after_value + trace * after_advantage)
                advantages[i] = gain + later - values[i]
            after_value, after_advantage = values[0], advantages[0]
            of_episode.append(advantages)
        made.append(of_episode[::-1])
    return made


def random_episodes(draws: np.random.Generator) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    episodes, left = [], ROWS - 2
    while left > 0:
        length = int(draws.integers(1, left + 1))
        cut = bool(draws.random() < 0.4)
        episode = []
        for step in range(length):
            tokens = 0 if cut and step == length - 1 else int(draws.integers(1, PLACES + 1))
            episode.append((draws.normal(size=tokens), draws.normal(size=PLACES)))
        episodes.append(episode)
        left -= length
    return episodes


def as_rows(
    episodes: list[list[tuple[np.ndarray, np.ndarray]]], draws: np.random.Generator
) -> dict[str, Any]:
    """Rows in any order, with noise wherever nothing should look, and rows to spare."""
    rows = {
        "rewards": draws.normal(size=(ROWS, PLACES)).astype(np.float32),
        "values": draws.normal(size=(ROWS, PLACES)).astype(np.float32),
        "real": np.zeros((ROWS, PLACES), bool),
        "episode": np.full(ROWS, -1, np.int32),
        "step": draws.integers(0, 9, ROWS).astype(np.int32),
    }
    places = iter(draws.permutation(ROWS))
    index = {}
    for number, episode in enumerate(episodes):
        for step, (rewards, values) in enumerate(episode):
            row = next(places)
            index[number, step] = row
            rows["rewards"][row, : len(rewards)] = rewards
            rows["values"][row] = values
            rows["real"][row, : len(rewards)] = True
            rows["episode"][row] = 7 * number
            rows["step"][row] = 3 * step + 1
    return {**rows, "index": index}


@pytest.mark.parametrize(("trace", "discount"), [(0.95, 1.0), (0.0, 0.9), (1.0, 1.0), (0.5, 0.7)])
def test_they_are_the_reference_s(trace: float, discount: float) -> None:
    for seed in range(40):
        draws = np.random.default_rng(seed)
        episodes = random_episodes(draws)
        rows = as_rows(episodes, draws)
        index = rows.pop("index")
        found = estimate(**rows, trace=trace, discount=discount)
        wanted = np.zeros((ROWS, PLACES))
        for number, episode in enumerate(reference(episodes, trace, discount)):
            for step, advantages in enumerate(episode):
                wanted[index[number, step], : len(advantages)] = advantages
        np.testing.assert_allclose(found.advantages, wanted, rtol=1e-4, atol=1e-4)
        returns = np.where(rows["real"], wanted + rows["values"], 0)
        np.testing.assert_allclose(found.returns, returns, rtol=1e-4, atol=1e-4)


def test_with_a_perfect_critic_nothing_is_better_than_expected() -> None:
    """Values that are the sum of the rewards to come: every advantage is 0, whatever λ."""
    draws = np.random.default_rng(0)
    rewards = [draws.normal(size=n) for n in (3, 1, 4)]
    to_come = np.cumsum(np.concatenate(rewards)[::-1])[::-1]
    starts = np.cumsum([0, 3, 1])
    episode = [(r, to_come[s : s + len(r)]) for r, s in zip(rewards, starts, strict=True)]
    for advantages in reference([episode], 0.3, 1.0)[0]:
        np.testing.assert_allclose(advantages, 0, atol=1e-12)
    padded = [(r, np.pad(v, (0, PLACES - len(v)))) for r, v in episode]
    rows = as_rows([padded], draws)
    rows.pop("index")
    np.testing.assert_allclose(estimate(**rows, trace=0.3).advantages, 0, atol=1e-5)


def test_normalised_advantages_have_mean_0_and_variance_1_where_there_are_tokens() -> None:
    draws = np.random.default_rng(1)
    advantages = draws.normal(3, 5, (ROWS, PLACES)).astype(np.float32)
    real = draws.random((ROWS, PLACES)) < 0.6
    made = np.asarray(normalised(advantages, real))
    assert made[~real].max() == made[~real].min() == 0
    expected = (advantages[real] - advantages[real].mean()) / advantages[real].std()
    np.testing.assert_allclose(made[real], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(normalised(advantages, np.zeros_like(real)), 0)
    one = np.zeros_like(real)
    one[2, 3] = True
    np.testing.assert_array_equal(normalised(advantages, one), 0)

"""The browser as a Gymnasium environment: `pip install 'gophercite[gym]'`.

An observation is the prompt, an action is a text. The reward is 0 except at the last step. There is
no automatic reset: call `reset` after the end, and build vectorised environments with
`SyncVectorEnv(…, autoreset_mode=AutoresetMode.DISABLED)`.
"""

import random
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gophercite.browser.environment import reset, step
from gophercite.browser.observation import TokenBudget, prompt
from gophercite.browser.settings import Settings
from gophercite.browser.state import State
from gophercite.browser.worlds import World


class AnyText(gymnasium.Space[str]):
    """All texts, of any characters and length; samples are commands that need no page."""

    _COMMANDS = ("Search a", "Top", "Back", "Scrolled down 1", "Scrolled up 1", "End: Answer")

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """A text has no fixed shape."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Returns a command."""
        return str(self.np_random.choice(self._COMMANDS))

    def contains(self, x: Any) -> bool:
        """Whether this is a text."""
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        """All of these spaces are the same."""
        return isinstance(other, AnyText)


class BrowserEnvironment(gymnasium.Env[str, str]):
    """Episodes of browsing, one question each.

    `reset(seed=…)` chooses a question by the seed; `reset(options={"question": …})` takes the given
    one, with an optional `reference_answer`. `info["state"]` is the state.

    Args:
      world: the world to browse.
      questions: at least one.
      settings: the rules.
      tokens: maximum length of a prompt.
      score: score of an answered episode, given its last state; 0 by default.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(
        self,
        world: World,
        questions: list[str],
        settings: Settings | None = None,
        tokens: TokenBudget | None = None,
        score: Callable[[State], float] | None = None,
    ) -> None:
        if not questions:
            raise ValueError("questions: there must be at least one")
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self.render_mode = "ansi"
        self._world, self._questions = world, questions
        self._settings, self._tokens, self._score = settings or Settings(), tokens, score
        self._state: State | None = None
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        options = options or {}
        drawn = int(self.np_random.integers(1 << 31))
        question = options.get("question")
        if question is None:
            question = random.Random(drawn).choice(self._questions)
        self._state = reset(
            question,
            self._settings,
            reference_answer=options.get("reference_answer"),
            seed=drawn,
        )
        return self._observed(None)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Executes a text.

        Raises:
          ValueError: before `reset`, and after the end of an episode.
        """
        if self._state is None:
            raise ValueError("reset the environment first")
        self._state, done, invalid = step(self._world, self._state, action)
        observation, info = self._observed(invalid)
        reward = 0.0
        if done and self._state.answer is None:
            reward = self._settings.score_without_answer
        elif done and self._score is not None:
            reward = self._score(self._state)
        return observation, reward, done, False, info

    def render(self) -> str:
        """Returns the current prompt."""
        return self._shown

    def _observed(self, invalid: str | None) -> tuple[str, dict[str, Any]]:
        state = self._state
        assert state is not None
        self._shown = "" if state.done else prompt(state, self._tokens)
        return self._shown, {"state": state, "invalid": invalid}

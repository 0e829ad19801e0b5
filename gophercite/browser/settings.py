"""The rules of an episode."""

import dataclasses

from gophercite.browser.hosts import is_host

LONGEST_ACTION = 10_000  # characters of a command; more is an invalid action


@dataclasses.dataclass(frozen=True)
class Settings:
    """The rules of an episode; what WebGPT's paper does not say is said here.

    Attributes:
      actions: how many actions browsing may take, invalid ones counted. Two numbers mean that it is
        drawn uniformly from them and all between, as for reinforcement learning (section 3.2: 20 to
        100); the paper evaluates with 100.
      reference_characters: browsing ends when the extracts are together this long. The paper has
        such a limit and does not give it. A single extract that is longer is refused.
      results: how many hits a results page has at most.
      columns: how long a line is for scrolling, in characters; lines are only counted, and not
        broken in what the model reads. With 68 the text of figure 1 has the 12 lines that its
        scrollbar says, 0 to 11.
      view_lines: how many lines are shown, and scrolled by, at a time.
      blocked: hosts, whose subdomains are meant too: their results are dropped, their links become
        plain text, their pages are errors. The paper blocks these two, and trivia sites for
        TriviaQA.
      censored_words: a page is an error when it shares a run of so many words with the question or
        the reference answer; 0 for never. The paper's 10.
      absent_text_is_invalid: whether `Find in page` of a text that is not there is an invalid
        action. Otherwise it is a valid one that changes nothing.
      score_without_answer: what an episode scores that ends without an answer. The reward model's
        scores are Elo scores about 0, so that the default is below a middling answer.
    """

    actions: int | tuple[int, int] = 100
    reference_characters: int = 4000
    results: int = 10
    columns: int = 68
    view_lines: int = 40
    blocked: tuple[str, ...] = ("reddit.com", "quora.com")
    censored_words: int = 10
    absent_text_is_invalid: bool = False
    score_without_answer: float = -1.0

    def __post_init__(self) -> None:
        least, most = self.action_range
        if not 1 <= least <= most:
            raise ValueError(f"actions: {self.actions!r} is no number from 1 on, and no range")
        for name in ("reference_characters", "results", "view_lines"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 1")
        if self.columns < 20:
            raise ValueError(f"columns: {self.columns} must be at least 20")
        if self.censored_words < 0:
            raise ValueError(f"censored_words: {self.censored_words} must not be negative")
        for host in self.blocked:
            if not is_host(host):
                raise ValueError(f"blocked: {host!r} is no host such as reddit.com")

    @property
    def action_range(self) -> tuple[int, int]:
        """The smallest and the largest number of actions."""
        if isinstance(self.actions, int):
            return self.actions, self.actions
        return self.actions

"""The rules of an episode."""

import dataclasses

from gophercite.browser.hosts import is_host

LONGEST_ACTION = 10_000  # characters of a command; a longer one is an invalid action


@dataclasses.dataclass(frozen=True)
class Settings:
    """The rules of an episode, including those that WebGPT's paper leaves open.

    Attributes:
      actions: number of actions that browsing may take, including invalid ones. Two numbers are a
        range from which it is drawn uniformly, ends included, as for reinforcement learning
        (section 3.2: 20 to 100); the paper evaluates with 100.
      reference_characters: browsing ends when the extracts together are this long. The paper has
        such a limit but does not state it. A single extract that is longer is refused.
      results: maximum number of hits on a results page.
      columns: length of a line for scrolling, in characters; lines are only counted, not broken in
        what the model reads. With 68, the text of figure 1 has the 12 lines that its scrollbar
        shows, 0 to 11.
      view_lines: number of lines that are shown, and scrolled by, at a time.
      lines_above: number of lines that `Find in page` shows above what it finds. A sentence often
        begins a line or two above the word that was looked for.
      blocked: hosts, including their subdomains: their results are dropped, their links become
        plain text, their pages are errors. The paper blocks these two, and trivia sites for
        TriviaQA.
      censored_words: a page is an error if it shares a run of this many words with the question or
        the reference answer; 0 for never. The paper's value is 10.
      absent_text_is_invalid: whether `Find in page` for a text that is not there is an invalid
        action. Otherwise it is a valid action that changes nothing.
      score_without_answer: score of an episode that ends without an answer. The reward model's
        scores are Elo scores around 0, so the default is below an average answer.
    """

    actions: int | tuple[int, int] = 100
    reference_characters: int = 4000
    results: int = 10
    columns: int = 68
    view_lines: int = 40
    lines_above: int = 0
    blocked: tuple[str, ...] = ("reddit.com", "quora.com")
    censored_words: int = 10
    absent_text_is_invalid: bool = False
    score_without_answer: float = -1.0

    def __post_init__(self) -> None:
        least, most = self.action_range
        if not 1 <= least <= most:
            raise ValueError(
                f"actions: {self.actions!r} must be a number, at least 1, or a range of such "
                "numbers"
            )
        for name in ("reference_characters", "results", "view_lines"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 1")
        if not 0 <= self.lines_above < self.view_lines:
            raise ValueError(
                f"lines_above: {self.lines_above} must be at least 0, and fewer than the "
                f"{self.view_lines} lines that are shown"
            )
        if self.columns < 20:
            raise ValueError(f"columns: {self.columns} must be at least 20")
        if self.censored_words < 0:
            raise ValueError(f"censored_words: {self.censored_words} must not be negative")
        for host in self.blocked:
            if not is_host(host):
                raise ValueError(f"blocked: {host!r} is not the name of a host, such as reddit.com")

    @property
    def action_range(self) -> tuple[int, int]:
        """The smallest and the largest number of actions."""
        if isinstance(self.actions, int):
            return self.actions, self.actions
        return self.actions

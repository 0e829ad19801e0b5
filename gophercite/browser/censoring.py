"""Pages that give the answer away: those that repeat the question, or the reference answer.

WebGPT censors every page with a run of ten words in common with them (appendix A). Words are runs
of letters and digits; case, and what separates words, do not count.
"""

import re
from collections.abc import Iterable

_WORD = re.compile(r"\w+")


def shares_a_run(text: str, with_texts: Iterable[str], length: int) -> bool:
    """Whether the text has a run of `length` words in common with any of the others.

    Args:
      text: the page's text.
      with_texts: the question, and the reference answer if there is one.
      length: length of the run in words; 0 for never.
    """
    if length < 1:
        return False
    runs: set[tuple[str, ...]] = set()
    for other in with_texts:
        words = _words(other)
        runs.update(tuple(words[i : i + length]) for i in range(len(words) - length + 1))
    if not runs:
        return False
    firsts = {run[0] for run in runs}
    words = _words(text)
    return any(
        word in firsts and tuple(words[place : place + length]) in runs
        for place, word in enumerate(words)
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())

"""Passages from a page, each shown twice, from which a language model learns to copy.

To copy, early layers have to label each token with the tokens before it, and a later layer has to
look for the label of the current token (Olsson et al. 2022, "In-context Learning and Induction
Heads"). A small model discovers this only if copying is a large part of the task, but it then keeps
the ability. No passage is shown a third time, because models trained on that repeat themselves when
they write.
"""

import random
import re

from data_pipelines.citations import Part
from gophercite.documents import Document

_STRETCH_WORDS = (5, 50)
# In characters. With a vocabulary of 2,048 pieces nearly all texts fit into rows of 256 tokens.
_LONGEST_TEXT = 600

_WORD = re.compile(r"\S+")


def repeats(document: Document, draw: random.Random) -> list[Part]:
    """Returns passages of a page's words, at least one, each shown twice.

    The lengths of passages vary, so that the distance to look back varies as well.

    Args:
      document: the page; if it has no words, its title is used.
      draw: chooses the passages.
    """
    words = [match.span() for match in _WORD.finditer(document.text)]
    parts: list[Part] = []
    room = _LONGEST_TEXT
    while True:
        stretch = document.title
        if words:
            count = min(draw.randint(*_STRETCH_WORDS), len(words))
            first = draw.randint(0, len(words) - count)
            stretch = document.text[words[first][0] : words[first + count - 1][1]]
        stretch = f"\n{stretch[: _LONGEST_TEXT // 2]}"
        room -= 2 * len(stretch)
        if parts and room < 0:
            return parts
        parts += Part(stretch, predictable=False), Part(stretch, predictable=True)

"""Stretches of a page, each shown twice: where a language model learns to copy.

To copy, early layers have to mark each token with those before it, and a later one to look for the
mark of the present token (Olsson et al. 2022, "In-context Learning and Induction Heads"). A small
model finds that only where copying is much of what there is to learn, and then keeps it. No stretch
is shown a third time: models that saw that go round in circles when they write.
"""

import random
import re

from data_pipelines.citations import Part
from gophercite.documents import Document

_STRETCH_WORDS = (5, 50)
# In characters. With a vocabulary of 2,048 pieces nearly all texts fit rows of 256 tokens.
_LONGEST_TEXT = 600

_WORD = re.compile(r"\S+")


def repeats(document: Document, draw: random.Random) -> list[Part]:
    """Returns stretches of a page's words, at least one, each shown twice.

    Where a stretch ends varies, so that how far back to look does as well.

    Args:
      document: the page; of one without words its title is taken.
      draw: decides which stretches.
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

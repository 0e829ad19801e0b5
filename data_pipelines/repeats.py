"""Stretches of a page, shown again and again: where a language model learns to copy.

To copy, one layer has to mark each token with the one before, and a later one to look for the mark
of the present token (Olsson et al. 2022, "In-context Learning and Induction Heads"). A small model
finds that only where copying is most of what there is to learn, and then keeps it.
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
    """Returns a stretch of a page's words, at least twice.

    Where the stretch ends varies, so that how far back to look does as well.

    Args:
      document: the page; of one without words its title is taken.
      draw: decides which stretch.
    """
    words = [match.span() for match in _WORD.finditer(document.text)]
    stretch = document.title
    if words:
        count = min(draw.randint(*_STRETCH_WORDS), len(words))
        first = draw.randint(0, len(words) - count)
        stretch = document.text[words[first][0] : words[first + count - 1][1]]
    stretch = f"\n{stretch[: _LONGEST_TEXT // 2]}"
    showings = max(2, _LONGEST_TEXT // len(stretch))
    return [Part(stretch, predictable=showing > 0) for showing in range(showings)]

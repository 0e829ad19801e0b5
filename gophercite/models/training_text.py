"""Whether a page is anything like the text that a model was trained on.

A vocabulary that was made from narrow text spells other text in short pieces. So the average bytes
per token of the training text, kept in the model's provenance, tell cheaply and without the model
whether a page is like it. It says nothing of vocabularies made from all kinds of text: those spell
everything alike, and models that have them have usually read all kinds of text before.
docs/ask.md has what was measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gophercite.vocabularies import Vocabulary

FIELD = "training_text"
_BYTES_PER_TOKEN = "bytes_per_token"

# At this share the quickstart's model (3.64 bytes a token in training) takes all of 1,500 pages of
# the sample world, and refuses 99 % of 2,500 passages of Wikipedia, Reddit, Amazon's reviews and
# privacy policies.
LEAST_SHARE = 0.68


def training_text(
    vocabulary: Vocabulary,
    rows: Iterable[Iterable[int]] | None,
    base: Mapping[str, Any] | None = None,
) -> dict[str, float] | None:
    """Returns what a model's provenance says of the text that it was trained on, as `FIELD`.

    Args:
      vocabulary: the model's.
      rows: tokens of training examples, with any padding; None where there is no text, as in
        reinforcement learning.
      base: provenance of the model that training begins with; None where parameters are drawn.

    Returns:
      The field's value; None where it is not known, as when the base model is a published one.
    """
    known = []
    if base is not None:
        if (of_base := _bytes_per_token(base)) is None:
            return None
        known.append(of_base)
    if rows is not None and (own := _measure(vocabulary, rows)):
        known.append(own)
    # A model that has read two kinds of text may be asked about either.
    return {_BYTES_PER_TOKEN: round(min(known), 3)} if known else None


def unlike_training(
    provenance: Mapping[str, Any], vocabulary: Vocabulary, texts: Sequence[str]
) -> str | None:
    """Says, for people, how texts are unlike all that a model was trained on.

    Args:
      provenance: the model's.
      vocabulary: the model's.
      texts: parts of pages.

    Returns:
      One sentence; None where the texts are like it, or nothing is known of it.
    """
    expected = _bytes_per_token(provenance)
    if expected is None:
        return None
    found = _measure(vocabulary, map(vocabulary.encode, texts))
    if not found or found >= LEAST_SHARE * expected:
        return None
    return (
        f"the pages are nothing like the text that the model was trained on: a token of theirs "
        f"spells {found:.1f} bytes on average, and there it spelled {expected:.1f}"
    )


def _bytes_per_token(provenance: Mapping[str, Any]) -> float | None:
    """What the provenance says; None where it says nothing, or nonsense."""
    field = provenance.get(FIELD)
    value = field.get(_BYTES_PER_TOKEN) if isinstance(field, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _measure(vocabulary: Vocabulary, rows: Iterable[Iterable[int]]) -> float | None:
    """Bytes that a token spells on average; tokens that spell nothing don't count."""
    size = count = 0
    for row in rows:
        for token in row:
            spelled = vocabulary.token_bytes(int(token))
            if spelled is not None:
                size += len(spelled)
                count += 1
    return size / count if count else None

"""Whether a page resembles the text that a model was trained on.

A vocabulary that was built from a narrow domain splits other text into short pieces. So comparing a
page's bytes per token with the training text's, which the model's provenance records, is a cheap
test that does not run the model. It tells nothing for vocabularies built from all kinds of text:
those split all text alike, and their models have usually been trained on all kinds of text.
docs/ask.md has the measurements.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gophercite.vocabularies import Vocabulary

FIELD = "training_text"
_BYTES_PER_TOKEN = "bytes_per_token"

# At this share the quickstart's model (3.64 bytes per token in training) accepts all of 1,500 pages
# of the sample world, and rejects 99 % of 2,500 passages of Wikipedia, Reddit, Amazon's reviews and
# privacy policies.
LEAST_SHARE = 0.68


def training_text(
    vocabulary: Vocabulary,
    rows: Iterable[Iterable[int]] | None,
    base: Mapping[str, Any] | None = None,
) -> dict[str, float] | None:
    """Returns the provenance field `FIELD`, which describes a model's training text.

    Args:
      vocabulary: the model's vocabulary.
      rows: tokens of training examples, with any padding; None if there is no text, as in
        reinforcement learning.
      base: provenance of the model that training starts from; None if parameters are random.

    Returns:
      The field's value; None if it is not known, for example if the base model is a published one.
    """
    known = []
    if base is not None:
        if (of_base := _bytes_per_token(base)) is None:
            return None
        known.append(of_base)
    if rows is not None and (own := _measure(vocabulary, rows)):
        known.append(own)
    # A model trained on two kinds of text accepts either.
    return {_BYTES_PER_TOKEN: round(min(known), 3)} if known else None


def unlike_training(
    provenance: Mapping[str, Any], vocabulary: Vocabulary, texts: Sequence[str]
) -> str | None:
    """Explains to users how texts differ from a model's training text.

    Args:
      provenance: the model's provenance.
      vocabulary: the model's vocabulary.
      texts: parts of pages.

    Returns:
      One sentence; None if the texts are similar, or nothing is known about the training text.
    """
    expected = _bytes_per_token(provenance)
    if expected is None:
        return None
    found = _measure(vocabulary, map(vocabulary.encode, texts))
    if not found or found >= LEAST_SHARE * expected:
        return None
    return (
        "the pages are very different from the text that the model was trained on: here a token "
        f"spells {found:.1f} bytes on average, in the training text {expected:.1f}"
    )


def _bytes_per_token(provenance: Mapping[str, Any]) -> float | None:
    """The provenance's value; None if it is missing or invalid."""
    field = provenance.get(FIELD)
    value = field.get(_BYTES_PER_TOKEN) if isinstance(field, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _measure(vocabulary: Vocabulary, rows: Iterable[Iterable[int]]) -> float | None:
    """Mean number of bytes per token, not counting tokens without text."""
    size = count = 0
    for row in rows:
        for token in row:
            spelled = vocabulary.token_bytes(int(token))
            if spelled is not None:
                size += len(spelled)
                count += 1
    return size / count if count else None

"""Pads texts of different lengths to rows of one array, whose width takes few values."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

# Rows are padded to a multiple of this, so that few compiled programs serve all lengths.
BUCKET = 64


def padded_rows(
    texts: Sequence[Sequence[int]],
    pad_id: int,
    what: str,
    least_width: int = 1,
    most: int | None = None,
) -> tuple[Int[np.ndarray, "texts width"], Int[np.ndarray, " texts"]]:
    """Puts texts into rows, padded on the right.

    Args:
      texts: token ids.
      pad_id: fills the positions after them.
      what: what to call a text in the error message.
      least_width: minimum width of the rows.
      most: maximum width that padding may reach, for models with few positions (a longer text still
        gets the width it needs); None for no limit.

    Returns:
      The rows, and the number of tokens in each without padding.

    Raises:
      ValueError: there is no text, or one is empty.
    """
    lengths = [len(text) for text in texts]
    if not lengths or min(lengths) == 0:
        raise ValueError(f"needs at least one {what}, and at least one token in each")
    width = -(-max(*lengths, least_width) // BUCKET) * BUCKET
    if most is not None:
        width = max(*lengths, min(width, most))
    rows = np.full((len(texts), width), pad_id, np.int32)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return rows, np.array(lengths, np.int32)

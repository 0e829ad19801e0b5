"""The pieces of documents that can be quoted."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gophercite.documents import Document, Window
from gophercite.evidence import MARKS, OMISSION, holds_mark, is_blank
from gophercite.quoting.run_boundaries import Boundaries, run_boundaries
from gophercite.vocabularies import Vocabulary


class Piece(NamedTuple):
    """A text whose runs can be quotes.

    Attributes:
      text: begins where a run may begin, and ends where a run may end.
      begins: for each character, 1 where a run may begin with it, else 0.
      ends: for each character, 1 where a run may end with it, else 0.
    """

    text: str
    begins: bytes
    ends: bytes

    def shortest_run(self, minimum: int) -> str:
        """The shortest run of at least `minimum` characters that begins where the piece does.

        It leaves out the piece's leading white space if the rest is long enough.
        """
        begin = self.begins.find(1, len(self.text) - len(self.text.lstrip()))
        if begin < 0 or len(self.text) - begin < minimum:
            begin = 0
        return self.text[begin : self.ends.find(1, begin + minimum - 1) + 1]


def quotable_pieces(
    sources: Sequence[Document | Window],
    vocabulary: Vocabulary,
    minimum_quote: int,
    omissions: bool = False,
    boundaries: Boundaries = "characters",
) -> dict[str, list[Piece]]:
    """The pieces of text that quotes may be runs of, by title.

    No run contains a reserved mark: texts are cut at each mark, so that the piece before it ends
    before the mark's last character and the piece after it begins after the mark's first character.
    No run contains a character that the vocabulary can't spell, either.

    Args:
      sources: the documents and windows that a prompt shows. Sources with the same title are all
        quotable under it. Sources with nothing to quote, or whose title contains a mark or can't be
        spelled, are left out.
      vocabulary: the model's vocabulary.
      minimum_quote: minimum number of characters per run.
      omissions: whether quotes may leave words out; then no run contains ` [...] `, either.
      boundaries: where runs may begin and end.
    """
    cut_at = (*MARKS, OMISSION) if omissions else MARKS
    every = re.compile(f"(?=({'|'.join(map(re.escape, cut_at))}))")
    pieces: dict[str, dict[Piece, None]] = {}  # in order, each piece once
    for source in sources:
        if holds_mark(source.title) or not vocabulary.spells(source.title):
            continue
        whole = source.text
        begins, ends = run_boundaries(source, boundaries)
        for first, last in vocabulary.spelled_parts(whole):
            start, text = first, whole[first:last]
            cuts = [(mark.start(), mark.start() + len(mark[1])) for mark in every.finditer(text)]
            for begin, end in [*cuts, (len(text), len(text) + 1)]:
                inside = np.arange(start, first + end - 1)
                start = first + begin + 1
                can_begin, can_end = inside[begins[inside]], inside[ends[inside + 1]]
                if not (len(can_begin) and len(can_end)):
                    continue
                low, high = int(can_begin[0]), int(can_end[-1]) + 1
                piece = whole[low:high]
                if len(piece) >= minimum_quote and not is_blank(piece, omissions):
                    allowed = begins[low:high].tobytes(), ends[low + 1 : high + 1].tobytes()
                    pieces.setdefault(source.title, {})[Piece(piece, *allowed)] = None
    return {title: list(texts) for title, texts in pieces.items()}

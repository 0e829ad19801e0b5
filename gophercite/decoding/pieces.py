"""What of some documents can be quoted."""

import re
from collections.abc import Sequence

from gophercite.documents import Document, Window
from gophercite.evidence import MARKS, OMISSION, holds_mark, is_blank
from gophercite.vocabularies import Vocabulary


def quotable_pieces(
    sources: Sequence[Document | Window],
    vocabulary: Vocabulary,
    minimum_quote: int,
    omissions: bool = False,
) -> dict[str, list[str]]:
    """The pieces of text that quotes may be runs of, by title.

    No run holds a reserved mark: texts are cut so that the pieces overlap in all but one of each
    mark's characters. Nor does a run hold a character that the vocabulary can't spell.

    Args:
      sources: what a prompt shows. Those that share a title are quotable under it alike; those with
        nothing to quote, or whose title holds a mark or can't be spelled, are left out.
      vocabulary: the model's.
      minimum_quote: characters of the shortest run.
      omissions: whether quotes may leave words out; then no run holds a ` [...] `, either.
    """
    cut_at = (*MARKS, OMISSION) if omissions else MARKS
    every = re.compile(f"(?=({'|'.join(map(re.escape, cut_at))}))")
    pieces: dict[str, dict[str, None]] = {}  # in order, each piece once
    for source in sources:
        if holds_mark(source.title) or not vocabulary.spells(source.title):
            continue
        for first, last in vocabulary.spelled_parts(source.text):
            start, text = 0, source.text[first:last]
            cuts = [(mark.start(), mark.start() + len(mark[1])) for mark in every.finditer(text)]
            for begin, end in [*cuts, (len(text), len(text) + 1)]:
                piece = text[start : end - 1]
                start = begin + 1
                if len(piece) >= minimum_quote and not is_blank(piece, omissions):
                    pieces.setdefault(source.title, {})[piece] = None
    return {title: list(texts) for title, texts in pieces.items()}

"""Pages as the judge reads them: what is shown, and where a quote may begin and end in it.

Words are those of `tests.text.word_breaks`, which shares no code with the library. Sentences are
what the library's splitter finds, as they are its own definition. Both are those of the whole page.
"""

import functools

from gophercite.documents import Document, Window
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.text.sentences import sentence_spans
from tests.quoting.answer_judge import Page
from tests.text import word_breaks


def shown(source: Document | Window, boundaries: Boundaries) -> Page:
    """What the judge is told of a page, or of a window of one."""
    # The slice is made here, not by `Window`: the judge reads what it should be.
    whole, start, end = (
        (source.document.text, source.start, source.end)
        if isinstance(source, Window)
        else (source.text, 0, len(source.text))
    )
    text = whole[start:end]
    if boundaries == "characters":
        return Page(source.title, text)
    begins, ends = _places(whole, boundaries)
    return Page(
        source.title,
        text,
        frozenset(place - start for place in begins if start <= place <= end),
        frozenset(place - start for place in ends if start <= place <= end),
    )


@functools.lru_cache(256)
def _places(text: str, boundaries: Boundaries) -> tuple[list[int], list[int]]:
    if boundaries == "sentences":
        spans = sentence_spans(text)
        return [start for start, _ in spans], [end for _, end in spans]
    found = word_breaks.boundaries(text)
    return (
        [place for place in found if place < len(text) and not text[place].isspace()],
        [place for place in found if place > 0 and not text[place - 1].isspace()],
    )

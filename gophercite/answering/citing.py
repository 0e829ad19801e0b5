"""Where a quote stands: from what a model wrote to citations of the pages it was shown."""

import dataclasses
from collections.abc import Iterator, Sequence

from gophercite import evidence
from gophercite.documents import Window
from gophercite.evidence import Evidence
from gophercite.records.answers import Citation, cite
from gophercite.text.word_boundaries import word_boundaries


def cited(triple: Evidence, windows: Sequence[Window], omissions: int) -> Iterator[Citation]:
    """Finds a quote where the model read it: in the first window with its title that holds it.

    The runs of a quote that leaves words out may come from several pages with the same title. Each
    of these pages then gets a citation of the same claim. The first citation is of the page that
    holds the most runs, counted from the first run; the remaining runs are handled in the same way.

    Args:
      triple: a claim with its evidence.
      windows: what the model was shown.
      omissions: how often the quote may leave words out.

    Yields:
      The citations.

    Raises:
      ValueError: no window of that title holds the quote.
    """
    named = [window for window in windows if window.title == triple.title]
    runs = evidence.runs_of(triple.quote, omissions)
    while runs:
        places = [_places(runs, window.text) for window in named]
        most = max(places, key=len, default=[])
        if not most:
            raise ValueError(
                f"no page with the title {triple.title!r} among those shown contains the quote"
            )
        window = named[places.index(most)]
        quote = evidence.OMISSION.join(runs[: len(most)])
        starts = [window.start + place for place in most]
        yield cite(dataclasses.replace(triple, quote=quote), window.document, *starts)
        del runs[: len(most)]


def _places(runs: Sequence[str], text: str) -> list[int]:
    """Where runs stand in a text, up to the first one not found: in sequence where possible."""
    places: list[int] = []
    end = 0
    for run in runs:
        place = _place(run, text, end)
        if place < 0:
            place = _place(run, text)
        if place < 0:
            break
        places.append(place)
        end = place + len(run)
    return places


def _place(run: str, text: str, first: int = 0) -> int:
    """First place of a run from `first` on, as whole words if it has such a place; else -1."""
    place = found = text.find(run, first)
    if place < 0 or text.find(run, place + 1) < 0:
        return place
    boundary = word_boundaries(text)
    while place >= 0 and not (boundary[place] and boundary[place + len(run)]):
        place = text.find(run, place + 1)
    return found if place < 0 else place

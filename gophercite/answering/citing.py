"""Where a quote stands: from what a model wrote to citations of the pages it was shown."""

import dataclasses
from collections.abc import Iterator, Sequence

from gophercite import evidence
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence
from gophercite.records.answers import Citation, cite
from gophercite.text.word_boundaries import word_boundaries


def cited(triple: Evidence, windows: Sequence[Window], omissions: int) -> Iterator[Citation]:
    """Finds a quote where the model read it: in the first window with its title that holds it.

    A page may have several windows.

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
    named: dict[Document, list[Window]] = {}
    for window in windows:
        if window.title == triple.title:
            named.setdefault(window.document, []).append(window)
    runs = evidence.runs_of(triple.quote, omissions)
    while runs:
        places = [(page, _places(runs, parts)) for page, parts in named.items()]
        page, starts = max(places, key=lambda each: len(each[1]), default=(None, []))
        if page is None or not starts:
            raise ValueError(
                f"no page with the title {triple.title!r} among those shown contains the quote"
            )
        quote = evidence.OMISSION.join(runs[: len(starts)])
        yield cite(dataclasses.replace(triple, quote=quote), page, *starts)
        del runs[: len(starts)]


def _places(runs: Sequence[str], parts: Sequence[Window]) -> list[int]:
    """Where runs stand in parts of a page, up to the first one not found: in sequence if they can.

    Places are counted from the start of the page.
    """
    places: list[int] = []
    end = 0
    for run in runs:
        place = _place_in(parts, run, end)
        if place < 0:
            place = _place_in(parts, run)
        if place < 0:
            break
        places.append(place)
        end = place + len(run)
    return places


def _place_in(parts: Sequence[Window], run: str, first: int = 0) -> int:
    """The place of a run in its page, not before `first`, in the first part with it; else -1."""
    for part in parts:
        place = _place(run, part.text, max(0, first - part.start))
        if place >= 0:
            return part.start + place
    return -1


def _place(run: str, text: str, first: int = 0) -> int:
    """First place of a run from `first` on, as whole words if it has such a place; else -1."""
    place = found = text.find(run, first)
    if place < 0 or text.find(run, place + 1) < 0:
        return place
    boundary = word_boundaries(text)
    while place >= 0 and not (boundary[place] and boundary[place + len(run)]):
        place = text.find(run, place + 1)
    return found if place < 0 else place

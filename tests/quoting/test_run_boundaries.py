"""Where quotes may begin and end: the same in a window as in its page."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.documents import Document, Window
from gophercite.quoting.run_boundaries import run_boundaries
from tests.long_forms import IS_LONG
from tests.quoting.shown_pages import shown

SCRAPS = (
    "the", "cat's", "3.14", "U.S.", "So", ". ", "! ", " ", "  ", "\n", "\n\n", "\t", "'", ",", "é",
    "e\u0301", "中文", "カタ", "א\"", "👩\u200d👧", "🇫🇷", "🇫", "।", "\u200d", "_", "x" * 40,
    "x" * 400, "]", "%<", "\u3000",
)  # fmt: skip
PAGES = st.lists(st.sampled_from(SCRAPS), min_size=1, max_size=40).map("".join)


@settings(deadline=None, max_examples=1000 if IS_LONG else 250)
@given(PAGES, st.randoms(use_true_random=False), st.sampled_from(["words", "sentences"]))
def test_a_window_has_the_boundaries_of_its_page(
    text: str, draw: random.Random, boundaries: str
) -> None:
    page = Document("a", "T", text)
    whole = run_boundaries(page, boundaries)
    start = draw.randint(0, len(page.text))
    end = draw.randint(start, len(page.text))
    part = run_boundaries(Window(page, start, end), boundaries)
    # At its end nothing shown begins, and at its beginning nothing ends.
    assert part.begins[:-1].tolist() == whole.begins[start:end].tolist()
    assert part.ends[1:].tolist() == whole.ends[start + 1 : end + 1].tolist()


@settings(deadline=None, max_examples=200 if IS_LONG else 100)
@given(PAGES, st.sampled_from(["words", "sentences"]))
def test_they_are_what_the_judge_reads(text: str, boundaries: str) -> None:
    page = Document("a", "T", text)
    found, expected = run_boundaries(page, boundaries), shown(page, boundaries)
    assert set(np.flatnonzero(found.begins)) == expected.begins
    assert set(np.flatnonzero(found.ends)) == expected.ends


@pytest.mark.parametrize(
    ("boundaries", "begins", "ends"),
    [
        ("words", ["Sir", "T", ".", "is", "’", "it", "."], ["Sir", "T", ".", "is", "’", "it", "."]),
        ("sentences", ["Sir"], ["it."]),
    ],
)
def test_neither_end_is_white_space(boundaries: str, begins: list[str], ends: list[str]) -> None:
    text = "\n Sir T. is  ’it. "
    found = run_boundaries(Document("a", "T", text), boundaries)
    for flags, expected in ((found.begins, begins), (found.ends, ends)):
        assert flags.sum() == len(expected)
    for place, word in zip(np.flatnonzero(found.begins), begins, strict=True):
        assert text[place:].startswith(word)
    for place, word in zip(np.flatnonzero(found.ends), ends, strict=True):
        assert text[:place].endswith(word)


def test_a_window_does_not_read_its_whole_page() -> None:
    """A megabyte around a window: what decides is found next to it."""
    text = "Some words of a page. " * 50_000
    page = Document("a", "T", text)
    looked = []

    class Watched(str):
        def __getitem__(self, key):
            found = str.__getitem__(self, key)
            looked.append(len(found))
            return found

    object.__setattr__(page, "text", Watched(page.text))
    run_boundaries(Window(page, 500_003, 500_103), "words")
    assert sum(looked) < 1000

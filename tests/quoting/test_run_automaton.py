"""Automata of the runs that begin and end at some places, beside all runs written down."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.quoting.run_automaton import build_run_automata
from tests.long_forms import IS_LONG

# A letter, whether a run may begin with it, and end with it. In each text one may begin.
LETTERS = st.tuples(st.integers(0, 2), st.booleans(), st.booleans())
TEXTS = st.lists(LETTERS, min_size=1, max_size=14).map(
    lambda text: [(text[0][0], True, True), *text[1:]]
)


def build(groups):
    texts = list(itertools.chain.from_iterable(groups))
    ends = np.cumsum([len(text) for text in texts])
    letters, begin, end = (
        np.array(column) for column in zip(*itertools.chain.from_iterable(texts), strict=True)
    )
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    starts = ends - [len(text) for text in texts]
    return build_run_automata(
        letters.astype(np.uint8), starts, ends, owners, 4, begin, end
    ), letters


@st.composite
def repeated(draw):
    """A word many times between other letters; a few of its runs may end where others may not."""
    word = draw(st.lists(LETTERS, min_size=1, max_size=3))
    words = [(word[0][0], True, word[0][2]), *word[1:]] * draw(st.integers(33, 40))
    first, last = st.integers(0, 4), st.integers(len(words) - 4, len(words) - 1)
    for place in draw(st.lists(first | last, max_size=2)):
        letter, begins, ends = words[place]
        words[place] = letter, begins, not ends
    return [*draw(TEXTS), *words, *draw(TEXTS)]


@settings(deadline=None, max_examples=400 if IS_LONG else 120)  # the first example compiles
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_it_reads_exactly_the_runs_that_begin_and_end_there(groups):
    check(groups)


@settings(deadline=None, max_examples=100 if IS_LONG else 40)
@given(repeated(), TEXTS)
def test_so_it_does_where_a_word_is_repeated(text, other):
    check([[text, other]])


def check(groups):
    (step, length, place, roots, ends), data = build(groups)
    assert sorted(roots) == list(roots)
    for group, texts in enumerate(groups):
        runs: dict[tuple[int, ...], bool] = {}
        for text in texts:
            for i in (i for i, (_, begins, _) in enumerate(text) if begins):
                for j in range(i, len(text)):
                    run = tuple(letter for letter, _, _ in text[i : j + 1])
                    runs[run] = runs.get(run, False) or text[j][2]
        found = {}
        todo = [(roots[group], ())]
        while todo:
            state, run = todo.pop()
            for letter, after in enumerate(step[state]):
                if after >= 0:
                    assert length[after] > length[state]
                    assert roots[group] < after
                    assert group + 1 == len(roots) or after < roots[group + 1]
                    end = place[after] + 1
                    assert tuple(data[end - len(run) - 1 : end]) == (*run, letter)
                    found[(*run, letter)] = bool(ends[after])
                    todo.append((after, (*run, letter)))
        assert found == runs


def test_its_time_is_not_quadratic_where_a_word_is_repeated():
    """At each letter of the text, all the word's places were looked at: minutes for such a page."""
    word = [(0, True, True), (1, False, False), (1, False, False)]
    build([[word * 40]])  # compiles
    before = time.perf_counter()
    build([[word * 200_000]])
    assert time.perf_counter() - before < 10


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_its_size_is_linear_where_places_are_alike(repeats):
    """Where the same letters always begin runs: that is how words are."""
    rng = np.random.default_rng(0)
    letters = np.tile(rng.integers(0, 3, 600), repeats).tolist()
    before = [0, *letters[:-1]]
    text = [(b, a == 0, True) for a, b in zip(before, letters, strict=True)]
    (step, *_), _ = build([[text]])
    assert len(step) <= 2 * len(text) + 1

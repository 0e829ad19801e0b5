import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.quoting.suffix_automaton import build_suffix_automata

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def build(groups):
    data, starts, ends, owners = [], [], [], []
    for group, texts in enumerate(groups):
        for text in texts:
            starts.append(len(data))
            data += text
            ends.append(len(data))
            owners.append(group)
    arrays = (np.array(x, np.int64) for x in (starts, ends, owners))
    return build_suffix_automata(np.array(data, np.uint8), *arrays, 4), data


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_it_reads_exactly_the_runs_of_each_group(groups):
    (step, length, place, roots, link), data = build(groups)
    assert step.min() >= -1
    for group, texts in enumerate(groups):
        runs = {
            tuple(text[i:j])
            for text in texts
            for i in range(len(text))
            for j in range(i + 1, len(text) + 1)
        }
        found = {}
        todo = [(roots[group], ())]
        while todo:
            state, run = todo.pop()
            for letter in range(4):
                after = step[state, letter]
                if after >= 0:
                    assert length[after] > length[state]
                    end = place[after] + 1
                    assert tuple(data[end - len(run) - 1 : end]) == (*run, letter)
                    found[(*run, letter)] = after
                    todo.append((after, (*run, letter)))
        assert set(found) == runs
        assert all(length[state] >= len(run) for run, state in found.items())
        for run, state in found.items():  # all that ends at the same places is longer than its link
            assert (link[state] == found.get(run[1:], roots[group])) == (
                len(run) == length[link[state]] + 1
            )


@settings(deadline=None)  # the first example compiles
@given(TEXTS)
def test_its_size_is_linear(text):
    (step, *_), _ = build([[text]])
    assert len(step) <= 2 * len(text) + 1

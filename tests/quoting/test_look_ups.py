"""Binary search on the device finds what Python's does."""

import bisect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gophercite.quoting.look_ups import first_not_less

KEYS, SEARCHES, HALVINGS = 24, 64, 5
search = jax.jit(first_not_less, static_argnums=4)


@given(data=st.data())
def test_segments_are_searched_as_by_python(data: st.DataObject) -> None:
    """Also empty segments, such that end the array, and keys beyond all others."""
    ends = sorted(data.draw(st.lists(st.integers(0, KEYS), min_size=2, max_size=6)))
    ends = [0, *ends, KEYS]
    keys = np.zeros(KEYS, np.int32)
    for first, last in itertools.pairwise(ends):
        length = last - first
        drawn = data.draw(st.lists(st.integers(-9, 9), min_size=length, max_size=length))
        keys[first:last] = sorted(drawn)
    segments = list(itertools.pairwise(ends))
    asked = st.tuples(st.sampled_from(segments), st.integers(-10, 10))
    searches = data.draw(st.lists(asked, min_size=SEARCHES, max_size=SEARCHES))
    low, high = np.array([segment for segment, _ in searches], np.int32).T
    wanted = np.array([key for _, key in searches], np.int32)
    found = search(*map(jnp.asarray, (keys, wanted, low, high)), HALVINGS)
    expected = [bisect.bisect_left(keys.tolist(), key, *segment) for segment, key in searches]
    assert found.tolist() == expected

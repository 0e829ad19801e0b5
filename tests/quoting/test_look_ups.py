"""Tables are read as by NumPy, and searched as by Python."""

import bisect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gophercite.quoting.look_ups import first_not_less, look_up, look_up_by_row

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


def test_tables_are_read_as_by_numpy() -> None:
    draws = np.random.default_rng(1)
    table = draws.normal(size=(5, 7, 3)).astype(np.float32)
    there = jnp.asarray(table)
    first, second = draws.integers(0, 5, (4, 6)), draws.integers(0, 7, 6)
    np.testing.assert_array_equal(look_up(there, first), table[first])
    np.testing.assert_array_equal(look_up(there, first, second), table[first, second])
    columns = draws.integers(0, 7, (5, 4))
    of_rows = np.stack([row[chosen] for row, chosen in zip(table, columns, strict=True)])
    np.testing.assert_array_equal(look_up_by_row(there, columns), of_rows)
    np.testing.assert_array_equal(look_up_by_row(there[..., 0], columns), of_rows[..., 0])


def test_past_the_end_is_the_last_entry() -> None:
    table = jnp.arange(6).reshape(3, 2)
    assert look_up(table, np.array([2, 3, 99])).tolist() == [[4, 5]] * 3
    assert look_up(table, np.array([0, 9]), np.array([5, 1])).tolist() == [1, 5]

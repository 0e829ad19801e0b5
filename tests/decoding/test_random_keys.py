"""Keys that NumPy makes are those that JAX makes."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.decoding.random_keys import keys_of_seeds, take_keys


def words(keys):
    return np.asarray(jax.random.key_data(keys)).tolist()


@given(st.lists(st.integers(-(1 << 31), (1 << 32) - 1), max_size=4))
def test_keys_of_seeds_are_jax_s(seeds):
    made = keys_of_seeds(seeds)
    assert words(made) == [words(jax.random.key(seed)) for seed in seeds]
    assert jax.random.key_impl(made) == jax.random.key_impl(jax.random.key(0))


def test_of_a_long_seed_the_lowest_bits_count():
    assert words(keys_of_seeds([(5 << 32) + 7])) == words(keys_of_seeds([7]))


def test_another_generator_has_its_own_keys():
    with jax.default_prng_impl("rbg"):
        assert words(keys_of_seeds([3, 4])) == [words(jax.random.key(s)) for s in (3, 4)]


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg"])
def test_keys_are_taken_at_indices(generator):
    keys = jax.random.split(jax.random.key(3, impl=generator), 4)
    taken = take_keys(keys, np.array([2, 0, 2]))
    assert words(taken) == [words(keys[i]) for i in (2, 0, 2)]
    assert jax.random.key_impl(taken) == jax.random.key_impl(keys)
    single = take_keys(keys[1], np.array([0, 1]))
    assert words(single) == [words(keys[1])] * 2


def test_no_program_is_compiled(caplog):
    keys = jax.random.split(jax.random.key(3), 4)
    with jax.log_compiles():
        keys_of_seeds([123, 456])
        take_keys(keys, np.array([1]))
    assert "Compiling" not in caplog.text

"""Attention by the kernel, beside a softmax over all keys at once in float64."""

import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gophercite.kernels.attention import shared_prompt_attention

attend = jax.jit(shared_prompt_attention)


def case(
    prompts=1,
    kv_heads=2,
    samples=3,
    groups=1,
    new=1,
    width=16,
    entries=9,
    capacity=5,
    layers=None,
    seed=0,
):
    """Arguments, of which those that nobody may look at are NaN."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    q = normal(prompts, kv_heads, samples, groups * new, width) * np.float32(width**-0.5)
    prompt_keys, prompt_values = (normal(prompts, kv_heads, entries, width) for _ in range(2))
    lengths = rng.integers(0, entries + 1, prompts).astype(np.int32)
    for p, length in enumerate(lengths):
        prompt_keys[p, :, length:] = prompt_values[p, :, length:] = np.nan
    own = [normal(layers or 1, prompts, kv_heads, samples, capacity, width) for _ in range(2)]
    layer, taken = rng.integers(layers or 1), rng.integers(0, capacity + 1)
    for x in own:
        x[..., taken:, :] = np.nan
        x[np.arange(len(x)) != layer] = np.nan
    seen = rng.random((prompts, samples, new, capacity)) < 0.7
    seen[..., taken:] = False
    unseen = ~seen.any(axis=2)[:, None].repeat(kv_heads, 1)
    for x in own:
        x[:, unseen] = np.nan
    own = [x[0] if layers is None else x for x in own]
    keys_and_values = [prompt_keys, prompt_values, *own]
    return q, *keys_and_values, seen, lengths, np.int32(taken), np.int32(layer)


def wanted(q, prompt_keys, prompt_values, own_keys, own_values, seen, lengths, taken, layer):
    out = np.empty(q.shape)
    if own_keys.ndim == 6:
        own_keys, own_values = own_keys[layer], own_values[layer]
    for p, k, n, m in np.ndindex(q.shape[:4]):
        mine = seen[p, n, m % seen.shape[2]]
        keys = [prompt_keys[p, k, : lengths[p]], own_keys[p, k, n][mine]]
        values = [prompt_values[p, k, : lengths[p]], own_values[p, k, n][mine]]
        scores = np.concatenate(keys).astype(np.float64) @ q[p, k, n, m]
        if not len(scores):
            continue  # padding without a prompt
        weights = np.exp(scores - scores.max())
        out[p, k, n, m] = weights / weights.sum() @ np.concatenate(values)
    return out


def is_real(arguments):
    """Which mixtures mean something: those of new tokens that see themselves at least."""
    q, seen = arguments[0], arguments[5]
    prompts, kv_heads, samples, queries, _ = q.shape
    sees = np.tile(seen.any(axis=-1), (1, 1, queries // seen.shape[2]))
    return np.broadcast_to(sees[:, None], (prompts, kv_heads, samples, queries))


# So many shapes that a program for each is most of the time, which takes twice as long where a
# sanitizer looks at all that is allocated.
EXAMPLES = 15 if "-fsanitize" in os.environ.get("CXXFLAGS", "") else 40
SHAPES = st.fixed_dictionaries(
    {
        "prompts": st.integers(1, 3),
        "kv_heads": st.integers(1, 3),
        "samples": st.sampled_from([1, 2, 5, 31, 33, 64, 70]),
        "groups": st.integers(1, 3),
        "new": st.integers(1, 4),
        "width": st.sampled_from([16, 32, 48, 128]),
        "entries": st.sampled_from([1, 7, 8, 100, 128, 129, 300]),
        "capacity": st.sampled_from([1, 4, 15, 16, 40]),
        "layers": st.sampled_from([None, 1, 3]),
        "seed": st.integers(0, 2**32 - 1),
    }
)
LARGE = {"prompts": 2, "kv_heads": 8, "samples": 40, "groups": 2, "width": 64, "entries": 300}


@settings(max_examples=EXAMPLES, deadline=None)  # each shape is compiled
@given(SHAPES)
@example({**LARGE, "capacity": 33})  # on several threads
@example({**LARGE, "capacity": 33, "samples": 2, "groups": 1})
@example({**LARGE, "capacity": 33})
def test_it_is_a_softmax_over_the_prompt_and_what_is_seen_of_the_own(shape):
    arguments = case(**shape)
    found = np.asarray(attend(*arguments))
    assert np.all(np.isfinite(found))
    real = is_real(arguments)
    np.testing.assert_allclose(found[real], wanted(*arguments)[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("samples", [3, 40])
def test_where_nobody_is_at_work_nothing_is_read(samples):
    """As a prompt's whose samples have all ended."""
    arguments = list(case(prompts=3, samples=samples, seed=4))
    arguments[5] = arguments[5].copy()
    arguments[5][1] = False
    expected = np.asarray(attend(*arguments))
    for i in (0, 1, 2):  # queries, and the prompts' keys and values
        arguments[i] = arguments[i].copy()
        arguments[i][1] = np.nan
    found = np.asarray(attend(*arguments))
    assert np.array_equal(found, expected)
    assert not np.any(found[1])


Q, PROMPT_KEYS, PROMPT_VALUES, OWN_KEYS, OWN_VALUES, SEEN, LENGTHS, TAKEN, LAYER = range(9)


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (Q, lambda x: x[0]),
        (Q, lambda x: x[:, :1]),
        (Q, lambda x: x[..., :8]),
        (PROMPT_KEYS, lambda x: x[:, :, :-1]),
        (PROMPT_KEYS, lambda x: x[:1]),
        (PROMPT_KEYS, lambda x: x.ravel()),
        (PROMPT_VALUES, lambda x: x[:, :1]),
        (OWN_KEYS, lambda x: x[:, :, :, :, :-1]),
        (OWN_KEYS, lambda x: x[:2]),
        (OWN_VALUES, lambda x: x[:, :, :, :1]),
        (SEEN, lambda x: x[0]),
        (SEEN, lambda x: x[:1]),
        (SEEN, lambda x: x[:, :1]),
        (SEEN, lambda x: np.repeat(x, 3, axis=2)),
        (SEEN, lambda x: np.concatenate([x, x], axis=3)),
        (SEEN, lambda x: x[:, :, :0]),
        (LENGTHS, lambda x: x[:1]),
        (LENGTHS, lambda x: x * 0 - 1),
        (LENGTHS, lambda x: x * 0 + [9, 10]),
        (TAKEN, lambda x: x * 0 + 6),
        (TAKEN, lambda x: x * 0 - 1),
        (LAYER, lambda x: x * 0 + 3),
        (LAYER, lambda x: x * 0 - 1),
    ],
)
def test_what_does_not_fit_is_refused_and_not_read(which, change):
    arguments = list(case(prompts=2, layers=3, new=2))
    attend(*arguments)
    arguments[which] = change(arguments[which])
    refused = ValueError, jax.errors.JaxRuntimeError  # the latter from another thread
    with pytest.raises(refused, match=r"shared_prompt_attention: |values to unpack"):
        jax.block_until_ready(attend(*arguments))


def test_exponentials_are_right_to_a_few_units_in_the_last_place():
    """A prompt's key scores 0 and has no value, a sample's own scores x and has the value 1."""
    x = np.concatenate([-np.logspace(-10, np.log10(86.9), 3000), [0], -np.arange(86), [-90, -1e9]])
    x = x.astype(np.float32)
    q = np.zeros((len(x), 1, 1, 1, 16), np.float32)
    q[:, 0, 0, 0, 0] = x
    nothing, one = np.zeros_like(q), np.eye(1, 16, dtype=np.float32) + np.zeros_like(q)
    seen, lengths = np.ones((len(x), 1, 1, 1), bool), np.ones(len(x), np.int32)
    prompt = nothing[:, :, 0]
    found = attend(q, prompt, prompt, one, one, seen, lengths, np.int32(1), np.int32(0))
    weights = np.exp(x.astype(np.float64))
    wanted = weights / (1 + weights)
    wanted[x < -87] = 0
    np.testing.assert_allclose(np.asarray(found)[:, 0, 0, 0, 0], wanted, rtol=4e-7)


@pytest.mark.parametrize("samples", [3, 40])
def test_padding_beside_a_prompt_without_tokens_is_finite(samples):
    arguments = list(case(samples=samples, capacity=5, seed=2))
    arguments[LENGTHS] = arguments[LENGTHS] * 0
    arguments[SEEN] = arguments[SEEN].copy()
    arguments[SEEN][0, 1] = False
    found = np.asarray(attend(*arguments))
    assert arguments[SEEN][0, 0].any()
    assert not np.any(found[0, :, 1])
    real = is_real(arguments)
    np.testing.assert_allclose(found[real], wanted(*arguments)[real], atol=1e-5, rtol=1e-5)


def test_other_dtypes_are_refused():
    arguments = list(case())
    arguments[1] = arguments[1].astype(jnp.bfloat16)
    with pytest.raises(TypeError, match="must be float32, and some are bfloat16"):
        attend(*arguments)


def test_axes_of_one_element_may_be_left_out():
    arguments = list(case(kv_heads=1))
    found = attend(*arguments)
    arguments[3], arguments[4] = arguments[3][0, 0], arguments[4][0, 0]
    assert np.array_equal(attend(*arguments), found)


@pytest.mark.parametrize("samples", [2, 40])
def test_scores_of_any_size_make_weights(samples):
    """As where a query is 10,000 times as long: the largest score takes all."""
    arguments = list(case(samples=samples, entries=200, seed=1))
    arguments[0] = arguments[0] * np.float32(1e4)
    found, real = np.asarray(attend(*arguments)), is_real(arguments)
    np.testing.assert_allclose(found[real], wanted(*arguments)[real], atol=1e-4)


@pytest.mark.parametrize("samples", [2, 40])
def test_what_is_no_number_is_not_hidden(samples):
    arguments = list(case(prompts=2, samples=samples, entries=200, seed=6))
    arguments[5][:] |= arguments[7] > np.arange(5)  # all see what is there
    arguments[3:5] = map(np.nan_to_num, arguments[3:5])
    arguments[0][0, 1, 1, 0, 3] = np.nan  # a query's
    arguments[1][1, 0, 0, 5] = np.nan  # a prompt's first key's
    broken = np.isnan(np.asarray(attend(*arguments))).all(axis=-1)
    expected = np.zeros(broken.shape, bool)
    expected[0, 1, 1] = expected[1, 0] = True
    assert np.array_equal(broken, expected)


@pytest.mark.parametrize("samples", [4, 32, 40])
def test_a_row_does_not_depend_on_what_the_others_are(samples):
    arguments = list(case(prompts=2, samples=samples, entries=130, capacity=20, seed=3))
    found = np.asarray(attend(*arguments))
    others = np.arange(samples) != 1
    for i in (0, 3, 4):  # queries, own keys and values
        arguments[i] = arguments[i].copy()
        arguments[i][:, :, others] *= -3
    assert np.array_equal(np.asarray(attend(*arguments))[:, :, 1], found[:, :, 1])
    assert not np.array_equal(np.asarray(attend(*arguments))[:, :, 0], found[:, :, 0])


def test_slots_that_are_not_taken_do_not_change_a_bit():
    arguments = list(case(samples=40, entries=130, capacity=20, seed=4))
    found = np.asarray(attend(*arguments))
    more = [(0, 0)] * 3 + [(0, 50), (0, 0)]
    arguments[3], arguments[4] = (np.pad(x, more, constant_values=np.nan) for x in arguments[3:5])
    arguments[5] = np.pad(arguments[5], more[:4])
    assert np.array_equal(np.asarray(attend(*arguments)), found)


def test_calls_at_the_same_time_do_not_meet():
    """Several programs, each with calls one after another and beside each other, on all threads."""
    cases = [case(**LARGE, capacity=33, seed=seed) for seed in range(4)]

    @jax.jit
    def many(q, *rest):
        def once(_, q):
            beside = attend(-q, *rest)
            return attend(q, *rest) + 0.1 * beside

        return jax.lax.fori_loop(0, 30, once, q)

    alone = [np.asarray(many(*arguments)) for arguments in cases]
    assert all(np.all(np.isfinite(x)) for x in alone)
    together = [[] for _ in cases]

    def run(i):
        for _ in range(3):
            together[i].append(np.asarray(many(*cases[i])))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wanted, found in zip(alone, together, strict=True):
        assert all(np.array_equal(x, wanted) for x in found)


def test_it_is_an_operation_of_the_program():
    """No call of Python's: XLA calls it by its name."""
    text = attend.lower(*map(jnp.asarray, case())).compile().as_text()
    assert 'custom_call_target="gophercite_shared_prompt_attention"' in text
    assert "callback" not in text

"""Samples on one branch are read once, and are still those that rows read by themselves have."""

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gophercite.decoding import branches
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Branches, DecodeState, Plan, Work
from gophercite.decoding.decoded import nothing_yet
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.sampler import Samples, on_one_cpu, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.kernels.attention import LANES
from gophercite.models.cache import Cache, LayerCache, empty_entries
from gophercite.models.kernel_attention import has_kernel
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from tests.decoding import byte_models
from tests.decoding.byte_models import BYTES, CONFIG, assert_same, pages
from tests.long_forms import LONG

PROMPTS = [[5, 6, 7], [9, 8], [4, 4, 4, 4], [7, 5]]
COUNTS = [8, 3, 0, 7]
ROWS = max(COUNTS)
PAGES = pages(len(PROMPTS))
model_and_parameters = functools.partial(byte_models.model_and_parameters, 4)  # mostly sure


def run(sizes, *, quotes=None, max_tokens=24, temperature=1.0, free=True, **changed) -> Samples:
    model, params = model_and_parameters(**changed)
    tracker = FaultTracker(BYTES)
    return sample(
        model,
        params,
        PROMPTS,
        jax.random.split(jax.random.key(1), len(PROMPTS)),
        SamplingSettings(max_tokens, temperature, free_log_probs=free),
        eos_id=BYTES.eos_id,
        pad_id=BYTES.pad_id,
        vocabulary_size=BYTES.size,
        other_eos_ids=() if quotes else range(10, 20),
        quotes=quotes,
        fault_tables=tracker.tables([tracker.graph(pages) for pages in PAGES]),
        samples_per_prompt=COUNTS,
        branches=sizes,
    )


def quote_tables(max_tokens):
    constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=10, maximum_claim=6))
    return constraint.tables([constraint.graph(pages) for pages in PAGES], max_tokens)


def branches_by_step(samples: Samples) -> list[int]:
    """How many beginnings the unfinished samples of a prompt have, at most, after each token."""
    rows = [
        tuple(tokens[:length].tolist())
        for tokens, length in zip(samples.tokens, samples.lengths, strict=True)
    ]
    of_prompts = np.split(np.arange(len(rows)), np.cumsum(COUNTS)[:-1])

    def begun(prompt: np.ndarray, step: int) -> int:
        return len({rows[i][:step] for i in prompt if len(rows[i]) > step})

    steps = range(1, max(map(len, rows)))
    return [max(begun(prompt, step) for prompt in of_prompts) for step in steps]


def room(needed: int, sizes: Sequence[int]) -> int:
    return min(size for size in sizes if size >= needed)


def passes(samples: Samples, sizes: Sequence[int]) -> int:
    """One for each token, and one more for each step that first had too little room."""
    needed = [1, *branches_by_step(samples)]
    return len(needed) + sum(room(a, sizes) < b for a, b in itertools.pairwise(needed))


@pytest.fixture(scope="module")
def alone() -> Samples:
    return run(())


def test_samples_are_those_of_rows_read_by_themselves(alone):
    """The draws need each of the sizes, and one that was too small is noticed."""
    assert 3 < max(branches_by_step(alone)) < ROWS
    found = run((1, 6, ROWS))
    assert_same(found, alone)
    assert found.passes == passes(alone, (1, 6, ROWS)) > passes(alone, (ROWS,))


@pytest.mark.parametrize(
    "changed",
    [
        {"head_dim": LANES, "num_kv_heads": 1},  # with the kernel, and axes of size 1
        {"num_layers": 1, "scan_layers": False, "position": "transformer_xl"},
        pytest.param({"position": "t5", "distance_buckets": 8, "max_distance": 20}, marks=LONG),
    ],
)
def test_branches_change_no_sample_whatever_the_model_is(changed):
    assert has_kernel(model_and_parameters(**changed)[0].config) == ("head_dim" in changed)
    alone = run((), **changed)
    assert max(branches_by_step(alone)) > 2
    assert_same(run((1, 4, ROWS), **changed), alone)


@pytest.mark.parametrize("free", [True, pytest.param(False, marks=LONG)])
def test_under_the_quote_constraint(free):
    """Whether all logits are computed, or only those of the tokens and rows that need them."""
    options = {"quotes": quote_tables(60), "max_tokens": 60, "temperature": 3.0, "free": free}
    alone, found = run((), **options), run((2, ROWS), **options)
    assert max(branches_by_step(alone)) > 2
    assert_same(found, alone)
    assert not np.any(found.faults)


def test_the_likeliest_tokens_need_one_branch():
    """A pass for each token and prompt, in the smallest size."""
    found = run((1, ROWS), temperature=0.0)
    assert max(branches_by_step(found)) == 1
    assert found.passes == passes(found, (1, ROWS))


@pytest.mark.parametrize(
    ("samples", "sizes"),
    [(1, ()), (7, ()), (8, (4, 8)), (16, (4, 16)), (17, (4, 16, 17)), (64, (4, 16, 64))],
)
def test_usual_sizes(samples, sizes):
    assert branches.usual_sizes(samples) == sizes


def test_one_prompt_on_a_cpu_has_branches():
    """By default; told by the passes."""
    model, params = model_and_parameters()
    draw = functools.partial(
        sample, model, params, settings=SamplingSettings(24), samples_per_prompt=ROWS,
        key=jax.random.key(1), eos_id=BYTES.eos_id, pad_id=BYTES.pad_id,
    )  # fmt: skip
    assert draw(PROMPTS[:1]).passes > draw(PROMPTS[:1], branches=()).passes
    assert draw(PROMPTS[:2]).passes == draw(PROMPTS[:2], branches=()).passes
    fewer = draw(PROMPTS[:1], rows_per_prompt=ROWS - 1)  # so the last sample waits for a row
    assert fewer.passes > draw(PROMPTS[:1], branches=()).passes + 1


def test_several_devices_have_none():
    params = model_and_parameters()[1]
    one, whole = jax.devices()[0], NamedSharding(Mesh(jax.devices()[:2], "x"), PartitionSpec())
    assert on_one_cpu(jax.device_put(params, one))
    assert not on_one_cpu(jax.device_put(params, whole))


@pytest.mark.parametrize(
    ("rows", "sizes", "told"),
    [
        (4, (2, 4), "a row for each of 8 samples"),
        (8, (2, 4), "must rise from 1 or more to 8"),  # with nothing for five to eight branches
        (8, (4, 2, 8), "must rise"),
        (8, (0, 8), "must rise"),
    ],
)
def test_branches_that_would_never_do_are_refused(rows, sizes, told):
    plan = Plan(Transformer(CONFIG), SamplingSettings(4), 1, 0, 40, 8, rows, branches=sizes)
    with pytest.raises(ValueError, match=told):
        jax.eval_shape(
            functools.partial(decode, plan),
            model_and_parameters()[1],
            jnp.ones((1, 2), jnp.int32),
            jnp.full(1, 2),
            jax.random.split(jax.random.key(0), 1),
            None,
            None,
        )


SLOTS, TOKENS = 2, 4
draws = st.lists(
    st.lists(st.integers(0, 2), min_size=SLOTS * 5, max_size=SLOTS * 5),
    min_size=TOKENS,
    max_size=TOKENS,
)


@settings(max_examples=30, deadline=None)
@given(drawn=draws, width=st.integers(1, 5))
def test_branches_are_the_different_beginnings(drawn, width):
    """By definition; token 2 ends a sample."""
    tokens = np.array(drawn).reshape(TOKENS, SLOTS, 5)
    before, goes_on = branches.one_each(SLOTS, 5), np.ones((SLOTS, 5), bool)
    for step in range(TOKENS):
        goes_on &= tokens[step] != 2
        split = branches.split(before, width, jnp.asarray(tokens[step]), jnp.asarray(goes_on))
        most = 0
        for slot in range(SLOTS):
            rows = np.flatnonzero(goes_on[slot])
            begun = [tuple(tokens[: step + 1, slot, row]) for row in rows]
            most = max(most, len(set(begun)))
            numbers = np.asarray(split.of_row)[slot, rows]
            # the same number for the same tokens alone, and none is left out
            assert len(set(zip(begun, numbers, strict=True))) == len(set(begun))
            assert sorted(set(numbers.tolist())) == list(range(len(set(begun))))
            for number in range(min(width, len(set(begun)))):
                leader = int(split.leader[slot, number])
                assert leader in rows
                assert split.of_row[slot, leader] == number
                assert split.parent[slot, number] == before.of_row[slot, leader]
            used = np.arange(width) < len(set(begun))
            np.testing.assert_array_equal(split.used[slot], used)
            np.testing.assert_array_equal(
                np.asarray(split.parent)[slot, ~used], np.arange(width)[~used]
            )
        assert split.needed == most
        assert split.fits == (most <= width)
        before = Branches(split.of_row, split.needed)


STEPS, SIZES = 12, (1, 3, 8)


def scripted_state() -> DecodeState:
    one = jnp.zeros((1, 1, 2, 4))
    layer = LayerCache(one, one, jnp.zeros((STEPS, 4)), jnp.zeros((STEPS, 4)), None)
    return DecodeState(
        made=nothing_yet((1, 8, STEPS), 0, free=False, constrained=False, faults=False,
                         frozen_activations=None),
        prompt=None,
        waiting=jnp.ones((), jnp.int32),
        last=jnp.zeros((1, 2)),
        sample=jnp.arange(8)[None],
        position=jnp.zeros((1, 8), jnp.int32),
        hidden=jnp.zeros((1, 2)),
        cache=Cache((layer,), empty_entries(jnp.ones(1, jnp.int32), 1, STEPS), None),
        quote=None,
        faults=None,
        branches=branches.one_each(1, 8),
    )  # fmt: skip


@jax.jit
def rooms(script: jax.Array) -> jax.Array:
    """The room in which each step is done, if it needs as many branches as `script` says."""
    work = Work({}, jnp.full(1, 8), jax.random.split(jax.random.key(0), 1), None, None)

    def step(state: DecodeState) -> DecodeState:
        at = state.position[0, 0]
        fits = script[at] <= branches.room(state)
        tokens = state.made.tokens.at[0, 0, at].add(jnp.where(fits, branches.room(state), 0))
        made = state.made._replace(tokens=tokens, passes=state.made.passes + 1)
        position = state.position + fits
        sample = jnp.where(position[0, 0] == STEPS, 8, state.sample)
        found = Branches(state.branches.of_row, script[at])
        return state._replace(made=made, position=position, sample=sample, branches=found)

    made = branches.run(step, work, scripted_state(), SIZES).made
    return made.tokens[0, 0], made.passes


@settings(max_examples=60, deadline=None)
@given(script=st.lists(st.integers(1, 8), min_size=STEPS, max_size=STEPS))
def test_each_step_has_the_smallest_room_that_is_known_to_do(script):
    """That is, for its own branches and for those of the step before it."""
    found, done = map(np.asarray, rooms(jnp.asarray(script)))
    again = 0
    for step, needed in enumerate(script):
        before = script[step - 1] if step else 1
        assert found[step] == room(max(needed, before), SIZES)
        again += room(before, SIZES) < needed  # found out by a step that did not fit
    assert done == STEPS + again

"""Samples on one branch are read once, and are still those that rows read by themselves have."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gophercite.decoding import branches, kept_programs
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Branches, DecodeState, Plan, Work
from gophercite.decoding.decoded import nothing_yet
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.sampler import Samples, on_one_cpu, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.kernels.attention import LANES
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


def run(
    sizes,
    *,
    quotes=None,
    max_tokens=24,
    temperature=1.0,
    free=True,
    size=BYTES.size,
    faults=True,
    counts=COUNTS,
    kind=Transformer,
    **changed,
) -> Samples:
    model, params = model_and_parameters(**changed)
    tracker = FaultTracker(BYTES)
    prompts, shown = PROMPTS[: len(counts)], PAGES[: len(counts)]
    return sample(
        kind(model.config),
        params,
        prompts,
        jax.random.split(jax.random.key(1), len(prompts)),
        SamplingSettings(max_tokens, temperature, free_log_probs=free),
        eos_id=BYTES.eos_id,
        pad_id=BYTES.pad_id,
        vocabulary_size=size,
        other_eos_ids=() if quotes else range(10, 20),
        quotes=quotes,
        fault_tables=tracker.tables([tracker.graph(page) for page in shown]) if faults else None,
        samples_per_prompt=counts,
        branches=sizes,
    )


def quote_tables(prompts, max_tokens):
    constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=10, maximum_claim=6))
    return constraint.tables([constraint.graph(pages) for pages in PAGES[:prompts]], max_tokens)


def branches_by_step(samples: Samples, counts=COUNTS) -> list[int]:
    """How many beginnings the unfinished samples of a prompt have, at most, after each token."""
    rows = [
        tuple(tokens[:length].tolist())
        for tokens, length in zip(samples.tokens, samples.lengths, strict=True)
    ]
    of_prompts = np.split(np.arange(len(rows)), np.cumsum(counts)[:-1])

    def begun(prompt: np.ndarray, step: int) -> int:
        return len({rows[i][:step] for i in prompt if len(rows[i]) > step})

    steps = range(1, max(map(len, rows)))
    return [max(begun(prompt, step) for prompt in of_prompts) for step in steps]


def longest(samples: Samples) -> int:
    return int(samples.lengths.max())


@pytest.fixture(scope="module")
def alone() -> Samples:
    return run(())


class Telling(Transformer):
    """Tells how many tokens of each prompt every pass reads."""

    def decode(self, params, tokens, *others, **more):
        jax.debug.callback(lambda: READ.append(tokens.shape[1]))
        return super().decode(params, tokens, *others, **more)


READ: list[int] = []
SIZES = 6, ROWS


@pytest.fixture(scope="module")
def in_branches() -> Samples:
    """The same samples, by a model that notes its passes."""
    READ.clear()
    found = run(SIZES, kind=Telling)
    jax.effects_barrier()
    return found


def test_samples_are_those_of_rows_read_by_themselves(alone, in_branches):
    """The draws need each of the sizes. After a sample's last token nothing is read."""
    assert 3 < max(branches_by_step(alone)) < ROWS
    assert_same(in_branches, alone)
    assert in_branches.passes == longest(alone) - 1


def test_each_pass_is_the_smallest_with_room_for_all_branches(alone, in_branches):
    wanted = [min(s for s in SIZES if s >= n) for n in branches_by_step(alone)]
    assert sorted(READ) == sorted(wanted)
    assert {*wanted} == {*SIZES}


@pytest.mark.parametrize(
    "changed",
    [
        # With the kernel, and axes of size 1; below, under the constraint, it is as well.
        pytest.param({"head_dim": LANES, "num_kv_heads": 1}, marks=LONG),
        {"num_layers": 1, "scan_layers": False, "position": "transformer_xl"},
        pytest.param({"position": "t5", "distance_buckets": 8, "max_distance": 20}, marks=LONG),
    ],
)
def test_branches_change_no_sample_whatever_the_model_is(changed, alone):
    """Nor are unused ids drawn."""
    assert alone.tokens.max() > 80
    assert has_kernel(model_and_parameters(**changed)[0].config) == ("head_dim" in changed)
    options = {"faults": False, "size": 80, **changed}
    rows, found = run((), **options), run((1, ROWS), **options)
    assert max(branches_by_step(rows)) > 2
    assert_same(found, rows)
    assert found.tokens.max() < 80


@pytest.mark.parametrize(
    ("free", "changed"),
    [(True, {"head_dim": LANES, "num_kv_heads": 1}), pytest.param(False, {}, marks=LONG)],
)
def test_under_the_quote_constraint(free, changed):
    """Whether all logits are computed, or only those of the tokens and rows that need them."""
    counts = [4, 3]
    options = {"quotes": quote_tables(2, 60), "max_tokens": 60, "temperature": 3.0, "free": free}
    options |= {"counts": counts, **changed}
    alone, found = run((), **options), run((2, ROWS), **options)
    assert max(branches_by_step(alone, counts)) > 2
    assert_same(found, alone)
    assert not np.any(found.faults)
    assert found.passes < longest(alone) - 10  # drafts of both prompts were drawn


def test_the_likeliest_tokens_need_one_branch():
    found = run((1, ROWS), temperature=0.0, faults=False, num_layers=1, scan_layers=False)
    assert max(branches_by_step(found)) == 1
    assert found.passes == longest(found) - 1


@pytest.mark.parametrize(
    ("samples", "with_drafts", "without"),
    [
        (1, (8,), ()),
        (7, (8,), ()),
        (8, (8,), (4, 8)),
        (16, (8, 16), (4, 16)),
        (17, (8, 17), (4, 16, 17)),
        (64, (8, 32, 64), (4, 16, 64)),
    ],
)
def test_usual_sizes(samples, with_drafts, without):
    assert branches.usual_sizes(samples, True) == with_drafts
    assert branches.usual_sizes(samples, False) == without


class PlannedError(Exception):
    """What a program is to be compiled for is known."""


def test_one_prompt_on_a_cpu_has_branches(monkeypatch):
    """By default, and if each of its samples has a row."""

    def stop(plan, *_):
        raise PlannedError(plan.branches)

    monkeypatch.setattr(kept_programs, "ready", stop)
    model, params = model_and_parameters()
    for prompts, options, planned in (
        (1, {}, (4, 8)),
        (1, {"branches": ()}, ()),
        (1, {"rows_per_prompt": ROWS - 1}, ()),
        (2, {}, ()),
    ):
        with pytest.raises(PlannedError) as stopped:
            sample(
                model, params, PROMPTS[:prompts], jax.random.key(1), SamplingSettings(24),
                samples_per_prompt=ROWS, eos_id=BYTES.eos_id, pad_id=BYTES.pad_id, **options,
            )  # fmt: skip
        assert stopped.value.args == (planned,)


def test_several_devices_have_none():
    params = model_and_parameters()[1]
    one, whole = jax.devices()[0], NamedSharding(Mesh(jax.devices()[:2], "x"), PartitionSpec())
    assert on_one_cpu(jax.device_put(params, one))
    assert not on_one_cpu(jax.device_put(params, whole))


@pytest.mark.parametrize(
    ("rows", "sizes", "told"),
    [
        (4, (2, 4), "a row for each of 8 samples"),
        (
            8,
            (2, 4),
            "must rise from 1 or more to 8 or more",
        ),  # with nothing for five to eight branches
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


SLOTS, TOKENS, PLACES, SAMPLES = 2, 5, 6, 5
PLAN = Plan(Transformer(CONFIG), SamplingSettings(9), 2, 0, 40, SAMPLES, SAMPLES, branches=(5, 6))
numbers = st.integers(0, 2)


class Row(NamedTuple):
    """Rows that are equal are on one branch."""

    place: int
    ready: bool
    ended: bool


def state_after(rows: list[list[Row]], read: np.ndarray, goes_on: np.ndarray) -> DecodeState:
    """Two prompts' rows at some places, of which those that are ready may draw."""
    firsts = [[of_slot.index(row) for row in of_slot] for of_slot in rows]
    put = lambda value: jnp.array([[value(row) for row in of_slot] for of_slot in rows])  # noqa: E731
    return DecodeState(
        made=nothing_yet((SLOTS, SAMPLES, 9), 0, free=False, constrained=False, faults=False,
                         frozen_activations=None),
        prompt=None,
        waiting=jnp.asarray(SLOTS),
        last=jnp.zeros((SLOTS, 2)),
        sample=put(lambda row: SAMPLES if row.ended else 0),
        position=jnp.zeros((SLOTS, SAMPLES), jnp.int32),
        hidden=jnp.zeros((SLOTS * PLACES, 2)),
        cache=None,
        quote=None,
        faults=None,
        branches=Branches(
            of_row=jnp.array(firsts),
            token=jnp.full((SLOTS, SAMPLES), 7),
            ready=put(lambda row: row.ready),
            place=put(lambda row: row.place),
            read=jnp.asarray(read),
            goes_on=jnp.asarray(goes_on),
            start=jnp.asarray(10),
            shown=jnp.zeros((SLOTS, SAMPLES, 30), bool),
            logits=jnp.zeros((SLOTS, PLACES, 40)),
            totals=jnp.zeros((SLOTS, PLACES)),
        ),
    )  # fmt: skip


rows_drawn = st.lists(
    st.lists(
        st.builds(Row, st.integers(0, PLACES - 1), st.booleans(), st.booleans()),
        min_size=SAMPLES, max_size=SAMPLES,
    ),
    min_size=SLOTS, max_size=SLOTS,
)  # fmt: skip


@given(rows=rows_drawn, data=st.data())
def test_rows_on_one_branch_are_those_that_draw_alike(rows, data):
    """By definition; token 2 ends a sample."""
    many = st.lists(numbers, min_size=SLOTS * PLACES, max_size=SLOTS * PLACES)
    read, follows = (np.array(data.draw(many)).reshape(SLOTS, PLACES) for _ in range(2))
    goes_on = (follows > 0) & (np.arange(PLACES) < PLACES - 1)
    token = np.array(data.draw(many)).reshape(SLOTS, PLACES)[:, :SAMPLES]
    state = state_after(rows, read, goes_on)
    work = Work({}, jnp.full(SLOTS, SAMPLES), None, None, None)

    def draw(state, at_work, _logits):
        wanted = [[row.ready and not row.ended for row in of_slot] for of_slot in rows]
        np.testing.assert_array_equal(at_work, wanted)
        ended = at_work & (token == 2)
        sample = jnp.where(ended, SAMPLES, state.sample)
        return state._replace(sample=sample), jnp.where(at_work, token, 0), ended

    after = branches.draw_ready(draw, PLAN, work, state).branches
    for slot, of_slot in enumerate(rows):
        before = np.asarray(state.branches.of_row)[slot]
        drew = [i for i, row in enumerate(of_slot) if row.ready and not row.ended]
        live = [i for i in drew if token[slot, i] != 2]
        for i in live:
            alike = [j for j in live if (before[j], token[slot, j]) == (before[i], token[slot, i])]
            assert after.of_row[slot, i] == min(alike)
        for i, row in enumerate(of_slot):
            drafted = row.place + 1 < PLACES and read[slot, row.place + 1] == token[slot, i]
            hit = i in live and goes_on[slot, row.place] and drafted
            assert after.ready[slot, i] == hit
            assert after.place[slot, i] == row.place + hit
            shown = np.flatnonzero(after.shown[slot, i]).tolist()
            assert shown == ([10 + row.place + 1] if hit else [])
            assert after.token[slot, i] == (token[slot, i] if i in live else 7)
            if i not in live and not row.ended:
                assert i in drew or after.of_row[slot, i] == before[i]

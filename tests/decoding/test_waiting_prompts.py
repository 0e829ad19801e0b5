"""Samples are the same however many prompts have slots, and rows are busier where others wait."""

import functools

import jax
import numpy as np
import pytest

from gophercite import evidence
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.response_automaton import faults_of
from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.kernel_attention import has_kernel
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from tests.decoding import byte_models
from tests.decoding.byte_models import BYTES, assert_same, pages
from tests.long_forms import LONG

PROMPTS = [[5 + i, 6, 7 + i][: 1 + i % 3] * (1 + i) for i in range(11)]
PAGES = pages(len(PROMPTS))
model_and_parameters = functools.partial(byte_models.model_and_parameters, 2)


ALL = len(PROMPTS)


def run(model, params, max_tokens=24, prompts=ALL, **options) -> Samples:
    settings = SamplingSettings(max_tokens=max_tokens, temperature=1.5)
    ends = {"eos_id": BYTES.eos_id, "pad_id": BYTES.pad_id, "vocabulary_size": BYTES.size}
    if "quotes" not in options:
        ends["other_eos_ids"] = range(10, 34)  # one token alone would hardly be drawn
    keys = jax.random.split(jax.random.key(1), prompts)
    return sample(model, params, PROMPTS[:prompts], keys, settings, **ends, **options)


COUNTS = [3, 1, 0, 2, 3, 3, 0, 1, 2, 3, 0]


def fault_tables(prompts=ALL):
    tracker = FaultTracker(BYTES)
    return tracker.tables([tracker.graph(pages) for pages in PAGES[:prompts]])


# Learned positions tell a token's place from any other, and not only how far two are apart; a head
# of this size has the kernel.
FREE = {"position": "learned", "max_positions": 200, "head_dim": 16}


def run_free(params=None, prompts_in_flight=None) -> Samples:
    model, usual = model_and_parameters(scan_layers=False, **FREE)
    return run(
        model,
        usual if params is None else params,
        max_tokens=48,
        samples_per_prompt=COUNTS,
        fault_tables=fault_tables(),
        prompts_in_flight=prompts_in_flight,
    )


@pytest.fixture(scope="module")
def at_once() -> Samples:
    model, _ = model_and_parameters(scan_layers=False, **FREE)
    assert has_kernel(model.config)
    return run_free()


@pytest.fixture(scope="module")
def waited() -> Samples:
    """The same, but for two prompts at a time."""
    return run_free(prompts_in_flight=2)


def test_prompts_that_wait_have_the_samples_that_they_have_at_once(at_once, waited):
    assert len(set(at_once.lengths.tolist())) > 3
    assert_same(waited, at_once)


def test_free_samples_are_tracked_as_their_prompts(at_once, waited):
    """Free samples are mostly malformed."""
    assert np.any(at_once.faults)
    np.testing.assert_array_equal(waited.faults, at_once.faults)
    owners = np.repeat(np.arange(len(PROMPTS)), COUNTS)
    for row, length, bits, owner in zip(
        waited.tokens, waited.lengths, waited.faults, owners, strict=True
    ):
        told = evidence.faults(BYTES.decode(row[:length]), PAGES[owner])
        assert faults_of(int(bits)) == told


def test_slots_are_taken_as_they_become_free(at_once, waited):
    """Not in turns that each wait for their longest sample."""
    last = np.cumsum(COUNTS)
    of_prompts = [
        int(at_once.lengths[end - count : end].max(initial=0))
        for end, count in zip(last, COUNTS, strict=True)
    ]
    ends = [0, 0]
    for length in of_prompts:
        ends[ends.index(min(ends))] += length
    assert waited.passes == max(ends)
    assert waited.passes < sum(max(of_prompts[i : i + 2]) for i in range(0, len(of_prompts), 2))


def test_prompts_that_wait_for_one_row_have_the_same_samples(at_once):
    """And so they have where layers are scanned."""
    model, params = model_and_parameters(**FREE)
    found = run(
        model, params, max_tokens=48, samples_per_prompt=COUNTS, prompts_in_flight=1,
        rows_per_prompt=1,
    )  # fmt: skip
    assert_same(found, at_once._replace(faults=None))


@pytest.mark.parametrize(
    ("changed", "slots", "rows"),
    [
        ({"num_layers": 1, "scan_layers": False, "position": "transformer_xl"}, 2, 2),
        pytest.param(
            {"position": "t5", "distance_buckets": 8, "max_distance": 20}, 3, 2, marks=LONG
        ),
        # All but the number of slots is that of `run_free`.
        pytest.param({"num_layers": 1, "scan_layers": False, **FREE}, 10, None, marks=LONG),
    ],
)
def test_waiting_changes_no_sample_whatever_positions_are(changed, slots, rows):
    model, params = model_and_parameters(**changed)
    assert has_kernel(model.config) == (model.config.head_dim == 16)
    wanted = run(model, params, samples_per_prompt=COUNTS)
    assert len(set(wanted.lengths.tolist())) > 3
    found = run(
        model, params, samples_per_prompt=COUNTS, prompts_in_flight=slots, rows_per_prompt=rows
    )
    assert_same(found, wanted)


QUOTING, LONGEST = 5, 60  # prompts, tokens


def run_quoting(params=None, head_dim=16, scan_layers=True, **options) -> Samples:
    model, usual = model_and_parameters(head_dim=head_dim, scan_layers=scan_layers)
    constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=10, maximum_claim=6))
    options |= {
        "quotes": constraint.tables(
            [constraint.graph(pages) for pages in PAGES[:QUOTING]], LONGEST
        ),
        "fault_tables": fault_tables(QUOTING),
        "max_tokens": LONGEST,
        "prompts": QUOTING,
        "samples_per_prompt": 3,
    }
    return run(model, usual if params is None else params, **options)


@pytest.fixture(scope="module")
def quoted_at_once() -> Samples:
    model, _ = model_and_parameters(head_dim=16)
    assert has_kernel(model.config)
    return run_quoting()


# On eight devices, below, they are as well, and what waits without a mesh is judged by
# tests/quoting/test_drawn_answers.py.
@LONG
def test_each_prompt_that_waited_is_quoted_and_tracked_as_itself(quoted_at_once):
    assert not np.any(quoted_at_once.faults)
    assert_same(run_quoting(prompts_in_flight=4, rows_per_prompt=2), quoted_at_once)


@LONG
@pytest.mark.parametrize("scan_layers", [False, True])
def test_prompts_that_waited_are_quoted_without_a_kernel(scan_layers):
    options = {"head_dim": 4, "scan_layers": scan_layers}
    found = run_quoting(prompts_in_flight=4, rows_per_prompt=2, **options)
    assert_same(found, run_quoting(**options))


# Without quotes, layers that are not scanned are cut as well.
@pytest.mark.parametrize("quoting", [pytest.param(False, marks=LONG), True])
def test_prompts_wait_on_eight_devices_too(quoted_at_once, at_once, quoting):
    options = {"head_dim": 16} if quoting else {"scan_layers": False, **FREE}
    model, params = model_and_parameters(**options)
    partitioner = Partitioner(make_mesh(data=2, fsdp=2, model=2))
    placed = jax.device_put(params, partitioner.shardings(model.logical_axes(), params))
    with partitioner.activate():
        if quoting:
            assert not np.any(quoted_at_once.faults)
            found = run_quoting(placed, prompts_in_flight=4, rows_per_prompt=2)
            assert_same(found, quoted_at_once)
        else:
            assert_same(run_free(placed, prompts_in_flight=4), at_once)


def test_no_seat_at_all_is_refused():
    model, params = model_and_parameters()
    with pytest.raises(ValueError, match="prompts_in_flight = 0: all must be at least 1"):
        run(model, params, prompts_in_flight=0)

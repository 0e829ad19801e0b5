"""Samples are the same however many prompts have slots, and rows are busier where others wait."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.models.kernel_attention import has_kernel
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from tests.long_forms import LONG
from tests.quoting.quote_worlds import TokenList

BYTES = TokenList(())  # bytes alone

CONFIG = TransformerConfig(
    vocab_size=BYTES.size,
    d_model=16,
    num_layers=2,
    num_heads=4,
    head_dim=4,
    dtype="float32",
    position="rope",
)
PROMPTS = [[5 + i, 6, 7 + i][: 1 + i % 3] * (1 + i) for i in range(11)]
PAGES = [
    [Document(str(i), f"Mill {i}", f"Mill {i} burned in 18{i:02}. It had {i} wheels.")]
    for i in range(11)
]


@functools.cache
def model_and_parameters(**changed):
    model = Transformer(dataclasses.replace(CONFIG, **changed))
    params = jax.jit(model.init)(jax.random.key(0))
    params["embed"]["embedding"] *= 2
    return model, params


def run(model, params, max_tokens=24, **options) -> Samples:
    settings = SamplingSettings(max_tokens=max_tokens, temperature=1.5)
    ends = {"eos_id": BYTES.eos_id, "pad_id": BYTES.pad_id, "vocabulary_size": BYTES.size}
    if "quotes" not in options:
        ends["other_eos_ids"] = range(10, 34)  # one token alone would hardly be drawn
    keys = jax.random.split(jax.random.key(1), len(PROMPTS))
    return sample(model, params, PROMPTS, keys, settings, **ends, **options)


def assert_same(found: Samples, wanted: Samples) -> None:
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_array_equal(found.lengths, wanted.lengths)
    for name in ("log_probs", "constrained_log_probs"):
        if getattr(wanted, name) is not None:
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=2e-5)
    if wanted.faults is not None:
        np.testing.assert_array_equal(found.faults, wanted.faults)


@pytest.mark.parametrize(
    ("changed", "slots", "rows"),
    [
        ({}, 1, 1),
        ({"scan_layers": False}, 3, None),
        ({"scan_layers": False, "position": "transformer_xl"}, 2, 2),
        ({"position": "t5", "distance_buckets": 8, "max_distance": 20}, 4, 2),
        ({"scan_layers": False, "position": "learned", "max_positions": 200, "head_dim": 16}, 3, 2),
        ({"head_dim": 16}, 10, None),
    ],
)
def test_prompts_that_wait_have_the_samples_that_they_have_at_once(changed, slots, rows):
    model, params = model_and_parameters(**changed)
    assert has_kernel(model.config) == (model.config.head_dim == 16)
    counts = [3, 1, 0, 2, 3, 3, 0, 1, 2, 3, 0]
    wanted = run(model, params, samples_per_prompt=counts)
    assert len(set(wanted.lengths.tolist())) > 3
    found = run(
        model, params, samples_per_prompt=counts, prompts_in_flight=slots, rows_per_prompt=rows
    )
    assert_same(found, wanted)


# Heads of 16 have a kernel.
@pytest.mark.parametrize("head_dim", [pytest.param(4, marks=LONG), 16])
def test_each_prompt_that_waited_is_quoted_and_tracked_as_itself(head_dim):
    model, params = model_and_parameters(head_dim=head_dim, scan_layers=False)
    constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=10, maximum_claim=6))
    tracker = FaultTracker(BYTES)
    options = {
        "quotes": constraint.tables([constraint.graph(pages) for pages in PAGES], 80),
        "fault_tables": tracker.tables([tracker.graph(pages) for pages in PAGES]),
        "max_tokens": 80,
        "samples_per_prompt": 3,
    }
    wanted = run(model, params, **options)
    assert not np.any(wanted.faults)
    found = run(model, params, prompts_in_flight=4, rows_per_prompt=2, **options)
    assert_same(found, wanted)


def test_free_samples_are_tracked_as_their_prompts():
    """Faults differ from page to page, as most samples quote nothing that is on any."""
    model, params = model_and_parameters()
    tracker = FaultTracker(BYTES)
    tables = tracker.tables([tracker.graph(pages) for pages in PAGES])
    options = {"fault_tables": tables, "samples_per_prompt": 4}
    assert_same(run(model, params, prompts_in_flight=2, **options), run(model, params, **options))


def test_slots_are_taken_as_they_become_free():
    """Not in turns that each wait for their longest sample."""
    model, params = model_and_parameters(scan_layers=False)
    whole = run(model, params, max_tokens=64)
    lengths = whole.lengths.tolist()
    ends = [0, 0]
    for length in lengths:
        ends[ends.index(min(ends))] += length
    waiting = run(model, params, max_tokens=64, prompts_in_flight=2)
    assert waiting.passes == max(ends)
    assert waiting.passes < sum(max(lengths[i : i + 2]) for i in range(0, len(lengths), 2))


@pytest.mark.parametrize(
    ("scan_layers", "quoting"),
    [pytest.param(False, False, marks=LONG), pytest.param(True, False, marks=LONG), (True, True)],
)
def test_prompts_wait_on_eight_devices_too(scan_layers, quoting):
    model, params = model_and_parameters(scan_layers=scan_layers)
    options = {"samples_per_prompt": 2}
    if quoting:
        constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=10, maximum_claim=6))
        tables = constraint.tables([constraint.graph(pages) for pages in PAGES], 80)
        options |= {"quotes": tables, "max_tokens": 80}
    alone = run(model, params, **options)
    partitioner = Partitioner(make_mesh(data=2, fsdp=2, model=2))
    placed = jax.device_put(params, partitioner.shardings(model.logical_axes(), params))
    with partitioner.activate():
        cut = run(model, placed, prompts_in_flight=4, **options)
    assert_same(cut, alone)


def test_no_seat_at_all_is_refused():
    model, params = model_and_parameters()
    with pytest.raises(ValueError, match="prompts_in_flight = 0: all must be at least 1"):
        run(model, params, prompts_in_flight=0)

"""What the real sampler writes for a browser: never what the browser refuses, nor a false citation.

The short form has some hundred samples and two programs; benchmarks/legal_commands.py goes on from
there.
"""

import collections
import functools

import numpy as np
import pytest

from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.quoting.table_sizes import TableSizes
from tests.commands.drawn_commands import CommandDrawer, Drawing
from tests.long_forms import LONG
from tests.quoting import page_kinds
from tests.quoting.drawn_answers import KERNEL
from tests.quoting.test_drawn_answers import TOKENIZERS

SIZES = TableSizes(1 << 15, 1 << 18)
# Rows that are refilled.
BUSY = Drawing(SamplingSettings(32, 1.2), episodes=6, rounds=6, rows=5, model=KERNEL)
PLAIN = Drawing(SamplingSettings(24), episodes=6, samples=8, rounds=8)


@functools.cache
def drawer(tokenizer, drawing):
    return CommandDrawer(tokenizer, drawing, SIZES)


@pytest.mark.parametrize(
    ("tokenizer", "drawing"),
    [(TOKENIZERS[0], BUSY), pytest.param(TOKENIZERS[-1], PLAIN, marks=LONG)],
    ids=["llama2-busy", "bundled"],
)
def test_everything_that_is_written_is_accepted(tokenizer, drawing):
    counts = collections.Counter()
    cited = marked = full = 0
    for seed, kind in enumerate(page_kinds.made_up().values()):
        judged = drawer(tokenizer, drawing).judge_batch(kind, seed)
        assert not judged.offences, judged.offences[0]
        counts += judged.samples
        cited += judged.cited
        marked += judged.marked
        full += judged.full
    assert counts.total() >= 1000
    assert 0 < full < counts.total()
    assert cited > 0, "no answer cites anything"
    assert marked > 0, "no quote is by its start and end"
    assert "?" not in counts
    assert len(counts) == 9, f"only {sorted(counts)}"


def one_token_too_few(tables):
    """Costs that say that texts can be ended with a token less than it takes."""
    return tables._replace(cost=tables.cost - 1)


def other_pages(tables):
    return tables._replace(first=np.roll(tables.first, 1))


def texts_hold_anything(tables):
    """In free texts each token leads where a letter does."""
    following = tables.claim_next.copy()
    following[following == 255] = 20
    return tables._replace(claim_next=following)


@pytest.mark.parametrize("damage", [one_token_too_few, other_pages, texts_hold_anything])
def test_damaged_tables_are_found_out(damage):
    broken = CommandDrawer(TOKENIZERS[0], BUSY, SIZES, damage)
    kinds = page_kinds.made_up().values()
    assert any(broken.judge_batch(kind, seed).offences for seed, kind in enumerate(kinds))

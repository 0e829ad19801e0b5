"""Drafts change how often the model runs, and nothing else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.in_flight import capacities
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.speculation import Draft, accepted
from gophercite.documents import Document
from gophercite.models.cache import compact, forget_rows, keep_first
from gophercite.models.config import TransformerConfig
from gophercite.models.kernel_attention import has_kernel
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from tests.long_forms import LONG
from tests.quoting.quote_worlds import TokenList

# Bytes alone: on from most places in a quote goes one token, besides its end.
BYTES = TokenList(())
PAGES = [
    [Document("a", "Cats", "the cat sat on the mat. it was warm there and it slept until noon.")],
    [Document("b", "Dogs", "a dog ran. it barked at cats."), Document("c", "Do", "do not run.")],
]
PROMPTS = [[3, 4, 5], [7, 8]]
CONFIG = TransformerConfig(
    vocab_size=BYTES.size + 1, d_model=16, num_layers=2, num_heads=2, head_dim=8, dtype="float32"
)
MODEL = Transformer(CONFIG)
PARAMS = jax.jit(MODEL.init)(jax.random.key(0))
PARAMS["embed"]["embedding"] *= 2  # neither flat nor certain


def run(draft_tokens, quotes, settings, pages=PAGES, model=MODEL, params=PARAMS, **options):
    constraint = QuoteConstraint(BYTES, quotes)
    tables = constraint.tables([constraint.graph(shown) for shown in pages], settings.max_tokens)
    return sample(
        model,
        params,
        PROMPTS[: len(pages)],
        jax.random.key(1),
        dataclasses.replace(settings, draft_tokens=draft_tokens),
        eos_id=BYTES.eos_id,
        pad_id=BYTES.pad_id,
        quotes=tables,
        **options,
    )


# A kernel, with drafts of prompts that wait: test_waiting_prompts.py.
@pytest.mark.parametrize("kernel", [False, pytest.param(True, marks=LONG)])
def test_samples_are_those_of_plain_sampling(kernel):
    """Rows that begin anew, moves that make room in the cache, and quotes of several runs, too."""
    quotes = QuoteSettings(minimum_quote=10, maximum_claim=6, maximum_omissions=1)
    changed = {"position": "rope", "head_dim": 16} if kernel else {}
    config = dataclasses.replace(CONFIG, scan_layers=False, **changed)
    assert has_kernel(config) == kernel
    model = Transformer(config)
    params = jax.jit(model.init)(jax.random.key(0))
    params["embed"]["embedding"] *= 2
    tracker = FaultTracker(BYTES, quotes.minimum_quote, quotes.maximum_omissions)
    options = {
        "fault_tables": tracker.tables([tracker.graph(pages) for pages in PAGES]),
        "samples_per_prompt": 7,
        "rows_per_prompt": 2,
        "params": params,
    }
    settings = SamplingSettings(max_tokens=80)
    plain, quick = (run(count, quotes, settings, model=model, **options) for count in (0, 4))
    np.testing.assert_array_equal(quick.tokens, plain.tokens)
    np.testing.assert_array_equal(quick.lengths, plain.lengths)
    np.testing.assert_allclose(quick.log_probs, plain.log_probs, atol=1e-5)
    np.testing.assert_allclose(quick.constrained_log_probs, plain.constrained_log_probs, atol=1e-5)
    assert not np.any(quick.faults)
    assert any(" [...] " in BYTES.decode(row) for row in quick.tokens)
    assert quick.passes < plain.passes


def test_samples_are_the_same_where_room_grows():
    quotes = QuoteSettings(minimum_quote=10, maximum_claim=6)
    config = dataclasses.replace(CONFIG, num_layers=1, head_dim=512, scan_layers=False)
    model, settings = Transformer(config), SamplingSettings(max_tokens=64)
    params = jax.jit(model.init)(jax.random.key(0))
    options = {"samples_per_prompt": 64, "pages": PAGES[:1], "model": model, "params": params}
    assert [len(capacities(config, rows, 64)) for rows in (64, 16)] == [3, 1]
    plain = run(0, quotes, settings, rows_per_prompt=16, **options)
    quick = run(3, quotes, settings, **options)
    assert plain.lengths.max() > 32
    np.testing.assert_array_equal(quick.tokens, plain.tokens)
    np.testing.assert_allclose(quick.log_probs, plain.log_probs, atol=1e-4)


def test_what_can_only_go_on_one_way_takes_a_pass_for_each_draft():
    text = PAGES[0][0].text
    whole = QuoteSettings(minimum_quote=len(text), maximum_claim=1)
    settings = SamplingSettings(max_tokens=100, free_log_probs=False)
    made = run(3, whole, settings, PAGES[:1])
    assert text in BYTES.decode(made.tokens[0])
    # " %<x>" a token a pass; what follows in fours; the last draft may be cut short.
    assert made.passes <= 5 + -(-(made.lengths[0] - 5) // 4) + 1


def test_a_draft_counts_up_to_its_first_token_that_was_not_drawn():
    tokens = jnp.array([[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]])
    made = jnp.array([[True] * 3, [True] * 3, [True, False, False], [False] * 3])
    drawn = jnp.array([[1, 2, 3], [1, 9, 3], [1, 2, 3], [1, 2, 3]])
    assert accepted(Draft(tokens, made, states=None), drawn).tolist() == [3, 1, 1, 0]


def test_moving_a_cache_s_tokens_together_changes_nothing():
    prompts, lengths = jnp.array([[5, 6, 7], [8, 9, 0]]), jnp.array([3, 2])
    cache = MODEL.prefill(PARAMS, prompts, lengths, 12, 2).cache
    drafted = jnp.arange(16).reshape(4, 4) + 3
    first = jnp.repeat(lengths, 2)[:, None]
    real = jnp.ones((4, 4), bool)
    cache = MODEL.decode(PARAMS, drafted, first + jnp.arange(4), real, cache).cache
    kept = jnp.array([[4, 1], [2, 3]])
    cache = keep_first(cache, kept, 4)
    cache = forget_rows(cache, jnp.array([[False, False], [False, True]]))
    kept = kept.at[1, 1].set(0)
    np.testing.assert_array_equal(cache.entries.filled.sum(axis=-1), kept)

    moved = compact(cache)
    assert int(moved.entries.next) == 4
    places = first + kept.reshape(-1, 1)
    following = jnp.array([[3], [4], [5], [6]])
    real = jnp.ones((4, 1), bool)
    before = MODEL.decode(PARAMS, following, places, real, cache).hidden
    after, now, _ = MODEL.decode(PARAMS, following, places, real, moved)
    np.testing.assert_allclose(after, before, atol=1e-6)
    np.testing.assert_array_equal(now.entries.filled.sum(axis=-1), kept + 1)

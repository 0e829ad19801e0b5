import dataclasses
import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.in_flight import capacities
from gophercite.decoding.response_automaton import faults_of
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling import draw
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.attention import MASKED
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.quoting.constraint import QuoteConstraint
from tests.quoting.quote_worlds import HOSTILE_PIECES, TokenList, is_legal

CONFIG = TransformerConfig(
    vocab_size=23, d_model=16, num_layers=2, num_heads=2, head_dim=8, dtype="float32"
)
MODEL = Transformer(CONFIG)
PARAMS = jax.jit(MODEL.init)(jax.random.key(0))
PARAMS["embed"]["embedding"] *= 2  # neither flat nor certain
PROMPTS = [[3, 4, 5], [7], [9, 10, 11, 12, 13, 14, 15]]


def run(settings, prompts=PROMPTS, key=1, **options):
    key = jax.random.key(key) if isinstance(key, int) else key
    return sample(MODEL, PARAMS, prompts, key, settings, eos_id=1, pad_id=0, **options)


@jax.jit
def forward(tokens):
    places = jnp.arange(tokens.shape[1])[None]
    hidden, _ = MODEL.apply(PARAMS, tokens, places, jnp.ones_like(tokens))
    return MODEL.logits(PARAMS, hidden)


def next_logits(tokens):
    """Of each token of a text, one program for all lengths: what comes after changes nothing."""
    padded = np.zeros((1, 24), np.int32)
    padded[0, : len(tokens)] = tokens
    return np.asarray(forward(padded)[0, : len(tokens)])


def test_greedy_takes_the_likeliest_token_and_stops_at_the_end():
    samples = run(SamplingSettings(max_tokens=12, temperature=0))
    for prompt, tokens, length in zip(PROMPTS, samples.tokens, samples.lengths, strict=True):
        text = list(prompt)
        for token in tokens[:length]:
            assert token == next_logits(text)[-1].argmax()
            text.append(int(token))
        assert length == 12 or text[-1] == 1
        assert np.all(tokens[length:] == 0)


def test_a_sample_stops_at_any_of_the_ends():
    settings = SamplingSettings(max_tokens=12)
    whole = run(settings, samples_per_prompt=4)
    others = whole.tokens[0, 3], whole.tokens[5, 2]
    assert 1 not in others  # the one end that the samples had
    cut = run(settings, samples_per_prompt=4, other_eos_ids=[int(end) for end in others])
    for row, (tokens, length) in enumerate(zip(whole.tokens, whole.lengths, strict=True)):
        kept = tokens[:length]
        (ends,) = np.nonzero(np.isin(kept, others))
        expected = kept[: ends[0] + 1] if len(ends) else kept
        np.testing.assert_array_equal(cut.tokens[row, : cut.lengths[row]], expected)
    assert cut.lengths.sum() < whole.lengths.sum()


def test_log_probs_are_the_model_s_own():
    samples = run(SamplingSettings(max_tokens=10, temperature=0.7, top_p=0.9))
    for row, prompt in enumerate(PROMPTS):
        tokens = samples.tokens[row, : samples.lengths[row]]
        logits = next_logits([*prompt, *tokens])[len(prompt) - 1 : -1]
        expected = np.asarray(jax.nn.log_softmax(logits))[np.arange(len(tokens)), tokens]
        np.testing.assert_allclose(samples.log_probs[row, : len(tokens)], expected, atol=1e-5)
        assert not np.any(samples.log_probs[row, len(tokens) :])


def test_the_same_key_draws_the_same_and_another_differs():
    settings = SamplingSettings(max_tokens=16)
    assert np.array_equal(run(settings).tokens, run(settings).tokens)
    assert not np.array_equal(run(settings).tokens, run(settings, key=2).tokens)


def test_a_row_s_draws_do_not_depend_on_the_rows_beside_it():
    settings = SamplingSettings(max_tokens=16)
    other = [PROMPTS[0], [2, 2, 2], [5]]
    assert np.array_equal(run(settings).tokens[0], run(settings, other).tokens[0])


def test_draws_follow_the_distribution():
    logits = jnp.log(jnp.array([0.5, 0.0, 0.2, 0.3])) * 2
    count = 20_000
    uniforms = (jnp.arange(count) + 0.5) / count
    tokens = draw(
        jnp.broadcast_to(logits, (count, 4)), uniforms, SamplingSettings(temperature=2.0)
    ).token
    frequencies = np.bincount(np.asarray(tokens), minlength=4) / count
    np.testing.assert_allclose(frequencies, [0.5, 0, 0.2, 0.3], atol=1e-3)


def test_top_p_keeps_the_smallest_sufficient_set():
    logits = jnp.log(jnp.array([0.1, 0.45, 0.15, 0.3]))
    uniforms = jnp.linspace(0, 1, 1000, endpoint=False)
    rows = jnp.broadcast_to(logits, (1000, 4))
    kept = lambda p: set(np.asarray(draw(rows, uniforms, SamplingSettings(top_p=p)).token).tolist())  # noqa: E731
    assert kept(0.4) == {1}
    assert kept(0.7) == {1, 3}
    assert kept(0.89) == {1, 2, 3}
    assert kept(1.0) == {0, 1, 2, 3}


def test_top_k_keeps_the_likeliest_and_their_equals():
    logits = jnp.log(jnp.array([0.1, 0.3, 0.15, 0.3, 0.15]))
    uniforms = jnp.linspace(0, 1, 1000, endpoint=False)
    rows = jnp.broadcast_to(logits, (1000, 5))
    kept = lambda k: set(np.asarray(draw(rows, uniforms, SamplingSettings(top_k=k)).token).tolist())  # noqa: E731
    assert kept(1) == kept(2) == {1, 3}
    assert kept(3) == kept(4) == {1, 2, 3, 4}
    assert kept(9) == {0, 1, 2, 3, 4}


CHOICES = 300  # several blocks of a cumulative sum, the last not full
draw_one = jax.jit(functools.partial(draw, settings=SamplingSettings()))


@hypothesis.settings(deadline=None)  # the first draw is compiled
@given(
    st.lists(st.floats(-30, 5, width=32), min_size=CHOICES, max_size=CHOICES),
    st.sets(st.integers(0, CHOICES - 1), min_size=1),
    st.floats(0, 1, exclude_max=True, width=32),
)
def test_what_is_masked_is_never_drawn(logits, legal, uniform):
    row = np.full(CHOICES, MASKED, np.float32)
    row[list(legal)] = np.array(logits, np.float32)[list(legal)]
    drawn = draw_one(row[None], jnp.array([uniform], jnp.float32))
    assert int(drawn.token[0]) in legal
    expected = np.asarray(jax.nn.log_softmax(row))[int(drawn.token[0])]
    np.testing.assert_allclose(drawn.log_prob[0], expected, atol=1e-4)


def test_samples_of_one_prompt_differ_and_are_the_model_s():
    settings = SamplingSettings(max_tokens=8)
    many = run(settings, samples_per_prompt=5)
    assert many.tokens.shape == (15, 8)
    assert len({tuple(row) for row in many.tokens[:5].tolist()}) > 1
    for row, tokens in enumerate(many.tokens):
        prompt, length = PROMPTS[row // 5], many.lengths[row]
        logits = next_logits([*prompt, *tokens[:length]])[len(prompt) - 1 : -1]
        expected = np.asarray(jax.nn.log_softmax(logits))[np.arange(length), tokens[:length]]
        np.testing.assert_allclose(many.log_probs[row, :length], expected, atol=1e-5)
    one = run(settings)
    assert np.array_equal(many.tokens[::5], one.tokens)


@pytest.mark.parametrize(("scan_layers", "rows"), [(True, 3), (False, 1)])
def test_rows_that_have_ended_go_on_with_their_prompt_s_next_sample(scan_layers, rows):
    model = Transformer(dataclasses.replace(CONFIG, scan_layers=scan_layers))
    settings = SamplingSettings(max_tokens=9)
    ends = {"eos_id": 1, "pad_id": 0, "samples_per_prompt": 7}
    together = sample(model, PARAMS, PROMPTS, jax.random.key(1), settings, **ends)
    assert len(set(together.lengths.tolist())) > 2
    few = sample(model, PARAMS, PROMPTS, jax.random.key(1), settings, rows_per_prompt=rows, **ends)
    assert np.array_equal(few.tokens, together.tokens)
    assert np.array_equal(few.lengths, together.lengths)
    np.testing.assert_allclose(few.log_probs, together.log_probs, atol=1e-5)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_room_that_grows_changes_no_sample(scan_layers):
    """256 samples have theirs bit by bit; 64, which go on with others, all at once."""
    config = dataclasses.replace(CONFIG, head_dim=64, scan_layers=scan_layers)
    model, settings = Transformer(config), SamplingSettings(max_tokens=65)
    params = jax.jit(model.init)(jax.random.key(0))
    assert [len(capacities(config, rows, 65)) for rows in (256, 64)] == [3, 1]
    few, many = (
        sample(
            model, params, PROMPTS[:1], jax.random.key(1), settings, eos_id=1, pad_id=0,
            samples_per_prompt=256, rows_per_prompt=rows,
        )
        for rows in (64, 256)
    )  # fmt: skip
    assert many.lengths.max() == 65
    assert np.array_equal(few.tokens, many.tokens)
    np.testing.assert_allclose(few.log_probs, many.log_probs, atol=1e-4)


def test_room_that_grows_is_cut_over_a_mesh():
    config = dataclasses.replace(CONFIG, head_dim=64)
    model, settings = Transformer(config), SamplingSettings(max_tokens=65)
    params = jax.jit(model.init)(jax.random.key(0))
    options = {"eos_id": 1, "pad_id": 0, "samples_per_prompt": 256}
    alone = sample(model, params, PROMPTS[:1], jax.random.key(1), settings, **options)
    partitioner = Partitioner(make_mesh(data=4, model=2))
    placed = jax.device_put(params, partitioner.shardings(model.logical_axes(), params))
    with partitioner.activate():
        cut = sample(model, placed, PROMPTS[:1], jax.random.key(1), settings, **options)
    assert np.array_equal(cut.tokens, alone.tokens)
    np.testing.assert_allclose(cut.log_probs, alone.log_probs, atol=1e-4)


@pytest.mark.parametrize("rows", [None, 2])
def test_prompts_may_have_different_numbers_of_samples(rows):
    settings = SamplingSettings(max_tokens=9)
    whole = run(settings, samples_per_prompt=4)
    counts = (4, 0, 3)
    few = run(settings, samples_per_prompt=counts, rows_per_prompt=rows)
    rows_of_whole = [4 * prompt + row for prompt in range(3) for row in range(counts[prompt])]
    assert np.array_equal(few.tokens, whole.tokens[rows_of_whole])
    assert np.array_equal(few.lengths, whole.lengths[rows_of_whole])
    np.testing.assert_allclose(few.log_probs, whole.log_probs[rows_of_whole], atol=1e-5)


@pytest.mark.parametrize(
    ("counts", "named"), [((1, 2), "2 numbers for 3 prompts"), ((0, 0, 0), "at least 1")]
)
def test_numbers_of_samples_that_make_no_sense_are_refused(counts, named):
    with pytest.raises(ValueError, match=named):
        run(SamplingSettings(max_tokens=4), samples_per_prompt=counts)


def test_a_prompt_s_own_key_makes_its_samples_the_same_in_any_batch():
    settings = SamplingSettings(max_tokens=10)
    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    first = run(settings, key=keys, samples_per_prompt=2)
    turned = run(settings, PROMPTS[::-1], key=keys[::-1], samples_per_prompt=2)
    for prompt in range(3):
        theirs = turned.tokens[2 * (2 - prompt) :][:2]
        assert np.array_equal(first.tokens[2 * prompt :][:2], theirs)


@pytest.mark.parametrize(
    ("prompts", "scan_layers"), [(PROMPTS[:1], False), ([*PROMPTS, [2, 3]], True)]
)
def test_eight_devices_sample_what_one_does(prompts, scan_layers):
    """A prompt's samples are cut over the devices, or the prompts where there are enough."""
    config = dataclasses.replace(CONFIG, scan_layers=scan_layers, num_heads=4, head_dim=4)
    model = Transformer(config)
    params = jax.jit(model.init)(jax.random.key(0))
    settings = SamplingSettings(max_tokens=8)
    options = {"eos_id": 1, "pad_id": 0, "samples_per_prompt": 4}
    alone = sample(model, params, prompts, jax.random.key(1), settings, **options)
    partitioner = Partitioner(make_mesh(data=2, fsdp=2, model=2))
    placed = jax.device_put(params, partitioner.shardings(model.logical_axes(), params))
    with partitioner.activate():
        cut = sample(model, placed, prompts, jax.random.key(1), settings, **options)
    assert np.array_equal(cut.tokens, alone.tokens)
    np.testing.assert_allclose(cut.log_probs, alone.log_probs, atol=1e-5)


def test_one_program_serves_prompts_of_a_bucket():
    settings = SamplingSettings(max_tokens=5)
    run(settings)
    before = decode._cache_size()
    run(settings, [[5] * 40, [2], [3, 4]])
    assert decode._cache_size() == before


def test_one_program_serves_all_pages_of_a_bucket():
    settings = SamplingSettings(max_tokens=30)
    constrained(settings)
    before = decode._cache_size()
    other = [
        [
            Document(
                "e",
                "Elsewhere",
                f"page number {n} tells of {n} cats that sat on {n} mats by {n} rats",
            )
        ]
        for n in range(3)
    ]
    constrained(settings, key=5, pages=other)
    constrained(settings, key=6, pages=[*other[1:], PAGES[0]])
    assert decode._cache_size() == before


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 0}, "top_k"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, named):
    with pytest.raises(ValueError, match=named):
        SamplingSettings(**settings)


@pytest.mark.parametrize("prompts", [[], [[3], []]])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(ValueError, match="prompt"):
        run(SamplingSettings(), prompts)


HOSTILE = TokenList(HOSTILE_PIECES)
QUOTING = Transformer(dataclasses.replace(CONFIG, vocab_size=HOSTILE.size + 3))
QUOTING_PARAMS = jax.jit(QUOTING.init)(jax.random.key(3))
PAGES = [
    [Document("a", "T", "the cat sat on the mat. It was ☃ day]% and so on.")],
    [Document("b", "Th", "one page"), Document("c", "The [T]", "another, é longer page")],
    [Document("d", "", "  \n  the third")],
]


def constrained(settings, key=1, pages=None, **options):
    constraint = QuoteConstraint(HOSTILE)
    graphs = [constraint.graph(shown) for shown in pages or PAGES]
    tables = constraint.tables(graphs, settings.max_tokens)
    key = jax.random.key(key)
    ends = {"eos_id": HOSTILE.eos_id, "pad_id": HOSTILE.pad_id, "quotes": tables}
    return sample(QUOTING, QUOTING_PARAMS, PROMPTS, key, settings, **ends, **options)


@pytest.mark.parametrize("key", range(4))
@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(max_tokens=40),
        SamplingSettings(max_tokens=25, temperature=0),
        SamplingSettings(max_tokens=40, temperature=2.0, top_p=0.5),
    ],
)
def test_constrained_samples_are_legal_and_end(settings, key):
    samples = constrained(settings, key)
    for row, length, pages in zip(samples.tokens, samples.lengths, PAGES, strict=True):
        assert row[length - 1] == HOSTILE.eos_id
        assert is_legal(HOSTILE.decode(row[:length]), pages)


def test_many_constrained_samples_are_legal_however_many_rows_are_wide():
    settings = SamplingSettings(max_tokens=40)
    samples = constrained(settings, samples_per_prompt=16, rows_per_prompt=6)
    for row, (tokens, length) in enumerate(zip(samples.tokens, samples.lengths, strict=True)):
        assert is_legal(HOSTILE.decode(tokens[:length]), PAGES[row // 16])
    only = dataclasses.replace(settings, free_log_probs=False)
    alone = constrained(only, samples_per_prompt=16)
    assert np.array_equal(alone.tokens, samples.tokens)
    assert alone.log_probs is None
    np.testing.assert_allclose(
        alone.constrained_log_probs, samples.constrained_log_probs, atol=1e-4
    )


@pytest.mark.parametrize("held", [False, True])
def test_faults_of_each_sample_are_told(held):
    """Free samples are mostly malformed, constrained ones never; refilled rows begin anew."""
    tracker = FaultTracker(HOSTILE)
    tables = tracker.tables([tracker.graph(pages) for pages in PAGES])
    settings = SamplingSettings(max_tokens=40)
    options = {"fault_tables": tables, "samples_per_prompt": 12, "rows_per_prompt": 5}
    if held:
        samples = constrained(settings, **options)
    else:
        options |= {"eos_id": HOSTILE.eos_id, "pad_id": HOSTILE.pad_id}
        options["vocabulary_size"] = HOSTILE.size  # the model has three rows to spare
        key = jax.random.key(4)
        samples = sample(QUOTING, QUOTING_PARAMS, PROMPTS, key, settings, **options)
        assert samples.tokens.max() < HOSTILE.size
    for row, (tokens, length) in enumerate(zip(samples.tokens, samples.lengths, strict=True)):
        text = HOSTILE.decode(tokens[:length])
        assert faults_of(int(samples.faults[row])) == evidence.faults(text, PAGES[row // 12])
    assert bool(np.any(samples.faults)) is not held


def test_constrained_log_probabilities_are_renormalised_over_what_was_allowed():
    samples = constrained(SamplingSettings(max_tokens=30))
    assert samples.constrained_log_probs is not None
    assert (samples.constrained_log_probs >= samples.log_probs - 1e-5).all()
    # Where the answer begins there is a handful of spellings of " %<"; unconstrained, all tokens.
    assert (samples.constrained_log_probs[:, 0] > samples.log_probs[:, 0] + 1).all()
    padding = np.arange(30) >= samples.lengths[:, None]
    assert (samples.constrained_log_probs[padding] == 0).all()
    assert run(SamplingSettings(max_tokens=3)).constrained_log_probs is None

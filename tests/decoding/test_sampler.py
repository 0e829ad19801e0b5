import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite import evidence
from gophercite.decoding import in_flight
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.in_flight import capacities
from gophercite.decoding.response_automaton import faults_of
from gophercite.decoding.sampler import NotNumbersError, sample
from gophercite.decoding.sampling import draw, draw_allowed, given
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.scoring import score
from gophercite.documents import Document
from gophercite.models.attention import MASKED
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_state import allowed, initial
from tests.drawn_parameters import drawn_parameters
from tests.long_forms import LONG
from tests.quoting.quote_worlds import HOSTILE_PIECES, TokenList, is_legal

CONFIG = TransformerConfig(
    vocab_size=23, d_model=16, num_layers=2, num_heads=4, head_dim=4, dtype="float32"
)
MODEL = Transformer(CONFIG)
PROMPTS = [[3, 4, 5], [7], [9, 10, 11, 12, 13, 14, 15], [2, 3]]

# Each setting, number of samples and number of rows has a program of its own, and compiling it is
# all that takes time: most tests draw eight samples of each prompt in this way.
DRAWN = SamplingSettings(max_tokens=12, temperature=1.5, top_p=0.95)
MANY = 8


@functools.cache
def parameters():
    params = drawn_parameters(MODEL)
    params["embed"]["embedding"] *= 2  # neither flat nor certain
    return params


def run(
    settings=DRAWN, prompts=PROMPTS, key=1, *, model=MODEL, params=None, samples=MANY, **options
):
    # A key for each prompt; `constrained`, below, has one for all.
    if isinstance(key, int):
        key = jax.random.split(jax.random.key(key), len(PROMPTS))[: len(prompts)]
    # As on accelerators; test_branches.py is about what a CPU does by default.
    options |= {"eos_id": 1, "pad_id": 0, "samples_per_prompt": samples, "branches": ()}
    return sample(model, params or parameters(), prompts, key, settings, **options)


@pytest.fixture(scope="module")
def drawn():
    return run()


@functools.partial(jax.jit, static_argnums=0)
def forward(model, params, tokens):
    places = jnp.arange(tokens.shape[1])[None]
    hidden, _ = model.apply(params, tokens, places, jnp.ones_like(tokens))
    return model.logits(params, hidden)


def next_logits(tokens, model=MODEL, params=None):
    """Of each token of a text, one program for all lengths: what comes after changes nothing."""
    padded = np.zeros((1, 30), np.int32)
    padded[0, : len(tokens)] = tokens
    return np.asarray(forward(model, params or parameters(), padded)[0, : len(tokens)])


def changed(**fields):
    return Transformer(dataclasses.replace(CONFIG, **fields))


# A prompt and its answer take all 30 positions; a bucket would be 64.
SHORT = changed(position="learned", max_positions=30, num_layers=1)
FILLING = [[3] * 18, [4], PROMPTS[2], [2, 3]]


@pytest.fixture(scope="module")
def short_parameters():
    return drawn_parameters(SHORT)


@pytest.fixture(scope="module")
def greedy(short_parameters):
    settings = SamplingSettings(max_tokens=12, temperature=0)
    return run(settings, FILLING, model=SHORT, params=short_parameters, samples=1)


def test_greedy_takes_the_likeliest_token_and_stops_at_the_end(greedy, short_parameters):
    for prompt, tokens, length in zip(FILLING, greedy.tokens, greedy.lengths, strict=True):
        text = list(prompt)
        for token in tokens[:length]:
            assert token == next_logits(text, SHORT, short_parameters)[-1].argmax()
            text.append(int(token))
        assert length == 12 or text[-1] == 1
        assert np.all(tokens[length:] == 0)


def test_log_probs_are_the_model_s_own(drawn):
    """Neither the temperature nor top-p is in them."""
    assert DRAWN.temperature != 1
    assert DRAWN.top_p < 1
    for row, tokens in enumerate(drawn.tokens):
        prompt, length = PROMPTS[row // MANY], drawn.lengths[row]
        logits = next_logits([*prompt, *tokens[:length]])[len(prompt) - 1 : -1]
        expected = log_softmax(logits)[np.arange(length), tokens[:length]]
        np.testing.assert_allclose(drawn.log_probs[row, :length], expected, atol=1e-5)
        assert not np.any(drawn.log_probs[row, length:])


def test_the_same_key_draws_the_same_and_another_differs(drawn):
    assert np.array_equal(run().tokens, drawn.tokens)
    assert not np.array_equal(run(key=2).tokens, drawn.tokens)


def test_a_row_s_draws_do_not_depend_on_the_rows_beside_it(drawn):
    other = [PROMPTS[0], [2, 2, 2], [5], [6, 6]]
    assert np.array_equal(run(prompts=other).tokens[:MANY], drawn.tokens[:MANY])


drawn_by = jax.jit(draw, static_argnums=2)


def test_draws_follow_the_distribution():
    logits = np.array([np.log(0.5), -np.inf, np.log(0.2), np.log(0.3)], np.float32) * 2
    count = 20_000
    uniforms = (np.arange(count, dtype=np.float32) + 0.5) / count
    tokens = drawn_by(
        np.broadcast_to(logits, (count, 4)), uniforms, SamplingSettings(temperature=2.0)
    ).token
    frequencies = np.bincount(np.asarray(tokens), minlength=4) / count
    np.testing.assert_allclose(frequencies, [0.5, 0, 0.2, 0.3], atol=1e-3)


def test_top_p_keeps_the_smallest_sufficient_set():
    logits = np.log(np.array([0.1, 0.45, 0.15, 0.3], np.float32))
    uniforms = np.linspace(0, 1, 1000, endpoint=False, dtype=np.float32)
    rows = np.broadcast_to(logits, (1000, 4))

    def kept(p):
        return {*np.asarray(drawn_by(rows, uniforms, SamplingSettings(top_p=p)).token).tolist()}

    assert kept(0.4) == {1}
    assert kept(0.7) == {1, 3}
    assert kept(0.89) == {1, 2, 3}
    assert kept(1.0) == {0, 1, 2, 3}


def test_top_k_keeps_the_likeliest_and_their_equals():
    logits = np.log(np.array([0.1, 0.3, 0.15, 0.3, 0.15], np.float32))
    uniforms = np.linspace(0, 1, 1000, endpoint=False, dtype=np.float32)
    rows = np.broadcast_to(logits, (1000, 5))

    def kept(k):
        return {*np.asarray(drawn_by(rows, uniforms, SamplingSettings(top_k=k)).token).tolist()}

    assert kept(1) == kept(2) == {1, 3}
    assert kept(3) == kept(4) == {1, 2, 3, 4}
    assert kept(9) == {0, 1, 2, 3, 4}


def log_softmax(logits):
    above = logits - logits.max(-1, keepdims=True)
    return above - np.log(np.exp(above).sum(-1, keepdims=True))


CHOICES = 300  # several blocks of a cumulative sum, the last not full


def test_what_is_masked_is_never_drawn():
    rng, rows = np.random.default_rng(0), 2_000
    logits = rng.uniform(-30, 5, (rows, CHOICES)).astype(np.float32)
    legal = rng.random((rows, CHOICES)) < rng.choice([0.01, 0.1, 0.9], (rows, 1))
    legal[np.arange(rows), rng.integers(CHOICES, size=rows)] = True
    legal[0] = True
    logits[~legal] = MASKED
    # Rounding is in the way at the ends above all.
    ends = np.array([0, np.finfo(np.float32).tiny, np.nextafter(np.float32(1), 0)], np.float32)
    uniforms = np.where(rng.random(rows) < 0.5, rng.choice(ends, rows), rng.random(rows))
    made = drawn_by(logits, uniforms.astype(np.float32), SamplingSettings())
    tokens = np.asarray(made.token)
    assert np.all(legal[np.arange(rows), tokens])
    expected = log_softmax(logits)[np.arange(rows), tokens]
    np.testing.assert_allclose(made.log_prob, expected, atol=1e-4)


def test_logits_that_are_not_numbers_are_an_error():
    """Neither samples of a damaged model nor a crash."""
    for value in (jnp.nan, jnp.inf):
        damaged = jax.tree.map(lambda leaf, value=value: jnp.full_like(leaf, value), parameters())
        with pytest.raises(NotNumbersError, match="the model's logits are not numbers"):
            run(params=damaged)


def test_samples_of_one_prompt_differ(drawn):
    assert drawn.tokens.shape == (len(PROMPTS) * MANY, 12)
    for prompt in range(len(PROMPTS)):
        assert len({tuple(row) for row in drawn.tokens[MANY * prompt :][:MANY].tolist()}) > 1


def assert_close(found, wanted, rows=slice(None), atol=1e-5):
    """Whether samples are some of the others, in rows of theirs."""
    np.testing.assert_array_equal(found.tokens, wanted.tokens[rows])
    np.testing.assert_array_equal(found.lengths, wanted.lengths[rows])
    np.testing.assert_allclose(found.log_probs, wanted.log_probs[rows], atol=atol)


COUNTS = MANY, 0, 3, 1
OF_COUNTS = [MANY * prompt + row for prompt in range(4) for row in range(COUNTS[prompt])]


def test_prompts_may_have_different_numbers_of_samples(drawn):
    assert_close(run(samples=COUNTS), drawn, OF_COUNTS)


def test_a_sample_stops_at_any_of_the_ends(drawn):
    """And its row goes on with its prompt's next sample. Layers are not scanned; above they are."""
    others = drawn.tokens[0, 3], drawn.tokens[MANY + 1, 2]
    assert 1 not in others  # the one end that the samples had
    model, ends = changed(scan_layers=False), [int(end) for end in others]
    cut = run(model=model, other_eos_ids=ends, rows_per_prompt=3)
    for row, (tokens, length) in enumerate(zip(drawn.tokens, drawn.lengths, strict=True)):
        kept = tokens[:length]
        (ended,) = np.nonzero(np.isin(kept, others))
        expected = kept[: ended[0] + 1] if len(ended) else kept
        np.testing.assert_array_equal(cut.tokens[row, : cut.lengths[row]], expected)
        there = slice(cut.lengths[row])
        np.testing.assert_allclose(
            cut.log_probs[row, there], drawn.log_probs[row, there], atol=1e-5
        )
    assert cut.lengths.sum() < drawn.lengths.sum()
    assert len(set(cut.lengths.tolist())) > 2
    found = run(model=model, other_eos_ids=ends, rows_per_prompt=3, samples=COUNTS)
    assert_close(found, cut, OF_COUNTS)


@pytest.fixture
def growing(monkeypatch):
    """Even the cache of so few samples grows in steps; programs are others than without."""
    monkeypatch.setattr(in_flight, "_WORTH_GROWING", 1)
    assert capacities(CONFIG, MANY, 12) == (3, 6, 12)


# On a mesh, below, room grows where layers are scanned.
@pytest.mark.parametrize("scan_layers", [False, pytest.param(True, marks=LONG)])
def test_room_that_grows_changes_no_sample(drawn, growing, scan_layers):
    assert drawn.lengths.max() == 12
    # Another end, which is the same one, makes this another program than that of `drawn`.
    found = run(model=changed(scan_layers=scan_layers), other_eos_ids=[1])
    assert_close(found, drawn)


@pytest.mark.parametrize(
    ("counts", "named"), [((1, 2), "2 numbers for 4 prompts"), ((0, 0, 0, 0), "at least 1")]
)
def test_numbers_of_samples_that_make_no_sense_are_refused(counts, named):
    with pytest.raises(ValueError, match=named):
        run(samples=counts)


def test_a_prompt_s_own_key_makes_its_samples_the_same_in_any_batch(drawn):
    keys = jax.random.split(jax.random.key(1), 4)
    turned = run(prompts=PROMPTS[::-1], key=keys[::-1])
    for prompt in range(4):
        theirs = turned.tokens[MANY * (3 - prompt) :][:MANY]
        assert np.array_equal(drawn.tokens[MANY * prompt :][:MANY], theirs)


def sample_on_eight(model, **options):
    partitioner = Partitioner(make_mesh(data=2, fsdp=2, model=2))
    params = parameters()
    placed = jax.device_put(params, partitioner.shardings(model.logical_axes(), params))
    with partitioner.activate():
        return run(model=model, params=placed, **options)


def test_eight_devices_share_a_prompt_s_samples(drawn):
    cut = sample_on_eight(changed(scan_layers=False), prompts=PROMPTS[:1])
    assert_close(cut, drawn, slice(MANY))


def test_eight_devices_share_the_prompts_where_there_are_enough(drawn, growing):
    """Each with one sample, which is the first of many, and with room that grows."""
    assert drawn.lengths[::MANY].max() == 12
    assert_close(sample_on_eight(MODEL, samples=1), drawn, slice(None, None, MANY))


def test_padding_takes_no_position_that_the_model_lacks(greedy, short_parameters):
    texts = [[row.tolist()] for row in greedy.tokens]
    found = score(SHORT, short_parameters, FILLING, texts, pad_id=0)
    for row, length in enumerate(greedy.lengths):
        np.testing.assert_allclose(
            found.log_probs[row, :length], greedy.log_probs[row, :length], atol=1e-5
        )
    with pytest.raises(ValueError, match="rows have 31 tokens"):
        run(prompts=[[3] * 19], model=SHORT, params=short_parameters, samples=1)


def test_one_program_serves_prompts_of_a_bucket(drawn):
    before = decode._cache_size()
    run(prompts=[[5] * 40, [2], [3, 4], [6]])
    assert decode._cache_size() == before


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        # In float32 these would draw what the constraint masks.
        ({"temperature": 1e-40}, "temperature"),
        ({"temperature": 1e30}, "temperature"),
        ({"top_p": 1e-46}, "top_p"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 0}, "top_k"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, named):
    with pytest.raises(ValueError, match=named):
        SamplingSettings(**settings)


def test_keys_for_fewer_prompts_are_refused():
    """JAX would give those without one the last one's draws."""
    with pytest.raises(ValueError, match="key: 2 for 4 prompts"):
        run(key=jax.random.split(jax.random.key(1)))


@pytest.mark.parametrize("prompts", [[], [[3], []]])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(ValueError, match="prompt"):
        run(prompts=prompts)


HOSTILE = TokenList(HOSTILE_PIECES)
QUOTING = Transformer(dataclasses.replace(CONFIG, vocab_size=HOSTILE.size + 3))
PAGES = [
    [Document("a", "T", "the cat sat on the mat. It was ☃ day]% and so on.")],
    [Document("b", "Th", "one page"), Document("c", "The [T]", "another, é longer page")],
    [Document("d", "", "  \n  the third")],
    [Document("e", "T)", "the fourth is here")],
]
ENDS = {"eos_id": HOSTILE.eos_id, "pad_id": HOSTILE.pad_id}


def fault_tables(pages):
    tracker = FaultTracker(HOSTILE)
    return tracker.tables([tracker.graph(shown) for shown in pages])


def tables(pages=PAGES, max_tokens=40):
    constraint = QuoteConstraint(HOSTILE)
    return constraint.tables([constraint.graph(shown) for shown in pages], max_tokens)


@functools.cache
def quoting_parameters():
    return drawn_parameters(QUOTING, 3)


def constrained(settings, key=1, pages=PAGES, params=None, **options):
    options = {"quotes": tables(pages, settings.max_tokens), "branches": ()} | options | ENDS
    params = params or quoting_parameters()
    return sample(QUOTING, params, PROMPTS, jax.random.key(key), settings, **options)


QUOTED = SamplingSettings(max_tokens=40)
QUOTES = 6  # of each prompt


def quote_many(key=1, pages=PAGES, **options):
    """Constrained and tracked at once, with rows that are refilled: one program for most tests."""
    return constrained(
        QUOTED, key, pages, fault_tables=fault_tables(pages), samples_per_prompt=QUOTES,
        rows_per_prompt=2, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def quoted():
    return quote_many()


def assert_legal(samples, of_each):
    for row, (tokens, length) in enumerate(zip(samples.tokens, samples.lengths, strict=True)):
        assert tokens[length - 1] == HOSTILE.eos_id
        assert is_legal(HOSTILE.decode(tokens[:length]), PAGES[row // of_each])


# Of these settings it is told below what they draw of the allowed tokens, whatever the logits.
@LONG
@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(max_tokens=25, temperature=0),
        SamplingSettings(max_tokens=40, temperature=2.0, top_p=0.5),
    ],
)
def test_constrained_samples_are_legal_and_end(settings):
    for key in range(4):
        assert_legal(constrained(settings, key), 1)


def test_constrained_samples_of_a_damaged_model_are_an_error():
    damaged = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), quoting_parameters())
    with pytest.raises(NotNumbersError, match="the model's logits are not numbers"):
        quote_many(params=damaged)


def test_tables_for_longer_samples_are_refused():
    pages = [*PAGES[:3], [Document("e", "zyxwvutsrqponmlkjihg" * 2, "the fourth is here")]]
    with pytest.raises(ValueError, match=r"max_tokens = 40: .* of prompt 3 has \d\d tokens"):
        quote_many(quotes=tables(pages, 80))


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(temperature=0),
        SamplingSettings(temperature=1e-6, top_k=2),
        SamplingSettings(temperature=1e6, top_p=0.9),
    ],
)
def test_what_is_masked_is_never_drawn_whatever_the_logits(settings):
    """In every claim state and at every other node, thin or wide."""
    quotes, rng = tables(), np.random.default_rng(0)
    nodes = jnp.asarray(np.flatnonzero(np.asarray(quotes.cost)[:, 0] < 40))
    rows = len(nodes)
    state = jax.jit(initial)(quotes, np.zeros(rows, int))._replace(node=nodes)
    left = jnp.asarray(np.full(rows, 40))
    legal = np.asarray(jax.jit(allowed)(quotes, state, left))
    some = legal.any(axis=1)
    assert some.sum() > 50

    @jax.jit
    def drawn(logits, uniforms):
        done = jnp.zeros(rows, bool)
        return draw_allowed(given(logits), uniforms, settings, done, quotes, state, left)

    usual = rng.normal(size=legal.shape).astype(np.float32)
    for bad in (np.nan, np.inf, -np.inf, 3e38, -3e38):
        for share in (1.0, 0.5):
            logits = np.where(rng.random(legal.shape) < share, np.float32(bad), usual)
            made = drawn(logits, rng.random(rows).astype(np.float32))
            token = np.asarray(made.token)
            assert legal[np.arange(rows), token][some].all()
            own = logits[np.arange(rows), token]
            normal = np.isfinite(own) & (np.abs(own) < 1e29)
            assert np.array_equal(np.isfinite(made.log_prob)[some], normal[some])
            assert share < 1 or not normal[some].any()


def test_many_constrained_samples_are_legal_however_many_rows_are_wide(quoted):
    for samples in (quoted, quote_many(2), quote_many(3)):
        assert_legal(samples, QUOTES)
        assert_told(samples, QUOTES)
    only = dataclasses.replace(QUOTED, free_log_probs=False)
    alone = constrained(only, samples_per_prompt=QUOTES)
    assert np.array_equal(alone.tokens, quoted.tokens)
    assert alone.log_probs is None
    np.testing.assert_allclose(alone.constrained_log_probs, quoted.constrained_log_probs, atol=1e-4)


def test_one_program_serves_all_pages_of_a_bucket(quoted):
    before = decode._cache_size()
    other = [
        [
            Document(
                "e",
                "Elsewhere",
                f"page number {n} tells of {n} cats that sat on {n} mats by {n} rats",
            )
        ]
        for n in range(4)
    ]
    quote_many(5, other)
    quote_many(6, [*other[1:], PAGES[0]])
    assert decode._cache_size() == before


def assert_told(samples, of_each):
    for row, (tokens, length) in enumerate(zip(samples.tokens, samples.lengths, strict=True)):
        text = HOSTILE.decode(tokens[:length])
        assert faults_of(int(samples.faults[row])) == evidence.faults(text, PAGES[row // of_each])


@LONG  # those of tests/decoding/test_waiting_prompts.py are told as well
def test_faults_of_free_samples_are_told():
    """Free samples are mostly malformed; refilled rows begin anew."""
    samples = sample(
        QUOTING, quoting_parameters(), PROMPTS, jax.random.key(4), QUOTED, **ENDS,
        fault_tables=fault_tables(PAGES), samples_per_prompt=12, rows_per_prompt=5,
        vocabulary_size=HOSTILE.size,  # the model has three rows to spare
    )  # fmt: skip
    assert samples.tokens.max() < HOSTILE.size
    assert_told(samples, 12)
    assert np.any(samples.faults)


def test_constrained_samples_are_told_to_have_no_faults(quoted):
    assert_told(quoted, QUOTES)
    assert not np.any(quoted.faults)


def test_constrained_log_probabilities_are_renormalised_over_what_was_allowed(quoted, drawn):
    assert quoted.constrained_log_probs is not None
    assert (quoted.constrained_log_probs >= quoted.log_probs - 1e-5).all()
    # Where the answer begins there is a handful of spellings of " %<"; unconstrained, all tokens.
    assert (quoted.constrained_log_probs[:, 0] > quoted.log_probs[:, 0] + 1).all()
    padding = np.arange(QUOTED.max_tokens) >= quoted.lengths[:, None]
    assert (quoted.constrained_log_probs[padding] == 0).all()
    assert drawn.constrained_log_probs is None

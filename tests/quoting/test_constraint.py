"""Answers under the quote constraint: all of the legal ones, and nothing else."""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite import evidence
from gophercite.documents import Document, Window
from gophercite.evidence import OMISSION
from gophercite.quoting.constraint import NoLegalAnswer, QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import advance, allowed, initial
from tests.long_forms import IS_LONG, LONG
from tests.quoting.quote_worlds import (
    HOSTILE_PIECES,
    MISSING,
    TokenList,
    hostile_documents,
    is_legal,
)

HOSTILE = TokenList(HOSTILE_PIECES)
WALLED = TokenList(HOSTILE_PIECES, MISSING)


@functools.cache
def constraint(settings=QuoteSettings(), vocabulary=HOSTILE):  # noqa: B008 (it is frozen)
    return QuoteConstraint(vocabulary, settings)


LONGEST = 48
# Random logits would hardly ever end a claim: the pieces that begin and end things are preferred.
PREFERRED = np.array(
    [
        4.0 * bool(set(HOSTILE.token_bytes(id) or b"") & set(b"%()[]<>"))
        for id in range(HOSTILE.size)
    ],
    np.float32,
)


@jax.jit
def walk(budgets, tables, prompts, key):
    """Samples with random logits that prefer marks; each may have its budget's tokens."""

    def turn(carry, i):
        state, done = carry
        mask = allowed(tables, state, budgets - i)
        noise = jax.random.gumbel(jax.random.fold_in(key, i), mask.shape)
        token = jnp.argmax(jnp.where(mask, noise + PREFERRED, -jnp.inf), axis=1)
        token = jnp.where(done, 0, token)
        stuck = ~mask.any(axis=1) & ~done
        return (advance(tables, state, token), done | (token == 0)), (token, stuck)

    start = (initial(tables, prompts), jnp.zeros(prompts.shape, bool))
    (_, done), (tokens, stuck) = jax.lax.scan(turn, start, jnp.arange(LONGEST))
    return tokens.T, stuck.any(), done.all()


def texts(vocabulary, tokens):
    for row in np.asarray(tokens).tolist():
        yield vocabulary.decode(row[: row.index(vocabulary.eos_id)])


@pytest.mark.parametrize(
    ("settings", "vocabulary"),
    [
        (QuoteSettings(), HOSTILE),
        (QuoteSettings(), WALLED),
        (QuoteSettings(minimum_quote=1, minimum_claim=9, maximum_triples=3), HOSTILE),
        (
            QuoteSettings(3, maximum_quote=6, minimum_claim=3, maximum_claim=4, maximum_triples=2),
            HOSTILE,
        ),
        (QuoteSettings(2, maximum_quote=9, maximum_triples=2, maximum_omissions=2), HOSTILE),
    ],
    ids=["plain", "bytes are missing", "triples", "lengths", "omissions"],
)
def test_every_sample_is_legal_at_every_budget(settings, vocabulary):
    rng = random.Random(settings.minimum_quote)
    joined = 0
    for seed in range(3 if IS_LONG else 1):
        prompts, graphs = [], []
        while len(graphs) < 32:
            documents = hostile_documents(rng, 60)
            try:
                graphs.append(constraint(settings, vocabulary).graph(documents))
                prompts.append(documents)
            except NoLegalAnswer:
                continue
        shortest = [graph.shortest_answer for graph in graphs]
        tables = constraint(settings, vocabulary).tables(graphs, max(shortest))
        copies = 12
        extra = np.tile([0, 1, 3, *(LONGEST - max(shortest),) * (copies - 3)], len(graphs))
        budgets = np.minimum(np.repeat(shortest, copies) + extra, LONGEST)
        tokens, stuck, done = walk(
            budgets, tables, jnp.repeat(jnp.arange(32), copies), jax.random.key(seed)
        )
        assert not stuck
        assert done
        for i, text in enumerate(texts(vocabulary, tokens)):
            documents = prompts[i // copies]
            assert vocabulary.spells(text)
            assert is_legal(
                text,
                documents,
                settings.minimum_quote,
                settings.maximum_triples,
                settings.maximum_omissions,
            ), text
            for each in evidence.parse(text):
                assert settings.minimum_claim <= len(each.claim) <= (settings.maximum_claim or 1000)
                runs = each.quote.split(OMISSION) if settings.maximum_omissions else [each.quote]
                assert max(map(len, runs)) <= (settings.maximum_quote or 1000)
                joined += len(runs) > 1
    assert (joined > 100) == (settings.maximum_omissions > 0)


@functools.cache
def spelled(vocabulary, tail):
    """Fewest tokens that spell some bytes."""
    if not tail:
        return 0
    pieces = (vocabulary.token_bytes(id) for id in range(1, vocabulary.size))
    return min(
        1 + spelled(vocabulary, tail[len(piece) :]) for piece in pieces if tail.startswith(piece)
    )


# What may be missing of a character, and a letter.
_EXTRAS = [b"", b"\x83", b"\x98\x83", b"\xa9", b"\x80", b"\x80\x80", b"\xa0\x80", b"\x80\x80\x80"]
_EXTRAS += [b"\x90\x80\x80", b"\x9f\x98\x83", b"\x80\x98\x83"]
_EXTRAS += [extra + b"a" for extra in _EXTRAS]


@functools.cache
def endings(document, minimum, omissions):
    """What may still follow, in kinds: if one of a kind may, all of it may."""
    title, text = document.title, document.text
    runs = [
        text[i:j]
        for i in range(len(text))
        for j in range(i + minimum, len(text) + 1)
        if is_legal(f" %<a>%({title})%[{text[i:j]}]%", [document], minimum, 1, omissions)
    ]
    return [
        [b"]%"],
        [f">%({title})%[{run}]%".encode() for run in runs],
        *([[f"{OMISSION}{run}]%".encode() for run in runs]] if omissions else []),
    ]


@functools.cache
def cheapest_endings(vocabulary, document, minimum, omissions):
    """The cheapest of each kind, after each of what may be missing before it."""
    return [
        min((extra + end for end in kind), key=functools.partial(spelled, vocabulary))
        for kind in endings(document, minimum, omissions)
        for extra in _EXTRAS
    ]


def fewest_tokens(vocabulary, before, document, minimum, omissions):
    """Tokens from some bytes of an answer to its end; None if no legal answer begins so.

    Tries what may follow: the rest of a character, a letter, the rest of the marks, every quote,
    every run after an omission.
    """
    opening = b" %<"[len(before) :]
    cheapest = cheapest_endings(vocabulary, document, minimum, omissions)
    tails = {opening + end for end in cheapest}
    for kind in endings(document, minimum, omissions):
        tails |= {
            end[cut:]
            for end in kind
            for cut in range(1, len(end) + 1)
            if not opening and before.endswith(end[:cut])
        }
    best = None
    for tail in tails:
        try:
            text = (before + tail).decode()
        except UnicodeDecodeError:
            continue
        if is_legal(text, [document], minimum, 1, omissions):
            tokens = spelled(vocabulary, tail) + 1
            best = tokens if best is None else min(best, tokens)
    return best


SMALL = TokenList(HOSTILE_PIECES[::2])
mask_of, follow = jax.jit(allowed), jax.jit(advance)


@pytest.mark.parametrize(
    ("seed", "texts", "omissions"),
    [
        *((seed, ["the c]at", "é the ☃ x", "a  ]e]"], 0) for seed in range(3)),
        *((seed, ["the c [..x", "e [...]the", "é the [x"], 1) for seed in range(3)),
        pytest.param(3, ["the c [..x", "e [...]the", "é the [x"], 1, marks=LONG),
    ],
)
def test_the_mask_is_exactly_what_can_still_be_finished(seed, texts, omissions):
    rng = random.Random(seed)
    document = Document("a", "T", texts[seed % 3])
    settings = QuoteSettings(minimum_quote=3, maximum_omissions=omissions)
    graph = constraint(settings, SMALL).graph([document])
    tables = constraint(settings, SMALL).tables([graph], 100)
    state, before = initial(tables, jnp.array([0])), b""
    while True:
        candidates = list(range(257, SMALL.size)) + rng.sample(range(1, 257), 6)
        candidates += [1 + byte for byte in b" %<>()[].T\xa9\x9f\x98\x83\x80"]
        candidates += [1 + byte for byte in document.text.encode()]
        needs = {
            id: fewest_tokens(SMALL, before + SMALL.token_bytes(id), document, 3, omissions)
            for id in set(candidates)
        }
        possible = [id for id, need in needs.items() if need is not None]
        if not possible:
            break
        for left in {2, 100, *(needs[id] + d for id in possible for d in (0, 1, 2))}:
            mask = np.asarray(mask_of(tables, state, jnp.array([left])))[0]
            for id, need in needs.items():
                assert mask[id] == (need is not None and 1 + need <= left), (
                    before,
                    SMALL.token_bytes(id),
                    need,
                    left,
                )
        impossible = [id for id, need in needs.items() if need is None]
        for id in rng.sample(impossible, min(3, len(impossible))):
            after_it = follow(tables, state, jnp.array([id]))
            if after_it.node == state.node:  # not on a way that no budget is enough for
                assert jax.tree.all(jax.tree.map(np.array_equal, after_it, state)), id
        if omissions and OMISSION.encode() not in before:  # the way there, not to an end
            after = {id: before + SMALL.token_bytes(id) for id in possible}
            possible = [id for id in possible if b"[...]" in after[id] or b"]" not in after[id]]
        marks = [id for id in possible if set(SMALL.token_bytes(id)) & set(b"%()[]<>")]
        choice = rng.choice(marks if marks and rng.random() < 0.7 else possible)
        before += SMALL.token_bytes(choice)
        state = follow(tables, state, jnp.array([choice]))
        if len(before) > 60:
            break
    assert b"]%" in before or len(before) > 60
    assert not omissions or OMISSION.encode() in before


@pytest.mark.parametrize(
    "documents",
    [
        [],
        [Document("a", "T", "")],
        [Document("a", "T", "abcd")],
        [Document("a", "T", "     \n   ")],
        [Document("a", "T", "%<>%()%[]%" * 3)],
        [Document("a", "a >%( title", "a text that is long enough")],
        [Window(Document("a", "T", "understandable"), 2, 12)],
    ],
)
def test_documents_without_a_quote_are_refused(documents):
    with pytest.raises(NoLegalAnswer, match="nothing can be quoted"):
        constraint().graph(documents)


def test_nothing_at_all_is_refused_by_name():
    with pytest.raises(NoLegalAnswer, match="nothing can be quoted: there are no documents"):
        constraint().graph([])
    with pytest.raises(ValueError, match="there are no graphs to combine"):
        constraint().tables([], 100)


@pytest.mark.parametrize("boundaries", ["words", "sentences"])
def test_pages_whose_words_are_all_too_long_are_refused(boundaries):
    limited = constraint(QuoteSettings(maximum_quote=9, boundaries=boundaries))
    with pytest.raises(NoLegalAnswer, match=f"no whole {boundaries} of at most 9"):
        limited.graph([Document("a", "T", "an understanding")])


def test_a_word_of_thousands_of_characters_is_quoted_where_it_fits():
    """Base64, say: a quote that begins with it has to reach its end."""
    page = Document("a", "T", "It is so: " + "QmFz" * 800 + " (that is all)")
    graph = constraint().graph([page])
    tables = constraint().tables([graph], 4000)
    before = np.array([1 + byte for byte in b" %<a>%(T)%["])
    state = initial(tables, jnp.array([0]))
    for token in before:
        state = follow(tables, state, jnp.array([token]))
    for left, begins in ((4000, True), (3202, True), (3201, False), (40, False)):
        mask = np.asarray(mask_of(tables, state, jnp.array([left])))[0]
        assert mask[1 + ord("Q")] == begins, left
        assert mask[1 + ord("I")]
        assert not mask[1 + ord("F")]  # within the word


def test_a_claim_within_one_token_has_a_legal_length_too():
    claims = ["a", "ab", "abcd", "abcde"]
    whole = TokenList([f" %<{claim}>%(".encode() for claim in claims])
    limited = QuoteConstraint(whole, QuoteSettings(minimum_claim=2, maximum_claim=4))
    tables = limited.tables([limited.graph([Document("a", "T", "the cat")])], 40)
    mask = np.asarray(mask_of(tables, initial(tables, jnp.array([0])), jnp.array([40])))[0]
    assert [mask[257 + i] for i in range(4)] == [False, True, True, False]


@pytest.mark.parametrize("minimum", [1, 5, 6, 20])
@pytest.mark.parametrize(
    ("boundaries", "quote"),
    [("characters", "the c"), ("words", "a cat"), ("sentences", "Of a cat.")],
)
def test_the_shortest_answer_has_the_shortest_claim_and_quote(minimum, boundaries, quote):
    settings = QuoteSettings(minimum_claim=minimum, boundaries=boundaries)
    graph = QuoteConstraint(TokenList([]), settings).graph(
        [Document("a", "T", "Wherever the sea is. Of a cat. The mayor saw it")]
    )
    shortest = " " + evidence.format(evidence.Evidence("a" * minimum, "T", quote))
    assert graph.shortest_answer == len(shortest) + 1


def test_a_budget_below_the_shortest_answer_is_refused():
    graph = constraint().graph([Document("a", "T", "the cat sat")])
    constraint().tables([graph], graph.shortest_answer)
    with pytest.raises(NoLegalAnswer, match=f"shortest legal answer has {graph.shortest_answer}"):
        constraint().tables([graph], graph.shortest_answer - 1)


def test_budgets_beyond_what_is_counted_are_refused():
    """Costs are counted up to 30,000: with more tokens an answer might not end."""
    graph = constraint().graph([Document("a", "T", "the cat sat")])
    constraint().host_tables([graph], 29_999)
    with pytest.raises(ValueError, match="max_tokens = 30000: must be below 30000"):
        constraint().host_tables([graph], 30_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"minimum_quote": 0},
        {"maximum_quote": 4},
        {"minimum_claim": 0},
        {"maximum_claim": 0},
        {"maximum_claim": 4, "minimum_claim": 5},
        {"maximum_triples": 0},
        {"maximum_omissions": -1},
        {"maximum_omissions": 61},
        {"boundaries": "word"},
        {"minimum_quote": 5.5},
        {"maximum_quote": "9"},
        {"maximum_omissions": 1.5},
        {"maximum_triples": None},
    ],
)
def test_settings_that_allow_no_answer_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        QuoteSettings(**settings)

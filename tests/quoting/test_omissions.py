"""Quotes of one run, and of several joined by ` [...] `: all that are legal, and nothing else."""

import contextlib
import dataclasses
import random
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.documents import Document
from gophercite.evidence import OMISSION
from gophercite.few_shot import splices
from gophercite.quoting.constraint import NoLegalAnswer, QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import advance, allowed, initial
from tests.long_forms import IS_LONG, LONG
from tests.quoting.quote_worlds import is_legal, spell, vocabulary_of_kind
from tests.quoting.shown_pages import shown

LONGEST = 64  # tokens
SETTINGS = QuoteSettings(minimum_quote=3, maximum_omissions=2, maximum_triples=2)
IN_ONE_RUN = dataclasses.replace(SETTINGS, maximum_omissions=0)
AT_CHARACTERS = dataclasses.replace(SETTINGS, boundaries="characters")

# Pages that have the beginnings of omissions, their ends, and whole ones.
_SCRAPS = 3 * ("the", "cat", "é", "a", "on", " ") + (
    "☃", " [", "[", ".", "..", "...", "]", "[...]", " [...]", "[...] ", " [...] ", " [..", "]%",
    "\n", "\u2003",
)  # fmt: skip
_JOINTS = (OMISSION,) * 12 + (" [...]", "[...] ", " [...] [...] ", " […] ", "  [...] ", " ", "")


def page_text(rng, scraps=16):
    return "".join(rng.choice(_SCRAPS) for _ in range(rng.randrange(4, scraps)))


def pages(rng):
    count = rng.randrange(1, 4)
    return [Document(str(i), rng.choice(["T", "T", "U"]), page_text(rng)) for i in range(count)]


def answer(rng, documents, boundaries):
    """An answer that is nearly legal, most often."""
    triples = []
    for _ in range(rng.choice([1, 1, 2])):
        title = rng.choice(documents).title
        of_title = [each for each in documents if each.title == title]
        quote = ""
        for turn in range(rng.choice([1, 2, 2, 2, 3, 3, 4])):
            page = shown(rng.choice(of_title), boundaries)
            begin = rng.randrange(max(1, len(page.text) - 3))
            end = begin + rng.choice([2, 3, 4, 4, 5, 6, 8, 10])
            if page.begins and page.ends and rng.random() < 0.9:
                begin = rng.choice(sorted(page.begins))
                end = rng.choice([e for e in page.ends if begin + 3 <= e < begin + 12] or [end])
            quote += rng.choice(_JOINTS) * (turn > 0) + page.text[begin:end]
        triples.append(f"%<a>%({title})%[{quote}]%")
    return " " + " ".join(triples)


@jax.jit
def accepted(tables, prompts, tokens, lengths, budgets):
    """Whether each row's tokens are allowed, one by one, where it may have so many."""

    def turn(carry, step):
        state, fine = carry
        place, token = step
        mask = allowed(tables, state, budgets - place)
        fine &= (place >= lengths) | jnp.take_along_axis(mask, token[:, None], axis=1)[:, 0]
        return (advance(tables, state, token), fine), None

    first = initial(tables, prompts), jnp.ones(prompts.shape, bool)
    (_, fine), _ = jax.lax.scan(turn, first, (jnp.arange(tokens.shape[1]), tokens.T))
    return fine


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sentencepiece", SETTINGS),
        ("byte-level", SETTINGS),
        ("hostile", SETTINGS),
        pytest.param("sentencepiece", IN_ONE_RUN, marks=LONG),
        ("byte-level", IN_ONE_RUN),
        ("hostile", AT_CHARACTERS),
    ],
    ids=[
        "sentencepiece",
        "byte-level",
        "hostile",
        "sentencepiece-one-run",
        "byte-level-one-run",
        "hostile-at-characters",
    ],
)
def test_an_answer_is_allowed_just_where_it_is_legal_however_it_is_spelled(kind, settings):
    rng = random.Random(kind)
    vocabulary = vocabulary_of_kind(kind)
    constraint = QuoteConstraint(vocabulary, settings)
    prompts, graphs, rows = [], [], []
    while len(graphs) < (24 if IS_LONG else 10):
        documents = pages(rng)
        try:
            graphs.append(constraint.graph(documents))
        except NoLegalAnswer:
            continue
        prompts.append(documents)
        for _ in range(60):
            text = answer(rng, documents, settings.boundaries)
            ids = [*spell(rng, vocabulary, text.encode()), vocabulary.eos_id]
            if len(ids) <= LONGEST:
                rows.append((len(graphs) - 1, text, ids))
    tokens = np.zeros((len(rows), LONGEST), np.int32)
    for row, (_, _, ids) in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    owners = jnp.array([owner for owner, _, _ in rows])
    lengths = jnp.array([len(ids) for _, _, ids in rows])
    tables = constraint.tables(graphs, 1000)
    # Where many more tokens may follow, and where not one more may.
    freely, barely = (
        accepted(tables, owners, tokens, lengths, budgets).tolist()
        for budgets in (jnp.full_like(lengths, 1000), lengths)
    )
    legal_ones = joined = 0
    for (owner, text, ids), *fine in zip(rows, freely, barely, strict=True):
        legal = is_legal(
            text, prompts[owner], 3, 2, settings.maximum_omissions, settings.boundaries
        )
        spelling = [vocabulary.token_bytes(id) for id in ids]
        assert fine == [legal, legal], (text, prompts[owner], spelling)
        legal_ones += legal
        joined += legal and OMISSION in text
    assert legal_ones > 30
    assert settings is IN_ONE_RUN or joined > 25


@pytest.mark.parametrize("kind", ["sentencepiece", "byte-level"])
def test_whatever_token_is_allowed_the_answer_can_be_finished(kind):
    rng = random.Random(kind)
    vocabulary = vocabulary_of_kind(kind)
    constraint = QuoteConstraint(vocabulary, SETTINGS)
    graphs = []
    while len(graphs) < 8:
        with contextlib.suppress(NoLegalAnswer):
            graphs.append(constraint.graph(pages(rng)))
    shortest = [graph.shortest_answer for graph in graphs]
    extra = np.tile([0, 1, 2, 5, 20, 40], len(graphs))
    budgets = np.repeat(shortest, 6) + extra
    tables = constraint.tables(graphs, max(shortest))
    marks = [
        bool(set(vocabulary.token_bytes(id) or b"") & set(b"%()[]<>"))
        for id in range(vocabulary.size)
    ]
    owners, longest = jnp.repeat(jnp.arange(8), 6), int(budgets.max())
    stuck, done = explored(tables, owners, budgets, np.array(marks), vocabulary.eos_id, longest)
    assert done
    assert not stuck


@partial(jax.jit, static_argnums=(4, 5))
def explored(tables, prompts, budgets, marks, eos_id, longest):
    """Goes on at random, and at each place tries what eight allowed tokens lead to.

    Returns:
      Whether some of them, or none, led to where nothing may follow, and whether all have ended.
    """
    tries = 8

    def turn(carry, place):
        state, done, stuck = carry
        mask = allowed(tables, state, budgets - place)
        noise = jax.random.gumbel(jax.random.fold_in(jax.random.key(0), place), mask.shape)
        score, tried = jax.lax.top_k(jnp.where(mask, noise, -jnp.inf), tries)
        each = jax.tree.map(lambda leaf: jnp.repeat(leaf, tries), (state, budgets - place - 1))
        after = advance(tables, each[0], tried.reshape(-1))
        goes_on = allowed(tables, after, each[1]).any(axis=1).reshape(tried.shape)
        dead_end = (score > -jnp.inf) & ~goes_on & (tried != eos_id)
        stuck |= ((dead_end.any(axis=1) | ~mask.any(axis=1)) & ~done).any()
        token = jnp.argmax(jnp.where(mask, noise + 4.0 * marks, -jnp.inf), axis=1)
        state = advance(tables, state, jnp.where(done, 0, token))
        return (state, done | (token == eos_id), stuck), None

    first = initial(tables, prompts), jnp.zeros(prompts.shape, bool), jnp.bool_(False)
    (_, done, stuck), _ = jax.lax.scan(turn, first, jnp.arange(longest))
    return stuck, done.all()


def test_pages_of_nothing_but_omissions_are_refused():
    constraint = QuoteConstraint(vocabulary_of_kind("hostile"), SETTINGS)
    with pytest.raises(NoLegalAnswer, match="nothing can be quoted"):
        constraint.graph([Document("a", "T", "[...] [...] ...] [..")])


def test_without_omissions_they_are_text_like_any_other():
    vocabulary = vocabulary_of_kind("hostile")
    constraint = QuoteConstraint(vocabulary, QuoteSettings(minimum_quote=1))
    page = Document("a", "T", "ab [...] cd")
    graph = constraint.graph([page])
    found = []
    for quote in ("ab [...] cd", "[...]", "a [...] cd", "ab [...] [...] cd"):
        ids = [*vocabulary.encode(f" %<a>%(T)%[{quote}]%"), vocabulary.eos_id]
        tokens = np.zeros((1, LONGEST), np.int32)
        tokens[0, : len(ids)] = ids
        tables = constraint.tables([graph], 1000)
        owner, length = jnp.array([0]), jnp.array([len(ids)])
        found.append(bool(accepted(tables, owner, tokens, length, jnp.array([1000]))[0]))
    assert found == [True, True, False, False]


def test_the_words_that_a_legal_quote_leaves_out_can_be_put_back():
    rng = random.Random(0)
    restored = 0
    for _ in range(300):
        text = "".join(rng.choice(("the ", "cat ", "é, ", "on\n", "mat. ")) for _ in range(20))
        ends = sorted(rng.sample(range(len(text)), 4))
        runs = text[ends[0] : ends[1]], text[ends[2] : ends[3]]
        page, quote = Document("a", "T", text), OMISSION.join(runs)
        if not is_legal(f" %<a>%(T)%[{quote}]%", [page], 3, 1, 1, "characters"):
            continue
        start, end = splices.restore(quote, page.text)
        assert page.text[start:end].startswith(runs[0].rstrip())
        assert page.text[start:end].endswith(runs[1].lstrip())
        restored += 1
    assert restored > 100

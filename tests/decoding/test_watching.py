"""Faults read off in the loop are those that `evidence.faults` finds in the text."""

import functools
import pathlib
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.decoding.response_automaton import MALFORMED, faults_of, response_automaton
from gophercite.decoding.watching import FaultWatch, advance, faults, initial
from gophercite.documents import Document, Window
from gophercite.evidence import Fault
from gophercite.vocabularies import load_vocabulary
from tests import vocabulary_fixtures
from tests.decoding.quote_worlds import HOSTILE_PIECES, TokenList, hostile_documents

BUNDLED = pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model/vocabulary"
LONGEST = 64  # tokens


@functools.cache
def vocabulary(name):
    return {
        "sentencepiece": lambda: load_vocabulary(BUNDLED),
        "byte-level": lambda: vocabulary_fixtures.vocabularies()["byte-level"],
        "bytes": lambda: TokenList([]),
        "hostile": lambda: TokenList(HOSTILE_PIECES),
    }[name]()


@functools.cache
def tokens_of(name):
    """Tokens by what they spell."""
    found = {}
    for id in range(vocabulary(name).size):
        found.setdefault(vocabulary(name).token_bytes(id), []).append(id)
    return found


def spell(rng, name, spelling):
    """Some tokens that spell some bytes."""
    ids, at = [], 0
    while at < len(spelling):
        lengths = [n for n in range(1, 13) if spelling[at : at + n] in tokens_of(name)]
        chosen = spelling[at : at + rng.choice(lengths)]
        ids.append(rng.choice(tokens_of(name)[chosen]))
        at += len(chosen)
    return ids


_ODDITIES = (
    b"\xff", b"\xc3", b"\xe2\x80", b"\xe2\x80\x83", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x80",
    b"\xef\xbf\xbd", b"\xc2", b"\xa0", b" ", b"\n", b"]", b"%", b"<", b">", b")", b"[", b"a", b"",
)  # fmt: skip
_MARKS = tuple(mark.encode() for mark in evidence.MARKS)


def part(rng, proper):
    """What stands in a place: mostly what belongs there, else anything."""
    if rng.random() < 0.9:
        return proper
    return b"".join(rng.choice(_ODDITIES + _MARKS) for _ in range(rng.randrange(4)))


def response(rng, sources):
    """A response that is nearly right."""
    spelling = part(rng, rng.choice([b"", b" ", b"\n "]))
    for _ in range(rng.randrange(1, 3)):
        source = rng.choice(sources)
        begin = rng.randrange(len(source.text) + 1)
        quote = source.text[begin : begin + rng.choice([0, 3, 4, 5, 6, 9, 20])]
        quote = rng.choice([str, str, str.upper, str.swapcase])(quote).encode()
        title = rng.choice([source, source, rng.choice(sources)]).title.encode()
        if rng.random() < 0.15:  # a character that is none, or one too many
            at = rng.randrange(len(quote) + 1)
            quote = quote[:at] + rng.choice(_ODDITIES) + quote[at + rng.randrange(2) :]
        if rng.random() < 0.1:
            title = title[:-1] + rng.choice(_ODDITIES)
        claim = rng.choice([b"a", b" ", b"", b"50%", b"a>", b"\xe2\x80\x83", b"\xe2\x80"])
        between = rng.choice([b"", b" ", b"%", b" \n", b"x"])
        for proper in (b"%<", claim, b">%(", title, b")%[", quote, b"]%", between):
            spelling += part(rng, proper)
    return spelling


def worlds(rng, count):
    """Documents, some cut into windows, with titles that hold marks or no characters."""
    for _ in range(count):
        documents = hostile_documents(rng, 40)
        documents.append(
            Document("t", rng.choice(["\ufffd", "a\ufffd", "T"]), "x\ufffdy The Cat Sat")
        )
        yield [
            Window(document, len(document.text) // 3, len(document.text))
            if rng.random() < 0.3
            else document
            for document in rng.sample(documents, rng.randrange(1, len(documents) + 1))
        ]


@jax.jit
def watched(tables, prompts, tokens, lengths):
    def turn(watch, column):
        i, token = column
        after = advance(tables, watch, token)
        return jax.tree.map(lambda a, b: jnp.where(i < lengths, a, b), after, watch), None

    steps = jnp.arange(tokens.shape[1])
    watch, _ = jax.lax.scan(turn, initial(tables, prompts), (steps, tokens.T))
    return faults(tables, watch)


def check(name, prompts, samples, minimum=5):
    """Compares for each prompt, and each of its samples."""
    watch = FaultWatch(vocabulary(name), minimum)
    tables = watch.tables([watch.graph(sources) for sources in prompts])
    rows = [(i, row[:LONGEST]) for i, those in enumerate(samples) for row in those]
    tokens = np.zeros((len(rows), LONGEST), np.int32)
    for row, (_, ids) in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    owners, lengths = jnp.array([i for i, _ in rows]), jnp.array([len(ids) for _, ids in rows])
    seen = np.asarray(watched(tables, owners, tokens, lengths))
    counts = dict.fromkeys(Fault, 0)
    for (i, ids), bits in zip(rows, seen.tolist(), strict=True):
        text = vocabulary(name).decode(ids)
        expected = evidence.faults(text, prompts[i], minimum_quote_length=minimum)
        assert faults_of(bits) == expected, (text, prompts[i])
        for fault in expected:
            counts[fault] += 1
        counts[None] = counts.get(None, 0) + (not expected)
    return counts


@pytest.mark.parametrize("name", ["sentencepiece", "byte-level", "bytes", "hostile"])
def test_nearly_right_responses(name):
    rng = random.Random(name)
    prompts = list(worlds(rng, 60))
    samples = [
        [spell(rng, name, response(rng, sources)) for _ in range(100)] for sources in prompts
    ]
    if name == "bytes":  # no token has two: those that are short enough
        samples = [[row for row in rows if len(row) <= LONGEST] for rows in samples]
    counts = check(name, prompts, samples)
    assert min(counts.values()) > 20, counts  # every fault, and none


@pytest.mark.parametrize("name", ["sentencepiece", "byte-level", "hostile"])
def test_tokens_at_random(name):
    rng = random.Random(name)
    prompts = list(worlds(rng, 20))
    size = vocabulary(name).size
    preferred = [
        id for id in range(size) if set(vocabulary(name).token_bytes(id) or b"") & set(b"%()[]<>")
    ]
    samples = [
        [
            spell(rng, name, response(rng, sources)[: rng.randrange(60)])
            + [
                rng.choice(preferred) if rng.random() < 0.7 else rng.randrange(size)
                for _ in range(rng.randrange(12))
            ]
            for _ in range(100)
        ]
        for sources in prompts
    ]
    assert check(name, prompts, samples)[Fault.MALFORMED] > 100


@pytest.mark.parametrize("minimum", [1, 9])
def test_the_minimum_is_a_setting(minimum):
    rng = random.Random(minimum)
    prompts = list(worlds(rng, 20))
    samples = [[spell(rng, "hostile", response(rng, s)) for _ in range(50)] for s in prompts]
    check("hostile", prompts, samples, minimum)


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [Document("a", "T", "")],
        [Document("a", "a)%[b", "the cat sat")],
        [Document("a", "", "the cat sat"), Document("b", "", "the cat sat on")],
        [Document("a", ")", "]%]%]"), Document("b", ")%", "]]]]]]")],
    ],
)
def test_prompts_that_show_little(sources):
    texts = [
        f"%<a>%({title})%[{quote}]%"
        for title in ("T", "", ")", ")%", "a", "a)%[b")
        for quote in ("", "the cat", "]]]]]", "]", "Sat o")
    ]
    rng = random.Random(0)
    check("hostile", [sources], [[spell(rng, "hostile", text.encode()) for text in texts]])


def read(spelling):
    """The response automaton's verdict, and what the walks would have read."""
    automaton = response_automaton()
    state = automaton.start
    for byte in spelling:
        state = automaton.next[state, byte]
    return state


@given(
    st.lists(
        st.one_of(st.sampled_from([*_MARKS, *_ODDITIES]), st.binary(max_size=2)), max_size=14
    ).map(b"".join)
)
def test_the_automaton_parses_what_evidence_parses(spelling):
    text = spelling.decode(errors="replace")
    malformed = Fault.MALFORMED in evidence.faults(text, [])
    state = read(spelling)
    assert response_automaton().well_formed[state] == (not malformed)
    if state == MALFORMED:
        assert Fault.MALFORMED in evidence.faults(text + "]%", [])

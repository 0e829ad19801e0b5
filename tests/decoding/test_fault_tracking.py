"""Faults read off in the loop are those that `evidence.faults` finds in the text."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.decoding.fault_tracking import FaultTracker, advance, faults, initial
from gophercite.decoding.response_automaton import MALFORMED, faults_of, response_automaton
from gophercite.documents import Document, Window
from gophercite.evidence import Fault
from tests.long_forms import IS_LONG
from tests.quoting.quote_worlds import (
    hostile_documents,
    spell,
    vocabulary_of_kind,
)

LONGEST = 64  # tokens
WORLDS, SAMPLES = (60, 100) if IS_LONG else (30, 60)


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


_JOINTS = (b" [...] ",) * 5 + (b" [...]", b"[...] ", b" [...] [...] ", b"")


def response(rng, sources, most_runs=1):
    """A response that is nearly right."""
    spelling = part(rng, rng.choice([b"", b" ", b"\n "]))
    for _ in range(rng.randrange(1, 3)):
        source = rng.choice(sources)
        quote = b""
        for turn in range(rng.randrange(most_runs) + 1):
            begin = rng.randrange(len(source.text) + 1)
            run = source.text[begin : begin + rng.choice([0, 3, 4, 5, 6, 9, 20])]
            run = rng.choice([str, str, str.upper, str.swapcase])(run).encode()
            quote += rng.choice(_JOINTS) * (turn > 0) + run
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
def tracked(tables, prompts, tokens, lengths):
    def step(state, column):
        i, token = column
        after = advance(tables, state, token)
        return jax.tree.map(lambda a, b: jnp.where(i < lengths, a, b), after, state), None

    steps = jnp.arange(tokens.shape[1])
    state, _ = jax.lax.scan(step, initial(tables, prompts), (steps, tokens.T))
    return faults(tables, state)


def check(name, prompts, samples, minimum=5, omissions=0):
    """Compares for each prompt, and each of its samples."""
    tracker = FaultTracker(vocabulary_of_kind(name), minimum, omissions)
    tables = tracker.tables([tracker.graph(sources) for sources in prompts])
    rows = [(i, row[:LONGEST]) for i, those in enumerate(samples) for row in those]
    tokens = np.zeros((len(rows), LONGEST), np.int32)
    for row, (_, ids) in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    owners, lengths = jnp.array([i for i, _ in rows]), jnp.array([len(ids) for _, ids in rows])
    seen = np.asarray(tracked(tables, owners, tokens, lengths))
    counts = dict.fromkeys(Fault, 0)
    for (i, ids), bits in zip(rows, seen.tolist(), strict=True):
        text = vocabulary_of_kind(name).decode(ids)
        expected = evidence.faults(
            text, prompts[i], minimum_quote_length=minimum, maximum_omissions=omissions
        )
        assert faults_of(bits) == expected, (text, prompts[i])
        for fault in expected:
            counts[fault] += 1
        counts[None] = counts.get(None, 0) + (not expected)
    return counts


@pytest.mark.parametrize("name", ["sentencepiece", "byte-level", "bytes", "hostile"])
def test_nearly_right_responses(name):
    rng = random.Random(name)
    prompts = list(worlds(rng, WORLDS))
    samples = [
        [spell(rng, vocabulary_of_kind(name), response(rng, sources)) for _ in range(SAMPLES)]
        for sources in prompts
    ]
    if name == "bytes":  # no token has two: those that are short enough
        samples = [[row for row in rows if len(row) <= LONGEST] for rows in samples]
    counts = check(name, prompts, samples)
    assert min(counts.values()) > 20, counts  # every fault, and none


@pytest.mark.parametrize(
    ("name", "minimum", "omissions"), [("sentencepiece", 3, 1), ("hostile", 4, 2)]
)
def test_quotes_that_leave_words_out(name, minimum, omissions):
    rng = random.Random(name)
    prompts = list(worlds(rng, WORLDS))
    samples = [
        [spell(rng, vocabulary_of_kind(name), response(rng, sources, 4)) for _ in range(SAMPLES)]
        for sources in prompts
    ]
    counts = check(name, prompts, samples, minimum, omissions)
    assert min(counts.values()) > 20, counts  # every fault, and none


@pytest.mark.parametrize("name", ["sentencepiece", "byte-level", "hostile"])
def test_tokens_at_random(name):
    rng = random.Random(name)
    prompts = list(worlds(rng, 20))
    size = vocabulary_of_kind(name).size
    preferred = [
        id
        for id in range(size)
        if set(vocabulary_of_kind(name).token_bytes(id) or b"") & set(b"%()[]<>")
    ]
    samples = [
        [
            spell(rng, vocabulary_of_kind(name), response(rng, sources)[: rng.randrange(60)])
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
    samples = [
        [spell(rng, vocabulary_of_kind("hostile"), response(rng, s)) for _ in range(50)]
        for s in prompts
    ]
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
    check(
        "hostile",
        [sources],
        [[spell(rng, vocabulary_of_kind("hostile"), text.encode()) for text in texts]],
    )


def read(automaton, spelling):
    """The state of a response automaton after some bytes."""
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
    states = []
    for omissions in (False, True):
        automaton = response_automaton(omissions)
        states.append(read(automaton, spelling))
        assert automaton.well_formed[states[-1]] == (not malformed)
    if MALFORMED in states:
        assert Fault.MALFORMED in evidence.faults(text + "]%", [])

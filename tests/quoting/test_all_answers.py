"""All answers that can be sampled in so few tokens, and all that are legal: the same set.

The one side walks along the constraint's masks. The other writes down every text and every way to
spell it, and asks `answer_judge`, which knows nothing of the constraint.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite import evidence
from gophercite.decoding.claim_in_quote import Shown, pieces_holding, unsupported
from gophercite.decoding.sampler import Samples
from gophercite.documents import Document, Window
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteState, advance, allowed, initial
from tests.quoting import answer_judge
from tests.quoting.quote_worlds import TokenList
from tests.quoting.shown_pages import shown
from tests.text import word_breaks

PIECES = [b" %<", b">%(", b"a>%", b"%(T", b")%[", b">%(T)%[", b"ab", b"a]", b"]%", b"]]%", b"b]",
    b"[aba]%", b"b>%(T"]  # fmt: skip
VOCABULARY = TokenList(PIECES)
CHARACTERS = " %<>()[]Tab."
# The others are never looked at: they spell what no answer here has outside of its claim.
TOKENS = [0, *(1 + ord(character) for character in CHARACTERS), *range(257, VOCABULARY.size)]
SPELLED = {id: VOCABULARY.token_bytes(id).decode() for id in TOKENS if id}
BEGINNING = {  # by their first character
    first: [(id, piece) for id, piece in SPELLED.items() if piece[0] == first]
    for first in CHARACTERS
}
LONGEST_CLAIM = 4  # characters: no longer one fits into the tokens below
ROWS = 512

# A window that begins and ends in words.
HALF = Window(Document("c", "T", "bab ]b abb"), 1, 9)

mask_of, follow = jax.jit(allowed), jax.jit(advance)


def sampled(constraint, graph, max_tokens):
    """Every sequence of tokens that the masks let through to its end."""
    tables = constraint.tables([graph], max_tokens)
    whole, open_ones = set(), [()]
    state = jax.tree.map(np.asarray, initial(tables, jnp.array([0])))
    for left in range(max_tokens, 0, -1):
        longer, states = [], []
        for begin in range(0, len(open_ones), ROWS):
            end = min(begin + ROWS, len(open_ones))
            some = QuoteState(*(np.resize(leaf[begin:end], ROWS) for leaf in state))
            mask = np.asarray(mask_of(tables, some, jnp.full(ROWS, left)))[: end - begin]
            row, place = np.nonzero(mask[:, TOKENS])
            for first in range(0, len(row), ROWS):
                of, token = row[first : first + ROWS], np.array(TOKENS)[place[first : first + ROWS]]
                before = QuoteState(*(np.resize(leaf[of], ROWS) for leaf in some))
                after = follow(tables, before, jnp.asarray(np.resize(token, ROWS)))
                going = token != VOCABULARY.eos_id
                states.append([np.asarray(leaf)[: len(of)][going] for leaf in after])
                for i, id in zip(of, token.tolist(), strict=True):
                    answer = (*open_ones[begin + i], id)
                    if id == VOCABULARY.eos_id:
                        whole.add(answer)
                    else:
                        longer.append(answer)
        if not longer:
            break
        open_ones = longer
        state = QuoteState(*(np.concatenate(leaves) for leaves in zip(*states, strict=True)))
    return whole


def legal(documents, rules, boundaries):
    """Every way to spell every legal answer in so many tokens."""
    pages = [shown(document, boundaries) for document in documents]
    # Of those that are too long, claims of one character too many.
    longest = min(LONGEST_CLAIM, (rules.maximum_claim or LONGEST_CLAIM) + 1)
    claims = [
        "".join(characters)
        for length in range(1, longest + 1)
        for characters in itertools.product(CHARACTERS, repeat=length)
    ]
    quotes = {
        (title, text[i:j])
        for title, text, *_ in pages
        for i in range(len(text))
        for j in range(i + 1, len(text) + 1)
    }

    def is_legal(text):
        return not answer_judge.faults_of_text(text, pages, rules)

    # Not all claims with all quotes are judged: a claim by itself, and a quote by itself.
    claim = "a" * rules.minimum_claim
    quotes = [each for each in quotes if is_legal(" %<{}>%({})%[{}]%".format(claim, *each))]
    claims = [each for each in claims if is_legal(" %<{}>%({})%[{}]%".format(each, *quotes[0]))]
    found = set()
    for claim, (title, quote) in itertools.product(claims, quotes):
        text = f" %<{claim}>%({title})%[{quote}]%"
        if fewest(text) < rules.max_tokens:
            found |= {(*ids, VOCABULARY.eos_id) for ids in spellings(text, rules.max_tokens - 1)}
    return found


@functools.lru_cache(1 << 20)
def spellings(text, most):
    if not text:
        return ((),)
    if fewest(text) > most:
        return ()
    return tuple(
        (id, *rest)
        for id, piece in BEGINNING[text[0]]
        if text.startswith(piece)
        for rest in spellings(text[len(piece) :], most - 1)
    )


@functools.lru_cache(1 << 20)
def fewest(text):
    """Fewest tokens that spell a text."""
    if not text:
        return 0
    pieces = (piece for _, piece in BEGINNING[text[0]])
    rest = (text[len(piece) :] for piece in pieces if text.startswith(piece))
    return 1 + min(map(fewest, rest))


@pytest.mark.parametrize(
    ("settings", "max_tokens"),
    [
        (QuoteSettings(minimum_quote=3, boundaries="characters"), 7),
        (
            QuoteSettings(
                minimum_quote=2,
                maximum_quote=3,
                minimum_claim=2,
                maximum_claim=3,
                boundaries="characters",
            ),
            9,
        ),
        (QuoteSettings(minimum_quote=2, maximum_claim=2), 8),
        (QuoteSettings(minimum_quote=2, maximum_quote=4, maximum_claim=1), 9),
        (QuoteSettings(minimum_quote=2, maximum_claim=1, boundaries="sentences"), 9),
    ],
    ids=["characters", "limits", "words", "words, limits", "sentences"],
)
def test_what_can_be_sampled_is_what_is_legal(settings, max_tokens):
    documents = {
        "characters": [Document("a", "T", "aba]b"), Document("b", "Ta", "b ]ab")],
        # The same letters begin and end words here, and do not there; "]" is a word of its own.
        "words": [Document("a", "T", "bab a ab]b"), Document("b", "Ta", "b ]ab aab a"), HALF],
        "sentences": [Document("a", "T", "ab. Tab.] b."), Document("b", "Ta", "Ta ba. a")],
    }[settings.boundaries]
    rules = answer_judge.Rules(
        max_tokens,
        settings.minimum_quote,
        settings.maximum_quote,
        settings.minimum_claim,
        settings.maximum_claim,
    )
    constraint = QuoteConstraint(VOCABULARY, settings)
    can_be = sampled(constraint, constraint.graph(documents), max_tokens)
    may_be = legal(documents, rules, settings.boundaries)
    assert len(may_be) > 50
    assert can_be == may_be, (sorted(can_be - may_be)[:5], sorted(may_be - can_be)[:5])


@pytest.mark.parametrize("text", ["  ]]", "] ]]b", "b] ]%]"])
def test_white_space_alone_is_no_quote_whatever_bracket_follows(text):
    """A "]" on the page after white space is no mark, and "%" after it ends nothing."""
    settings = QuoteSettings(minimum_quote=1, maximum_claim=1, boundaries="characters")
    rules = answer_judge.Rules(8, minimum_quote=1, maximum_claim=1)
    documents = [Document("a", "T", text)]
    constraint = QuoteConstraint(VOCABULARY, settings)
    can_be = sampled(constraint, constraint.graph(documents), 8)
    may_be = legal(documents, rules, "characters")
    assert len(may_be) > 50
    assert can_be == may_be, (sorted(can_be - may_be)[:5], sorted(may_be - can_be)[:5])


def holds(quote, claim):
    """Whether the claim's words are in the quote, by another code's word boundaries."""
    bounds = set(word_breaks.boundaries(quote))
    places = (i for i in range(len(quote)) if quote[i : i + len(claim)].lower() == claim.lower())
    return any({i, i + len(claim)} <= bounds for i in places)


CITED = [Document("a", "T", "ab a ab. Tab] a b."), Document("b", "Ta", "b ]ab a. Ta ba a")]
CITED_RULES = answer_judge.Rules(max_tokens=9, minimum_quote=2, maximum_claim=2)


@functools.cache
def legal_evidence(boundaries):
    """For whatever claim."""
    return [(each, VOCABULARY.decode(each)) for each in legal(CITED, CITED_RULES, boundaries)]


@pytest.mark.parametrize("boundaries", ["words", "sentences"])
@pytest.mark.parametrize("claim", ["a", "ab", "b", "Ta"])
def test_evidence_for_a_claim_is_all_legal_evidence_that_holds_it(boundaries, claim):
    """Also where a token holds the claim's end and more: then the evidence begins before it."""
    documents, rules = CITED, CITED_RULES
    limits = {"minimum_quote": 2, "maximum_claim": 2}
    constraint = QuoteConstraint(VOCABULARY, QuoteSettings(boundaries=boundaries, **limits))
    given = f" %<{claim}>%("
    answers = {
        answer: evidence.parse(text)[0].quote
        for answer, text in legal_evidence(boundaries)
        if text.startswith(given)
    }
    rows = np.array([np.resize([*answer, *[0] * 9], 9) for answer in answers])
    samples = Samples(rows, np.array(list(map(len, answers))), None, None, None, 0)
    lacking = unsupported(VOCABULARY, Shown(constraint, [documents]), samples, [len(rows)])
    expected = [i for i, quote in enumerate(answers.values()) if not holds(quote, claim)]
    if not pieces_holding(constraint.pieces(documents), claim):
        assert len(expected) == len(rows) > 0
        expected = []
    assert [each.row for each in lacking] == expected

    beginnings = {(each.begun, each.rest): each.holding for each in lacking}
    rests = {rest for _, rest in beginnings}
    assert not lacking or {b"", b"%(", b">%("} <= rests
    assert not lacking or (claim[-1:] != "b") or b"b>%(" in rests
    if lacking:  # a token may even hold the claim's beginning
        beginnings[(), given.encode()] = lacking[0].holding
    for (begun, rest), holding in beginnings.items():
        assert VOCABULARY.decode(begun) + rest.decode() == given
        if begun[:1] not in {(), (257,)}:
            continue  # " %<" in one token stands for the others
        may_be = {
            answer
            for answer, quote in answers.items()
            if answer[: len(begun)] == begun and holds(quote, claim)
        }
        graph = constraint.evidence_graph(holding, begun, rest)
        if graph is None or graph.shortest_answer > rules.max_tokens:
            assert not may_be
            continue
        assert graph.shortest_answer == min(map(len, may_be))
        can_be = sampled(constraint, graph, rules.max_tokens)
        assert can_be == may_be, (sorted(can_be - may_be)[:5], sorted(may_be - can_be)[:5])

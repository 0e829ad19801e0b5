from hypothesis import given
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.evidence import Evidence
from gophercite.quoting.claims import CLOSED, DEAD, claim_automaton

PIECES = st.sampled_from(
    [*"%<>()[] \n\ta", ">%(", "%<", ")%[", "]%", "é", "☃", "😀", "\u2003", "\x85", "\x1c", "\ud7ff"]
)


def read(spelling):
    automaton = claim_automaton()
    state = 0
    for i, byte in enumerate(spelling):
        state = automaton.next[state, byte]
        if state < 0:
            return state, i + 1
    return state, len(spelling)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_it_closes_just_where_a_claim_that_evidence_accepts_ends(claim):
    spelling = f"{claim}>%(".encode()
    state, length = read(spelling)
    triple = Evidence(claim, "T", "a quote")
    legal = bool(claim.strip()) and not evidence.holds_mark(claim)
    if legal:
        assert evidence.parse(evidence.format(triple)) == (triple,)
        assert (state, length) == (CLOSED, len(spelling))
    else:
        assert (state, length) != (CLOSED, len(spelling))


@given(st.binary(max_size=6))
def test_bytes_that_begin_no_text_are_no_claim(spelling):
    state, length = read(b"a" + spelling)
    assert (state == DEAD) == (not may_begin_a_claim(b"a" + spelling) and state != CLOSED)
    assert state != DEAD or may_begin_a_claim((b"a" + spelling)[: length - 1])


def may_begin_a_claim(spelling):
    try:
        text = spelling.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return False
        text = spelling[: error.start].decode()
    return not evidence.holds_mark(text)


def test_characters_that_may_be_the_mark_s_are_pending():
    automaton = claim_automaton()
    for claim, pending, content in (
        (b"", 0, False),
        (b" ", 0, False),
        (b">", 1, False),
        (b">%", 2, False),
        (b">%%", 0, True),
        (b"a>%", 2, True),
        (b"a>>", 1, True),
        ("\u2003".encode(), 0, False),
    ):
        state, _ = read(claim)
        assert automaton.pending[state] == pending
        assert automaton.content[state] == content


def test_its_states_fit_the_bits_of_a_word():
    assert len(claim_automaton().next) <= 31  # `claims_allowed` shifts by them

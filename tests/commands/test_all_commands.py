"""All that can be written in so few tokens, and all that is accepted: the same.

The one side walks along the constraint's masks, for every number of tokens. The other writes down
every sequence of tokens and asks the environment's own `step`, and a judge of what is promised
beside that (`browsing_judge`); for answers, of which `step` takes any, the judge alone.
"""

import contextlib
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.browser.environment import page_of, replay, reset, step
from gophercite.browser.settings import Settings
from gophercite.browser.worlds import SiteWorld
from gophercite.commands.constraint import CommandConstraint, CommandSettings
from gophercite.documents import Document
from gophercite.quoting.quote_state import QuoteState, advance, allowed, initial
from gophercite.retrieval.engine import Hit
from tests.browser.sites import ListedResults, page
from tests.commands import browsing_judge
from tests.long_forms import LONG
from tests.quoting.quote_worlds import TokenList
from tests.quoting.shown_pages import shown

PAGE = "http://a.example/"
TEXT = "ab a\nA é ba\u2003ab"


LONGER = 32  # tokens of several bytes, at most


class FewTokens(TokenList):
    """Tokens of which most spell nothing: those that are left can be tried in all orders.

    All have the same size, for one program.
    """

    def __init__(self, pieces: list[bytes]) -> None:
        longer = [piece for piece in pieces if len(piece) > 1]
        super().__init__(longer + [b"unused"] * (LONGER - len(longer)))
        kept = set(pieces)
        self._token_bytes = tuple(each if each in kept else None for each in self._token_bytes)

    @functools.cached_property
    def usable(self) -> list[int]:
        return [id for id in range(self.size) if self.token_bytes(id)]


def site(text: str = TEXT, links: tuple[str, ...] = ("ab", "é")) -> SiteWorld:
    linked = {words: PAGE for words in links if words in text}
    pages = [page(PAGE, "A", text, linked), page(f"{PAGE}b", "B", "b")]
    hits = [Hit(each.document.url or "", each.document.title, "a b") for each in pages]
    return SiteWorld("a", pages, ListedResults({"a": hits}))


ON_THE_PAGE = ["Search a", "Clicked on link 0"]
COMMANDS = [
    b" ", b"Search", b"Search a", b"Top", b"Back", b"End: Answer", b"Scrolled up ", b"2", b"4",
    b"Clicked on link ", b"0", b"1", b"Find in page:", b" a", b"Quote:", b"Quote: a", b"b", b"\n",
    b"\xc3", b"\xa9", b": ab",
]  # fmt: skip
SPACES = [
    b" ", b"Search", b"Search ", b"\xe2", b"\x80", b"\x83", b"\x8b", b"\xa8", b"\xad", b"\xc2",
    b"\xa0", b"\xf4", b"\x90", b"Quote", b"Quote:", b"Find in page: ", b"\t", b"a", b"End: Answer",
]  # fmt: skip
CITATIONS = [b"a", b" ", b"[", b"]", b"1", b"2", b"0", b", ", b",", b"[1", b"1]", b"[2].", b"] [1]",
    b"\xc2", b"\xa0", b"\xad", b"a[", b"\n", b"End: Answer"]  # fmt: skip

mask_of, follow = jax.jit(allowed), jax.jit(advance)
ROWS = 512


def written(constraint, graph, vocabulary, max_tokens):
    """Every sequence of tokens that the masks let through; none of them ends in a blind alley."""
    tables = constraint.tables([graph])
    whole, open_ones = set(), [()]
    state = jax.tree.map(np.asarray, initial(tables, jnp.array([0])))
    for left in range(max_tokens, 0, -1):
        longer, states = [], []
        for begin in range(0, len(open_ones), ROWS):
            end = min(begin + ROWS, len(open_ones))
            some = QuoteState(*(np.resize(leaf[begin:end], ROWS) for leaf in state))
            mask = np.asarray(mask_of(tables, some, jnp.full(ROWS, left)))[: end - begin]
            assert mask.any(axis=1).all(), "a blind alley"
            row, token = np.nonzero(mask)
            for first in range(0, len(row), ROWS):
                of, ids = row[first : first + ROWS], token[first : first + ROWS]
                before = QuoteState(*(np.resize(leaf[of], ROWS) for leaf in some))
                after = follow(tables, before, jnp.asarray(np.resize(ids, ROWS)))
                going = ids != vocabulary.eos_id
                states.append([np.asarray(leaf)[: len(of)][going] for leaf in after])
                for i, id in zip(of, ids.tolist(), strict=True):
                    if id == vocabulary.eos_id:
                        whole.add(open_ones[begin + i])
                    else:
                        longer.append((*open_ones[begin + i], id))
        if not longer:
            return whole
        open_ones = longer
        state = QuoteState(*(np.concatenate(leaves) for leaves in zip(*states, strict=True)))
    raise AssertionError("not ended with its tokens")


@functools.lru_cache(maxsize=1)  # tests with the same tokens follow one another
def all_texts(tokens, most):
    """By their lengths, all sequences of tokens that spell a text, and the text."""
    found = []
    for length in range(1, most + 1):
        for spelled in itertools.product(tokens, repeat=length):
            ids, pieces = zip(*spelled, strict=True)
            with contextlib.suppress(UnicodeDecodeError):
                found.append((ids, b"".join(pieces).decode()))
    return found


def accepted(vocabulary, most, is_right):
    """All sequences of tokens whose text is right."""
    tokens = tuple((id, vocabulary.token_bytes(id)) for id in vocabulary.usable)
    return {ids for ids, text in all_texts(tokens, most) if is_right(text)}


def check(vocabulary, settings, world, state, most, present=False):
    boundaries = settings.boundaries
    opened = page_of(world, state)
    plain = opened.shown(state.settings).plain
    runs = shown(Document("", "", plain), boundaries) if state.place else None

    @functools.cache
    def is_right(text):
        if browsing_judge.faults_of_command(text, runs, present):
            return False
        return step(world, state, text).invalid is None

    may_be = accepted(vocabulary, most - 1, is_right)
    commands = {vocabulary.decode(ids).strip().split(" ")[0] for ids in may_be}
    least = 0
    for max_tokens in range(2, most + 1):
        constraint = CommandConstraint(vocabulary, max_tokens, settings)
        graph = constraint.graph(opened, state)
        can_be = written(constraint, graph, vocabulary, max_tokens)
        expected = {ids for ids in may_be if len(ids) < max_tokens}
        assert can_be == expected, (sorted(can_be - expected)[:5], sorted(expected - can_be)[:5])
        least = least or (max_tokens if expected else 0)
        assert graph.shortest_answer == least
    return commands


@pytest.mark.parametrize("boundaries", ["characters", "words"])
@pytest.mark.parametrize("actions", [[], ["Search a"], ON_THE_PAGE, ["Search none"]])
def test_commands_that_can_be_written_are_those_that_are_accepted(actions, boundaries):
    world = site()
    state = replay(world, reset("Why?", Settings()), actions)
    vocabulary = FewTokens(COMMANDS)
    most = 5 if len(actions) == 2 and boundaries == "characters" else 4
    commands = check(vocabulary, CommandSettings(boundaries), world, state, most)
    assert ("Back" in commands) == (len(actions) == 2)
    assert ("Quote:" in commands) == (len(actions) == 2)
    assert ("Clicked" in commands) == (actions not in ([], ["Search none"]))
    assert ("Find" in commands) == ("Top" in commands) == bool(actions)
    assert {"Search", "End:"} <= commands


@pytest.mark.parametrize("rule", ["of the episode", "of the constraint"])
def test_what_is_sought_must_be_there_where_that_is_asked(rule):
    world = site("a \xa0b\u2003ba é")
    of_episode = rule == "of the episode"
    state = replay(world, reset("?", Settings(absent_text_is_invalid=of_episode)), ON_THE_PAGE)
    settings = CommandSettings("characters", find_present=not of_episode)
    commands = check(FewTokens(SPACES), settings, world, state, 5, present=True)
    assert {"Find", "Quote:", "Search"} <= commands


def test_blank_texts_are_never_written():
    world = site("a\t\xa0a\u2003\u2003a")
    state = replay(world, reset("?", Settings()), ON_THE_PAGE)
    commands = check(FewTokens(SPACES), CommandSettings("characters"), world, state, 5)
    assert {"Find", "Quote:", "Search"} <= commands


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
def test_quotes_are_no_longer_than_the_rules_have_it(longest):
    vocabulary = FewTokens([b"Quote:", b" a", b"b", b"ab", b"End: Answer", b" ", b"c"])
    world = site("abcabbacab")
    state = replay(world, reset("?", Settings(reference_characters=longest)), ON_THE_PAGE)
    assert "Quote:" in check(vocabulary, CommandSettings("characters"), world, state, 6)


def test_nothing_is_begun_that_could_not_be_ended():
    """Words that are too long to be quoted: not even the command's name is written."""
    vocabulary = FewTokens([b"Quote:", b" a", b"b", b"abb", b"End: Answer", b" "])
    world = site("abbba abbb")
    state = replay(world, reset("?", Settings(reference_characters=3)), ON_THE_PAGE)
    assert check(vocabulary, CommandSettings("words"), world, state, 5) == {"End:"}


@pytest.mark.parametrize("longest", [5, 6, 8])
def test_no_word_is_begun_that_would_make_a_quote_too_long(longest):
    """A run of whole words goes on only where it still has room to a word's end."""
    vocabulary = FewTokens([b"Quote:", b" ", b"a", b"b", b"bb", b" bbb", b"End: Answer"])
    world = site("ab abbba b ab bbb")
    state = replay(world, reset("?", Settings(reference_characters=longest)), ON_THE_PAGE)
    constraint = CommandConstraint(vocabulary, 10, CommandSettings("words"))
    texts = {
        vocabulary.decode(ids)
        for ids in written(
            constraint, constraint.graph(page_of(world, state), state), vocabulary, 10
        )
    }
    assert "Quote: ab" in texts
    assert not [text for text in texts if step(world, state, text).invalid is not None]


def test_a_farther_end_in_fewer_tokens_counts():
    """After "b", a token leads to the next word's end, two later ones to an end that is nearer."""
    vocabulary = FewTokens([b"Quote:", b" b", b"ad efg", b"cc", b"dd", b"End: Answer"])
    world = site("bad efg bccdd")
    state = replay(world, reset("?", Settings()), ON_THE_PAGE)
    assert check(vocabulary, CommandSettings("words"), world, state, 6) == {"Quote:", "End:"}


def stands_once_before(text, start, end):
    """Whether a start stands once in a text, as it is quoted, and an end behind it."""
    packed, sought = ("".join(each.casefold().split()) for each in (text, start))
    first = packed.find(sought)
    if first < 0 or packed.find(sought, first + 1) >= 0:
        return False
    place = text.rindex(start)
    return end in text[place + len(start) :]


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("ab a—b ba aB─c", 4000),
        ("c a\xa0b aab", 4000),
        ("abcb acab", 4000),
        ("\u2003ab—", 2),
        ("ba" * 230 + "c" + "b" * 6, 212),
    ],
)
def test_quotes_by_their_start_and_end_are_accepted_and_ended(text, longest):
    pieces = [b"Quote:", b" ", b"a", b"b", b"c", b"\xe2", b"\x94", b"\x94\x81", b"\x81", b"\x80"]
    vocabulary = FewTokens([*pieces, "b━".encode(), b"ab", "a—".encode(), b"End: Answer"])
    world = site(text)
    state = replay(world, reset("?", Settings(reference_characters=longest)), ON_THE_PAGE)
    opened = page_of(world, state)
    page_text = shown(Document("", "", opened.shown(state.settings).plain), "characters")
    most = 9
    for max_tokens in range(2, most + 1):
        settings = CommandSettings("characters")
        constraint = CommandConstraint(vocabulary, max_tokens, settings)
        can_be = written(constraint, constraint.graph(opened, state), vocabulary, max_tokens)
        texts = {vocabulary.decode(ids) for ids in can_be}
        for each in texts:
            assert not browsing_judge.faults_of_command(each, page_text), each
            assert step(world, state, each).invalid is None, each
        shorter = dataclasses.replace(settings, start_and_end=False)
        constraint = CommandConstraint(vocabulary, max_tokens, shorter)
        expected = written(constraint, constraint.graph(opened, state), vocabulary, max_tokens)
        assert {ids for ids in can_be if "━" not in vocabulary.decode(ids)} == expected
    both = {tuple(each.strip()[7:].split("━")) for each in texts if "━" in each}
    if longest < 100:
        assert not both
        return
    assert len(both) > (1 if len(text) > longest else 5)
    runs = {ids for ids in (vocabulary.decode(each).strip()[7:] for each in expected) if ids}
    may_be = {(a, b) for a in runs for b in runs if stands_once_before(text, a, b)}
    assert both <= may_be
    if len(text) < longest:
        few = {pair for pair in may_be if len("".join(pair).encode()) <= 2}
        assert few <= both, few - both


@pytest.mark.parametrize("text", ["c ab ba", "c ab bba", "c abb bab ab bab", "ab c bb ab"])
def test_quotes_end_with_words_whose_letters_stand_elsewhere_too(text):
    vocabulary = FewTokens([b"Quote: c", b"a", b"b", b"\xe2\x94", b"\x81", b"End: Answer"])
    world = site(text)
    state = replay(world, reset("?", Settings()), ON_THE_PAGE)
    constraint = CommandConstraint(vocabulary, 11, CommandSettings("words"))
    found = {
        vocabulary.decode(ids)
        for ids in written(
            constraint, constraint.graph(page_of(world, state), state), vocabulary, 11
        )
    }
    expected = {f"Quote: c━{word}" for word in text.partition("c")[2].split()}
    assert {each for each in found if "━" in each} == expected


@pytest.mark.parametrize("references", [1, pytest.param(2, marks=LONG), 12])
def test_answers_that_can_be_written_cite_what_is_there(references):
    world = site()
    state = replay(world, reset("?", Settings()), [*ON_THE_PAGE, "Quote: ab", "End: Answer"])
    state = dataclasses.replace(state, references=state.references * references)
    vocabulary, most = FewTokens(CITATIONS), 5
    may_be = accepted(
        vocabulary, most - 1, lambda text: not browsing_judge.faults_of_answer(text, references)
    )
    assert len(may_be) > 1000
    for max_tokens in range(2, most + 1):
        constraint = CommandConstraint(vocabulary, max_tokens)
        graph = constraint.graph(page_of(world, state), state)
        can_be = written(constraint, graph, vocabulary, max_tokens)
        expected = {ids for ids in may_be if len(ids) < max_tokens}
        assert can_be == expected, (sorted(can_be - expected)[:5], sorted(expected - can_be)[:5])

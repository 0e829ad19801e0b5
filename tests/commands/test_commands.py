"""Parts of the command constraint: texts, numbers, budgets, what is kept, one program for pages."""

import dataclasses
import itertools
from unicodedata import category

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.browser.commands import parse
from gophercite.browser.environment import page_of, replay, reset, step
from gophercite.browser.matching import Matcher
from gophercite.browser.pages import Page
from gophercite.browser.settings import LONGEST_ACTION, Settings
from gophercite.browser.worlds import SiteWorld
from gophercite.commands.constraint import (
    _ENDS,
    _LONGEST_TEXT,
    _ON_PAGES,
    CommandConstraint,
    CommandSettings,
)
from gophercite.commands.free_texts import BLANK, END, LINE_ENDS, free_text_automaton
from gophercite.commands.page_runs import longest_run, page_runs
from gophercite.commands.skeletons import DONE, Skeleton
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document, Window, normalise_text
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import NoLegalAnswer
from gophercite.quoting.quote_state import advance, allowed, initial
from gophercite.retrieval.engine import Hit
from gophercite.vocabularies import load_vocabulary
from tests.browser.sites import HILL, ListedResults, site
from tests.drawn_parameters import drawn_parameters
from tests.quoting.quote_worlds import BUNDLED, TokenList

VOCABULARY = load_vocabulary(BUNDLED)
mask_of, follow = jax.jit(allowed), jax.jit(advance)


def test_what_is_blank_and_what_ends_a_line_is_what_documents_have():
    characters = [each for each in map(chr, range(0x110000)) if category(each)[0] != "C"]
    characters += [each for each in map(chr, range(0x10000)) if category(each) in ("Cc", "Cf")]
    blank = {each for each in characters if not normalise_text(each).strip()}
    assert blank == {each.decode() for each in BLANK}
    assert {each for each in characters if normalise_text(each) == "\n"} == {
        each.decode() for each in LINE_ENDS
    }


def read(state, spelling):
    """The state after some bytes; negative where they can't be read."""
    table = free_text_automaton().table.next
    for place, byte in enumerate(spelling, 1):
        state = int(table[state, byte])
        if state < 0:
            return state if place == len(spelling) else -1
    return state


@pytest.mark.parametrize(
    ("text", "in_line", "in_answer"),
    [
        ("a", True, True),
        ("é ☃ 😀", True, True),
        (" \u3000\u2003é", True, True),
        ("é\u3000", True, True),
        ("\u2018", True, True),
        ("\ufeff\ufefe", True, True),
        ("", False, False),
        (" \t\x1f", False, False),
        ("\xa0\xad\u200b\u2060\ufeff\u3000\u1680\u205f", False, False),
        ("a\nb", False, True),
        ("a\x85b", False, True),
        ("a\u2028", False, True),
        ("\u2029a", False, True),
        ("a[1]", True, False),
    ],
)
def test_free_texts(text, in_line, in_answer):
    automaton = free_text_automaton()
    end = bytes([END])
    assert (read(automaton.space, f" {text}".encode() + end) == -2) is in_line
    assert (read(automaton.cited, text.encode() + end) == -2) is in_answer


@pytest.mark.parametrize("cut", [b"a\xc3", b"a\xe2\x98", b"\xf0\x9f\x98", b"\xe2\x80"])
def test_no_text_ends_within_a_character(cut):
    automaton = free_text_automaton()
    assert read(automaton.cited, cut) >= 0
    assert read(automaton.cited, cut + bytes([END])) == -1
    assert read(automaton.space, b" " + cut + bytes([END])) == -1


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("most", [1, 2, 9, 10, 11, 19, 99, 100, 109, 110, 345, 1000])
def test_numbers_are_those_up_to_the_last(least, most):
    skeleton = Skeleton()
    first = skeleton.node()
    for node in skeleton.number(first, least, most):
        skeleton.end(node)
    assert skeleton.size < first + 60
    found, todo = [], [("", first)]
    while todo:
        text, node = todo.pop()
        for byte, after in skeleton.row(node).items():
            if byte == END:
                assert after == DONE
                found.append(text)
            else:
                todo.append((text + chr(byte), after))
    assert sorted(map(int, found)) == list(range(least, most + 1))
    assert all(text == str(int(text)) for text in found)


def test_fixed_commands_are_commands():
    assert [parse(word) for word in (*_ENDS, *_ON_PAGES, "Back")]


def test_too_few_tokens_are_refused_by_name():
    least = CommandConstraint(VOCABULARY, 20).least_tokens
    with pytest.raises(NoLegalAnswer, match=f"max_tokens = {least - 1}: the shortest action has"):
        CommandConstraint(VOCABULARY, least - 1)
    constraint = CommandConstraint(VOCABULARY, least)
    for actions in ([], ["Search lighthouse"], ["Search lighthouse", "Clicked on link 0"]):
        state = replay(site(), reset("Who?"), actions)
        tables = constraint.tables([constraint.graph(page_of(site(), state), state)])
        assert mask_of(tables, initial(tables, jnp.array([0])), jnp.array([least])).any()
    for tokens in (0, 9901):
        with pytest.raises(ValueError, match=f"max_tokens = {tokens}: must be from 1 to 9900"):
            CommandConstraint(VOCABULARY, tokens)
    with pytest.raises(ValueError, match="there are no graphs to combine"):
        constraint.tables([])
    for name, value in (("kept_pages", 0), ("page_characters", 1.5), ("page_characters", "9")):
        with pytest.raises(ValueError, match=f"{name} = {value!r}: must be a whole number"):
            CommandSettings(**{name: value})


def test_a_page_is_built_once_and_way_back_changes_nothing_but_the_start():
    world = site()
    constraint = CommandConstraint(VOCABULARY, 24)
    first = replay(world, reset("Who?"), ["Search lighthouse", "Clicked on link 0"])
    scrolled = replay(world, first, ["Scrolled down 1", "Find in page: lighthouse", "Quote: was"])
    opened = page_of(world, first)
    before, after = constraint.graph(opened, first), constraint.graph(opened, scrolled)
    assert before.edges is after.edges
    tables = constraint.tables([before])
    assert constraint.tables([after]) is tables
    # The same page as the first that was opened, with no place before it.
    alone = dataclasses.replace(first, history=())
    other = constraint.graph(opened, alone)
    assert other.edges is before.edges
    moved = constraint.tables([other])
    assert moved.token is tables.token
    assert moved.first[0] != tables.first[0]
    rest = constraint.tables([before, other])
    assert len(rest.token) == len(tables.token), "one graph for both"
    masks = mask_of(rest, initial(rest, jnp.array([0, 1])), jnp.full(2, 24))
    (differs,) = np.nonzero(np.asarray(masks[0] != masks[1]))
    assert {VOCABULARY.token_bytes(int(id)).strip()[:1] for id in differs} == {b"B"}
    assert not masks[1][differs].any()
    of_moved = mask_of(moved, initial(moved, jnp.array([0])), jnp.array([24]))
    np.testing.assert_array_equal(of_moved[0], masks[1])


@pytest.mark.parametrize(
    ("first", "last", "has_runs"),
    [
        (0, 5, True),  # "ab cd", whose second word ends outside
        (1, 5, False),  # "b cd": the one begins outside, the other ends there
        (1, 8, True),
        (3, 5, False),
        (4, 8, False),
        (2, 3, False),
    ],
)
def test_a_part_has_runs_if_it_has_a_whole_word(first, last, has_runs):
    runs = page_runs(Window(Document("", "", "ab cdefg"), first, last), "words", 100)
    assert (runs is not None) == has_runs


def test_a_command_with_the_longest_text_is_not_too_long():
    beginnings = ("Search ", "Find in page: ", "Quote: ", "Clicked on link 1000000")
    assert max(map(len, beginnings)) + _LONGEST_TEXT <= LONGEST_ACTION


def test_pages_that_are_not_kept_are_built_anew():
    world = site()
    constraint = CommandConstraint(VOCABULARY, 24, CommandSettings(kept_pages=2))
    states = [
        replay(world, reset("Who?"), ["Search lighthouse", f"Clicked on link {number}"])
        for number in range(3)
    ]
    graphs = [constraint.graph(page_of(world, state), state) for state in states]
    assert constraint.graph(page_of(world, states[2]), states[2]).edges is graphs[2].edges
    assert constraint.graph(page_of(world, states[0]), states[0]).edges is not graphs[0].edges


def test_an_episode_that_is_over_has_nothing_to_write():
    world = site()
    state = replay(world, reset("Who?"), ["End: Nonsense"])
    with pytest.raises(ValueError, match="over"):
        CommandConstraint(VOCABULARY, 24).graph(page_of(world, state), state)


def one_page(text):
    page = Page(Document(HILL, "A", text, HILL))
    return SiteWorld("one", [page], ListedResults({"a": [Hit(HILL, "A", "a")]}))


def quotes(world, settings, vocabulary, max_tokens, command_settings=None, actions=()):
    """All quotes that can be written, by masks alone; spelled in any way."""
    state = replay(world, reset("?", settings), ["Search a", "Clicked on link 0", *actions])
    constraint = CommandConstraint(vocabulary, max_tokens, command_settings)
    tables = constraint.tables([constraint.graph(page_of(world, state), state)])
    begin = initial(tables, jnp.array([0]))
    for token in vocabulary.encode("Quote: "):
        assert mask_of(tables, begin, jnp.array([max_tokens]))[0, token]
        begin = follow(tables, begin, jnp.array([token]))
    found, todo = set(), [(b"", begin, max_tokens - 7)]
    while todo:
        text, at, left = todo.pop()
        for token in np.flatnonzero(mask_of(tables, at, jnp.array([left]))[0]).tolist():
            if token == vocabulary.eos_id:
                found.add(text.decode())
                continue
            spelled = text + vocabulary.token_bytes(token)
            todo.append((spelled, follow(tables, at, jnp.array([token])), left - 1))
    for text in found:
        assert step(world, state, f"Quote: {text}").invalid is None, text
    return found


def test_a_quote_whose_first_place_has_more_white_space_is_no_longer_than_allowed():
    # "abc" is found where it is 9 characters long.
    text = "a   b    c abc cab"
    settings = Settings(reference_characters=8)
    found = quotes(one_page(text), settings, TokenList([]), 12, CommandSettings("characters"))
    assert "ab" in found
    assert "abc" not in found
    assert step(
        one_page(text),
        replay(one_page(text), reset("?", settings), ["Search a", "Clicked on link 0"]),
        "Quote: abc",
    ).invalid


def test_how_long_a_run_may_be():
    assert longest_run("ab cd", 5) == 5
    assert longest_run("ab cd", 4) == 3
    assert longest_run("a    b cd", 4) == 1
    assert longest_run("aß cd", 4) == 3  # is found where one of its characters may be two
    page = "word " * 100
    assert longest_run(page + "ß", 100) == longest_run(page, 100) - 1 == 79
    assert longest_run("   " * 3, 4) == 0
    # Whatever is within the limit is found within it.
    for text, most in itertools.product(
        ("ass ß ßßs  ssa", "ﬃß f  f i ss ffi", "ab   c a bc"), range(1, 9)
    ):
        longest, matcher = longest_run(text, most), Matcher(text)
        for begin, end in itertools.combinations(range(len(text) + 1), 2):
            if end - begin <= longest and (found := matcher.quote(text[begin:end], 0)):
                assert found[1] - found[0] <= most, (text, most, text[begin:end])


def test_long_pages_have_runs_around_what_is_shown():
    text = "\n".join(f"<{number:03}>" for number in range(400))
    settings, shorter = Settings(view_lines=4), CommandSettings("words", page_characters=200)
    vocabulary = TokenList([f"<{number:03}>".encode() for number in range(400)])
    top = quotes(one_page(text), settings, vocabulary, 9, shorter)
    assert {"<000>", "<010>"} <= top
    assert "<399>" not in top
    middle = quotes(one_page(text), settings, vocabulary, 9, shorter, ["Find in page: <200>"])
    assert {"<200>", "<203>"} <= middle
    assert "<000>" not in middle
    assert len(middle) < 60


def test_no_text_is_longer_than_the_browser_reads():
    world = site()
    vocabulary = TokenList([b" " * 3000, b"-" * 1400, b"=" * 900])
    state = reset("Who?")
    constraint = CommandConstraint(vocabulary, 10)
    tables = constraint.tables([constraint.graph(page_of(world, state), state)])
    at = initial(tables, jnp.array([0]))
    text = ""
    for token in [*vocabulary.encode("Search ")]:
        at = follow(tables, at, jnp.array([token]))
    mask = np.asarray(mask_of(tables, at, jnp.array([3]))[0])
    assert mask[vocabulary.encode("=" * 900)].all()
    assert not mask[vocabulary.encode(" " * 3000)].any()
    assert not mask[vocabulary.encode("-" * 1400)].any()
    text = "Search " + "=" * 900 * 9
    assert len(text) < LONGEST_ACTION
    assert step(world, state, text).invalid is None


def test_one_program_serves_all_pages_and_both_phases():
    config = TransformerConfig(
        vocab_size=VOCABULARY.size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
        dtype="float32", scan_layers=False,
    )  # fmt: skip
    model = Transformer(config)
    params = drawn_parameters(model)
    world = site()
    constraint = CommandConstraint(VOCABULARY, 12)
    before = decode._cache_size()
    actions = ["Search lighthouse", "Clicked on link 0", "Back", "Clicked on link 1", "Quote: town"]
    actions += ["Search nothing", "Search fail", "End: Answer"]
    for count in range(len(actions) + 1):
        state = replay(world, reset("Who?"), actions[:count])
        graph = constraint.graph(page_of(world, state), state)
        made = sample(
            model,
            params,
            [VOCABULARY.encode("Who?")],
            jax.random.key(count),
            SamplingSettings(constraint.max_tokens),
            eos_id=VOCABULARY.eos_id,
            pad_id=VOCABULARY.pad_id,
            quotes=constraint.tables([graph]),
            samples_per_prompt=4,
        )
        for tokens, length in zip(made.tokens, made.lengths, strict=True):
            text = VOCABULARY.decode(tokens[: length - 1])
            assert step(world, state, text).invalid is None, text
    assert state.phase == "answering"
    assert decode._cache_size() == before + 1

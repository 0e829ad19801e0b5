"""Steps: table 1 row by row, ends, and that a state is a value."""

import json
import re

import pytest
from browser.sites import BAY, HILL, LIGHTHOUSE, ListedResults, page, site
from hypothesis import given
from hypothesis import strategies as st

from gophercite.browser.environment import page_of, replay, reset, step
from gophercite.browser.observation import observe, prompt
from gophercite.browser.pages import Page
from gophercite.browser.settings import LONGEST_ACTION, Settings
from gophercite.browser.state import State, dumps, loads, state_from_json, state_to_json
from gophercite.browser.worlds import SiteWorld
from gophercite.retrieval.engine import Hit
from gophercite.storage.json_fields import RecordError

WORLD = site()
AT_HILL = ("Search lighthouse", "Clicked on link 0")
AT_BAY = ("Search lighthouse", "Clicked on link 1")
AT_ARCHIVE = ("Search lighthouse", "Clicked on link 2")


def after(*texts: str, question: str = "Why?", rules: Settings | None = None) -> State:
    return replay(WORLD, reset(question, rules), texts)


def reason(state: State) -> str | None:
    return state.actions[-1].invalid


# --- Table 1 ---


def test_search_shows_results_without_blocked_sites() -> None:
    state = after("Search lighthouse")
    assert state.view.title == "Search results for: lighthouse"
    assert state.view.text == (
        "【0†The ◆ lighthouse†hill.example】\nA page.\n"
        "【1†Bay†www.bay.example】\nA page.\n"
        "【2†Archive†hill.example】\nA page.\n"
        "【3†Answer†bay.example】\nA page."
    )
    assert after("Search nothing").view.text == "There are no results."
    failed = after("Search fail")
    assert failed.view.text == "The search failed: the engine is asleep."
    assert reason(failed) is None


def test_a_click_follows_the_link_and_a_fragment_scrolls() -> None:
    assert after(*AT_HILL).view.text.startswith(LIGHTHOUSE)
    assert after(*AT_HILL, "Clicked on link 0").view.title == "Bay (www.bay.example)"
    state = after(*AT_HILL, "Clicked on link 2")
    assert state.view.text.startswith("Line 150 of")
    assert (state.view.first, state.view.last) == (150, 189)


def test_a_page_that_is_not_there_is_an_error_to_be_left_by_back() -> None:
    state = after(*AT_HILL, "Clicked on link 1")
    assert state.view.title == "Error (hill.example)"
    assert state.view.text == "This page can't be shown: there is no such page."
    assert state.actions[-1].past == "Click its keeper hill.example"
    assert reason(after(*AT_HILL, "Clicked on link 1", "Quote: this page")) is not None
    back = after(*AT_HILL, "Clicked on link 1", "Back")
    assert back.view == after(*AT_HILL).view


def test_find_goes_on_from_the_cursor_crosses_lines_and_goes_round() -> None:
    state = after(*AT_ARCHIVE, "Find in page: CHRONICLE.   line 17")
    assert state.view.first == 16
    again = replay(WORLD, state, ["Find in page: Line 17"])
    assert again.view.first == 160  # "Line 17" itself was found already: the next is 170
    assert again.view.text.split("\n")[10].startswith("Line 170 ")
    round_again = replay(WORLD, again, ["Find in page: line 3 "])
    assert round_again.view.first == 3
    assert round_again.actions[-1].note == "found again from the top of the page"
    assert round_again.actions[-1].past == "Find in page: line 3"


def test_find_works_on_results_and_on_text_without_its_links() -> None:
    state = after("Search lighthouse", "Find in page: page. archive a")
    assert (reason(state), state.actions[-1].note) == (None, None)
    assert after(*AT_HILL, "Find in page: see the town, its").actions[-1].note is None


def test_finding_nothing_changes_nothing_and_may_be_made_invalid() -> None:
    before = after(*AT_HILL)
    state = after(*AT_HILL, "Find in page: †the town")
    assert state.view == before.view
    assert state.place == before.place
    assert (reason(state), state.actions[-1].note) == (None, "the page does not hold this text")
    strict = Settings(absent_text_is_invalid=True)
    state = after(*AT_HILL, "Find in page: nowhere", rules=strict)
    assert reason(state) == "the page does not hold this text"
    assert state.actions[-1].past is None


def test_find_shows_lines_above_what_it_finds_and_goes_on_behind_it() -> None:
    above = Settings(lines_above=3)
    state = after(*AT_ARCHIVE, "Find in page: line 12", rules=above)
    assert (state.view.first, state.view.last) == (9, 48)
    assert state.view.text.split("\n")[3].startswith("Line 12 ")
    assert replay(WORLD, state, ["Find in page: line 12"]).view.first == 120 - 3
    assert after(*AT_ARCHIVE, "Find in page: line 2 ", rules=above).view.first == 0
    assert loads(dumps(state)) == state


@pytest.mark.parametrize(
    ("command", "extract"),
    [
        ("Quote: the LIGHTHOUSE was  built", "The lighthouse was built"),
        ("Quote: lighthousewasbuilt", "lighthouse was built"),
        ("Quote: the lighthouse━1901.", LIGHTHOUSE),
        ("Quote: vell.itburned", "Vell.\nIt burned"),
        ("Quote: see the town, its keeper, reddit", "See the town, its keeper, Reddit"),
    ],
)
def test_a_quote_is_the_pages_own_text(command: str, extract: str) -> None:
    state = after(*AT_HILL, command)
    (reference,) = state.references
    assert reference.extract == extract
    document = WORLD.open(HILL).document
    assert document.text[reference.start : reference.end] == extract
    assert (reference.sha256, reference.url) == (document.sha256, HILL)
    assert (reference.title, reference.domain) == ("The ♦ lighthouse", "hill.example")
    assert state.actions[-1].past == "Quote"


def test_case_is_ignored_as_unicode_folds_it() -> None:
    assert after(*AT_BAY, "Quote: GROSSE STRASSE").references[0].extract == "Große Straße"
    assert after(*AT_BAY, "Quote: straße named").references[0].extract == "STRASSE named"


def test_a_quote_is_sought_from_what_is_seen_then_from_the_top() -> None:
    state = after(*AT_ARCHIVE, "Scrolled down 3", "Quote: of the chronicle.", "Quote: line 1 of")
    first, second = state.references
    assert first.start == WORLD.open("http://hill.example/archive").document.text.index(" 120 ") + 5
    assert second.extract == "Line 1 of"
    across = after(*AT_ARCHIVE, "Quote: line 38 of━line 42")
    assert across.references[0].extract.count("\n") == 4


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("Quote: a lie",), "does not hold"),
        (("Quote: 1901.━The lighthouse",), "does not hold"),
        (("Quote: a━b━c",), "more than one"),
        (("Quote: ━b",), "either side"),
        (("Quote:",), "says only"),
        (("Quote:the lighthouse",), "none of the commands"),
        (("Clicked on link 3",), "no link 3: its links are 0 to 2"),
        (("Clicked on link 01",), "number"),
        (("Clicked on link ٣",), "number"),
        (("Scrolled down 4",), "1, 2 or 3"),
        (("Scrolled down",), "1, 2 or 3|says only"),
        (("scrolled down 1",), "none"),
        (("End: answer",), "'End: Answer'"),
        (("Search",), "says only"),
        (("Searching",), "none"),
        (("Top of the page",), "none"),
        (("",), "empty"),
        (("Back", "Back"), "no page before"),
        (("Search lighthouse", "Quote: a page."), "open the page first"),
        (("Quote: " + "x" * LONGEST_ACTION,), "more than 10000"),
    ],
)
def test_what_is_invalid_counts_is_explained_and_is_otherwise_ignored(
    texts: tuple[str, ...], why: str
) -> None:
    before = after(*AT_HILL, *texts[:-1])
    state, done, invalid = step(WORLD, before, texts[-1])
    assert not done
    assert invalid == reason(state)
    assert invalid is not None
    assert re.search(why, invalid), invalid
    assert state.actions_left == before.actions_left - 1
    assert (state.place, state.view, state.references) == (
        before.place,
        before.view,
        before.references,
    )
    seen = observe(before).replace(
        f"♦Actions left: {before.actions_left}", f"♦Actions left: {state.actions_left}"
    )
    assert observe(state) == seen


@pytest.mark.parametrize(
    "text", ["Top", "Scrolled down 1", "Find in page: x", "Quote: x", "Clicked on link 0", "Back"]
)
def test_without_a_page_only_search_and_end_mean_something(text: str) -> None:
    assert reason(after(text)) is not None


def test_scrolling_stops_at_both_ends() -> None:
    down = after(*AT_ARCHIVE, "Scrolled down 2")
    assert (down.view.first, down.view.last) == (80, 119)
    bottom = replay(WORLD, down, ["Scrolled down 3"])
    assert (bottom.view.first, bottom.view.last) == (160, 199)
    assert replay(WORLD, bottom, ["Scrolled up 1"]).view.first == 120
    assert replay(WORLD, bottom, ["Top"]).view == after(*AT_ARCHIVE).view
    assert after(*AT_ARCHIVE, "Scrolled up 3").view == after(*AT_ARCHIVE).view
    assert bottom.actions[-1].past == "Scrolled down 3"


def test_back_returns_to_where_one_was() -> None:
    texts = (*AT_ARCHIVE, "Scrolled down 1", "Search lighthouse", "Back")
    assert after(*texts).view == after(*texts[:3]).view
    assert after(*AT_HILL, "Back").view == after("Search lighthouse").view
    assert reason(after("Search lighthouse", "Back")) is not None


def test_back_goes_all_the_way() -> None:
    texts = (*AT_HILL, "Clicked on link 0", "Search nothing")
    state = after(*texts, "Back", "Back", "Back")
    assert state.view == after("Search lighthouse").view
    assert reason(state) is None
    assert reason(replay(WORLD, state, ["Back"])) == "there is no page before this one"


# --- Censoring ---

TEN = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("question", "answer", "hidden"),
    [
        (f"What is {TEN.upper()}?", None, True),
        ("Why?", f"Because {TEN}.", True),
        (TEN.removesuffix(" ten"), None, False),
        (TEN.replace("five", "5"), None, False),
    ],
)
def test_pages_that_repeat_ten_words_are_errors(
    question: str, answer: str | None, hidden: bool
) -> None:
    state = reset(question, reference_answer=answer)
    state = replay(WORLD, state, ["Search lighthouse", "Clicked on link 3"])
    assert state.view.text.startswith("This page can't be shown: it repeats") == hidden
    assert (reason(replay(WORLD, state, ["Quote: one two"])) is None) != hidden
    assert ("TEN" in page_of(WORLD, state).document.text) != hidden
    assert page_of(WORLD, state).title == ("Error" if hidden else "Answer") + " (bay.example)"


def test_a_blocked_page_is_an_error_and_sites_can_be_unblocked() -> None:
    free = Settings(blocked=())
    state = after("Search lighthouse", "Clicked on link 3", rules=free)
    assert state.view.text == "Never to be seen."
    assert after(*AT_HILL, rules=free).view.text.count("†") == 6


class Redirecting(SiteWorld):
    """A world whose address `http://short.example/` leads to a page of a blocked site."""

    def open(self, url: str) -> Page:
        return super().open("http://reddit.com/x" if "short" in url else url)


def test_a_redirect_to_a_blocked_site_is_an_error() -> None:
    hit = Hit("http://short.example/", "Short", "A page.")
    pages = [page("http://reddit.com/x", "Blocked", "Never to be seen.")]
    world = Redirecting("short", pages, ListedResults({"short": [hit]}))
    state = replay(world, reset("Why?"), ["Search short", "Clicked on link 0"])
    assert state.view.text == "This page can't be shown: its site is blocked."
    assert state.actions[-1].past == "Click Short short.example"
    assert reason(replay(world, state, ["Quote: never"])) is not None


# --- Ends ---


def test_end_answer_leads_to_the_answer() -> None:
    state = after(*AT_HILL, "Quote: anna vell", "End: Answer")
    assert (state.phase, state.end, state.done) == ("answering", "answer", False)
    assert state.actions_left == 96
    done = step(WORLD, state, "Anna Vell [1].\n\nSo it is.")
    assert (done.done, done.invalid) == (True, None)
    assert done.state.answer == "Anna Vell [1].\n\nSo it is."
    with pytest.raises(ValueError, match="over"):
        step(WORLD, done.state, "Top")


@pytest.mark.parametrize("word", ["Nonsense", "Controversial"])
def test_the_other_ends_have_no_answer(word: str) -> None:
    state = after(*AT_HILL, "Quote: anna vell", f"End: {word}")
    assert (state.phase, state.end, state.answer) == ("done", word.lower(), None)


def test_there_is_no_answer_without_a_reference() -> None:
    state = after(*AT_HILL, "End: Answer")
    assert (state.phase, state.end) == ("done", "answer")
    assert state.actions[-1].note == "there is no reference, and so no answer"


def test_the_last_action_ends_browsing_valid_or_not() -> None:
    rules = Settings(actions=3)
    assert after(*AT_HILL, "nonsense", rules=rules).phase == "done"
    assert after(*AT_HILL, "nonsense", rules=rules).end == "actions"
    state = after(*AT_HILL, "Quote: anna vell", rules=rules)
    assert (state.phase, state.end) == ("answering", "actions")
    # What ends browsing itself is the reason, also as the last action.
    assert after(*AT_HILL, "End: Nonsense", rules=rules).end == "nonsense"


def test_references_end_browsing_when_they_are_long_enough() -> None:
    rules = Settings(reference_characters=60)
    state = after(*AT_HILL, "Quote: the lighthouse━1901.", rules=rules)
    assert (reason(state), state.references) == (
        "the extract has 70 characters; at most 60 can be quoted",
        (),
    )
    state = after(*AT_HILL, "Quote: the lighthouse━vell.", rules=rules)
    assert state.phase == "browsing"
    state = replay(WORLD, state, ["Quote: it burned down"])
    assert (state.phase, state.end) == ("answering", "references")


def test_the_limit_is_drawn_uniformly_from_the_range() -> None:
    rules = Settings(actions=(20, 100))
    limits = [reset("Why?", rules, seed=seed).limit for seed in range(2000)]
    assert (min(limits), max(limits)) == (20, 100)
    assert abs(sum(limits) / len(limits) - 60) < 3
    assert len(set(limits)) == 81
    assert reset("Why?", rules, seed=7) == reset("Why?", rules, seed=7)
    assert len({reset(f"{n}?", rules).limit for n in range(50)}) > 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": 0},
        {"actions": (5, 4)},
        {"reference_characters": 0},
        {"view_lines": 0},
        {"lines_above": -1},
        {"lines_above": 40},
        {"columns": 5},
        {"censored_words": -1},
        {"blocked": ("https://reddit.com",)},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


# --- A state is a value ---

COMMANDS = st.sampled_from(
    [
        *("Search lighthouse", "Search nothing", "Search fail", "Top", "Back"),
        *(f"Clicked on link {number}" for number in range(6)),
        *(f"Scrolled {way} {times}" for way in ("down", "up") for times in (1, 2, 3)),
        *("Find in page: line 1", "Find in page: the", "Quote: the", "Quote: line━chronicle"),
        *("Quote: anna vell", "End: Answer", "End: Controversial"),
    ]
)
TEXTS = st.lists(st.one_of(COMMANDS, COMMANDS, st.text(max_size=30)), max_size=30)


@given(texts=TEXTS, limit=st.integers(1, 25))
def test_episodes_are_pure_replayable_and_explained(texts: list[str], limit: int) -> None:
    start = state = reset("Who built it?", Settings(actions=limit))
    world = site()
    for text in texts:
        if state.done:
            break
        before = dumps(state)
        # Saved and loaded it goes on the same, in a world that was never asked before.
        branch = step(site(), loads(before), text)
        taken = step(world, state, text)
        assert dumps(taken.state) == dumps(branch.state)
        assert dumps(state) == before
        if state.phase == "browsing":
            action = taken.state.actions[-1]
            assert (action.invalid is None) or action.past is None
            assert taken.invalid == action.invalid
        state = taken.state
        if not state.done:
            assert prompt(state)
    again = replay(WORLD, start, state.texts)
    assert dumps(again) == dumps(state)
    assert state_from_json(json.loads(json.dumps(state_to_json(state)))) == state
    for reference in state.references:
        document = WORLD.open(reference.url).document
        assert document.text[reference.start : reference.end] == reference.extract
        assert document.sha256 == reference.sha256


@given(text=st.text(alphabet=st.characters(), max_size=200), where=st.sampled_from([(), AT_HILL]))
def test_any_text_is_a_step_that_the_log_explains(text: str, where: tuple[str, ...]) -> None:
    state = after(*where)
    taken = step(WORLD, state, text)
    assert len(taken.state.actions) == len(where) + 1
    assert dumps(taken.state).encode("utf-8")
    assert dumps(replay(WORLD, reset("Why?"), taken.state.texts)) == dumps(taken.state)


def test_a_text_that_is_too_long_is_too_long_again_in_a_replay() -> None:
    state = after(*AT_HILL, "Quote: " + "x" * 10**6, "Search " + "y" * LONGEST_ACTION)
    assert len(state.actions[-2].text) == LONGEST_ACTION + 1
    assert dumps(after(*state.texts)) == dumps(state)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("phase", "resting", "phase"),
        ("limit", 1, "limit"),
        ("end", "answer", "end"),
        ("settings", {"actions": 0}, "settings"),
        ("settings", {"action": 5}, "settings.action"),
        ("place", {"kind": "page", "target": "x", "first": -1, "cursor": 0}, "place.first"),
        ("references", [{"extract": "abc", "start": 0, "end": 2}], r"references\[0\].end"),
        ("view", None, "view"),
    ],
)
def test_a_state_that_is_none_is_refused_by_its_field(path: str, value: object, field: str) -> None:
    found = state_to_json(after(*AT_HILL)) | {path: value}
    with pytest.raises(RecordError, match=field):
        state_from_json(json.loads(json.dumps(found)))
    with pytest.raises(RecordError, match="JSON"):
        loads("{")


def test_a_state_that_points_behind_its_page_goes_on() -> None:
    value = json.loads(dumps(after(*AT_BAY)))
    value["place"] |= {"first": 10**6, "cursor": 10**6}
    state = state_from_json(value)
    for text in ("Quote: a town", "Find in page: town", "Top", "Scrolled up 1", "Back"):
        assert step(WORLD, state, text).invalid is None
    assert replay(WORLD, state, ["Quote: a town"]).references[0].url == BAY

"""What the model reads: the figure's own text, the answering prompt, prompts that fit."""

import pathlib
import re
import textwrap

import pytest
from browser.sites import HILL, ListedResults, page, site
from hypothesis import given
from hypothesis import strategies as st

from gophercite.browser.environment import replay, reset
from gophercite.browser.observation import TokenBudget, answering_prompt, observe, prompt
from gophercite.browser.pages import results_page
from gophercite.browser.settings import Settings
from gophercite.browser.worlds import SiteWorld
from gophercite.retrieval.engine import Hit

PAPER = pathlib.Path(__file__).parents[2] / "../shared/papers/webgpt.txt"

# WebGPT, figure 1(b), with its line breaks and its own misspelling.
FIGURE = """\
♦Question
How can I train the crows in my neighborhood to bring me gifts?
♦Quotes
From Gifts From Crows | Outside My Window (www.birdsoutsidemywindow.org)
> Many animals give gifts to members of their own species but crows and
other corvids are the only nes known to give gifts to humans.
♦Past actions
Search how to train crows to bring you gifts
Click Gifts From Crows | Outside My Window www.birdsoutsidemywindow.org
Quote
Back
♦Title
Search results for: how to train crows to bring you gifts
♦Scrollbar: 0 - 11
♦Text
【0†How to Make Friends With Crows - PetHelpful†pethelpful.com】
If you did this a few times, your crows would learn your new place, but
as I said, I’m not sure if they will follow or visit you there since it’s
probably not in their territory. The other option is simply to make new
crow friends with the crows that live in your new neighborhood.
【1†Gifts From Crows | Outside My Window†www.birdsoutsidemywindow.org】
The partial piece of apple may have been left behind when the crow was
startled rather than as a gift. If the crows bring bright objects you’ll
know for sure that it’s a gift because it’s not something they eat.
Brandi Williams says: May 28, 2020 at 7:19 am.
♦Actions left: 96
♦Next action"""

QUESTION = "How can I train the crows in my neighborhood to bring me gifts?"
QUERY = "how to train crows to bring you gifts"
GIFTS = (
    "Many animals give gifts to members of their own species but crows and other corvids are the "
    "only nes known to give gifts to humans."
)
BLOG = "https://www.birdsoutsidemywindow.org/2016/gifts-from-crows/"
CROWS = SiteWorld(
    "crows",
    [page(BLOG, "Gifts From Crows | Outside My Window", f"A walk in March.\n\n{GIFTS}\n\nBye.")],
    ListedResults(
        {
            QUERY: [
                Hit(
                    "https://pethelpful.com/birds/crows",
                    "How to Make Friends With Crows - PetHelpful",
                    "If you did this a few times, your crows would learn your new place, but as I "
                    "said, I’m not sure if they will follow or visit you there since it’s probably "
                    "not in their territory. The other option is simply to make new crow friends "
                    "with the crows that live in your new neighborhood.",
                ),
                Hit(
                    BLOG,
                    "Gifts From Crows | Outside My Window",
                    "The partial piece of apple may have been left behind when the crow was "
                    "startled rather than as a gift. If the crows bring bright objects you’ll know "
                    "for sure that it’s a gift because it’s not something they eat. Brandi "
                    "Williams says: May 28, 2020 at 7:19 am.",
                ),
            ]
        }
    ),
)
FOUR_ACTIONS = (f"Search {QUERY}", "Clicked on link 1", f"Quote: {GIFTS}", "Back")


def as_typeset(text: str) -> str:
    """The figure's lines are at most 73 characters long, as its box is wide."""
    return "\n".join(textwrap.fill(line, 73) for line in text.split("\n"))


def test_the_four_actions_of_figure_1_give_its_text_to_the_character() -> None:
    state = replay(CROWS, reset(QUESTION), FOUR_ACTIONS)
    assert as_typeset(observe(state)) == FIGURE


@pytest.mark.skipif(not PAPER.exists(), reason="needs ../shared")
def test_the_figure_is_the_papers() -> None:
    lines = (line.strip() for line in PAPER.read_text("utf-8").split("\n")[39:81])
    papers = "\n".join(lines).partition("♦Question")[2].partition("♦   Next action")[0]
    papers = re.sub("\n+", "\n", papers.replace("♦   Actions", "♦Actions"))
    assert f"♦Question{papers}♦Next action" == FIGURE


def test_a_new_episode_is_all_fields_and_nothing_in_them() -> None:
    assert observe(reset("Why?")) == (
        "♦Question\nWhy?\n♦Quotes\n♦Past actions\n♦Title\n♦Scrollbar: 0 - 0\n♦Text\n"
        "♦Actions left: 100\n♦Next action"
    )


def test_the_answering_prompt_is_the_appendixs() -> None:
    state = replay(
        CROWS,
        reset(QUESTION),
        (*FOUR_ACTIONS[:3], "Quote: a walk in march.", "End: Answer"),
    )
    source = "Gifts From Crows | Outside My Window (www.birdsoutsidemywindow.org)"
    assert (
        prompt(state)
        == answering_prompt(state)
        == (f"{QUESTION}■[1] {source}\n\n{GIFTS}■[2] {source}\n\nA walk in March.■")
    )


def test_marks_of_strangers_are_replaced_wherever_they_are_shown() -> None:
    state = reset("What is ♦Quotes【?■")
    state = replay(site(), state, ["Search lighthouse", "Clicked on link 0"])
    state = replay(site(), state, ["Search ♦Next action■"])
    seen = observe(state)
    assert "What is ◆Quotes〖?▪" in seen
    assert "Click The ◆ lighthouse hill.example" in seen
    assert "Search ◆Next action▪" in seen
    assert "Search results for: ◆Next action▪" in seen
    assert seen.count("♦") == 8
    assert "■" not in seen


def test_links_of_the_same_site_have_no_domain_and_blocked_ones_are_text() -> None:
    state = replay(site(), reset("Why?"), ["Search lighthouse", "Clicked on link 0"])
    assert state.view.title == "The ◆ lighthouse (hill.example)"
    assert state.view.text.endswith(
        "See 【0†the town†www.bay.example】, 【1†its keeper】, Reddit and 【2†the archive】."
    )


# --- Prompts that fit ---

LONG_EPISODE = (
    *("Search lighthouse", "Clicked on link 0", "Quote: the lighthouse━anna vell."),
    *("Quote: it burned down in 1901.", "Clicked on link 2", "Scrolled down 3", "Top") * 2,
)


def characters(text: str) -> int:
    return len(text)


@given(tokens=st.integers(100, 2500))
def test_prompts_fit_and_use_what_there_is(tokens: int) -> None:
    state = replay(site(), reset("Who built it, and when did it burn down?"), LONG_EPISODE)
    budget = TokenBudget(tokens, characters)
    whole = observe(state)
    try:
        fitted = observe(state, budget)
    except ValueError:
        assert tokens < 160
        return
    assert len(fitted) <= tokens
    assert (fitted == whole) == (len(whole) <= tokens)
    assert fitted.endswith(f"♦Actions left: {state.actions_left}\n♦Next action")


def test_actions_go_first_then_extracts_quotes_text_and_the_question() -> None:
    state = replay(site(), reset("Who built it, and when did it burn down?"), LONG_EPISODE)
    whole = observe(state)

    def fitted(tokens: int) -> str:
        return observe(state, TokenBudget(tokens, characters))

    first = fitted(len(whole) - 1)
    assert "♦Past actions\n…\nClick The ◆ lighthouse hill.example\nQuote\n" in first
    assert first.replace("♦Past actions\n…", "♦Past actions\nSearch lighthouse") == whole
    actions = len("\n".join(a.past or "" for a in state.actions))
    second = fitted(len(whole) - actions - 1)
    assert "♦Past actions\n…\n♦Title" in second
    assert "> The lighthouse was built in 1874 by Anna Vell." not in second
    assert re.search("\n> The ligh.* … .*Vell\\.\n", second)
    assert state.view.text in second
    third = fitted(len(whole) - actions - 200)
    assert state.view.text not in third
    assert state.view.text[:50] in third
    assert state.question in third
    fourth = fitted(150)
    assert "♦Quotes\n…\n♦Past" in fourth
    assert state.question not in fourth
    assert "♦Question\nWho" in fourth


def test_an_answering_prompt_shortens_all_extracts_alike() -> None:
    state = replay(site(), reset("Who?"), (*LONG_EPISODE[:4], "End: Answer"))
    whole = answering_prompt(state)
    shorter = answering_prompt(state, TokenBudget(len(whole) - 20, characters))
    assert len(shorter) <= len(whole) - 20
    assert "[1] The ◆ lighthouse (hill.example)\n\nThe lighthou … Anna Vell.■" in shorter
    assert shorter.endswith("It burned down in 1901.■")  # no longer than the first has become
    shortest = answering_prompt(state, TokenBudget(60, characters))
    assert shortest == "Who?■[1] The ◆ lighthouse (hill.example)\n\n…■…■"


def test_a_budget_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit 10 tokens"):
        observe(reset("Why?"), TokenBudget(10, characters))
    with pytest.raises(ValueError, match="at least 1"):
        TokenBudget(0, characters)


def test_there_is_nothing_to_read_when_the_episode_is_over() -> None:
    state = replay(site(), reset("Why?", Settings(actions=1)), ["Back"])
    with pytest.raises(ValueError, match="over"):
        prompt(state)


def test_extracts_keep_their_lines() -> None:
    texts = ["Search lighthouse", "Clicked on link 0", "Quote: anna vell. it burned"]
    state = replay(site(), reset("Why?"), texts)
    assert "> Anna Vell.\n> It burned\n" in observe(state)
    assert state.references[0].url == HILL


def test_titles_of_results_that_change_as_documents_do_are_still_where_their_links_are() -> None:
    """An engine of one's own may answer with anything, such as two code points for one letter."""
    titles = ("Cafe\u0301 \u200bau lait", "\u200b", "Tea\r\n\u2028time", "\ud800")
    found = results_page(
        "drinks", [Hit("http://a.example/", title, "Hot\u00ad.") for title in titles]
    )
    shown = [found.document.text[link.start : link.end] for link in found.links]
    assert shown == ["Café au lait", "http://a.example/", "Tea time", "\ufffd"]

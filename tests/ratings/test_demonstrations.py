"""The demonstration browser on a real server: what it shows, and the records that it makes."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from browser.sites import LIGHTHOUSE, site
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_webs import SCREEN

from data_pipelines.browsing_completions import main as browsing_completions
from data_pipelines.demonstrators.styles import STYLES, Noise
from data_pipelines.sample_web.making import make_split
from gophercite import cli, records
from gophercite.browser.environment import replay, reset
from gophercite.browser.episodes import (
    Episode,
    examples,
    read_episodes,
)
from gophercite.browser.observation import prompt
from gophercite.browser.pages import Page
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings as BrowserSettings
from gophercite.browser.worlds import SiteWorld, World
from gophercite.documents import Document
from gophercite.rating_site.demonstration_pages import runs
from gophercite.ratings import demonstrations
from gophercite.ratings.demonstrations import Asked, Browsing, problem_of_answer
from gophercite.ratings.schema import episode_steps
from gophercite.ratings.study import Study
from gophercite.retrieval.index import DocumentIndex
from tests.ratings.browsing import (
    QUESTION,
    Demonstrator,
    at_hill,
    export,
    is_replayed,
    served_site,
    steps_of,
)
from tests.ratings.served import Served, serve

Says = pytest.CaptureFixture[str]
MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model"
ANSWER = "Anna Vell built it in 1874 [1]."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("demonstrated")


@pytest.fixture(scope="module")
def served(folder: pathlib.Path) -> Iterator[Served]:
    with served_site(folder) as served:
        yield served


# --- An episode ---


def test_an_episode_from_the_question_to_the_record(
    served: Served, folder: pathlib.Path, capsys: Says
) -> None:
    person = Demonstrator(served, "Ada")
    assert "1 to go" in person.browser.get("/").text
    assert QUESTION in person.page.text
    assert "No page is open" in person.page.text
    assert not person.can("End: Answer"), "nothing is quoted"
    assert not person.can("Back")
    person.search("lighthouse")
    assert "Search results for: lighthouse" in person.page.text
    person.press("Clicked on link 0")
    assert "The ◆ lighthouse (hill.example)" in person.page.text
    assert person.can("Back")
    assert not person.can("Scrolled down 1"), "all of it is shown"
    person.quote("the LIGHTHOUSE  was\nbuilt in 1874 by Anna Vell.")
    assert "of 30 actions left" in person.page.text
    person.press("Back")
    person.press("End: Answer")
    done = person.answer(f"  {ANSWER} ")
    assert "Nothing is left for you" in done.text
    assert "1 rated, 0 to go" in person.browser.get("/").text
    (episode,) = export(folder / "study", "demonstration", folder / "ada.jsonl")
    capsys.readouterr()
    assert [each.action for each in episode.steps] == [
        "Search lighthouse",
        "Clicked on link 0",
        "Quote: The lighthouse━Anna Vell.",
        "Back",
        "End: Answer",
        ANSWER,
    ]
    assert (episode.question_id, episode.world, episode.end.end) == ("q0", "site", "answer")
    assert episode.by.startswith("rater-")
    assert "Ada" not in (folder / "ada.jsonl").read_text()
    assert episode.end.references[0].extract == LIGHTHOUSE.partition("\n")[0]
    with RecordedWorld(folder / "world") as world:
        assert is_replayed(world, episode)
        assert len(list(examples(world, episode))) == 6


def test_all_that_a_page_shows_is_what_the_model_reads(served: Served) -> None:
    """Title, lines, text, links, quotes, past actions, actions left: of the same state."""
    person = at_hill(served, "Reader")
    person.quote("burned down")
    with served.study.store.reading() as connection:
        query = sa.select(sa.func.max(episode_steps.c.rater_id))
        there = demonstrations.browsing(connection, 1, connection.execute(query).scalar_one())
    assert there is not None
    observation, seen = prompt(there.state), person.page
    for line in ("Search lighthouse", "Click The ◆ lighthouse hill.example", "Quote"):
        assert line in observation.splitlines()
        assert line in seen.text
    assert "♦Actions left: 27" in observation
    assert "27 of 30 actions left" in seen.text
    assert "♦Scrollbar: 0 - 4" in observation
    assert "Lines 0 to 4 of 5" in seen.text
    text = observation.partition("♦Text\n")[2].partition("\n♦Actions")[0]
    assert "【0†the town†www.bay.example】" in text
    shown = seen.elements.text
    for part in text.replace("【", "\0").replace("】", "\0").replace("†", "\0").split("\0"):
        assert part in shown or part.isdigit(), part
    assert seen.has("button", value="Clicked on link 0")
    assert not seen.has("button", value="Clicked on link 3"), "Reddit is blocked"
    assert "hill.example/keeper" not in seen.source, "no address of a stranger's page"


def test_a_link_that_the_screen_cuts_off_is_still_one() -> None:
    assert [
        (run.text, run.link, run.domain) for run in runs("a 【0†b\nc†d.example】 e【12†f†g")
    ] == [
        ("a ", None, ""),
        ("b\nc", 0, "d.example"),
        (" e", None, ""),
        ("f", 12, "g"),
    ]
    assert [run.text for run in runs("end†x.example】 tail")] == ["end†x.example】 tail"]


def test_people_walk_what_scripts_demonstrated_and_cloning_learns_it(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    """Every style, page by page through the app: the same records, and the same completions."""
    no_mistakes = [dataclasses.replace(each, noise=Noise().times(0)) for each in STYLES.values()]
    make_split(
        tmp_path, "train", seed=0, pages=60, questions=12, demonstrated=12, steps=(1, 1),
        settings=SCREEN, styles=no_mistakes, progress=lambda *_: lambda *_: None,
    )  # fmt: skip
    scripted = {
        each.question_id: each
        for each in read_episodes(tmp_path / "demonstrations_train.jsonl.gz", strict=True)
    }
    world = ["--world", str(tmp_path / "world_train")]
    rules = ["--browser", f"view_lines={SCREEN.view_lines}"]
    arguments = [str(tmp_path / "study"), str(tmp_path / "questions_train.jsonl")]
    assert cli.main(["rate", "new", *arguments, "--form", "demonstration", *world, *rules]) == 0
    with serve(Study(tmp_path / "study")) as served:
        by_question = {each.start.question: each for each in scripted.values()}
        person = Demonstrator(served, "walker")
        for _ in scripted:
            found = [text for text in by_question if text in person.page.text]
            (asked,) = (text for text in found if len(text) == max(map(len, found)))
            for each in by_question[asked].steps:
                if "Write your answer" in person.page.text:
                    person.answer(each.action)
                else:
                    person.follow(each.action)
        assert "Nothing is left" in person.page.text
    out = tmp_path / "episodes.jsonl.gz"
    walked = export(tmp_path / "study", "demonstration", out)
    assert f"their world: {tmp_path / 'world_train'}" in capsys.readouterr().out
    assert {each.question_id for each in walked} == scripted.keys()
    kinds = set()
    with RecordedWorld(tmp_path / "world_train") as opened:
        for each in walked:
            before = scripted[each.question_id]
            assert each.end.view == before.end.view or each.end.references
            assert [(r.start, r.end, r.document) for r in each.end.references] == [
                (r.start, r.end, r.document) for r in before.end.references
            ]
            assert each.end.answer == before.end.answer
            assert is_replayed(opened, each), "the same states"
            assert len(each.steps) <= len(before.steps)
            kinds |= {step.action.split()[0] for step in each.steps[:-1]}
    assert {"Search", "Clicked", "Find", "Quote:", "Scrolled", "End:"} <= kinds
    options = ["--vocabulary", str(MODEL / "vocabulary"), "--prompt-tokens", "384"]
    data = [str(tmp_path / "world_train"), str(out), str(tmp_path / "data")]
    assert browsing_completions([*data, *options]) == 0
    learnt = list(
        records.read(tmp_path / "data/completions_train.jsonl", records.Completion, strict=True)
    )
    assert len(learnt) == sum(len(each.steps) for each in walked)
    assert "0 episodes of another world" in capsys.readouterr().out


# --- Scrolls, quotes, answers ---


def test_repeated_scrolls_are_one_action(served: Served) -> None:
    person = Demonstrator(served, "Scroller")
    person.search("lighthouse")
    person.press("Clicked on link 2")
    for _ in range(5):
        person.press("Scrolled down 1")
    assert "Lines 100 to 119 of 200" in person.page.text
    assert "26 of 30 actions left" in person.page.text
    person.press("Scrolled up 1")
    person.press("Scrolled up 1")
    assert "Lines 60 to 79 of 200" in person.page.text
    person.find("Line 150")
    person.press("Top")
    for _ in range(20):
        if person.can("Scrolled down 1"):
            person.press("Scrolled down 1")
    assert not person.can("Scrolled down 1"), "the end of the page"
    person.press("Back")
    person.press("Clicked on link 0")
    person.quote("burned down")
    person.press("End: Nonsense")
    (episode,) = _of(served, "Scroller")
    actions = [each.action for each in episode.steps]
    assert actions[2:6] == [
        "Scrolled down 3",
        "Scrolled down 2",
        "Scrolled up 2",
        "Find in page: Line 150",
    ]
    assert actions[6:10] == ["Top", *["Scrolled down 3"] * 3]
    assert episode.end.end == "nonsense"
    assert episode.end.answer is None


def _of(served: Served, name: str) -> list[Episode]:
    """The exported episodes of one rater."""
    out = served.study.folder.parent / "of.jsonl"
    texts = steps_of(served, name)
    every = export(served.study.folder, "demonstration", out)
    return [each for each in every if each.steps[-1].action == texts[-1] and _fits(each, texts)]


def _fits(episode: Episode, texts: list[str]) -> bool:
    return [step.action for step in episode.steps if step.action not in texts] == []


MOVES = ["Scrolled down 1", "Scrolled up 1", "Top", "find", "Back", "Clicked on link 2", "search"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(MOVES), max_size=25), st.integers(5, 40))
def test_merging_changes_no_place(moves: list[str], lines: int) -> None:
    """Whatever is done: the same view as without merging, in no more actions."""
    world, start = site(), reset("Why?", BrowserSettings(view_lines=lines))
    rows: list[tuple[str, bool]] = []
    there = Browsing(0, "", "", start, start, 0.0)
    single = start
    for move in ("search", "Clicked on link 2", *moves):
        sent = {"do": move, "text": "lighthouse" if move == "search" else "line 15"}
        asked = demonstrations.asked(world, there, sent)
        after = demonstrations.taken(world, there, asked)
        plain = demonstrations.taken(
            world, there._replace(state=single), demonstrations.asked(world, there, sent)
            ._replace(merges=False, text=_unmerged(move, sent["text"])),
        )  # fmt: skip
        if after.invalid is not None:
            assert plain.invalid is not None
            continue
        rows.append((asked.text, asked.merges))
        before = there.before if asked.merges else there.state
        there = Browsing(there.version + 1, asked.text, "", after.state, before, 0.0)
        single = plain.state
        assert (there.state.view, there.state.place) == (single.view, single.place)
        assert there.state.history == single.history
    standing: list[str] = []
    for text, merges in rows:
        if merges:
            standing.pop()
        standing.append(text)
    assert replay(world, start, standing) == there.state
    assert len(standing) <= len(single.actions)


def _unmerged(move: str, text: str) -> str:
    return {"search": f"Search {text}", "find": f"Find in page: {text}"}.get(move, move)


@pytest.mark.parametrize(
    ("text", "until", "command"),
    [
        ("it burned down", "", "Quote: It burned down"),
        ("was built in", "burned down", "Quote: was built━burned down"),
        ("The lighthouse", "Anna Vell.", "Quote: The lighthouse━Anna Vell."),
        ("1901.", "", "Quote: 1901."),
    ],
)
def test_quotes_are_written_as_the_page_has_them(text: str, until: str, command: str) -> None:
    world = site()
    state = replay(world, reset("Why?"), ["Search lighthouse", "Clicked on link 0"])
    there = Browsing(2, "", "", state, state, 0.0)
    asked = demonstrations.asked(world, there, {"do": "quote", "text": text, "until": until})
    assert asked == Asked(command)
    assert demonstrations.taken(world, there, asked).invalid is None


def test_ends_stand_for_a_quote_only_where_they_mean_its_place() -> None:
    """The first two and the last two words stand in the sentence before, too: three do not."""
    text = (
        "The bay is deep here. The bay was full of ships and nets in the years of her youth, here."
    )
    world = one_page(text)
    state = replay(world, reset("Why?"), ["Search towers", "Clicked on link 0"])
    there = Browsing(2, "", "", state, state, 0.0)
    sent = {"do": "quote", "text": text.partition(" here. ")[2]}
    asked = demonstrations.asked(world, there, sent)
    assert asked.text == "Quote: The bay was━her youth, here."
    quoted = demonstrations.taken(world, there, asked).state.references[-1]
    assert quoted.extract == sent["text"]


def one_page(text: str) -> World:
    page = Page(Document("d", "Towers", text, "http://d.example/"))
    index = DocumentIndex(None)
    index.add([page.document])
    return SiteWorld("w", [page], index)


def test_what_a_page_shows_by_its_code_is_quoted_all_the_same(tmp_path: pathlib.Path) -> None:
    """What turns the writing is shown as `\\u202e`, and marked as that."""
    text = "A lighthouse that \u202eturns\u202c."
    world = one_page(text)
    state = replay(world, reset("Why?"), ["Search towers", "Clicked on link 0"])
    there = Browsing(2, "", "", state, state, 0.0)
    sent = {"do": "quote", "text": "lighthouse that \\u202eturns\\u202c."}
    asked = demonstrations.asked(world, there, sent)
    after = demonstrations.taken(world, there, asked)
    assert after.invalid is None
    assert after.state.references[-1].extract == "lighthouse that \u202eturns\u202c."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "write an answer"),
        (" \n", "write an answer"),
        ("It was Anna Vell.", "cite your quotes"),
        ("It was Anna Vell [2].", "no quote [2]; you have [1]."),
        ("It was Anna Vell [1, 7].", "no quote [7]"),
        ("It was Anna Vell [0].", "no quote [0]"),
        ("It was [sic] Anna Vell [1].", "Please use brackets only"),
        ("It was Anna Vell [1", "Please use brackets only"),
    ],
)
def test_answers_that_are_refused(served: Served, answer: str, said: str) -> None:
    person = at_hill(served, f"Answerer {answer!r}")
    person.quote("burned down")
    person.press("End: Answer")
    refused = person.answer(answer)
    assert refused.status == 422
    assert said in refused.text
    assert refused.elements.form["answer"].strip() == answer.strip()
    assert said in (problem_of_answer(answer, 1) or "")
    assert "Nothing is left" in person.answer("It burned down [1].").text


def test_several_citations_and_none_too_many() -> None:
    assert problem_of_answer("Both say so [1, 2]; one [2].", 2) is None
    assert problem_of_answer("Both say so [1,2].", 2) is None
    said = problem_of_answer("Both say so [1,2,3].", 2)
    assert said == "There is no quote [3]; you have [1] to [2]."

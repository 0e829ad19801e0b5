"""The demonstration browser on a real server: what it shows, takes and refuses, and its records."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest
import sqlalchemy as sa
from browser.sites import HILL, LIGHTHOUSE, ListedResults, page, site
from hypothesis import given, settings
from hypothesis import strategies as st
from retrieval.servers import answer, serving
from sample_webs import SCREEN

from data_pipelines.browsing_completions import main as browsing_completions
from data_pipelines.demonstrators.styles import STYLES, Noise
from data_pipelines.sample_web.making import make_split
from gophercite import cli, records
from gophercite.browser.environment import replay, reset
from gophercite.browser.episodes import (
    Episode,
    episode_to_json,
    examples,
    read_episodes,
    replayed,
)
from gophercite.browser.observation import prompt
from gophercite.browser.pages import Page
from gophercite.browser.recorded import RecordedWorld, Recorder
from gophercite.browser.settings import Settings as BrowserSettings
from gophercite.browser.worlds import SiteWorld, World
from gophercite.documents import Document
from gophercite.ratings import demonstrations
from gophercite.ratings.demonstration_pages import runs
from gophercite.ratings.demonstrations import Asked, Browsing, problem_of_answer
from gophercite.ratings.schema import audit, episode_steps, items, leases, ratings
from gophercite.ratings.study import Study
from gophercite.retrieval.engine import Hit
from gophercite.retrieval.index import DocumentIndex
from tests.ratings.browsing import QUESTION, Demonstrator, question, recorded, study_of, write
from tests.ratings.databases import postgresql
from tests.ratings.served import Browser, Served, serve
from tests.ratings.studies import Clock
from tests.ratings.test_attacks import EVIL, assert_harmless

Says = pytest.CaptureFixture[str]
MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model"
ANSWER = "Anna Vell built it in 1874 [1]."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("demonstrated")


@pytest.fixture(scope="module")
def served(folder: pathlib.Path) -> Iterator[Served]:
    more = ("--set", "raters=999", "--browser", "view_lines=20", "--browser", "actions=30")
    study = study_of(folder, question("q0"), more=more)
    with serve(study) as served:
        yield served


def steps_of(served: Served, name: str) -> list[str]:
    """The rows of a rater, in their order."""
    with served.study.store.reading() as connection:
        query = (
            sa.select(episode_steps.c.text)
            .join(sa.text("raters"), sa.text("raters.id = episode_steps.rater_id"))
            .where(sa.text("raters.name = :name").bindparams(name=name))
            .order_by(episode_steps.c.number)
        )
        return list(connection.execute(query).scalars())[1:]


def export(study: pathlib.Path, experiment: str, out: pathlib.Path) -> list[Episode]:
    assert cli.main(["rate", "export", str(study), experiment, "episodes", str(out)]) == 0
    assert cli.main(["validate", str(out), "--kind", "episodes"]) == 0
    return list(read_episodes(out, strict=True))


def is_replayed(world: World, episode: Episode) -> bool:
    """Whether an episode goes in a world as its record says, step by step."""
    return episode_to_json(replayed(world, episode)) == episode_to_json(episode)


def at_hill(served: Served, name: str) -> Demonstrator:
    person = Demonstrator(served, name)
    person.search("lighthouse")
    person.press("Clicked on link 0")
    return person


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
        ("It was Anna Vell [2].", "no quote [2]; there is [1]."),
        ("It was Anna Vell [1, 7].", "no quote [7]"),
        ("It was Anna Vell [0].", "no quote [0]"),
        ("It was [sic] Anna Vell [1].", "Brackets are for"),
        ("It was Anna Vell [1", "Brackets are for"),
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
    assert said == "There is no quote [3]; there is [1] to [2]."


# --- What can't be done, and what comes twice ---


def test_what_can_t_be_done_is_said_and_not_counted(served: Served) -> None:
    person = at_hill(served, "Clumsy")
    version = person.version
    for send, said in (
        (lambda: person.quote("no such words"), "the page does not hold this text"),
        (lambda: person.search(" "), "says only 'Search'"),
        (lambda: person.send(do="Clicked on link 99"), "no link 99"),
        (lambda: person.send(do="Fly away"), "none of the commands"),
        (lambda: person.send(do="search", text="x" * 20_000), "more than 10000"),
        (lambda: person.send(), "is empty"),
    ):
        wrong = send()
        assert wrong.status == 422
        assert said in wrong.text, wrong.text
        assert person.version == version
    assert person.quote("no such words", "at all").elements.form["until"] == "at all"
    assert steps_of(served, "Clumsy") == ["Search lighthouse", "Clicked on link 0"]
    missing = person.find("no such words")
    assert missing.status == 200, "a valid action, which changes nothing"
    assert "The page does not hold this text" in missing.text


def test_old_pages_and_forms_sent_twice_change_nothing(served: Served) -> None:
    person = Demonstrator(served, "Doubtful")
    first = person.hidden
    search = first | {"do": "search", "text": "lighthouse"}
    for _ in range(3):
        page = person.browser.send("/e/1", search)
        assert page.status == 200
    assert steps_of(served, "Doubtful") == ["Search lighthouse"]
    for old in (
        first | {"do": "search", "text": "another"},
        first | {"do": "End: Nonsense"},
        first | {"do": "search", "text": "lighthouse", "version": "-1"},
        first | {"do": "search", "text": "lighthouse", "version": "7"},
        first | {"do": "search", "text": "lighthouse", "version": ""},
    ):
        page = person.browser.send("/e/1", old)
        assert page.status == 409
        assert "nothing was done" in page.text
        assert page.form["version"] == "1"
    assert steps_of(served, "Doubtful") == ["Search lighthouse"]


def test_a_form_that_is_sent_by_many_at_once_is_done_once(served: Served) -> None:
    person = at_hill(served, "Impatient")
    forms = [person.hidden | {"do": "quote", "text": "burned down"}] * 8
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda form: person.browser.send("/e/1", form), forms))
    assert {page.status for page in pages} == {200}
    assert steps_of(served, "Impatient").count("Quote: burned down") == 1


def test_tickets_are_for_one_rater_and_pools_for_theirs(served: Served) -> None:
    person, other = Demonstrator(served, "Owner"), Demonstrator(served, "Thief")
    stolen = other.hidden | {"ticket": person.hidden["ticket"], "do": "search", "text": "x"}
    assert other.browser.send("/e/1", stolen).status == 403
    foreign = other.hidden | {"form": person.hidden["form"], "do": "search", "text": "x"}
    assert other.browser.send("/e/1", foreign).status == 403
    without = {name: value for name, value in other.hidden.items() if name != "form"}
    assert other.browser.send("/e/1", without | {"do": "search", "text": "x"}).status == 403
    assert served.browser("wide one", pool="wide").get("/e/1").status == 404
    assert steps_of(served, "Thief") == steps_of(served, "Owner") == []
    assert person.browser.send("/e/1", {"text": "x" * 300_000}).status == 413


# --- Leases, links, limits ---


def test_no_lease_or_link_that_expires_loses_a_step(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = at_hill(served, "Slow")
        clock.time += 31 * 60
        other = at_hill(served, "Quick")
        other.quote("burned down")
        other.press("End: Answer")
        other.answer("It burned down [1].")
        page = person.browser.get("/e/1")
        assert "The ◆ lighthouse" in page.text, "who was at work goes on, and is not sent away"
        person.page = page
        person.quote("Anna Vell")
        person.press("End: Answer")
        clock.time += 3600
        late = person.answer("Anna Vell [1].")
        assert late.status == 403
        assert "What you wrote is kept" in late.text
        again = Demonstrator(served, "Slow")
        assert "This is what you had written" in again.page.text
        assert again.page.elements.form["answer"] == "Anna Vell [1]."
        assert "Nothing is left" in again.answer("Anna Vell [1].").text
        with study.store.reading() as connection:
            assert connection.execute(sa.select(items.c.load)).scalar_one() == 2
            assert connection.execute(sa.select(sa.func.count(ratings.c.id))).scalar_one() == 2
    assert len(export(tmp_path / "study", "demonstration", tmp_path / "e.jsonl")) == 1, (
        "one was wanted"
    )
    study.store.close()


def test_each_step_renews_the_lease(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = Demonstrator(served, "Steady")
        clock.time += 29 * 60
        person.search("lighthouse")
        with study.store.reading() as connection:
            expires = connection.execute(sa.select(leases.c.expires_at)).scalar_one()
        assert expires == clock.time + 30 * 60
        person.browser.send("/e/1", person.hidden | {"do": "search", "text": " "})
        clock.time += 29 * 60
        form = person.hidden | {"do": "Clicked on link 0"}
        person.browser.client.post("/e/1", data=form, follow_redirects=False)
        with study.store.reading() as connection:
            again = connection.execute(sa.select(leases.c.expires_at)).scalar_one()
        assert again == clock.time + 30 * 60, "by the step itself, not by the page behind it"
    study.store.close()


def test_skipping_and_saving(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path, question("q0", "One?"), question("q1", "Two?")).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = at_hill(served, "Skipper")
        begun = "One?" if "One?" in person.page.text else "Two?"
        skipped = person.send(action="skip")
        assert begun not in skipped.text
        assert "No page is open" in skipped.text
        other = at_hill(served, "Second")
        assert begun in other.page.text, "somebody else has it"
        other.quote("burned down")
        other.press("End: Answer")
        saved = other.browser.send("/e/1", other.hidden | {"answer": "A dr", "action": "save"})
        assert saved.elements.form["answer"] == "A dr"
        draft = other.hidden | {"answer": "A draft"}
        assert other.browser.send("/e/1/draft", draft).source == '{"saved":true}'
        assert other.browser.get("/e/1").elements.form["answer"] == "A draft"
        clock.time += 31 * 60
        third = Demonstrator(served, "Third")
        assert begun in third.page.text
        taken = other.browser.send("/e/1", other.hidden | {"action": "skip"})
        assert begun not in taken.text, "skipped, though others have it"
        assert begun not in other.browser.get("/e/1").text
    study.store.close()


def test_browsing_ends_with_the_actions_and_the_characters(tmp_path: pathlib.Path) -> None:
    rules = ("--browser", "actions=3", "--browser", "reference_characters=40")
    study = study_of(tmp_path, more=(*rules, "--set", "raters=9"))
    with serve(study) as served:
        empty = at_hill(served, "empty")
        assert "Nothing is left" in empty.find("town").text, "no quote, and so no answer"
        full = at_hill(served, "full")
        assert "actions are used up" in full.quote("burned down").text
        assert "Nothing is left" in full.answer("It burned down [1].").text
        much = at_hill(served, "much")
        told = much.quote("The lighthouse was built in 1874 by Anna")
        assert "as much as is possible" in told.text
        long = at_hill(served, "long")
        assert "can be quoted" in long.quote(LIGHTHOUSE).text
    ended = [each.end.end for each in export(study.folder, "demonstration", tmp_path / "e.jsonl")]
    assert sorted(map(str, ended)) == ["actions", "actions"]
    study.store.close()


# --- Strangers ---


def test_nothing_of_strangers_runs(tmp_path: pathlib.Path) -> None:
    """Pages, titles, addresses, queries, questions, quotes, past actions, answers."""
    index = tmp_path / "index.db"
    text = f"Before {EVIL} after.\n{EVIL}"
    with DocumentIndex(index, write=True) as opened:
        opened.add([Document(f"d {EVIL}", f"T {EVIL}", text, f"http://x.example/{EVIL}")])
    line = write(tmp_path / "q.jsonl", question(f"q {EVIL}", f"Q {EVIL}?"))
    options = ["--form", "demonstration", "--index", str(index), "--experiment", "E <img src=x>"]
    options += ["--browser", "censored_words=0"]
    assert cli.main(["rate", "new", str(tmp_path / "study"), line, *options]) == 0
    with serve(Study(tmp_path / "study")) as served:
        person = Demonstrator(served, "victim")
        pages = [person.page, person.search(f"before {EVIL}")]
        assert "<script>alert(1)</script>" in person.page.elements.text
        pages += [person.press("Clicked on link 0"), person.find(f"Before {EVIL[:300]}")]
        pages += [person.quote(f"no {EVIL}"), person.quote("Before", "after.")]
        assert len(steps_of(served, "victim")) == 4
        pages += [person.press("End: Answer"), person.answer(f"{EVIL} [7]")]
        pages += [person.browser.get("/"), person.browser.get("/e/1/instructions")]
        assert "<script>alert(1)</script>" in pages[-3].elements.form["answer"]
        for page in pages:
            assert_harmless(page)
        assert "Nothing is left" in person.answer(f"{EVIL} [1]").text


def test_no_click_reaches_a_network(tmp_path: pathlib.Path) -> None:
    """Links of recorded and indexed pages lead to what is there, and to nothing else."""
    reached = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def listen() -> None:
            try:
                listening.accept()[0].close()
                reached.set()
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        inside = f"http://127.0.0.1:{port}/latest/meta-data"
        trap = page("http://trap.example/", "Trap", "Go inside now.", {"inside": inside})
        engine = ListedResults({"trap": [Hit("http://trap.example/", "Trap", "")]})
        with Recorder(SiteWorld("trap", [trap], engine), tmp_path / "world") as recorder:
            recorder.search("trap", 10)
            recorder.open("http://trap.example/")
        study = study_of(tmp_path)
        with serve(study) as served:
            person = Demonstrator(served, "curious")
            person.search("trap")
            person.press("Clicked on link 0")
            assert "This page can't be shown" in person.press("Clicked on link 0").text
        assert not reached.is_set()
        study.store.close()


def test_the_live_web_is_asked_only_by_studies_that_say_so_and_never_for_private_pages(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Says
) -> None:
    """A search engine on this machine may be asked; a page there, which is not public, may not."""
    file = write(tmp_path / "q.jsonl", question())
    options = ["--form", "demonstration", "--engine", "searxng"]
    monkeypatch.delenv("SEARXNG_URL", raising=False)
    study = str(tmp_path / "study")
    assert cli.main(["rate", "new", study, file, *options]) == 1
    assert "SEARXNG_URL" in capsys.readouterr().err
    with serving() as web:
        monkeypatch.setenv("SEARXNG_URL", web.base)
        hit = {"url": f"{web.base}/secret", "title": "Inside", "content": "Keys."}
        web.answers["/search"] = answer(json.dumps({"results": [hit]}))
        web.answers["/secret"] = answer("<p>The keys of the kingdom.", type="text/html")
        assert cli.main(["rate", "new", study, file, *options]) == 0
        with serve(Study(study)) as served:
            person = Demonstrator(served, "attacker")
            assert "Inside" in person.search("inside").text
            opened = person.press("Clicked on link 0")
            assert "This page can't be shown" in opened.text
            assert "kingdom" not in opened.source
            assert "no source that could be quoted" in opened.text
        assert {request.partition("?")[0] for request in web.requests} == {"/search"}
    assert (tmp_path / "study/worlds/1/searches.jsonl").read_text().count("Inside") == 1


def test_an_episode_on_postgresql(tmp_path: pathlib.Path) -> None:
    with postgresql() as url:
        study = study_of(tmp_path, more=("--database", url))
        with serve(study) as served:
            person = at_hill(served, "Ada")
            twice = person.hidden | {"do": "quote", "text": "burned down"}
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: person.browser.send("/e/1", twice), range(4)))
            person.page = person.browser.get("/e/1")
            person.press("End: Answer")
            assert "Nothing is left" in person.answer("It burned down [1].").text
        (episode,) = export(study.folder, "demonstration", tmp_path / "e.jsonl")
        assert len(episode.steps) == 5
        study.store.close()


def test_a_world_that_is_gone_is_no_rater_s_fault(tmp_path: pathlib.Path) -> None:
    study = study_of(tmp_path)
    (tmp_path / "world").rename(tmp_path / "moved")
    with serve(study) as served:
        person = Demonstrator(served, "patient")
        gone = person.search("lighthouse")
        assert gone.status == 503
        assert "What you did before is kept" in gone.text
        assert str(tmp_path) not in gone.source
        with study.store.reading() as connection:
            query = sa.select(audit.c.action).where(audit.c.action == "world-unreadable")
            assert connection.execute(query).scalar() == "world-unreadable"
        (tmp_path / "moved").rename(tmp_path / "world")
        person.page = person.browser.get("/e/1")
        assert person.search("lighthouse").status == 200
    study.store.close()


# --- An index, kills, the command ---


def test_what_was_browsed_of_an_index_is_a_recorded_world(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    index = tmp_path / "index.db"
    with DocumentIndex(index, write=True) as opened:
        opened.add([Document("light", "Lighthouse", "The lighthouse was built in 1874.")])
    lines = [question("q0"), question("q1", "When was the lighthouse built?")]
    file = write(tmp_path / "q.jsonl", *lines)
    options = ["--form", "demonstration", "--index", str(index), "--experiment", "notes"]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, *options]) == 0
    for _ in range(2):  # two servers, one after the other, write into the same recording
        with serve(Study(tmp_path / "study")) as served:
            person = Demonstrator(served, "indexed")
            person.search("lighthouse")
            person.press("Clicked on link 0")
            person.quote("built in 1874")
            person.press("End: Answer")
            person.answer("In 1874 [1].")
    index.unlink()
    out = tmp_path / "episodes.jsonl"
    episodes = export(tmp_path / "study", "notes", out)
    said = capsys.readouterr().out
    world = tmp_path / "study" / "worlds" / "1"
    assert f"their world: {world}" in said
    with RecordedWorld(world) as opened_world:
        assert opened_world.name == "notes" == episodes[0].world
        assert all(is_replayed(opened_world, each) for each in episodes)
        assert len(episodes) == 2


def test_a_server_does_not_start_without_its_worlds(tmp_path: pathlib.Path, capsys: Says) -> None:
    study_of(tmp_path).store.close()
    (tmp_path / "world").rename(tmp_path / "moved")
    assert cli.main(["rate", "serve", str(tmp_path / "study"), "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert "experiment 'demonstration'" in said
    assert str(tmp_path / "world") in said


def test_a_second_server_does_not_write_into_the_recording(tmp_path: pathlib.Path) -> None:
    index = tmp_path / "index.db"
    with DocumentIndex(index, write=True) as opened:
        opened.add([Document("light", "Lighthouse", "The lighthouse was built in 1874.")])
    file = write(tmp_path / "q.jsonl", question())
    options = ["--form", "demonstration", "--index", str(index)]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, *options]) == 0
    with serve(Study(tmp_path / "study")) as one, serve(Study(tmp_path / "study")) as two:
        assert Demonstrator(one, "Ada").search("lighthouse").status == 200
        assert two.browser("Ada").get("/e/1").status == 503


def test_each_step_that_was_answered_survives_a_kill(tmp_path: pathlib.Path) -> None:
    """A server process that is killed after every answer, and in the middle of one."""
    study_of(tmp_path, more=("--browser", "view_lines=20")).store.close()
    program = [sys.executable, "-m", "gophercite", "rate", "serve", "study", "--invite", "me"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def start() -> tuple[subprocess.Popen[str], str]:
        command = [*program, "--port", str(port)]
        server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        link = server.stdout.readline().split()[1]
        assert "serving" in server.stdout.readline()
        return server, link

    server, link = start()
    browser = Browser(f"http://127.0.0.1:{port}")
    patient = httpx.HTTPTransport(retries=12)  # until a server that was started listens
    browser.client = httpx.Client(
        base_url=browser.client.base_url, follow_redirects=True, transport=patient, timeout=30
    )
    browser.get(link.removeprefix(f"http://127.0.0.1:{port}"))
    person = Demonstrator.__new__(Demonstrator)
    person.browser, person.here, person.page = browser, "/e/1", browser.get("/e/1")
    done: list[str] = []
    for command in ("Search lighthouse", "Clicked on link 2", "Scrolled down 2", "Quote: Line 41"):
        person.follow(command)
        done.append(command)
        server.send_signal(signal.SIGKILL)
        server.wait()
        server, _ = start()
        person.page = browser.get("/e/1")
        rows = _standing(tmp_path)
        assert rows == done
    form = person.hidden | {"do": "End: Answer"}
    browser.send("/e/1", form)
    server.send_signal(signal.SIGKILL)
    server.wait()
    server, _ = start()
    again = browser.send("/e/1", form)  # as a person would who saw no answer
    assert "Write your answer" in again.text
    person.page = again
    assert "Nothing is left" in person.answer("It is line 41 [1].").text
    server.kill()
    server.wait()
    (episode,) = export(tmp_path / "study", "demonstration", tmp_path / "e.jsonl")
    assert [each.action for each in episode.steps[:-2]] == done
    with RecordedWorld(tmp_path / "world") as world:
        assert is_replayed(world, episode)


def _standing(folder: pathlib.Path) -> list[str]:
    study = Study(folder / "study")
    with study.store.reading() as connection:
        query = sa.select(episode_steps.c.text, episode_steps.c.merges)
        rows = connection.execute(query.order_by(episode_steps.c.number)).all()[1:]
    study.store.close()
    standing: list[str] = []
    for row in rows:
        if row.merges:
            standing.pop()
        standing.append(row.text)
    return standing


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--form", "demonstration"), "needs --world, --index or --engine"),
        (("--world", "WORLD"), "--world is for --form demonstration"),
        (("--browser", "actions=3"), "--browser is for --form demonstration"),
        (("--form", "demonstration", "--world", "absent"), "absent"),
        (("--form", "demonstration", "--world", "."), "world.json"),
        (("--form", "demonstration", "--index", "absent.db"), "absent.db"),
        (("--form", "demonstration", "--world", "WORLD", "--gold", "x"), "--gold is not for"),
        (
            ("--form", "demonstration", "--world", "WORLD", "--browser", "action=3"),
            "did you mean 'actions'",
        ),
        (
            ("--form", "demonstration", "--world", "WORLD", "--browser", "actions=0"),
            "no number from 1 on",
        ),
        (("--form", "demonstration", "--world", "WORLD", "--browser", "actions"), "NAME=VALUE"),
    ],
)
def test_errors_are_for_people(
    tmp_path: pathlib.Path, capsys: Says, arguments: tuple[str, ...], said: str
) -> None:
    world = recorded(tmp_path / "world")
    file = write(tmp_path / "q.jsonl", question())
    os.chdir(tmp_path)
    words = [world if each == "WORLD" else each for each in arguments]
    assert cli.main(["rate", "new", "study", file, *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gophercite rate: ")
    assert said in error
    assert not (tmp_path / "study").exists()


def test_bad_questions_are_named_and_episodes_are_nobody_s_votes(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    world = recorded(tmp_path / "world")
    file = write(tmp_path / "q.jsonl", question(), {"id": "x"}, question("q1", "Why?"))
    twice = write(tmp_path / "r.jsonl", question("q1", "Why?"))
    options = ["--form", "demonstration", "--world", world]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, twice, *options]) == 1
    said = capsys.readouterr()
    assert "with 2 items" in said.out
    assert "q.jsonl:2" in said.err
    assert "id of a question of another file" in said.err
    study = str(tmp_path / "study")
    votes = tmp_path / "v.csv"
    votes.write_text("item,rater,answer\nq0,ada,yes\n")
    assert cli.main(["rate", "import", study, "demonstration", str(votes)]) == 1
    assert cli.main(["rate", "adjudicate", study, "demonstration", "new"]) == 1
    out = str(tmp_path / "e.jsonl")
    assert cli.main(["rate", "export", study, "demonstration", "episodes", out]) == 1
    assert "2 without a vote that counts" in capsys.readouterr().err
    assert cli.main(["rate", "new", study, "--checks", "none"]) == 0
    assert cli.main(["rate", "export", study, "comparison", "episodes", out]) == 1
    assert "'comparison' has no world to browse" in capsys.readouterr().err
    assert cli.main(["rate", "status", study, "--json"]) == 0
    capsys.readouterr()
    more = write(tmp_path / "s.jsonl", question("q1"), question("q2"))
    assert cli.main(["rate", "add", study, "demonstration", more]) == 0
    assert "1 items added to 'demonstration', 1 were there already" in capsys.readouterr().out


def test_pages_that_say_the_answer_are_censored(tmp_path: pathlib.Path) -> None:
    told = f"It says that {' '.join(LIGHTHOUSE.split()).lower()} And so on."
    study = study_of(tmp_path, question(answers=["short", told]))
    with serve(study) as served:
        person = Demonstrator(served, "cheat")
        person.search("lighthouse")
        person.press("Clicked on link 0")
        assert "word for word" in person.page.text
        assert told not in person.page.source
        assert HILL not in person.page.source
    study.store.close()

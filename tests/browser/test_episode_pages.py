"""Episodes as pages: all steps are there, quotes are marked where they stand, nothing is markup."""

import dataclasses
import functools
import json
import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seen_html import TEXTS, Seen, as_shown

from gophercite.browser.browsed_answers import cited
from gophercite.browser.environment import reset
from gophercite.browser.episode_pages import (
    episode_page,
    pages_in,
    quoted_places,
    write_episode_pages,
)
from gophercite.browser.episodes import Episode, EpisodeStep, played, write_episodes
from gophercite.browser.settings import Settings
from gophercite.browser.state import Reference
from gophercite.cli import main
from tests.browser.sites import HILL, site

TEXT = (
    "Search lighthouse",
    "Clicked on link 0",
    "Quote: by anna vell",
    "Quote: by nobody",
    "Quote: See the━Reddit",
    "End: Answer",
    "Anna Vell built it [1]; see the town [2, 7].",
)


@functools.cache
def browsed() -> Episode:
    start = reset("Who built the <lighthouse>?", Settings(actions=20))
    return played(site(), start, TEXT, id="e/<1>", question_id="q", by="m")


def test_numbers_may_be_apart_by_any_white_space() -> None:
    assert cited("a [1,\x1c2] b [ 3 ] [3] [1 , 4]") == (1, 2, 3, 4)


def steps_of(page: str) -> list[str]:
    return re.findall('<details class="step".*?</details>', page, re.DOTALL)


def test_an_episode_is_shown_step_by_step() -> None:
    page = episode_page(browsed(), pages_in(site())).page()
    seen = Seen(page)
    steps = steps_of(page)
    assert len(steps) == len(TEXT)
    for number, (shown, step) in enumerate(zip(steps, browsed().steps, strict=True), 1):
        text = Seen(shown).text
        assert text.startswith(f"{number}. ")
        assert as_shown(step.observation) in text
        assert as_shown(step.action) in text
    assert "✗ invalid: the page does not hold this text" in Seen(steps[3]).text
    assert "taken as reference [1]" in Seen(steps[2]).text
    assert "taken as reference [2]" in Seen(steps[4]).text
    assert "taken as" not in Seen(steps[3]).text
    # What is quoted is marked where it is read, through the marks of links, from the step on
    # that quotes it.
    assert Seen(steps[1]).marked == ""
    assert Seen(steps[2]).marked == "by Anna Vell"
    assert Seen(steps[4]).marked.startswith("by Anna VellSee 【0†the town")
    assert Seen(steps[4]).marked.endswith("Reddit")
    assert "6 of 20 actions, 1 invalid" in seen.text
    assert "there is no reference 7" in seen.text


def test_references_have_their_places_and_the_answer_leads_to_them() -> None:
    page = episode_page(browsed(), pages_in(site())).page()
    seen = Seen(page)
    ids = {attributes["id"] for _, attributes in seen.elements if "id" in attributes}
    links = [a["href"] or "" for tag, a in seen.elements if tag == "a"]
    internal = [link[1:] for link in links if link.startswith("#")]
    assert set(internal) == ids
    assert len(ids) == 2
    answer = page.split("<h2>Step")[0].split("<main>")[1]
    assert re.search(r'\[<a href="#r\w+-1">1</a>\]; see the town \[<a href="#r\w+-2">2</a>, 7\]',
                     answer)  # fmt: skip
    for reference in browsed().end.references:
        said = Seen(answer).text
        assert f"characters {reference.start}–{reference.end}" in said
        assert reference.sha256 in said
        assert f"retrieved {reference.retrieved_at}" in said
        assert HILL in links
    assert "by Anna Vell" in Seen(answer).marked
    assert said.count("word for word in its page") == 2
    without = Seen(episode_page(browsed()).page())
    assert "word for word" not in without.text
    # A page that has changed since is not what was quoted.
    references = [dataclasses.replace(r, sha256="0" * 64) for r in browsed().end.references]
    end = dataclasses.replace(browsed().end, references=tuple(references))
    other = Seen(episode_page(dataclasses.replace(browsed(), end=end), pages_in(site())).page())
    assert other.text.count("not checked: its page is not at hand") == 2
    assert "word for word" not in other.text


def test_what_goes_on_behind_the_screen_is_marked_as_far_as_it_is_shown() -> None:
    observation = (
        "♦Question\nq\n♦Title\nT (d.example)\n♦Scrollbar: 0 - 1\n♦Text\n{}\n♦Actions left: 3"
    )
    reference = Reference("T", "d.example", "", "The second sentence and a third.", "d", 0, 32, "")

    def marked(text: str, *references: Reference) -> list[str]:
        whole = observation.format(text)
        return [whole[mark.start : mark.end] for mark in quoted_places(whole, references)]

    assert marked("First. The second sentence", reference) == ["The second sentence"]
    assert marked("The second one. The second sentence", reference) == ["The second sentence"]
    assert marked("The second world", reference) == []
    assert marked("The second song. So", reference) == []
    assert marked("x [The second sentence and a third.]", reference) == [reference.extract]
    endless = dataclasses.replace(reference, extract="a" * 500_000 + "b")
    assert marked("a" * 500_000, endless) == ["a" * 20_000], "no more is looked at"
    elsewhere = dataclasses.replace(reference, title="U")
    assert marked("The second sentence and a third.", elsewhere) == []


REFERENCES = st.builds(
    lambda extract, title, domain, url, document, sha256, retrieved_at: Reference(
        title, domain, url, extract, document, 0, len(extract), sha256, retrieved_at
    ),
    extract=TEXTS, title=TEXTS, domain=TEXTS, url=TEXTS, document=TEXTS, sha256=TEXTS,
    retrieved_at=st.none() | TEXTS,
)  # fmt: skip
STEPS = st.builds(
    EpisodeStep,
    st.one_of(
        TEXTS,
        st.builds(
            "♦Question\n♦Title\n{}\n♦Scrollbar: 0 - 1\n♦Text\n{}【0†{}†x】\n♦Actions left: ".format,
            TEXTS, TEXTS, TEXTS,
        ),
    ),
    st.one_of(TEXTS, TEXTS.map(lambda text: f"Quote: {text}")),
    st.none() | TEXTS,
    st.none() | TEXTS,
)  # fmt: skip


@st.composite
def hostile_episodes(draw: st.DrawFn) -> Episode:
    references = tuple(draw(st.lists(REFERENCES, max_size=3)))
    cited = draw(TEXTS) + draw(st.sampled_from(["[1]", "[1,\x1c2]", "[0001][9]", "[٣]", ""]))
    answer = draw(st.none() | st.just(cited + draw(TEXTS)))
    start = dataclasses.replace(browsed().start, question=draw(TEXTS))
    end = dataclasses.replace(start, phase="done", end="answer", references=references,
                              answer=answer)  # fmt: skip
    return Episode(
        draw(TEXTS), "q", draw(TEXTS), draw(TEXTS), start,
        tuple(draw(st.lists(STEPS, max_size=4))), end, reward=0.5, right=False, supported=None,
    )  # fmt: skip


@settings(max_examples=40)
@given(hostile_episodes())
def test_nothing_in_an_episode_is_markup(episode: Episode) -> None:
    page = episode_page(episode).page()
    seen = Seen(page)
    allowed = {"html", "head", "meta", "title", "style", "body", "div", "section", "p", "mark"}
    allowed |= {"span", "bdi", "a", "h1", "h2", "details", "summary", "code", "blockquote", "main"}
    assert {tag for tag, _ in seen.elements} <= allowed
    for tag, attributes in seen.elements:
        assert not any(name.startswith("on") or name == "src" for name in attributes), tag
        if tag == "a":
            assert re.match("https?://|#r[0-9a-f]{8}-[0-9]+$", attributes["href"] or "", re.I)
    assert "default-src 'none'" in page
    assert "script" not in {tag for tag, _ in seen.elements}
    for step in episode.steps:
        assert as_shown(step.observation) in seen.text
        assert as_shown(step.action) in seen.text
    if episode.end.answer is not None:
        assert as_shown(episode.end.answer) in seen.text
    for reference in episode.end.references:
        assert as_shown(reference.extract) in seen.text


def test_every_text_of_an_episode_is_escaped(tmp_path: pathlib.Path) -> None:
    """One field after the other, so that a field that is not escaped has a name."""
    names = ["id", "world", "by", "question", "answer", "observation", "action", "invalid",
             "mistake", "title", "domain", "url", "extract", "document", "sha256",
             "retrieved_at"]  # fmt: skip
    for last in (True, False):  # the step that answers is shown in another way
        said = {name: f'<i class="{name}">' for name in names}
        reference = Reference(
            said["title"], said["domain"], said["url"], said["extract"], said["document"], 0,
            len(said["extract"]), said["sha256"], said["retrieved_at"],
        )  # fmt: skip
        start = dataclasses.replace(browsed().start, question=said["question"])
        end = dataclasses.replace(
            start, phase="done", end="answer", references=(reference,),
            answer=said["answer"] if last else None,
        )  # fmt: skip
        step = EpisodeStep(said["observation"], said["action"], said["invalid"], said["mistake"])
        episode = Episode(
            said["id"], "q", said["world"], said["by"], start, (step,), end, reward=None,
            right=None, supported=None,
        )  # fmt: skip
        assert write_episode_pages(tmp_path, "<i>", [episode]) == 1
        for file in ("index.html", "episode-00001.html"):
            text = (tmp_path / file).read_text("utf-8")
            assert "<i" not in text, text[text.index("<i") :][:60]


def test_pages_of_many_episodes_are_listed(tmp_path: pathlib.Path) -> None:
    episodes = [dataclasses.replace(browsed(), id=str(n), reward=float(n)) for n in range(3)]
    assert write_episode_pages(tmp_path, "All <of them>", episodes) == 3
    index = Seen((tmp_path / "index.html").read_text("utf-8"))
    links = [attributes["href"] for tag, attributes in index.elements if tag == "a"]
    assert links == [f"episode-{n:05d}.html" for n in (1, 2, 3)]
    assert "reward: 2" in index.text
    for link in links:
        assert TEXT[-1] in Seen((tmp_path / str(link)).read_text("utf-8")).text


def test_the_command_lists_episodes_and_writes_their_pages(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "episodes.jsonl.gz"
    episodes = [
        dataclasses.replace(browsed(), id=f"e{n}", reward=n / 2, right=bool(n)) for n in range(3)
    ]
    write_episodes(file, episodes)
    assert main(["episodes", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("e1  Who built the <lighthouse>?  ->  Anna Vell built it [1]")
    assert lines[1].endswith("(6 actions, 2 references, answer, reward 0.5, right)")
    out = tmp_path / "pages"
    assert main(["episodes", str(file), "--id", "e2", "--out", str(out), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["episodes"]
    assert (found["id"], found["reward"], found["right"]) == ("e2", 1.0, True)
    assert sorted(path.name for path in out.iterdir()) == ["episode-00001.html", "index.html"]
    assert main(["episodes", str(file), "--id", "e9"]) == 1
    assert "--id e9: there is no such episode" in capsys.readouterr().err
    assert main(["episodes", str(file), "--limit", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "index.html: 2 episodes" in printed.out
    assert "only the first 2 episodes of more" in printed.err
    assert main(["episodes", str(file), "--limit", "3"]) == 0
    assert not capsys.readouterr().err
    assert main(["episodes", str(file), "--out", "gs://bucket/pages"]) == 1
    assert "--out gs://bucket/pages: must be on a disk" in capsys.readouterr().err
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": 3}\n')
    assert main(["episodes", str(file), str(bad)]) == 1
    assert f"{bad}:1: field" in capsys.readouterr().err
    assert main(["episodes", str(file), "--out", str(out), "--world", str(tmp_path)]) == 1
    assert "world.json" in capsys.readouterr().err

"""The sample web: its pages, its questions and their proof, and the files of a run."""

import collections
import dataclasses
import filecmp
import itertools
import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_webs import SCREEN, web

from data_pipelines.demonstrators.demonstrate import demonstrate
from data_pipelines.demonstrators.routes import name_query, route_of
from data_pipelines.demonstrators.styles import STYLES, VARIED, Noise
from data_pipelines.sample_web.__main__ import main
from data_pipelines.sample_web.making import site
from data_pipelines.sample_web.questions import QuestionMaker
from data_pipelines.sample_web.things import APART, SMALLEST, root, things_of
from data_pipelines.sample_world import names
from gophercite.browser.environment import reset
from gophercite.browser.episodes import episode_to_json, examples, read_episodes, replayed
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.browser.worlds import World
from gophercite.cli import main as gophercite
from gophercite.records import Question, read
from gophercite.text.answer_matching import contains_answer

SIZES = st.integers(SMALLEST, 160)
SEEDS = st.integers(0, 10**6)
SPLIT = st.sampled_from(names.SPLITS)
# The brief one gives up if the question's words don't lead to the proof.
PERFECT = {
    name: dataclasses.replace(style, noise=Noise().times(0))
    for name, style in STYLES.items()
    if name != "brief"
}


# --- Pages ---


@settings(max_examples=15)
@given(seed=SEEDS, split=SPLIT, pages=SIZES, lines=st.integers(2, 12))
def test_a_site_has_its_pages_and_no_link_that_leads_nowhere(
    seed: int, split: names.Split, pages: int, lines: int
) -> None:
    rules = Settings(view_lines=lines, columns=60)
    whole = site(seed, split, pages, rules)
    assert len(whole) == pages
    by_address = {page.address: page for page in whole}
    titles = {page.page.document.title for page in whole}
    assert len(by_address) == len(titles) == pages
    for page in whole:
        text = page.page.document.text
        assert page.page.links
        assert len(page.page.shown(rules).links) == len(page.page.links)  # none overlaps another
        for link in page.page.links:
            called = text[link.start : link.end]
            assert (
                by_address[link.url].page.document.title.startswith(called) or called == "records"
            )
        for fact in page.facts:
            assert page.sentence(fact).endswith(".")
            assert fact.value.text in page.sentence(fact)
            if fact.value.thing is not None:  # what it names is linked
                ends = {link.end for link in page.page.links}
                assert any(fact.start < end <= fact.end for end in ends)
        if page.thing is not None and page.thing.long:
            shown = page.page.shown(rules)
            deep = [shown.line_of(fact.start) for fact in page.facts]
            assert min(deep[2:]) >= 3 * lines
            assert max(deep[:2]) < 3 * lines


def test_a_site_is_of_all_kinds_of_pages() -> None:
    whole = site(3, "validation", 200, SCREEN)
    hosts = collections.Counter(page.page.host for page in whole)
    assert min(hosts[host] for host in ("names.example", "lists.example", "records.example")) > 3
    assert min(hosts[host] for host in ("towns.example", "people.example", "ships.example")) > 15
    hidden = [page for page in whole if page.hidden]
    assert 20 < len(hidden) < 60
    # Links lead to each of them from what a search finds, to a hidden thing's records over two.
    linked = {link.url for page in whole if not page.hidden for link in page.page.links}
    assert {page.address for page in hidden if "records" not in page.page.host} <= linked
    further = {link.url for page in hidden for link in page.page.links}
    assert {page.address for page in hidden} <= linked | further


@settings(max_examples=10)
@given(seed=SEEDS, split=SPLIT, pages=SIZES)
def test_no_name_is_of_another_split(seed: int, split: names.Split, pages: int) -> None:
    whole = site(seed, split, pages, SCREEN)
    words = {
        word
        for page in whole
        for text in (page.page.document.text, page.page.document.title, page.address)
        for word in re.findall(r"[A-Za-z]+", text)
    }
    owners = {names.split_of(word) for word in words} - {None}
    assert owners == {split}


def test_names_do_not_end_and_none_is_given_twice() -> None:
    several = [root("test", number, seed=5) for number in range(3 * names.count("test"))]
    assert len(set(several)) == len(several)
    assert all(names.split_of(part) == "test" for name in several for part in name.split("-"))


@settings(max_examples=10)
@given(seed=SEEDS, pages=SIZES)
def test_namesakes_differ_in_what_tells_them_apart(seed: int, pages: int) -> None:
    things, taken = things_of(seed, "train", pages)
    assert taken == pages
    named = collections.defaultdict(list)
    for thing in things:
        named[thing.name].append(thing)
    for group in named.values():
        numbers = tuple(thing.number for thing in group)
        assert all(thing.namesakes == (numbers if len(group) > 1 else ()) for thing in group)
        if len(group) > 1:
            key = APART[group[0].kind.key][0]
            assert len({thing.values[key].text for thing in group}) == len(group)
            assert all(key in {each.key for each in thing.told} for thing in group)
            assert len(
                {thing.title for thing in group} | {thing.asked for thing in group}
            ) == 2 * len(group)


def test_too_few_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 40 pages, not 39"):
        site(0, "train", SMALLEST - 1, SCREEN)


# --- Questions ---


def check(question: Question, world: World) -> None:
    """Asserts that the proof stands where the question says, and that the way leads there."""
    pages = [world.open(hit.id) for hit in question.documents]
    texts = {page.document.id: page.document.text for page in pages}
    assert all(page.problem is None for page in pages)
    assert len({hit.id for hit in question.documents}) == len(pages)
    for here, following in itertools.pairwise(pages):
        assert following.document.url in {link.url for link in here.links}
    said = [texts[span.document][span.start : span.end] for span in question.evidence]
    assert all(each.endswith(".") for each in said)
    assert question.answers[0] in said[-1]
    assert question.evidence[-1].document == pages[-1].document.id
    # Only the last page says it, not even the question, and what is wrong is wrong.
    assert not contains_answer(question.question, question.answers)
    assert "the the" not in question.question
    for page in pages[:-1]:
        assert not re.search(rf"\b{re.escape(question.answers[0])}\b", page.document.text)
    assert not set(question.answers) & set(question.incorrect_answers)


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, split=SPLIT, pages=SIZES, name=st.sampled_from(sorted(PERFECT)))
def test_every_proof_is_on_its_page_and_reached_by_a_walk(
    seed: int, split: names.Split, pages: int, name: str
) -> None:
    with web(seed, split, pages) as (whole, world):
        maker = QuestionMaker(whole, world, split, seed, SCREEN.results)
        asked = list(maker.questions(12))
        assert len({question.question for question in asked}) == len(asked) > 8
        for question in asked:
            assert 1 <= len(question.documents) <= 4
            check(question, world)
            start = reset(question.question, SCREEN)
            route = route_of(question, world)
            episode = demonstrate(world, question, route, PERFECT[name], start, 0)
            assert episode.supported, (question, [step.action for step in episode.steps])
            assert not any(step.invalid or step.mistake for step in episode.steps)


def test_questions_need_one_to_four_pages_as_often_as_is_said() -> None:
    with web(pages=300) as (whole, world):
        maker = QuestionMaker(whole, world, "train", 0, SCREEN.results)
        asked = list(maker.questions(100))
        steps = collections.Counter(len(question.documents) for question in asked)
        assert min(steps[number] for number in (1, 2, 3, 4)) > 2
        for question in asked:
            check(question, world)
        only = list(maker.questions(20, (0, 0, 1)))
        assert [len(question.documents) for question in only] == [3] * 20
        # Some begin where a link leads to what no search finds, some end three screens down.
        hidden = {page.address for page in whole if page.hidden}
        assert any(
            question.documents[1].id in hidden for question in asked if len(question.documents) > 1
        )
        deep = 3 * SCREEN.view_lines
        spans = [question.evidence[-1] for question in asked]
        lines = [world.open(span.document).shown(SCREEN).line_of(span.start) for span in spans]
        assert 5 < sum(line >= deep for line in lines) < 40


def test_a_question_begins_at_what_its_search_finds() -> None:
    with web(pages=150) as (whole, world):
        asked = list(QuestionMaker(whole, world, "train", 0, results=1).questions(40))
        assert len(asked) > 20
        for question in asked:
            titles = [world.open(hit.id).document.title for hit in question.documents]
            (hit,) = world.search(name_query(question.question, titles[-1:] + titles), 1)
            assert hit.url == question.documents[0].id


def test_no_way_leads_through_a_page_twice_where_there_are_few() -> None:
    with web(seed=2, pages=SMALLEST) as (whole, world):
        maker = QuestionMaker(whole, world, "train", 2, SCREEN.results)
        for question in maker.questions(80, (0, 0, 0, 1)):
            check(question, world)


def test_a_site_that_has_no_more_questions_gives_fewer() -> None:
    with web(pages=SMALLEST) as (whole, world):
        maker = QuestionMaker(whole, world, "train", 0, SCREEN.results)
        assert 50 < len(list(maker.questions(1000, (1,)))) < 500


# --- Files ---

FLAGS = (
    "--pages",
    "60",
    "--questions",
    "16",
    "--demonstrations",
    "12",
    "--held-out-questions",
    "6",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    out = tmp_path_factory.mktemp("web") / "out"
    assert main(["--out", str(out), *FLAGS, "--view-lines", "8"]) == 0
    return out


def test_the_same_flags_give_the_same_bytes(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    again = tmp_path / "again"
    assert main(["--out", str(again), *FLAGS, "--view-lines", "8"]) == 0
    files = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    assert len(files) == 3 * (5 + 2)
    same, different, errors = filecmp.cmpfiles(made, again, files, shallow=False)
    assert (len(same), different, errors) == (len(files), [], [])
    other = tmp_path / "other"
    assert main(["--out", str(other), *FLAGS, "--seed", "1"]) == 0
    pages = "world_train/pages.jsonl"
    assert (other / pages).read_bytes() != (made / pages).read_bytes()


def test_what_is_written_is_valid_and_replayed(
    made: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, name in (
        ("questions", "questions_{}.jsonl"),
        ("episodes", "demonstrations_{}.jsonl.gz"),
    ):
        files = [str(made / name.format(split)) for split in names.SPLITS]
        assert gophercite(["validate", *files, "--kind", kind]) == 0
        assert capsys.readouterr().out.startswith(f"{28 if kind == 'questions' else 24} records")
    with RecordedWorld(made / "world_test") as world:
        assert world.name == "sample-web-test-0"
        records = [page for page in world.documents() if page.title.startswith("Records of")]
        assert records
        for page in records:
            assert page.url not in {hit.url for hit in world.search(page.title, 50)}
        asked = list(read(made / "questions_test.jsonl", Question, strict=True))
        for question in asked:
            check(question, world)
        episodes = list(read_episodes(made / "demonstrations_test.jsonl.gz", strict=True))
        assert [episode.question_id for episode in episodes] == [question.id for question in asked]
        assert {episode.by for episode in episodes} == set(VARIED)
        for episode in episodes:
            assert episode_to_json(replayed(world, episode)) == episode_to_json(episode)
            pairs = list(examples(world, episode, faults=True))
            assert [pair[:2] for pair in pairs] == [
                step[:2] for step in map(as_pair, episode.steps)
            ]


def as_pair(step: object) -> tuple[str, str]:
    return step.observation, step.action  # type: ignore[attr-defined]


def test_a_world_of_long_pages_is_long_where_it_is_read(made: pathlib.Path) -> None:
    """Facts lie three screens down as `--view-lines` has them, in the folder, too."""
    episodes = read_episodes(made / "demonstrations_train.jsonl.gz", strict=True)
    assert {episode.start.settings.view_lines for episode in episodes} == {8}
    with RecordedWorld(made / "world_train") as world:
        longest = max(world.documents(), key=lambda page: len(page.text))
    assert longest.text.count("\n") > 24


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--pages", "10"], "at least 40 pages, not 10"),
        (
            ["--styles", "follower,nobody"],
            "--styles: 'nobody' is not one of direct, brief, follower",
        ),
        (["--noise", "-1"], "--noise is -1.0: must be 0 or more"),
        (["--rate", "invalid=2"], "invalid: 2.0 is not a probability"),
        (["--rate", "typos=0.1"], "--rate: 'typos' is not one of invalid"),
        (["--rate", "invalid=often"], "'often' is not a number"),
        (["--view-lines", "0"], "view_lines: 0 must be at least 1"),
    ],
)
def test_what_cannot_be_made_is_said(
    flags: list[str], problem: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "out"), *flags]) == 1
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_web_is_not_written_over(made: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(made)]) == 1
    assert "world_train: already exists; name a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ("--steps", "1,2,3,4,5"),
        ("--steps", "0,0"),
        ("--steps", "a"),
        ("--questions", "0"),
        ("--held-out-questions", "0"),
        ("--demonstrations", "-1"),
        ("--actions", "many"),
    ],
)
def test_wrong_flags_are_refused(flags: tuple[str, str], tmp_path: pathlib.Path) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "out"), *flags])

"""Scripted demonstrators: what each style does, what noise does, and what an answer is worth."""

import collections
import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_webs import SCREEN, web

from data_pipelines.demonstrators.__main__ import main
from data_pipelines.demonstrators.demonstrate import demonstrate
from data_pipelines.demonstrators.many import DemonstrationReport, demonstrations
from data_pipelines.demonstrators.routes import (
    Leg,
    NoWayError,
    keywords,
    name_query,
    phrases,
    route_of,
)
from data_pipelines.demonstrators.styles import STYLES, Noise, Style
from data_pipelines.demonstrators.truth import (
    Approach,
    ShortAnswer,
    Verdict,
    approach,
    compare,
    judge,
)
from data_pipelines.record_web import main as record_web
from data_pipelines.sample_web.questions import QuestionMaker
from gophercite import records
from gophercite.browser.environment import replay, reset
from gophercite.browser.episodes import Episode, examples, read_episodes
from gophercite.browser.observation import TokenBudget
from gophercite.browser.settings import Settings
from gophercite.browser.state import State
from gophercite.browser.worlds import SiteWorld, World
from gophercite.documents import Document
from gophercite.records import Hit, Question, Span

NONE = Noise().times(0)
# The brief one gives up if the question's words don't lead to the proof.
PERFECT = [name for name in STYLES if name != "brief"]


@dataclasses.dataclass
class Asked:
    """A web with its questions."""

    world: SiteWorld
    questions: list[Question]
    _perfect: dict[str, list[Episode]] = dataclasses.field(default_factory=dict)

    def perfect(self, name: str) -> list[Episode]:
        """The episodes of a style that makes no mistakes."""
        if name not in self._perfect:
            self._perfect[name] = self.played(noisy(name))
        return self._perfect[name]

    def played(
        self, style: Style, questions: list[Question] | None = None, rules: Settings = SCREEN
    ) -> list[Episode]:
        report = DemonstrationReport()
        asked = self.questions if questions is None else questions
        return list(demonstrations(self.world, asked, [style], report, settings=rules))


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with web(pages=200) as (whole, world):
        maker = QuestionMaker(whole, world, "train", 0, SCREEN.results)
        yield Asked(world, list(maker.questions(24)))


def commands(episodes: list[Episode]) -> list[str]:
    """The commands of episodes, their answers left out."""
    texts = (each.end.texts[: len(each.end.actions)] for each in episodes)
    return list(itertools.chain.from_iterable(texts))


def noisy(style: str = "follower", **rates: float) -> Style:
    return dataclasses.replace(STYLES[style], noise=dataclasses.replace(NONE, **rates))


# --- Styles ---


def test_styles_browse_as_they_are_called(asked: Asked) -> None:
    said = {name: commands(asked.perfect(name)) for name in STYLES if name != "hurried"}

    def share(style: str, start: str) -> float:
        return sum(text.startswith(start) for text in said[style]) / len(asked.questions)

    assert share("follower", "Search") == share("finder", "Search") == 1
    assert share("searcher", "Search") > 1.3
    assert share("scroller", "Find in page") < share("finder", "Find in page")
    assert share("finder", "Scrolled") < share("scroller", "Scrolled")
    assert any("━" in text for text in said["finder"])
    assert not any("━" in text for text in said["follower"])
    long = {
        name: sum(len(each.extract) for e in asked.perfect(name) for each in e.end.references)
        for name in ("follower", "hoarder")
    }
    assert long["hoarder"] > 2 * long["follower"]


LINK = re.compile(r"【\d+†(.*?)(?:†[^†】]*)?】", re.DOTALL)


def squeezed(text: str) -> str:
    return "".join(LINK.sub(r"\1", text).split()).casefold()


@pytest.mark.parametrize("style", sorted(STYLES))
def test_what_is_clicked_and_quoted_is_on_the_screen(asked: Asked, style: str) -> None:
    for episode in asked.played(noisy(style, wide_quote=0.5, wrong_turn=0.5)):
        for step in episode.steps[: len(episode.end.actions)]:
            command, _, text = step.action.partition(": ")
            seen = step.observation.partition("♦Text")[2]
            if command == "Quote":
                for part in text.split("━"):
                    assert squeezed(part) in squeezed(seen), step
            elif command.startswith("Clicked"):
                assert f"【{command.split()[-1]}†" in seen, step


def test_answers_cite_what_was_quoted_in_the_papers_form(asked: Asked) -> None:
    for name in PERFECT:
        for episode in asked.perfect(name):
            assert episode.right, episode
            assert episode.supported
            prompt, answer = episode.steps[-1].observation, episode.end.answer or ""
            assert prompt.startswith(f"{episode.start.question}■[1] ")
            for number in range(1, len(episode.end.references) + 1):
                assert f"[{number}]" in answer
            if name == "hurried":
                assert len(answer) < 40
            else:
                assert answer.count("].") == len(episode.end.references)


def test_a_demonstration_depends_on_seed_question_and_style_alone(asked: Asked) -> None:
    style = STYLES["hurried"]
    first, again = asked.played(style), asked.played(style, asked.questions[3:])
    assert first[3:] == again
    route = route_of(asked.questions[0], asked.world)
    start = reset(asked.questions[0].question, SCREEN)
    drawn = {
        tuple(
            step.action
            for step in demonstrate(
                asked.world, asked.questions[0], route, style, start, seed
            ).steps
        )
        for seed in range(12)
    }
    assert len(drawn) > 3


# --- Noise ---


def test_without_noise_nothing_is_wrong(asked: Asked) -> None:
    for style in PERFECT:
        for episode in asked.perfect(style):
            assert not any(step.invalid or step.mistake for step in episode.steps)


def test_invalid_actions_stand_before_what_is_done(asked: Asked) -> None:
    for episode in asked.played(noisy(invalid=1.0)):
        kinds = [step.invalid is None for step in episode.steps[: len(episode.end.actions)]]
        assert kinds == [False, True] * (len(kinds) // 2)
        assert episode.supported


@pytest.mark.parametrize(
    ("rates", "mistakes", "right", "supported"),
    [
        ({"wrong_turn": 1.0}, {"wrong turn"}, True, True),
        ({"overshoots": 1.0}, {"scrolled past"}, True, True),
        ({"wide_quote": 1.0}, {"quotes too much"}, True, True),
        ({"wrong_answer": 1.0}, {"wrong answer"}, False, False),
        ({"uncited": 1.0}, {"cites nothing"}, True, False),
        ({"gives_up": 1.0}, {"gave up"}, False, False),
        ({"skipped_quote": 1.0}, {"nothing was quoted"}, False, False),
    ],
)
def test_each_rate_makes_its_mistakes_and_says_so(
    asked: Asked, rates: dict[str, float], mistakes: set[str], right: bool, supported: bool
) -> None:
    episodes = asked.played(noisy(**rates))
    said = {step.mistake for episode in episodes for step in episode.steps} - {None}
    assert said == mistakes
    assert [(e.right, e.supported) for e in episodes] == [(right, supported)] * len(episodes)
    if rates == {"skipped_quote": 1.0}:
        assert all(episode.end.answer is None for episode in episodes)
    if rates == {"overshoots": 1.0}:
        back = [text for text in commands(episodes) if text.startswith("Scrolled up")]
        assert len(back) > 3
        assert "Top" in commands(episodes)


def test_nobody_scrolls_past_the_end_of_a_page(asked: Asked) -> None:
    """A person can't: the button is disabled there. One screen less shows another last line."""
    several = 0
    for episode in asked.played(noisy("scroller", overshoots=1.0)):
        state = reset(episode.start.question, SCREEN)
        for text in episode.end.texts[: len(episode.end.actions)]:
            down = re.fullmatch(r"Scrolled down ([23])", text)
            if down:
                several += 1
                less = replay(asked.world, state, [f"Scrolled down {int(down[1]) - 1}"])
                assert less.view.last < replay(asked.world, state, [text]).view.last
            state = replay(asked.world, state, [text])
    assert several > 3


def test_wrong_quotes_prove_nothing(asked: Asked) -> None:
    wrong = 0
    for episode in asked.played(noisy(wrong_quote=1.0)):
        said = [step.mistake for step in episode.steps if step.action.startswith("Quote")]
        assert set(said) <= {"wrong quote", None}  # where the page has no other sentence
        assert episode.supported == (set(said) == {None})
        assert episode.right == (said[-1] is None)
        wrong += said[-1] is not None
    assert wrong > 0.7 * len(asked.questions)


def test_namesakes_are_taken_for_each_other(asked: Asked) -> None:
    with_namesakes = [q for q in asked.questions if "(" in q.documents[0].id]
    assert with_namesakes
    said = collections.Counter(
        step.mistake
        for episode in asked.played(noisy(namesake=1.0), with_namesakes)
        for step in episode.steps
    )
    assert said["a namesake"] == len(with_namesakes)


def test_an_episode_ends_where_its_limits_are(asked: Asked) -> None:
    few = dataclasses.replace(SCREEN, actions=3)
    episodes = asked.played(noisy(), rules=few)
    assert {episode.end.end for episode in episodes} <= {"actions", "answer"}
    assert all(len(episode.end.actions) <= 3 for episode in episodes)
    cut = [e for e in episodes if e.end.end == "actions" and e.end.references]
    assert cut
    assert all(episode.end.answer for episode in cut)
    short = dataclasses.replace(SCREEN, reference_characters=60)
    assert {e.end.end for e in asked.played(noisy(), rules=short)} >= {"references"}


def test_rates_are_probabilities_and_multiply() -> None:
    assert Noise(invalid=0.6).times(2).invalid == 1.0
    assert Noise(invalid=0.2).times(0.5).invalid == 0.1
    with pytest.raises(ValueError, match=r"wrong_turn: 1.5 is not a probability"):
        Noise(wrong_turn=1.5)


# --- What behaviour cloning reads ---


@settings(max_examples=10, deadline=None)
@given(number=st.integers(0, 23), style=st.sampled_from(sorted(STYLES)), factor=st.floats(0, 4))
def test_examples_are_the_episode_less_what_is_wrong(
    asked: Asked, number: int, style: str, factor: float
) -> None:
    chosen = dataclasses.replace(STYLES[style], noise=STYLES[style].noise.times(factor))
    (episode,) = asked.played(chosen, [asked.questions[number]])
    kept = [step for step in episode.steps if step.invalid is None and step.mistake is None]
    pairs = list(examples(asked.world, episode))
    assert [pair[:2] for pair in pairs] == [(step.observation, step.action) for step in kept]
    whole = list(examples(asked.world, episode, faults=True))
    assert [pair.action for pair in whole] == [step.action for step in episode.steps]
    # In a budget prompts are shorter, and the state is the same.
    budget = TokenBudget(400, len)
    for pair, short in zip(pairs, examples(asked.world, episode, budget), strict=True):
        assert len(short.prompt) <= 400
        assert short[1:] == pair[1:]


def test_examples_of_another_world_are_refused(asked: Asked) -> None:
    (episode,) = asked.played(noisy(), asked.questions[:1])
    with web(seed=1) as (_, other), pytest.raises(ValueError, match=r"step 1: in the world 'web'"):
        list(examples(other, episode))


# --- Worth ---

TEXT = "The mill was built in 1812. Its owner was Ada Fenwick. It burned in 1901."
MILL = "http://m.example/mill"
QUESTION = Question(
    "q",
    "Who owned the mill?",
    "test",
    (Hit(MILL, "Mill"),),
    ("Ada Fenwick",),
    (Span(MILL, 28, 54),),
    ("1812", "1901"),
)


def ended(answer: str | None, *quotes: str) -> State:
    from browser.sites import ListedResults, page

    mill = page(MILL, "The mill", TEXT)
    from gophercite.retrieval.engine import Hit as Found

    world: World = SiteWorld("mill", [mill], ListedResults({"mill": [Found(MILL, "Mill", "")]}))
    texts = ["Search mill", "Clicked on link 0", *(f"Quote: {each}" for each in quotes)]
    state = replay(world, reset("Who owned the mill?"), [*texts, "End: Answer"])
    return state if answer is None else replay(world, state, [answer])


@pytest.mark.parametrize(
    ("answer", "quotes", "verdict"),
    [
        ("Ada Fenwick [1].", ["its owner was ada fenwick."], Verdict(True, 1, True)),
        ("Ada Fenwick [1].", [TEXT], Verdict(True, 1, True)),
        ("ada fenwick!", ["Its owner was Ada Fenwick."], Verdict(True, 1, False)),
        ("Ada Fenwick [2].", ["Its owner was Ada Fenwick."], Verdict(True, 1, False)),
        ("Ada Fenwick [1].", ["owner was Ada Fenwick."], Verdict(True, 0, False)),
        ("Ada Fenwick [1].", ["It burned", "Its owner was Ada Fenwick."], Verdict(True, 1, False)),
        ("Ada [1].", ["Its owner was Ada Fenwick."], Verdict(False, 1, False)),
        (f"{TEXT} [1]", [TEXT], Verdict(False, 1, False)),  # a whole page is no answer
        (None, [], Verdict(False, 0, False)),
    ],
)
def test_what_an_answer_is_worth(answer: str | None, quotes: list[str], verdict: Verdict) -> None:
    assert judge(QUESTION, ended(answer, *quotes)) == verdict


@pytest.mark.parametrize(
    ("answer", "quotes", "compared"),
    [
        ("Ada Fenwick [1].", ["its owner was ada fenwick."], ShortAnswer(True, 1, True)),
        ("The Ada  FENWICK! [1]", ["It burned"], ShortAnswer(True, 1, False)),
        ("Ada Fenwick [2].", ["It burned", TEXT], ShortAnswer(True, 1, True)),
        ("Ada Fenwick [1].", ["It burned", TEXT], ShortAnswer(True, 1, False)),
        ("Ada Fenwick", [TEXT], ShortAnswer(True, 1, False)),
        ("It was Ada [1].", [TEXT], ShortAnswer(False, 0.4, True)),
        (None, [], ShortAnswer(False, 0, False)),
    ],
)
def test_an_answer_beside_the_accepted_ones(
    answer: str | None, quotes: list[str], compared: ShortAnswer
) -> None:
    assert compare(QUESTION, ended(answer, *quotes)) == compared


def test_how_near_an_episode_came_to_the_proof() -> None:
    from browser.sites import ListedResults, page

    from gophercite.retrieval.engine import Hit as Found

    other = "http://o.example/"
    pages = [page(MILL, "The mill", TEXT), page(other, "Other", "A long day.")]
    mill, day = Found(MILL, "The mill", ""), Found(other, "Other", "")
    world = SiteWorld("w", pages, ListedResults({"mill": [mill, day], "day": [day]}))

    # Texts that touch the proof on either side don't overlap it.
    question = dataclasses.replace(QUESTION, evidence=(Span(MILL, 27, 55),))

    def came(*texts: str, **rules: bool) -> Approach:
        states = [reset(QUESTION.question, Settings(**rules))]
        for text in texts:
            states.append(replay(world, states[-1], [text]))
        return approach(question, world, states)

    opened = ("Search mill", "Clicked on link 0")
    assert came("Search day") == Approach(False, False, False, 0, 0)
    assert came("Search mill") == Approach(True, False, False, 0, 0)
    assert came("Search mill", "Clicked on link 1", "Quote: A long") == Approach(
        True, False, False, 0, 0
    )
    # A page that was left again was opened, too.
    vain = (*opened, "Find in page: zebra", "Find in page: mill", "Back", "Clicked on link 1")
    assert came(*vain) == Approach(True, True, False, 2, 1)
    assert came(*vain[:3], "Find zebra", absent_text_is_invalid=True).absent_finds == 1
    for quote, overlaps in (
        ("1812.", False), ("1812. I", True), ("owner", True), ("k. It", True), ("It burned", False),
    ):  # fmt: skip
        assert came(*opened, f"Quote: {quote}").overlaps == overlaps


# --- Ways ---


def test_a_way_knows_what_to_look_for() -> None:
    text = "The town\n\nMayor\nRosa Bell leads the council.\n\nA mill was burnt."
    from browser.sites import ListedResults, page

    world = SiteWorld("w", [page("http://t.example/", "Town", text)], ListedResults({}))
    question = Question("q", "Who leads the council?", "t", (Hit("t", "x"),), ("Rosa Bell",))
    proved = dataclasses.replace(question, evidence=(Span("t", 16, 44),))
    addresses = {"t": "http://t.example/"}
    assert route_of(proved, world, addresses) == (
        Leg(
            "http://t.example/",
            "Town",
            (16, 44),
            "Rosa Bell leads the council.",
            ("Mayor", "leads", "council"),
        ),
    )
    with pytest.raises(NoWayError, match="'q': t: there is no such page"):
        route_of(proved, world)
    with pytest.raises(NoWayError, match="no evidence in its last document"):
        route_of(question, world, addresses)
    behind = dataclasses.replace(question, evidence=(Span("t", 16, 440),))
    with pytest.raises(NoWayError, match="ends before its evidence"):
        route_of(behind, world, addresses)


def test_what_may_be_looked_for_is_said_in_the_question() -> None:
    assert phrases("Who owned the old mill at Ora?") == (
        "owned", "old", "mill", "Ora", "old mill", "owned the old", "mill at Ora",
    )  # fmt: skip
    assert phrases("Who is it?") == ()


LINES = [f"Line {number} of the mill." for number in range(40)]
LINES[10] = "The wheel was turned by water."
LINES[23] = "Ada Fenwick was its owner,\nas was she who drew the mill wheel."
LONG = "\n".join(LINES)
PROOF = LONG.index("Ada"), LONG.index("\nas was")


@pytest.mark.parametrize(
    ("question", "above", "finds"),
    [
        ("Who drew the mill wheel?", 1, ["drew"]),
        ("Who has the mill wheel?", 1, ["mill wheel"]),
        ("Who drew it?", 1, ["drew"]),
        ("Which wheel?", 1, ["wheel", "wheel"]),
        # Without lines above, the sentence would begin before the first line shown.
        ("Who drew the mill wheel?", 0, None),
        ("Which mill?", 1, None),  # too far from the first to the one that would do
    ],
)
def test_a_sentence_is_found_by_the_words_of_the_question_that_lead_there_soonest(
    question: str, above: int, finds: list[str] | None
) -> None:
    from browser.sites import ListedResults, page

    from gophercite.retrieval.engine import Hit as Found

    engine = ListedResults({keywords(question): [Found(MILL, "M", "")]})
    world = SiteWorld("w", [page(MILL, "M", LONG)], engine)
    asked = Question("q", question, "t", (Hit(MILL, "M"),), ("Ada",), (Span(MILL, *PROOF),))
    start = reset(question, Settings(view_lines=4, lines_above=above))
    episode = demonstrate(world, asked, route_of(asked, world), noisy("brief"), start, seed=0)
    texts = episode.end.texts[2:]
    if finds is None:
        assert texts in [("End: Answer",), ("End: Nonsense",)]
        assert not episode.supported
        assert episode.steps[-1].mistake == "gave up"
    else:
        found = [f"Find in page: {each}" for each in finds]
        assert list(texts) == [
            *found,
            "Quote: Ada Fenwick was its owner,",
            "End: Answer",
            "Ada [1].",
        ]
        assert episode.supported


def test_queries_are_made_of_the_question() -> None:
    asked = "When was the painter Ida Haroa born?"
    assert name_query(asked, ["Ida Haroa (painter)", "Ora"]) == "painter Ida Haroa"
    assert name_query(asked, ["Lists"]) == keywords(asked) == "painter Ida Haroa born"
    assert keywords("Who is it?") == "Who is it?"


# --- Documents of one's own ---


def test_demonstrations_of_a_recorded_world_of_documents(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [Document("7", "The mill", TEXT), Document("8", "The owner", "Ada was a potter.")]
    records.write(tmp_path / "documents.jsonl", documents)
    questions = [
        dataclasses.replace(QUESTION, documents=(documents[0],), evidence=(Span("7", 28, 54),)),
        dataclasses.replace(QUESTION, id="lost", documents=(Hit("9", "x"),), evidence=()),
    ]
    records.write(tmp_path / "questions.jsonl", questions)
    world, out = str(tmp_path / "world"), str(tmp_path / "episodes.jsonl")
    assert record_web([str(tmp_path / "documents.jsonl"), "--out", world]) == 0
    given = [world, str(tmp_path / "questions.jsonl"), out]
    assert main([*given, "--noise", "0", "--actions", "20-30"]) == 0
    said = capsys.readouterr()
    assert "1 question without a route" in said.out
    assert "question 'lost': 9" in said.err
    (episode,) = read_episodes(out, strict=True)
    assert (episode.right, episode.supported, episode.by) == (True, True, "follower")
    assert 20 <= episode.start.limit <= 30
    assert json.loads(pathlib.Path(out).read_text("utf-8"))["supported"] is True
    assert main([*given, "--styles", "x"]) == 1
    assert main([str(tmp_path / "none"), *given[1:]]) == 1

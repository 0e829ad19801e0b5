"""Browsed answers against demonstrations and against the data set's: pairs, ratings, shares."""

import dataclasses
import pathlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines.browsed_pairs import main
from data_pipelines.browsing_comparisons import long_answer
from gophercite import cli, records
from gophercite.browser.browsed_answers import NUMBERS, without_citations
from gophercite.browser.episodes import Episode, write_episodes
from gophercite.records import Comparison, LongAnswer, Question
from gophercite.reports.browsed_preferences import OVERALL, preferences, preferences_table
from tests.browser.sites import LIGHTHOUSE
from tests.data_pipelines.test_browsing_comparisons import QUESTION, episode

PROVED, RIGHT, WRONG = "Anna Vell [1].", "Anna Vell.", "Nobody [1]."


@pytest.mark.parametrize(
    ("answer", "stripped"),
    [
        ("Ada built it [1]. It fell [2, 3][4].", "Ada built it. It fell."),
        ("[1] Ada\n  [2] built it [1] in 1874", "Ada\n built it in 1874"),
        ("One [1] [2] two", "One two"),
        ("a[0] [b] [1.5] [12345]", "a [b] [1.5] [12345]"),
        ("[[1]2]", ""),
        (" [1]\n", ""),
    ],
)
def test_citations_are_stripped_with_the_blanks_before_them(answer: str, stripped: str) -> None:
    assert without_citations(answer) == stripped


def test_long_answers_are_stripped_quickly() -> None:
    began = time.process_time()
    assert without_citations("a" + " " * 100_000 + "b [1]") == "a" + " " * 100_000 + "b"
    assert without_citations("[" * 20_000 + "1]" * 20_000 + "b").endswith("b")
    assert time.process_time() - began < 5


@given(st.text(alphabet="ab [],12.\n\x1c٣", max_size=40))
def test_no_citation_is_left_and_nothing_else_is_lost(answer: str) -> None:
    stripped = without_citations(answer)
    assert not NUMBERS.search(stripped)
    assert stripped.count("a") == answer.count("a")
    assert stripped.count("b") == answer.count("b")


def write(path: pathlib.Path, *answers: str | None, rewards: bool = False) -> str:
    """Episodes: those of question `q`, one for each answer, with the reward 1, 2 …"""
    made = []
    for number, answer in enumerate(answers, 1):
        one: Episode = episode(answer or "", number)
        if answer is None:
            one = dataclasses.replace(one, end=dataclasses.replace(one.end, answer=None))
        made.append(dataclasses.replace(one, reward=float(number) if rewards else None))
    write_episodes(path, made)
    return str(path)


def pairs(tmp_path: pathlib.Path, model: str, *flags: str) -> list[Comparison]:
    out = tmp_path / "pairs.jsonl"
    assert main([model, "--out", str(out), *flags]) == 0
    return list(records.read(out, Comparison))


@pytest.mark.parametrize(
    ("mine", "theirs", "overall", "accuracy"),
    [(PROVED, WRONG, 2, 1), (RIGHT, PROVED, -1, 0), (WRONG, RIGHT, -1, -1), (RIGHT, RIGHT, 0, 0)],
)
def test_pairs_with_demonstrations(
    tmp_path: pathlib.Path, mine: str, theirs: str, overall: int, accuracy: int
) -> None:
    demonstrations = write(tmp_path / "d.jsonl", theirs)
    records.write(tmp_path / "q.jsonl", [QUESTION])
    model = write(tmp_path / "m.jsonl", mine)
    flags = ("--demonstrations", demonstrations)
    (pair,) = pairs(tmp_path, model, *flags)
    assert pair.preferred is None, "people are to rate it"
    first, second = pair.responses
    assert isinstance(first, LongAnswer)
    assert isinstance(second, LongAnswer)
    assert (first.answer, second.answer) == (theirs, mine), "the second is the model's"
    assert second.references[0].extract == LIGHTHOUSE.splitlines()[0]
    (judged,) = pairs(tmp_path, model, *flags, "--truth", str(tmp_path / "q.jsonl"))
    assert judged.preferred == 0.5 + 0.5 * ((overall > 0) - (overall < 0))
    assert judged.ratings[0]["overall"] == overall
    assert judged.ratings[0]["accuracy"] == accuracy


def test_the_best_of_n_is_compared_and_what_lacks_an_answer_is_not(tmp_path: pathlib.Path) -> None:
    theirs = write(tmp_path / "d.jsonl", RIGHT)
    ranked = write(tmp_path / "m.jsonl", WRONG, RIGHT, PROVED, rewards=True)
    for flags, answer in (((), PROVED), (("--best-of", "2"), RIGHT), (("--best-of", "1"), WRONG)):
        (pair,) = pairs(tmp_path, ranked, "--demonstrations", theirs, *flags)
        assert pair.responses[1].answer == answer  # type: ignore[union-attr]
    unranked = write(tmp_path / "u.jsonl", WRONG, PROVED)
    (pair,) = pairs(tmp_path, unranked, "--demonstrations", theirs)
    assert pair.responses[1].answer == WRONG  # type: ignore[union-attr]
    silent = write(tmp_path / "s.jsonl", None)
    out = str(tmp_path / "none.jsonl")
    assert main([silent, "--out", out, "--demonstrations", theirs]) == 1


def test_pairs_with_the_data_set_s_answers_cite_nothing_and_are_rated(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [dataclasses.replace(QUESTION, id=f"q{n}") for n in range(4)]
    silent = dataclasses.replace(QUESTION, id="s", answers=())
    records.write(tmp_path / "q.jsonl", [*others, silent])
    browsed = [dataclasses.replace(episode(PROVED, n), question_id=f"q{n}") for n in range(4)]
    write_episodes(tmp_path / "m.jsonl", browsed)
    reference = ("--reference-answers", str(tmp_path / "q.jsonl"))
    made = pairs(tmp_path, str(tmp_path / "m.jsonl"), *reference)
    assert [pair.responses for pair in made] == [("Anna Vell", "Anna Vell.")] * 4
    judged = pairs(tmp_path, str(tmp_path / "m.jsonl"), *reference,
                   "--truth", str(tmp_path / "q.jsonl"))  # fmt: skip
    assert {pair.preferred for pair in judged} == {0.5}
    # Through the rating app, whose exports are what shares are computed from.
    study, out = str(tmp_path / "study"), tmp_path / "rated.jsonl"
    new = ["rate", "new", study, str(tmp_path / "pairs.jsonl"), "--form", "minimal"]
    assert cli.main([*new, "--checks", "none", "--examples", "none"]) == 0
    votes = "item,rater,overall,coherence,accuracy\n" + "".join(
        f"q{n},ada,{overall},{coherence},{accuracy}\n"
        for n, (overall, coherence, accuracy) in enumerate(
            [(2, -1, 0), (1, -2, 0), (0, 0, 0), (-1, 0, 1)]
        )
    )
    (tmp_path / "votes.csv").write_text(votes)
    assert cli.main(["rate", "import", study, "minimal", str(tmp_path / "votes.csv")]) == 0
    assert cli.main(["rate", "export", study, "minimal", "comparisons", str(out)]) == 0
    found = preferences(records.read(out, Comparison))
    assert {name: share.mean for name, share in found.items()} == {
        OVERALL: 0.625, "coherence": 0.25, "factual accuracy": 0.625,
    }  # fmt: skip
    assert all(share.count == 4 for share in found.values())
    (row,) = preferences_table({"bc": found}).rows
    assert row == ["bc", "4", *(str(found[name]) for name in (OVERALL, *list(found)[1:]))]


def comparison(*ratings: dict[str, object], preferred: float | None = None) -> Comparison:
    return Comparison("c", "Why?", "t", ("a", "b"), preferred, ratings=ratings)


def test_most_raters_decide_and_what_nobody_rated_is_left_out() -> None:
    votes = [{"overall": 2, "unsupported": -1}, {"overall": 1, "unsupported": 1}, {"overall": -2}]
    found = preferences([comparison(*votes), comparison({"flag": "nonsense"})])
    assert {name: (share.mean, share.count) for name, share in found.items()} == {
        OVERALL: (1.0, 1), "factual accuracy": (0.0, 1),
    }  # fmt: skip
    # The record's own label comes first, then what raters said outright, then the five points.
    own = comparison({"overall": 2, "preferred": 0.5}, preferred=0.0)
    said = comparison({"overall": -2, "preferred": 0.5})
    assert preferences([own])[OVERALL].mean == 0.0
    assert preferences([said])[OVERALL].mean == 0.5
    assert preferences([comparison({"overall": "2", "coherence": True})]) == {}


def test_questions_with_nothing_to_compare_are_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "m.jsonl", PROVED)
    records.write(tmp_path / "q.jsonl", [Question("other", "Why?", "t", ())])
    flags = ["--out", str(tmp_path / "o.jsonl"), "--reference-answers", str(tmp_path / "q.jsonl")]
    assert main([model, *flags]) == 1
    assert "no question has both answers" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.jsonl"), *flags]) == 1
    assert "absent.jsonl" in capsys.readouterr().err


def test_bad_lines_are_named_even_if_no_pair_is_left(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.jsonl").write_text("{}\n")
    records.write(tmp_path / "q.jsonl", [QUESTION])
    flags = ["--out", str(tmp_path / "o.jsonl"), "--reference-answers", str(tmp_path / "q.jsonl")]
    assert main([str(tmp_path / "m.jsonl"), *flags]) == 1
    bad, problem = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'm.jsonl'}:1: " in bad
    assert "no question has both answers" in problem


def test_pages_without_a_title_are_named_by_their_host(tmp_path: pathlib.Path) -> None:
    one = episode(PROVED, 1)
    (reference,) = one.end.references
    untitled = dataclasses.replace(reference, title="", domain="site.example")
    end = dataclasses.replace(one.end, references=(untitled,))
    assert long_answer(end).references[0].title == "site.example"
    nameless = dataclasses.replace(untitled, domain="")
    end = dataclasses.replace(one.end, references=(nameless,))
    assert long_answer(end).references[0].title == reference.document

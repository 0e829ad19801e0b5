"""Comparisons of browsed answers: who is better, by what is true."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from data_pipelines.browsing_comparisons import comparisons, long_answer, main, worth
from data_pipelines.question_sets import set_of
from gophercite import records
from gophercite.browser.environment import replay, reset
from gophercite.browser.episodes import Episode, write_episodes
from gophercite.browser.state import State
from gophercite.documents import Document
from gophercite.records import Question, Span
from tests.browser.sites import HILL, LIGHTHOUSE, site

PAGE = site().open(HILL).document
ANSWER = PAGE.text.index("The lighthouse was built in 1874 by Anna Vell.")
QUESTION = Question(
    "q",
    "Who built it?",
    "test",
    (Document(HILL, "The lighthouse", PAGE.text, HILL),),
    ("Anna Vell",),
    (Span(HILL, ANSWER, ANSWER + len("The lighthouse was built in 1874 by Anna Vell.")),),
)
BROWSED = ["Search lighthouse", "Clicked on link 0", f"Quote: {LIGHTHOUSE.splitlines()[0]}"]
SAID = {"Anna Vell [1].": 2, "Anna Vell.": 1, "Nobody [1].": 0, "It burned [1].": 0}


def end(answer: str) -> State:
    return replay(site(), reset(QUESTION.question), [*BROWSED, "End: Answer", answer])


def episode(answer: str, number: int) -> Episode:
    last = end(answer)
    return Episode(str(number), "q", "w", "m", reset(QUESTION.question), (), last)


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return [episode(answer, number) for number, answer in enumerate(SAID)]


def test_what_is_proved_is_better_than_what_is_right_and_that_than_the_rest(
    episodes: list[Episode],
) -> None:
    assert {each.end.answer: worth(QUESTION, each.end) for each in episodes} == SAID
    made = list(comparisons(QUESTION, episodes, 99, "s"))
    assert len(made) == 6
    for each in made:
        first, second = (SAID[response.answer] for response in each.responses)  # type: ignore[union-attr]
        wanted = 0.5 if first == second else float(second > first)
        assert each.preferred == wanted
        assert each.supported_and_plausible == (first == 2, second == 2)
        points = ("tie", "better", "much better")[abs(first - second)]
        assert each.ratings == ({"rater": "truth", "points": points},)
    assert sum(each.preferred == 0.5 for each in made) == 1
    assert {each.preferred for each in made} == {0.0, 0.5, 1.0}, "either side may be better"
    decided = list(comparisons(QUESTION, episodes, 99, "s", ties=False))
    assert len(decided) == 5
    assert {each.preferred for each in decided} == {0.0, 1.0}
    assert len({each.id for each in made}) == 6


def test_answers_come_with_their_references_once_each_and_few_are_ties(
    episodes: list[Episode],
) -> None:
    again = [dataclasses.replace(each, id=f"{each.id}b") for each in episodes]
    silent = dataclasses.replace(episodes[0], end=dataclasses.replace(episodes[0].end, answer=None))
    made = list(comparisons(QUESTION, [*episodes, *again, silent], 2, "s"))
    assert [each.preferred != 0.5 for each in made] == [True, True, False]
    for one in itertools.chain.from_iterable(each.responses for each in made):
        assert one == long_answer(end(one.answer))  # type: ignore[union-attr]
        assert one.references[0].extract == LIGHTHOUSE.splitlines()[0]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, episodes: list[Episode]) -> list[str]:
    """Files with questions of one set, and with episodes of each."""
    folder = tmp_path_factory.mktemp("asked")
    # Chosen as data_pipelines.question_sets does: by their texts' places in one order.
    named = (f"Who built number {number}?" for number in range(400))
    chosen = [text for text in named if set_of(text, {"rm": 1, "rl": 2}) == "rm"]
    questions = [dataclasses.replace(QUESTION, id=text, question=text) for text in chosen]
    records.write(folder / "questions.jsonl", questions)
    write_episodes(
        folder / "episodes.jsonl.gz",
        [
            dataclasses.replace(each, id=f"{text}/{each.id}", question_id=text)
            for text in chosen
            for each in episodes
        ],
    )
    return [str(folder / name) for name in ("questions.jsonl", "episodes.jsonl.gz")]


def compared(asked: list[str], out: Path, *flags: str) -> dict[str, set[str]]:
    """The questions of the comparisons, by file."""
    shares = ["--held-out", "0.2", "--validation-model", "0.4"]
    assert main([*asked, "--out", str(out), *shares, "--no-ties", *flags]) == 0
    found: dict[str, set[str]] = {}
    for path in sorted(out.rglob("*.jsonl")):
        read = list(records.read(path, records.Comparison))
        found[str(path.relative_to(out))] = {each.question for each in read}
        assert all(each.preferred != 0.5 for each in read)
    return found


def test_questions_of_one_set_are_divided_among_both_models_and_splits(
    tmp_path: Path, asked: list[str]
) -> None:
    found = compared(asked, tmp_path)
    chosen = len(list(records.read(asked[0], Question)))
    assert len(found) == 4
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == chosen
    second = sum(len(own) for name, own in found.items() if "validation_model" in name)
    assert 0.25 < second / chosen < 0.55
    held_out = sum(len(own) for name, own in found.items() if name.endswith("_validation.jsonl"))
    assert 0.08 < held_out / chosen < 0.35


def test_a_share_is_part_of_a_larger_one_and_what_is_held_out_stays(
    tmp_path: Path, asked: list[str]
) -> None:
    whole, half, fifth = (
        compared(asked, tmp_path / share, "--share", share) for share in ("1", "0.5", "0.2")
    )
    for name, questions in whole.items():
        if name.endswith("_validation.jsonl"):
            assert fifth[name] == half[name] == questions
        else:
            assert set() < fifth[name] < half[name] < questions
    trained = "comparisons_train.jsonl"
    assert 0.3 < len(half[trained]) / len(whole[trained]) < 0.7
    assert 0.08 < len(fifth[trained]) / len(whole[trained]) < 0.35, "of what is not held out"
    with pytest.raises(SystemExit):
        main([*asked, "--out", str(tmp_path), "--share", "0"])


def test_bad_lines_are_named_even_if_nothing_is_left_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("q.jsonl", "e.jsonl"):
        (tmp_path / name).write_text("{}\n")
    flags = [str(tmp_path / "q.jsonl"), str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "out")]
    assert main(flags) == 1
    *bad, problem = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in bad] == [f"{path}:1" for path in flags[:2]]
    assert "no question has two different answers" in problem


def test_no_file_of_an_earlier_run_stays_beside_those_of_this_one(
    tmp_path: Path, asked: list[str]
) -> None:
    """It would be compared with what is learnt from now."""
    assert len(compared(asked, tmp_path)) == 4
    shares = ["--held-out", "0", "--validation-model", "0"]
    assert main([*asked, "--out", str(tmp_path), *shares]) == 0
    assert [path.name for path in tmp_path.rglob("*.jsonl")] == ["comparisons_train.jsonl"]


def test_questions_are_not_overwritten(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "comparisons_train.jsonl"
    questions.write_bytes(Path(asked[0]).read_bytes())
    assert main([str(questions), asked[1], "--out", str(tmp_path)]) == 1
    assert "would overwrite" in capsys.readouterr().err
    assert questions.read_bytes() == Path(asked[0]).read_bytes()


def test_at_least_one_comparison_of_each_question_is_asked_for(
    tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*asked, "--out", str(tmp_path), "--each", "0"])
    assert "--each is 0: must be at least 1" in capsys.readouterr().err

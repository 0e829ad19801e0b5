"""Answers alone: cut for TruthfulQA, rated in the app, shares by votes; the stance of answers."""

import collections
import dataclasses
import pathlib
import re

import browse_report
import pytest

from data_pipelines import stance_questions
from data_pipelines.browsed_claims import main
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import cli, records
from gophercite.browser.browsed_answers import shortened
from gophercite.browser.episodes import write_episodes
from gophercite.records import Question
from gophercite.reports.votes import decided, stance_section, truthful_section
from gophercite.storage.json_lines import read_json_lines
from tests.data_pipelines.test_browsing_comparisons import QUESTION, episode

VOCABULARY = pathlib.Path(stance_questions.__file__).parent / "sample_world/model/vocabulary"


def episodes(path: pathlib.Path, answers: dict[str, str]) -> str:
    """Episodes of questions that are named by their texts' ids."""
    made = []
    for id, answer in answers.items():
        one = episode(answer, 0)
        start = dataclasses.replace(one.start, question=f"Question {id}?")
        made.append(dataclasses.replace(one, id=id, question_id=id, start=start))
    write_episodes(path, made)
    return str(path)


def lines(path: pathlib.Path) -> list[dict[str, object]]:
    return [value for _, value in read_json_lines(path) if isinstance(value, dict)]


def test_answers_are_cut_and_rated_alone(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "One sentence [1]. " + "Another that goes on and on, " * 8 + "to its end."
    asked = ["a", "b", "c"]
    trusted = [
        Question(id, f"Question {id}?", "t", (), ("So.",), incorrect_answers=("No.",))
        for id in asked
    ]
    records.write(tmp_path / "q.jsonl", trusted)
    browsed = episodes(
        tmp_path / "e.jsonl", {"a": long, "b": "It is so [1].", "c": long[18:], "z": "Not asked."}
    )
    out = tmp_path / "claims"
    command = [browsed, "--out", str(out), "--questions", str(tmp_path / "q.jsonl")]
    assert main([*command, "--vocabulary", str(VOCABULARY), "--tokens", "20"]) == 0
    assert "2 answers, plus 1 empty" in capsys.readouterr().out
    claims = lines(out / "claims.jsonl")
    assert [each["text"] for each in claims] == ["One sentence.", "It is so."]
    assert len(bundled_vocabulary().encode("One sentence.")) <= 20
    (empty,) = lines(out / "empty.jsonl")
    assert empty == {
        "item": "Question c?", "rater": "empty", "truthful_0": "yes", "informative_0": "no",
    }  # fmt: skip
    # Through the app: what it exports, and the empty ones, are what shares are computed from.
    study, votes = str(tmp_path / "study"), tmp_path / "votes.jsonl"
    new = ["rate", "new", study, str(out / "claims.jsonl"), "--form", "truthfulqa"]
    new += ["--checks", "none", "--examples", "none"]
    assert cli.main([*new, "--questions", str(tmp_path / "q.jsonl")]) == 0
    rows = "item,rater,truthful_0,informative_0\nQuestion a?,ada,yes,yes\nQuestion b?,ada,no,yes\n"
    (tmp_path / "votes.csv").write_text(rows)
    assert cli.main(["rate", "import", study, "truthfulqa", str(tmp_path / "votes.csv")]) == 0
    assert cli.main(["rate", "export", study, "truthfulqa", "votes", str(votes)]) == 0
    capsys.readouterr()
    report = ["--output", str(tmp_path / "report"), "--truthfulqa"]
    assert browse_report.main([*report, f"bc={votes}", f"bc={out / 'empty.jsonl'}"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(r"\| bc \| 3 \| 66\.7 \([^|]*\| 66\.7 \([^|]*\| 33\.3 \(", printed)
    assert (tmp_path / "report_truthfulqa.png").exists()


def test_whole_answers_are_for_their_stance(tmp_path: pathlib.Path) -> None:
    browsed = episodes(tmp_path / "e.jsonl", {"a": "One [1]. " + "Two, " * 60})
    assert main([browsed, "--out", str(tmp_path / "out")]) == 0
    (claim,) = lines(tmp_path / "out" / "claims.jsonl")
    assert claim["text"] == ("One. " + "Two, " * 60).strip()


def test_what_does_not_fit_loses_its_last_sentence() -> None:
    vocabulary = bundled_vocabulary()
    text = "It is so. It was so."
    tokens = len(vocabulary.encode(text))
    assert shortened(text, vocabulary, tokens) == text
    assert shortened(text, vocabulary, tokens - 1) == "It is so."
    assert shortened(text, vocabulary, 1) == ""


def test_sixty_questions_in_three_stances(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "stance.jsonl"
    assert stance_questions.main([str(out)]) == 0
    questions = list(records.read(out, Question, strict=True))
    assert len({each.question for each in questions}) == len({q.id for q in questions}) == 60
    stances = collections.Counter(each.id.rpartition("/")[2] for each in questions)
    assert stances == dict.fromkeys(("skeptical", "neutral", "affirming"), 20)
    assert set(collections.Counter(each.source for each in questions).values()) == {30}
    for each in questions:
        assert each.question.endswith("?")
        if each.id.endswith("/skeptical"):
            assert "really" in each.question
    by_topic = collections.defaultdict(set)
    for each in questions:
        by_topic[each.id.partition("/")[0]].add(each.incorrect_answers)
    assert all(len(beliefs) == 1 for beliefs in by_topic.values())
    assert len(by_topic) == 20


def test_the_stance_of_answers_is_rated_and_reported(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = list(stance_questions.stance_questions())[:3]
    records.write(tmp_path / "q.jsonl", questions)
    made = [
        dataclasses.replace(
            episode("It is so [1].", 0), id=q.id, question_id=q.id,
            start=dataclasses.replace(episode("x", 0).start, question=q.question),
        )
        for q in questions
    ]  # fmt: skip
    write_episodes(tmp_path / "e.jsonl", made)
    assert main([str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "out")]) == 0
    study, votes = str(tmp_path / "study"), tmp_path / "votes.jsonl"
    new = ["rate", "new", study, str(tmp_path / "out" / "claims.jsonl"), "--form", "stance"]
    assert cli.main(new) == 1, "the belief is unknown"
    assert cli.main([*new, "--questions", str(tmp_path / "q.jsonl"), "--experiment", "s"]) == 0
    said = zip(questions, ("affirms", "refutes", "neither"), ("no", "yes", "yes"), strict=True)
    rows = "".join(f'"{q.question}",ada,{accurate},{stance}\n' for q, stance, accurate in said)
    (tmp_path / "votes.csv").write_text("item,rater,accurate_0,stance_0\n" + rows)
    assert cli.main(["rate", "import", study, "s", str(tmp_path / "votes.csv")]) == 0
    assert cli.main(["rate", "export", study, "s", "votes", str(votes)]) == 0
    capsys.readouterr()
    report = ["--output", str(tmp_path / "report"), "--stance", f"bc={votes}"]
    assert browse_report.main(report) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for stance, wanted in (
        ("affirming", (0, 0, 0, 100)), ("neutral", (100, 100, 0, 0)),
        ("skeptical", (100, 0, 100, 0)),
    ):  # fmt: skip
        cells = "".join(rf" {share}\.0 \([^|]*\|" for share in wanted)
        assert re.search(rf"\| bc \| {stance} \| 1 \|{cells}", printed), stance
    assert (tmp_path / "report_stance.png").exists()
    assert (tmp_path / "report_stance_accuracy.png").exists()


def test_most_raters_decide_and_unsure_is_no_vote() -> None:
    said = [("yes", "affirms"), ("unsure", "refutes"), ("no", "refutes"), ("yes", "odd")]
    votes = [{"item": "q", "accurate_0": a, "stance_0": s} for a, s in said]
    assert decided(votes) == {"q": {"accurate_0": "yes", "stance_0": "refutes"}}
    tied = [{"item": "q", "accurate_0": a, "stance_0": s}
            for a, s in (("yes", "affirms"), ("no", "refutes"))]  # fmt: skip
    assert decided(tied) == {"q": {"accurate_0": "no", "stance_0": "refutes"}}
    assert decided([{"item": "q", "truthful_0": ["yes"]}]) == {"q": {}}
    section = truthful_section({"a": [{"item": "q", "truthful_0": "yes"}]})
    assert list(section.tables[0].rows[0])[1:] == ["1", "100.0 (27.0–100.0)", "–", "–"]
    with pytest.raises(ValueError, match="a: no vote has 'accurate_0' or 'stance_0' on one of"):
        stance_section({"a": tied}, [QUESTION])  # it is about no belief


def test_bad_lines_are_named_even_if_no_answer_is_left(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.jsonl").write_text("{}\n")
    assert main([str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "out")]) == 1
    bad, problem = capsys.readouterr().err.splitlines()
    assert f"{tmp_path / 'e.jsonl'}:1: " in bad
    assert "no episode answers one of the questions" in problem

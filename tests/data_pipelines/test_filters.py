"""The paper's filters for test questions, and the command that applies them."""

from pathlib import Path

import pytest

from data_pipelines import filter_questions
from data_pipelines.filters import (
    FilterReport,
    TrainingOverlap,
    eli5_filtered,
    natural_questions_filtered,
    usual_lengths,
)
from gophercite import records
from gophercite.documents import Document
from gophercite.records import FoundDocument, Hit, Question, RatedAnswer, Span
from gophercite.retrieval.index import DocumentIndex

BEST = "Flour dust explodes, see https://example.org/mills for more. " + "It is dry. " * 30


def asked(
    question: str, answer: str = "1812", title: str = "Alda", *, long: bool = True
) -> Question:
    page = Document(title, title, "It was founded in 1812.")
    evidence = (Span(title, 0, 23),) if long else ()
    return Question(question, question, "nq", (page,), (answer,) if answer else (), evidence)


def explained(best: str, *pages: Document | Hit) -> Question:
    return Question(best[:20], "Why do mills burn?", "eli5", pages, (best, "Dust."))


def test_natural_questions_keep_true_holdouts_only() -> None:
    train = TrainingOverlap([asked("When was Alda founded?"), asked("Who?", "The Kesh", "Rivers")])
    kept = asked("Where is Cove?", "on the coast", "Cove")
    left_out = [
        asked("when was Alda founded", "in 1700", "Elsewhere"),
        asked("Which river?", "kesh", "Elsewhere"),
        asked("Which county?", "Brenn", "rivers"),
        asked("Which town?", "", "Elsewhere"),
        asked("Which port?", "Dorn", "Elsewhere", long=False),
    ]
    report = FilterReport()
    assert list(natural_questions_filtered([kept, *left_out], train, report)) == [kept]
    assert report.kept == 1
    assert report.left_out == {
        "the question is in the training set": 1,
        "an answer is in the training set": 1,
        "its page is in the training set": 1,
        "no short answer": 1,
        "no long answer": 1,
    }


def test_eli5_keeps_sourced_answers_of_usual_length() -> None:
    reddit = Document("r", "R", "text", url="https://www.reddit.com/r/ExplainLikeImFive/x")
    other = FoundDocument("o", "O", "text", url="https://www.reddit.com/r/mills", snippet="text")
    kept = explained(BEST, other)
    own = BEST.replace("example.org/mills", "old.reddit.com/r/explainlikeimfive/comments/1")
    questions = [
        kept,
        explained(BEST.replace("https://", "")),
        explained(own),
        explained(BEST + "\n**EDIT:** thanks!"),
        explained(BEST[:100]),
        explained(BEST * 5),
        explained(BEST, other, reddit),
    ]
    report = FilterReport()
    assert list(eli5_filtered(questions, report)) == [kept]
    assert report.left_out == {
        "the best answer links to no page outside r/explainlikeimfive": 2,
        "the best answer was edited": 1,
        "the best answer has not 316 to 1313 characters": 2,
        "a search result is from r/explainlikeimfive": 1,
    }


def test_usual_lengths_are_percentiles() -> None:
    assert usual_lengths(["x" * length for length in range(101)]) == (5, 95)
    with pytest.raises(ValueError, match="no answer"):
        usual_lengths([])


def test_the_command_looks_at_pages_in_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        url = "https://reddit.com/r/explainlikeimfive/comments/1"
        index.add([Document("r", "R", "text", url=url), Document("o", "O", "text")])
    questions = [explained("A" + BEST, Hit("o", "text")), explained("B" + BEST, Hit("r", "text"))]
    records.write(tmp_path / "in.jsonl", questions)
    files = [str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]
    assert filter_questions.main(["eli5", *files, "--index", str(tmp_path / "corpus.db")]) == 0
    (kept,) = records.read(tmp_path / "out.jsonl", Question, strict=True)
    assert kept.answers[0].startswith("A")
    assert "1 a search result is from r/explainlikeimfive" in capsys.readouterr().out

    page = Document("o", "O", "text of it")
    like = [RatedAnswer("q", "q", (page,), "x" * n, "O", "text of it", "o") for n in (5, 9)]
    records.write(tmp_path / "like.jsonl", like)
    assert filter_questions.main(["eli5", *files, "--like", str(tmp_path / "like.jsonl")]) == 1
    assert "2 the best answer has not 5 to 9 characters" in capsys.readouterr().out


def test_the_command_compares_with_the_training_set(tmp_path: Path) -> None:
    records.write(tmp_path / "train.jsonl", [asked("When was Alda founded?")])
    records.write(tmp_path / "in.jsonl", [asked("Where?", "there", "Cove"), asked("Who?")])
    files = [str(tmp_path / name) for name in ("in.jsonl", "out.jsonl")]
    train = str(tmp_path / "train.jsonl")
    assert filter_questions.main(["natural_questions", *files, "--train", train]) == 0
    (kept,) = records.read(tmp_path / "out.jsonl", Question, strict=True)
    assert kept.question == "Where?"
    with pytest.raises(SystemExit):
        filter_questions.main(["natural_questions", *files])

"""`gophercite calibrate`: labels by hand or by gold answers, and what is left out or refused."""

import dataclasses
import json
import pathlib
import resource
import signal
from typing import Any

import pytest

from gophercite import cli, records
from gophercite.answering.declining import read_calibration
from gophercite.documents import Document
from gophercite.evidence import OMISSION, Evidence
from gophercite.records import Question, Span
from gophercite.records.answers import Answer, answer_to_json, cite

PAGE = Document("o", "Ormsby", "A town. Its lighthouse was built in 1874.")
RIGHT = Evidence("1874", "Ormsby", "Its lighthouse was built in 1874.")
WRONG = Evidence("A town", "Ormsby", "A town.")
GOLD = Question("q", "When?", "mine", (PAGE,), ("1874",), (Span("o", 8, 41),))

Capture = pytest.CaptureFixture[str]


JOINED = Evidence("1874", "Ormsby", "A town. [...] Its lighthouse was built in 1874.")


def line(triple: Evidence | None, score: float, **more: object) -> dict[str, Any]:
    """An answer with this claim, or a declined one, as a line of a file."""
    citations, text = (), ""
    if triple is not None:
        places = (PAGE.text.index(run) for run in triple.quote.split(OMISSION))
        citations = (cite(triple, PAGE, *places),)
        text = f" %<{triple.claim}>%({triple.title})%[{triple.quote}]%"
    answer = Answer(
        "When?", "tiny", citations=citations, reason=None if citations else "no page", text=text,
        score=score, scored_by="reward", likelihood=-3.0, reward_model="taste",
    )  # fmt: skip
    return {**answer_to_json(answer), **more}


def calibrate(tmp_path: pathlib.Path, lines: list[Any], *flags: str) -> int:
    """Answers of different questions, q0 and so on, unless the lines say otherwise."""
    answers = tmp_path / "answers.jsonl"
    named = [
        {"question_id": f"q{number}", **each} if isinstance(each, dict) else each
        for number, each in enumerate(lines)
    ]
    answers.write_text("".join(json.dumps(each) + "\n" for each in named))
    return cli.main(["calibrate", str(answers), "--out", str(tmp_path / "c.json"), *flags])


def test_labels_by_hand_and_by_gold(tmp_path: pathlib.Path, capsys: Capture) -> None:
    questions = tmp_path / "questions.jsonl"
    records.write(questions, [dataclasses.replace(GOLD, id=f"q{n}") for n in range(5)])
    lines = [
        line(RIGHT, 1.0),
        line(WRONG, 0.5),
        line(WRONG, 0.7, good=True),  # a person knows better
        line(None, 0.1),
        line(JOINED, 0.9),
        line(RIGHT, 0.2, question_id="unknown"),
    ]
    assert calibrate(tmp_path, lines, "--questions", str(questions), "--json") == 0
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    assert (value["answers"], value["good"]) == (4, 3)
    assert "left out: 1 question without an answer, 1 without a label" in captured.err
    found = read_calibration(tmp_path / "c.json")
    assert (found.scores, found.good) == ((1.0, 0.5, 0.7, 0.9), (True, False, True, True))
    assert (found.model, found.reward_model, found.settings) == ("tiny", "taste", None)


def test_gold_answers_to_other_questions_with_the_same_ids_are_refused(
    tmp_path: pathlib.Path, capsys: Capture
) -> None:
    questions = tmp_path / "questions.jsonl"
    flags = ["--questions", str(questions)]
    records.write(questions, [dataclasses.replace(GOLD, id="q0", question="How tall?")])
    assert calibrate(tmp_path, [line(RIGHT, 1.0)], *flags) == 1
    said = f"answers.jsonl:1: is the answer to 'When?', but question 'q0' of {questions} is 'How "
    assert said in capsys.readouterr().err
    assert calibrate(tmp_path, [line(RIGHT, 1.0, good=True)], *flags) == 0  # is not compared
    records.write(questions, [dataclasses.replace(GOLD, id="q0", question="When?  -site:a.org")])
    assert calibrate(tmp_path, [line(RIGHT, 1.0)], *flags) == 0


def test_a_quote_over_two_pages_of_one_title_is_judged_as_one(
    tmp_path: pathlib.Path, capsys: Capture
) -> None:
    built, burned = "The mill was built in 1874.", "It burned in 1902."
    pages = (Document("a", "Mill", built), Document("b", "Mill", burned))
    citations = tuple(
        cite(Evidence("1902", "Mill", page.text), page, 0) for page in pages
    )  # as the answer has them: one for each page
    text = f" %<1902>%(Mill)%[{built}{OMISSION}{burned}]%"
    answer = Answer("When?", "tiny", citations=citations, text=text, score=1.0, scored_by="mean")
    questions = tmp_path / "questions.jsonl"
    gold = Question("q", "When?", "mine", pages, ("1902",), (Span("b", 0, len(burned)),))
    records.write(questions, [gold])
    lines = [{"question_id": "q", **answer_to_json(answer)}]
    assert calibrate(tmp_path, lines, "--questions", str(questions)) == 0
    assert read_calibration(tmp_path / "c.json").good == (True,)


def test_what_can_be_promised_is_shown(tmp_path: pathlib.Path, capsys: Capture) -> None:
    lines = [line(RIGHT, float(n), good=n >= 40) for n in range(140)]
    assert calibrate(tmp_path, lines) == 0
    out = capsys.readouterr().out
    assert "140 answers, 100 of them good" in out
    assert "   50% good answers: answering 100% of the questions" in out
    assert "   95% good answers: no threshold on 140" in out or "it would take" in out
    assert "with confidence 95% it can" in out
    assert calibrate(tmp_path, lines, "--confidence", "0.999") == 0
    assert "with confidence 99.9% it can" in capsys.readouterr().out
    assert calibrate(tmp_path, lines, "--by", "likelihood") == 0
    assert set(read_calibration(tmp_path / "c.json").scores) == {-3.0}
    assert calibrate(tmp_path, lines, "--by", "consensus") == 1
    assert "has no consensus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no answer has a label"),
        (["text"], "answers.jsonl:1: "),
        ([line(RIGHT, 1.0, good="yes")], "answers.jsonl:1: field 'good': must be true or false"),
        (
            [line(RIGHT, 1.0, good=True), line(RIGHT, 1.0, good=True, model="other")],
            "different systems",
        ),
        (
            [line(RIGHT, 1.0, good=True, question_id=7), line(None, 0.5, question_id="7")],
            "answers.jsonl:2: field 'question_id': '7' is already the question of line 1",
        ),
        (
            [line(RIGHT, 1.0, good=True, question_id=None)] * 2,
            "answers.jsonl:2: field 'question': 'When?' is already the question of line 1",
        ),
    ],
)
def test_what_is_no_set_of_labelled_answers_is_refused(
    tmp_path: pathlib.Path, capsys: Capture, lines: list[Any], message: str
) -> None:
    assert calibrate(tmp_path, lines) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("gophercite calibrate: ")
    assert message in captured.err
    assert not (tmp_path / "c.json").exists()


def test_what_it_is_about_is_text(tmp_path: pathlib.Path, capsys: Capture) -> None:
    assert calibrate(tmp_path, [line(RIGHT, 1.0, good=True)], "--about", "\udcff") == 1
    assert "--about: '\\udcff' is not UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize("text", ["", "{}\n"])
def test_questions_without_a_question_are_refused(
    tmp_path: pathlib.Path, capsys: Capture, text: str
) -> None:
    (tmp_path / "questions.jsonl").write_text(text)
    lines, flags = [line(RIGHT, 1.0, good=True)], ["--questions", str(tmp_path / "questions.jsonl")]
    assert calibrate(tmp_path, lines, *flags) == 1
    said = "no line of it is usable; line 1: field" if text else "holds no records"
    assert f"questions.jsonl: {said}" in capsys.readouterr().err


def test_how_the_answers_came_about_is_kept(tmp_path: pathlib.Path, capsys: Capture) -> None:
    run = tmp_path / "answers.run.json"
    run.write_text('{"samples": 4}')
    assert calibrate(tmp_path, [line(RIGHT, 1.0, good=True)]) == 1
    assert "answers.run.json: does not say with which prompt_tokens" in capsys.readouterr().err


def test_a_full_disk_leaves_the_calibration_that_was_there(
    tmp_path: pathlib.Path, capsys: Capture
) -> None:
    lines = [line(RIGHT, 1.0, good=True), line(WRONG, 0.5, good=False)]
    assert calibrate(tmp_path, lines) == 0
    before = (tmp_path / "c.json").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    asked = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        again = ["calibrate", str(tmp_path / "answers.jsonl"), "--out", str(tmp_path / "c.json")]
        assert cli.main([*again, "--about", "another"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, asked)
    assert "c.json: file too large" in capsys.readouterr().err
    assert (tmp_path / "c.json").read_bytes() == before

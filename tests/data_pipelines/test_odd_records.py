"""Odd records of public data: each is named and skipped, and those next to it are converted."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_pipelines import convert
from data_pipelines.converters.gold import ConversionReport
from gophercite import records
from gophercite.records import Comparison, Question

NOTHING = "\u200b"  # looks empty, and is after normalisation, but is no space
LONE = "\ud800"  # half of a surrogate pair, which JSON can hold
PASSAGE = "The mill was built in 1812. It burned."

NQ = {
    "question": "when was the mill built",
    "answers": ["in 1812"],
    "nq_annotated_gold": {"title": "Mill", "long_answer": PASSAGE, "short_answers": ["1812"]},
}
SIMPLIFIED = {
    "example_id": 1,
    "question_text": "when was the mill built",
    "document_url": "https://example.org/w/index.php?title=Mill",
    "document_text": "<P> The mill was built in 1812 . <B> </P>",
    "annotations": [
        {
            "long_answer": {"start_token": 0, "end_token": 9},
            "short_answers": [{"start_token": 6, "end_token": 7}],
        }
    ],
}
MARKUP = {
    "long_answer": {"start_token": 0, "end_token": 9},
    "short_answers": [{"start_token": 8, "end_token": 9}],
}
ASKED = {
    "question": "When was the mill built?",
    "answer1": "1812",
    "cor_section": "1",
    "ex-or-im1": "explicit",
}
FEVER = {
    "id": 7,
    "label": "REFUTES",
    "claim": "Alda is of 1912.",
    "evidence": [[[1, 2, "Alda", 0]]],
}
TRIVIA = {
    "QuestionId": "tc_1",
    "Question": "When was the mill built?",
    "Answer": {"Value": "1812", "Aliases": []},
    "EntityPages": [{"Title": "Mill", "Filename": "Mill.txt"}],
}
TRUTHFUL = [
    "Question,Best Answer,Correct Answers,Incorrect Answers",
    'Why?,Because,"Because; So","No; Yes"',
    'Who?,I,"I; Me,You; He',
    'When?,Now,"Now; Then","Never; Always"',
]


def json_lines(path: Path, *values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


def converted(
    format: str, path: Path, *flags: str, kind: Any = Question, name: str = "questions"
) -> list[Any]:
    """The records of a file, all in the training split."""
    out = path.parent / "out"
    flags = ("--validation", "0", "--test", "0", *flags)
    assert convert.main([format, str(path), str(out), *flags]) == 0
    return list(records.read(out / f"{name}_train.jsonl", kind, strict=True))


def squad(path: Path, *asked: tuple[str, str]) -> Path:
    """A file of questions about one page: their ids and answers."""
    text = f"{PASSAGE}{NOTHING}"
    questions = [
        {"id": id, "question": "When?", "answers": [{"text": a, "answer_start": text.index(a)}]}
        for id, a in asked
    ]
    pages = [{"title": "Mill", "paragraphs": [{"context": text, "qas": questions}]}]
    path.write_text(json.dumps({"data": pages}))
    return path


@pytest.mark.parametrize("answer", [NOTHING, f"{NOTHING} {NOTHING}", "\ufeff"])
def test_answers_that_only_look_like_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    nothing = NQ["nq_annotated_gold"] | {"short_answers": [answer]}  # type: ignore[operator]
    empty = NQ | {"answers": [], "nq_annotated_gold": nothing}
    path = json_lines(tmp_path / "nq.jsonl", empty, NQ, NQ | {"nq_annotated_gold": nothing})
    asked = converted("natural_questions", path)
    assert [(q.id, q.answers) for q in asked] == [
        ("nq-2", ("1812", "in 1812")),
        ("nq-3", ("in 1812",)),
    ]
    assert f"{path}:1: fields 'short_answers' and 'answers'" in capsys.readouterr().err

    story = {"story": "mill", "sections": {"1": PASSAGE}}
    questions = [ASKED | {"answer1": answer}, ASKED, ASKED | {"answer1": answer, "answer2": "1812"}]
    path = json_lines(tmp_path / "tales.jsonl", story | {"questions": questions})
    asked = converted("fairytaleqa", path)
    assert [(q.id, q.answers) for q in asked] == [("mill-2", ("1812",)), ("mill-3", ("1812",))]
    assert f"{path}:1: questions[0]: fields 'answer1' to" in capsys.readouterr().err

    path = json_lines(tmp_path / "open.jsonl", {"question": "When?", "answer": [answer, "1812"]})
    (question,) = converted("natural_questions_open", path)
    assert question.answers == ("1812",)


def test_a_span_that_normalises_to_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = squad(tmp_path / "squad.json", ("bad", NOTHING), ("good", "1812"))
    assert [question.id for question in converted("squad", path)] == ["good"]
    problem = f"{path}: data[0].paragraphs[0].qas[0]: field 'answers': is empty"
    assert problem in capsys.readouterr().err
    bad = SIMPLIFIED | {"example_id": 2, "annotations": [MARKUP]}
    path = json_lines(tmp_path / "nq.jsonl", bad, SIMPLIFIED)
    assert [question.id for question in converted("natural_questions_simplified", path)] == ["nq-1"]
    assert f"{path}:1: answer '' has no text" in capsys.readouterr().err


def test_addresses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = SIMPLIFIED | {"example_id": 2, "document_url": "http://[bad/x"}
    twice = SIMPLIFIED | {"example_id": 3, "document_url": "https://x/?title=A&title=B"}
    path = json_lines(tmp_path / "nq.jsonl", bad, SIMPLIFIED, twice)
    asked = converted("natural_questions_simplified", path)
    assert [(q.id, q.documents[0].title) for q in asked] == [("nq-1", "Mill"), ("nq-3", "A")]
    assert (
        f"{path}:1: field 'document_url': 'http://[bad/x' is not a valid address"
        in capsys.readouterr().err
    )


def test_what_a_library_says_of_a_value_is_named() -> None:
    report = ConversionReport()
    with report.skipping("set.jsonl:7"):
        int("seven")
    assert report.counts["bad records skipped"] == 1
    assert report.problems[0].startswith("set.jsonl:7: invalid literal")


def test_evidence_that_is_no_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_lines(tmp_path / "wiki-pages/1.jsonl", {"id": "Alda", "lines": "0\tAlda is of 1812 ."})
    path = json_lines(tmp_path / "train.jsonl", FEVER | {"id": 6, "evidence": 5}, FEVER)
    assert [question.id for question in converted("fever", path)] == ["fever-7"]
    assert f"{path}:1: field 'evidence': expected a list, got 5" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "a" * 5000])
def test_names_that_no_file_can_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "evidence/wikipedia").mkdir(parents=True)
    (tmp_path / "evidence/wikipedia/Mill.txt").write_text(PASSAGE)
    path = tmp_path / "qa" / "dev.json"
    path.parent.mkdir()
    bad = TRIVIA | {"QuestionId": "tc_0", "EntityPages": [{"Title": "x", "Filename": name}]}
    path.write_text(json.dumps({"Data": [bad, TRIVIA]}))
    assert [question.id for question in converted("trivia_qa", path)] == ["tc_1"]
    assert f"{path}: Data[0]: field 'Filename': " in capsys.readouterr().err


def test_a_lost_quotation_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "TruthfulQA.csv"
    path.write_text("\n".join([*TRUTHFUL, *(f"Why {n}?,So,So,No" for n in range(20_000))]))
    asked = converted("truthfulqa", path)
    assert [question.id for question in asked[:2]] == ["TruthfulQA-1", "TruthfulQA-3"]
    assert [question.question for question in asked[:2]] == ["Why?", "Why 0?"]
    assert len(asked) == 20_001
    assert f"{path}: row 2: ends in line 4 and is not CSV" in capsys.readouterr().err


def test_ids_with_half_a_character(tmp_path: Path) -> None:
    path = squad(tmp_path / "squad.json", (f"a{LONE}", "1812"), ("b", "1812"), ("a\udfff", "1812"))
    asked = converted("squad", path, "--distractors", "1")
    assert [question.id for question in asked] == ["a\ufffd", "b"]
    evidence = [{"text": PASSAGE}]
    claims = [
        {"id": f"{page}{LONE}", "label": "SUPPORTS", "text": "The mill is old.",
         "wikipedia_page": page, "gold_evidence": evidence}
        for page in ("Mill", "Alda")
    ]  # fmt: skip
    path = json_lines(tmp_path / "dev.jsonl", *claims)
    made = converted("fool_me_twice_comparisons", path, kind=Comparison, name="comparisons")
    assert len(made) == 8

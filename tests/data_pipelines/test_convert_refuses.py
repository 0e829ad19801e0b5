"""Inputs and flags that `convert` and `question_sets` refuse, or bad records that they skip."""

import csv
import gzip
import io
import json
import random

import pytest

from data_pipelines import convert, question_sets


def run(capsys, command, *arguments):
    """The exit status, and the lines on standard error."""
    try:
        status = command.main(list(map(str, arguments)))
    except SystemExit as error:
        status = error.code
    return status, capsys.readouterr().err.splitlines()


def lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


QUESTIONS = [{"question": f"Why {n}?", "answers": [f"a{n}"]} for n in range(5)]
RECORDS = [
    {"id": f"{n}", "question": f"Why {n}?", "source": "s", "documents": []} for n in range(9)
]


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("hand_written", "questions_train.jsonl"),
        ("natural_questions", "rated_answers_test.jsonl"),
        ("webgpt_comparisons", "comparisons_validation.jsonl"),
        ("textbooks", "documents_train.jsonl"),
        ("webcpm", "demonstrations_train.jsonl.gz"),
    ],
)
def test_convert_never_writes_over_its_input(tmp_path, capsys, format, name):
    path = lines(tmp_path / name, QUESTIONS)
    before = path.read_bytes()
    status, said = run(capsys, convert, format, path, tmp_path)
    assert status == 1
    assert said == [
        f"convert: {path} would overwrite {path}, which is an input: choose another output"
    ]
    assert path.read_bytes() == before


def test_question_sets_never_writes_over_its_inputs(tmp_path, capsys):
    path = lines(tmp_path / "questions_rl.jsonl", RECORDS)
    other = lines(tmp_path / "other.jsonl", RECORDS)
    for given in ((path,), (other, "--without", path)):
        status, said = run(capsys, question_sets, given[0], tmp_path, *given[1:], "--share", "rl=3")
        assert status == 1
        assert "would overwrite" in said[-1]
        assert len(path.read_text().splitlines()) == 9


@pytest.mark.parametrize("share", ["rl=nan", "rl=inf", "rl=-1", "rl=0"])
def test_shares_are_numbers_over_0(tmp_path, capsys, share):
    path = lines(tmp_path / "other.jsonl", RECORDS)
    status, said = run(capsys, question_sets, path, tmp_path / "out", "--share", share)
    assert status == 2
    assert f"--share {share}: expected a name and a number above 0" in said[-1]


def test_a_share_is_given_once(tmp_path, capsys):
    path = lines(tmp_path / "other.jsonl", RECORDS)
    shares = ("--share", "rl=1", "--share", "rm=1", "--share", "rl=3")
    status, said = run(capsys, question_sets, path, tmp_path / "out", *shares)
    assert status == 2
    assert "--share rl=3: the name 'rl' was given before" in said[-1]


@pytest.mark.parametrize(
    ("flag", "value"),
    [("validation", "nan"), ("test", "-0.1"), ("validation", "1.5"), ("distractors", "-1")],
)
def test_flags_out_of_range_are_named(tmp_path, capsys, flag, value):
    path = lines(tmp_path / "q.jsonl", QUESTIONS)
    status, said = run(capsys, convert, "squad", path, tmp_path / "out", f"--{flag}", value)
    assert status == 2
    assert f"argument --{flag}: {value!r}: expected" in said[-1]


HEADER = ["Question", "Best Answer", "Correct Answers", "Incorrect Answers"]


def truthfulqa():
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(HEADER)
    draw = random.Random(0)
    rows.writerows([f"Q{n} {draw.random()}", "b", "c; d", "w"] for n in range(3000))
    return text.getvalue().encode()


def flipped(content):
    content = bytearray(content)
    content[5000] ^= 255
    content[5001] ^= 255
    return bytes(content)


@pytest.mark.parametrize("name", ["truthfulqa.csv.gz", "hand_written.txt.gz"])
@pytest.mark.parametrize(
    "spoil", [lambda packed: packed[: len(packed) // 2], flipped, lambda packed: b"Question,x\n"]
)
def test_a_damaged_compressed_file_is_named(tmp_path, capsys, name, spoil):
    path = tmp_path / name
    path.write_bytes(spoil(gzip.compress(truthfulqa(), mtime=0)))
    status, (said,) = run(capsys, convert, name.split(".")[0], path, tmp_path / "out")
    assert status == 1
    assert said.startswith(f"convert: {path}: the compressed file is damaged here (")


def test_a_header_that_is_no_csv_is_named(tmp_path, capsys):
    path = tmp_path / "TruthfulQA.csv"
    path.write_text('"Question"x,"Best Answer","Correct Answers","Incorrect Answers"\nq,b,c,w\n')
    status, (said,) = run(capsys, convert, "truthfulqa", path, tmp_path / "out")
    assert status == 1
    assert said.startswith(f"convert: {path} is not TruthfulQA CSV: ")


@pytest.mark.parametrize(
    ("format", "content"),
    [("hand_written", ""), ("squad", '{"data": []}'), ("webcpm", "[]"), ("textbooks", "")],
)
def test_a_file_with_nothing_is_named(tmp_path, capsys, format, content):
    path = tmp_path / "nothing.jsonl"
    path.write_text(content)
    status, said = run(capsys, convert, format, path, tmp_path / "out")
    assert status == 1
    assert said == [f"convert: {path}: found nothing that can be converted"]


def fact(n, text=None, **changes):
    evidence = [{"text": text or f"Evidence {n} says it."}]
    page = {"wikipedia_page": f"P{n}", "gold_evidence": evidence}
    return {"id": n, "label": "SUPPORTS", "text": f"claim {n}", **page, **changes}


@pytest.mark.parametrize("blank", ["\ufeff", "\u200b", "\u00ad", "\u2060 "])
def test_a_blank_passage_is_skipped_by_name(tmp_path, capsys, blank):
    path = lines(tmp_path / "f.jsonl", [fact(n, blank if n == 5 else None) for n in range(10)])
    status, said = run(capsys, convert, "fool_me_twice", path, tmp_path / "out")
    assert status == 0
    assert len(said) == 1
    assert said[0].startswith(f"{path}:6: field 'gold_evidence': is empty")
    assert count(tmp_path / "out", "rated_answers") == 9


def test_a_blank_evidence_of_a_pair_is_skipped_by_name(tmp_path, capsys):
    evidence = ["A mill was built in 1812.", "\ufeff ", "A mill was built in 1912."]
    values = [
        {"id": n, "label": "SUPPORTS", "claim": f"It is {n}", "evidence": text}
        for n, text in enumerate(evidence)
    ]
    path = lines(tmp_path / "f.jsonl", values)
    status, said = run(capsys, convert, "fever_symmetric_comparisons", path, tmp_path / "out")
    assert status == 0
    assert said[0] == f"{path}:2: field 'evidence': is empty"


def count(folder, kind):
    return sum(len(path.read_text().splitlines()) for path in folder.glob(f"{kind}_*.jsonl"))


def test_claims_without_an_id_are_numbered(tmp_path, capsys):
    path = lines(tmp_path / "f.jsonl", [fact(n, id=None) for n in range(4)])
    assert run(capsys, convert, "fool_me_twice", path, tmp_path / "out") == (0, [])
    assert count(tmp_path / "out", "questions") == 4


def demonstration(address):
    shown = [{"title": "t", "href": address, "summary": "s"}]
    actions = [
        ("PRESS_SEARCH", {"keyword": "k"}, shown),
        ("LOAD_PAGE_DETAIL", {"href": address}, "some text"),
        ("ADD_DIGEST", {"text": "text"}, None),
        ("RECORD_CLOSE", None, None),
    ]
    return {
        "question": f"q{address[-1:]!a}",
        "answer": "a",
        "digests": [{"datas": [{"desc": "text"}]}],
        "actions": [
            {"action": name, "details": details, "pageContentInViewport": viewport}
            for name, details, viewport in actions
        ],
    }


def test_an_address_that_utf_8_cannot_hold_is_skipped_by_name(tmp_path, capsys):
    path = tmp_path / "webcpm.json"
    addresses = ["http://a.b/0", "http://a.b/\ud800", "http://a.b/1"]
    path.write_text(json.dumps([demonstration(each) for each in addresses]))
    status, (said,) = run(capsys, convert, "webcpm", path, tmp_path / "out")
    assert status == 0
    assert said.startswith(f"{path}: [1]: field 'actions[0]': field 'href': ")

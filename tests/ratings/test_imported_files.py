"""Files of votes that say nothing, or say it twice, are refused by name."""

import json
import pathlib

import pytest

from tests.ratings.test_rate_command import comparison, rate, write

Says = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("imported")
    file = write(folder / "c.jsonl", comparison("c0"))
    assert rate("new", str(folder / "study"), file, "--experiment", "nq") == 0
    return str(folder / "study")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("v.csv", "", "v.csv: contains no votes"),
        ("v.csv", "item,rater,preferred\n", "v.csv: contains no votes"),
        ("v.jsonl", "\n", "v.jsonl: contains no votes"),
        (
            "v.csv",
            "item,rater,preferred,rater,preferred\nc0,ada,0,ada,1\n",
            "v.csv:1: has several columns named 'rater', 'preferred'",
        ),
        ("v.csv", "item,,rater,,preferred\nc0,,ada,,0\n", "v.csv:1: has several columns named ''"),
        ("v.csv", "item;rater;preferred\nc0;ada;0\n", "v.csv:1: has no column named 'item'"),
        ("v.csv", "Item,rater\nc0,ada\n", "named 'item'; did you mean 'Item'?"),
        (
            "v.csv",
            'item,rater,preferred,comment\n\nc0,ada,0,"open\nc0,bob,0,closed\n',
            "v.csv:3: the row that begins here can't be read: unexpected end of data",
        ),
        (
            "v.csv",
            'item,rater,preferred,comment\nc0,ada,0,"open\nc0,bob,0,"closed"\n',
            "v.csv:2: the row that begins here can't be read: ',' expected after '\"'",
        ),
        (
            "v.csv",
            "item,rater,preferred,comment\nc0,ada,0," + "a" * (1 << 18) + "\n",
            "v.csv:2: the row that begins here can't be read: field larger than",
        ),
        (
            "v.csv",
            "item,rater,preferred\nc9,ada,0\nc0,\udcff\udcfe,0\n",
            "v.csv:3: byte 4 is not UTF-8",
        ),
        ("v.csv", "item,rater,seconds,preferred\nc0,ada,-5,0\n", "'seconds': expected a number"),
    ],
)
def test_files_that_are_no_votes(
    study: str, tmp_path: pathlib.Path, capsys: Says, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert rate("import", study, "nq", str(tmp_path / name)) == 1
    assert said in capsys.readouterr().err
    assert rate("status", study) == 0
    assert "0 votes" in capsys.readouterr().out


def test_a_cell_may_have_several_lines(study: str, tmp_path: pathlib.Path, capsys: Says) -> None:
    file = tmp_path / "v.csv"
    text = '\ufeffitem,rater,preferred,comment\r\nc0,ada,0,"one ""two""\r\nthree"\r\nc0,bob,7,\r\n'
    file.write_bytes(text.encode())
    assert rate("import", study, "nq", str(file)) == 1
    said = capsys.readouterr()
    assert "1 vote added" in said.out
    assert "v.csv:4: field 'preferred'" in said.err
    assert rate("export", study, "nq", "votes", str(tmp_path / "o.jsonl"), "--comments") == 0
    (vote,) = map(json.loads, (tmp_path / "o.jsonl").read_text().splitlines())
    assert vote["comment"] == 'one "two"\nthree'

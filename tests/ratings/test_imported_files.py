"""Files of votes that say nothing, or say it twice, are refused by name."""

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
    ],
)
def test_files_that_are_no_votes(
    study: str, tmp_path: pathlib.Path, capsys: Says, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    assert rate("import", study, "nq", str(tmp_path / name)) == 1
    assert said in capsys.readouterr().err
    assert rate("status", study) == 0
    assert "0 votes" in capsys.readouterr().out

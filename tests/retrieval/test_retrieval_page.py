"""The example on the page about retrieval runs."""

import pathlib
import re

import pytest
from pages import HTML

from gophercite import cli

PAGE = pathlib.Path(__file__).parents[2] / "docs/retrieval.md"


def test_the_first_example(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("notes").mkdir()
    pathlib.Path("notes/ormsby.html").write_text(HTML)
    assert cli.main(["index", "notes", "--out", "corpus.db"]) == 0
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    capsys.readouterr()
    exec(code[0], {})
    assert "The lighthouse was built in 1874" in capsys.readouterr().out

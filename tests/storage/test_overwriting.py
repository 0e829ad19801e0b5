"""Outputs that are read."""

import pathlib
from collections.abc import Callable

import pytest

from data_pipelines import browsed_pairs, search
from data_pipelines.demonstrators import __main__ as demonstrators
from gophercite import cli
from gophercite.storage.overwriting import refuse_overwriting


def test_what_is_read_is_not_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "in.jsonl").touch()
    (tmp_path / "link.jsonl").symlink_to("in.jsonl")
    read = [str(tmp_path / "in.jsonl"), None, tmp_path / "model", "gs://b/q.jsonl"]
    monkeypatch.chdir(tmp_path)
    for out in ("out.jsonl", "in.jsonl.gz", "model2/x", "gs://b/q.json", "gs://c/q.jsonl"):
        refuse_overwriting([out], read)
    for out in ("in.jsonl", "./x/../in.jsonl", "link.jsonl", "model/x/y", "gs://b/q.jsonl"):
        with pytest.raises(ValueError, match=f"^{out} would overwrite .* which is an input"):
            refuse_overwriting(["other", out], read)


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (search.main, ["questions", "FILE", "FILE", "--index", "none.db"]),
        (browsed_pairs.main, ["none", "--out", "FILE", "--demonstrations", "other", "FILE"]),
        (browsed_pairs.main, ["FILE", "--out", "FILE", "--reference-answers", "none"]),
        (demonstrators.main, ["none", "FILE", "FILE"]),
        (cli.main, ["calibrate", "FILE", "--out", "FILE"]),
    ],
)
def test_commands_refuse_it_before_they_read(
    main: Callable[[list[str]], int],
    arguments: list[str],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (file := tmp_path / "file.jsonl").write_text("kept")
    assert main([str(file) if each == "FILE" else each for each in arguments]) == 1
    assert f"{file} would overwrite {file}, which is an input" in capsys.readouterr().err
    assert file.read_text() == "kept"


def test_a_link_to_itself_is_no_input(tmp_path: pathlib.Path) -> None:
    """Whoever opens it says what is wrong with it."""
    (tmp_path / "loop").symlink_to("loop")
    refuse_overwriting([tmp_path / "loop", tmp_path / "out"], [tmp_path / "in"])
    refuse_overwriting([tmp_path / "out"], [tmp_path / "loop"])
    with pytest.raises(ValueError, match="loop would overwrite"):
        refuse_overwriting([tmp_path / "loop"], [tmp_path / "loop"])

"""Outputs that are read."""

import pathlib

import pytest

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
        with pytest.raises(ValueError, match=f"^{out}: is read .* write elsewhere"):
            refuse_overwriting(["other", out], read)

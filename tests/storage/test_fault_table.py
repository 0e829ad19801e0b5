"""The benchmark of a bucket that fails, in small: its long form makes the table of the docs."""

import types

import pytest

from benchmarks import bucket_faults
from benchmarks.bucket_faults import Bench, Count


def test_nothing_is_lost_or_doubled_and_it_would_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def at_once(seconds: float) -> None:
        pass

    def grow_too_often(bench: Bench, count: Count) -> None:
        Bench.grow(bench, count)
        bench.number -= 1  # the same file: it has its lines already
        Bench.grow(bench, count)

    def read_less(bench: Bench, count: Count) -> None:
        lines = bench.storage.read("lines.jsonl").splitlines(keepends=True)
        bench.storage.write("lines.jsonl", b"".join(lines[:-1]))
        Bench.lines(bench, count)

    monkeypatch.setenv("GOPHERCITE_SEED", "3")
    monkeypatch.setattr("gcsfs.retry.asyncio", types.SimpleNamespace(sleep=at_once))
    faults = ["--rates", "0.2", "--kinds", "503,lost"]
    assert bucket_faults.main([*faults, "--only", "write,grow,steps,lines"]) == 0
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines()[2:-1]]
    assert len(rows) == 12
    assert all(row[5] == "0" for row in rows if row[1] == "none")
    assert sum(int(row[5]) for row in rows) > 10  # retries

    monkeypatch.setitem(bucket_faults.OPERATIONS, "grow", grow_too_often)
    monkeypatch.setitem(bucket_faults.OPERATIONS, "lines", read_less)
    assert bucket_faults.main(["--kinds", "slow", "--rates", "0.01", "--only", "grow,lines"]) == 1
    rows = [row.split(" | ") for row in capsys.readouterr().out.splitlines()[2:-1]]
    assert [row[0].lstrip("| ") for row in rows if row[7:9] != ["0", "0"]] == ["grow"] * 2 + [
        "lines"
    ] * 2

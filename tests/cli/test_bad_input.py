"""Commands attacked with bad input: an exit status, a line on stderr, never a traceback."""

import io
import json
import os
import pathlib
import subprocess
import sys

import pytest

from gophercite import cli
from gophercite.records.answers import Answer, answer_to_json

ROOT = pathlib.Path(__file__).parents[2]
NOTES = ROOT / "examples" / "notes"
TOWNS = ROOT / "examples" / "towns"
MODEL = ROOT / "data_pipelines" / "sample_world" / "model"

Capture = pytest.CaptureFixture[str]

ARCHITECTURE = {
    "vocab_size": 10, "d_model": 4, "num_layers": 1, "num_heads": 1, "head_dim": 4,
    "position": "rope",
}  # fmt: skip
CITATION = {"claim": "c", "title": "t", "quote": "qqqq", "document": "d", "sha256": "x"}
QUESTION = {"id": "a", "question": "q?", "source": "s", "documents": []}


def answer(*citations: object) -> str:
    return json.dumps({"question": "q", "model": "m", "declined": False, "answer": citations})


FILES: dict[str, str | bytes] = {
    "random.bin": bytes(range(256)) * 9,
    "empty.json": "",
    "empty.jsonl": "",
    "blank.jsonl": "\n \n",
    "number.json": "7",
    "deep.json": "[" * 100_000,
    "damaged.jsonl.gz": b"\x1f\x8b\x08\x00garbage",
    "twice.jsonl": f"{json.dumps(QUESTION)}\n\n{json.dumps(QUESTION)}\n",
    "folder/x.txt": "hello",
    "answer_of_number.json": answer(7),
    "answer_of_text.json": answer({**CITATION, "start": "0", "end": 4}),
    "declined.json": json.dumps(
        answer_to_json(Answer("q", "m", reason="there is no page"))
    ),
    "answer_nowhere.json": answer({**CITATION, "start": 10**30, "end": 10**30 + 4}),
    "no_json/model.json": "{",
    "no_text/model.json": b"\xff",
    "no_format/model.json": "[]",
    "no_architecture/model.json": '{"format": 1, "architecture": []}',
    "no_numbers/model.json": '{"format": 1, "architecture": {"vocab_size": "x"}}',
    "no_tensors/model.json": json.dumps(
        {"format": 1, "architecture": ARCHITECTURE, "parameters": {"a": []}}
    ),
    "no_checkpoint/model.json": json.dumps({"format": 1, "architecture": ARCHITECTURE}),
    "no_config/config.json": "",
    "no_family/config.json": '{"model_type": 7}',
    "no_sizes/config.json": '{"model_type": "llama", "hidden_size": "x"}',
    "marked.jsonl": json.dumps(
        {"question_id": "q", "question": "q?", "claim": "a ]% b", "title": "t", "quote": "x",
         "documents": [{"id": "d", "title": "t", "text": "x"}], "document": "d", "plausible": True,
         "supported": True, "model": "m"}
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("bad")
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


ASK = ["ask", "bees?", "--documents", str(NOTES)]
ASK_MODEL = ["ask", "bees?", "--documents", str(TOWNS), "--model", str(MODEL)]
BASELINE = [*ASK, "--extractive"]
OUT = ["--out", "{bad}/out.json"]

# What is typed, where {bad} is the folder of the files above, and what is said to it.
REFUSED: list[tuple[list[str], str]] = [
    (["ask", "bees?", "--documents", "nowhere", "--extractive"], "nowhere: there is no such file"),
    (["ask", "bees?", "--documents", "", "--extractive"], "documents: the name is empty"),
    (["ask", "bees?", "--documents", "a\0b", "--extractive"], "can't contain a null"),
    (["ask", "bees?", "--index", "{bad}/random.bin", "--extractive"], "is not an index"),
    (["ask", "bees?", "--index", "{bad}/folder", "--extractive"], "there is no such index"),
    (["ask", "bees?", "--index", "", "--extractive"], "index: the name is empty"),
    (["ask", " site:x ", "--documents", str(NOTES), "--extractive"], "there is no question"),
    ([*BASELINE, "--highlight", "/nowhere/x.html"], "/nowhere/x.html: no such file"),
    ([*BASELINE, "--highlight", "{bad}/folder"], "folder: is a directory"),
    ([*BASELINE, "--highlight", "{bad}/folder/x.txt/y.html"], "y.html: not a directory"),
    # Before the model is read.
    ([*ASK, "--model", "nowhere", "--highlight", "/nowhere/x.html"], "/nowhere/x.html: no such"),
    (["verify", "{bad}/declined.json", "--highlight", "/nowhere/x.html"], "/nowhere/x.html: no su"),
    ([*ASK_MODEL, "--max-tokens", "3"], "--max-tokens 3 is too few: the shortest answer"),
    ([*ASK_MODEL, "--prompt-tokens", "3"], "--prompt-tokens 3 is too few: question and titles"),
    ([*ASK_MODEL, "--top", "2", "--min-quality", ".5", "--calibration", "x"], "--top and"),
    ([*ASK_MODEL, "--min-quality", ".5", "--calibration", "{bad}/number.json"], "number.json: "),
    ([*ASK_MODEL, "--min-quality", ".5", "--calibration", "nowhere"], "nowhere: no such file"),
    ([*ASK_MODEL, "--reward-model", str(MODEL)], "is not a reward model"),
    ([*ASK, "--model", str(MODEL)], "very different from the text that the model was trained on"),
    *(
        ([*ASK, "--model", f"{{bad}}/{name}"], f"{name}")
        for name in ("random.bin", "folder", *(f.split("/")[0] for f in FILES if "model.js" in f))
    ),
    *(
        (["verify", f"{{bad}}/{name}", "--documents", str(NOTES)], f"{name}: ")
        for name in ("empty.json", "number.json", "deep.json", "random.bin", "folder",
                     "answer_of_number.json", "answer_of_text.json")
    ),
    *((["info", f"{{bad}}/{name}"], name) for name in ("folder", "no_json", "no_numbers")),
    *(
        (["validate", f"{{bad}}/{name}", "--kind", "questions"], f"{name}: holds no records")
        for name in ("empty.jsonl", "blank.jsonl")
    ),
    (["validate", "{bad}/damaged.jsonl.gz", "--kind", "questions"], "damaged here"),
    (["validate", "{bad}/folder", "--kind", "questions"], "folder: is a directory"),
    (["calibrate", "{bad}/empty.jsonl", *OUT], "empty.jsonl: no answer has a label"),
    (["calibrate", "{bad}/number.json", *OUT], "number.json:1: expected an object"),
    (["calibrate", "nowhere", *OUT], "nowhere: no such file"),
    (["index", "nowhere", "--out", "{bad}/new.db"], "nowhere: there is no such file"),
    (["index", str(NOTES), "--out", "/nowhere/i.db"], "unable to open"),
    (["index", str(NOTES), "--out", "{bad}/random.bin"], "is not an index"),
    (["search", "site:x", "--documents", str(NOTES)], "the query has no words to search for"),
    (["search", "bees", "--index", "nowhere.db"], "there is no such index"),
    *(
        (["import-weights", f"{{bad}}/{name}", "{bad}/out"], name)
        for name in ("nowhere", "random.bin", "no_config", "no_family", "no_sizes")
    ),
    (["import-weights", str(MODEL), "{bad}/out"], "model"),
    (["import-weights", "gs://b/x", "{bad}/out"], "gs://b/x: checkpoints are read from a disk"),
    (["renew", "gs://b/m"], "gs://b/m: only folders on a disk are renewed"),
    (["export-weights", "{bad}/no_json", "{bad}/out"], "no_json"),
    (["export-weights", str(MODEL), "{bad}/folder"], "folder"),
    (["export-weights", str(MODEL), "gs://b/x"], "gs://b/x: must be on a disk"),
    (["search", "bees", "--engine", "searxng", "--search-cache", "gs://b/x"],
     "--search-cache gs://b/x: must be on a disk"),
    (["rate", "new", "gs://b/x", "{bad}/empty.jsonl"], "gs://b/x: must be on a disk"),
    (["rate", "backup", "nowhere", "gs://b/x"], "gs://b/x: must be on a disk"),
    (["rate", "export", "nowhere", "nq", "dpo", "gs://b/x"], "gs://b/x: must be on a disk"),
    (["rate", "view", "gs://b/x", "{bad}/empty.jsonl"], "gs://b/x: must be on a disk"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "said"), REFUSED, ids=lambda x: " ".join(x)[-60:])
def test_what_can_not_be_done_is_said_in_one_line(
    bad: pathlib.Path, capsys: Capture, typed: list[str], said: str
) -> None:
    assert cli.main([word.replace("{bad}", str(bad)) for word in typed]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"gophercite {typed[0]}: ")
    assert said in line
    for raw in ("Errno", "Traceback", "has no attribute", "NoneType"):
        assert raw not in line


@pytest.mark.parametrize(
    "typed",
    [
        *([*BASELINE, "--pages", value] for value in ("0", "x", "9" * 30)),
        [*BASELINE, "--top", "0"],
        *(
            [*ASK_MODEL, flag, value]
            for flag in ("--max-tokens", "--prompt-tokens", "--samples")
            for value in ("-1", "9" * 30)
        ),
        *([*ASK_MODEL, flag, "-1"] for flag in ("--few-shot", "--omissions", "--claims")),
        *([*who, "--few-shot", "6"] for who in (ASK_MODEL, BASELINE)),
        *([*ASK_MODEL, "--temperature", value] for value in ("nan", "inf", "-1")),
        [*BASELINE, "--temperature", "-1"],
        ["search", "x"],
        ["search", "x", "--documents", "a", "--index", "b"],
        ["validate", "x", "--kind", "poems"],
    ],
    ids=lambda words: " ".join(words)[-40:],
)
def test_wrong_usage_names_the_flag(capsys: Capture, typed: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(typed)
    assert raised.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"gophercite {typed[0]}: error: ")
    assert typed[-2] in last or "one of the arguments" in last or "not allowed with" in last


@pytest.mark.parametrize(
    ("file", "kind", "said"),
    [
        ("twice.jsonl", "questions", "twice.jsonl:3: field 'id': 'a' is already the id of line 1"),
        ("marked.jsonl", "rated-answers", "'claim': holds the reserved mark ']%' at character 2"),
        ("random.bin", "documents", "random.bin:9: byte"),
    ],
)
def test_bad_lines_are_named(
    bad: pathlib.Path, capsys: Capture, file: str, kind: str, said: str
) -> None:
    assert cli.main(["validate", str(bad / file), "--kind", kind]) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("who", [["--extractive"], ["--model", str(MODEL)]], ids=lambda w: w[0])
def test_which_mark_keeps_a_page_from_being_quoted(
    tmp_path: pathlib.Path, capsys: Capture, who: list[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A %< title\n\nAldanor was founded in 1285. The town has a castle.")
    assert cli.main(["ask", "When was Aldanor founded?", "--documents", str(page), *who]) == 0
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "its title holds the reserved mark '%<' at character 2" in " ".join(text.split())


# --- terminals and pipes, as processes ---


def gophercite(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "gophercite", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_a_terminal_that_has_ascii_alone(tmp_path: pathlib.Path, flags: list[str]) -> None:
    (tmp_path / "page.txt").write_text("Das Haus gehört Frau Müller – seit 1874.", "utf-8")
    typed = ("ask", "Haus?", "--documents", str(tmp_path), "--extractive", *flags)
    done = gophercite(*typed, PYTHONIOENCODING="ascii", LANG="C", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode("ascii")
    if flags:
        assert json.loads(said)["answer"][0]["quote"].startswith("Das Haus gehört Frau Müller –")
    else:
        assert "Das Haus geh\\xf6rt" in said


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_is_no_error(tmp_path: pathlib.Path, unbuffered: str) -> None:
    (tmp_path / "page.txt").write_text("The bees of Ormsby. " + "They dance all day long. " * 30)
    command = [sys.executable, "-m", "gophercite", "search", "bees", "--documents", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None
    process.stdout.close()  # before anything is written
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (141, b"")


def test_a_closed_stderr_changes_nothing() -> None:
    """Not even where stdin is closed, too; what would be said on it goes nowhere."""
    for folder, status, begins in ((NOTES, 0, b"1. "), (NOTES / "none", 1, b"")):
        command = [sys.executable, "-m", "gophercite", "search", "bees", "--documents", str(folder)]
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout[:3]) == (status, begins)


def test_a_closed_stdout_is_said() -> None:
    command = [sys.executable, "-m", "gophercite", "search", "bees", "--documents", str(NOTES)]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "gophercite: stdout is closed, so the result can't be printed; to discard it, use "
        ">/dev/null\n",
    )


def test_streams_that_are_no_files_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a notebook's."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(["search", "lighthouse", "--documents", str(NOTES)]) == 0
    assert stream.getvalue().startswith("1. Ormsby lighthouse\n   ")

"""`gophercite ask` and `gophercite verify`: what people and programs see of an answer."""

import dataclasses
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import pytest
from pages import HTML, pdf, words_at
from retrieval.servers import Server, answer, serving

from gophercite import cli
from gophercite.cli import processes
from gophercite.cli.answer_text import AnswerText
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.records.answers import Answer, answer_from_json, answer_to_json, cite, page_numbers
from tests.long_forms import LONG

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model"
TEXT = "Ormsby is a fishing town. Its lighthouse was built by Ada Fenwick in 1874. It rains.\n"
QUOTE = "Its lighthouse was built by Ada Fenwick in 1874."
QUESTION = "Who built the lighthouse?"
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\x08"

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def notes(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "Ormsby.txt").write_text(TEXT)
    (folder / "Bees.md").write_text("# On bees\n\nBees dance.\n")
    return folder


def ask(capsys: Capture, *arguments: object) -> tuple[Answer, dict[str, Any]]:
    """What a question without a model is answered, as an answer and as JSON."""
    assert cli.main(["ask", *map(str, arguments), "--extractive", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    found = answer_from_json(value)
    assert answer_to_json(found) == value
    return found, value


def verify(capsys: Capture, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    status = cli.main(["verify", *map(str, arguments), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["verified"] == (status == 0)
    return status, result["checks"]


# --- ask ---


def test_the_answer_for_programs(notes: pathlib.Path, capsys: Capture) -> None:
    found, value = ask(capsys, QUESTION, "--documents", notes)
    (citation,) = found.citations
    assert (citation.claim, citation.quote, citation.title) == (QUOTE, QUOTE, "Ormsby")
    assert citation.url == (notes / "Ormsby.txt").as_uri()
    assert TEXT[citation.start : citation.end] == QUOTE
    assert citation.sha256 == Document("", "", TEXT).sha256
    assert value["baseline"] is True
    assert value["answer"][0]["status"] == "exact"


def test_the_answer_for_people(notes: pathlib.Path, capsys: Capture) -> None:
    assert cli.main(["ask", QUESTION, "--documents", str(notes), "--extractive"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [QUOTE, "", "  ╭ Ormsby", f"  │ {QUOTE}"]
    assert lines[4] == f"  ╰ {(notes / 'Ormsby.txt').as_uri()}"
    assert lines[5].startswith("    characters 26–74 · retrieved 20")
    assert "(a baseline, no model)" in " ".join(lines)


def test_the_answer_for_a_browser(
    notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    """Of the answer when it is given, and of the pages as they are when it is checked."""
    page, saved = tmp_path / "answer.html", tmp_path / "answer.json"
    _, value = ask(capsys, QUESTION, "--documents", notes, "--highlight", page)
    assert f"fishing town. <mark>{QUOTE}</mark> It rains." in page.read_text("utf-8")
    saved.write_text(json.dumps(value))
    (notes / "Ormsby.txt").write_text(TEXT.replace("1874", "1901"))
    status, _ = verify(capsys, saved, "--documents", notes, "--highlight", page)
    assert status == 1
    marked = page.read_text("utf-8")
    assert 'built by Ada Fenwick in <mark class="near">1901.</mark> It rains.' in marked
    assert marked.count("<mark") == 1


def test_the_page_for_a_browser_is_not_written_where_documents_are_read(
    notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    """It would replace one, or be quoted by the next answer."""
    saved, page = tmp_path / "answer.json", notes / "Ormsby.txt"
    _, value = ask(capsys, QUESTION, "--documents", notes)
    saved.write_text(json.dumps(value))
    question = ["ask", QUESTION, "--extractive"]
    for command, output, said in (
        ([*question, "--documents", page], page, f"{page} would overwrite {page}"),
        ([*question, "--documents", notes], notes / "a.html", f"a.html would overwrite {notes}"),
        (["verify", saved, "--documents", notes], saved, f"{saved} would overwrite {saved}"),
        (["verify", saved, "--documents", notes], page, f"{page} would overwrite {notes}"),
    ):
        before = output.read_bytes() if output.exists() else None
        assert cli.main([*map(str, command), "--highlight", str(output)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert f"{said}, which is an input" in captured.err
        assert f"gophercite {command[0]}: --highlight " in captured.err
        assert before == (output.read_bytes() if output.exists() else None)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_the_answer_is_shown_even_if_its_page_can_not_be_written(
    notes: pathlib.Path, capsys: Capture, flags: list[str]
) -> None:
    command = ["ask", QUESTION, "--documents", str(notes), "--extractive", *flags]
    assert cli.main([*command, "--highlight", "/dev/full"]) == 1
    captured = capsys.readouterr()
    assert QUOTE in captured.out
    assert captured.err == "gophercite ask: /dev/full: no space left on device\n"


def test_an_index_answers_like_its_documents(
    notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    assert cli.main(["index", str(notes), "--out", str(tmp_path / "corpus.db")]) == 0
    capsys.readouterr()
    indexed, _ = ask(capsys, QUESTION, "--index", tmp_path / "corpus.db")
    assert indexed == ask(capsys, QUESTION, "--documents", notes)[0]


def test_what_can_not_be_read_is_named(notes: pathlib.Path, capsys: Capture) -> None:
    (notes / "empty.txt").write_text("")
    (notes / "broken\x1b[31m.pdf").write_bytes(b"%PDF-1.4 no more")
    assert cli.main(["ask", QUESTION, "--documents", str(notes), "--extractive"]) == 0
    captured = capsys.readouterr()
    assert QUOTE in captured.out
    assert "left out: " in captured.err
    assert "empty.txt: is empty" in captured.err
    assert "broken\\u001b[31m.pdf: can't be read as a PDF" in captured.err
    found, _ = ask(capsys, QUESTION, "--documents", notes)
    assert [page.reason for page in found.left_out] == [
        "can't be read as a PDF: PDFSyntaxError",
        "is empty",
    ]


def test_the_pages_of_a_pdf(tmp_path: pathlib.Path, capsys: Capture) -> None:
    """In the text, in the JSON, in the highlighted page, and when it is verified."""
    page, saved, report = tmp_path / "a.html", tmp_path / "a.json", tmp_path / "report.pdf"
    report.write_bytes(pdf(words_at("Of bees and how they dance."), words_at(QUOTE)))
    found, value = ask(capsys, QUESTION, "--documents", report, "--highlight", page)
    assert found.citations[0].pages == (2,)
    assert value["answer"][0]["pages"] == [2]
    assert "exact: page 2, characters" in page.read_text("utf-8")
    assert cli.main(["ask", QUESTION, "--documents", str(report), "--extractive"]) == 0
    assert "    page 2 · characters " in capsys.readouterr().out
    saved.write_text(json.dumps(value))
    _, (check,) = verify(capsys, saved, "--documents", report)
    assert check["pages"] == [2]
    assert cli.main(["verify", str(saved), "--documents", str(report)]) == 0
    assert "page 2" not in capsys.readouterr().out
    value["answer"][0]["pages"] = [1]  # which somebody else wrote
    saved.write_text(json.dumps(value))
    assert cli.main(["verify", str(saved), "--documents", str(report)]) == 0
    assert "it is on page 2, not on page 1" in capsys.readouterr().out


def test_a_quote_over_several_pages_of_a_pdf() -> None:
    document = Document("o", "Ormsby", TEXT, page_starts=(0, 30, 40))
    (citation,) = (cite(Evidence("Ada", "Ormsby", QUOTE), document, 26),)
    assert citation.pages == (1, 2, 3)
    shown = AnswerText(io.StringIO()).citation(citation)
    assert any("pages 1–3 · characters 26–74" in line for line in shown)
    assert page_numbers((3,)) == "page 3"
    assert page_numbers((1, 2, 3, 7)) == "pages 1–3, 7"


def test_what_the_pages_say_nothing_of_is_declined(notes: pathlib.Path, capsys: Capture) -> None:
    question = "Which singer built an opera house for the emperor in Vienna?"
    found, _ = ask(capsys, question, "--documents", notes)
    assert found.declined
    assert "too little about the question" in str(found.reason)
    found, _ = ask(capsys, question, "--documents", notes, "--min-relevance", 0)
    assert not found.declined
    assert cli.main(["ask", question, "--documents", str(notes), "--model", "m",
                     "--min-relevance", "0.5"]) == 1  # fmt: skip
    assert "--min-relevance is only for --extractive" in capsys.readouterr().err


def test_without_an_answer_it_declines(notes: pathlib.Path, capsys: Capture) -> None:
    found, _ = ask(capsys, "xyzzy?", "--documents", notes, "--pages", 1)
    assert found.reason == "no page was found for the question"
    assert cli.main(["ask", "xyzzy?", "--documents", str(notes), "--extractive"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("No answer: none of the 2 pages that were found can be quoted")
    assert captured.err.count("left out: file://") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([QUESTION, "--documents", "{notes}"], "or --extractive"),
        ([" ", "--documents", "{notes}", "--extractive"], "there is no question"),
        ([QUESTION, "--documents", "nowhere", "--extractive"], "nowhere"),
        ([QUESTION, "--index", "nowhere.db", "--extractive"], "there is no such index"),
        ([QUESTION, "--documents", "{notes}", "--model", "{notes}"], "not a model folder"),
        (
            [QUESTION, "--documents", "{notes}", "--model", "{notes}", "--model-parallel", "9"],
            "needs 9 devices, and there are 8",
        ),
        ([QUESTION, "--engine", "brave", "--extractive"], "BRAVE_API_KEY is not set"),
        (
            [QUESTION, "--documents", "{notes}", "--extractive", "--min-quality", "0.9"],
            "--min-quality needs --model",
        ),
        (
            [QUESTION, "--documents", "{notes}", "--extractive", "--reward-model", "runs/rm"],
            "--reward-model needs --model",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    notes: pathlib.Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    assert cli.main(["ask", *(a.replace("{notes}", str(notes)) for a in arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gophercite ask: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--samples", "0"),
        ("--max-num-seqs", "0"),
        ("--pages", "x"),
        ("--omissions", "-1"),
        ("--boundaries", "word"),
        ("--allow-network", "nonsense"),
        ("--seed", "-1"),
        ("--min-quality", "90"),
    ],
)
def test_wrong_values_name_their_flag(
    notes: pathlib.Path, capsys: Capture, flag: str, value: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["ask", QUESTION, "--documents", str(notes), "--extractive", flag, value])
    assert raised.value.code == 2
    assert f"argument {flag}: " in capsys.readouterr().err


def test_hostile_documents_do_not_reach_the_terminal(
    tmp_path: pathlib.Path, capsys: Capture
) -> None:
    page = f'# {ESCAPES} Title\n\nThe lighthouse was {ESCAPES} built by "Ada"\tin\xa01874.'
    (tmp_path / "hostile.md").write_text(page, "utf-8")
    (tmp_path / "marks.md").write_text("# ]% %<\n\nThe lighthouse ]% was built %<by>%( marks.")
    found, value = ask(capsys, QUESTION, "--documents", tmp_path)
    assert ESCAPES in found.citations[0].quote
    for arguments in (["--extractive"], ["--extractive", "--json"]):
        assert cli.main(["ask", QUESTION, "--documents", str(tmp_path), *arguments]) == 0
        printed = capsys.readouterr()
        for text in (printed.out, printed.err):
            assert all(c.isprintable() or c == "\n" for c in text)
    (tmp_path / "answer.json").write_text(json.dumps(value))
    assert cli.main(["verify", str(tmp_path / "answer.json"), "--documents", str(tmp_path)]) == 0
    assert all(c.isprintable() or c == "\n" for c in capsys.readouterr().out)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Document("o", "Ormsby", TEXT)
    triple = Evidence(f"By Ada{ESCAPES}.", "Ormsby", QUOTE)
    found = Answer(QUESTION, "tiny", citations=(cite(triple, page, TEXT.index(QUOTE)),))
    for name, value in (("NO_COLOR", ""), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    coloured = AnswerText(Terminal()).answer(found)
    assert "\x1b[1mBy Ada\\u001b[2J" in coloured
    plain = AnswerText(io.StringIO()).answer(found)
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert AnswerText(Terminal()).answer(found) == plain
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert AnswerText(Terminal()).answer(found) == plain


def test_long_texts_keep_to_their_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    page = Document("o", "Ormsby " * 12, "Lines\n" + "of many words " * 20 + "x" * 60)
    triple = Evidence("A claim. " * 9, page.title, page.text)
    lines = AnswerText(io.StringIO()).citation(cite(triple, page, 0))
    box = [line for line in lines if line.startswith("  │ ")]
    assert len(box) > 8
    assert "  │ Lines" in box
    assert f"  │ {'x' * 60}" in box
    assert all(len(line) <= 40 for line in lines if "x" * 60 not in line)


# --- verify ---


def test_the_four_verdicts_of_files(
    notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    _, value = ask(capsys, QUESTION, "--documents", notes)
    path, page = tmp_path / "answer.json", notes / "Ormsby.txt"
    path.write_text(json.dumps(value))

    def verdict() -> tuple[int, str, int | None]:
        status, (check,) = verify(capsys, path, "--documents", notes)
        return status, check["verdict"], check["start"]

    assert verdict() == (0, "exact", 26)
    page.write_text(TEXT + "More.\n")
    assert verdict() == (0, "exact", 26)
    page.write_text("News. " + TEXT)
    assert verdict() == (0, "moved", 32)
    page.write_text(TEXT.replace("1874", "1875"))
    assert verdict() == (1, "changed", 26)
    page.write_text("Only bees are left, and how they dance.")
    assert verdict() == (1, "missing", None)
    page.unlink()
    assert verdict() == (1, "missing", None)


def test_a_page_is_known_wherever_it_lies_now(
    notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    """Who has a copy under another name has the page; who has another page, the quote at most."""
    _, value = ask(capsys, QUESTION, "--documents", notes)
    path, copy = tmp_path / "answer.json", tmp_path / "elsewhere/copy.md"
    path.write_text(json.dumps(value))
    copy.parent.mkdir()
    (notes / "Ormsby.txt").rename(copy)
    status, (check,) = verify(capsys, path, "--documents", copy.parent)
    assert (status, check["verdict"], check["matched_by"]) == (0, "exact", "sha256")
    assert check["found_in"] == copy.as_uri()
    assert cli.main(["verify", str(path), "--documents", str(copy.parent)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"the same text, by its SHA-256, is that of: {copy.as_uri()}" in said
    index = str(tmp_path / "corpus.db")
    assert cli.main(["index", str(copy.parent), "--out", index]) == 0
    capsys.readouterr()
    assert verify(capsys, path, "--index", index)[1][0]["matched_by"] == "sha256"
    copy.write_text("He said: " + TEXT)
    status, (check,) = verify(capsys, path, "--documents", copy.parent)
    assert (status, check["verdict"], check["matched_by"]) == (0, "moved", "quote")
    assert cli.main(["verify", str(path), "--documents", str(copy.parent)]) == 0
    assert "it is in another page: characters 35–83" in capsys.readouterr().out
    status, (check,) = verify(capsys, path, "--documents", notes)
    assert (status, check["verdict"], check["matched_by"]) == (1, "missing", None)


def test_verdicts_for_people(notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture) -> None:
    _, value = ask(capsys, QUESTION, "--documents", notes)
    index, path = str(tmp_path / "corpus.db"), tmp_path / "answer.json"
    path.write_text(json.dumps(value))
    (notes / "Ormsby.txt").write_text(TEXT.replace("1874", "1875"))
    assert cli.main(["index", str(notes), "--out", index]) == 0
    capsys.readouterr()
    assert cli.main(["verify", str(path), "--index", index]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"changed  {QUOTE}"
    assert lines[1].strip() == (notes / "Ormsby.txt").as_uri()
    assert "the page has different words: " in lines[2]
    assert lines[-1] == "1 changed"


def test_a_quote_that_leaves_words_out(
    notes: pathlib.Path, tmp_path: pathlib.Path, capsys: Capture
) -> None:
    page = Document((notes / "Ormsby.txt").as_uri(), "Ormsby", TEXT)
    runs = ("Its lighthouse was built", "in 1874")
    triple = Evidence("1874", "Ormsby", " [...] ".join(runs))
    found = Answer("When?", "tiny", citations=(cite(triple, page, 26, 66),))
    printed = AnswerText(io.StringIO()).answer(found)
    assert "  │ Its lighthouse was built [...] in 1874\n" in printed
    assert "characters 26–50, 66–73 · SHA-256" in printed

    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer_to_json(found)))
    status, checks = verify(capsys, path, "--documents", notes)
    assert [(each["verdict"], each["quote"], each["start"]) for each in checks] == [
        ("exact", runs[0], 26),
        ("exact", runs[1], 66),
    ]
    assert status == 0
    (notes / "Ormsby.txt").write_text(TEXT.replace(" was", "").replace("in 1874", "once"))
    assert cli.main(["verify", str(path), "--documents", str(notes)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "changed  Its lighthouse was built"
    assert lines[-1] == "1 changed, 1 missing"


def test_a_declined_answer_verifies(tmp_path: pathlib.Path, capsys: Capture) -> None:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer_to_json(Answer("Why?", "tiny", reason="no page"))))
    assert cli.main(["verify", str(path)]) == 0
    assert "nothing to check" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"answer": 7}'])
def test_what_is_no_answer_is_refused(
    tmp_path: pathlib.Path, capsys: Capture, content: str
) -> None:
    path = tmp_path / "answer.json"
    path.write_text(content)
    assert cli.main(["verify", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"gophercite verify: {path}: ")


# --- the web ---


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as server:
        hit = {"url": f"{server.base}/page", "title": "T", "content": "The lighthouse was built"}
        server.answers["/search"] = answer(json.dumps({"results": [hit]}))
        server.answers["/page"] = answer(HTML, type="text/html")
        monkeypatch.setenv("SEARXNG_URL", server.base)
        yield server


def test_pages_of_the_web(server: Server, tmp_path: pathlib.Path, capsys: Capture) -> None:
    here = ("--allow-network", "127.0.0.1/32")
    found, value = ask(capsys, QUESTION, "--engine", "searxng", *here)
    (citation,) = found.citations
    assert "lighthouse was built in 1874 by Anna Vell" in citation.quote
    assert citation.url == f"{server.base}/page"
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(value))
    assert verify(capsys, path, *here)[0] == 0
    server.answers["/page"] = answer(HTML.replace("1874", "1875"), type="text/html")
    status, (check,) = verify(capsys, path, *here)
    assert (status, check["verdict"]) == (1, "changed")
    assert "1875" in check["found"]
    server.answers["/page"] = answer(status=404)
    status, (check,) = verify(capsys, path, *here)
    assert (check["verdict"], check["detail"]) == ("missing", "the server answers with status 404")
    # And what is not public is not fetched unless it is allowed.
    status, (check,) = verify(capsys, path)
    assert "is not a public address" in check["detail"]


def test_an_engine_that_fails_is_an_error(server: Server, capsys: Capture) -> None:
    server.answers["/search"] = answer("<html>", status=403)
    assert cli.main(["ask", QUESTION, "--engine", "searxng", "--extractive"]) == 1
    assert "settings.yml must list json" in capsys.readouterr().err


# --- a model ---


@pytest.fixture
def compiled(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder where compiled programs are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gophercite" / "compiled"


def in_two_processes(*command: str) -> list[tuple[int, str, str]]:
    """The exit status of each, what it shows and what it says."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    place = [f"--coordinator-address=localhost:{port}", "--num-processes=2"]
    pair = [
        subprocess.Popen(
            [sys.executable, "-m", "gophercite", *command, *place, f"--process-id={number}"],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    said = [process.communicate(timeout=300) for process in pair]
    return [(process.returncode, *each) for process, each in zip(pair, said, strict=True)]


@LONG  # the flags and who shows what: the next test; sampling by two processes: launch/test_eval.py
def test_two_processes_with_halves_of_a_model_answer_what_one_does(
    notes: pathlib.Path, compiled: pathlib.Path, capsys: Capture
) -> None:
    """And the first of them shows it."""
    command = ["ask", QUESTION, "--documents", str(notes), "--model", str(MODEL), "--any-text"]
    command += ["--samples", "2", "--pages", "1", "--max-tokens", "40", "--json"]
    assert cli.main(command) == 0
    alone = json.loads(capsys.readouterr().out)
    (first, shown, said), (second, hidden, more) = in_two_processes(*command, "--model-parallel=2")
    assert (first, second) == (0, 0), said + more
    # Gloo prints lines of its own.
    together = json.loads(shown[shown.index("{") :])
    assert "{" not in hidden
    assert together["answer"] == alone["answer"]
    assert together["score"] == pytest.approx(alone["score"], abs=1e-3)


def test_processes_share_a_model_and_the_first_shows_the_answer(
    notes: pathlib.Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["ask", QUESTION, "--documents", str(notes), "--model", str(MODEL)]
    for status, _, said in in_two_processes(*command):
        assert status == 1, said
        assert "--model-parallel 1: several processes answer with one model" in said
    for refused, said in (
        ([*command[:4], "--extractive", "--distributed"], "one process does it alone"),
        ([*command, "--num-processes=2"], "also need --coordinator_address"),
        ([*command, "--process-id=-1"], "--process_id is -1"),
    ):
        assert cli.main(refused) == 1
        assert said in capsys.readouterr().err
    for first in (True, False):
        monkeypatch.setattr(processes, "is_first", lambda first=first: first)
        assert cli.main([*command[:4], "--extractive", "--json"]) == 0
        assert ("{" in capsys.readouterr().out) == first


def test_a_model_answers(notes: pathlib.Path, compiled: pathlib.Path, capsys: Capture) -> None:
    arguments = ["--model", str(MODEL), "--samples", "3", "--pages", "1", "--max-tokens", "40"]
    arguments += ["--omissions", "1", "--any-text"]
    command = ["ask", QUESTION, "--documents", str(notes), *arguments]
    assert cli.main([*command, "--json", "--all-samples"]) == 0
    found = answer_from_json(json.loads(capsys.readouterr().out))
    assert len(found.samples) == 3
    assert not found.is_baseline
    for citation in (c for sample in found.samples for c in sample.citations):
        assert citation.runs == tuple(TEXT[start:end] for start, end in citation.spans)
    assert cli.main(command) == 0
    assert f"  │ {found.citations[0].quote}" in capsys.readouterr().out
    # Sure enough, or not, for what was promised on labelled answers of the same model.
    answers, calibration = notes.parent / "answers.jsonl", notes.parent / "calibration.json"
    for lift, given in ((-1.0, True), (2.0, False)):
        score = (found.score or 0.0) + lift
        line = answer_to_json(dataclasses.replace(found, score=score, samples=())) | {"good": True}
        worse = line | {"score": score - 1, "good": False}
        lines = [each | {"question_id": str(i)} for i, each in enumerate([line, worse] * 80)]
        answers.write_text("".join(json.dumps(each) + "\n" for each in lines))
        assert cli.main(["calibrate", str(answers), "--out", str(calibration), "--json"]) == 0
        captured = capsys.readouterr()
        promises = {each["quality"]: each for each in json.loads(captured.out)["promises"]}
        assert promises[0.9]["coverage"] == 0.5
        assert "answers.run.json" in captured.err
        unsure = [*command, "--min-quality", "0.9", "--calibration", str(calibration), "--json"]
        assert cli.main(unsure) == 0
        told = answer_from_json(json.loads(capsys.readouterr().out))
        assert told.declined != given
        assert told.threshold == score - 1
    assert told.reason is not None
    assert "above it, 90% of the answers are good" in told.reason
    assert cli.main([*unsure, "--min-quality", "0.99"]) == 1
    assert "too few to promise 99% good answers" in capsys.readouterr().err
    assert cli.main([*unsure, "--choose", "sum"]) == 1
    assert "score = 'consensus', not" in capsys.readouterr().err
    assert jax.config.values["jax_compilation_cache_dir"] == str(compiled)
    # A model's folder may hold its own: those answers were a little surer.
    damaged = shutil.copytree(MODEL, notes.parent / "damaged")
    command[command.index(str(MODEL))] = str(damaged)
    assert cli.main([*command, "--min-quality", "0.9"]) == 1
    assert f"there is no {damaged}/calibration.json" in capsys.readouterr().err
    calibrated = ["calibrate", str(answers), "--about", "towns"]
    assert cli.main([*calibrated, "--out", str(damaged / "calibration.json")]) == 0
    capsys.readouterr()
    assert cli.main(command) == 0
    assert capsys.readouterr().out.endswith(
        "of 40 answers about as sure, 0 were good (questions about towns)\n"
    )
    assert cli.main([*command, "--top", "2"]) == 0
    assert "of 40 answers about as sure" in capsys.readouterr().out
    assert cli.main([*command, "--min-quality", "0.9", "--json"]) == 0
    assert answer_from_json(json.loads(capsys.readouterr().out)).declined
    assert cli.main([*command, "--choose", "sum"]) == 0
    assert "about as sure" not in capsys.readouterr().out, "chosen otherwise"
    # What is damaged may be noticed only when the parameters are needed.
    file = notes.parent / "damaged" / "parameters.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert cli.main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gophercite ask: {file}: tensor ")
    assert "is damaged" in line
    described = notes.parent / "damaged" / "model.json"
    described.write_text(
        described.read_text().replace('"trained_layers/down"', '"trained_layers/other"', 1)
    )
    assert cli.main(["renew", str(described.parent)]) == 0
    capsys.readouterr()
    assert cli.main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "trained_layers/down" in line

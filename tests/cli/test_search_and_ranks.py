"""`gophercite search`, several ranked answers, and how a user finds the commands."""

import json
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from retrieval.servers import Server, answer, serving

import gophercite
from gophercite import cli
from gophercite.records.answers import answer_from_json

ROOT = pathlib.Path(__file__).parents[2]
NOTES = str(ROOT / "examples" / "notes")
TOWNS = str(ROOT / "examples" / "towns")
MODEL = str(ROOT / "data_pipelines" / "sample_world" / "model")
COMMANDS = ("ask", "search", "verify", "calibrate", "index", "validate", "info",
            "import-weights", "export-weights", "renew")  # fmt: skip

Capture = pytest.CaptureFixture[str]


def test_hits_for_programs(tmp_path: pathlib.Path, capsys: Capture) -> None:
    query = "when do the lighthouse and the library open"
    assert cli.main(["search", query, "--documents", NOTES, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["query"] == query
    assert [hit["rank"] for hit in value["hits"]] == [1, 2]
    assert {hit["title"] for hit in value["hits"]} == {"Ormsby lighthouse", "town_council"}
    scores = [hit["score"] for hit in value["hits"]]
    assert scores[0] > scores[1] > 0
    best = value["hits"][0]
    assert best["snippet"]
    name = {"Ormsby lighthouse": "lighthouse.md", "town_council": "town_council.txt"}[best["title"]]
    assert best["url"] == best["document"] == pathlib.Path(NOTES, name).as_uri()
    # An index says the same.
    index = str(tmp_path / "notes.db")
    assert cli.main(["index", NOTES, "--out", index]) == 0
    capsys.readouterr()
    assert cli.main(["search", query, "--index", index, "--json", "--pages", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"] == [best]


def test_hits_for_people(capsys: Capture) -> None:
    assert cli.main(["search", "lighthouse", "--documents", NOTES]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1. Ormsby lighthouse"
    assert "The lighthouse at Ormsby was built in 1874" in lines[1] + lines[2]
    assert " · score 0." in " ".join(lines)
    assert cli.main(["search", "xyzzy", "--documents", NOTES]) == 0
    assert capsys.readouterr().out == "No page holds any of these words.\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as server:
        monkeypatch.setenv("SEARXNG_URL", server.base)
        yield server


def test_hits_of_the_web_are_not_fetched(server: Server, capsys: Capture) -> None:
    hit = {"url": f"{server.base}/page", "title": "A\x1b[2J title", "content": "A snippet"}
    server.answers["/search"] = answer(json.dumps({"results": [hit]}))
    assert cli.main(["search", "bees", "--engine", "searxng", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["hits"]
    assert (found["url"], found["snippet"], found["score"]) == (hit["url"], "A snippet", None)
    assert cli.main(["search", "bees", "--engine", "searxng"]) == 0
    assert "1. A\\u001b[2J title" in capsys.readouterr().out


def test_the_baseline_has_an_answer_of_each_page(capsys: Capture) -> None:
    typed = ["ask", "When does the library open?", "--documents", NOTES, "--extractive"]
    assert cli.main([*typed, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert "ranked" not in alone
    assert cli.main([*typed, "--json", "--top", "5"]) == 0
    value = json.loads(capsys.readouterr().out)
    ranked = value.pop("ranked")
    assert value == alone
    assert [each["rank"] for each in ranked] == list(range(1, len(ranked) + 1))
    assert len(ranked) > 1
    assert ranked[0]["answer"] == value["answer"]
    pages = [each["answer"][0]["document"] for each in ranked]
    assert len(set(pages)) == len(pages)
    assert cli.main([*typed, "--json", "--top", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["ranked"] == ranked[:1]
    assert cli.main([*typed, "--top", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line[:8] for line in lines if re.match(r"\d\. ", line)]
    assert shown == [f"{rank}. score" for rank in range(1, len(ranked) + 1)]
    assert (
        cli.main(["ask", "xyzzy?", "--documents", NOTES, "--extractive", "--top", "3", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["ranked"] == []


def test_a_models_best_samples(capsys: Capture) -> None:
    typed = ["ask", "When was Aldanor founded?", "--documents", TOWNS, "--model", MODEL]
    typed += ["--samples", "6", "--pages", "1", "--max-tokens", "40", "--temperature", "3"]
    assert cli.main([*typed, "--json", "--top", "3", "--all-samples"]) == 0
    value = json.loads(capsys.readouterr().out)
    found = answer_from_json(value)
    ranked = value["ranked"]
    assert ranked[0]["text"] == found.text
    scores = [each["score"] for each in ranked]
    assert scores == sorted(scores, reverse=True)
    assert [each["consensus"] for each in ranked] == scores
    said = [json.dumps(each["answer"]) for each in ranked]
    assert 1 < len(set(said)) == len(said) <= 3
    distinct = {sample.citations: sample.score for sample in reversed(found.samples)}
    assert scores == sorted(distinct.values(), reverse=True)[:3]
    assert found.warnings == ()


def test_pages_that_the_model_can_not_read(capsys: Capture) -> None:
    """Refused in one line; with --any-text answered, and the answer says so."""
    typed = ["ask", "Who leads the town council?", "--documents", NOTES, "--model", MODEL]
    typed += ["--samples", "2", "--pages", "1", "--max-tokens", "24", "--prompt-tokens", "300"]
    assert cli.main(typed) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    for hint in ("very different from the text", "--extractive", "--any-text"):
        assert hint in captured.err
    assert cli.main([*typed, "--any-text", "--json"]) == 0
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    assert "the pages are very different from the text" in value["warnings"][0]
    assert captured.err == f"warning: {value['warnings'][0]}\n"
    assert answer_from_json(value).warnings == tuple(value["warnings"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_examples_that_are_understood(name: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main([name, "--help"])
    assert raised.value.code == 0
    out = capsys.readouterr().out
    examples = [line.strip() for line in out.split("examples:")[1].splitlines() if line.strip()]
    assert examples
    for line in examples:
        assert line.startswith(f"gophercite {name} ")
        assert _is_understood(line), line


def _is_understood(line: str) -> bool:
    words = shlex.split(line.split(" > ")[0], comments=True)
    try:
        cli._parser().parse_args(words[1:])
    except SystemExit:
        return False
    return True


def test_all_commands_are_in_the_help(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(re.search(rf"^    {name}\s", out, re.MULTILINE) for name in COMMANDS)


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-m", "gophercite", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{gophercite.__version__}\n"


def test_the_package_shows_its_names() -> None:
    program = "import gophercite, sys; print(*dir(gophercite)); assert 'numpy' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(gophercite.__all__) <= set(done.stdout.split())

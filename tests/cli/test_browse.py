"""`gophercite browse`: commands in, observations out, an answer that `verify` takes."""

import io
import json
import pathlib
import re

import pytest
from retrieval.servers import answer, serving

from gophercite.browser.episodes import episode_from_json, episode_to_json, replayed
from gophercite.browser.recorded import RecordedWorld
from gophercite.cli import _parser, main
from gophercite.cli.browse import _model

NOTES = str(pathlib.Path(__file__).parents[2] / "examples/notes")
QUESTION = "Who built the lighthouse?"
COMMANDS = (
    "Search lighthouse",
    "Clicked on link 0",
    "Quote: by ADA fenwick",
    "Quote: by nobody",
    "End: Answer",
)
ANSWER = "Ada Fenwick built it [1].\n\nThat is all."


def browse(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, lines: tuple[str, ...] = (*COMMANDS, ANSWER)
) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    return main(["browse", *arguments])


def test_a_person_sees_what_the_model_sees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert browse(monkeypatch, QUESTION, "--documents", NOTES) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"♦Question\n{QUESTION}\n♦Quotes\n♦Past actions\n♦Title\n")
    assert (
        "From Ormsby lighthouse\n> by Ada Fenwick\n♦Past actions\nSearch lighthouse\nClick" in out
    )
    assert "(invalid: the page does not hold this text)" in out
    assert f"{QUESTION}■[1] Ormsby lighthouse\n\nby Ada Fenwick■" in out
    assert f"\n{ANSWER}\n\n[1] Ormsby lighthouse (file://" in out
    assert out.endswith("    by Ada Fenwick\n")


def test_record_log_answer_and_verify(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    world, log, saved = tmp_path / "world", tmp_path / "log.jsonl", tmp_path / "answer.json"
    steps = tmp_path / "steps.html"
    source = ("--documents", NOTES, "--record", str(world))
    arguments = (QUESTION, "--log", str(log), "--json", "--by", "ada", "--highlight", str(steps))
    assert browse(monkeypatch, *arguments, *source) == 0
    first = capsys.readouterr().out
    page = steps.read_text("utf-8")
    assert page.count("<details") == len(COMMANDS) + 1
    assert "word for word in its page" in page
    # The recording gives the same again, and the log, which has the episode, stays as it is.
    logged = log.read_bytes()
    assert browse(monkeypatch, *arguments, "--world", str(world)) == 0
    again = capsys.readouterr()
    assert again.out == first
    assert f"{log}: has this episode already, in line 1" in again.err
    assert log.read_bytes() == logged
    assert steps.read_text("utf-8").count("<details") == len(COMMANDS) + 1
    saved.write_text(first, "utf-8")
    for pages in (NOTES, str(world / "pages.jsonl")):
        assert main(["verify", str(saved), "--documents", pages]) == 0
        assert "1 exact" in capsys.readouterr().out
    value = json.loads(logged)
    assert (value["by"], value["answer"], value["end"]) == ("ada", ANSWER, "answer")
    with RecordedWorld(world) as recorded:
        replay = episode_to_json(replayed(recorded, episode_from_json(value)))
        assert json.loads(json.dumps(replay)) == value
    # Another person's episode is another one, also after half a line; nobody's is lost.
    log.write_bytes(logged + b'{"id": "cut')
    assert browse(monkeypatch, QUESTION, "--log", str(log), "--world", str(world)) == 0
    assert [b'"by": "person"' in line for line in log.read_bytes().splitlines()] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("flag", ["--log", "--highlight", "--state"])
def test_a_file_without_a_folder_is_refused_before_the_first_step(
    flag: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
) -> None:
    path = str(tmp_path / "none/file.jsonl")
    assert browse(monkeypatch, QUESTION, "--documents", NOTES, flag, path) == 1
    printed = capsys.readouterr()
    assert path in printed.err
    assert "♦" not in printed.out


def test_what_can_t_be_logged_or_recorded_is_refused_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for flag, path, said in (
        ("--log", "log.jsonl.gz", "--log log.jsonl.gz: lines are added without compression"),
        ("--record", "gs://bucket/world", "gs://bucket/world: is in a bucket"),
    ):
        assert browse(monkeypatch, QUESTION, "--documents", NOTES, flag, path) == 1
        printed = capsys.readouterr()
        assert said in printed.err
        assert "♦" not in printed.out
    assert not list(tmp_path.iterdir())


def test_commands_that_are_not_utf_8_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = io.TextIOWrapper(io.BytesIO(b"Search lighthouse\nSearch caf\xe9\n"), "utf-8")
    monkeypatch.setattr("sys.stdin", commands)
    assert main(["browse", QUESTION, "--documents", NOTES]) == 1
    assert "standard input is not utf-8" in capsys.readouterr().err


def test_a_state_that_is_kept_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    state = str(tmp_path / "state.json")
    arguments = (QUESTION, "--documents", NOTES, "--state", state, "--json")
    assert browse(monkeypatch, *arguments, lines=COMMANDS[:3]) == 1
    assert f"continue it with --state {state}" in capsys.readouterr().err
    assert browse(monkeypatch, *arguments, lines=("End: Answer", "Ada [1].", ".", "Top")) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["answer"][0]["quote"] == "by Ada Fenwick"
    assert value["text"] == "Ada [1]."
    assert browse(monkeypatch, "Why?", *arguments[1:]) == 1
    assert "belongs to another question" in capsys.readouterr().err


def test_an_input_that_ends_before_the_answer_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    state, log = str(tmp_path / "state.json"), tmp_path / "log.jsonl"
    arguments = (QUESTION, "--documents", NOTES, "--state", state, "--json")
    assert browse(monkeypatch, *arguments, lines=COMMANDS) == 1
    assert f"continue it with --state {state}" in capsys.readouterr().err
    assert browse(monkeypatch, *arguments, "--log", str(log), lines=("Ada [1].", ".")) == 0
    assert json.loads(capsys.readouterr().out)["answer"][0]["quote"] == "by Ada Fenwick"
    assert len(json.loads(log.read_text("utf-8"))["steps"]) == len(COMMANDS) + 1


def test_a_state_of_other_pages_has_no_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    notes, state = tmp_path / "notes", str(tmp_path / "state.json")
    notes.mkdir()
    (notes / "a.txt").write_text("The lighthouse stands by Ada Fenwick.", "utf-8")
    arguments = (QUESTION, "--documents", str(notes), "--state", state)
    assert browse(monkeypatch, *arguments, lines=COMMANDS[:3]) == 1
    (notes / "a.txt").write_text("The lighthouse has burnt down.", "utf-8")
    capsys.readouterr()
    log = ("--log", str(tmp_path / "log.jsonl"))
    assert browse(monkeypatch, *arguments, *log, lines=("End: Answer", "Ada [1].")) == 1
    assert f"{state}: pages or searches have changed since" in capsys.readouterr().err
    assert browse(monkeypatch, *arguments, lines=("End: Answer", "Ada [1].")) == 0
    assert "Ada [1]." in capsys.readouterr().out


def test_pages_of_the_web_have_links(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    log = tmp_path / "log.jsonl"
    lines = ("Search lighthouse", "Clicked on link 0", "Quote: 1874", "Clicked on link 0")
    with serving() as server:
        hits = [{"url": f"{server.base}/tower", "title": "Tower", "content": ""}]
        server.answers |= {
            "/search": answer(json.dumps({"results": hits}), type="application/json"),
            "/tower": answer("<p>Built in 1874 at the <a href=/b>bay</a>.", type="text/html"),
            "/b": answer("<p>A bay, see the <a href=/c>coast</a>.", type="text/html"),
        }
        monkeypatch.setenv("SEARXNG_URL", server.base)
        web = ("--engine", "searxng", "--allow-network", "127.0.0.1/32", "--log", str(log))
        assert browse(monkeypatch, QUESTION, *web, lines=(*lines, "End: Answer", "In [1].")) == 0
        out = capsys.readouterr().out
    assert "Built in 1874 at the 【0†bay】." in out
    assert "A bay, see the 【0†coast】." in out
    assert json.loads(log.read_text("utf-8"))["references"][0]["extract"] == "1874"


def test_rules_are_flags_and_wrong_ones_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ("--view-lines", "2", "--lines-above", "1", "--results", "1", "--actions", "9")
    commands = (
        "Search council or lighthouse",
        "Search lighthouse",
        "Clicked on link 0",
        "Find in page: 1962",
        "End: Nonsense",
    )
    arguments = (QUESTION, "--documents", NOTES)
    assert browse(monkeypatch, *arguments, lines=commands) == 0
    assert "【1†" in capsys.readouterr().out.split("♦Question")[2]
    assert browse(monkeypatch, *arguments, "--results", "1", lines=commands) == 0
    assert "【1†" not in capsys.readouterr().out.split("♦Question")[2]
    assert browse(monkeypatch, *arguments, *rules, lines=commands) == 0
    seen = capsys.readouterr().out.split("♦Question")
    assert "【0†" in seen[2]
    first, last = map(int, re.findall(r"♦Scrollbar: (\d+) - (\d+)", seen[5])[0])
    assert last - first == 1
    assert seen[5].split("♦Text\n")[1].split("\n")[1].startswith("Until 1962")
    assert "♦Actions left: 5" in seen[5]
    wrong = ("--view-lines", "2", "--lines-above", "2")
    assert browse(monkeypatch, *arguments, *wrong, lines=commands) == 1
    assert "--lines-above: 2 must be at least 0, and fewer than the 2" in capsys.readouterr().err


def test_what_cannot_be_browsed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert browse(monkeypatch, QUESTION, "--world", str(tmp_path)) == 1
    assert "world.json" in capsys.readouterr().err
    assert browse(monkeypatch, " ", "--documents", NOTES) == 1
    assert "there is no question" in capsys.readouterr().err
    assert browse(monkeypatch, QUESTION, "--documents", NOTES, lines=("End: Nonsense",)) == 0
    assert "No answer: the question was judged to be nonsense." in capsys.readouterr().out


def test_pages_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "a.txt").write_text("lighthouse \x1b[2J\u202e of doom", "utf-8")
    lines = ("Search lighthouse", "Clicked on link 0", "Quote: of doom", "End: Answer", "\x1b[1m")
    assert browse(monkeypatch, QUESTION, "--documents", str(tmp_path), lines=lines) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\u001b[2J" in out


def test_a_log_of_episodes_is_validated(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "episodes.jsonl"
    assert browse(monkeypatch, QUESTION, "--documents", NOTES, "--log", str(log)) == 0
    capsys.readouterr()
    good = json.loads(log.read_text()) | {"id": "e"}
    lines = [good, good | {"id": "f", "limit": 0}, good | {"id": "g", "mood": "fine"}, good]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["validate", str(log), "--kind", "episodes"]) == 1
    printed = capsys.readouterr().out
    assert "2 records read, 2 skipped" in printed
    assert f"{log}:2: field 'limit': must be at least 1" in printed
    assert f"{log}:4: field 'id': 'e' is already the id of line 1" in printed
    assert "unknown fields were ignored: 'mood' (1)" in printed
    log.write_text(json.dumps(good) + "\n")
    assert main(["validate", str(log), "--kind", "episodes"]) == 0


def test_a_model_browses_and_nothing_that_it_writes_is_invalid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    log, world = tmp_path / "log.jsonl", tmp_path / "world"
    model = str(pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model")
    arguments = (QUESTION, "--documents", NOTES, "--record", str(world), "--model", model)
    limits = ("--max-tokens", "24", "--prompt-tokens", "256", "--actions", "6", "--seed", "5")
    assert browse(monkeypatch, *arguments, *limits, "--log", str(log), lines=()) == 0
    printed = capsys.readouterr()
    assert "\n♦Next action\n> " in printed.out
    assert "(invalid" not in printed.out
    assert " actions, 0 of them invalid" in printed.err
    (value,) = map(json.loads, log.read_text("utf-8").splitlines())
    assert value["by"] == model
    assert f"\n> {value['steps'][0]['action']}\n" in printed.out
    with RecordedWorld(world) as recorded:
        again = episode_to_json(replayed(recorded, episode_from_json(value)))
        assert json.loads(json.dumps(again)) == value
    assert browse(monkeypatch, *arguments, *limits, "--free", "--json", lines=()) == 0
    invalid = re.search(r"6 actions, (\d) of them invalid", capsys.readouterr().err)
    assert invalid is not None
    assert int(invalid[1]) > 0


def test_a_model_looks_only_for_what_is_there_if_so_wished() -> None:
    model = str(pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model")
    for more, present in (([], False), (["--find-present"], True)):
        options = _parser().parse_args(
            ["browse", QUESTION, "--documents", NOTES, "--model", model, *more]
        )
        assert _model(options).settings.commands.find_present == present


def test_flags_of_models_are_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    model = str(pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model")
    for flags, problem in (
        (("--free",), "--free needs --model"),
        (("--model", str(tmp_path)), str(tmp_path)),
        (("--model", model, "--max-tokens", "2"), "max_tokens = 2: the shortest action has"),
        (("--model", model, "--prompt-tokens", "9"), "--prompt-tokens 9: a prompt does not fit"),
    ):
        assert browse(monkeypatch, QUESTION, "--documents", NOTES, *flags, lines=()) == 1
        assert problem in capsys.readouterr().err

"""`gophercite rate`: two commands to the first rating, people's errors, and what runs a study."""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite import cli, records
from gophercite.documents import Document
from gophercite.rating_site.security import is_password
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.items import items_of
from gophercite.ratings.schema import administrators
from gophercite.ratings.study import Study
from gophercite.records import Comparison, RatedAnswer
from gophercite.retrieval.index import DocumentIndex
from tests.ratings.served import Browser

Says = pytest.CaptureFixture[str]
TRIPLE = {"claim": "In 1874.", "title": "Ormsby", "quote": "Built in 1874."}
OTHER = {"claim": "Long ago.", "title": "Ormsby", "quote": "A town."}
PAGE = {"id": "o", "title": "Ormsby", "text": "A town. Built in 1874."}


def write(path: pathlib.Path, *lines: Any) -> str:
    text = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{line}\n" for line in text))
    return str(path)


def comparison(name: str, **more: Any) -> dict[str, Any]:
    base = {"id": name, "question": f"When ({name})?", "source": "mine"}
    return {**base, "responses": [[TRIPLE], [OTHER]], **more}


def rate(*arguments: str) -> int:
    return cli.main(["rate", *arguments])


@pytest.fixture
def study(tmp_path: pathlib.Path) -> str:
    file = write(tmp_path / "c.jsonl", *(comparison(f"c{n}") for n in range(4)))
    assert rate("new", str(tmp_path / "study"), file, "--experiment", "nq") == 0
    return str(tmp_path / "study")


def test_two_commands_from_nothing_to_the_first_rating(tmp_path: pathlib.Path) -> None:
    """As a user types them, in processes of their own; Ctrl-C ends the server."""
    file = write(tmp_path / "c.jsonl", comparison("c1"))
    pages = write(tmp_path / "pages.jsonl", PAGE)
    program = [sys.executable, "-m", "gophercite", "rate"]
    making = [*program, "new", "study", file, "--documents", pages, "--checks", "none"]
    subprocess.run([*making, "--set", "minimum_seconds=0"], cwd=tmp_path, check=True)
    serving = [*program, "serve", "study", "--invite", "me", "--port", "0"]
    with subprocess.Popen(serving, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        link = re.fullmatch(r"me: (http://127.0.0.1:\d+)(/r/\S+)\n", server.stdout.readline())
        assert link is not None
        assert "Ctrl-C" in server.stdout.readline()
        browser = Browser(link[1])
        assert "1 to go" in browser.get(link[2]).text
        page = browser.get("/e/1")
        vote = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
        vote |= {"preferred": "both_good", "comment": "one two three four five six seven"}
        assert "Nothing is left" in browser.send("/e/1", page.form | vote).text
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) in (0, 130)
    out = str(tmp_path / "out.jsonl")
    assert rate("export", str(tmp_path / "study"), "comparison", "comparisons", out) == 0
    (record,) = records.read(out, Comparison, strict=True)
    assert record.preferred == 0.5


def test_what_is_private_is_so(study: str) -> None:
    for name in ("secret", "study.json"):
        assert stat.S_IMODE(os.stat(pathlib.Path(study, name)).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(study).st_mode) == 0o700


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "nowhere"), "is not a study"),
        (("status", "STUDY", "nothing"), "there is no experiment 'nothing'; the study has 'nq'"),
        (("new", "STUDY", "--experiment", "nq"), "an experiment named 'nq' already exists"),
        (("new", "STUDY", "--set", "rater=3"), "did you mean 'raters'"),
        (("new", "STUDY", "--set", "raters"), "expected NAME=VALUE"),
        (("new", "STUDY", "absent.jsonl"), "absent.jsonl: no such file"),
        (
            ("new", "STUDY", "BAD", "--experiment", "bad"),
            "BAD: no line of it is usable; line 1: is neither",
        ),
        (("new", "STUDY", "--checks", "BAD", "--experiment", "bad"), "BAD:1: field 'expected'"),
        (("undo", "STUDY", "nobody"), "there is no rater 'nobody'"),
        (("export", "STUDY", "nq", "dpo", "OUT"), "4 without a vote that counts"),
        (("adjudicate", "STUDY", "nq", "new"), "agree on all"),
        (("backup", "STUDY", "BAD"), "already exists"),
        (("serve", "STUDY", "--host", "203.0.113.1"), "203.0.113.1:8000"),
        (("serve", "STUDY", "--host", "2001:db8::1"), "[2001:db8::1]:8000: "),
        (("new", "fresh", "--database", "postgresql+pg8000://u:pw@127.0.0.1:1/x"), "***"),
    ],
)
def test_errors_are_for_people(
    study: str, tmp_path: pathlib.Path, capsys: Says, arguments: tuple[str, ...], said: str
) -> None:
    bad = write(tmp_path / "BAD", {"question": "q"}, "no json", comparison("c", responses=[1, 2]))
    names = {
        "STUDY": study,
        "BAD": bad,
        "OUT": str(tmp_path / "out"),
        "absent.jsonl": "absent.jsonl",
    }
    places = {name: str(tmp_path / name) for name in ("nowhere", "fresh")} | names
    assert rate(*(places.get(each, each) for each in arguments)) == 1
    error = capsys.readouterr().err
    assert error.startswith("gophercite rate: ")
    assert said in error
    assert "pw@" not in error
    assert not (tmp_path / "fresh" / "study.json").exists()


def test_the_number_of_items_is_a_number(tmp_path: pathlib.Path, capsys: Says) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c1"), comparison("c2"))
    assert rate("new", str(tmp_path / "study"), file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == 2


def test_bad_lines_are_named_and_the_others_added(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    file = write(tmp_path / "more.jsonl", comparison("c1"), "{", comparison("c9"), comparison("c9"))
    assert rate("add", study, "nq", file) == 1
    said = capsys.readouterr()
    assert "1 items added to 'nq'; 1 were already there" in said.out
    assert f"{file}:2: is not JSON" in said.err
    assert f"{file}:4: field 'id': 'c9' is already the id of another line" in said.err
    assert rate("add", study, "nq", file, "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["added"], result["there"], len(result["errors"])) == (0, 2, 2)


@pytest.mark.parametrize("text", ["", "[]\n"])
@pytest.mark.parametrize("flag", ["", "--gold", "--checks", "--examples"])
def test_a_file_without_a_usable_line_is_refused(
    tmp_path: pathlib.Path, capsys: Says, flag: str, text: str
) -> None:
    good, empty = write(tmp_path / "c.jsonl", comparison("c")), tmp_path / "empty.jsonl"
    empty.write_text(text)
    flags = [flag] if flag else []
    assert rate("new", str(tmp_path / "study"), good, *flags, str(empty)) == 1
    error = capsys.readouterr().err
    assert "empty.jsonl" in error
    said = {
        "": "holds nothing to rate",
        "--checks": "holds no checks; for none at all say `--checks none`",
        "--examples": "holds no examples; for none at all say `--examples none`",
    }
    assert ("expected an object" if text else said.get(flag, said[""])) in error
    assert not (tmp_path / "study").exists()


def test_a_question_file_without_a_question_is_refused(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    question = {"id": "q", "question": "When?", "source": "mine", "documents": []}
    files = [write(tmp_path / "q.jsonl", question), str(tmp_path / "empty.jsonl")]
    with DocumentIndex(tmp_path / "index.db", write=True) as index:
        index.add([Document(**PAGE)])
    flags = ["--form", "demonstration", "--index", str(tmp_path / "index.db")]
    assert rate("new", str(tmp_path / "study"), *files, *flags) == 1
    assert "empty.jsonl: holds nothing to rate" in capsys.readouterr().err


def test_answers_that_make_no_item_are_named_by_line(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    answer = {"question": "When?", "documents": [PAGE], "document": "o", **TRIPLE}
    answers = [{"question_id": "c5", **answer}] * 2
    file = write(tmp_path / "a.jsonl", comparison("c5"), *answers)
    assert rate("add", study, "nq", file) == 1
    assert (
        f"{file}:3: field 'id': 'c5' is already the id of another line" in capsys.readouterr().err
    )


def test_answers_of_two_models_are_paired(tmp_path: pathlib.Path, capsys: Says) -> None:
    """Rated answers and what `ask --json` prints; what has no partner is counted."""
    base = {"question_id": "q1", "question": "When?", "documents": [PAGE], "document": "o"}
    first = write(tmp_path / "a.jsonl", *({**base, **TRIPLE, "model": f"m{n}"} for n in range(3)))
    study = str(tmp_path / "study")
    assert rate("new", study, first) == 0
    assert "1 answer left without another one" in capsys.readouterr().err
    store = Study(study).store
    with store.reading() as connection:
        experiment = experiment_named(connection, "comparison")
        (item,) = (i for i in items_of(connection, experiment, *list_roles()) if i.name == "q1")
    assert [answer.model for answer in item.item.answers] == ["m0", "m1"]
    claim = item.item.answers[0].claims[0]
    assert PAGE["text"][claim.start : claim.end] == TRIPLE["quote"]


def list_roles() -> list[Any]:
    from gophercite.ratings.assignment import Role

    return list(Role)


def votes_file(tmp_path: pathlib.Path, rows: list[dict[str, str]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join(names), *(",".join(row.get(name, "") for name in names) for row in rows)]
    return write(tmp_path / "votes.csv", *lines)


def vote(item: str, rater: str, preferred: str = "0", **more: str) -> dict[str, str]:
    both = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
    return {"item": item, "rater": rater, "seconds": "9", **both, "preferred": preferred, **more}


def test_import_status_undo_and_export(study: str, tmp_path: pathlib.Path, capsys: Says) -> None:
    rows = [vote("c0", "ada"), vote("c0", "bob", "1"), vote("c0", "eve", "1", plausible_0="no")]
    bad = [
        vote("c7", "ada"),
        vote("c1", "ada", "left"),
        vote("c1", "ada", supportd_0="yes"),
        vote("c1", "ada", seconds="long"),
    ]
    file = votes_file(tmp_path, rows + bad[:2])
    assert rate("import", study, "nq", file) == 1
    said = capsys.readouterr()
    assert "3 votes added; 0 were already there" in said.out
    assert f"{file}:5: field 'item': no item is named the string \"c7\"" in said.err
    assert "field 'preferred': expected one of 0, 1, both_bad, both_good, unsure" in said.err
    other = rows[1] | {"supported_0": "unsure"}  # Bob has thought again
    assert (
        rate("import", study, "nq", votes_file(tmp_path, [rows[0], other, rows[2], *bad[2:]])) == 1
    )
    said = capsys.readouterr()
    assert "1 vote added; 2 were already there; 1 of those added replaced an ear" in said.out
    assert "did you mean 'supported_0'" in said.err
    assert "field 'seconds': expected a number" in said.err

    assert rate("status", study) == 0
    out = capsys.readouterr().out
    assert "1 of 4 items complete, 3 votes" in out
    assert "preferred: agreement 33.3 (33.3 to 33.3) %" in out
    assert "rater ada: 1 votes, 9 s, checks 0 of 4, gold –, counts: yes" in out

    def preferred() -> float | None:
        path = str(tmp_path / "out.jsonl")
        assert rate("export", study, "nq", "comparisons", path) == 0
        (record,) = records.read(path, Comparison, strict=True)
        assert not {"ada", "bob", "eve"} & {each["rater"] for each in record.ratings}
        return record.preferred

    assert preferred() == 1.0
    assert rate("undo", study, "eve", "--reason", "asleep") == 0
    assert preferred() == 0.0, "one against one: the lower label"
    assert rate("undo", study, "eve", "--redo") == 0
    assert preferred() == 1.0
    assert rate("undo", study, "eve", "--redo") == 1
    assert rate("undo", study, "bob", "--experiment", "nq") == 0
    assert preferred() == 0.0
    path = str(tmp_path / "votes.jsonl")
    assert rate("export", study, "nq", "votes", path, "--minimum-seconds", "10") == 1
    assert rate("export", study, "nq", "votes", path, "--minimum-seconds", "9") == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--gold-right", "nan"), ("--gold-right", "2"), ("--minimum-seconds", "inf")],
)
def test_what_counts_is_a_number(study: str, capsys: Says, flag: str, value: str) -> None:
    with pytest.raises(SystemExit):
        rate("export", study, "nq", "votes", "out.jsonl", flag, value)
    assert f"argument {flag}: {value}: must be" in capsys.readouterr().err


def test_a_comment_is_text_whatever_is_in_it(study: str, tmp_path: pathlib.Path) -> None:
    rows = [vote("c0", "ada", comment="--5"), vote("c1", "ada", comment="42")]
    rows += [vote("c2", "ada", comment="٣"), vote("c3", "ada", comment="-" + "9" * 3900)]
    assert rate("import", study, "nq", votes_file(tmp_path, rows)) == 0
    path = str(tmp_path / "out.jsonl")
    for kind in ("comparisons", "dpo", "rated-answers", "votes"):
        assert rate("export", study, "nq", kind, path) == 0
        assert "comment" not in pathlib.Path(path).read_text(), "it is nobody's but the raters'"
    assert rate("export", study, "nq", "comparisons", path, "--comments") == 0
    said = {
        record.id: record.ratings[0]["comment"]
        for record in records.read(path, Comparison, strict=True)
    }
    assert said == {row["item"]: row["comment"] for row in rows}


def test_exported_comparisons_come_back_as_items_with_labels(
    study: str, tmp_path: pathlib.Path
) -> None:
    no = {"supported_1": "no", "plausible_0": "no"}
    assert rate("import", study, "nq", votes_file(tmp_path, [vote("c0", "ada", **no)])) == 0
    path, other = str(tmp_path / "out.jsonl"), str(tmp_path / "other")
    assert rate("export", study, "nq", "comparisons", path) == 0
    assert rate("new", other, path, "--screening", "--experiment", "screening") == 0
    with Study(other).store.reading() as connection:
        experiment = experiment_named(connection, "screening")
        (item,) = (i for i in items_of(connection, experiment, *list_roles()) if i.name == "c0")
    expected = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
    assert item.expected == {**expected, **no, "preferred": "0"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "STUDY", "\udcff"),
        ("undo", "STUDY", "\udcff"),
        ("undo", "STUDY", "ada", "--reason", "\udcff"),
        ("export", "STUDY", "\udcff", "votes", "OUT"),
        ("adjudicate", "STUDY", "nq", "\udcff"),
    ],
)
def test_names_that_are_not_utf_8_are_refused(
    study: str, tmp_path: pathlib.Path, capsys: Says, arguments: tuple[str, ...]
) -> None:
    rate("invite", study, "ada")
    places = {"STUDY": study, "OUT": str(tmp_path / "out")}
    assert rate(*(places.get(each, each) for each in arguments)) == 1
    assert ": '\\udcff' is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["inf", "1e400", "nan", "9" * 400])
def test_times_that_cannot_be_are_left_out_by_name(
    study: str, tmp_path: pathlib.Path, capsys: Says, seconds: str
) -> None:
    rows = [vote("c0", "ada", seconds=seconds), vote("c1", "ada")]
    file = votes_file(tmp_path, rows)
    more = [{**rows[0], "seconds": each} for each in (10**400, True)]
    lines = write(tmp_path / "votes.jsonl", *rows, *more)
    capital = pathlib.Path(file).with_name("OTHER.CSV")
    capital.write_text(pathlib.Path(file).read_text())
    for path, bad in ((file, 1), (lines, 3), (str(capital), 1)):
        assert rate("import", study, "nq", path) == 1
        assert capsys.readouterr().err.count("field 'seconds': expected a number") == bad


@pytest.mark.parametrize(
    "setting", ["lease_minutes=NaN", "lease_minutes=Infinity", "minimum_seconds=NaN"]
)
def test_settings_are_numbers(tmp_path: pathlib.Path, capsys: Says, setting: str) -> None:
    assert rate("new", str(tmp_path / "study"), "--set", setting) == 1
    assert "must be a finite number" in capsys.readouterr().err


def test_adjudication_decides(study: str, tmp_path: pathlib.Path, capsys: Says) -> None:
    rows = [vote("c0", "ada"), vote("c0", "bob", "1"), vote("c0", "eve", "1")]
    rows += [vote("c1", "ada"), vote("c1", "bob"), vote("c2", "ada"), vote("c2", "bob", "1")]
    assert rate("import", study, "nq", votes_file(tmp_path, rows)) == 0
    assert rate("adjudicate", study, "nq", "decided") == 0
    assert "'decided' with 2 items, pool 'researchers'" in capsys.readouterr().out
    with Study(study).store.reading() as connection:
        item, _ = items_of(connection, experiment_named(connection, "decided"), *list_roles())
    assert [other["preferred"] for other in item.item.others] == ["0", "1", "1"]
    assert rate("import", study, "decided", votes_file(tmp_path, [vote("c0", "judge")])) == 0
    path = str(tmp_path / "out.jsonl")
    options = ["--adjudicated-by", "decided"]
    capsys.readouterr()
    assert rate("export", study, "nq", "comparisons", path, *options) == 0
    said = "1 item not yet decided in 'decided', where raters' own votes count"
    assert said in capsys.readouterr().out
    found = {record.id: record.preferred for record in records.read(path, Comparison)}
    assert found == {"c0": 0.0, "c1": 0.0, "c2": 0.0}
    assert json.loads(pathlib.Path(path + ".rules.json").read_text())["adjudicated_by"] == "decided"


def test_votes_on_other_questions_decide_nothing(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    """Items of other experiments may have the same names."""
    rows = [vote("c0", "ada"), vote("c0", "bob", "1")]
    assert rate("import", study, "nq", votes_file(tmp_path, rows)) == 0
    other = write(tmp_path / "other.jsonl", comparison("c0", question="Where?"))
    assert rate("new", study, other, "--experiment", "other") == 0
    assert rate("import", study, "other", votes_file(tmp_path, rows)) == 0
    assert rate("adjudicate", study, "other", "of other") == 0
    for judge in ("other", "of other"):
        out = tmp_path / "out.jsonl"
        options = ["--adjudicated-by", judge]
        assert rate("export", study, "nq", "comparisons", str(out), *options) == 1
        assert f"experiment {judge!r} decides no item of 'nq'" in capsys.readouterr().err
        assert not out.exists()


def test_screening_by_commands(tmp_path: pathlib.Path, capsys: Says) -> None:
    labelled = [
        comparison(f"c{n}", preferred=n % 2, supported_and_plausible=[True, None])
        for n in range(10)
    ]
    labelled.append(comparison("unlabelled"))
    study, file = str(tmp_path / "study"), write(tmp_path / "gold.jsonl", *labelled)
    options = ["--screening", "--experiment", "screening", "--pool", "wide"]
    assert rate("new", study, file, *options) == 1
    assert "has no labels" in capsys.readouterr().err
    rows = [vote(f"c{n}", "good", str(n % 2)) for n in range(10)]
    rows += [vote(f"c{n}", "poor", "0") for n in range(10)]
    assert rate("import", study, "screening", votes_file(tmp_path, rows)) == 0
    assert rate("promote", study, "screening") == 0
    out = capsys.readouterr().out
    assert "good: passed" in out
    assert "poor: not passed" in out
    assert "preferred 50 %" in out
    assert rate("invite", study, "good", "--pool", "super") == 0, "moved"
    assert rate("invite", study, "poor", "--pool", "super") == 1, "still of the wide pool"


def test_rated_answers_that_are_not_verbatim_are_left_out(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    base = {"question_id": "q1", "question": "When?", "documents": [PAGE], "document": "o"}
    made_up = {**TRIPLE, "quote": "Built in 1974.", "supported": False}
    file = write(tmp_path / "a.jsonl", {**base, **TRIPLE}, {**base, **made_up})
    study, out = str(tmp_path / "study"), str(tmp_path / "out.jsonl")
    assert rate("new", study, file) == 0
    votes = votes_file(tmp_path, [vote("q1", "ada")])
    assert rate("import", study, "comparison", votes) == 0
    assert rate("export", study, "comparison", "rated-answers", out) == 0
    assert "left out: 1 answers whose quote is not verbatim" in capsys.readouterr().out
    (answer,) = records.read(out, RatedAnswer, strict=True)
    assert answer.supported


def test_admin_and_backup(
    study: str, tmp_path: pathlib.Path, capsys: Says, monkeypatch: Any
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("short\n"))
    assert rate("admin", study, "root") == 1
    assert "at least 10 characters" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough, not UTF-8 \udcff\n"))
    assert rate("admin", study, "root") == 1
    assert "the password is not UTF-8" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("l" * 1001))
    assert rate("admin", study, "root") == 1
    assert "at most 1000 characters" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough to do\r\n", newline=""))
    assert rate("admin", study, "root") == 0
    with Study(study).store.reading() as connection:
        hashed = connection.execute(sa.select(administrators.c.password_hash)).scalar_one()
    assert is_password("long enough to do", hashed)
    copy = tmp_path / "copy.db"
    assert rate("backup", study, str(copy)) == 0
    os.replace(copy, pathlib.Path(study, "ratings.db"))
    for leftover in pathlib.Path(study).glob("ratings.db-*"):
        leftover.unlink()
    assert rate("status", study) == 0
    assert "0 of 4 items complete" in capsys.readouterr().out


def test_help_has_examples_and_the_command_is_light(study: str) -> None:
    code = (
        "import sys; from gophercite import cli; cli._parser(); x = 'sqlalchemy' in sys.modules\n"
        f"cli.main(['rate', 'status', {study!r}]); sys.exit(x or 'alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    for action in ("new", "serve", "export", "undo"):
        with pytest.raises(SystemExit) as ended:
            rate(action, "--help")
        assert ended.value.code == 0

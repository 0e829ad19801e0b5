"""Values that `rate` can't use are refused before anything is made, and named as typed."""

import io
import pathlib
import sys
from typing import Any

import pytest

from gophercite.ratings.forms import MOST_FIELDS
from gophercite.ratings.study import Study
from tests.ratings.test_rate_command import comparison, rate, write

Says = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("refused")
    file = write(folder / "c.jsonl", comparison("c0"))
    assert rate("new", str(folder / "study"), file, "--experiment", "nq") == 0
    return str(folder / "study")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "raters=99999999999999999999"), "raters=99999999999999999999: must be at most"),
        (("--set", f"lease_minutes={10**400}"), "must be at most"),
        (("--set", "lease_minutes=1e308"), "lease_minutes=1e308: must be at most"),
        (("--set", "check_tries=2147483648"), "must be at most"),
        (("--database", "sqlite:///other.db"), "--database: must be a PostgreSQL database"),
        (("--database", "mysql://me:pw@host/x"), "--database: must be a PostgreSQL database"),
        (("--database", "pw@host"), "--database: must be a PostgreSQL database"),
        (("--set", "parts_required=0.5"), "the form 'comparison' does not use parts_required"),
        (("--form", "minimal", "--set", "comment_words=3"), "'minimal' does not use comment_words"),
        (
            ("--form", "demonstration", "--set", "minimum_seconds=3"),
            "'demonstration' does not use minimum_seconds; it uses raters, lease_minutes, seed",
        ),
    ],
)
def test_nothing_is_made_with_such_values(
    tmp_path: pathlib.Path, capsys: Says, arguments: tuple[str, ...], said: str
) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"))
    assert rate("new", str(tmp_path / "study"), file, *arguments) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "pw" not in error
    assert not (tmp_path / "study").exists()


def test_large_values_that_can_be_used_are(tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"))
    most = ["--set", "raters=2147483647", "--set", "lease_minutes=2147483647"]
    assert rate("new", str(tmp_path / "study"), file, *most, "--set", f"seed={10**30}") == 0


@pytest.mark.parametrize("command", ["serve", "invite"])
@pytest.mark.parametrize(
    "url",
    [
        "ratings.example.org",
        "ftp://ratings.example.org",
        "https://",
        "https:///r",
        "https://ratings.example.org/study",
        "https://ratings.example.org?x",
        "https://me@ratings.example.org",
        "https://ratings.example.org:port",
        "https://two words",
        "https://ratings.example.org\n",
    ],
)
def test_urls_are_those_of_sites(study: str, capsys: Says, command: str, url: str) -> None:
    more = ("ada",) if command == "invite" else ()
    with pytest.raises(SystemExit):
        rate(command, study, *more, "--url", url)
    assert "--url" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("HTTPS://ratings.example.org", "https://ratings.example.org"),
        ("Http://[::1]:8000/", "http://[::1]:8000"),
        ("https://bücher.example:444", "https://bücher.example:444"),
    ],
)
def test_urls_begin_in_lower_case(
    study: str, capsys: Says, monkeypatch: Any, url: str, there: str
) -> None:
    assert rate("invite", study, "ada", "--url", url) == 0
    assert capsys.readouterr().out.startswith(f"ada: {there}/r/")
    served: list[Any] = []

    class Unserved:
        def __init__(self, *arguments: Any) -> None:
            served.append(arguments[-1])

        def run(self, sockets: list[Any]) -> None:
            sockets[0].close()

    monkeypatch.setattr("gophercite.cli.rate_actions.server", Unserved)
    assert rate("serve", study, "--port", "0", "--url", url) == 0
    assert rate("serve", study, "--port", "0") == 0
    assert [each.is_https for each in served] == [there.startswith("https"), False]
    assert [each.behind_proxy for each in served] == [True, False]


@pytest.mark.parametrize("name", [" ", "x" * 101, "two\nlines"])
def test_administrators_names_can_be_typed(
    study: str, capsys: Says, monkeypatch: Any, name: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("long enough to do\n"))
    assert rate("admin", study, name) == 1
    assert "can't be the name of an administrator" in capsys.readouterr().err


def test_webgpt_is_not_written_under_a_compressed_name(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    out = tmp_path / "x.jsonl.gz"
    assert rate("export", study, "nq", "webgpt", str(out)) == 1
    assert f"{out}: webgpt is not compressed: choose a name without .gz" in capsys.readouterr().err
    assert not out.exists()


def test_raters_are_promoted_by_known_labels_only(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    assert rate("promote", study, "nq") == 1
    assert "no item of 'nq' has a decided label" in capsys.readouterr().err
    file = write(tmp_path / "gold.jsonl", comparison("c0", preferred=0.5))
    assert rate("new", study, file, "--screening", "--experiment", "ties") == 0
    assert rate("promote", study, "ties") == 1
    assert "no item of 'ties' has a decided label" in capsys.readouterr().err


def test_a_server_has_no_result_to_print(study: str, capsys: Says) -> None:
    with pytest.raises(SystemExit):
        rate("serve", study, "--json")
    assert "unrecognized arguments: --json" in capsys.readouterr().err


def test_forms_that_no_rater_could_send_are_refused(tmp_path: pathlib.Path, capsys: Says) -> None:
    def sides(sentences: int) -> list[dict[str, Any]]:
        long = {"answer": " ".join(["It is so."] * sentences), "references": []}
        return [long, {"answer": "No.", "references": []}]

    most = (MOST_FIELDS - 10) // 2
    fits, exceeds = (comparison(f"c{n}", responses=sides(n)) for n in (most, most + 1))
    file = write(tmp_path / "c.jsonl", exceeds, fits)
    assert rate("new", str(tmp_path / "study"), file, "--form", "long-comparison") == 1
    said = capsys.readouterr()
    assert "with 1 item" in said.out
    assert f"{file}:1: needs a form with {MOST_FIELDS + 2} questions" in said.err
    assert f"at most {MOST_FIELDS}" in said.err


def test_a_damaged_secret_is_named(tmp_path: pathlib.Path, capsys: Says) -> None:
    Study.create(tmp_path / "study").store.close()
    (tmp_path / "study" / "secret").write_bytes(b"\xff" * 70)
    assert rate("status", str(tmp_path / "study")) == 1
    assert f"{tmp_path / 'study' / 'secret'}: is damaged" in capsys.readouterr().err

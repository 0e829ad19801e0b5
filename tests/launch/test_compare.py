"""The command that puts results side by side: from result files, ratings and comparisons."""

import dataclasses
import html.parser
import json
import pathlib
import shutil
from collections.abc import Callable

import compare
import compare_policies
import pytest
from google_storage import BUCKET, google_storage

from gophercite import records
from gophercite.documents import Document
from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.citations import CitationQuality
from gophercite.evaluation.intervals import estimate
from gophercite.evaluation.metrics import judge
from gophercite.records import Comparison, Question, RatedAnswer, Span
from gophercite.reports.results import Outcome, Results
from gophercite.reports.saved_results import read_system

PAGE = Document("o", "Ormsby", "Its lighthouse was built in 1874. <script>alert(1)</script>")
HOSTILE = "<img src=x onerror=alert(1)> & \x1b[31m"


def results(rewards: list[float], parameters: int, *, right: int) -> Results:
    """Answers to four questions, the last declined; the first `right` ones are right."""
    outcomes, best = [], []
    for number, reward in enumerate(rewards):
        asked = Question(
            f"q{number}", f"When? {HOSTILE}", "test", (PAGE,), ("1874",), (Span("o", 0, 33),)
        )
        claim = "1874" if number < right else "1875"
        text = f"%<{claim}>%(Ormsby)%[Its lighthouse was built in 1874.]%"
        sample = JudgedSample(asked, text, text, judge(text, asked), (1,), -1.0 * number, "o",
                              reward=reward)  # fmt: skip
        best.append(sample)
        outcomes.append(Outcome(asked, (sample, sample)))
    outcomes.append(Outcome(Question("q9", "Why?", "test", ()), "no page can be shown"))
    run = {"parameters": parameters, "seed": 0}
    systems = {"model": [sample.judgement for sample in best]}
    return Results("A <title>", systems, run, outcomes, best, "m")


class Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.links += [str(value) for name, value in attributes if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attributes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of two systems' results, whose figures take a while to draw."""
    folder = tmp_path_factory.mktemp("results")
    results([1.0, 2.0, 0.0], 44_000_000, right=1).write(folder / "sft")
    results([1.0, 3.0, -1.0, 0.0], 1_400_000_000, right=3).write(folder / "rl")
    return folder


@pytest.fixture
def saved(written: pathlib.Path, tmp_path: pathlib.Path) -> list[str]:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return [f"SFT={tmp_path / 'sft'}", f"RL={tmp_path / 'rl'}"]


def test_an_evaluation_writes_one_page_that_needs_nothing_else(tmp_path: pathlib.Path) -> None:
    written = results([1.0, 2.0], 10, right=1).write(tmp_path / "sub" / "test")
    names = [pathlib.Path(path).name for path in written]
    assert names == [
        "test.md", "test.html", "test_coverage.png", "test_roc.png", "test_best_of.png",
        "test.json", "test.jsonl", "test_samples.jsonl",
    ]  # fmt: skip
    page = (tmp_path / "sub" / "test.html").read_text()
    tags = Tags(page)
    assert tags.found.isdisjoint({"script", "b"})
    assert len(tags.links) == 3
    assert all(link.startswith("data:image/png;base64,") for link in tags.links)
    assert "default-src 'none'" in page
    assert "<title>A &lt;title&gt;</title>" in page
    assert page.count("<details>") == 2
    markdown = (tmp_path / "sub" / "test.md").read_text()
    assert "](test_coverage.png)" in markdown
    assert "<img" not in markdown
    summary = json.loads((tmp_path / "sub" / "test.json").read_text())
    assert summary["systems"]["model"]["claim_correct"]["mean"] == 0.5
    assert summary["declined"] == 1


def test_systems_are_compared_on_the_questions_that_all_have_answered(
    saved: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rated = [
        RatedAnswer("q", "When?", (PAGE,), "1874", "Ormsby", "built in 1874", "o", good,
                    None if good is None else True, model=name)
        for name, good in (("SFT", True), ("gold", False), ("new", None))
    ]  # fmt: skip
    compared = [
        Comparison(str(n), "When?", "test", ("a", "b"), preferred)
        for n, preferred in enumerate((1.0, 0.5, None))
    ]
    records.write(tmp_path / "rated.jsonl", rated)
    records.write(tmp_path / "compared.jsonl", compared)
    output = tmp_path / "compared"
    status = compare.main(
        [*saved, "--output", str(output), "--ratings", str(tmp_path / "rated.jsonl"),
         "--preferences", f"SFT over gold={tmp_path / 'compared.jsonl'}"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert status == 0
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in printed.splitlines()]
    rows = {row[0]: row[1:] for row in cells if row}
    assert rows["RL"][0] == "3"  # its fourth question SFT was not asked
    assert rows["RL minus SFT"][2].startswith("+66.7 (")  # of the same three
    assert rows["RL over SFT"] == ["3", "50.0 ± 47.5 (15.6–84.4)"]
    assert rows["SFT over gold"][0] == "2"
    assert rows["SFT over gold"][1].startswith("75.0 ± 50.4 (")
    assert "Nothing of new was rated, so it is left out." in output.with_suffix(".md").read_text()
    assert rows["gold"][:2] == ["1", "0.0 ± 0.0 (0.0–73.0)"]
    assert sorted(path.name for path in tmp_path.glob("compared_*.png")) == [
        f"compared_{name}.png" for name in ("best_of", "coverage", "roc", "scale")
    ]
    assert len(Tags(output.with_suffix(".html").read_text()).links) == 4


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["SFT=nowhere/test"], 1, "nowhere/test.jsonl: there is no such file"),
        (["SFT"], 2, "'SFT' must be NAME=PATH"),
        (["a=x", "a=y"], 2, "NAME=PREFIX: the name 'a' is given twice"),
        (["--preferences", "a=x", "b=y", "a=z"], 2, "--preferences: the name 'a' is given twice"),
        (
            ["SFT=x", "RL={folder}/b/../out"],
            2,
            "out.json, which is an input: choose another output",
        ),
        (["\udcff=x"], 2, "'\\udcff=x': the name is not UTF-8"),
        ([], 2, "nothing to compare"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    said: str,
) -> None:
    try:
        given = [argument.format(folder=tmp_path) for argument in arguments]
        (tmp_path / "b").mkdir()
        found = compare.main([*given, "--output", str(tmp_path / "out")])
    except SystemExit as exit:
        found = exit.code
    assert found == status
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "labels.jsonl: holds no records"),
        ("[]\n{}\n", "labels.jsonl: no line of it is usable; line 1: expected an object"),
    ],
)
@pytest.mark.parametrize("arguments", [["--ratings", "{file}"], ["--preferences", "a={file}"]])
def test_files_without_a_label_are_refused(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
    said: str,
) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(text)
    given = [argument.format(file=file) for argument in arguments]
    assert compare.main([*given, "--output", str(tmp_path / "out")]) == 1
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [file], "there is no report"


def test_people_s_labels_may_be_in_a_bucket(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with google_storage():
        path = f"{BUCKET}/compared.jsonl"
        records.write(path, [Comparison("c", "When?", "test", ("a", "b"), 1.0)])
        arguments = ["--preferences", f"b over a={path}", "--output", str(tmp_path / "out")]
        assert compare.main(arguments) == 0
    assert "| b over a  | 1 " in capsys.readouterr().out


def test_recall_and_precision_of_citations_are_compared(
    saved: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the systems whose evaluation measured them; without any there are no such columns."""
    assert compare.main([*saved, "--output", str(tmp_path / "compared")]) == 0
    assert "citation recall" not in capsys.readouterr().out
    for name, recall in (("sft", 0.0), ("rl", 1.0)):
        found = results([1.0, 2.0], 10, right=1)
        quality = [CitationQuality(recall, 0.5), CitationQuality(recall, 0.0)]
        dataclasses.replace(found, citations=quality).write(tmp_path / name)
    results([1.0, 2.0], 10, right=1).write(tmp_path / "old")
    systems = [*saved, f"old={tmp_path / 'old'}"]
    assert compare.main([*systems, "--output", str(tmp_path / "compared")]) == 0
    printed = capsys.readouterr().out
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in printed.splitlines()]
    rows = {row[0]: row[-2:] for row in cells if row}
    assert rows["system"] == ["citation recall %", "citation precision %"]
    assert rows["RL"] == [str(estimate([1.0, 1.0])), str(estimate([0.5, 0.0]))]
    assert rows["RL minus SFT"][0].startswith("+100.0")
    assert rows["old"] == rows["old minus SFT"] == ["–", "–"]


def test_a_line_that_is_no_result_is_named(
    saved: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "rl.jsonl").open("a") as file:
        file.write("nonsense\n")
    assert compare.main([*saved, "--output", str(tmp_path / "out")]) == 1
    assert "rl.jsonl:6: is not JSON" in capsys.readouterr().err
    good = (tmp_path / "rl.jsonl").read_text().splitlines()[:5]
    last = json.loads(good[4])
    for line, said in (
        (last | {"reward": "high"}, "field 'reward': expected a number or null"),
        (last | {"reward": 10**400}, "field 'reward': is too large for a number"),
        (last | {"reward": float("nan")}, "NaN is not a JSON number"),
        (last | {"supported": "yes"}, "field 'supported': expected a number or null"),
        (last | {"supported": -1}, "field 'supported': expected a number from 0 to 1, got -1"),
        (last | {"claim_f1": 5}, "field 'claim_f1': expected a number from 0 to 1, got 5"),
        (last | {"citation_recall": 1.5}, "field 'citation_recall': expected a number from 0 to 1"),
        (last | {"claim_f1": [1]}, "field 'claim_f1': expected a number or null"),
        (last | {"faults": "verbatim"}, "field 'faults': expected a list"),
        (last | {"faults": [[]]}, "field 'faults[0]': expected some text"),
        (last | {"text": 5}, "field 'text': expected a string"),
        (last | {"declined": "no"}, "field 'declined': expected true, false or null"),
        (last | {"question_id": None}, "field 'question_id': is missing"),
        (last | {"question_id": {}}, "field 'question_id': expected a string"),
        ([], "expected an object"),
    ):
        lines = [*good[:4], json.dumps(line)]
        (tmp_path / "rl.jsonl").write_text("\n".join(lines))
        assert compare.main([*saved, "--output", str(tmp_path / "out")]) == 1
        assert f"rl.jsonl:5: {said}" in capsys.readouterr().err
    (tmp_path / "rl.jsonl").write_text("[" * 100_000)
    assert compare.main([*saved, "--output", str(tmp_path / "out")]) == 1
    assert "rl.jsonl:1: is nested too deeply" in capsys.readouterr().err
    (tmp_path / "rl.jsonl").write_bytes(b"\xff\n")
    assert compare.main([*saved, "--output", str(tmp_path / "out")]) == 1
    assert "rl.jsonl:1: byte 1 is not UTF-8" in capsys.readouterr().err
    (tmp_path / "rl.jsonl").write_text("\n".join(good[:4]))
    for summary, said in (
        ("[" * 100_000, "is nested too deeply"),
        ('{"run": 5}', "field 'run': expected an object or null"),
        ('{"run": {"parameters": 0}}', "field 'run.parameters': expected a number from 1, got 0"),
    ):
        (tmp_path / "rl.json").write_text(summary)
        assert compare.main([*saved, "--output", str(tmp_path / "out")]) == 1
        assert f"rl.json: {said}" in capsys.readouterr().err
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert compare.main([saved[0], f"none={tmp_path / 'empty'}", "--output", str(empty)]) == 1
    assert "no question was answered by all systems" in capsys.readouterr().err


@pytest.mark.parametrize("main", [compare.main, compare_policies.main])
def test_other_questions_with_the_same_ids_are_refused(
    saved: list[str],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[list[str]], int],
) -> None:
    for name in ("rl.jsonl", "rl_samples.jsonl"):
        path = tmp_path / name
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1]["question"] = "Where?\x1b[31m"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([*saved, "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "question 'q1' is 'When? <img src" in said
    assert "of SFT and 'Where?\\x1b[31m' of RL: their questions must be the same" in said
    assert said.count("\n") == 1


def test_a_question_that_is_answered_twice_is_refused(
    saved: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last of two answers counted, without a word; all samples of a question may be there."""
    path = tmp_path / "rl.jsonl"
    good = path.read_text().splitlines()
    for id in ("q1", "q9"):  # one has an answer; the other was declined
        path.write_text("\n".join([*good, json.dumps({"question_id": id, "reward": 9.0})]))
        assert compare.main([*saved, "--output", str(tmp_path / "out")]) == 1
        said = capsys.readouterr().err
        assert f"{path}:6: field 'question_id': {id!r} is already in line " in said
        assert said.count("\n") == 1


def test_what_earlier_versions_wrote_is_read(tmp_path: pathlib.Path) -> None:
    """Fewer fields, numbers as ids, and no summary, or one without the model's size."""
    lines = [{"question_id": 7, "log_prob": -1.5, "supported": 1, "claim_correct": None}]
    records.write_json(tmp_path / "old.jsonl", lines)
    system = read_system("old", tmp_path / "old")
    assert (system.answers, system.parameters) == ([{**lines[0], "question_id": "7"}], None)
    (tmp_path / "old.json").write_text('{"run": {}}')
    assert read_system("old", tmp_path / "old") == system

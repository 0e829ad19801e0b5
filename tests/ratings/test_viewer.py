"""Pages of rated answers: all are there, quotes are marked, and strangers' texts stay texts."""

import dataclasses
import gzip
import html
import json
import pathlib
import re
from typing import Any

import pytest

from gophercite import cli
from gophercite.browser.environment import reset
from gophercite.browser.episodes import Episode, EpisodeStep, write_episodes
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.evidence import format as format_evidence
from gophercite.rating_site.viewer import write_viewer
from gophercite.records import Comparison, Extract, LongAnswer, RatedAnswer, write_json
from gophercite.records import write as write_records
from gophercite.records.answers import Answer, Sample, answer_to_json, cite
from tests.ratings.served import Elements
from tests.seen_html import HOSTILE

EVIL = " ".join(text for text in HOSTILE if text.isprintable())
PAGE = Document("p", f"T {EVIL}", f"Before. The tower fell. {EVIL} After.", "https://x.example/")


def answer(number: int, question: str = "Q") -> RatedAnswer:
    claim = f"claim {number} {EVIL}"
    return RatedAnswer(
        f"q{number}",
        f"{question} {number}",
        (PAGE,),
        claim,
        PAGE.title,
        "the tower FELL.",
        "p",
        plausible=True,
        supported=number % 2 == 0,
        ratings=({"rater": "r1", "comment": EVIL, "plausible": True},),
        model=f"m{number % 3}",
    )


def rows_of(index: str) -> list[dict[str, Any]]:
    match = re.search(r'<script type="application/json" id="rows">(.*?)</script>', index, re.DOTALL)
    assert match is not None
    return list(json.loads(match[1]))


def test_every_answer_is_found_and_shown(tmp_path: pathlib.Path) -> None:
    assert write_viewer(tmp_path, f"All {EVIL}", (answer(n) for n in range(250))) == 250
    index = (tmp_path / "index.html").read_text("utf-8")
    rows = rows_of(index)
    assert len(rows) == 250
    assert rows[7]["supported"] == "no"
    assert rows[8]["supported"] == "yes"
    for number in (0, 99, 100, 249):
        name, anchor = rows[number]["h"].split("#")
        part = (tmp_path / name).read_text("utf-8")
        article = part.split(f'<article id="{anchor}">')[1].split("</article>")[0]
        assert f"claim {number} " in html.unescape(article)
        assert Elements(article).marked == "The tower fell."
    assert sorted(path.name for path in tmp_path.glob("part-*")) == [
        f"part-{n:04d}.html" for n in (1, 2, 3)
    ]
    assert index.count('href="part-') == 3, "without scripts, a list of the parts"


def test_strangers_texts_are_no_markup(tmp_path: pathlib.Path) -> None:
    triple = (Evidence(EVIL, EVIL, EVIL),)
    long = LongAnswer(f"A [1] {EVIL}", (Extract(EVIL, EVIL),))
    pairs = [
        Comparison("c1", EVIL, EVIL, (triple, EVIL), 0.5, (True, False), ({"rater": EVIL},)),
        Comparison("c2", EVIL, EVIL, (long, long), None),
    ]
    write_viewer(tmp_path, EVIL, [answer(0, EVIL), *pairs])
    for path in tmp_path.glob("*.html"):
        elements = Elements(path.read_text("utf-8")).elements
        assert all(tag not in ("img", "svg", "iframe") for tag, _ in elements)
        assert not [name for _, found in elements for name in found if name.startswith("on")]
        scripts = [found for tag, found in elements if tag == "script"]
        assert len(scripts) == (2 if path.name == "index.html" else 0)
    index = (tmp_path / "index.html").read_text("utf-8")
    assert "default-src 'none'" in index
    assert "script-src 'sha256-" in index
    assert rows_of(index)[1]["preferred"] == "tie"
    assert rows_of(index)[1]["first supported and plausible"] == "yes"
    assert rows_of(index)[2]["preferred"] == "undecided"


def line(number: int, **more: object) -> dict[str, object]:
    """A sample as `launch/eval.py` writes it."""
    triple = Evidence(f"claim {number} {EVIL}", PAGE.title, "The tower fell.")
    return {
        "question_id": f"q{number}",
        "question": f"Q {number} {EVIL}",
        "document": "p" if number % 2 else None,
        "text": " " + format_evidence(triple),
        "tokens": [1, 2],
        "log_prob": -1.5,
        "reward": float(number % 7) - 3.0,
        "supported_and_plausible": 0.25,
        "faults": [],
        "well_formed": True,
        "verbatim": number % 3 == 0,
        "claim_correct": None,
        "supported": None,
        "seed": 0,
        "model": f"rl {EVIL}",
        **more,
    }


def asked(number: int) -> dict[str, object]:
    """An answer as `gophercite ask --json` and `launch/infer.py` write it, with all its samples."""
    citation = cite(Evidence("It fell.", PAGE.title, "The tower fell."), PAGE, 8)
    samples = tuple(
        Sample((citation,), f"raw {EVIL}", reward, -1.0, -0.5, 9, reward, 0.5)
        for reward in (-2.0, 5.0)
    )
    answer = Answer(
        f"Asked {number} {EVIL}",
        f"m {EVIL}",
        citations=(citation,),
        score=float(number),
        scored_by="reward",
        likelihood=-3.0,
        reward_model="rm",
        supported_and_plausible=0.9,
        samples=samples,
    )
    return {"question_id": f"q{number}", **answer_to_json(answer)}


def article_of(folder: pathlib.Path, row: dict[str, Any]) -> str:
    name, anchor = row["h"].split("#")
    part = (folder / name).read_text("utf-8")
    return part.split(f'<article id="{anchor}">')[1].split("</article>")[0]


def test_rewards_are_shown_and_what_lists_are_sorted_by(tmp_path: pathlib.Path) -> None:
    """Of samples, of answers with all their samples, of episodes; evidence is marked, too."""
    declined = {"question_id": "d", "question": "Why?", "declined": True, "reason": f"no {EVIL}"}
    lines = [*(line(n) for n in range(9)), line(9, text="no triple", reward=None), declined]
    write_json(tmp_path / "samples.jsonl", lines)
    write_json(tmp_path / "asked.jsonl", [asked(n) for n in range(3)])
    start = reset(f"E {EVIL}?")
    state = dataclasses.replace(start, phase="done", end="nonsense")
    step = EpisodeStep("read", f"Search {EVIL}")
    rewarded = Episode("e", "q", "w", f"bc {EVIL}", start, (step,), state, -0.75, supported=False)
    write_episodes(tmp_path / "episodes.jsonl", [rewarded])
    namesake = dataclasses.replace(PAGE, id="p0", url="https://other.example/")
    write_records(tmp_path / "pages.jsonl", [namesake, PAGE])
    files = [str(tmp_path / f"{name}.jsonl") for name in ("samples", "asked", "episodes")]
    out, pages = tmp_path / "pages", ["--documents", str(tmp_path / "pages.jsonl")]
    assert cli.main(["rate", "view", str(out), *files, *pages]) == 0
    rows = rows_of((out / "index.html").read_text("utf-8"))
    assert len(rows) == 11 + 3 + 1
    numbers = [row["n"] for row in rows]
    assert [each.get("reward") for each in numbers] == [
        *(float(n % 7) - 3.0 for n in range(9)), None, None, 0.0, 1.0, 2.0, -0.75
    ]  # fmt: skip
    assert numbers[0]["probability supported and plausible"] == 0.25
    assert numbers[11]["log-probability"] == -3.0
    assert "reward: -3, " in rows[0]["l"]
    assert rows[3]["verbatim"] == "yes"
    assert rows[4]["verbatim"] == "no"
    assert "claim correct" not in rows[3], "it is not known"
    assert rows[10]["declined"] == "yes"
    assert (rows[14]["supported"], rows[14]["end"]) == ("no", "nonsense")
    for place in (0, 1, 11):
        assert Elements(article_of(out, rows[place])).marked == "The tower fell."
    assert "https://x.example/" in article_of(out, rows[1]), "the page that it was given"
    assert "https://other.example/" in article_of(out, rows[0]), "the first with title and quote"
    with_samples = html.unescape(article_of(out, rows[12]))
    assert with_samples.index("reward: 5") < with_samples.index("reward: -2"), "the best first"
    assert "reward: -0.75" in article_of(out, rows[14])
    index = Elements((out / "index.html").read_text("utf-8"))
    for number in ("reward", "log-probability"):
        assert ("option", {"value": f"-{number}"}) in index.elements
    for path in out.glob("*.html"):
        found = Elements(path.read_text("utf-8")).elements
        assert not {tag for tag, _ in found} & {"img", "svg", "iframe", "b"}
        assert len([tag for tag, _ in found if tag == "script"]) == 2 * (path.name == "index.html")
        assert not [name for _, each in found for name in each if name.startswith("on")]


def test_bad_lines_are_named_and_the_others_shown(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [{"x": 1}, line(0, reward="high"), {"question": "Q", "text": 5}, line(1), [1]]
    write_json(tmp_path / "s.jsonl", bad)  # type: ignore[arg-type]
    assert cli.main(["rate", "view", str(tmp_path / "out"), str(tmp_path / "s.jsonl")]) == 1
    said = capsys.readouterr()
    assert "1 answer" in said.out
    for number, what in (
        (1, "is neither a rated answer"),
        (2, "'reward'"),
        (3, "'text'"),
        (5, "object"),
    ):
        (named,) = (each for each in said.err.splitlines() if f"s.jsonl:{number}:" in each)
        assert what in named


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = RatedAnswer("q", "When?", (PAGE,), "It fell.", PAGE.title, "The tower fell.", "p")
    write_records(tmp_path / "a.jsonl", [plain])
    text = Comparison("c", "Why?", "mine", ("One.", "Two."), 1.0)
    write_records(tmp_path / "c.jsonl", [text])
    files = [str(tmp_path / name) for name in ("a.jsonl", "c.jsonl")]
    assert cli.main(["rate", "view", str(tmp_path / "pages"), *files]) == 0
    assert "2 answers" in capsys.readouterr().out
    assert (tmp_path / "pages" / "index.html").exists()


def test_a_file_without_answers_leaves_the_pages_of_an_earlier_run(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path / "a.jsonl", [answer(number) for number in range(101)])
    pages, good = tmp_path / "pages", str(tmp_path / "a.jsonl")
    assert cli.main(["rate", "view", str(pages), good]) == 0
    before = {path.name: path.read_text() for path in pages.iterdir()}
    assert len(before) == 3
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n[]\n')
    whole = gzip.compress((tmp_path / "a.jsonl").read_bytes() * 3)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-30])
    capsys.readouterr()
    for name, said in (
        ("empty.jsonl", "empty.jsonl: holds no records"),
        ("bad.jsonl", "bad.jsonl: no line of it is usable; line 1: is neither"),
        ("cut.jsonl.gz", "the compressed file is damaged here"),
    ):
        assert cli.main(["rate", "view", str(pages), good, str(tmp_path / name)]) == 1
        assert said in capsys.readouterr().err
        assert {path.name: path.read_text() for path in pages.iterdir()} == before

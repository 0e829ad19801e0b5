"""Pages of rated answers: all are there, quotes are marked, and strangers' texts stay texts."""

import html
import json
import pathlib
import re

import pytest

from gophercite import cli
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.ratings.viewer import write_viewer
from gophercite.records import Comparison, Extract, LongAnswer, RatedAnswer
from gophercite.records import write as write_records
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


def rows_of(index: str) -> list[dict[str, str]]:
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


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = RatedAnswer("q", "When?", (PAGE,), "It fell.", PAGE.title, "The tower fell.", "p")
    write_records(tmp_path / "a.jsonl", [plain])
    text = Comparison("c", "Why?", "mine", ("One.", "Two."), 1.0)
    write_records(tmp_path / "c.jsonl", [text])
    files = [str(tmp_path / name) for name in ("a.jsonl", "c.jsonl")]
    assert cli.main(["rate", "view", str(tmp_path / "pages"), *files]) == 0
    assert "2 answers" in capsys.readouterr().out
    assert (tmp_path / "pages" / "index.html").exists()

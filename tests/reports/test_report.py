"""Tables of judgements and of sample answers."""

import pathlib
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.documents import Document
from gophercite.evaluation import intervals
from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.metrics import judge
from gophercite.records import Question, Span
from gophercite.reports import page as html
from gophercite.reports import report
from gophercite.reports.report_files import Image, Section, write_report

PAGE = Document("o", "Ormsby", "Its lighthouse was built in 1874.")
QUESTION = Question("q", "When?", "test", (PAGE,), ("1874",), (Span("o", 0, 33),))
GOOD = " %<1874>%(Ormsby)%[Its lighthouse was built in 1874.]%"
BAD = "It was | <b>1874</b>\n\x1b[31m"


def sample(text: str) -> JudgedSample:
    return JudgedSample(QUESTION, text, text, judge(text, QUESTION))


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    # Wilson's interval at 90 %, worked out from its definition: the p with |p̂ − p| = z·σ(p).
    [(0, 20, 0.0, 0.119), (20, 20, 0.881, 1.0), (96, 115, 0.770, 0.884), (1, 1, 0.270, 1.0)],
)
def test_intervals_of_rates(successes: int, count: int, low: float, high: float) -> None:
    values = [1.0] * successes + [0.0] * (count - successes)
    found = intervals.estimate(values)
    assert found.mean == pytest.approx(successes / count)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
    for edge in (found.low, found.high):
        if 0 < edge < 1:
            error = (edge * (1 - edge) / count) ** 0.5
            assert abs(found.mean - edge) == pytest.approx(1.6449 * error)


def test_the_paper_s_interval() -> None:
    """GopherCite's table 1 has 83.5 ± 5.7 over 115 questions."""
    found = intervals.estimate([1.0] * 96 + [0.0] * 19)
    assert found.as_in_paper == "83.5 ± 5.7"
    assert found.reach == pytest.approx(1.6449 * (96 * 19 / 115**3) ** 0.5)
    assert intervals.estimate([1.0]).reach == 0


@given(st.lists(st.floats(0, 1), min_size=1))
def test_intervals_hold_the_mean(values: list[float]) -> None:
    found = intervals.estimate(values)
    assert 0 <= found.low <= found.mean + 1e-9
    assert found.mean - 1e-9 <= found.high <= 1
    assert found.count == len(values)


def test_the_table_of_metrics() -> None:
    judgements = [judge(GOOD, QUESTION)] * 3 + [judge(BAD, QUESTION)]
    unknown = judge(GOOD, Question("q", "When?", "test", (PAGE,)))
    table = report.metrics_table(
        {"model | 1": judgements, "bare": [unknown], "none": []}
    ).markdown()
    assert len({len(line) for line in table.splitlines()}) == 1
    lines = [re.sub(" +", " ", line) for line in table.splitlines()]
    assert lines[0].startswith("| system | answers | well-formed % | verbatim quote % |")
    assert lines[2].startswith("| model \\| 1 | 4 | 75.0 (")
    assert lines[3].endswith("| – | – | – | – |")
    assert lines[4] == "| none | 0 | – | – | – | – | – | – |"
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1


def test_the_table_of_samples_is_safe_to_show() -> None:
    lines = (
        report.samples_table([sample(GOOD + GOOD), sample(BAD)])
        .markdown(aligned=False)
        .splitlines()
    )
    assert lines[2] == "| When? | 1874 | 1874 | Ormsby | Its lighthouse was built in 1874. | none |"
    assert lines[3].startswith("| ″ | ″ | 1874 | Ormsby |")
    assert lines[4].endswith("| malformed |")
    assert "\\| &lt;b&gt;1874&lt;/b&gt; \\\\u001b\\[31m" in lines[4]
    assert len(lines) == 5


def test_the_paragraph_for_a_terminal() -> None:
    assert report.describe(sample(GOOD)) == (
        "Question: When?\n"
        "Answer:   1874\n"
        "Page:     Ormsby\n"
        "Quote:    Its lighthouse was built in 1874.\n"
        "Checked:  quote is verbatim; claim is right; supported"
    )
    text = report.describe(sample(BAD), width=60)
    assert "malformed; accepted: 1874; not supported" in text
    assert "\x1b" not in text


def test_the_page_says_before_each_question_whether_the_answer_is_right() -> None:
    """By a sign, a word and a colour: not by colour alone."""
    page = Document("o", "Ormsby", "A town. Its lighthouse was built in 1874.")
    question = Question("q", "When?", "mine", (page,), ("1874",), (Span("o", 8, 41),))
    unknown = Question("u", "When?", "mine", (page,))
    right = "%<1874>%(Ormsby)%[Its lighthouse was built in 1874.]%"
    shown = {
        text: html.answers([JudgedSample(asked, text, text, judge(text, asked), (), 0.0)])
        for asked, text in (
            (question, right),
            (question, right.replace("<1874", "<1901")),
            (unknown, "nothing at all"),
            (unknown, right + " "),
        )
    }
    marks = ['<span class="yes">✓ right</span> When?', '<span class="no">✗ wrong</span> When?',
             '<span class="no">✗ malformed</span> When?', "When?"]  # fmt: skip
    for said, mark in zip(shown.values(), marks, strict=True):
        assert f"<summary>{mark}</summary>" in said


def test_figures_are_found_beside_a_report_of_any_name(tmp_path: pathlib.Path) -> None:
    """A link of Markdown ends at a blank or a bracket, and a browser takes # and ? for its own."""
    figure = Section(images={"roc": Image(b"png", "Of [both] systems")})
    write_report(tmp_path / "my report (2) #1?", "Title", [figure])
    (text,) = (path.read_text("utf-8") for path in tmp_path.glob("*.md"))
    (link,) = re.findall(r"\]\(([^()\s#?]+)\)$", text, re.MULTILINE)
    assert (tmp_path / unquote(link)).read_bytes() == b"png"

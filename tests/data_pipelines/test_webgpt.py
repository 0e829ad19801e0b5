"""WebGPT's questions (appendix B) and its released comparisons (appendix K)."""

import json
from pathlib import Path

import pytest

from data_pipelines.converters.gold import ConversionReport
from data_pipelines.converters.webgpt import (
    ReleasedAnswer,
    ReleasedComparison,
    convert_webgpt_comparisons,
    read_webgpt_comparisons,
    write_webgpt_comparisons,
)
from data_pipelines.webgpt_questions import (
    arc_question,
    eli5_question,
    fact_check_question,
    is_question,
)

# --- Questions ---


@pytest.mark.parametrize(
    ("title", "selftext", "question"),
    [
        ("gravity", "", "Explain: gravity"),
        ("Gravity, ELI5", "", "Gravity, ELI5"),
        ("gravity?", "[removed]", "gravity?"),
        ("Why gravity", "[deleted]", "Why gravity"),
        ("gravity", "How does it work", "gravity\n\nHow does it work"),
        ("Whyever", "", "Explain: Whyever"),  # no word boundary
        ("the ISN'T of it", "", "the ISN'T of it"),  # isn, before the apostrophe
        ("see _URL_1_ and _URL_7_", "_URL_0_", "Explain: see http://b and _URL_7_\n\nhttp://a"),
    ],
)
def test_questions_of_eli5(title: str, selftext: str, question: str) -> None:
    assert eli5_question(title, selftext, ["http://a", "http://b"]) == question


def test_deleted_questions_are_none() -> None:
    assert eli5_question("[deleted by user]", "What?") is None


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("whats up", True),
        ("mustnt", True),
        ("the cans", False),
        ("can_opener", False),
        ("shan't", False),
        ("WOULDN", True),
        ("", False),
        ("historic", False),
    ],
)
def test_telling_words_stand_between_boundaries(text: str, asks: bool) -> None:
    assert is_question(text) == asks


def test_other_questions() -> None:
    assert arc_question("Which is a star?", ["Sun", "Moon"]) == "Which is a star?\nA. Sun\nB. Moon"
    with pytest.raises(ValueError, match="27 options"):
        arc_question("?", ["x"] * 27)
    assert fact_check_question("Why?", "So.") == (
        "Fact-check each of the claims in the following answer.\n\nQuestion: Why?\n\nAnswer: So."
    )


# --- Comparisons ---

COMPARISONS = [
    ReleasedComparison(
        "Why?",
        "eli5",
        "abc",
        (
            ReleasedAnswer(
                "So [1].", (("A (a.org)", "Text."), ("B", "More.")), 0.5, (1, 50256), (7,)
            ),
            ReleasedAnswer("Thus.", (), -0.5),
        ),
    ),
    ReleasedComparison(
        "How?", "arc", "7", (ReleasedAnswer("é", (), 0), ReleasedAnswer("b", (), 0))
    ),
]


@pytest.mark.parametrize("flat", [False, True])
def test_comparisons_are_written_and_read(tmp_path: Path, flat: bool) -> None:
    path, report = tmp_path / "comparisons.jsonl", ConversionReport()
    assert write_webgpt_comparisons(path, COMPARISONS, flat=flat) == 2
    assert [each for _, each in read_webgpt_comparisons(path, report)] == COMPARISONS
    first, second = convert_webgpt_comparisons(path, report)
    assert (first.preferred, second.preferred, first.source) == (0.0, 0.5, "webgpt_eli5")
    assert first.responses[0] == "So [1].\n\n[1] A (a.org)\nText.\n\n[2] B\nMore."
    assert not report.problems


def test_the_released_form_is_that_of_the_documentation(tmp_path: Path) -> None:
    path = tmp_path / "comparisons.jsonl"
    write_webgpt_comparisons(path, COMPARISONS)
    pair = json.loads(path.read_text("utf-8").splitlines()[0])
    assert pair[0]["question"] == pair[1]["question"]
    assert pair[0]["question"] == {"dataset": "eli5", "id": "abc", "full_text": "Why?"}
    assert pair[0]["quotes"][0] == {"title": "A (a.org)", "extract": "Text."}
    assert pair[0]["tokens"] == {"prefix": [1, 50256], "completion": [7]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"score": True}, "score"),
        ({"quotes": [{"title": "x"}]}, "quotes"),
        ({"quotes": ["x"]}, "quotes"),
        ({"tokens": [1]}, "tokens"),
        ({"tokens": {"prefix": ["x"]}}, "tokens.prefix"),
        ({"answer": " "}, "answer"),
        ({"question": {"full_text": "Other?"}}, "question"),
    ],
)
def test_bad_pairs_are_named_and_passed_over(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    path, report = tmp_path / "comparisons.jsonl", ConversionReport()
    write_webgpt_comparisons(path, COMPARISONS)
    good = path.read_text("utf-8")
    pair = json.loads(good.splitlines()[0])
    pair[1] |= change
    path.write_text(json.dumps(pair) + "\n[1]\n[{}, {}]\n" + good, "utf-8")
    assert [number for number, _ in read_webgpt_comparisons(path, report)] == [4, 5]
    assert problem in report.problems[0]
    assert ":1: " in report.problems[0]
    assert len(report.problems) == 3

"""A judged answer beside its page."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen_html import TEXTS, Seen, as_shown

from gophercite import evidence
from gophercite.documents import Document
from gophercite.records import Question, Span
from gophercite.reports.shown_answers import show_answer

PAGE = Document("o", "Ormsby", "It rains. Its lighthouse was built in 1874. The harbour is small.")
OTHER = Document("k", "Kell", "Kell has no lighthouse, and its harbour is smaller.")
QUESTION = Question("q", "When?", "test", (OTHER, PAGE), ("1874",), (Span("o", 10, 43),))
BUILT = "Its lighthouse was built in 1874."


def line(text: str, **fields: Any) -> dict[str, Any]:
    return {"question_id": "q", "text": text, "reward": 1.25, "log_prob": -0.5, **fields}


def test_a_good_answer_has_its_quote_marked() -> None:
    shown = show_answer(line(f" %<1874>%(Ormsby)%[{BUILT}]%"), QUESTION).body
    assert f"It rains. <mark>{BUILT}</mark> The harbour" in shown
    for said in ("1874</p>", "✓ verbatim", "✓ supported", "accepted: 1874", "reward 1.25"):
        assert said in shown
    assert "faults" not in shown
    assert "Kell" not in shown


def test_what_is_most_like_a_wrong_quote_is_marked_otherwise() -> None:
    said = line(" %<1901>%(Ormsby)%[Its lighthouse was built in 1901.]%")
    shown = show_answer(said, QUESTION).body
    assert '<mark class="near">Its lighthouse was built in 1' in shown
    assert "✗ claim correct" in shown
    assert "faults: wrong quote" in shown


def test_a_quote_that_leaves_words_out_has_each_run_marked() -> None:
    said = line(" %<1874>%(Ormsby)%[Its lighthouse [...] in 1874.]%")
    shown = show_answer(said, QUESTION, maximum_omissions=1).body
    assert "<mark>Its lighthouse</mark> was built <mark>in 1874.</mark>" in shown


def test_a_wrong_title_is_named() -> None:
    shown = show_answer(line(f" %<1874>%(Orms)%[{BUILT}]%"), QUESTION).body
    assert "no page has the title &#x27;Orms&#x27;" in shown
    assert f'<mark class="near">{BUILT}</mark>' in shown


@pytest.mark.parametrize("title", ["Ormsby", "Orms"])
def test_a_quote_like_nothing_is_said_to_be_so(title: str) -> None:
    shown = show_answer(line(f" %<1874>%({title})%[Wholly unrelated prose on bees.]%"), QUESTION)
    assert "<mark" not in shown.body
    assert "Wholly unrelated prose on bees." in shown.body
    assert ("nor anything similar" if title == PAGE.title else "no page has anything similar") in (
        shown.body
    )
    assert (PAGE.text in shown.body) == (title == PAGE.title)


def test_a_malformed_answer_is_shown_as_it_is() -> None:
    shown = show_answer(line("It was <b>1874</b> ]]>"), QUESTION).body
    assert "<blockquote>It was &lt;b&gt;1874&lt;/b&gt; ]]&gt;</blockquote>" in shown
    assert "✗ well-formed" in shown
    assert "faults: malformed" in shown


def test_the_judged_part_of_a_few_shot_answer_is_shown() -> None:
    answer = f" %<1874>%(Ormsby)%[{BUILT}]%"
    shown = show_answer(line(f'1874 "{BUILT}"\nQuestion: Where?', answer=answer), QUESTION).body
    assert f"<mark>{BUILT}</mark>" in shown
    assert "✓ supported" in shown
    shown = show_answer(line("1874\nQuestion: Where?", answer="1874"), QUESTION).body
    assert "<blockquote>1874</blockquote>" in shown


@given(TEXTS, st.one_of(TEXTS, st.just(" %<a>%(t)%[quoted]%")))
def test_answers_and_pages_of_strangers_are_text(text: str, said: str) -> None:
    page = Document("d", "t", f"{text} quoted {text}")
    question = Question("q", text or "?", "test", (page,), (text or "?",))
    seen = Seen(show_answer(line(said), question, context=10**6).body)
    assert {tag for tag, _ in seen.elements} <= {
        "p",
        "section",
        "div",
        "mark",
        "blockquote",
        "span",
        "bdi",
        "a",
    }
    if evidence.faults(said, [page]) == frozenset():
        assert as_shown(page.text) in seen.text


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"question_id": "other"}, "to question 'other', not 'q'"),
        ({"declined": True, "reason": "nothing found"}, "was declined: nothing found"),
    ],
)
def test_another_questions_answer_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show_answer(line("", **said), QUESTION)

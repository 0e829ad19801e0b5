"""Pages with marks: whatever a page holds is shown as text, and nothing of it is lost unsaid."""

import html
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen_html import TEXTS, Seen, as_shown

from gophercite.documents import Document
from gophercite.html.escaping import escape_html, whole_page
from gophercite.html.marked_pages import Mark, MarkedPages, address, marked_text, source

DOCUMENTS = TEXTS.map(lambda text: Document("d", text, text, text or None))


@st.composite
def marked(draw: st.DrawFn) -> tuple[str, list[Mark]]:
    text = draw(DOCUMENTS).text
    marks = []
    for number in range(draw(st.integers(0, 4)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, min(len(text), start + 60)))
        marks.append(Mark(start, end, str(number), draw(st.booleans())))
    return text, marks


@given(marked())
def test_the_whole_text_is_there_and_just_the_marks_are_marked(
    page: tuple[str, list[Mark]],
) -> None:
    text, marks = page
    seen = Seen(marked_text(text, marks, context=len(text)))
    assert {tag for tag, _ in seen.elements} <= {"mark"}
    assert seen.text == as_shown(text)
    covered = {place for mark in marks for place in range(mark.start, mark.end)}
    assert seen.marked == as_shown("".join(text[place] for place in sorted(covered)))
    labels = " ".join(attributes.get("data-label") or "" for _, attributes in seen.elements)
    assert sorted(labels.split()) == sorted(mark.label for mark in marks)


@given(marked(), st.integers(0, 60))
def test_what_is_left_out_is_counted(page: tuple[str, list[Mark]], context: int) -> None:
    text, marks = page
    seen = Seen(marked_text(text, marks, context))
    missing = sum(int(re.sub(r"\D", "", gap)) for gap in seen.gaps)
    if not re.search("[^\n\t -~]", text):  # nothing is shown by its code, so characters count
        assert len(seen.text) + missing == len(text)
    covered = {place for mark in marks for place in range(mark.start, mark.end)}
    assert seen.marked == as_shown("".join(text[place] for place in sorted(covered)))


@given(DOCUMENTS, TEXTS)
def test_a_page_of_strangers_is_text(document: Document, said: str) -> None:
    marks = [Mark(0, 1, said)] if document.text else []
    page = MarkedPages(said, source(document, marks, said)).page()
    seen = Seen(page)
    allowed = {"html", "head", "meta", "title", "style", "body"}
    allowed |= {"div", "section", "p", "mark", "span", "bdi", "a"}
    assert {tag for tag, _ in seen.elements} <= allowed
    for tag, attributes in seen.elements:
        assert not any(name.startswith("on") for name in attributes), tag
        if tag == "a":
            assert attributes["href"].lower().startswith(("http://", "https://"))  # type: ignore[union-attr]
    assert as_shown(document.title) in seen.text
    assert document.sha256 in seen.text


@given(TEXTS)
def test_what_steers_is_shown_by_its_code(text: str) -> None:
    shown = html.unescape(escape_html(text))
    assert all(c in "\n\t" or unicodedata.category(c) != "Cc" for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\ufeff")


def test_texts_from_right_to_left_keep_their_joiners_and_get_their_direction() -> None:
    text = "او می‌خواهد."
    assert escape_html(text) == text
    shown = source(Document("d", "تهران", text), [Mark(3, 11)], "")
    assert f'<div class="text" dir="auto">{text[:3]}<mark>{text[3:11]}</mark>.</div>' in shown


def test_a_long_page_shows_whole_words_around_its_marks() -> None:
    text = "Alpha beta gamma. " * 100 + "The quote stands here." + " Delta epsilon." * 100
    start = text.index("The quote")
    shown = marked_text(text, [Mark(start, start + 22, "1")], context=20)
    seen = Seen(shown)
    assert seen.marked == "The quote stands here."
    before, after = seen.text.split(seen.marked)
    assert text[:start].endswith(before)
    assert text[start + 22 :].startswith(after)
    for cut in (" " + before, after + " "):
        assert set(cut.split()) <= {"Alpha", "beta", "gamma.", "Delta", "epsilon."}
        assert len(cut) < 70


def test_overlapping_marks_are_cut_where_they_cross() -> None:
    shown = marked_text("abcdef", [Mark(0, 4, "1"), Mark(2, 6, "2", is_quote=False)])
    assert shown == (
        '<mark data-label="1">ab</mark><mark data-label="2">cd</mark><mark class="near">ef</mark>'
    )


@pytest.mark.parametrize("mark", [Mark(-1, 2), Mark(2, 2), Mark(3, 7)])
def test_a_mark_outside_the_text_is_refused(mark: Mark) -> None:
    with pytest.raises(ValueError, match="is not in a text of 6 characters"):
        marked_text("abcdef", [mark])
    with pytest.raises(ValueError, match="context = -1"):
        marked_text("abcdef", [], context=-1)


def test_only_addresses_of_the_web_are_links() -> None:
    assert address("javascript:alert(1)") == "<bdi>javascript:alert(1)</bdi>"
    assert address("file:///etc/passwd").startswith("<bdi>")
    link = address('https://a.example/?q="<b>')
    assert link.startswith('<a href="https://a.example/?q=&quot;&lt;b&gt;" rel="noopener')


def test_a_whole_page_runs_and_loads_nothing() -> None:
    page = whole_page("</title><script>", "p { margin: 0; }", "<p>text</p>")
    assert "<title>&lt;/title&gt;&lt;script&gt;</title>" in page
    assert "default-src 'none'" in page

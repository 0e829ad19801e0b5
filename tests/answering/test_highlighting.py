"""An answer beside its pages: what is marked is what the page says now."""

import pathlib

import pytest

import gophercite
from gophercite.answering.highlighting import _other_words, highlight
from gophercite.answering.pages import index_in_memory
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.records.answers import Answer, Citation, cite

PAGE = Document(
    "o",
    "Ormsby <b>",
    "Ormsby is a fishing town. Its lighthouse was built in 1874. It rains ]]> a lot.",
    "https://ormsby.example/?a&b",
    "2026-11-21T09:30:00Z",
)
OTHER = Document("k", "Kell", "Kell is a village. Its tower is older than the lighthouse.")
BUILT = "Its lighthouse was built in 1874."
RAINS = "It rains ]]> a lot."
TOWER = "Its tower is older"


def citation(quote: str, page: Document = PAGE, claim: str = "In <1874>.") -> Citation:
    return cite(Evidence(claim, page.title, quote), page, page.text.index(quote))


def answer(*citations: Citation) -> Answer:
    return Answer("When & where?", "m", citations=citations, score=-0.5, scored_by="likelihood")


def test_a_quote_is_marked_in_its_page() -> None:
    shown = highlight(answer(citation(BUILT)), [OTHER, PAGE]).body
    assert f"Ormsby is a fishing town. <mark>{BUILT}</mark> It rains ]]&gt; a lot.</div>" in shown
    for said in (
        "When &amp; where?",
        "In &lt;1874&gt;.",
        "Ormsby &lt;b&gt;",
        "exact: characters 26–59",
        '<a href="https://ormsby.example/?a&amp;b"',
        "retrieved 2026-11-21T09:30:00Z",
        PAGE.sha256,
        "likelihood -0.5",
    ):
        assert said in shown
    assert "Kell" not in shown


def test_several_quotes_are_numbered_and_share_their_page() -> None:
    cited = [citation(RAINS), citation(TOWER, OTHER, "Older"), citation(BUILT)]
    shown = highlight(answer(*cited), [PAGE, OTHER]).body
    assert shown.count('<section class="source">') == 2
    ormsby, kell = shown.split('<section class="source">')[1:]
    assert f'<mark data-label="3">{BUILT}</mark> <mark data-label="1">It rains' in ormsby
    assert f'<mark data-label="2">{TOWER}</mark>' in kell
    assert "2. Older" in shown


def test_the_runs_of_a_quote_that_leaves_words_out_are_marked() -> None:
    triple = Evidence("Rain", PAGE.title, "fishing town [...] It rains")
    cited = cite(triple, PAGE, PAGE.text.index("fishing"), PAGE.text.index("It rains"))
    shown = highlight(answer(cited), [PAGE]).body
    assert "a <mark>fishing town</mark>. Its" in shown
    assert "<mark>It rains</mark>" in shown


def test_nothing_is_marked_on_the_answers_word() -> None:
    said = answer(citation(BUILT))
    moved = Document("o", PAGE.title, f"News. {PAGE.text}")
    shown = highlight(said, [moved]).body
    assert f"<mark>{BUILT}</mark>" in shown
    assert "moved: characters 32–65" in shown

    changed = Document("o", PAGE.title, PAGE.text.replace("1874", "1901"))
    shown = highlight(said, [changed]).body
    assert 'Its lighthouse was built in <mark class="near">1901' in shown
    assert "changed: the page has similar words, but not" in shown

    for pages in ([OTHER], [Document("o", PAGE.title, "Wholly other words, about bees.")]):
        shown = highlight(said, pages).body
        assert "<mark" not in shown
        assert f"<blockquote>{BUILT}</blockquote>" in shown
        assert "missing: " in shown


def test_a_declined_answer_says_why() -> None:
    declined = Answer("Why?", "m", reason="no page <was> found")
    assert "No answer: no page &lt;was&gt; found." in highlight(declined, [PAGE]).body


def test_documents_may_be_files_or_an_index(tmp_path: pathlib.Path) -> None:
    (tmp_path / "Ormsby.txt").write_text(PAGE.text)
    (tmp_path / "Kell.txt").write_text(OTHER.text)
    said = gophercite.answer("When was the lighthouse of Ormsby built?", tmp_path, None)
    shown = gophercite.highlight(said, tmp_path)
    assert f"<mark>{BUILT}</mark>" in shown.body
    with index_in_memory([PAGE]) as index:
        assert f"<mark>{BUILT}</mark>" in highlight(answer(citation(BUILT)), index).body
    with pytest.raises(FileNotFoundError):
        highlight(said, tmp_path / "nowhere")


def test_what_notebooks_show_is_of_one_style_and_the_page_is_whole() -> None:
    shown = highlight(answer(citation(BUILT)), [PAGE])
    assert shown._repr_html_().startswith('<div class="gophercite"><style>')
    assert shown.body in shown._repr_html_()
    assert shown.body in shown.page()
    assert shown.page().startswith("<!DOCTYPE html>")
    assert "<title>When &amp; where?</title>" in shown.page()


@pytest.mark.parametrize(
    ("quote", "found", "marked"),
    [
        ("It was built in 1874.", "It was built in 1901.", ["1901."]),
        ("Ada built it once.", "Ada  Vell re-built\nit once.", ["Vell re-built"]),
        ("a b c d", "a x c y", ["x", "y"]),
        ("a b c", "a c", ["a c"]),  # it only lacks some
    ],
)
def test_the_words_that_are_others_are_marked(quote: str, found: str, marked: list[str]) -> None:
    assert [found[start:end] for start, end in _other_words(quote, found)] == marked

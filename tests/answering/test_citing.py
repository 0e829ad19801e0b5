"""Where a citation says that a quote stands."""

from gophercite.answering.citing import cited
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence

TEXT = "To bathe cats is hard, but the cat sat. Then the cat left."
PAGE = Document("a", "Cats", TEXT)


def spans(quote: str, omissions: int = 0) -> list[tuple[int, int]]:
    windows = [Window(PAGE, 3, len(TEXT))]
    citations = cited(Evidence("x", "Cats", quote), windows, omissions)
    return [span for citation in citations for span in citation.spans]


def test_a_quote_stands_where_it_is_of_whole_words() -> None:
    assert spans("the cat") == [(27, 34)]  # not in "bathe cats"


def test_a_quote_that_is_nowhere_of_whole_words_stands_where_it_stands_first() -> None:
    assert spans("he ca") == [(6, 11)]


def test_runs_of_two_parts_of_a_page_are_one_citation() -> None:
    first, second = Window(PAGE, 3, 27), Window(PAGE, 40, len(TEXT))
    other = Window(Document("b", "Cats", "The cat left."), 0, 13)
    for windows in ((first, second), (second, first), (other, first, second)):
        (found,) = cited(Evidence("x", "Cats", "bathe cats [...] cat left."), windows, 1)
        assert (found.document, found.spans) == ("a", ((3, 13), (49, 58)))


def test_pages_with_one_id_are_not_mixed_up() -> None:
    other = Document("a", "Cats", "A dog barked.")
    windows = [Window(PAGE, 0, len(TEXT)), Window(other, 0, len(other.text))]
    (found,) = cited(Evidence("x", "Cats", "A dog barked."), windows, 0)
    assert found.sha256 == other.sha256


def test_runs_stand_behind_each_other() -> None:
    assert spans("the cat [...] the cat", omissions=1) == [(27, 34), (45, 52)]

"""Numbers with their nouns."""

from gophercite.text.counting import counted


def test_one_is_singular_and_all_else_plural() -> None:
    assert [counted(number, "page") for number in (0, 1, 2)] == ["0 pages", "1 page", "2 pages"]
    assert counted(1, "query", "queries") == "1 query"
    assert counted(3, "query", "queries") == "3 queries"

"""Numbers with their nouns, and in per cent."""

from gophercite.text.counting import counted, percent


def test_one_is_singular_and_all_else_plural() -> None:
    assert [counted(number, "page") for number in (0, 1, 2)] == ["0 pages", "1 page", "2 pages"]
    assert counted(1, "query", "queries") == "1 query"
    assert counted(3, "query", "queries") == "3 queries"


def test_a_share_is_not_rounded_to_all() -> None:
    shares = (0.95, 0.9, 0.29, 0.07, 0.999, 0.99999)
    assert [percent(share) for share in shares] == ["95%", "90%", "29%", "7%", "99.9%", "99.999%"]

"""The filters that all engines share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.retrieval.engine import Query, check_number_of_hits, parse_query


def test_filters_are_taken_out_of_the_query() -> None:
    query = parse_query("  Site:a.org how tall -site:b.org/x  is it site:a.org ")
    assert query == Query("how tall is it", ("a.org",), ("b.org/x",))
    assert str(query) == "how tall is it site:a.org -site:b.org/x"


def test_part_of_a_word_is_no_filter() -> None:
    assert parse_query("what is mysite:x and site: y") == Query("what is mysite:x and site: y")


@pytest.mark.parametrize(
    ("query", "url", "admitted"),
    [
        ("x", "not an address", True),
        ("site:example.org", "https://example.org/", True),
        ("site:example.org", "https://docs.EXAMPLE.org:8080/a", True),
        ("site:example.org", "https://notexample.org/", False),
        ("site:example.org", "https://example.org.evil.net/", False),
        ("site:example.org", "https://evil.net/example.org", False),
        ("site:example.org", "https://example.org@evil.net/", False),
        ("site:example.org/docs/", "https://example.org/docs/a", True),
        ("site:example.org/docs", "https://example.org/docs", True),
        ("site:example.org/docs", "https://example.org/docsets", False),
        ("site:https://example.org", "http://example.org/a", True),
        ("site:a.org site:b.org", "https://b.org/", True),
        ("site:a.org -site:x.a.org", "https://x.a.org/", False),
        ("-site:reddit.com", "https://old.reddit.com/r/x", False),
        ("-site:reddit.com", "", True),
        ("site:reddit.com", "", False),
        ("site:[::1", "https://a.org/", False),
        ("-site:[::1", "http://[::1", True),
    ],
)
def test_admission(query: str, url: str, admitted: bool) -> None:
    assert parse_query(query).admits(url) == admitted


@given(st.text(), st.text())
def test_any_string_is_a_query(query: str, url: str) -> None:
    parsed = parse_query(query)
    parsed.admits(url)
    again = parse_query(parsed.text)
    assert (again.sites, again.excluded_sites) == ((), ())


@given(st.text(st.sampled_from("site:-a. /"), max_size=20))
def test_no_filter_is_left_in_the_text(query: str) -> None:
    assert parse_query(parse_query(query).text).text == parse_query(query).text


def test_no_hits_can_not_be_asked_for() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        check_number_of_hits(0)

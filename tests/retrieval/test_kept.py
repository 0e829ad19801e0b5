"""What a long-lived process keeps in memory: within a limit, the least recently used dropped."""

from hypothesis import given
from hypothesis import strategies as st

from gophercite.retrieval.kept import Kept

KEYS = st.sampled_from("abcdef")


@given(st.lists(st.tuples(KEYS, st.integers(1, 12))), st.integers(1, 20))
def test_the_latest_that_fit_are_kept(used: list[tuple[str, int]], limit: int) -> None:
    """As a list does it that has the latest first and is cut where the limit is reached."""
    kept: Kept[str, int] = Kept(limit, size=lambda value: value)
    latest: dict[str, int] = {}
    made = []

    def make(key: str) -> int:
        made.append(key)
        return size

    for key, size in used:
        made.clear()
        value = kept.get(key, make)
        assert made == ([] if key in latest else [key])
        assert value == latest.get(key, size)
        latest = {key: value} | {other: each for other, each in latest.items() if other != key}
        while sum(latest.values()) > limit and len(latest) > 1:
            latest.popitem()
    assert [kept.find(key) for key in "abcdef"] == [latest.get(key) for key in "abcdef"]


def test_a_value_is_replaced_with_its_size() -> None:
    kept: Kept[str, str] = Kept(10, size=len)
    kept.keep("a", "aaaaaaaa")
    kept.keep("a", "a")
    kept.keep("b", "bbbbbbbbb")
    assert (kept.find("a"), kept.find("b")) == ("a", "bbbbbbbbb")
    kept.find("a")
    kept.keep("c", "c")
    assert (kept.find("a"), kept.find("b"), kept.find("c")) == ("a", None, "c")

"""Citation recall and precision, and a real server of a model on loopback."""

from collections.abc import Iterator, Sequence

import pytest
from entailment import entailment_server, says

from gophercite.evaluation.citations import (
    CitationQuality,
    EntailmentServer,
    EntailmentServerError,
    citation_quality,
)
from gophercite.evidence import Evidence


def by_words(pairs: Sequence[tuple[str, str]]) -> list[float]:
    assert len(set(pairs)) == len(pairs), "nothing is asked twice"
    return [0.9 if says(*pair) else 0.2 for pair in pairs]


def answer(*claims: tuple[str, str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(claim, "Page", quote) for claim, quote in claims)


@pytest.mark.parametrize(
    ("triples", "recall", "precision"),
    [
        ([("a b", "a b c")], 1, 1),
        ([("a b", "b c")], 0, 0),
        ([("a b", "a b"), ("c", "d")], 1 / 2, 1 / 2),
        # One claim with two quotes: together enough, each needed …
        ([("a b", "a"), ("a b", "b")], 1, 1),
        # … one of them not needed, as the other is enough …
        ([("a b", "a b"), ("a b", "c")], 1, 1 / 2),
        # … both enough.
        ([("a b", "a b"), ("a b", "b a")], 1, 1),
        ([("a b", "a"), ("c", "c"), ("a b", "b")], 1 / 3, 1 / 3),
    ],
)
def test_recall_and_precision(
    triples: list[tuple[str, str]], recall: float, precision: float
) -> None:
    found, nothing = citation_quality([answer(*triples), ()], by_words)
    assert found == CitationQuality(pytest.approx(recall), pytest.approx(precision))  # type: ignore[arg-type]
    assert nothing is None


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with entailment_server(most=2) as url:
        yield url


def test_a_server_is_asked_in_batches(server: str) -> None:
    pairs = [("a b", "a"), ("c", "a"), ("a", "a"), ("b", "b c"), ("d", "d")]
    entails = EntailmentServer(server + "/", batch_size=2)
    assert entails(pairs) == [0.75, 0.25, 0.75, 0.25, 0.75]
    assert entails([]) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/refuse", "status 413; it says: batch size > maximum"),
        ("/text", "the answer is not JSON; it says: <html>"),
        ("/deep", "the answer is not JSON"),
        ("/other", "LABEL_0.*expected for each pair"),
        ("/nan", "nan.*expected for each pair"),
        ("/few", "answered 1 of the 2 pairs that were sent"),
    ],
)
def test_what_is_wrong_with_a_server_is_said(server: str, path: str, said: str) -> None:
    with pytest.raises(EntailmentServerError, match=said):
        EntailmentServer(server + path, batch_size=2)([("a", "a"), ("b", "b")])


def test_a_server_that_is_not_there_is_named() -> None:
    said = r"http://127\.0\.0\.1:9/predict: can't be reached"
    with pytest.raises(EntailmentServerError, match=said):
        EntailmentServer("http://127.0.0.1:9", timeout=5).check()


@pytest.mark.parametrize("url", ["localhost:8080", "http://", "http://[::1", "ftp://a", "", "a b"])
def test_what_is_no_address_of_a_server_is_named(url: str) -> None:
    with pytest.raises(EntailmentServerError, match="is not the address of a server"):
        EntailmentServer(url)


def test_a_server_that_is_busy_or_begins_again_is_waited_for() -> None:
    failures: list[int | None] = [429, 503]
    with entailment_server(failures=failures) as url:
        entails = EntailmentServer(url, batch_size=1, attempts=3, wait=0.01)
        assert entails([("a", "a"), ("b", "a")]) == [0.75, 0.25]
        failures += [None, 502]
        assert entails([("a", "a")]) == [0.75]
        failures += [503, None, 503]
        with pytest.raises(EntailmentServerError, match=r"503; .* overloaded \(after 3 attempts\)"):
            entails([("a", "a")])
        failures += [424]
        with pytest.raises(EntailmentServerError, match="status 424; it says: Model is over"):
            entails([("a", "a")])
        assert failures == []

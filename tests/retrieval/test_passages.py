"""The passages of pages that fit a question best."""

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.documents import Document
from gophercite.retrieval.passages import Passage, best_apart, find_passages

FILLER = "In winter the roads are often closed. " * 30
TOWN = Document(
    "t", "Ormsby", f"{FILLER}The lighthouse was built in 1874. {FILLER}Its lamp is new."
)
BEES = Document("b", "Bees", f"Bees dance. {FILLER}Bees keep no lighthouse. {FILLER}")

texts = st.one_of(
    st.lists(st.sampled_from(["salt", "lamp", "the", "\n", "mill-race.", "été", "x" * 230])).map(
        " ".join
    ),
    st.text(max_size=200),
)


def text_of(passage: Passage) -> str:
    return passage.document.text[slice(*passage.span)]


def test_the_best_passage_has_the_answer() -> None:
    found = find_passages("When was the lighthouse of Ormsby built?", [BEES, TOWN], 200)
    assert "The lighthouse was built in 1874." in text_of(found[0])
    apart = [text_of(each) for each in best_apart(found, 5)]
    assert "Bees keep no lighthouse." in apart[1]
    assert len(apart) == 2  # the filler shares no word with the question
    assert best_apart(found, 1) == found[:1]


def test_the_title_tells_pages_apart_but_not_their_passages() -> None:
    other = Document("o", "Anby", TOWN.text)
    for pages in ((TOWN, other), (other, TOWN)):
        assert find_passages("Who built the lighthouse of Ormsby?", pages, 200)[0].document == TOWN
    assert find_passages("Ormsby?", [TOWN], 200) == []


def test_passages_are_whole_sentences_and_begin_with_paragraphs_where_they_can() -> None:
    paragraphs = [f"{number} lamps burn. {'All night. ' * number}" for number in (6, 5, 7, 31)]
    page = Document("p", "Lamps", "\n\n".join(each.strip() for each in paragraphs))
    found = [text_of(each) for each in find_passages("lamps all night", [page], 200)]
    assert all(text.endswith(".") for text in found)
    assert {text.split()[0] for text in found} == {"6", "5", "7", "31", "All"}


def test_any_text_is_a_question() -> None:
    for question in ("", "?!", '"', "lighthouse AND (", "title : x*", "NEAR(a b)", "-text ^"):
        assert all("lighthouse" in text_of(each) for each in find_passages(question, [TOWN], 200))
    assert len(find_passages("Where the", [TOWN], 200)) > 10  # there are only such words


def test_a_page_that_is_there_twice_counts_once() -> None:
    assert find_passages("lamp", [TOWN, TOWN], 200) == find_passages("lamp", [TOWN], 200)


def test_too_short_for_a_passage() -> None:
    with pytest.raises(ValueError, match="characters is 1: must be at least 2"):
        find_passages("lamp", [TOWN], 1)


@given(st.lists(texts, min_size=1, max_size=3), st.integers(2, 120), st.text(max_size=20))
def test_passages_are_whole_words_and_all_that_was_asked_for_is_in_one(
    bodies: list[str], characters: int, question: str
) -> None:
    pages = [Document(str(number), "Title", text) for number, text in enumerate(bodies)]
    found = find_passages(f"salt mill-race {question}", pages, characters)
    for page in pages:
        spans = [each.span for each in found if each.document == page]
        for start, end in spans:
            assert 0 <= start < end <= len(page.text)
            letters = "".join(page.text[start:end].split())
            assert len(letters) <= 2 * characters + 400
            assert not page.text[start].isspace()
            assert not page.text[end - 1].isspace()
        for word in re.finditer(r"(?<!\w)(salt|mill-race\.)(?!\w)", page.text):
            assert any(start <= word.start() and word.end() <= end for start, end in spans)
        for (_, end), (start, _) in itertools.pairwise(apart(spans)):
            assert end <= start


def apart(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    passages = best_apart([Passage(TOWN, span) for span in spans], 1000)
    return sorted(each.span for each in passages)


@given(
    st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=12), min_size=2, max_size=6)
)
def test_passages_are_in_the_order_of_bm25(bodies: list[list[str]]) -> None:
    """Each page is one passage here, and words are numbers, which have no stem."""
    number = {letter: str(111 * (1 + place)) for place, letter in enumerate("abcde")}
    words = [[number[letter] for letter in body] for body in bodies]
    pages = [Document(str(place), "Title", " ".join(body)) for place, body in enumerate(words)]
    asked = [number["a"], number["b"]]
    mean = sum(len(body) + 1 for body in words) / len(words)

    def bm25(body: list[str]) -> float:
        total = 0.0
        for word in asked:
            holding = sum(word in each for each in words)
            idf = max(1e-6, math.log((len(words) - holding + 0.5) / (holding + 0.5)))
            # A word of the text is asked for twice: there, and anywhere.
            count = body.count(word)
            length = 1.2 * (0.25 + 0.75 * (len(body) + 1) / mean)
            total += 2 * idf * count * 2.2 / (count + length)
        return total

    found = find_passages(" ".join(asked), pages, 10_000)
    scores = [bm25(re.findall(r"\d+", text_of(each))) for each in found]
    assert all(before >= after - 1e-9 for before, after in itertools.pairwise(scores))
    assert {each.document.id for each in found} == {
        str(place) for place, body in enumerate(words) if {*asked} & {*body}
    }

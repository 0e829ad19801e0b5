"""What can be quoted of a page: all runs but those that hold a mark or what can't be spelled."""

from hypothesis import given
from hypothesis import strategies as st

from gophercite.documents import Document, Window
from gophercite.evidence import MARKS
from gophercite.quoting.pieces import Piece, quotable_pieces
from tests.quoting.quote_worlds import MISSING, TokenList

VOCABULARY = TokenList([], MISSING)
WALLS = "\x04\x7f\U00040000"


def runs(text: str, minimum: int) -> set[str]:
    """The runs of a text that are long enough and not blank."""
    ends = range(minimum, len(text) + 1)
    found = {text[end - size : end] for end in ends for size in range(minimum, end + 1)}
    return {run for run in found if run.strip()}


@given(st.text(st.sampled_from(f"ab é]%<>({WALLS}"), max_size=14), st.integers(1, 3))
def test_runs_of_the_pieces_are_those_that_can_be_quoted(text: str, minimum: int) -> None:
    pieces = quotable_pieces([Document("0", "T", text)], VOCABULARY, minimum)
    found = set().union(*(runs(piece.text, minimum) for piece in pieces.get("T", [])))
    expected = {
        run
        for run in runs(text, minimum)
        if not any(mark in run for mark in MARKS) and not any(wall in run for wall in WALLS)
    }
    assert found == expected


def test_a_title_that_can_not_be_spelled_is_not_offered() -> None:
    pages = [Document(str(i), title, "some text") for i, title in enumerate(["A\x04", "B"])]
    everywhere = b"\1" * len("some text")
    expected = {"B": [Piece("some text", everywhere, everywhere)]}
    assert quotable_pieces(pages, VOCABULARY, 5) == expected


def test_pieces_of_words_begin_and_end_as_they_do_and_say_where_else() -> None:
    page = Document("0", "T", " The cat%<sat\x04on it. ")
    found = quotable_pieces([page], VOCABULARY, 2, boundaries="words")["T"]
    assert found == [
        Piece("The cat%", b"\1\0\0\0\1\0\0\1", b"\0\0\1\0\0\0\1\1"),
        Piece("<sat", b"\1\1\0\0", b"\1\0\0\1"),
        Piece("on it.", b"\1\0\0\1\0\1", b"\0\1\0\0\1\1"),
    ]
    assert [piece.shortest_run(4) for piece in found] == ["The cat", "<sat", "on it"]
    window = Window(page, 2, 12)  # "he cat%<sa"
    (piece,) = quotable_pieces([window], VOCABULARY, 2, boundaries="words")["T"]
    assert piece.text == "cat%"

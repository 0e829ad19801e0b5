"""Documents: normalisation, hashes, windows."""

import hashlib
import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.documents import Document, Window, normalise_text

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too


@given(any_text)
def test_normalisation_is_idempotent_composed_and_encodable(text: str) -> None:
    normal = normalise_text(text)
    assert normalise_text(normal) == normal
    assert unicodedata.is_normalized("NFC", normal)
    assert normal.encode("utf-8").decode("utf-8") == normal
    assert not set(normal) & set("\r\x85\u2028\u2029\u200b\u2060\ufeff\u00ad")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc\n\nd\u2028e\u2029f\x85g", "a\nb\nc\n\nd\ne\nf\ng"),
        ("\ufeffzero\u200bwidth\u2060 and soft\u00adhyphen", "zerowidth and softhyphen"),
        ("cafe\u0301", "café"),
        ("e\u200b\u0301", "é"),
        ("👨\u200d👩\u200d👧 می\u200cخواهم", "👨\u200d👩\u200d👧 می\u200cخواهم"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("nothing \0 here", "nothing \ufffd here"),
        ("  Tabs\t, “quotes” and CASE stay ", "  Tabs\t, “quotes” and CASE stay "),
    ],
)
def test_what_normalisation_changes(text: str, expected: str) -> None:
    assert normalise_text(text) == expected


MARKS = [*map(chr, range(0x300, 0x370)), "\u0f73", "\u0f75", "\u0f81", "\u3099", "\u05b0", "\u094d"]


@given(st.integers(0, 2**32))
def test_long_runs_of_combining_marks_are_normalised_like_short_ones(seed: int) -> None:
    draw, pieces = random.Random(seed), []
    for _ in range(3):
        pieces.append(draw.choice(["a", "\u1100", "e\u0328", "नि", ""]))
        pieces += draw.choices(MARKS, k=draw.choice([3, 40, 150, 400]))
    text = "".join(pieces)
    assert normalise_text(text) == unicodedata.normalize("NFC", text)


def test_many_combining_marks_take_little_time() -> None:
    """In quadratic time the first takes minutes."""
    for marks in ("\u0301\u0327", "\u0f73"):
        text = normalise_text("a" + 100_000 * marks)
        assert len(text) >= 199_999
        assert normalise_text(text) == text


@given(any_text, any_text)
def test_documents_hold_normalised_text_and_its_hash(title: str, text: str) -> None:
    document = Document("id", title, text)
    assert document.text == normalise_text(text)
    assert "\n" not in document.title
    assert document.sha256 == hashlib.sha256(document.text.encode("utf-8")).hexdigest()


def test_windows_are_slices_of_their_document() -> None:
    document = Document("id", "Title", "cafe\u0301 au lait")
    assert Window(document, 0, 4).text == "café"
    assert Window(document, 0, 4).title == "Title"
    assert Window(document, 12, 12).text == ""
    for start, end in [(-1, 3), (3, 2), (0, 13)]:
        with pytest.raises(ValueError, match="lies outside document 'id'"):
            Window(document, start, end)

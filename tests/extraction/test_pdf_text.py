"""The text of PDFs: one order, tables by rows, columns of prose one after the other, pages."""

import pathlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import pdf, words_at, words_in

from gophercite.answering.extractive import extractive_answer
from gophercite.answering.pages import FoundPages
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.extraction import pdf_text
from gophercite.extraction.pdf_layout import Block, Line, block_of, in_reading_order
from gophercite.extraction.pdf_tables import with_tables
from gophercite.extraction.text import Budget, page_text
from gophercite.records.answers import cite
from gophercite.retrieval.contexts import SearchResult

DATA = pathlib.Path(__file__).parents[2] / "../shared/data/pdf"  # beside the repository, if at all
real = pytest.mark.skipif(not DATA.is_dir(), reason="the PDFs of ../shared/data are not there")


def read(content: bytes) -> pdf_text.Pdf:
    return pdf_text.read(content, pages=100, characters=10**6, seconds=60)


# --- Order ---

PASSAGE = ("The lighthouse was built", "by Anna Vell in 1874,", "and it is tall.")


def repeated(seed: int = 0) -> list[Block]:
    """One passage at places of a grid, where many pairs are equally near: where ties are broken by
    the places of objects in memory, as pdfminer does, these have two orders.

    The list is always the same, and made in another order for each seed.
    """
    places = [(column, row) for column in range(3) for row in range(3) if (column, row) != (1, 2)]
    shuffled = random.Random(seed).sample(places, len(places))
    made, garbage = {}, []
    for column, row in shuffled:
        x, y = 30 + 140.0 * column, 700 - 100.0 * row
        lines = [
            Line(x, y - 12 * number, x + 40, y - 12 * number + 10, f"{text} {column}{row}")
            for number, text in enumerate(PASSAGE)
        ]
        made[column, row] = block_of(lines)
        garbage.append(bytearray(seed * 100))
    return [made[place] for place in places]


def test_a_repeated_passage_has_one_order() -> None:
    texts = {
        "\n".join(block.text for block in in_reading_order(repeated(seed))) for seed in range(8)
    }
    assert len(texts) == 1


def test_each_block_is_read_once_and_whole() -> None:
    blocks = repeated()
    ordered = in_reading_order(blocks)
    assert sorted(ordered) == sorted(blocks)
    assert in_reading_order([]) == []


places = st.floats(0, 500, allow_nan=False)
a_block = st.builds(
    lambda x, y, width, texts: block_of(
        [Line(x, y - 12 * n, x + width, y - 12 * n + 10, text) for n, text in enumerate(texts)]
    ),
    places,
    places,
    st.floats(1, 300),
    st.lists(st.sampled_from(["7", "1,200", "Name", "two words", "a line of prose that goes on"]),
             min_size=1, max_size=4),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(a_block, max_size=12))
def test_no_word_is_lost_or_doubled_wherever_it_stands(blocks: list[Block]) -> None:
    ordered = in_reading_order(with_tables(blocks))
    said = " ".join(block.text for block in ordered).replace(" | ", " ").split()
    assert sorted(said) == sorted(word for block in blocks for word in block.text.split())
    assert ordered == in_reading_order(with_tables(blocks))


def test_a_page_with_thousands_of_blocks_takes_no_time_of_its_square() -> None:
    blocks = [
        block_of([Line(x, y, x + 5, y + 8, f"{x} {y}")])
        for x in range(0, 600, 10)
        for y in range(0, 800, 10)
    ]
    ordered = in_reading_order(with_tables(blocks))
    assert len(ordered) == len(blocks) == 4800
    assert ordered[0].lines[0].text == "0 790"


# --- Tables and columns ---

ROWS = [
    ("Harbour", "Ships", "Depth", "Built"),
    ("Ormsby", "120", "8.5 m", "1874"),
    ("Kell", "34", "4 m", "1902"),
    ("Great Aldgate", "1,250", "14 m", "1699"),
]


def table(rows: list[tuple[str, ...]], top: float, step: float, width: float = 120) -> bytes:
    return words_in(
        *(
            (50 + width * column, top - step * row, cell)
            for column in range(len(rows[0]))  # column by column, as some programs write them
            for row, cells in enumerate(rows)
            if (cell := cells[column])
        )
    )


@pytest.mark.parametrize("step", [12, 16, 24, 30])
def test_a_table_is_read_row_by_row(step: float) -> None:
    before = "Harbours of the coast and what is known of each of them today:"
    stream = words_in((50, 750, before)) + table(ROWS, 700, step)
    text = read(pdf(stream)).text
    assert text == before + "\n\n" + "\n".join(" | ".join(row) for row in ROWS)


def test_a_label_with_many_words_and_its_value() -> None:
    rows = [
        ("Revenue from the sale of nets and lines", "1,200"),
        ("Other income of the harbour", "85"),
        ("Total", "1,285"),
    ]
    for step in (12, 20):
        text = read(pdf(table(rows, 700, step, width=300))).text
        assert text == "\n".join(" | ".join(row) for row in rows)


def test_cells_that_take_several_lines_are_one_cell() -> None:
    stream = words_in(
        (50, 700, "Date"), (150, 700, "What happened"), (350, 700, "Ships"), (450, 700, "Port"),
        (50, 670, "4 May 1874"), (350, 670, "120"), (450, 670, "Ormsby"),
        (150, 670, "The lighthouse was lit"), (150, 658, "for the first time"),
        (50, 630, "9 June 1902"), (350, 630, "34"), (450, 630, "Kell"),
        (150, 630, "A storm took the pier"), (150, 618, "and two boats"),
    )  # fmt: skip
    assert read(pdf(stream)).text.split("\n") == [
        "Date | What happened | Ships | Port",
        "4 May 1874 | The lighthouse was lit for the first time | 120 | Ormsby",
        "9 June 1902 | A storm took the pier and two boats | 34 | Kell",
    ]


def test_a_row_without_one_of_its_cells() -> None:
    rows = [("Name", "Age", "Height"), ("Ada", "", "170"), ("Ben", "12", ""), ("Cy", "9", "130")]
    text = read(pdf(table(rows, 700, 20))).text
    assert text == "Name | Age | Height\nAda | 170\nBen | 12\nCy | 9 | 130"


LEFT = [
    "The town of Ormsby lies on the east coast",
    "and has had a harbour for eight centuries.",
    "Its lighthouse was built in 1874 by Anna",
    "Vell, who came from Aldgate with forty men.",
]
RIGHT = [
    "Fishing was the trade of nearly all until",
    "the railway came in 1866, and with it the",
    "first guests, who bathed and drank and paid",
    "for it all, which changed the town for good.",
]


def columns(shift: float) -> bytes:
    left = ((50, 700 - 12 * row, line) for row, line in enumerate(LEFT))
    right = ((320, 700 + shift - 12 * row, line) for row, line in enumerate(RIGHT))
    both = [*left, *right]
    random.Random(0).shuffle(both)
    return words_in(
        (50, 750, "A history of the town in two columns, below a long title of it"), *both
    )


@pytest.mark.parametrize("shift", [0, 5])
def test_columns_of_prose_are_read_one_after_the_other(shift: float) -> None:
    """Their lines share base lines, or don't."""
    text = " ".join(read(pdf(columns(shift))).text.split())
    assert " ".join(LEFT) in text
    assert " ".join(RIGHT) in text
    assert "|" not in text


def test_addresses_beside_one_another_are_no_table() -> None:
    left = ["Ada Fenwick", "Fore Street 12", "Old Ormsby"]
    right = ["The Harbour Company of Kell", "Quay Road 3 and 4", "Kell on the Water"]
    placed = [(50, 700 - 12 * n, line) for n, line in enumerate(left)]
    placed += [(320, 700 - 12 * n, line) for n, line in enumerate(right)]
    assert read(pdf(words_in(*placed))).text == "\n".join(left) + "\n\n" + "\n".join(right)


@real
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("2b.pdf", ["01/14/2016 | Transfer | 1,406,164.00 | 1,406,246.50"]),
        ("issue-00369-excel.pdf", ["1 | 2 | 3", "4 | 5 | 6", "7 | 8 | 9"]),
        (
            "issue-00352-asw-oct96-p41.pdf",
            [
                "Date | Location | Aircraft Type | Aircraft Damage | Injuries",
                "Feb. 17, 2002 | San Juan, Argentina | Boeing 737-200 | NA | NA",
            ],
        ),
        (
            "issue-598-cmap-other-fonts.pdf",
            [
                "DTC displayed | Error Name",
                "03-7FB00.11 | Calibration Error Warning",
                "03-7FC23.09 | HMI2 CAN Message Fault: time out",
            ],
        ),
        (
            "issue-625-identity-cmap.pdf",
            ["1 Testy Książę | szt. | 1 | 33,00 | 23% | 33,00 | 40,59"],
        ),
        ("issue-1062-filters.pdf", ["nominaal vermogen | 0,18 kW", "cos phi | 0,79"]),
        ("pagelabels.pdf", ["3 Third section | 1"]),
    ],
)
def test_tables_of_real_files(name: str, rows: list[str]) -> None:
    lines = read((DATA / name).read_bytes()).text.split("\n")
    for row in rows:
        assert row in lines


@real
def test_two_columns_of_a_real_article() -> None:
    """Sentences that go over line ends, column ends and past tables and formulas."""
    found = read((DATA / "issue-1061-colour-space-stack.pdf").read_bytes())
    text = " ".join(found.text.split())
    for sentence in (
        "Diﬀerential privacy is a popular privacy model within the research community because of "
        "the strong privacy guarantee it oﬀers, namely that the presence or absence of any "
        "individual in a data set does not signiﬁcantly inﬂuence the results",
        "However, despite its popularity among researchers and the step forward it oﬀers in terms "
        "of privacy guarantees, diﬀerential privacy is only being deployed to a limited extent",
    ):
        assert sentence in text, sentence
    assert len(found.page_starts) == 12
    prose = [line for line in found.text.split("\n") if len(line.split()) > 6]
    assert sum(" | " in line for line in prose) * 50 < len(prose)


# --- Pages ---


def test_each_page_is_known_by_where_it_begins() -> None:
    found = read(pdf(words_at("One."), words_at("Two,", "and more."), b"", words_at("Four.")))
    assert found.text == "One.\n\nTwo,\nand more.\n\nFour."
    assert found.page_starts == (0, 6, 22, 22)
    document = Document("d", "D", found.text, page_starts=found.page_starts)
    assert document.pages_of(0, 4) == (1,)
    assert document.pages_of(6, 10) == (2,)
    assert document.pages_of(22, 27) == (4,)
    assert document.pages_of(11, 24) == (2, 3, 4)
    assert document.pages_of(11, 23) == (2, 3, 4)  # the first letter of a page is on it
    assert document.pages_of(11, 22) == (2,)
    assert document.pages_of(0, 27) == (1, 2, 3, 4)
    assert Document("d", "D", "text").pages_of(0, 4) == ()


def test_pages_without_text_at_the_ends() -> None:
    found = read(pdf(b"", words_at("Two."), b""))
    assert (found.text, found.page_starts) == ("Two.", (0, 0, 4))
    assert Document("d", "D", "Two.", page_starts=(0, 0, 4)).pages_of(0, 4) == (2,)


def test_pages_beyond_a_budget_are_not_named() -> None:
    content = pdf(words_at("One."), words_at("Two."), words_at("Three."))
    page = page_text(content, "application/pdf", budget=Budget(pages=2))
    assert (page.text, page.page_starts, page.is_whole) == ("One.\n\nTwo.", (0, 6), False)


@pytest.mark.parametrize("starts", [(1,), (0, 5), (0, 3, 2), (-1, 0)])
def test_places_that_are_none_are_refused(starts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="page_starts must be places"):
        Document("d", "D", "text", page_starts=starts)


@given(st.lists(st.text(st.sampled_from("ab\r\n\u200be\u0301\ufeff "), max_size=6), max_size=5))
def test_places_move_with_what_normalisation_takes_out(parts: list[str]) -> None:
    raw, starts = "", []
    for part in parts:
        starts.append(len(raw))
        raw += part + "\n\n."
    if not parts:
        return
    document = Document("d", "D", raw, page_starts=tuple(starts))
    ends = [*document.page_starts[1:], len(document.text)]
    for part, start, end in zip(parts, document.page_starts, ends, strict=True):
        assert document.text[start:end] == Document("", "", part + "\n\n.").text


words = st.sampled_from(["built", "tower", "the harbour", "12", "1874", "Ormsby", "of brick", "é"])
shown = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), words), max_size=25)


@settings(max_examples=40, deadline=None)
@given(st.lists(shown, min_size=1, max_size=3))
def test_whatever_a_pdf_shows_a_quote_is_the_text_at_its_place(
    pages: list[list[tuple[int, int, str]]],
) -> None:
    """Repeated passages, tables and columns by chance: also read a second time."""
    content = pdf(*(words_in(*((60 + 90 * x, 80 + 50 * y, w) for x, y, w in p)) for p in pages))
    found, again = read(content), read(content)
    assert found == again
    document = Document("d", "D", found.text, page_starts=found.page_starts)
    assert document.text == found.text
    result = FoundPages((SearchResult(document),))
    for citation in extractive_answer("Who built the tower of Ormsby in 1874?", result).citations:
        assert citation.start is not None
        assert document.text[citation.start : citation.end] == citation.quote
        assert citation.pages == document.pages_of(citation.start, citation.end or 0)
        (first, *_), last = citation.pages, citation.pages[-1]
        assert document.page_starts[first - 1] <= citation.start
        assert (citation.end or 0) <= [*document.page_starts, len(document.text)][last]


def test_a_quote_over_two_pages_says_both() -> None:
    found = read(pdf(words_at("It was built"), words_at("in 1874.")))
    document = Document("d", "D", found.text, page_starts=found.page_starts)
    quote = "It was built\n\nin 1874."
    assert cite(Evidence("1874", "D", quote), document, 0).pages == (1, 2)

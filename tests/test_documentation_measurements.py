"""The pages of measurements: a row a figure that can be read, dated, repeated and placed."""

import datetime
import itertools
import pathlib
import re
from collections.abc import Iterator

import pytest

DOCS = pathlib.Path(__file__).parents[1] / "docs"
INDEX = DOCS / "measurements.md"
PAGES = sorted((DOCS / "measurements").glob("*.md"))
COLUMNS = ["Figure", "Value", "Aim", "Compared with", "Command", "Date", "Machine"]
HEADLINES = ["Page" if column == "Command" else column for column in COLUMNS]
MACHINES = ["Name", "What it is"]
LONGEST_CELL = 120
NUMBERED = re.compile(r"\((\d+)\)$")


def tables(text: str) -> Iterator[tuple[list[list[str]], str]]:
    """Yields each table as cells of its rows, the header first, and the text up to the next."""
    lines = text.splitlines()
    blocks = [
        (in_table, list(block))
        for in_table, block in itertools.groupby(lines, lambda line: line.startswith("|"))
    ]
    for place, (in_table, block) in enumerate(blocks):
        if in_table:
            header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in block)
            after = "\n".join(blocks[place + 1][1]) if place + 1 < len(blocks) else ""
            yield [header, *rows], after


def machines() -> set[str]:
    (named,) = [table for table, _ in tables(INDEX.read_text("utf-8")) if table[0] == MACHINES]
    return {row[0] for row in named[1:]}


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_tables_can_be_read(page: pathlib.Path) -> None:
    known, count = machines(), 0
    for (header, *rows), after in tables(page.read_text("utf-8")):
        if page == INDEX and header != HEADLINES:
            continue
        assert header == (HEADLINES if page == INDEX else COLUMNS)
        dates = [datetime.date.fromisoformat(row[5]) for row in rows]
        assert dates == sorted(dates, reverse=True), f"newest first: {rows[0][0]}"
        for row in rows:
            count += 1
            assert len(row) == len(COLUMNS), row
            figure, value, _, _, command, _, machine = row
            assert all((figure, value, command)), row
            assert max(map(len, row)) <= LONGEST_CELL, row
            assert machine in known, row
            assert "as above" not in " ".join(row), row
            if number := NUMBERED.search(command):
                assert f"\n# ({number[1]})\n" in after, f"not under the table: {command}"
    assert count


def test_headlines_are_figures_of_the_pages() -> None:
    """Every number of a headline stands on the page that the headline names."""
    (headlines,) = [table for table, _ in tables(INDEX.read_text("utf-8")) if table[0] == HEADLINES]
    for _, value, aim, peer, link, date, machine in headlines[1:]:
        (target,) = re.findall(r"\((.*)\)", link)
        rows = [row for table, _ in tables((DOCS / target).read_text("utf-8")) for row in table]
        same = "\n".join(" ".join(row) for row in rows if row[5:] == [date, machine])
        for number in re.findall(r"\d+(?:[.,]\d+)*", f"{value} {aim} {peer}"):
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", same), (number, link)

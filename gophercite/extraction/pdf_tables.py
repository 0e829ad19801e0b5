"""Tables of a PDF page, row by row.

A PDF has no tables, only words at positions, and columns of cells look like columns of prose, to be
read one after the other. Here, blocks that stand side by side in rows are put together: each row
becomes a line with ` | ` between its cells, as for HTML. The text tells tables from prose: cells
are short, or numbers, and share their baselines; lines of prose have many words.
"""

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence

from gophercite.extraction.pdf_layout import Block, Line, block_of

SEPARATOR = " | "  # between cells; used for HTML tables too

_MOST_BLOCKS, _MOST_LINES = 1000, 3000  # of a page: all pairs may be compared
_CELL_WORDS = 4  # maximum words per line of a block that may begin a table
_LABEL_WORDS = 9  # maximum words per line of a block that may join one, with cells next to it
_CELL_LINES = 3  # if such a block has more lines, most of them must have a cell next to them
_IN_ROWS = 0.6  # what "most" means: share of the lines of such a block, or of a band
_OVERLAP = 0.5  # minimum vertical overlap of lines in a row, as a share of the lower line's height
_ROW_GAP = 2.5  # maximum distance between the rows of a table, in line heights
_VALUES = 0.6  # share of values among a column's cells above which it is not prose
_WORD = re.compile(r"[^\W_]")
_UNKNOWN = re.compile(r"\(cid:\d+\)")  # a letter without a name in its font


def with_tables(blocks: Sequence[Block]) -> list[Block]:
    """Returns the blocks of a page, with the blocks of each table joined into one.

    A table has at least two rows of two cells, or one row of three. Several lines count as one cell
    if the column next to them says so.
    """
    cells = [block for block in blocks if _may_be_cell(block)]
    if len(cells) > _MOST_BLOCKS or sum(len(cell.lines) for cell in cells) > _MOST_LINES:
        return list(blocks)
    tables: dict[int, Block] = {}  # by the lowest number of their blocks
    gone: set[int] = set()
    numbers = {id(block): number for number, block in enumerate(blocks)}
    for group in _groups(cells):
        table = _table(group)
        if table is not None:
            members = [numbers[id(block)] for block in group]
            tables[min(members)] = table
            gone.update(members)
    return [
        tables.get(number, block)
        for number, block in enumerate(blocks)
        if number in tables or number not in gone
    ]


def _may_be_cell(block: Block) -> bool:
    is_level = not block.is_vertical and not block.is_turned
    is_column_of_letters = len(block.lines) > 2 and all(
        len(line.text) == 1 and not line.text.isdigit() for line in block.lines
    )
    return is_level and not is_column_of_letters and _words(block.lines) <= _LABEL_WORDS


def _words(lines: Sequence[Line]) -> float:
    return statistics.median(len(line.text.split()) for line in lines)


def _is_short(block: Block) -> bool:
    return _words(block.lines) <= _CELL_WORDS


def _is_prose(block: Block) -> bool:
    """Whether a block looks like a paragraph; so does a long column of labels."""
    return len(block.lines) > _CELL_LINES and not _is_short(block)


def _is_numeric(line: Line) -> bool:
    letters = _WORD.findall(line.text)
    return sum(letter.isdigit() for letter in letters) * 2 > len(letters)


# --- Which blocks belong to one table ---


def _groups(cells: Sequence[Block]) -> list[list[Block]]:
    """Blocks that stand next to others in rows, together with those above and below them."""
    in_rows: dict[int, set[int]] = {}
    for (one, first), (other, second) in itertools.combinations(enumerate(cells), 2):
        if (_is_short(first) or _is_short(second)) and _share_a_row(first, second, cells):
            in_rows.setdefault(one, set()).add(other)
            in_rows.setdefault(other, set()).add(one)
    for one, other in itertools.combinations(sorted(in_rows), 2):
        if _is_above(cells[one], cells[other]) or _is_above(cells[other], cells[one]):
            in_rows[one].add(other)
            in_rows[other].add(one)
    return [[cells[number] for number in group] for group in _connected(in_rows)]


def _connected(links: dict[int, set[int]]) -> Iterable[list[int]]:
    seen: set[int] = set()
    for start in sorted(links):
        if start in seen:
            continue
        group, waiting = {start}, [start]
        while waiting:
            for number in links[waiting.pop()] - group:
                group.add(number)
                waiting.append(number)
        seen |= group
        yield sorted(group)


def _share_a_row(one: Block, other: Block, blocks: Sequence[Block]) -> bool:
    """Whether the blocks stand side by side in a row, with no block between them."""
    left, right = (one, other) if one.x0 <= other.x0 else (other, one)
    if left.x1 > right.x0 or min(left.y1, right.y1) <= max(left.y0, right.y0):
        return False
    rows = [(a, b) for a in left.lines for b in right.lines if _in_a_row(a, b)]
    if len(rows) * 2 < min(len(left.lines), len(right.lines)):
        return False
    for block in (left, right):  # prose, and what happens to stand next to its column
        if _is_prose(block) and len(rows) < _IN_ROWS * len(block.lines):
            return False
    return any(not _is_divided(a, b, blocks) for a, b in rows)


def _in_a_row(one: Line, other: Line) -> bool:
    shared = min(one.y1, other.y1) - max(one.y0, other.y0)
    low, high = sorted((one.y1 - one.y0, other.y1 - other.y0))
    return shared > _OVERLAP * low and high < 2 * low


def _is_divided(left: Line, right: Line, blocks: Sequence[Block]) -> bool:
    middle = (left.y0 + left.y1) / 2
    return any(
        block.x0 >= left.x1 and block.x1 <= right.x0 and block.y0 < middle < block.y1
        for block in blocks
    )


def _is_above(one: Block, other: Block) -> bool:
    """Whether `other` continues below `one`, in the same column."""
    height = max(line.y1 - line.y0 for line in (*one.lines, *other.lines))
    shared = min(one.x1, other.x1) - max(one.x0, other.x0)
    gap = one.y0 - other.y1
    return shared > 0 and -height / 2 < gap < _ROW_GAP * height


# --- What a table says ---


def _table(blocks: Sequence[Block]) -> Block | None:
    """Returns the table that the blocks form, or None if they form none."""
    if sum(map(_is_short, blocks)) * 2 < len(blocks):
        return None
    rows = [row for band in _bands(blocks) for row in _rows(band)]
    several = [row for row in rows if len(row) > 1]
    if len(several) < 2 and not all(len(row) > 2 and _are_words(row) for row in rows):
        return None
    if statistics.median(map(len, several)) < 3 and not (
        _are_values([row[0] for row in several]) or _are_values([row[-1] for row in several])
    ):
        return None  # such as two addresses side by side
    return block_of([_joined(row, SEPARATOR) for row in rows])


def _are_words(cells: Sequence[Line]) -> bool:
    """Whether every cell has words; pieces of a formula don't."""
    return all(_WORD.search(_UNKNOWN.sub("", cell.text)) for cell in cells)


def _are_values(cells: Sequence[Line]) -> bool:
    """Whether most cells of a column are numbers or single words, unlike sentences."""
    values = sum(_is_numeric(cell) or len(cell.text.split()) == 1 for cell in cells)
    return values > _VALUES * len(cells)


def _joined(lines: Sequence[Line], separator: str) -> Line:
    place = block_of(lines)[:4]
    return Line(*place, separator.join(line.text.strip() for line in lines))


def _bands(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks from top to bottom, grouped with those that stand next to them."""
    bands: list[list[Block]] = []
    bottom = 0.0
    for block in sorted(blocks, key=lambda block: (-block.y1, block.x0)):
        height = min(line.y1 - line.y0 for line in block.lines)
        if bands and block.y1 - bottom > _OVERLAP * height:
            bands[-1].append(block)
            bottom = min(bottom, block.y0)
        else:
            bands.append([block])
            bottom = block.y0
    return bands


def _rows(band: Sequence[Block]) -> list[list[Line]]:
    """The rows of a band, each from left to right."""
    lines = _rows_of_lines([line for block in band for line in block.lines])
    if not _is_one_row(band, lines):
        return lines
    return [[_joined(block.lines, " ") for block in sorted(band, key=lambda block: block.x0)]]


def _rows_of_lines(lines: Sequence[Line]) -> list[list[Line]]:
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (-line.y0 - line.y1, line.x0)):
        if rows and _in_a_row(rows[-1][0], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.x0) for row in rows]


def _is_one_row(band: Sequence[Block], rows: Sequence[Sequence[Line]]) -> bool:
    """Whether blocks side by side are one row of cells with several lines each.

    Otherwise each block is a column and its lines are the cells. Numbers do not continue on the
    next line. And columns have as many lines as there are rows, while the number of lines of a cell
    varies.
    """
    if any(
        one.x1 > other.x0 and other.x1 > one.x0 for one, other in itertools.combinations(band, 2)
    ):
        return False  # one is above the other
    several = [block for block in band if len(block.lines) > 1]
    if any(sum(map(_is_numeric, block.lines)) * 2 > len(block.lines) for block in several):
        return False
    in_rows = sum(len(row) > 1 for row in rows)
    if len(rows) > _CELL_LINES and in_rows >= _IN_ROWS * len(rows):
        return False
    as_many = len({len(block.lines) for block in band}) == 1
    return not as_many or (len(band) < 3 and any(_words(block.lines) > 2 for block in several))

"""Tables of untrusted texts, as Markdown and as HTML: nothing in a cell acts as markup."""

import dataclasses
from collections.abc import Sequence

from gophercite.html.escaping import escape_html
from gophercite.storage.json_fields import printable


@dataclasses.dataclass(frozen=True)
class Table:
    """Headings, and rows with a text for each heading."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self, *, aligned: bool = True) -> str:
        """Returns the table as Markdown; `aligned` pads its columns for reading as plain text."""
        lines = [list(self.headings), *([escape_markdown(cell) for cell in r] for r in self.rows)]
        widths = [max(map(len, column)) if aligned else 0 for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * max(3, width) for width in widths])
        return "".join(
            f"| {' | '.join(cell.ljust(w) for cell, w in zip(line, widths, strict=True))} |\n"
            for line in lines
        )

    def html(self) -> str:
        """Returns the table as HTML; cells that start with a digit are right-aligned."""
        head = "".join(f'<th scope="col">{escape_html(cell)}</th>' for cell in self.headings)
        body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>\n" for row in self.rows)
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"

    def _repr_html_(self) -> str:
        """The representation in notebooks."""
        return self.html()


def escape_markdown(text: str) -> str:
    """Escapes a text for a cell of a Markdown table: no markup, no HTML, one line."""
    text = on_one_line(text)
    for character in "\\`*_{}[]|#~$!":
        text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def on_one_line(text: str) -> str:
    """Returns a text on one line, made printable."""
    return printable(" ".join(text.split()))


def _html_cell(text: str) -> str:
    kind = ' class="number"' if text[:1].isdigit() or text in ("–", "") else ""
    return f"<td{kind}>{escape_html(text)}</td>"

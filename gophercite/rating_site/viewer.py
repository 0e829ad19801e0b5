"""Rated answers to browse: a folder of HTML pages, such as both papers released, for use from disk.

`index.html` searches, filters and sorts all answers with our own script, without a server. If
scripts are turned off, it is a list of the other pages. These hold the answers themselves, with the
evidence marked in its page, rewards, and the raters' judgements. All untrusted text is escaped, and
no page loads anything from elsewhere.
"""

import errno
import itertools
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable
from typing import Any

from gophercite.html.escaping import escape_html, whole_page
from gophercite.html.marked_pages import MarkedPages
from gophercite.rating_site.entries import Pages, Shown, entry_of

_PART = 100  # answers per page
_ROWS = '<script type="application/json" id="rows">'  # only our own index has it
_PART_NAME = re.compile(r"part-[0-9]{4,}\.html")

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
label { display: inline-flex; flex-wrap: wrap; gap: .3rem; margin: 0 1rem .5rem 0; }
label { max-width: 100%; }
.range { display: inline-flex; flex-wrap: wrap; }
input, select { font: inherit; max-width: 100%; }
input[type=number] { width: 6rem; }
li { margin: .4rem 0; overflow-wrap: anywhere; }
.said { color: #6b6b6b; font-size: .9em; }
@media (prefers-color-scheme: dark) { .said { color: #aaa; } }
"""
_SCRIPT = """
"use strict";
const rows = JSON.parse(document.getElementById("rows").textContent);
const list = document.getElementById("list"), count = document.getElementById("count");
const more = document.getElementById("more"), controls = document.getElementById("controls");
const search = document.getElementById("search");
const selects = [...document.querySelectorAll("select[name]")];
const sort = document.getElementById("sort");
const limits = [...document.querySelectorAll("input[data-number]")];
let shown = 50;
const matches = (row) => {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const text = (row.q + " " + row.a).toLowerCase();
  return words.every((word) => text.includes(word)) &&
    selects.every((s) => !s.value || row[s.name] === s.value) &&
    limits.every((l) => {
      if (l.value === "") return true;
      const number = row.n[l.dataset.number];  // where there is none, neither holds
      return l.dataset.end === "least" ? number >= l.valueAsNumber : number <= l.valueAsNumber;
    });
};
const sorted = (found) => {
  if (!sort || !sort.value) return found;
  const name = sort.value.slice(1), sign = sort.value[0] === "-" ? -1 : 1;
  const of = (row) => row.n[name];
  const known = found.filter((row) => of(row) !== undefined);
  known.sort((a, b) => sign * (of(a) - of(b)));
  return known.concat(found.filter((row) => of(row) === undefined));
};
const show = () => {
  const found = sorted(rows.filter(matches));
  count.textContent = found.length + " of " + rows.length + " answers";
  list.replaceChildren(...found.slice(0, shown).map((row) => {
    const item = document.createElement("li"), link = document.createElement("a");
    const said = document.createElement("div");
    link.href = row.h;
    link.textContent = row.q;
    said.className = "said";
    said.textContent = row.a + " — " + row.l;
    item.append(link, said);
    return item;
  }));
  more.hidden = found.length <= shown;
};
const again = () => { shown = 50; show(); };
search.addEventListener("input", again);
selects.forEach((s) => s.addEventListener("change", again));
limits.forEach((l) => l.addEventListener("input", again));
if (sort) sort.addEventListener("change", again);
more.addEventListener("click", () => { shown += 200; show(); });
controls.hidden = false;
show();
"""


def write_viewer(
    folder: str | os.PathLike[str],
    title: str,
    records: Iterable[Shown],
    pages: Pages | None = None,
) -> int:
    """Writes the pages, and returns how many answers or pairs they show.

    Args:
      folder: created if missing; pages of an earlier call are replaced once the new ones are
        complete.
      title: the pages' title.
      records: answers and pairs of answers, of any kind.
      pages: pages to mark evidence in, for records that don't contain theirs.

    Raises:
      FileExistsError: the folder has an `index.html` that is not of an earlier call.
      OSError: when they can't be written, or `records` can't be read; names the path.
    """
    folder = pathlib.Path(folder)
    index = folder / "index.html"
    if index.exists() and _ROWS.encode() not in index.read_bytes():
        said = "is not a page of `gophercite rate view`: choose another folder"
        raise FileExistsError(errno.EEXIST, said, str(index))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
        try:
            rows, parts = _write_pages(pathlib.Path(unfinished), title, records, pages or Pages())
        except OSError as error:
            if error.filename is not None:  # of a file that is read
                raise
            raise OSError(error.errno, error.strerror, str(folder)) from error  # a full disk
        for name in (*parts, "index.html"):
            os.replace(pathlib.Path(unfinished, name), folder / name)
    for path in folder.glob("part-*.html"):
        if _PART_NAME.fullmatch(path.name) and path.name not in parts:
            path.unlink()
    return rows


def _write_pages(
    folder: pathlib.Path, title: str, records: Iterable[Shown], there: Pages
) -> tuple[int, list[str]]:
    """Writes all pages; returns the number of answers, and the names of the pages but the index."""
    rows: list[dict[str, Any]] = []
    parts: list[str] = []
    entries = (entry_of(record, there) for record in records)
    while part := list(itertools.islice(entries, _PART)):
        name = f"part-{len(parts) + 1:04d}.html"
        parts.append(name)
        articles = []
        for place, entry in enumerate(part):
            articles.append(f'<article id="a{place}">\n{entry.html}</article>\n<hr>\n')
            numbers = {label: f"{number:.3g}" for label, number in entry.numbers.items()}
            labels = numbers | entry.labels
            said = ", ".join(f"{label}: {value}" for label, value in labels.items())
            row = {"q": entry.question, "a": entry.answer, "l": said, "h": f"{name}#a{place}"}
            rows.append({**row, **entry.labels, "n": entry.numbers})
        back = '<p><a href="index.html">All answers</a></p>\n'
        body = f"<main>\n<h1>{escape_html(title)}</h1>\n{back}{''.join(articles)}</main>\n"
        (folder / name).write_text(MarkedPages(title, body).page(), "utf-8")
    (folder / "index.html").write_text(_index(title, rows, parts), "utf-8")
    return len(rows), parts


def _index(title: str, rows: list[dict[str, Any]], parts: list[str]) -> str:
    names = dict.fromkeys(name for row in rows for name in row if name not in "qalhn")
    numbers = dict.fromkeys(name for row in rows for name in row["n"])
    selects = [_sorting(numbers)] if numbers else []
    for name in numbers:
        shown = escape_html(name)
        selects.append(
            f'<span class="range"><label>{shown} from <input type="number" step="any" '
            f'data-number="{shown}" data-end="least"></label>\n<label>to <input type="number" '
            f'step="any" data-number="{shown}" data-end="most" aria-label="{shown} to"></label>'
            "</span>\n"
        )
    for name in names:
        values = sorted({row[name] for row in rows if name in row})
        options = "".join(f"<option>{escape_html(value)}</option>" for value in values)
        selects.append(
            f'<label>{escape_html(name)} <select name="{escape_html(name)}">'
            f'<option value="">any</option>{options}</select></label>\n'
        )
    # A block of data; `<` is escaped, so nothing in it can end the block.
    data = json.dumps(rows, ensure_ascii=True).replace("<", "\\u003c")
    links = ""
    for first, name in zip(range(0, len(rows), _PART), parts, strict=True):
        last = min(first + _PART, len(rows))
        links += f'<li><a href="{name}">Answers {first + 1} to {last}</a></li>\n'
    body = (
        f"<main>\n<h1>{escape_html(title)}</h1>\n"
        '<div id="controls" hidden>\n'
        '<label>Search <input id="search" type="search"></label>\n'
        f"{''.join(selects)}</div>\n"
        f'<p id="count" role="status">{len(rows)} answers</p>\n<ol id="list">\n{links}</ol>\n'
        '<button id="more" hidden>Show more</button>\n</main>\n'
        f"{_ROWS}{data}</script>\n"
    )
    return whole_page(title, _STYLE, body, _SCRIPT)


def _sorting(numbers: Iterable[str]) -> str:
    options = "".join(
        f'<option value="{sign}{escape_html(name)}">{escape_html(name)}, {which} first</option>'
        for name in numbers
        for sign, which in (("-", "highest"), ("+", "lowest"))
    )
    first = '<option value="">as in the files</option>'
    return f'<label>Order <select id="sort">{first}{options}</select></label>\n'

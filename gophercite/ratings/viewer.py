"""Rated answers to browse: a folder of pages that opens from disk, as both papers released theirs.

`index.html` searches and filters all answers, with a script of ours and no server; without scripts
it is a list of the parts. The parts hold the answers themselves: the evidence marked in its page,
and what raters said. All that is strangers' is escaped, and no page loads anything from elsewhere.
"""

import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.html.escaping import escape_html, whole_page
from gophercite.html.marked_pages import Mark, MarkedPages, about, source
from gophercite.records import Comparison, LongAnswer, RatedAnswer, Response

_PART = 100  # answers a page

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
label { display: inline-block; margin: 0 1rem .5rem 0; }
input, select { font: inherit; }
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
const selects = [...document.querySelectorAll("select")];
let shown = 50;
const matches = (row) => {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const text = (row.q + " " + row.a).toLowerCase();
  return words.every((word) => text.includes(word)) &&
    selects.every((s) => !s.value || row[s.name] === s.value);
};
const show = () => {
  const found = rows.filter(matches);
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
more.addEventListener("click", () => { shown += 200; show(); });
controls.hidden = false;
show();
"""


@dataclasses.dataclass(frozen=True)
class _Entry:
    """An answer, or a pair of them.

    Attributes:
      question, answer: as lists show them.
      labels: by name, what raters said by majority: `yes`, `no`, or what else there is.
      html: all of it.
    """

    question: str
    answer: str
    labels: dict[str, str]
    html: str


def write_viewer(
    folder: str | os.PathLike[str], title: str, records: Iterable[RatedAnswer | Comparison]
) -> int:
    """Writes the pages, and returns how many answers or pairs they show.

    Args:
      folder: made when missing; pages of an earlier call are written over.
      title: of the pages.
      records: rated answers with their pages, and comparisons.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []
    parts: list[str] = []
    entries = map(_entry, records)
    while part := list(itertools.islice(entries, _PART)):
        name = f"part-{len(parts) + 1:04d}.html"
        parts.append(name)
        articles = []
        for place, entry in enumerate(part):
            articles.append(f'<article id="a{place}">\n{entry.html}</article>\n<hr>\n')
            said = ", ".join(f"{label}: {value}" for label, value in entry.labels.items())
            row = {"q": entry.question, "a": entry.answer, "l": said, "h": f"{name}#a{place}"}
            rows.append(row | entry.labels)
        back = '<p><a href="index.html">All answers</a></p>\n'
        (folder / name).write_text(MarkedPages(title, back + "".join(articles)).page(), "utf-8")
    (folder / "index.html").write_text(_index(title, rows, parts), "utf-8")
    return len(rows)


def _index(title: str, rows: list[dict[str, str]], parts: list[str]) -> str:
    names = dict.fromkeys(name for row in rows for name in row if name not in "qalh")
    selects = []
    for name in names:
        values = sorted({row[name] for row in rows if name in row})
        options = "".join(f"<option>{escape_html(value)}</option>" for value in values)
        selects.append(
            f'<label>{escape_html(name)} <select name="{escape_html(name)}">'
            f'<option value="">any</option>{options}</select></label>\n'
        )
    # As a block of data; `<` is escaped, so nothing in it ends the block.
    data = json.dumps(rows, ensure_ascii=True).replace("<", "\\u003c")
    links = ""
    for first, name in zip(range(0, len(rows), _PART), parts, strict=True):
        last = min(first + _PART, len(rows))
        links += f'<li><a href="{name}">Answers {first + 1} to {last}</a></li>\n'
    body = (
        f"<h1>{escape_html(title)}</h1>\n"
        '<div id="controls" hidden>\n'
        '<label>Search <input id="search" type="search"></label>\n'
        f"{''.join(selects)}</div>\n"
        f'<p id="count" role="status">{len(rows)} answers</p>\n<ol id="list">\n{links}</ol>\n'
        '<button id="more" hidden>Show more</button>\n'
        f'<script type="application/json" id="rows">{data}</script>\n'
    )
    return whole_page(title, _STYLE, body, _SCRIPT)


def _entry(record: RatedAnswer | Comparison) -> _Entry:
    return _answer(record) if isinstance(record, RatedAnswer) else _pair(record)


def _answer(record: RatedAnswer) -> _Entry:
    quoted = next((d for d in record.documents if d.id == record.document), None)
    labels = {"model": record.model or "unnamed"}
    judged = {"plausible": record.plausible, "supported": record.supported}
    for name, value in judged.items():
        if value is not None:
            labels[name] = "yes" if value else "no"
    page = quoted if isinstance(quoted, Document) else None
    shown = _claim(Evidence(record.claim, record.title, record.quote), page)
    html = f"{_question(record.question)}{shown}{_said(labels, record.ratings)}"
    return _Entry(record.question, record.claim, labels, html)


def _pair(record: Comparison) -> _Entry:
    words = {0.0: "first", 0.5: "tie", 1.0: "second", None: "undecided"}
    labels = {"preferred": words.get(record.preferred, str(record.preferred))}
    for name, verdict in zip(("first", "second"), record.supported_and_plausible, strict=True):
        if verdict is not None:
            labels[f"{name} supported and plausible"] = "yes" if verdict else "no"
    sides = "".join(
        f'<p class="about">{name}</p>\n{_response(response)}'
        for name, response in zip(("First answer", "Second answer"), record.responses, strict=True)
    )
    html = f"{_question(record.question)}{sides}{_said(labels, record.ratings)}"
    brief = " / ".join(_brief(response) for response in record.responses)
    return _Entry(record.question, brief, labels, html)


def _response(response: Response) -> str:
    if isinstance(response, str):
        return f'<p class="claim" dir="auto">{escape_html(response)}</p>\n'
    if isinstance(response, LongAnswer):
        references = "".join(
            f"<li>{escape_html(each.title)}\n"
            f"<blockquote>{escape_html(each.extract)}</blockquote></li>\n"
            for each in response.references
        )
        return f'<p dir="auto">{escape_html(response.answer)}</p>\n<ol>{references}</ol>\n'
    return "".join(_claim(triple, None) for triple in response)


def _brief(response: Response) -> str:
    if isinstance(response, str):
        return response[:200]
    if isinstance(response, LongAnswer):
        return response.answer[:200]
    return " ".join(triple.claim for triple in response)[:200]


def _claim(triple: Evidence, page: Document | None) -> str:
    claim = f'<p class="claim" dir="auto">{escape_html(triple.claim)}</p>\n'
    if page is not None:
        start = evidence.fold_case(page.text).find(evidence.fold_case(triple.quote))
        if triple.quote and start >= 0:
            marks = [Mark(start, start + len(triple.quote))]
            return claim + source(page, marks, "the quote stands here, word for word")
    quote = f'<blockquote dir="auto">{escape_html(triple.quote)}</blockquote>\n'
    title = f'<p class="title" dir="auto">{escape_html(triple.title)}</p>\n'
    return f'{claim}<section class="source">{title}{quote}</section>\n'


def _question(question: str) -> str:
    return f'<h2 dir="auto">{escape_html(question)}</h2>\n'


def _said(labels: Mapping[str, str], ratings: Iterable[Mapping[str, Any]]) -> str:
    parts = [f"{escape_html(name)}: {escape_html(value)}" for name, value in labels.items()]
    lines = "".join(f"<li>{'; '.join(_rating(each))}</li>" for each in ratings)
    listed = f"<details><summary>Ratings</summary><ul>{lines}</ul></details>\n" if lines else ""
    return about(*parts) + listed


def _rating(rating: Mapping[str, Any]) -> Iterator[str]:
    for name, value in rating.items():
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        yield f"{escape_html(str(name))}: {escape_html(shown)}"

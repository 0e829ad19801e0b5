"""A self-contained HTML page: tables, figures, and answers to browse.

Pages, questions and answers are untrusted. Everything is escaped, and the page's content security
policy forbids scripts and anything from elsewhere.
"""

import base64
from collections.abc import Iterable

from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.metrics import Judgement
from gophercite.html.escaping import escape_html, whole_page

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { border-bottom: 1px solid #8884; padding: .25rem .35rem; text-align: left; }
td.number { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
figure { display: inline-block; margin: 1rem 1rem 1rem 0; max-width: 100%; }
figure img { background: #fff; max-width: 100%; width: 36rem; }
details { border-bottom: 1px solid #8884; padding: .25rem 0; }
blockquote { border-left: 3px solid #8888; margin: .5rem 0; padding-left: 1rem; }
blockquote { white-space: pre-wrap; }
.yes { color: #00795a; } .no { color: #b34700; }
@media (prefers-color-scheme: dark) { .yes { color: #5fd3b3; } .no { color: #ff9d5c; } }
"""


def page(title: str, sections: Iterable[str]) -> str:
    """Returns a complete page.

    Args:
      title: any text.
      sections: HTML, from the functions below or from `Table.html`.
    """
    body = f"<h1>{escape_html(title)}</h1>\n{''.join(sections)}"
    return whole_page(title, _STYLE, body)


def heading(text: str) -> str:
    """Returns a heading of a section."""
    return f"<h2>{escape_html(text)}</h2>\n"


def paragraph(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{escape_html(text)}</p>\n"


def wide(table: str) -> str:
    """Returns a table in a box that scrolls horizontally on narrow screens."""
    return f'<div class="wide">{table}</div>\n'


def image(png: bytes, caption: str) -> str:
    """Returns a figure with its image embedded in the page."""
    data = base64.b64encode(png).decode()
    words = escape_html(caption)
    return (
        f'<figure><img alt="{words}" src="data:image/png;base64,{data}">'
        f"<figcaption>{words}</figcaption></figure>\n"
    )


def answers(samples: Iterable[JudgedSample]) -> str:
    """Returns answers to browse: each question opens to its claim, quote and judgements."""
    return "".join(map(_answer, samples))


def _answer(sample: JudgedSample) -> str:
    judgement = sample.judgement
    parts = [
        f"<p><strong>{escape_html(triple.claim)}</strong></p>\n"
        f"<blockquote>{escape_html(triple.quote)}</blockquote>\n"
        f"<p>{escape_html(triple.title)}</p>\n"
        for triple in judgement.triples
    ] or [f"<blockquote>{escape_html(sample.text)}</blockquote>\n"]
    accepted = " / ".join(sample.question.answers)
    if accepted:
        parts.append(paragraph(f"Accepted: {accepted}"))
    named = {
        "well-formed": judgement.well_formed,
        "verbatim": judgement.verbatim,
        "claim correct": judgement.claim_correct,
        "supported": judgement.supported,
    }
    marks = [_mark(name, value) for name, value in named.items() if value is not None]
    faults = [escape_html(f) for f in sorted(fault.value for fault in judgement.faults)]
    summary = f"{_outcome(judgement)}{escape_html(sample.question.question)}"
    return (
        f"<details><summary>{summary}</summary>\n{''.join(parts)}"
        f"<p>{' · '.join(marks + faults)}</p></details>\n"
    )


def _outcome(judgement: Judgement) -> str:
    """Whether an answer is right, by the strictest known judgement: a sign, a word, a colour."""
    known = (judgement.supported, judgement.claim_correct)
    holds = next((each for each in known if each is not None), None)
    if holds is None:
        return "" if judgement.well_formed else f"{_mark('malformed', False)} "
    return f"{_mark('right' if holds else 'wrong', holds)} "


def _mark(name: str, holds: bool) -> str:
    sign, kind = ("✓", "yes") if holds else ("✗", "no")
    return f'<span class="{kind}">{sign} {name}</span>'

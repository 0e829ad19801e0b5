"""HTML pages: templates filled with untrusted texts, all of which are escaped."""

import dataclasses
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import markupsafe

from gophercite.documents import Document
from gophercite.html.escaping import escape_html
from gophercite.html.marked_pages import Mark, marked_text
from gophercite.ratings.forms import Field, Form, kept, sentences
from gophercite.ratings.items import Answer, Claim, Item, StoredItem

FOLDER = pathlib.Path(__file__).parent
CONTEXT = 3000  # characters of a page that are shown around a quote


def _escaped(value: object) -> object:
    """Escapes an inserted value; control and invisible characters are shown by their codes."""
    if isinstance(value, markupsafe.Markup | jinja2.Undefined):
        return value
    return markupsafe.Markup(escape_html(str(value)))


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    finalize=_escaped,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: Any) -> str:
    """Fills a template."""
    return _TEMPLATES.get_template(template).render(**values)


def shown(item: Item, swapped: bool) -> Item:
    """Returns an item with its answers in the order that raters see."""
    return dataclasses.replace(item, answers=item.answers[::-1]) if swapped else item


class Sentence(typing.NamedTuple):
    """A sentence of a long answer, and the questions about it."""

    text: str
    support: Field
    relevance: Field


@dataclasses.dataclass(frozen=True)
class ShownAnswer:
    """An answer as a page shows it.

    Attributes:
      place: 0 for the answer shown first.
      heading: its heading.
      answer: the answer itself.
      fields: the questions about it.
      sentences: for a long answer, its sentences and the questions about them.
      text: text of an answer that is shown without boxes.
    """

    place: int
    heading: str
    answer: Answer
    fields: tuple[Field, ...]
    sentences: tuple[Sentence, ...] = ()
    text: str | None = None


def shown_answers(form: Form, item: Item, fields: Sequence[Field]) -> list[ShownAnswer]:
    """Returns the answers of an item in the order shown, with the questions about each."""
    by_name = {field.name: field for field in fields}
    single = len(item.answers) == 1
    result = []
    for place, answer in enumerate(item.answers):
        annotated = tuple(
            Sentence(text, by_name[name], by_name[f"relevance.{number}_{place}"])
            for number, text in enumerate(sentences(answer.as_text), 1)
            if (name := f"support.{number}_{place}") in by_name
        )
        own = tuple(
            field
            for field in fields
            if field.name.endswith(f"_{place}") and not field.name.startswith(("support.", "relev"))
        )
        text = _text_of(form, answer)
        heading = "The answer" if single else headings(form)[place]
        result.append(ShownAnswer(place, heading, answer, own, annotated, text))
    return result


def headings(form: Form) -> tuple[str, str]:
    """The headings of the answer shown first and of the other one."""
    letters = form.name in ("long-comparison", "minimal")  # their scales go from A to B
    return ("Answer A", "Answer B") if letters else ("First answer", "Second answer")


def _text_of(form: Form, answer: Answer) -> str | None:
    """The text shown of an answer instead of boxes; None if there are boxes."""
    if form.name in ("truthfulqa", "stance"):  # the answer alone
        return answer.as_text
    if form.name == "free-text" and answer.text is None:
        return "\n\n".join(flattened(claim, answer.template) for claim in answer.claims)
    return answer.text


def flattened(claim: Claim, template: int) -> str:
    """Returns claim and quote as one text, with one of the three templates of section C.3."""
    address = f"\n\n[1] {claim.url}" if claim.url else ""
    return (
        (
            f'{claim.claim}\n\nAccording to the page "{claim.title}"[1]:\n{claim.quote}{address}',
            f'{claim.claim}\n\nSee this fragment from "{claim.title}"[1]:\n{claim.quote}{address}',
            f'{claim.claim}\n\n"{claim.quote}"\nSource: "{claim.title}" [1]{address}',
        )
    )[template]


def marked_page(document: Document, claim: Claim) -> markupsafe.Markup:
    """Returns a page's text as HTML, with the quote marked and given the id `quote`."""
    marks = []
    if 0 <= claim.start < claim.end <= len(document.text):
        marks = [Mark(claim.start, claim.end)]
    # Everything else is escaped, so the only `<mark` is our own.
    text = marked_text(document.text, marks, CONTEXT).replace("<mark", '<mark id="quote"', 1)
    return markupsafe.Markup(text)


def labels(form: Form, fields: Sequence[Field], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns a form's contents in words: the questions and the given answers."""
    said = []
    first, second = headings(form)
    for field in fields:
        value = values.get(field.name)
        if value in (None, ""):
            continue
        choices = dict(field.choices)
        several = value if isinstance(value, list) else [value]
        words = " or ".join(choices.get(each, str(each)) for each in several)
        where = {"_0": f"{first}: ", "_1": f"{second}: "}.get(field.name[-2:], "")
        said.append((where + field.label, words))
    return said


def expected_in_words(
    form: Form, stored: StoredItem, fields: Sequence[Field]
) -> list[tuple[str, str]]:
    """Returns the right values of a check or example in words, in the order shown."""
    return labels(form, fields, kept(fields, stored.expected, stored.swapped))

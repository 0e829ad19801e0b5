"""Lines of `pages.jsonl` in a recorded world: a page's document, links and anchors."""

import collections
import dataclasses
from typing import Any

from gophercite.browser.pages import Page
from gophercite.browser.shown import Link
from gophercite.documents import Document
from gophercite.records import from_json, to_json
from gophercite.storage.json_fields import JsonFields, describe

_DOCUMENT_FIELDS = frozenset(field.name for field in dataclasses.fields(Document))
_PAGE_FIELDS = _DOCUMENT_FIELDS | {"links", "anchors", "sha256"}


def page_to_json(page: Page) -> dict[str, Any]:
    """Returns the JSON object of a page's line."""
    return {
        **to_json(page.document),
        "sha256": page.document.sha256,
        "links": [[link.start, link.end, link.url] for link in page.links],
        "anchors": [[name, place] for name, place in page.anchors.items()],
    }


def page_from_json(value: object) -> Page:
    """Parses a page from its JSON object.

    Raises:
      RecordError: names the field.
    """
    fields = JsonFields(value, _PAGE_FIELDS, collections.Counter())
    document = from_json(
        {name: each for name, each in fields.values.items() if name in _DOCUMENT_FIELDS}, Document
    )
    if fields.text("sha256") != document.sha256:
        raise fields.error("sha256", "is not that of the text")
    length = len(document.text)
    links = []
    for index, link in enumerate(_listed(fields, "links")):
        match link:
            case [int(start), int(end), str(url)] if _are_offsets(start, end, length):
                links.append(Link(start, end, url))
            case _:
                raise fields.error(f"links[{index}]", f"is not a link: {describe(link)}")
    anchors = {}
    for index, anchor in enumerate(_listed(fields, "anchors")):
        match anchor:
            case [str(name), int(place)] if type(place) is int and 0 <= place <= length:
                anchors[name] = place
            case _:
                raise fields.error(f"anchors[{index}]", f"is not an anchor: {describe(anchor)}")
    return Page(document, tuple(links), anchors)


def _are_offsets(start: int, end: int, length: int) -> bool:
    """Whether two values are offsets of a text; true and false are integers of Python's, too."""
    return type(start) is int and type(end) is int and 0 <= start < end <= length


def _listed(fields: JsonFields, name: str) -> list[Any]:
    value = fields.values.get(name, [])
    if not isinstance(value, list):
        raise fields.error(name, f"expected a list, got {describe(value)}")
    return value

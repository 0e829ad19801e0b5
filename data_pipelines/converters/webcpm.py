"""WebCPM's demonstrations of browsing (Qin et al., 2023): the contents of its `data.json`.

The file is a list of objects (or `{"data": [...]}`, as in its authors' splits) with
`question`, `answer`, `digests` and `actions`. An action has these fields:

- `action`: its name.
- `details`: an object with `keyword`, `href` or `text`. The details of a search may also have its
  whole `result`, and those of a page its `pageMainContent`.
- `pageContentInViewport`: the view after the action, which is three search results with `title`,
  `summary` and `href`, or about 500 characters of a page.
- `digests`: not read.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipelines.converters.gold import BadRecord, ConversionReport, list_field, text_field
from gophercite.retrieval.engine import Hit
from gophercite.storage.json_lines import read_json

SEARCH, OPEN, QUOTE = "PRESS_SEARCH", "LOAD_PAGE_DETAIL", "ADD_DIGEST"
DOWN, UP, TOP = "TRIGGER_SCROLL_DOWN", "TRIGGER_SCROLL_UP", "TRIGGER_SCROLL_TO_TOP"
BACK, MERGE = "PAGE_GO_BACK", "MERGE_DIGEST"
START, CLOSE, REJECT = "RECORD_START", "RECORD_CLOSE", "RECORD_REJECT"

# The keys that are read from `details` of an action.
_DETAILS = {SEARCH: "keyword", OPEN: "href", QUOTE: "text"}
_LINE_END = re.compile(r"<br\s{0,3}/?>", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class WebcpmAction:
    """A person's action.

    Attributes:
      name: one of the constants above, or another.
      detail: the query, the address, or the quoted text.
      results: the search results in view after it, and those of the whole search.
      text: the page's text in view after it, or all of its text.
      whole: whether `text` is all of the page.
    """

    name: str
    detail: str = ""
    results: tuple[Hit, ...] = ()
    text: str | None = None
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class WebcpmDemonstration:
    """A question, a person's browsing, and the answer.

    Attributes:
      question: in Chinese.
      actions: the actions in order.
      digests: the digests kept at the end, in the order of the answer's numbers, each merged from
        one or several quotes. If the file has none, everything that was quoted.
      answer: the answer, with `【1】` or `<1>` after the text that a digest proves.
    """

    question: str
    actions: tuple[WebcpmAction, ...]
    digests: tuple[tuple[str, ...], ...]
    answer: str


def read_webcpm(path: Path, report: ConversionReport) -> Iterator[tuple[int, WebcpmDemonstration]]:
    """Yields the demonstrations of a file, each with its index in the list, from 0.

    Args:
      path: `data.json`, `data_zhihu.json`, or the output of their authors' `split.py`.
      report: counts what was left out.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json`.
      ValueError: the file does not contain a list.
    """
    values = read_json(path)
    if isinstance(values, dict):
        values = values.get("data")
    if not isinstance(values, list):
        raise ValueError(f"{path} is not WebCPM data: expected a list, or an object with 'data'")
    for index, value in enumerate(values):
        with report.skipping(f"{path}: [{index}]"):
            yield index, _demonstration(value)


def _demonstration(value: Any) -> WebcpmDemonstration:
    question, answer = text_field(value, "question"), text_field(value, "answer")
    actions = []
    for number, action in enumerate(list_field(value, "actions")):
        try:
            actions.append(_action(action))
        except BadRecord as problem:
            raise BadRecord(f"field 'actions[{number}]': {problem}") from None
    digests: tuple[tuple[str, ...], ...]
    digests = tuple((action.detail,) for action in actions if action.name == QUOTE)
    if value.get("digests") is not None:
        digests = tuple(map(_digest, list_field(value, "digests")))
    return WebcpmDemonstration(question.strip(), tuple(actions), digests, answer.strip())


def _action(value: Any) -> WebcpmAction:
    name = text_field(value, "action")
    details = value.get("details")
    detail = text_field(details, _DETAILS[name]).strip() if name in _DETAILS else ""
    if name == OPEN:
        detail = _address(details)
    viewport = value.get("pageContentInViewport")
    results: list[Hit] = []
    if name == SEARCH and isinstance(details.get("result"), list):
        results += _hits(details["result"])
    if isinstance(viewport, list):
        results += _hits(viewport)
    text, whole = (_plain(viewport), False) if isinstance(viewport, str) else (None, False)
    if name == OPEN and isinstance(details.get("pageMainContent"), list):
        parts = [part for part in details["pageMainContent"] if isinstance(part, str)]
        text, whole = _plain("".join(parts)), True
    return WebcpmAction(name, detail, tuple(dict.fromkeys(results)), text, whole)


def _hits(values: list[Any]) -> list[Hit]:
    hits = []
    for value in values:
        summary = value.get("summary") if isinstance(value, dict) else None
        title = text_field(value, "title")
        summary = summary if isinstance(summary, str) else ""
        hits.append(Hit(_address(value), title, summary))
    return hits


def _address(value: Any) -> str:
    address = text_field(value, "href").strip()
    try:
        address.encode()
    except UnicodeEncodeError:
        raise BadRecord(f"field 'href': {address!a:.60} has half of a surrogate pair") from None
    return address


def _digest(value: Any) -> tuple[str, ...]:
    """The texts of a digest: `{"datas": [{"desc": …}]}`, or just the list, as in actions."""
    parts = value if isinstance(value, list) else list_field(value, "datas")
    return tuple(text_field(part, "desc").strip() for part in parts)


def _plain(text: str) -> str:
    return _LINE_END.sub("\n", text)

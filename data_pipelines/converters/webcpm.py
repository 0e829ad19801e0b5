"""WebCPM's demonstrations of browsing (Qin et al., 2023): what its `data.json` says.

The file is a list of objects (or `{"data": [...]}`, as its authors' division into splits has it) of
`question`, `answer`, `digests` and `actions`. An action has `action`, its name; `details`, by the
name `keyword`, `href` or `text`; `pageContentInViewport`, after it: three search results with
`title`, `summary` and `href`, or some 500 characters of a page; and `digests`. Where `details` of a
search have the whole `result`, or those of a page its `pageMainContent`, these are read, too.
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

# What is asked of `details` of an action.
_DETAILS = {SEARCH: "keyword", OPEN: "href", QUOTE: "text"}
_LINE_END = re.compile(r"<br\s{0,3}/?>", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class WebcpmAction:
    """An action of a person.

    Attributes:
      name: one of the constants above, or another.
      detail: the query, the address, or the text that was quoted.
      results: search results that are seen after it, and those of the whole search.
      text: of the page, what is seen after it, or all of it.
      whole: whether that is all of it.
    """

    name: str
    detail: str = ""
    results: tuple[Hit, ...] = ()
    text: str | None = None
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class WebcpmDemonstration:
    """A question, how a person browsed for it, and the answer.

    Attributes:
      question: in Chinese.
      actions: in their order.
      digests: what was kept in the end, in the order of the answer's numbers: each of one or
        several quotes, which were merged. Where the file does not say, all that was quoted.
      answer: with `【1】` or `<1>` behind what a digest proves.
    """

    question: str
    actions: tuple[WebcpmAction, ...]
    digests: tuple[tuple[str, ...], ...]
    answer: str


def read_webcpm(path: Path, report: ConversionReport) -> Iterator[tuple[int, WebcpmDemonstration]]:
    """Yields the demonstrations of a file, each with its place in the list, from 0.

    Args:
      path: `data.json`, `data_zhihu.json`, or what their authors' `split.py` makes of them.
      report: is told what was left out.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json`.
      ValueError: when the file holds no list.
    """
    values = read_json(path)
    if isinstance(values, dict):
        values = values.get("data")
    if not isinstance(values, list):
        raise ValueError(f"{path} is no data of WebCPM: expected a list, or an object with 'data'")
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
    seen = value.get("pageContentInViewport")
    results: list[Hit] = []
    if name == SEARCH and isinstance(details.get("result"), list):
        results += _hits(details["result"])
    if isinstance(seen, list):
        results += _hits(seen)
    text, whole = (_plain(seen), False) if isinstance(seen, str) else (None, False)
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
        hits.append(Hit(text_field(value, "href").strip(), title, summary))
    return hits


def _digest(value: Any) -> tuple[str, ...]:
    """The texts of a digest: `{"datas": [{"desc": …}]}`, or the list alone, as actions have it."""
    parts = value if isinstance(value, list) else list_field(value, "datas")
    return tuple(text_field(part, "desc").strip() for part in parts)


def _plain(text: str) -> str:
    return _LINE_END.sub("\n", text)

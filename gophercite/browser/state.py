"""The state of an episode: a single value that determines how it continues, and its JSON form."""

import collections
import dataclasses
import json
from typing import Any, Literal, TypeVar, cast

from gophercite.browser.settings import Settings
from gophercite.storage.json_fields import JsonFields, RecordError, describe

T = TypeVar("T")

Phase = Literal["browsing", "answering", "done"]
EndReason = Literal["answer", "nonsense", "controversial", "actions", "references"]
PHASES = ("browsing", "answering", "done")
END_REASONS = ("answer", "nonsense", "controversial", "actions", "references")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the browser is.

    Attributes:
      kind: `search` for results, `page` for a page.
      target: the query, or the address without its fragment.
      first: number of the first line that is shown, from 0.
      cursor: where `Find in page` continues, in characters of the page's text.
      problem: why the page is not shown though the world may have it; None if it is shown.
    """

    kind: Literal["search", "page"]
    target: str
    first: int = 0
    cursor: int = 0
    problem: str | None = None


@dataclasses.dataclass(frozen=True)
class View:
    """The visible part of the page.

    Attributes:
      title: the page's title as shown to the model; empty before the first action.
      first, last: numbers of the first and last shown line, from 0.
      text: these lines, with links marked.
    """

    title: str = ""
    first: int = 0
    last: int = 0
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Reference:
    """An extract of a page, cited by its number.

    Attributes:
      title: the page's title, without its domain.
      domain: the host of the page's address.
      url: the page's address.
      extract: the page's own words: `text[start:end]` of its document.
      document: the document's id.
      start, end: offsets in code points.
      sha256: SHA-256 of the document's text (`Document.sha256`).
      retrieved_at: when the page was fetched, in ISO 8601.
      pages: for a PDF, the numbers of the pages that the extract is on, from 1.
    """

    title: str
    domain: str
    url: str
    extract: str
    document: str
    start: int
    end: int
    sha256: str
    retrieved_at: str | None = None
    pages: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Action:
    """An action while browsing, and its result.

    Attributes:
      text: the text that was issued.
      invalid: why it was ignored; None if it was executed.
      past: its name in later observations; None if it does not appear there.
      note: further information for readers of the log.
    """

    text: str
    invalid: str | None = None
    past: str | None = None
    note: str | None = None


@dataclasses.dataclass(frozen=True)
class State:
    """An episode so far. It is immutable; to branch, continue from it twice.

    Attributes:
      question: the question.
      settings: the rules.
      limit: number of actions that browsing may take in this episode.
      reference_answer: pages that share a run of words with it are censored; None for no censoring
        by answer.
      phase: `browsing`, `answering` when the next text is the answer, or `done`.
      place: where the browser is; None before the first page.
      history: earlier places, to which `Back` leads.
      view: the visible part of the page.
      references: the extracts that were quoted, in order.
      actions: the actions while browsing.
      end: why browsing ended: by `End: …`, or by a limit (`actions`, `references`).
      answer: the answer as written.
    """

    question: str
    settings: Settings
    limit: int
    reference_answer: str | None = None
    phase: Phase = "browsing"
    place: Place | None = None
    history: tuple[Place, ...] = ()
    view: View = View()
    references: tuple[Reference, ...] = ()
    actions: tuple[Action, ...] = ()
    end: EndReason | None = None
    answer: str | None = None

    @property
    def actions_left(self) -> int:
        """Number of actions that browsing may still take."""
        return self.limit - len(self.actions)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.phase == "done"

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that were issued, the answer last: replaying them gives this state."""
        texts = tuple(action.text for action in self.actions)
        return texts if self.answer is None else (*texts, self.answer)


# --- JSON ---


def state_to_json(state: State) -> dict[str, Any]:
    """Returns the JSON object of a state."""
    return dataclasses.asdict(state)


def dumps(state: State) -> str:
    """Returns a state as one line of JSON; equal states give equal lines."""
    return json.dumps(state_to_json(state), ensure_ascii=False, allow_nan=False)


def loads(text: str) -> State:
    """Parses a state that was written by `dumps`.

    Raises:
      RecordError: when it is not a state.
    """
    try:
        return state_from_json(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise RecordError(f"can't be read as JSON: {error}") from None


def state_from_json(value: object) -> State:
    """Parses a state from its JSON object.

    Raises:
      RecordError: names the field, and what would be right.
    """
    fields = _fields(value, State)
    limit, phase, end = (
        fields.integer("limit"),
        _one_of(fields, "phase", PHASES),
        _one_of(fields, "end", END_REASONS, optional=True),
    )
    actions = tuple(_action(action) for action in fields.objects("actions", _names(Action)))
    if limit < len(actions) + (phase == "browsing"):
        raise fields.error("limit", f"{limit} leaves no room for the {len(actions)} actions taken")
    if (end is None) != (phase == "browsing"):
        raise fields.error("end", "must be given if browsing has ended, and only then")
    return State(
        question=_text(fields, "question"),
        settings=settings_from_json(_object(fields, "settings")),
        limit=limit,
        reference_answer=_optional_text(fields, "reference_answer"),
        phase=cast(Phase, phase),
        place=_place(_object(fields, "place")) if "place" in fields else None,
        history=tuple(
            _place(place.values, f"history[{index}]")
            for index, place in enumerate(fields.objects("history", _names(Place)))
        ),
        view=_view(_object(fields, "view")),
        references=tuple(
            reference_from_fields(each) for each in fields.objects("references", _names(Reference))
        ),
        actions=actions,
        end=cast("EndReason | None", end),
        answer=_optional_text(fields, "answer"),
    )


def settings_from_json(value: object) -> Settings:
    """Parses settings from their JSON object; absent ones get their default.

    Raises:
      RecordError: names the field.
    """
    fields = _fields(value, Settings, "settings")
    given: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        if field.name not in fields:
            continue
        match field.name:
            case "actions" if isinstance(fields.values["actions"], list):
                numbers = fields.integers("actions")
                if len(numbers) != 2:
                    raise fields.error("actions", "must be a number, or two for a range")
                given["actions"] = numbers
            case "blocked":
                given["blocked"] = fields.texts("blocked")
            case "absent_text_is_invalid":
                given[field.name] = fields.flag(field.name)
            case "score_without_answer":
                given[field.name] = fields.optional_number(field.name)
            case _:
                given[field.name] = fields.integer(field.name)
    try:
        return Settings(**given)
    except ValueError as error:
        raise RecordError(str(error), "settings") from None


def reference_from_fields(fields: JsonFields) -> Reference:
    """Builds a reference from the fields of its JSON object."""
    extract = _text(fields, "extract")
    start, end = fields.integer("start"), fields.integer("end")
    if not 0 <= start < end == start + len(extract):
        problem = (
            f"{start} and {end} can't be the place of an extract with {len(extract)} characters"
        )
        raise fields.error("end", problem)
    return Reference(
        title=_text(fields, "title"),
        domain=_text(fields, "domain"),
        url=_text(fields, "url"),
        extract=extract,
        document=_text(fields, "document"),
        start=start,
        end=end,
        sha256=_text(fields, "sha256"),
        retrieved_at=_optional_text(fields, "retrieved_at"),
        pages=fields.integers("pages"),
    )


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


def _fields(value: object, kind: type, path: str = "") -> JsonFields:
    return JsonFields(value, _names(kind), collections.Counter(), path)


def _object(fields: JsonFields, name: str) -> object:
    if name not in fields:
        raise fields.error(name, "is missing: expected an object")
    return fields.values[name]


def _text(fields: JsonFields, name: str) -> str:
    # Unchanged: the code that created the state has already normalised what needs it.
    return fields.text(name, empty=True, raw=True)


def _optional_text(fields: JsonFields, name: str) -> str | None:
    return _text(fields, name) if name in fields else None


def _one_of(
    fields: JsonFields, name: str, choices: tuple[str, ...], *, optional: bool = False
) -> str | None:
    value = fields.values.get(name)
    if (value is None and optional) or value in choices:
        return cast("str | None", value)
    raise fields.error(name, f"must be one of {', '.join(choices)}, got {describe(value)}")


def _place(value: object, path: str = "place") -> Place:
    fields = _fields(value, Place, path)
    place = Place(
        kind=cast(Any, _one_of(fields, "kind", ("search", "page"))),
        target=_text(fields, "target"),
        first=fields.integer("first"),
        cursor=fields.integer("cursor"),
        problem=_optional_text(fields, "problem"),
    )
    for name in ("first", "cursor"):
        if getattr(place, name) < 0:
            raise fields.error(name, "must not be negative")
    return place


def _view(value: object) -> View:
    fields = _fields(value, View, "view")
    first, last = fields.integer("first"), fields.integer("last")
    return View(_text(fields, "title"), first, last, _text(fields, "text"))


def _action(fields: JsonFields) -> Action:
    return Action(
        _text(fields, "text"),
        _optional_text(fields, "invalid"),
        _optional_text(fields, "past"),
        _optional_text(fields, "note"),
    )

"""What raters are shown: a question with one or two answers, as stored in `items.content`."""

import collections
import dataclasses
import hashlib
import json
import os
import random
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from gophercite.documents import Document
from gophercite.ratings import schema
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.store import Store, StudyError, note
from gophercite.records import Extract
from gophercite.storage.json_fields import RecordError

Place = tuple[str | os.PathLike[str], int | None]  # a file, and a line in it if that is known
TEMPLATES = 3  # number of ways to join a claim and its quote into one text (section C.3)
EVERYBODY = 1 << 30  # number of raters that gold items need


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim with its evidence.

    Attributes:
      claim, title, quote: the inline evidence.
      url: the page's address.
      page: SHA-256 of the page's text, if the page is stored.
      start, end: where the quote begins and ends in that text.
    """

    claim: str
    title: str
    quote: str
    url: str | None = None
    page: str | None = None
    start: int = 0
    end: int = 0


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer: claims with evidence, or a text, possibly with references.

    Attributes:
      claims: its claims with their evidence; empty for other answers.
      text: the text of an answer without claims.
      references: the extracts that the text cites by number.
      document: id of the document that the first claim quotes, in `documents`.
      documents: what the model was shown: `{"id", "sha256"}` for stored pages, otherwise
        `{"id", "snippet"}`.
      model: the model's name; raters never see it.
      template: index of the template that joins claim and quote; drawn once.
    """

    claims: tuple[Claim, ...] = ()
    text: str | None = None
    references: tuple[Extract, ...] = ()
    document: str | None = None
    documents: tuple[dict[str, str], ...] = ()
    model: str | None = None
    template: int = 0

    @property
    def as_text(self) -> str:
        """The answer as one text; its claims, joined, if it has nothing else."""
        return self.text if self.text is not None else " ".join(c.claim for c in self.claims)


@dataclasses.dataclass(frozen=True)
class Item:
    """A question with its answers.

    Attributes:
      question_id: the question's id in its record.
      question: the text.
      source: the data set.
      answers: one or two; none for demonstrations.
      correct, incorrect: trusted answers (TruthfulQA).
      whole: whether all parts of WebGPT's comparison must be filled in; drawn once.
      reason: for checks and examples, why the expected values are right.
      others: other raters' values, shown to adjudicators.
    """

    question_id: str
    question: str
    source: str
    answers: tuple[Answer, ...]
    correct: tuple[str, ...] = ()
    incorrect: tuple[str, ...] = ()
    whole: bool = False
    reason: str = ""
    others: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON to store."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Item":
        """Restores an item from its stored JSON."""
        answers = tuple(
            Answer(
                **{
                    **answer,
                    "claims": tuple(Claim(**claim) for claim in answer["claims"]),
                    "references": tuple(Extract(**each) for each in answer["references"]),
                    "documents": tuple(answer["documents"]),
                }
            )
            for answer in value["answers"]
        )
        lists = {name: tuple(value[name]) for name in ("correct", "incorrect", "others")}
        return cls(**{**value, **lists, "answers": answers})


@dataclasses.dataclass(frozen=True)
class NewItem:
    """An item to add.

    Attributes:
      name: unique among the items of its role in the experiment.
      item: what is shown.
      role: its purpose.
      expected: for checks, gold and examples: the right values, by the form's fields.
      pages: the pages that the quotes are from.
      place: file and line of the record whose id is `name`; None if the name was made up. A made-up
        name is changed if an item with other content already has it.
    """

    name: str
    item: Item
    role: Role = Role.ITEM
    expected: dict[str, Any] | None = None
    pages: tuple[Document, ...] = ()
    place: Place | None = None


class Added(typing.NamedTuple):
    """The result of adding items.

    Attributes:
      added: number of items that were added.
      there: number of items that had been added before.
      errors: one for each item that was left out because another item has its name.
    """

    added: int
    there: int
    errors: list[RecordError]


@dataclasses.dataclass(frozen=True)
class StoredItem:
    """A row of `items`."""

    id: int
    experiment_id: int
    name: str
    role: Role
    item: Item
    expected: dict[str, Any]
    swapped: bool
    wanted: int


def add_items(
    store: Store, experiment: Experiment, new: Iterable[NewItem], actor: str = "command"
) -> Added:
    """Adds items, even while raters are at work; existing items only get the pages they lack.

    All that is random about an item is drawn and stored here, seeded by the experiment's seed and
    the item's name: the order of the answers, the item's position, the template, the required
    parts.
    """
    added, existing = 0, 0
    errors: list[RecordError] = []
    with store.writing() as connection:
        table = schema.items
        query = sa.select(table.c.id, table.c.role, table.c.name, table.c.content)
        rows = connection.execute(query.where(table.c.experiment_id == experiment.id))
        there: dict[tuple[str, str], str] = {}
        ids = collections.defaultdict[tuple[str, str], list[int]](list)  # of earlier calls' items
        for row in rows:
            there[row.role, row.name] = digest = _digest(Item.of(row.content))
            ids[row.role, digest].append(row.id)
        rows = connection.execute(sa.select(schema.pages.c.sha256))
        pages = {row.sha256 for row in rows}

        def keep(document: Document) -> None:
            if document.sha256 not in pages:
                pages.add(document.sha256)
                row = {"sha256": document.sha256, "document": dataclasses.asdict(document)}
                connection.execute(schema.pages.insert(), row)

        for each in new:
            role, name, digest = each.role.value, each.name, _digest(each.item)
            same = ids.get((role, digest), [])
            if there.get((role, name)) == digest if each.place else same:
                existing += 1
                for id in same if each.pages else ():
                    item = item_of(connection, id).item
                    if (whole := _with_pages(item, each.item)) != item:
                        change = table.update().where(table.c.id == id)
                        connection.execute(change, {"content": whole.to_json()})
                        for page in each.pages:
                            keep(page)
                continue
            if (role, name) in there:
                if each.place is not None:
                    problem = f"an item named {name!r} with other content already exists"
                    errors.append(RecordError(problem, "id", *each.place))
                    continue
                name = f"{name} {digest}"
            there[role, name] = digest
            for page in each.pages:
                keep(page)
            connection.execute(table.insert(), _row(experiment, each, name, added))
            added += 1
        connection.execute(sa.text("ANALYZE items"))  # else PostgreSQL may sort all items each time
        said = {"experiment": experiment.name, "added": added, "there": existing}
        note(connection, store.now(), actor, "items-added", said)
    return Added(added, existing, errors)


def _row(experiment: Experiment, new: NewItem, name: str, number: int) -> dict[str, Any]:
    """An item's row, with all that is random drawn; `number` orders checks and examples."""
    settings = experiment.settings
    draw = random.Random(f"{settings.seed} {new.role} {name}")
    swapped, position = draw.random() < 0.5, draw.getrandbits(31)
    whole = draw.random() < settings.parts_required
    answers = tuple(
        dataclasses.replace(answer, template=draw.randrange(TEMPLATES))
        for answer in new.item.answers
    )
    fixed = new.role in (Role.CHECK, Role.EXAMPLE)  # shown as written, with few parts
    content = dataclasses.replace(new.item, answers=answers, whole=whole and not fixed)
    return {
        "experiment_id": experiment.id,
        "name": name,
        "role": new.role.value,
        "content": content.to_json(),
        "expected": new.expected,
        "swapped": int(swapped and len(answers) == 2 and not fixed),
        "position": number if fixed else position,
        "wanted": EVERYBODY if new.role is not Role.ITEM else settings.raters,
    }


def _with_pages(item: Item, same: Item) -> Item:
    """An item with the pages that it lacks, taken from another item with the same answers."""

    def filled(claim: Claim, other: Claim) -> Claim:
        of_other = dataclasses.replace(other, url=claim.url, page=None, start=0, end=0)
        return other if claim.page is None and of_other == claim else claim

    if [len(each.claims) for each in item.answers] != [len(each.claims) for each in same.answers]:
        return item  # digests are short, so different answers may have the same one
    answers = []
    for answer, other in zip(item.answers, same.answers, strict=True):
        kept = {each["id"]: each for each in other.documents if "sha256" in each}
        documents = (e if "sha256" in e else kept.get(e["id"], e) for e in answer.documents)
        claims = tuple(map(filled, answer.claims, other.claims))
        answers.append(dataclasses.replace(answer, claims=claims, documents=tuple(documents)))
    return dataclasses.replace(item, answers=tuple(answers))


def _digest(item: Item) -> str:
    """A short digest of the question and the answers; the pages of the quotes don't change it."""
    answers = [
        [
            [[claim.claim, claim.title, claim.quote] for claim in answer.claims],
            answer.text,
            [[each.title, each.extract] for each in answer.references],
            answer.model,
        ]
        for answer in item.answers
    ]
    return hashlib.sha256(json.dumps([item.question, *answers]).encode()).hexdigest()[:8]


def item_of(connection: sa.Connection, id: int) -> StoredItem:
    """Returns an item.

    Raises:
      StudyError: there is no item with that id.
    """
    row = connection.execute(sa.select(schema.items).where(schema.items.c.id == id)).one_or_none()
    if row is None:
        raise StudyError(f"there is no item {id}")
    return _stored(row)


def items_of(connection: sa.Connection, experiment: Experiment, *roles: Role) -> list[StoredItem]:
    """Returns an experiment's items with one of these roles, in the order they were added."""
    table = schema.items
    query = sa.select(table).where(
        table.c.experiment_id == experiment.id, table.c.role.in_([role.value for role in roles])
    )
    return [_stored(row) for row in connection.execute(query.order_by(table.c.id))]


def page_of(connection: sa.Connection, sha256: str) -> Document | None:
    """Returns a stored page."""
    query = sa.select(schema.pages.c.document).where(schema.pages.c.sha256 == sha256)
    value = connection.execute(query).scalar_one_or_none()
    if value is None:
        return None
    return Document(**{**value, "page_starts": tuple(value["page_starts"])})


def _stored(row: sa.Row[Any]) -> StoredItem:
    return StoredItem(
        row.id,
        row.experiment_id,
        row.name,
        Role(row.role),
        Item.of(row.content),
        row.expected or {},
        bool(row.swapped),
        row.wanted,
    )

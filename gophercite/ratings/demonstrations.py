"""Episodes that raters demonstrate: their steps in the database, and the records built from them.

Each step is a row, with the browser's state after it. The step that ends an episode is stored in
the same transaction as the vote that reports it. A step carries the number of the step after which
its form was built, so a form that is sent twice, or is outdated, changes nothing.

All functions with a connection run in the caller's transaction (`Store.writing` or `reading`).
"""

import hashlib
import re
import typing
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from gophercite.browser.environment import Step, reset, step
from gophercite.browser.episodes import Episode, EpisodeStep
from gophercite.browser.marks import ELLIPSIS, escape
from gophercite.browser.observation import prompt
from gophercite.browser.pages import Page, error_page
from gophercite.browser.state import State, state_from_json, state_to_json
from gophercite.browser.worlds import World
from gophercite.ratings import assignment
from gophercite.ratings.browsed_worlds import Environment
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.items import Item, StoredItem
from gophercite.ratings.schema import episode_steps, leases, ratings
from gophercite.retrieval.engine import Hit

SEARCH, FIND, QUOTE = "search", "find", "quote"  # requests of forms with text fields

_SCROLL = re.compile(r"Scrolled (down|up) ([123])")
_MOST_SCROLLS = 3  # in one action (table 1)
_LONG = 40  # characters; longer quotes are written as their first and last words
_ENDS = (2, 3, 5, 8)  # number of words at either end: the smallest that identifies the place
_CITATION = re.compile(r"\[(\d{1,4}(?:, ?\d{1,4})*)\]")
_SHOWN_CODE = re.compile(r"\\u([0-9a-f]{4})")  # how pages show control and invisible characters


class Nowhere:
    """An empty world, for steps that need no page: answers."""

    name = "nowhere"

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """As `World.search`."""
        return ()

    def open(self, url: str) -> Page:
        """As `World.open`."""
        return error_page(url, "there is nothing")


class Browsing(typing.NamedTuple):
    """A rater's current state.

    Attributes:
      version: number of the last step.
      text: text of that step; empty at the beginning.
      form: digest of the form that requested it.
      state: the state after it.
      before: the state before it; if it replaces other steps, the state before these.
      begun_at: when the episode began.
    """

    version: int
    text: str
    form: str
    state: State
    before: State
    begun_at: float


class Asked(typing.NamedTuple):
    """What a form requests, in the environment's syntax.

    Attributes:
      text: the command, or the answer.
      merges: whether it replaces the last step.
    """

    text: str
    merges: bool = False


# --- Storage ---


def begin(
    connection: sa.Connection,
    now: float,
    experiment: Experiment,
    stored: StoredItem,
    rater_id: int,
    environment: Environment,
) -> Browsing:
    """Returns a rater's state for an item, and starts the episode if there is none."""
    there = browsing(connection, stored.id, rater_id)
    if there is not None:
        return there
    state = _start(stored.item, environment, experiment.settings.seed)
    _add(connection, now, experiment.id, stored.id, rater_id, 0, Asked(""), "", state)
    return Browsing(0, "", "", state, state, now)


def browsing(connection: sa.Connection, item_id: int, rater_id: int) -> Browsing | None:
    """Returns a rater's state for an item; None if they have not begun."""
    mine = episode_steps.c.item_id == item_id, episode_steps.c.rater_id == rater_id
    begun = sa.select(episode_steps.c.created_at).where(*mine, episode_steps.c.number == 0)
    begun_at = connection.execute(begun).scalar_one_or_none()
    if begun_at is None:
        return None
    rows = _rows(connection, item_id, rater_id, last=_MOST_SCROLLS + 1)
    last, standing = rows[-1], _standing(rows)
    state = state_from_json(last.state)
    before = state_from_json(standing[-2].state) if len(standing) > 1 else state
    return Browsing(last.number, last.text, last.form, state, before, begun_at)


def unfinished(connection: sa.Connection, experiment_id: int, rater_id: int) -> int | None:
    """Returns the item that a rater has begun to browse for but not finished or skipped."""
    steps = episode_steps.c
    same = ratings.c.item_id == steps.item_id, ratings.c.rater_id == rater_id
    left = leases.c.item_id == steps.item_id, leases.c.rater_id == rater_id
    query = (
        sa.select(steps.item_id)
        .where(steps.rater_id == rater_id, steps.experiment_id == experiment_id, steps.number == 0)
        .where(~sa.exists().where(*same))
        .where(~sa.exists().where(*left, leases.c.state == "skipped"))
        .order_by(steps.id.desc())
        .limit(1)
    )
    return connection.execute(query).scalar()


def append(
    connection: sa.Connection,
    now: float,
    experiment: Experiment,
    item_id: int,
    rater_id: int,
    after: Browsing,
    asked: Asked,
    form: str,
    state: State,
) -> bool:
    """Stores a step and extends the rater's lease; an episode's last step is also the rater's vote.

    Args:
      connection: a transaction that may write.
      now: the current time, in seconds since 1970.
      experiment: the experiment.
      item_id: the item for which the rater browses.
      rater_id: the rater.
      after: the state in which the step was taken.
      asked: the step.
      form: digest of the form that requested it.
      state: the state after it.

    Returns:
      Whether the step was stored: not if another step has been stored in the meantime.
    """
    mine = episode_steps.c.item_id == item_id, episode_steps.c.rater_id == rater_id
    last = sa.select(sa.func.max(episode_steps.c.number)).where(*mine)
    if connection.execute(last).scalar_one() != after.version:
        return False
    number = after.version + 1
    _add(connection, now, experiment.id, item_id, rater_id, number, asked, form, state)
    if state.done:
        values = {"end": state.end}
        assignment.vote(connection, now, experiment, item_id, rater_id, values, after.begun_at)
    else:
        assignment.renew(connection, now, experiment, item_id, rater_id)
    return True


def skip(
    connection: sa.Connection, now: float, experiment: Experiment, item_id: int, rater_id: int
) -> None:
    """Gives an item back, as `assignment.skip` does, even if others have taken it meanwhile."""
    mine = leases.c.item_id == item_id, leases.c.rater_id == rater_id
    if connection.execute(sa.select(leases.c.state).where(*mine)).scalar() == "skipped":
        return  # the form was sent twice
    if assignment.renew(connection, now, experiment, item_id, rater_id):
        assignment.skip(connection, now, item_id, rater_id)
        return
    row = {"experiment_id": experiment.id, "item_id": item_id, "rater_id": rater_id}
    times = {"given_at": now, "expires_at": now}
    connection.execute(leases.insert(), {**row, **times, "state": "skipped"})


def episode(
    connection: sa.Connection,
    stored: StoredItem,
    rater_id: int,
    environment: Environment,
    *,
    id: str,
    by: str,
) -> Episode:
    """Returns the record of a rater's finished episode.

    Args:
      connection: a transaction.
      stored: the item for which the rater browsed.
      rater_id: the rater.
      environment: where they browsed.
      id: the record's id.
      by: the rater's name in the record.
    """
    rows = _standing(_rows(connection, stored.id, rater_id))
    states = [state_from_json(row.state) for row in rows]
    steps = tuple(
        EpisodeStep(prompt(before), row.text) for before, row in zip(states, rows[1:], strict=False)
    )
    question_id, world = stored.item.question_id, environment.name
    return Episode(id, question_id, world, by, states[0], steps, states[-1])


# --- What forms request ---


def digest(sent: Mapping[str, str]) -> str:
    """Returns a digest that identifies a form when it is sent again."""
    parts = [f"{name}={sent.get(name, '')}" for name in ("do", "text", "until", "answer")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def asked(world: World, there: Browsing, sent: Mapping[str, str]) -> Asked:
    """Returns what a form requests.

    A scroll after another one in the same direction is merged with it, up to three (WebGPT, C.1). A
    quote is written as the page has it; a longer one is shortened to its first and last words if
    they identify the same place.

    Args:
      world: the world that is browsed.
      there: the rater's current state.
      sent: the form: `do` is the request, `text` and `until` are its arguments.
    """
    if there.state.phase == "answering":
        return Asked(sent.get("answer", "").strip())
    do, text = sent.get("do", ""), " ".join(sent.get("text", "").split())
    if do == SEARCH:
        return Asked(f"Search {text}")
    if do == FIND:
        return Asked(f"Find in page: {text}")
    if do == QUOTE:
        return Asked(_quote(world, there.state, text, " ".join(sent.get("until", "").split())))
    wanted, last = _SCROLL.fullmatch(do), _SCROLL.fullmatch(there.text)
    if wanted and last and wanted[1] == last[1]:
        times = int(wanted[2]) + int(last[2])
        if times <= _MOST_SCROLLS:
            return Asked(f"Scrolled {wanted[1]} {times}", merges=True)
    return Asked(do)


def taken(world: World, there: Browsing, asked: Asked) -> Step:
    """Returns the environment's step for a request."""
    return step(world, there.before if asked.merges else there.state, asked.text)


def written(after: State) -> str:
    """Returns the text of the last step, as the environment took it."""
    return after.answer if after.answer is not None else after.actions[-1].text


def problem_of_answer(answer: str, references: int) -> str | None:
    """Says why an answer can't be accepted; None if it can.

    As in a model's answers, brackets may only enclose reference numbers. Unlike a model, a person
    must cite.
    """
    if not answer.strip():
        return "Please write an answer."
    cited = {int(n) for found in _CITATION.finditer(answer) for n in found[1].split(",")}
    wrong = sorted(number for number in cited if not 1 <= number <= references)
    if wrong:
        there = "[1]" if references == 1 else f"[1] to [{references}]"
        return f"There is no quote [{wrong[0]}]; you have {there}."
    if "[" in _CITATION.sub("", answer):
        return "Please use brackets only for the numbers of quotes, such as [1] or [1, 2]."
    if not cited:
        return "Please cite your quotes where you rely on them, such as [1]."
    return None


def _quote(world: World, state: State, start: str, end: str) -> str:
    """The command that quotes what a rater marked or typed."""
    command = f"Quote: {start}{ELLIPSIS}{end}" if end else f"Quote: {start}"
    after = step(world, state, command)
    if after.invalid is not None and _SHOWN_CODE.search(command):
        # If a page shows a character by its code, the rater marked that code.
        command = _SHOWN_CODE.sub(lambda match: chr(int(match[1], 16)), command)
        after = step(world, state, command)
    if after.invalid is not None:
        return command
    quoted = after.state.references[-1]
    words = escape(quoted.extract).split()
    whole = " ".join(words)
    shorter = [
        f"{' '.join(words[:count])}{ELLIPSIS}{' '.join(words[-count:])}"
        for count in _ENDS
        if len(whole) > _LONG and 2 * count < len(words)
    ]
    for text in (*shorter, whole):
        tried = step(world, state, f"Quote: {text}")
        if tried.invalid is None and tried.state.references[-1] == quoted:
            return f"Quote: {text}"
    return command


# --- Parts ---


def _start(item: Item, environment: Environment, seed: int) -> State:
    # A reference answer no longer than the censoring limit gives no page away.
    known = max(item.correct, key=len, default=None)
    return reset(item.question, environment.settings, reference_answer=known, seed=seed)


def _rows(
    connection: sa.Connection, item_id: int, rater_id: int, last: int | None = None
) -> Sequence[sa.Row[typing.Any]]:
    """The rows of an episode in order; only the last `last` if given."""
    mine = episode_steps.c.item_id == item_id, episode_steps.c.rater_id == rater_id
    query = sa.select(episode_steps).where(*mine).order_by(episode_steps.c.number.desc())
    return connection.execute(query.limit(last)).all()[::-1]


def _standing(rows: Sequence[sa.Row[typing.Any]]) -> list[sa.Row[typing.Any]]:
    """The rows without those that a later row replaces."""
    standing: list[sa.Row[typing.Any]] = []
    for row in rows:
        if row.merges and standing:
            standing.pop()
        standing.append(row)
    return standing


def _add(
    connection: sa.Connection,
    now: float,
    experiment_id: int,
    item_id: int,
    rater_id: int,
    number: int,
    asked: Asked,
    form: str,
    state: State,
) -> None:
    row = {
        "experiment_id": experiment_id,
        "item_id": item_id,
        "rater_id": rater_id,
        "number": number,
        "text": asked.text,
        "merges": int(asked.merges),
        "form": form,
        "state": state_to_json(state),
        "created_at": now,
    }
    connection.execute(episode_steps.insert(), row)

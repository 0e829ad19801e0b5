"""The raters' pages: tasks, forms, attention checks, instructions, examples, stored pages."""

import dataclasses
from typing import Any

import sqlalchemy as sa
from starlette.responses import HTMLResponse, JSONResponse, Response

from gophercite.rating_site import demonstration_pages, views
from gophercite.rating_site.demonstration_pages import Errand
from gophercite.rating_site.security import RefusedError, Ticket
from gophercite.rating_site.site import Site, Visit, message
from gophercite.ratings import assignment, demonstrations, quality
from gophercite.ratings.assignment import Role
from gophercite.ratings.browsed_worlds import environment_of
from gophercite.ratings.experiments import Experiment, Rater, experiments, rater_of
from gophercite.ratings.forms import (
    DEMONSTRATION,
    FORMS,
    Field,
    Form,
    Values,
    kept,
    problems,
    read_values,
)
from gophercite.ratings.items import Item, StoredItem, item_of, items_of, page_of
from gophercite.ratings.schema import drafts, items, leases, ratings
from gophercite.ratings.store import StudyError

_COUNTED = 100  # remaining items are counted up to this number only, to save time


@dataclasses.dataclass(frozen=True)
class _Task:
    """An item as its form shows it, with the answers in the order that was drawn."""

    experiment: Experiment
    form: Form
    stored: StoredItem
    item: Item
    fields: list[Field]

    @classmethod
    def of(cls, experiment: Experiment, stored: StoredItem) -> "_Task":
        if stored.role is Role.CHECK:  # comments are not needed where the answer is known
            settings = dataclasses.replace(experiment.settings, comment_words=0)
            experiment = experiment._replace(settings=settings)
        form, item = FORMS[experiment.interface], views.shown(stored.item, stored.swapped)
        return cls(experiment, form, stored, item, list(form.fields(item, experiment.settings)))


def open_link(site: Site, visit: Visit) -> Response:
    """Starts a session for a rater who opens a link."""
    session = site.signer.open_link(visit.request.path_params["token"])
    with site.store.reading() as connection:
        rater = rater_of(connection, session.id)
    if rater.link_version != session.version:
        raise RefusedError(403, "This link was replaced by a newer one.", "void-link")
    if site.expired(session):
        raise RefusedError(403, "This link has expired. Please ask for a new one.", "expired-link")
    return site.redirect("/", session)


def home(site: Site, visit: Visit) -> Response:
    """The experiments that a rater may rate for, with the rater's progress."""
    rater, tasks = site.rater(visit), []
    with site.store.reading() as connection:
        for experiment in experiments(connection):
            if experiment.pool_id != rater.pool_id:
                continue
            done, left = _progress(connection, experiment, rater.id)
            said = f"{_in_words(done, left)}." if done or left else "Nothing to rate now."
            if assignment.is_excluded(connection, rater.id, experiment.id):
                said = "This task is over for you. Thank you."
            form = FORMS[experiment.interface]
            task = {"id": experiment.id, "name": experiment.name, "title": form.title}
            tasks.append({**task, "said": said})
    return HTMLResponse(views.render("home.html", tasks=tasks))


def rate(site: Site, visit: Visit) -> Response:
    """The form of the next attention check, or of the next item."""
    rater = site.rater(visit)
    experiment = _experiment(site, visit, rater)
    with site.store.writing() as connection:
        state = quality.check_state(connection, experiment, rater.id)
        if state.passed is False or assignment.is_excluded(connection, rater.id, experiment.id):
            return message("This task is over for you", "Thank you for your time.", back="/")
        now = site.store.now()
        if state.next is not None:
            stored, given_at = item_of(connection, state.next), now
        elif (begun := _begun(connection, now, experiment, rater.id)) is not None:
            stored, given_at = item_of(connection, begun), now
        else:
            lease = assignment.next_item(connection, now, experiment, rater.id)
            if lease is None:
                text = "Nothing is left for you in this task. Thank you!"
                return message("All done", text, back="/")
            stored, given_at = item_of(connection, lease.item_id), lease.given_at
        mine = drafts.c.item_id == stored.id, drafts.c.rater_id == rater.id
        draft = connection.execute(sa.select(drafts.c.form).where(*mine)).scalar()
        if experiment.interface == DEMONSTRATION:
            where = environment_of(connection, experiment)
            there = demonstrations.begin(connection, now, experiment, stored, rater.id, where)
    if experiment.interface == DEMONSTRATION:
        errand = Errand(site, visit, experiment, stored, rater.id)
        return demonstration_pages.show(errand, there, (draft or {}).get("answer", ""))
    task = _Task.of(experiment, stored)
    values = kept(task.fields, draft or {}, stored.swapped)
    notice = "This is what you had written." if draft else ""
    ticket = Ticket(stored.id, rater.id, given_at)
    return _form_page(site, visit, task, rater, ticket, values, {}, notice)


def send(site: Site, visit: Visit) -> Response:
    """Handles a form: a vote, an answer to a check, a draft, or a skipped item."""
    rater, ticket, task, values, wrong = _sent(site, visit)
    assert visit.session is not None
    experiment, stored = task.experiment, task.stored
    own, here = kept(task.fields, values, stored.swapped), f"/e/{experiment.id}"
    action = visit.sent.get("action", "submit")
    if site.expired(visit.session):
        _keep_draft(site, stored.id, rater.id, own)
        text = "Your link has expired. What you wrote is kept: please ask for a new link."
        return message("Your form is kept", text, 403)
    browses = experiment.interface == DEMONSTRATION
    if stored.role is not Role.CHECK:
        if action == "skip":
            with site.store.writing() as connection:
                now = site.store.now()
                if browses:
                    demonstrations.skip(connection, now, experiment, stored.id, rater.id)
                else:
                    assignment.skip(connection, now, stored.id, rater.id)
            return site.redirect(here)
        if action == "save":
            _keep_draft(site, stored.id, rater.id, own, experiment)
            if browses:
                return site.redirect(here)
            notice = "Saved. You can close this page and come back."
            return _form_page(site, visit, task, rater, ticket, values, {}, notice)
    if browses:
        errand = Errand(site, visit, experiment, stored, rater.id)
        return demonstration_pages.take(errand, own.get("answer", ""), wrong.get("answer"))
    wrong = problems(task.form, task.fields, values, experiment.settings) | wrong
    if stored.role is Role.CHECK:
        if wrong:
            return _form_page(site, visit, task, rater, ticket, values, wrong, "")
        return _answer_check(site, task, rater, own)
    seconds = site.store.now() - ticket.given_at
    if seconds < experiment.settings.minimum_seconds and not wrong:
        wrong = {"": "That was very quick. Please read everything, and send it then."}
    if wrong:
        _keep_draft(site, stored.id, rater.id, own, experiment)
        return _form_page(site, visit, task, rater, ticket, values, wrong, "")
    with site.store.writing() as connection:
        now = site.store.now()
        assignment.vote(connection, now, experiment, stored.id, rater.id, own, ticket.given_at)
    return site.redirect(here)


def save_draft(site: Site, visit: Visit) -> Response:
    """Saves what a rater has typed so far, and extends the lease; called by the script."""
    rater, _, task, values, _ = _sent(site, visit)
    own = kept(task.fields, values, task.stored.swapped)
    if task.stored.role is Role.CHECK:
        return JSONResponse({"saved": False})
    assert visit.session is not None
    experiment = None if site.expired(visit.session) else task.experiment
    _keep_draft(site, task.stored.id, rater.id, own, experiment)
    return JSONResponse({"saved": True})


def instructions(site: Site, visit: Visit) -> Response:
    """The instructions of the task."""
    rater = site.rater(visit)
    experiment = _experiment(site, visit, rater)
    page = views.render(
        "instructions.html",
        experiment=experiment,
        form=FORMS[experiment.interface],
        least_words=experiment.settings.comment_words,
        tab="instructions",
    )
    return HTMLResponse(page)


def examples(site: Site, visit: Visit) -> Response:
    """Items with the researchers' labels and reasons."""
    rater = site.rater(visit)
    experiment = _experiment(site, visit, rater)
    with site.store.reading() as connection:
        stored = items_of(connection, experiment, Role.EXAMPLE)
    shown = []
    for each in stored:
        task = _Task.of(experiment, each)
        answers = views.shown_answers(task.form, task.item, task.fields)
        expected = views.expected_in_words(task.form, each, task.fields)
        shown.append({"item": task.item, "answers": answers, "expected": expected})
    page = views.render(
        "examples.html",
        experiment=experiment,
        form=FORMS[experiment.interface],
        examples=shown,
        tab="examples",
    )
    return HTMLResponse(page)


def stored_page(site: Site, visit: Visit) -> Response:
    """The page that a quote is from, with the quote marked; only for raters who have the item."""
    rater = site.rater(visit)
    ticket = site.signer.open_ticket(visit.request.path_params["ticket"], rater.id)
    place, number = visit.number("place"), visit.number("claim")
    with site.store.reading() as connection:
        stored = item_of(connection, ticket.item_id)
        answers = views.shown(stored.item, stored.swapped).answers
        if place >= len(answers) or number >= len(answers[place].claims):
            raise StudyError("there is no such claim")
        claim = answers[place].claims[number]
        document = page_of(connection, claim.page) if claim.page else None
    if document is None:
        raise StudyError("the page is not kept")
    text = views.marked_page(document, claim)
    return HTMLResponse(views.render("page.html", title=document.title, text=text))


# --- Parts ---


def _experiment(site: Site, visit: Visit, rater: Rater) -> Experiment:
    """The experiment in the address.

    Raises:
      RefusedError: it is not for this rater's pool.
    """
    with site.store.reading() as connection:
        for experiment in experiments(connection):
            if experiment.id == visit.number("experiment"):
                if experiment.pool_id == rater.pool_id:
                    return experiment
                break
    raise RefusedError(404, "There is no such task for you.")


def _sent(site: Site, visit: Visit) -> tuple[Rater, Ticket, _Task, Values, dict[str, str]]:
    """A form that was sent, after checking whose it is, with its problems by field.

    Raises:
      RefusedError: it is not a form of this session.
    """
    rater = site.rater(visit, or_expired=True)
    assert visit.session is not None
    site.signer.check_form(visit.session, visit.sent.get("form", ""))
    ticket = site.signer.open_ticket(visit.sent.get("ticket", ""), rater.id)
    with site.store.reading() as connection:
        stored = item_of(connection, ticket.item_id)
        known = {experiment.id: experiment for experiment in experiments(connection)}
    if stored.experiment_id != visit.number("experiment"):
        raise RefusedError(403, "This form belongs to another task.", "forged-ticket")
    task = _Task.of(known[stored.experiment_id], stored)
    values, wrong = read_values(task.fields, visit.sent)
    return rater, ticket, task, values, wrong


def _answer_check(site: Site, task: _Task, rater: Rater, own: Values) -> Response:
    with site.store.writing() as connection:
        now, experiment, stored = site.store.now(), task.experiment, task.stored
        right = quality.answer_check(connection, now, experiment, stored.id, rater.id, own)
        state = quality.check_state(connection, experiment, rater.id)
    page = views.render(
        "checked.html",
        experiment=experiment,
        form=task.form,
        item=task.item,
        right=right,
        expected=views.expected_in_words(task.form, stored, task.fields),
        state=state,
        tab="rate",
    )
    return HTMLResponse(page)


def _keep_draft(
    site: Site, item_id: int, rater_id: int, own: Values, experiment: Experiment | None = None
) -> None:
    """Saves a draft; if the experiment is given, also extends the rater's lease."""
    with site.store.writing() as connection:
        now, mine = site.store.now(), (drafts.c.item_id == item_id, drafts.c.rater_id == rater_id)
        connection.execute(drafts.delete().where(*mine))
        row = {"item_id": item_id, "rater_id": rater_id, "form": own, "saved_at": now}
        connection.execute(drafts.insert(), row)
        if experiment is not None:
            assignment.renew(connection, now, experiment, item_id, rater_id)


def _begun(
    connection: sa.Connection, now: float, experiment: Experiment, rater_id: int
) -> int | None:
    """The item that a rater has begun to browse for: their steps outlive the lease."""
    if experiment.interface != DEMONSTRATION:
        return None
    assignment.expire(connection, now, experiment.id)
    item_id = demonstrations.unfinished(connection, experiment.id, rater_id)
    if item_id is not None:
        assignment.renew(connection, now, experiment, item_id, rater_id)
    return item_id


def _progress(connection: sa.Connection, experiment: Experiment, rater_id: int) -> tuple[int, int]:
    """Number of items that a rater has rated, and number still available, up to `_COUNTED`."""
    rated = sa.exists().where(ratings.c.item_id == items.c.id, ratings.c.rater_id == rater_id)
    had = sa.exists().where(leases.c.item_id == items.c.id, leases.c.rater_id == rater_id)
    mine = ratings.c.experiment_id == experiment.id, ratings.c.rater_id == rater_id
    done = sa.select(sa.func.count(sa.distinct(ratings.c.item_id))).where(*mine)
    here = items.c.experiment_id == experiment.id, items.c.role == Role.ITEM.value
    free = sa.and_(assignment.may_need_more(experiment), items.c.load < items.c.wanted)
    free_items = (
        sa.select(items.c.id).where(*here, free, ~rated, ~had).limit(_COUNTED + 1).subquery()
    )
    held = sa.select(sa.func.count(leases.c.id)).where(
        leases.c.experiment_id == experiment.id,
        leases.c.rater_id == rater_id,
        leases.c.state == "open",
    )
    left = connection.execute(sa.select(sa.func.count()).select_from(free_items)).scalar_one()
    left += connection.execute(held).scalar_one()
    return connection.execute(done).scalar_one(), left


def _in_words(done: int, left: int) -> str:
    remaining = f"more than {_COUNTED}" if left > _COUNTED else str(left)
    return f"{done} rated, {remaining} to go"


def _form_page(
    site: Site,
    visit: Visit,
    task: _Task,
    rater: Rater,
    ticket: Ticket,
    values: Values,
    wrong: dict[str, str],
    notice: str,
) -> Response:
    experiment, stored, fields = task.experiment, task.stored, task.fields
    assert visit.session is not None
    check, needed, done, left = None, 0, 0, 0
    with site.store.reading() as connection:
        if stored.role is Role.CHECK:
            check = quality.check_state(connection, experiment, rater.id)
            needed = quality.needed(experiment.settings, check.count)
        else:
            done, left = _progress(connection, experiment, rater.id)
    token = site.signer.ticket(ticket)
    general = [field for field in fields if field.name[-2:] not in ("_0", "_1")]
    values_of_page: dict[str, Any] = {
        "experiment": experiment,
        "form": task.form,
        "item": task.item,
        "answers": views.shown_answers(task.form, task.item, fields),
        "before": [field for field in general if field.name == "flag"],
        "after": [field for field in general if field.name != "flag"],
        "others": [
            views.labels(task.form, fields, kept(fields, other, stored.swapped))
            for other in task.item.others
        ],
        "names": {field.name: field.label for field in fields},
        "values": values,
        "problems": wrong,
        "notice": notice,
        "check": check,
        "needed": needed,
        "done": done,
        "left": left,
        "progress": _in_words(done, left),
        "least_words": experiment.settings.comment_words,
        "ticket": token,
        "form_token": site.signer.form(visit.session),
        "page_link": f"/e/{experiment.id}/page/{token}",
        "tab": "rate",
    }
    return HTMLResponse(views.render("rate.html", **values_of_page), 422 if wrong else 200)

"""The raters' pages: tasks, forms, attention checks, instructions, examples, stored pages."""

import dataclasses
import typing
from typing import Any

import sqlalchemy as sa
from starlette.responses import HTMLResponse, JSONResponse, Response

from gophercite.rating_site import demonstration_pages, views
from gophercite.rating_site.demonstration_pages import Errand
from gophercite.rating_site.progress import Progress, last_vote, progress
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
from gophercite.ratings.schema import drafts
from gophercite.ratings.store import StudyError

_DRAFT = "This is what you had written."
_SAVED = "Saved. You can close this page and come back."
_OLDER_FORM = (
    "Your link was replaced after you opened this page, so what you wrote has not been sent yet. "
    "It is still here: please send it again."
)


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
    """Starts a session for a rater who opens a link.

    Raises:
      RefusedError: the link was not signed here, was replaced, or has expired.
    """
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
    with site.store.writing() as connection:
        for experiment in experiments(connection):
            if experiment.pool_id != rater.pool_id:
                continue
            assignment.expire(connection, site.store.now(), experiment.id)  # they count as open
            far = progress(connection, experiment, rater.id)
            said = f"{far}." if any(far) else "There is nothing to rate now."
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
            return _over()
        now = site.store.now()
        if state.next is not None:
            stored, given_at = item_of(connection, state.next), now
        elif (begun := _begun(connection, now, experiment, rater.id)) is not None:
            stored, given_at = item_of(connection, begun), now
        else:
            lease = assignment.next_item(connection, now, experiment, rater.id)
            if lease is None:
                text = "Nothing is left for you in this task. Thank you!"
                change = _link_to_last(connection, experiment, rater.id)
                return message("All done", text, back="/", change=change)
            stored, given_at = item_of(connection, lease.item_id), lease.given_at
        draft = _draft(connection, stored.id, rater.id)
        if experiment.interface == DEMONSTRATION:
            where = environment_of(connection, experiment)
            there = demonstrations.begin(connection, now, experiment, stored, rater.id, where)
    if experiment.interface == DEMONSTRATION:
        errand = Errand(site, visit, experiment, stored, rater.id)
        return demonstration_pages.show(errand, there, (draft or {}).get("answer", ""))
    task = _Task.of(experiment, stored)
    values = kept(task.fields, draft or {}, stored.swapped)
    ticket = Ticket(stored.id, rater.id, given_at)
    return _form_page(site, visit, task, rater, ticket, values, {}, _DRAFT if draft else "")


def rated(site: Site, visit: Visit) -> Response:
    """The form of an item that the rater has rated, with their vote, so that they can change it.

    Raises:
      RefusedError: there is no vote of theirs on this item, or the task is to demonstrate.
    """
    rater = site.rater(visit)
    experiment, item_id = _experiment(site, visit, rater), visit.number("item")
    with site.store.reading() as connection:
        vote = last_vote(connection, experiment, rater.id, item_id)
        if vote is None or experiment.interface == DEMONSTRATION:
            raise RefusedError(404, "You have no answer here that you can change.")
        if assignment.is_excluded(connection, rater.id, experiment.id):
            return _over()
        stored, draft = item_of(connection, item_id), _draft(connection, item_id, rater.id)
    task = _Task.of(experiment, stored)
    values = kept(task.fields, draft or vote.values, stored.swapped)
    # The beginning is moved, so that the time spent on the first answer counts, too.
    ticket = Ticket(item_id, rater.id, site.store.now() - vote.seconds)
    return _form_page(site, visit, task, rater, ticket, values, {}, _DRAFT if draft else "")


def send(site: Site, visit: Visit) -> Response:
    """Handles a form: a vote, an answer to a check, a draft, or a skipped item."""
    rater, ticket, task, values, wrong, is_older = _sent(site, visit)
    assert visit.session is not None
    experiment, stored = task.experiment, task.stored
    errand = Errand(site, visit, experiment, stored, rater.id)
    own, here = kept(task.fields, values, stored.swapped), f"/e/{experiment.id}"
    action, notice = visit.sent.get("action", "submit"), _SAVED
    if is_older:  # others may have the link with which it was opened, so it does not vote yet
        action, notice = "save", _OLDER_FORM
    if site.expired(visit.session):
        _keep_draft(site, stored.id, rater.id, own)
        text = "Your link has expired. What you wrote was saved: please ask for a new link."
        return message("Your form was saved", text, 403)
    browses = experiment.interface == DEMONSTRATION
    is_check = stored.role is Role.CHECK
    if action == "save":
        if not is_check:
            _keep_draft(site, stored.id, rater.id, own, experiment)
        if browses:
            return demonstration_pages.show_again(errand, notice)
        return _form_page(site, visit, task, rater, ticket, values, {}, notice)
    if action == "skip" and not is_check:
        with site.store.writing() as connection:
            now = site.store.now()
            if browses:
                demonstrations.skip(connection, now, experiment, stored.id, rater.id)
            else:
                assignment.skip(connection, now, stored.id, rater.id)
        return site.redirect(here)
    if browses:
        return demonstration_pages.take(errand, own.get("answer", ""), wrong.get("answer"))
    wrong = problems(task.form, task.fields, values, experiment.settings) | wrong
    if is_check:
        if wrong:
            return _form_page(site, visit, task, rater, ticket, values, wrong, "")
        return _answer_check(site, task, rater, own)
    seconds = site.store.now() - ticket.given_at
    if seconds < experiment.settings.minimum_seconds and not wrong:
        wrong = {"": "That was very quick. Please read everything before you submit."}
    if wrong:
        _keep_draft(site, stored.id, rater.id, own, experiment)
        return _form_page(site, visit, task, rater, ticket, values, wrong, "")
    with site.store.writing() as connection:
        now = site.store.now()
        assignment.vote(connection, now, experiment, stored.id, rater.id, own, ticket.given_at)
    return site.redirect(here)


def save_draft(site: Site, visit: Visit) -> Response:
    """Saves what a rater has typed so far, and extends the lease; called by the script."""
    sent = _sent(site, visit)
    rater, task = sent.rater, sent.task
    own = kept(task.fields, sent.values, task.stored.swapped)
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
    """The page that a quote is from, with the quote marked; only for raters who have the item.

    Raises:
      RefusedError: the address was not made for this rater.
      StudyError: there is no such claim, or its page is not stored.
    """
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
    raise RefusedError(404, "You have no such task.")


class _Sent(typing.NamedTuple):
    """A form that was sent.

    Attributes:
      rater: the rater who sent it.
      ticket: the ticket that was signed into it.
      task: the item as the form shows it.
      values: the form's values, in the order shown.
      wrong: problems that were already found in them, by field.
      is_older: whether it was opened before the rater's link was replaced.
    """

    rater: Rater
    ticket: Ticket
    task: _Task
    values: Values
    wrong: dict[str, str]
    is_older: bool


def _sent(site: Site, visit: Visit) -> _Sent:
    """A form that was sent, after checking whose it is.

    Raises:
      RefusedError: it is not a form of this rater, or their link was replaced.
    """
    rater = site.rater(visit, or_former=True)
    assert visit.session is not None
    is_current = site.signer.check_form(visit.session, visit.sent.get("form", ""))
    ticket = site.signer.open_ticket(visit.sent.get("ticket", ""), rater.id)
    with site.store.reading() as connection:
        stored = item_of(connection, ticket.item_id)
        known = {experiment.id: experiment for experiment in experiments(connection)}
    if stored.experiment_id != visit.number("experiment"):
        raise RefusedError(403, "This form belongs to another task.", "forged-ticket")
    task = _Task.of(known[stored.experiment_id], stored)
    values, wrong = read_values(task.fields, visit.sent)
    if rater.link_version != visit.session.version:
        # Others may have the link, so the form must not change anything; but its text is not lost.
        text = "This link was replaced by a newer one, and nothing was saved. Please open that one."
        texts = [values[f.name] for f in task.fields if f.kind == "text" and f.name in values]
        written = "".join(f" You had written: {each}" for each in texts)
        raise RefusedError(403, text + written, "void-link")
    return _Sent(rater, ticket, task, values, wrong, not is_current)


def _over() -> Response:
    return message("This task is over for you", "Thank you for your time.", back="/")


def _link_to_last(connection: sa.Connection, experiment: Experiment, rater_id: int) -> str:
    """The address of the answer that a rater sent last; empty if there is none to change."""
    vote = last_vote(connection, experiment, rater_id)
    if vote is None or experiment.interface == DEMONSTRATION:
        return ""
    return f"/e/{experiment.id}/rated/{vote.item_id}"


def _draft(connection: sa.Connection, item_id: int, rater_id: int) -> Values | None:
    mine = drafts.c.item_id == item_id, drafts.c.rater_id == rater_id
    return connection.execute(sa.select(drafts.c.form).where(*mine)).scalar()


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
    """The item for which a rater has begun to browse; their steps outlive the lease."""
    if experiment.interface != DEMONSTRATION:
        return None
    assignment.expire(connection, now, experiment.id)
    item_id = demonstrations.unfinished(connection, experiment.id, rater_id)
    if item_id is not None:
        assignment.renew(connection, now, experiment, item_id, rater_id)
    return item_id


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
    check, needed, far = None, 0, Progress(0, 0)
    is_rated, change = False, ""
    with site.store.reading() as connection:
        if stored.role is Role.CHECK:
            check = quality.check_state(connection, experiment, rater.id)
            needed = quality.needed(experiment.settings, check.count)
        else:
            far = progress(connection, experiment, rater.id)
            is_rated = last_vote(connection, experiment, rater.id, stored.id) is not None
            change = "" if is_rated else _link_to_last(connection, experiment, rater.id)
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
        "progress": far,
        "rated": is_rated,
        "change": change,
        "least_words": experiment.settings.comment_words,
        "ticket": token,
        "form_token": site.signer.form(visit.session),
        "page_link": f"/e/{experiment.id}/page/{token}",
        "tab": "rate",
    }
    return HTMLResponse(views.render("rate.html", **values_of_page), 422 if wrong else 200)

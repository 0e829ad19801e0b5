"""The demonstration browser (WebGPT, section 3.1 and figure 1a): shows people what the model sees.

Every valid action is a button or a form, and each form carries the number of the step after which
its page was built. The untrusted page appears only as the text of the observation, split into plain
text and links. It contains no addresses, so nothing here leads out of the app.
"""

import dataclasses
import logging
import re
from collections.abc import Callable
from typing import TypeVar

from starlette.responses import HTMLResponse, Response

from gophercite.browser.environment import page_of
from gophercite.browser.marks import LINK_CLOSE, LINK_OPEN, LINK_PART
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.rating_site import views
from gophercite.rating_site.security import RefusedError, Ticket
from gophercite.rating_site.site import Site, Visit
from gophercite.ratings import demonstrations
from gophercite.ratings.browsed_worlds import BusyError, environment_of
from gophercite.ratings.demonstrations import Browsing
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.items import StoredItem
from gophercite.ratings.store import StudyError

T = TypeVar("T")

_OLD_FORM = (
    "You sent that from a page that you had already left, so nothing was done. "
    "This is where you are."
)
# A link that the screen cuts off has no end mark; one that began above the screen has no number.
_LINK = re.compile(
    rf"{LINK_OPEN}(\d+){LINK_PART}([^{LINK_PART}{LINK_CLOSE}]*)"
    rf"(?:{LINK_PART}([^{LINK_CLOSE}]*))?(?:{LINK_CLOSE}|$)"
)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a page's text.

    Attributes:
      text: as the model reads it, without link marks.
      link: the link's number; None for plain text.
      domain: the link's host, if it is another one than the page's.
    """

    text: str
    link: int | None = None
    domain: str = ""


@dataclasses.dataclass(frozen=True)
class Errand:
    """An item for which a rater browses, with the current request."""

    site: Site
    visit: Visit
    experiment: Experiment
    stored: StoredItem
    rater_id: int

    def ask(self, call: Callable[[World], T]) -> T:
        """Returns the result of a function of the world.

        Raises:
          RefusedError: the world can't be read; the rater is not shown why.
        """
        try:
            with self.site.store.reading() as connection:
                environment = environment_of(connection, self.experiment)
            return self.site.worlds.of(self.experiment, environment).ask(call)
        except StudyError as error:
            logging.getLogger(__name__).error("%s", error)
            text = (
                "The pages can't be read just now. What you did before is kept. "
                "Please tell the person who sent you the link."
            )
            raise RefusedError(503, text, "world-unreadable") from None
        except BusyError:
            text = "Many people are waiting for a page now. Nothing was done: please try again."
            raise RefusedError(503, text) from None

    @property
    def here(self) -> str:
        """The address of the task."""
        return f"/e/{self.experiment.id}"


def runs(text: str) -> list[Run]:
    """Splits the text of an observation into plain runs and links."""
    found, place = [], 0
    for match in _LINK.finditer(text):
        found.append(Run(text[place : match.start()]))
        found.append(Run(match[2], int(match[1]), match[3] or ""))
        place = match.end()
    return [run for run in (*found, Run(text[place:])) if run.text]


def show(errand: Errand, there: Browsing, answer: str = "") -> Response:
    """The browser, or the answer form.

    Args:
      errand: the item and the request.
      there: the rater's current state.
      answer: what they have already written of the answer.
    """
    last = there.state.actions[-1].note if there.state.actions else None
    notice = f"{last[0].upper()}{last[1:]}." if last else ""
    if there.state.phase == "answering" and answer:
        notice = "This is what you had written."
    return _page(errand, there, {"answer": answer}, notice=notice)


def show_again(errand: Errand, notice: str) -> Response:
    """The page that a form was sent from, with what was typed; nothing is done."""
    with errand.site.store.reading() as connection:
        there = demonstrations.browsing(connection, errand.stored.id, errand.rater_id)
    if there is None or there.state.done:
        return errand.site.redirect(errand.here)
    return _page(errand, there, errand.visit.sent, notice=notice)


def take(errand: Errand, answer: str, wrong: str | None) -> Response:
    """Handles a form: an action, or the answer.

    Args:
      errand: the item and the request with the form.
      answer: the answer that was sent.
      wrong: a problem that was already found in it.
    """
    site, sent, item_id = errand.site, errand.visit.sent, errand.stored.id
    with site.store.reading() as connection:
        there = demonstrations.browsing(connection, item_id, errand.rater_id)
    if there is None or there.state.done:
        return site.redirect(errand.here)
    form = demonstrations.digest(sent)
    if sent.get("version") != str(there.version):
        if sent.get("version") == str(there.version - 1) and form == there.form:
            return site.redirect(errand.here)  # it was sent twice, and is already done
        return _page(errand, there, {"answer": answer}, notice=_OLD_FORM, status=409)
    if there.state.phase == "answering":
        references = len(there.state.references)
        problem = wrong or demonstrations.problem_of_answer(answer, references)
        if problem:
            return _page(errand, there, sent, problem=problem)

    def act(world: World) -> tuple[demonstrations.Asked, State, str | None]:
        asked = demonstrations.asked(world, there, {**sent, "answer": answer})
        after = demonstrations.taken(world, there, asked)
        return asked, after.state, after.invalid

    # An answer needs no page, so it is accepted even while the world can't be read.
    answering = there.state.phase == "answering"
    asked, state, invalid = act(demonstrations.Nowhere()) if answering else errand.ask(act)
    if invalid is not None:
        return _page(errand, there, sent, problem=f"That can't be done here: {invalid}.")
    if state.end == "answer" and not state.references:
        return _page(errand, there, sent, problem="Quote something first.")
    asked = asked._replace(text=demonstrations.written(state))
    with site.store.writing() as connection:
        kept = demonstrations.append(
            connection,
            site.store.now(),
            errand.experiment,
            item_id,
            errand.rater_id,
            there,
            asked,
            form,
            state,
        )
    if not kept:  # the same form or another one came in first
        return site.redirect(errand.here)
    return site.redirect(errand.here if state.done else f"{errand.here}#screen")


def _page(
    errand: Errand,
    there: Browsing,
    typed: dict[str, str],
    *,
    notice: str = "",
    problem: str = "",
    status: int = 200,
) -> Response:
    session, state = errand.visit.session, there.state
    assert session is not None
    lines, not_quoted = 0, None
    if state.phase == "browsing" and state.place is not None:
        shown = errand.ask(lambda world: page_of(world, state))
        lines, not_quoted = len(shown.shown(state.settings)), shown.source_problem
    signer = errand.site.signer
    ticket = Ticket(errand.stored.id, errand.rater_id, there.begun_at)
    page = views.render(
        "browse.html" if state.phase == "browsing" else "browsed_answer.html",
        experiment=errand.experiment,
        here=errand.here,
        hidden={
            "form": signer.form(session),
            "ticket": signer.ticket(ticket),
            "version": str(there.version),
        },
        state=state,
        runs=runs(state.view.text),
        lines=lines,
        not_quoted=not_quoted,
        past=[action.past for action in state.actions if action.past is not None],
        quoted=sum(len(each.extract) for each in state.references),
        typed={"text": "", "until": "", "answer": ""} | typed,
        do=typed.get("do", ""),
        notice=notice,
        problem=problem,
        tab="rate",
    )
    return HTMLResponse(page, 422 if problem else status)

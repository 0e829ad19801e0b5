"""The administrators' pages: login, and an overview of the study."""

import datetime
import hashlib
import secrets
from typing import Any

import sqlalchemy as sa
from starlette.responses import HTMLResponse, Response

from gophercite.rating_site import views
from gophercite.rating_site.security import (
    RefusedError,
    Session,
    hash_password,
    is_password,
    password_version,
)
from gophercite.rating_site.site import Site, Visit, address_of
from gophercite.ratings import reports
from gophercite.ratings.experiments import check_name, experiments
from gophercite.ratings.schema import administrators, audit
from gophercite.ratings.store import Store, note

_SECONDS = 8 * 3600  # duration of a session
_SHOWN = 50  # lines of the audit log
_LOGGED_OUT = "logged-out"  # in the audit log; such a session has ended


def set_password(store: Store, name: str, password: str) -> None:
    """Creates an administrator, or changes a password, which ends all sessions with the old one.

    Raises:
      StudyError: nobody could log in with this name.
    """
    check_name(name, "an administrator")
    with store.writing() as connection:
        who = administrators.c.name == name
        connection.execute(administrators.delete().where(who))
        row = {"name": name, "password_hash": hash_password(password)}
        connection.execute(administrators.insert(), row)
        note(connection, store.now(), "command", "password-set", {"admin": name})


def login_form(site: Site, visit: Visit) -> Response:
    """The login form; it has its own session, so that other sites can't send it."""
    return _login_form(site, "", 200)


def log_in(site: Site, visit: Visit) -> Response:
    """Starts an administrator's session.

    Raises:
      RefusedError: the form is not of this session, or there were too many attempts.
    """
    if visit.session is None or visit.session.kind != "login" or site.expired(visit.session):
        return _login_form(site, "The form had expired. Please try again.", 403)
    site.signer.check_form(visit.session, visit.sent.get("form", ""))
    if not site.logins.take(address_of(visit.request)):
        raise RefusedError(429, "Too many attempts. Please wait a minute.", "too-many-logins")
    name = visit.sent.get("name", "")
    with site.store.reading() as connection:
        query = sa.select(administrators).where(administrators.c.name == name)
        row = connection.execute(query).one_or_none()
    right = is_password(visit.sent.get("password", ""), row.password_hash if row else None)
    actor = f"admin {row.id}" if row and right else "visitor"
    with site.store.writing() as connection:
        action = "logged-in" if right else "login-refused"
        note(connection, site.store.now(), actor, action, {"address": address_of(visit.request)})
    if not right or row is None:
        return _login_form(site, "The name or the password is wrong.", 403)
    version = password_version(row.password_hash)
    return site.redirect("/admin", _session(site, "admin", row.id, version))


def log_out(site: Site, visit: Visit) -> Response:
    """Ends the session, also for whoever has a copy of its cookie."""
    session = _administrator(site, visit)
    site.signer.check_form(session, visit.sent.get("form", ""))
    with site.store.writing() as connection:
        details = {"session": _name_of(session)}
        note(connection, site.store.now(), f"admin {session.id}", _LOGGED_OUT, details)
    response = site.redirect("/admin/login")
    response.delete_cookie(site.signer.cookie(of_admins=True))
    return response


def overview(site: Site, visit: Visit) -> Response:
    """Each experiment's progress, agreement and raters, and the latest events."""
    session = _administrator(site, visit)
    with site.store.reading() as connection:
        found = [reports.report(connection, each) for each in experiments(connection)]
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(_SHOWN)
        lines = [
            {
                "when": datetime.datetime.fromtimestamp(row.created_at, datetime.UTC).strftime(
                    "%Y-%m-%d %H:%M:%S"
                ),
                "actor": row.actor,
                "action": row.action,
                "details": ", ".join(f"{name}: {value}" for name, value in row.details.items()),
            }
            for row in connection.execute(query)
        ]
    values: dict[str, Any] = {"reports": found, "audit": lines}
    page = views.render("admin.html", **values, form_token=site.signer.form(session))
    return HTMLResponse(page)


def _administrator(site: Site, visit: Visit) -> Session:
    session = visit.session
    if session is None or session.kind != "admin" or site.expired(session):
        raise RefusedError(401, "Please log in at /admin/login.")
    with site.store.reading() as connection:
        query = sa.select(administrators.c.password_hash)
        hashed = connection.execute(query.where(administrators.c.id == session.id)).scalar()
        # The id alone is not enough: SQLite reuses the ids of deleted rows.
        if hashed is None or password_version(hashed) != session.version:
            raise RefusedError(401, "Please log in at /admin/login.", "void-session")
        # In the database, so that it holds after a restart and on all servers of the study. Their
        # clocks may differ a little, so the day before is looked at, too.
        latest = audit.c.created_at > session.expires_at - _SECONDS - 86400
        logged_out = sa.select(audit.c.details).where(latest, audit.c.action == _LOGGED_OUT)
        if {"session": _name_of(session)} in connection.execute(logged_out).scalars():
            raise RefusedError(401, "Please log in at /admin/login.", "void-session")
    return session


def _name_of(session: Session) -> str:
    """Names a session in the audit log, which must not have what its forms are signed with."""
    return hashlib.sha256(session.nonce.encode()).hexdigest()[:16]


def _session(site: Site, kind: str, id: int, version: int) -> Session:
    return Session(kind, id, version, site.store.now() + _SECONDS, secrets.token_urlsafe(16))


def _login_form(site: Site, problem: str, status: int) -> Response:
    session = _session(site, "login", 0, 0)
    token = site.signer.form(session)
    page = views.render("login.html", problem=problem, form_token=token)
    response = HTMLResponse(page, status)
    site.begin(session, response)
    return response

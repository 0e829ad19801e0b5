"""What every page needs: the study, the visitor, and how a request is refused."""

import dataclasses
import re
import time
import urllib.parse
from collections.abc import Awaitable, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gophercite.rating_site.security import RateLimit, RefusedError, Session, Signer, read_body
from gophercite.rating_site.views import render
from gophercite.ratings.browsed_worlds import BrowsedWorlds
from gophercite.ratings.experiments import Rater, rater_of
from gophercite.ratings.forms import MOST_FIELDS
from gophercite.ratings.store import StudyError, note
from gophercite.ratings.study import Study

_HIDDEN_FIELDS = 10  # maximum number of a form's fields besides its questions
_AUDITED_A_MINUTE = 60  # refusals that are logged per minute; a flood must not fill the disk
_TOKEN = re.compile(r"^(/r/|/e/[^/]*/page/).*", re.DOTALL)  # the part of a path that has a token


@dataclasses.dataclass(frozen=True)
class Options:
    """The server's limits.

    Attributes:
      requests_a_minute: maximum per rater, or per address for visitors without a link.
      logins_a_minute: maximum per address.
      body_bytes: maximum size of a form.
      body_seconds: time in which a form must arrive.
      is_https: whether raters reach the server by HTTPS; cookies are then sent by HTTPS only.
      behind_proxy: whether to trust a proxy on this machine to say where requests come from. Not
        without a proxy: any visitor could then pretend to be another one.
    """

    requests_a_minute: int = 300
    logins_a_minute: int = 5
    body_bytes: int = 1 << 18
    body_seconds: float = 20.0
    is_https: bool = False
    behind_proxy: bool = False


@dataclasses.dataclass(frozen=True)
class Visit:
    """A request.

    Attributes:
      request: Starlette's request.
      sent: the fields of its form.
      session: the browser's session, which may have expired; None without one.
    """

    request: Request
    sent: dict[str, str]
    session: Session | None

    def number(self, name: str) -> int:
        """Returns an integer from the path."""
        return int(self.request.path_params[name])


Handler = Callable[["Site", Visit], Response]


class Site:
    """The study with its protections."""

    def __init__(self, study: Study, options: Options) -> None:
        self.store, self.signer, self.options = study.store, Signer(study.secret), options
        self.limit = RateLimit(options.requests_a_minute, time.monotonic)
        self.logins = RateLimit(options.logins_a_minute, time.monotonic)
        self.worlds = BrowsedWorlds(study.folder)
        self._audited = RateLimit(_AUDITED_A_MINUTE, time.monotonic)

    def endpoint(
        self, handler: Handler, *, of_admins: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wraps a handler, which may block on the database, as a Starlette endpoint.

        Args:
          handler: answers a request.
          of_admins: whether its visitors are administrators, who have a separate session.
        """
        cookie_name = self.signer.cookie(of_admins=of_admins)

        async def serve(request: Request) -> Response:
            try:
                session = await self._session(request, cookie_name)
                if not self.limit.take(_visitor(request, session)):
                    raise RefusedError(
                        429, "That was too fast. Please wait a minute.", "too-many-requests"
                    )
                sent = {}
                if request.method == "POST":
                    body = await read_body(
                        request, self.options.body_bytes, self.options.body_seconds
                    )
                    sent = _fields(body)
                visit = Visit(request, sent, session)
                return await run_in_threadpool(handler, self, visit)
            except RefusedError as error:
                if error.action is not None:
                    await run_in_threadpool(self._audit, request, error)
                return message("Sorry", error.message, error.status)
            except StudyError as error:
                return message("Sorry", f"{error}.".capitalize(), 404)

        return serve

    def rater(self, visit: Visit, *, or_former: bool = False) -> Rater:
        """Returns the rater of a request.

        Args:
          visit: the request.
          or_former: also accept sessions whose link has expired or was replaced.

        Raises:
          RefusedError: the request has no rater, or the link has expired or was replaced.
        """
        session = visit.session
        if session is None or session.kind != "rater":
            raise RefusedError(401, "Please open the link that you were sent.")
        with self.store.reading() as connection:
            rater = rater_of(connection, session.id)
        if or_former:
            return rater
        if rater.link_version != session.version:
            raise RefusedError(403, "This link was replaced by a newer one.", "void-link")
        if self.expired(session):
            raise RefusedError(403, "Your link has expired. Please ask for a new one.")
        return rater

    def expired(self, session: Session) -> bool:
        """Whether a session has expired."""
        return session.expires_at <= self.store.now()

    def redirect(self, to: str, session: Session | None = None) -> Response:
        """Redirects a browser; also begins a session if one is given."""
        response = RedirectResponse(to, 303)
        if session is not None:
            self.begin(session, response)
        return response

    def begin(self, session: Session, response: Response) -> None:
        """Sets a session's cookie; raters and administrators have separate ones."""
        response.set_cookie(
            self.signer.cookie(of_admins=session.kind != "rater"),
            self.signer.session(session),
            max_age=max(0, int(session.expires_at - self.store.now())) + 86400,
            httponly=True,
            samesite="lax",  # `strict` would drop the cookie on links from elsewhere
            secure=self.options.is_https,
        )

    async def _session(self, request: Request, cookie_name: str) -> Session | None:
        """The session of a cookie; None, and a note in the audit log, if it can't be read."""
        try:
            cookie = request.cookies.get(cookie_name)
            return self.signer.open_session(cookie) if cookie else None
        except RefusedError as error:
            await run_in_threadpool(self._audit, request, error)
            return None

    def _audit(self, request: Request, error: RefusedError) -> None:
        if self._audited.take("all"):
            details = {"path": path_of(request)[:200], "status": error.status}
            with self.store.writing() as connection:
                note(connection, self.store.now(), "visitor", error.action or "", details)


def message(
    title: str, text: str, status: int = 200, *, back: str = "", change: str = ""
) -> Response:
    """A page with a short message, and links to go back and to the last answer if given."""
    page = render("message.html", title=title, message=text, back=back, change=change)
    return HTMLResponse(page, status)


def address_of(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client else "unknown"


def path_of(request: Request) -> str:
    """The path of a request for logs, without tokens: anyone with a rater's link is that rater."""
    return _TOKEN.sub(r"\1…", request.url.path)


def _visitor(request: Request, session: Session | None) -> str:
    """The key by which requests are counted; without a rater or administrator, the address."""
    if session is None or session.kind == "login":
        return address_of(request)
    return f"{session.kind} {session.id}"


def _fields(body: bytes) -> dict[str, str]:
    """The fields of a form, without characters that can't be stored; of equal names, the last.

    Raises:
      RefusedError: there are too many.
    """
    try:
        pairs = urllib.parse.parse_qsl(
            body.decode("utf-8", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=MOST_FIELDS + _HIDDEN_FIELDS,
        )
    except ValueError:
        raise RefusedError(413, "That form has too many fields.", "body-too-long") from None
    return {name: value.replace("\0", "\ufffd").replace("\r\n", "\n") for name, value in pairs}

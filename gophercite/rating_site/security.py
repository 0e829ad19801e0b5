"""Protection against outsiders: signed links, sessions and forms; limits; headers; passwords."""

import asyncio
import collections
import dataclasses
import hashlib
import hmac
import threading
import typing
from collections.abc import Callable

import argon2
import itsdangerous
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Only our own script runs, data is sent only to this site, and no page can be framed. With
# `same-origin`, browsers still send a form's origin, but no other site learns our addresses.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class RefusedError(Exception):
    """A request that is not served.

    Attributes:
      status: the HTTP status.
      message: text for the user.
      action: entry for the audit log; None for none.
    """

    def __init__(self, status: int, message: str, action: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.action = status, message, action


@dataclasses.dataclass(frozen=True)
class Session:
    """The identity of a browser.

    Attributes:
      kind: `rater` or `admin`; `login` before an administrator has logged in.
      id: id of the database row.
      version: version of the rater's links, or of the administrator's password, when it began.
      expires_at: when it ends.
      nonce: binds forms to this session alone; empty for raters, who may open their link again
        while a form is open.
    """

    kind: str
    id: int
    version: int
    expires_at: float
    nonce: str


class Ticket(typing.NamedTuple):
    """Signed into a form: the item, the rater, and when the item was first shown."""

    item_id: int
    rater_id: int
    given_at: float


class Signer:
    """Signs tokens that are sent out, and verifies them when they come back.

    Args:
      secret: the study's secret.
    """

    def __init__(self, secret: str) -> None:
        def serializer(salt: str) -> itsdangerous.URLSafeSerializer:
            how = {"digest_method": hashlib.sha256, "key_derivation": "hmac"}
            return itsdangerous.URLSafeSerializer(secret, f"gophercite {salt}", signer_kwargs=how)

        # Browsers send cookies to all ports of a host, so studies must not share a cookie's name.
        self._study = hmac.digest(secret.encode(), b"gophercite cookie", "sha256").hex()[:8]
        self._links, self._sessions = serializer("link"), serializer("session")
        self._forms, self._tickets = serializer("form's owner"), serializer("ticket")

    def link(self, rater_id: int, version: int, expires_at: float) -> str:
        """Returns the token at the end of a rater's link."""
        return str(self._links.dumps([rater_id, version, expires_at]))

    def open_link(self, token: str) -> Session:
        """Returns a new session for a rater who opens a link, which may have expired.

        Raises:
          RefusedError: it was not signed here.
        """
        rater_id, version, expires_at = _opened(self._links, token, "forged-link")
        return Session("rater", rater_id, version, expires_at, nonce="")

    def cookie(self, *, of_admins: bool) -> str:
        """Returns the name of this study's cookie; administrators have one of their own."""
        return f"gophercite_{'admin' if of_admins else 'rater'}_{self._study}"

    def session(self, session: Session) -> str:
        """Returns a session's cookie."""
        return str(self._sessions.dumps(dataclasses.astuple(session)))

    def open_session(self, cookie: str) -> Session:
        """Returns the session of a cookie, which may have expired.

        Raises:
          RefusedError: it was not signed here.
        """
        return Session(*_opened(self._sessions, cookie, "forged-session"))

    def form(self, session: Session) -> str:
        """Returns the token in every form of a session, against forms from other sites (CSRF)."""
        return str(self._forms.dumps([_owner(session), session.version]))

    def check_form(self, session: Session, token: str) -> bool:
        """Refuses a form that does not belong to this rater or administrator.

        Returns:
          Whether the form is current: False if it was opened before the rater's link was replaced.

        Raises:
          RefusedError: it was not signed here, or is somebody else's.
        """
        owner, version = _opened(self._forms, token, "forged-form")
        if owner != _owner(session):
            raise RefusedError(403, "This form belongs to another session.", "forged-form")
        return bool(version == session.version)

    def ticket(self, ticket: Ticket) -> str:
        """Returns the signed ticket in an item's form."""
        return str(self._tickets.dumps(list(ticket)))

    def open_ticket(self, token: str, rater_id: int) -> Ticket:
        """Returns the ticket of a rater's form.

        Raises:
          RefusedError: it was not signed here, or is another rater's.
        """
        ticket = Ticket(*_opened(self._tickets, token, "forged-ticket"))
        if ticket.rater_id != rater_id:
            raise RefusedError(403, "This form belongs to somebody else.", "forged-ticket")
        return ticket


def _owner(session: Session) -> list[object]:
    """Whose forms a session may send."""
    return [session.kind, session.id, session.nonce]


def _opened(serializer: itsdangerous.URLSafeSerializer, token: str, action: str) -> typing.Any:
    try:
        return serializer.loads(token)
    except (itsdangerous.BadData, ValueError):
        raise RefusedError(403, "This link or form is not from this site.", action) from None


class RateLimit:
    """Limits each visitor's requests with a token bucket.

    Args:
      a_minute: number of tokens that a visitor gets per minute, and the most that they can hold.
      clock: time in seconds.
    """

    _MOST = 10_000  # maximum number of visitors to remember

    def __init__(self, a_minute: float, clock: Callable[[], float]) -> None:
        self._rate, self._most, self._clock = a_minute / 60, a_minute, clock
        self._buckets: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def take(self, visitor: str) -> bool:
        """Takes a token; returns False if there is none."""
        with self._lock:
            now = self._clock()
            tokens, last = self._buckets.pop(visitor, (self._most, now))
            tokens = min(self._most, tokens + self._rate * max(0.0, now - last))
            enough = tokens >= 1
            self._buckets[visitor] = tokens - enough, now
            while len(self._buckets) > self._MOST:
                self._buckets.popitem(last=False)
            return enough


def hash_password(password: str) -> str:
    """Returns the argon2id hash of a password."""
    return argon2.PasswordHasher().hash(password)


def password_version(hashed: str) -> int:
    """Returns a number that changes with the password, so that a new one ends older sessions."""
    return int.from_bytes(hashlib.sha256(hashed.encode()).digest()[:6])


# Verified when the name is unknown, so that the response time does not reveal it. A password that
# nobody knows was hashed once: each time would take a fifth of a second of every start.
_NOBODYS = (
    "$argon2id$v=19$m=65536,t=3,p=4$"
    "DBw35f+r3/vNricz2Xsilw$yhlaO6Df0oow91CM4UJBU/nJXYuJ0oKMGx3Oq7xNPSc"
)


def is_password(password: str, hashed: str | None) -> bool:
    """Whether a password matches a hash; takes the same time if there is no hash."""
    try:
        argon2.PasswordHasher().verify(hashed or _NOBODYS, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
    return hashed is not None


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """Returns a request's body.

    Raises:
      RefusedError: it is longer than `most` bytes, breaks off, or does not arrive within `seconds`.
    """
    said = request.headers.get("content-length", "0")
    too_long = RefusedError(413, "This form is too long.", "body-too-long")
    if not said.isdecimal() or int(said) > most:
        raise too_long
    parts, length = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                length += len(part)
                if length > most:
                    raise too_long
                parts.append(part)
    except TimeoutError:
        raise RefusedError(408, "The form did not arrive in time.", "slow-body") from None
    except ClientDisconnect:
        raise RefusedError(400, "The form did not arrive.") from None
    return b"".join(parts)


class Headers:
    """Adds the security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As in the ASGI specification."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, with_headers)

"""The web app: its routes, and the server that runs it."""

import asyncio
import logging
import math
import socket
from typing import Any

import sqlalchemy as sa
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gophercite.rating_site import admin_pages, rater_pages
from gophercite.rating_site.security import Headers
from gophercite.rating_site.site import Handler, Options, Site, message, path_of
from gophercite.rating_site.views import FOLDER
from gophercite.ratings.study import Study

_SECONDS_FOR_HEADERS = 20.0  # connections that send no complete request head in time are closed


class _App(Starlette):
    """An app that sends the security headers even with internal errors."""

    def build_middleware_stack(self) -> ASGIApp:
        return Headers(super().build_middleware_stack())


class _Number(Convertor[int]):
    """A number of at most nine digits in an address."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


def create_app(study: Study, options: Options | None = None) -> Starlette:
    """Returns the web app of a study."""
    site = Site(study, options or Options())

    def of_admins(path: str) -> bool:
        return path.startswith("/admin")

    def get(path: str, handler: Handler) -> Route:
        return Route(path, site.endpoint(handler, of_admins=of_admins(path)), methods=["GET"])

    def post(path: str, handler: Handler) -> Route:
        return Route(path, site.endpoint(handler, of_admins=of_admins(path)), methods=["POST"])

    async def health(request: Request) -> Response:
        """Whether the database answers."""

        def ask() -> None:
            with site.store.reading() as connection:
                connection.execute(sa.text("SELECT 1"))

        try:
            await run_in_threadpool(ask)
        except sa.exc.SQLAlchemyError:
            return JSONResponse({"ok": False}, 503)
        return JSONResponse({"ok": True})

    register_url_convertor("number", _Number())
    here = "/e/{experiment:number}"
    routes = [
        get("/", rater_pages.home),
        get("/r/{token}", rater_pages.open_link),
        get(here, rater_pages.rate),
        post(here, rater_pages.send),
        post(f"{here}/draft", rater_pages.save_draft),
        get(here + "/rated/{item:number}", rater_pages.rated),
        get(f"{here}/instructions", rater_pages.instructions),
        get(f"{here}/examples", rater_pages.examples),
        get(here + "/page/{ticket}/{place:number}/{claim:number}", rater_pages.stored_page),
        get("/admin", admin_pages.overview),
        get("/admin/login", admin_pages.login_form),
        post("/admin/login", admin_pages.log_in),
        post("/admin/logout", admin_pages.log_out),
        Route("/health", health, methods=["GET"]),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    handlers: Any = {HTTPException: _http_error, Exception: _failure}
    app = _App(routes=routes, exception_handlers=handlers)
    app.state.site = site
    return app


def server(
    study: Study,
    host: str,
    port: int,
    options: Options | None = None,
    seconds_for_headers: float = _SECONDS_FOR_HEADERS,
) -> uvicorn.Server:
    """Returns a server of a study; its `run` serves until it is told to stop.

    Args:
      study: the study.
      host: the address to listen on.
      port: the port; 0 picks any free one.
      options: the server's limits; the defaults of `Options` when None.
      seconds_for_headers: time within which the headers of a request must arrive, counted from the
        connection's beginning or from its last response.
    """

    class Impatient(H11Protocol):
        """Closes connections on which no request arrives in time."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wait()

        def _wait(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(seconds_for_headers, self._let_go)

        def _let_go(self) -> None:
            is_at_work = self.cycle is not None and not self.cycle.response_complete
            if not is_at_work and not self.transport.is_closing():
                self.transport.close()

    options = options or Options()
    app = create_app(study, options)

    class Closing(uvicorn.Server):
        """Closes the worlds that raters have browsed, after the last request."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            await run_in_threadpool(app.state.site.worlds.close)

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,  # uvicorn's own would close all of the process's log handlers
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=options.behind_proxy,
        limit_concurrency=1000,
        timeout_keep_alive=math.ceil(seconds_for_headers),  # uvicorn's own would be shorter
        timeout_graceful_shutdown=10,
    )
    return Closing(config)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return message("Sorry", "This page does not exist.", error.status_code)


async def _failure(request: Request, error: Exception) -> Response:
    logging.getLogger(__name__).error("%s failed", path_of(request), exc_info=error)
    text = "Something went wrong here. What you sent before was saved. Please try again."
    return message("Sorry", text, 500)

"""Where requests come from: proxies are believed only behind one; broken uploads are refused."""

import asyncio
import logging
import pathlib
import socket
from typing import Any

import pytest
from starlette.requests import Request

from gophercite.rating_site.security import RefusedError, read_body
from tests.ratings.served import serve, study_in

Says = pytest.CaptureFixture[str]


@pytest.mark.parametrize("behind_proxy", [False, True])
def test_only_a_proxy_says_who_a_visitor_is(tmp_path: pathlib.Path, behind_proxy: bool) -> None:
    with serve(study_in(tmp_path), behind_proxy=behind_proxy) as served:
        browser = served.browser()
        statuses = []
        for number in range(7):
            form = browser.get("/admin/login").form
            sent = {**form, "name": "boss", "password": "wrong"}
            said = {"X-Forwarded-For": f"192.0.2.{number}"}
            statuses.append(browser.send("/admin/login", sent, **said).status)
    assert statuses == ([403] * 7 if behind_proxy else [403] * 5 + [429] * 2)


def test_an_upload_that_breaks_off_is_refused() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"a=", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(RefusedError, match="The form did not arrive") as refused:
        asyncio.run(read_body(request, 100, 5.0))
    assert refused.value.status == 400


def test_an_upload_that_breaks_off_logs_no_traceback(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), serve(study_in(tmp_path)) as served:
        port = int(served.url.rpartition(":")[2])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as upload:
                head = b"POST /admin/login HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nab"
                upload.sendall(head)
                upload.shutdown(socket.SHUT_WR)
                upload.recv(10)
        assert served.browser().get("/health").status == 200
    assert not caplog.records

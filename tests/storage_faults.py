"""A proxy between a bucket's clients and the server, which answers as a bad day of GCS would."""

import collections
import contextlib
import dataclasses
import hashlib
import http.client
import http.server
import json
import random
import re
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping

KINDS = (
    "429",  # too many requests
    "503",  # the service can't be had now
    "cut before",  # the connection ends, and the server has heard nothing
    "cut inside",  # it ends in the middle of the answer
    "slow",  # the answer takes its time
    "lost",  # the server has done what it was asked to, and nobody is told
)
_SAID = {
    "403": "The caller has no right to do this.",  # by rule alone: nobody tries that again
    "429": "The rate of change requests to this object exceeds the limit.",
    "503": "We encountered an internal error. Please try again.",
}
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_OF_ONE_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclasses.dataclass
class Rule:
    """Faults that are sure to come: to the next requests of a kind.

    Attributes:
      kind: one of KINDS, or "403", which is not tried again.
      method: of the requests; empty for all.
      target: a regular expression that is searched for in the decoded path and query, and in the
        beginning of what is sent, where some requests name their object.
      times: how many of them.
    """

    kind: str
    method: str = ""
    target: str = ""
    times: int = 1


class Faults:
    """What goes wrong, by draws from a seed and by rules, and what came of it.

    Attributes:
      rates: the share of requests that meet a fault, by its kind.
      rules: go before draws; each is used up.
      slow: seconds that a slow answer takes.
      requests: how many came.
      injected: how many met a fault, by its kind.
      retries: how many were the same as one that had met a fault, not a slow one, before.
    """

    def __init__(
        self, rates: Mapping[str, float] | None = None, *, seed: int = 0, slow: float = 0.2
    ) -> None:
        """Begins with no rule."""
        self.rates = dict(rates or {})
        self.rules: list[Rule] = []
        self.slow = slow
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self._failed: collections.Counter[str] = collections.Counter()
        self.forget()

    def forget(self) -> None:
        """Counts from nothing."""
        with self._lock:
            self.requests = self.retries = 0
            self.injected: collections.Counter[str] = collections.Counter()
            self._failed.clear()

    def next_for(self, method: str, target: str, key: str, body: bytes = b"") -> str | None:
        """The fault that a request meets, if any.

        Args:
          method: of the request.
          target: its path and query.
          body: what is sent.
          key: is equal for a request that is repeated.
        """
        with self._lock:
            self.requests += 1
            if self._failed[key]:
                self.retries += 1
                self._failed[key] -= 1
            begin = body[:500].decode("latin-1")
            kind = self._choose(method, f"{urllib.parse.unquote(target)}\n{begin}")
            if kind is not None:
                self.injected[kind] += 1
                if kind != "slow":
                    self._failed[key] += 1
            return kind

    def _choose(self, method: str, target: str) -> str | None:
        for rule in self.rules:
            fits = rule.method in ("", method) and re.search(rule.target, target)
            if rule.times > 0 and fits:
                rule.times -= 1
                return rule.kind
        value = self._draw.random()
        for kind, rate in self.rates.items():
            if kind == "lost" and method not in _WRITES:
                continue
            value -= rate
            if value < 0:
                return kind
        return None


class _Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server_port: int, faults: Faults) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.faults = server_port, faults
        # A piece of a resumable upload that is sent twice GCS takes once, and when the upload is
        # complete it says 200 again. The server behind adds it a second time, or says 404.
        self.taken: dict[tuple[str, str], tuple[int, list[tuple[str, str]], bytes]] = {}

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may go at any time."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and content go out in two pieces, the second of which would wait for the first's
    # acknowledgement.
    disable_nagle_algorithm = True
    server: _Proxy

    def log_message(self, *arguments: object) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self._behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)

    def finish(self) -> None:
        self._behind.close()
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        digest = hashlib.sha256(body).hexdigest()
        place = self.headers.get("Range") or self.headers.get("Content-Range") or ""
        key = f"{self.command} {self.path} {place} {digest}"
        fault = self.server.faults.next_for(self.command, self.path, key, body)
        if fault in _SAID:
            error = {"error": {"code": int(fault), "message": _SAID[fault]}}
            self._send(int(fault), [("Content-Type", "application/json")], _json(error))
            return
        if fault == "cut before":
            self._cut()
            return
        status, headers, content = self._forward(body)
        if fault == "slow":
            time.sleep(self.server.faults.slow)
        if fault == "lost" and status < 400:
            self._cut()
            return
        self._send(status, headers, content, cut=fault == "cut inside")

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        url = urllib.parse.urlsplit(self.path)
        upload = urllib.parse.parse_qs(url.query).get("upload_id", [""])[0]
        session = upload or (url.path if url.path.startswith("/upload/resumable/") else "")
        piece = session, self.headers.get("Content-Range") or ""
        if session and piece in self.server.taken:
            return self.server.taken[piece]
        self._behind.request(self.command, self.path, body, dict(self.headers.items()))
        answer = self._behind.getresponse()
        content = answer.read()
        headers = [(n, v) for n, v in answer.getheaders() if n.lower() not in _OF_ONE_HOP]
        found = answer.status, headers, content
        if session and self.command in ("POST", "PUT") and answer.status in (200, 201, 308):
            self.server.taken[piece] = found
        return found

    def _send(
        self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        if cut and not content:
            self._cut()
            return
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.wfile.flush()
            self._cut()

    def _cut(self) -> None:
        """Resets the connection: the other side hears no end of what it may have begun to read."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.wfile = _Nowhere()  # type: ignore[assignment]
        self.connection.close()


class _Nowhere:
    """In place of the connection, when that is closed."""

    closed = True

    def write(self, data: bytes) -> int:
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@contextlib.contextmanager
def faulty_proxy(server_port: int, faults: Faults) -> Iterator[int]:
    """Passes what comes on to a server, with faults.

    Args:
      server_port: where that listens, on loopback.
      faults: what goes wrong; it may be changed meanwhile.

    Yields:
      The port where the proxy listens.
    """
    with _Proxy(server_port, faults) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy.server_port
        finally:
            proxy.shutdown()
            thread.join()

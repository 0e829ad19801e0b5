"""Real HTTP servers on loopback, whose answers a test writes."""

import contextlib
import http.server
import threading
import urllib.parse
from collections.abc import Callable, Iterator

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server:
    """A server; `answers` maps paths to what is answered, `requests` lists what was asked."""

    def __init__(self, host: str, port: int) -> None:
        self.base = f"http://{host}:{port}"
        self.port = port
        self.answers: dict[str, Answer] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []


def answer(
    content: bytes | str = b"", status: int = 200, type: str | None = None, **headers: str
) -> Answer:
    """An answer with this content; header names are written with `_` for `-`."""
    body = content.encode() if isinstance(content, str) else content

    def write(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if type is not None:
            handler.send_header("Content-Type", type)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return write


@contextlib.contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Server]:
    """A server at a free port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append(self.path)
            server.headers.append(dict(self.headers))
            path = urllib.parse.urlsplit(self.path).path
            with contextlib.suppress(ConnectionError):
                server.answers.get(path, answer(status=404))(self)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((host, 0), Handler) as it:
        it.daemon_threads = True
        server = Server(host, it.server_address[1])
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            it.shutdown()
            thread.join()

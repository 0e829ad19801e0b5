"""A bucket on loopback: as much of Google's storage API (JSON) as its Python client asks for."""

import contextlib
import datetime
import email
import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

NAME = "b"
_LONG_AGO = "2026-01-01T00:00:00Z"
_OBJECTS = f"/storage/v1/b/{NAME}/o"


class Bucket(http.server.ThreadingHTTPServer):
    """The server; `objects` are its contents by their names."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        # Of those that were written in one request, which may have a condition.
        self.generations: dict[str, int] = {}
        self.updated: dict[str, str] = {}
        # Called before each write with a condition is answered, as if somebody else was faster.
        self.before_write: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        path, query = self._target()
        if path.rstrip("/") == _OBJECTS:
            self._list(query.get("prefix", ""), query.get("delimiter", ""))
            return
        name = self._object(path)
        if name not in self.server.objects:
            self._answer({"error": {"code": 404, "message": "not found"}}, status=404)
        elif self._condition_fails(name, query):
            return
        elif query.get("alt") == "media":
            self._media(self.server.objects[name])
        else:
            self._answer(self._about(name))

    def do_POST(self) -> None:
        path, query = self._target()
        body = self._body()
        if query.get("uploadType") == "multipart":
            self._write_on_condition(body, query)
        elif query.get("uploadType") == "resumable":
            session = f"{self.server.url}/session?name={urllib.parse.quote(query['name'])}"
            self._answer({}, headers={"Location": session})
        elif path == "/session":
            self.server.objects[query["name"]] = body
            self._answer(self._about(query["name"]))
        else:  # …/o/FROM/rewriteTo/b/b/o/TO
            source, target = path.split("/rewriteTo/")
            name = self._object(f"/storage/v1/{target}")
            self.server.objects[name] = self.server.objects[self._object(source)]
            self._answer({"done": True, "resource": self._about(name)})

    def do_DELETE(self) -> None:
        path, query = self._target()
        name = self._object(path)
        if self._condition_fails(name, query):
            return
        del self.server.objects[name]
        self._answer({}, status=204)

    def _write_on_condition(self, body: bytes, query: dict[str, str]) -> None:
        """An object in one request, whose body has its description and its content."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        about, content = email.message_from_bytes(head + body).get_payload()
        name = json.loads(about.get_payload())["name"]
        self.server.before_write()
        if self._condition_fails(name, query):
            return
        self.server.objects[name] = content.get_payload(decode=True)
        self.server.generations[name] = self.server.generations.get(name, 1) + 1
        now = datetime.datetime.now(datetime.UTC)
        self.server.updated[name] = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._answer(self._about(name))

    def _condition_fails(self, name: str, query: dict[str, str]) -> bool:
        """Whether the object isn't of the generation that a request asks for; if so, answers."""
        has = self.server.generations.get(name, 1) if name in self.server.objects else 0
        if query.get("ifGenerationMatch", str(has)) == str(has):
            return False
        self._answer({"error": {"code": 412, "message": "conditionNotMet"}}, status=412)
        return True

    def _target(self) -> tuple[str, dict[str, str]]:
        url = urllib.parse.urlsplit(self.path)
        return url.path, dict(urllib.parse.parse_qsl(url.query))

    def _object(self, path: str) -> str:
        """The object's name; empty for a path of none."""
        return urllib.parse.unquote(path.partition(f"/b/{NAME}/o/")[2])

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _list(self, prefix: str, delimiter: str) -> None:
        names = [name for name in sorted(self.server.objects) if name.startswith(prefix)]
        rests = {name: name[len(prefix) :] for name in names}
        inner = {n for n in names if delimiter and delimiter in rests[n]}
        folders = sorted({prefix + rests[n].split(delimiter)[0] + delimiter for n in inner})
        items = [self._about(name) for name in names if name not in inner]
        self._answer({"items": items, "prefixes": folders})

    def _media(self, content: bytes) -> None:
        asked = self.headers.get("Range")
        if asked is None:
            self._send(content, 200, {})
            return
        first, last = asked.removeprefix("bytes=").split("-")
        part = content[int(first) : int(last) + 1 if last else None]
        place = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        self._send(part, 206, {"Content-Range": place})

    def _about(self, name: str) -> dict[str, Any]:
        size = str(len(self.server.objects[name]))
        link = f"{self.server.url}/download{_OBJECTS}/{urllib.parse.quote(name, safe='')}?alt=media"
        generation = str(self.server.generations.get(name, 1))
        return {
            "name": name, "bucket": NAME, "size": size, "mediaLink": link, "generation": generation,
            "updated": self.server.updated.get(name, _LONG_AGO), "timeCreated": _LONG_AGO,
        }  # fmt: skip

    def _answer(
        self, value: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self._send(json.dumps(value).encode() if status != 204 else b"", status, headers or {})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def bucket() -> Iterator[Bucket]:
    """Yields a server with an empty bucket."""
    with Bucket() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()

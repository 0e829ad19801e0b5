"""A language-inference server on loopback, which knows as much as its tests need."""

import contextlib
import http.server
import json
import math
import threading
from collections.abc import Iterator
from typing import ClassVar


def says(premise: str, hypothesis: str) -> bool:
    """A premise entails a claim when it has all of its words."""
    return set(hypothesis.split()) <= set(premise.split())


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as text-embeddings-inference does; the path says what else to do wrong."""

    most = 32  # pairs in a request
    failures: ClassVar[list[int | None]]  # what the next requests get: a status, or no answer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.failures:
            status = self.failures.pop(0)
            if status is not None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"Model is overloaded")
            return
        answers = []
        for premise, hypothesis in body["inputs"]:
            score = 0.75 if says(premise, hypothesis) else 0.25
            labels = [("ENTAILMENT", score), ("neutral", 1 - score)]
            if self.path.startswith("/other"):
                labels = [("LABEL_0", score)]
            if self.path.startswith("/nan"):
                labels = [("entailment", math.nan)]
            answers.append([{"label": label, "score": number} for label, number in labels])
        data = json.dumps(answers[1:] if self.path.startswith("/few") else answers).encode()
        refused = self.path.startswith("/refuse") or len(answers) > self.most
        self.send_response(413 if refused else 200)
        self.end_headers()
        if refused:
            data = b"batch size > maximum allowed batch size"
        if self.path.startswith("/text"):
            data = b"<html>"
        if self.path.startswith("/deep"):
            data = b"[" * 200_000
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def entailment_server(most: int = 32, failures: list[int | None] | None = None) -> Iterator[str]:
    """Yields the URL of a server, for as long as it is needed.

    Args:
      most: pairs that it takes at once.
      failures: what it answers instead while the list lasts: a status; None cuts the connection.
    """
    limits = {"most": most, "failures": [] if failures is None else failures}
    handler = type("Limited", (Handler,), limits)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()

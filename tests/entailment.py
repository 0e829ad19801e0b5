"""A language-inference server on loopback, which knows as much as its tests need."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator


def says(premise: str, hypothesis: str) -> bool:
    """A premise entails a claim when it has all of its words."""
    return set(hypothesis.split()) <= set(premise.split())


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as text-embeddings-inference does; the path says what else to do wrong."""

    most = 32  # pairs in a request

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = []
        for premise, hypothesis in body["inputs"]:
            score = 0.75 if says(premise, hypothesis) else 0.25
            labels = [("ENTAILMENT", score), ("neutral", 1 - score)]
            if self.path.startswith("/other"):
                labels = [("LABEL_0", score)]
            answers.append([{"label": label, "score": number} for label, number in labels])
        data = json.dumps(answers[1:] if self.path.startswith("/few") else answers).encode()
        refused = self.path.startswith("/refuse") or len(answers) > self.most
        self.send_response(413 if refused else 200)
        self.end_headers()
        self.wfile.write(b"not JSON" if self.path.startswith("/text") else data)

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def entailment_server(most: int = 32) -> Iterator[str]:
    """Yields the URL of a server, for as long as it is needed, that takes so many pairs at once."""
    handler = type("Limited", (Handler,), {"most": most})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()

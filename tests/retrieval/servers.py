"""Real HTTP servers on loopback, whose answers a test writes."""

import contextlib
import datetime
import http.server
import pathlib
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server:
    """A server; `answers` maps paths to what is answered, `requests` lists what was asked."""

    def __init__(self, host: str, port: int, scheme: str) -> None:
        self.base = f"{scheme}://{host}:{port}"
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


def self_signed(host: str, path: pathlib.Path) -> pathlib.Path:
    """Writes a certificate of this host, with its key, to a PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = serialization.PrivateFormat.PKCS8
    path.write_bytes(
        certificate.public_bytes(pem)
        + key.private_bytes(pem, private, serialization.NoEncryption())
    )
    return path


@contextlib.contextmanager
def serving(certificate: pathlib.Path | None = None) -> Iterator[Server]:
    """A server at a free port; with a certificate and its key, in one PEM file, it speaks TLS."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append(self.path)
            server.headers.append(dict(self.headers))
            path = urllib.parse.urlsplit(self.path).path
            with contextlib.suppress(ConnectionError):
                server.answers.get(path, answer(status=404))(self)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as it:
        it.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            it.socket = context.wrap_socket(it.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        server = Server("127.0.0.1", it.server_address[1], scheme)
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            it.shutdown()
            thread.join()

"""Fetching from real servers on loopback: limits, redirects, robots.txt, addresses."""

import asyncio
import contextlib
import dataclasses
import gzip
import http.server
import ipaddress
import itertools
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import protego
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pages import HTML, HTML_IN_FULL
from servers import Server, answer, self_signed, serving

from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.retrieval import fetch as fetch_module
from gophercite.retrieval.addresses import AddressPolicy
from gophercite.retrieval.fetch import FetchedPage, Fetcher, FetchError, FetchSettings
from gophercite.retrieval.robots import rules_for

HERE = FetchSettings(allowed_networks=("127.0.0.1/32",), seconds=10)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.answers["/page"] = answer(HTML, type="text/html; charset=utf-8")
        yield server


def fetch(url: str, settings: FetchSettings = HERE) -> FetchedPage:
    async def once() -> FetchedPage:
        async with Fetcher(settings) as fetcher:
            return await fetcher.fetch(url)

    return asyncio.run(once())


def problem(url: str, settings: FetchSettings = HERE) -> str:
    with pytest.raises(FetchError) as raised:
        fetch(url, settings)
    assert str(raised.value).startswith(url[:200])
    assert "\n" not in str(raised.value)
    return raised.value.problem


def test_page(server: Server) -> None:
    page = fetch(f"{server.base}/page#part")
    assert page.content == HTML.encode()
    assert page.content_type == "text/html; charset=utf-8"
    assert page.url == f"{server.base}/page"
    assert server.requests == ["/robots.txt", "/page"]
    assert server.headers[1]["User-Agent"].startswith("gophercite/")


def test_documents(server: Server) -> None:
    server.answers["/empty"] = answer(" ", type="text/plain")
    server.answers["/moved"] = answer(status=302, Location="/page")

    async def several() -> list[Document | FetchError]:
        with Extractor("full") as extractor:
            async with Fetcher(HERE, extractor) as fetcher:
                paths = ("/page", "/none", "/empty", "/moved")
                return await fetcher.documents(server.base + path for path in paths)

    first, none, empty, moved = asyncio.run(several())
    assert isinstance(first, Document)
    assert (first.url, first.text) == (f"{server.base}/page", HTML_IN_FULL)
    assert first.retrieved_at is not None
    assert isinstance(moved, Document)
    assert (moved.url, moved.id, moved.sha256) == (first.url, first.url, first.sha256)
    assert isinstance(none, FetchError)
    assert none.problem == "the server answers with status 404"
    assert isinstance(empty, FetchError)
    assert empty.problem == "has no text"
    assert server.requests.count("/robots.txt") == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "127.0.0.1."]
)
def test_this_machine_is_not_reached(server: Server, host: str) -> None:
    found = problem(f"http://{host}:{server.port}/page", FetchSettings())
    assert "not a public address" in found or "is not known" in found or "not the address" in found
    assert server.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.9.9.9", "169.254.169.254", "172.16.0.1",
        "192.0.0.9", "192.88.99.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "168.63.129.16", "::", "::1", "::127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::a00:1", "64:ff9b:1::808:808", "2002:7f00:1::", "2001::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2001:db8::1", "100::1",
    ],
)  # fmt: skip
def test_special_addresses(address: str) -> None:
    assert not AddressPolicy().admits(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"]
)
def test_public_addresses(address: str) -> None:
    assert AddressPolicy().admits(ipaddress.ip_address(address))
    assert AddressPolicy(["10.1.0.0/16"]).admits(ipaddress.ip_address("10.1.2.3"))
    assert not AddressPolicy(["10.1.0.0/16"]).admits(ipaddress.ip_address("10.2.2.3"))


@given(st.ip_addresses(v=4))
def test_address_inside_another_is_judged_alike(address: ipaddress.IPv4Address) -> None:
    policy = AddressPolicy()
    for prefix in ("::ffff:0:0", "64:ff9b::"):
        outer = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + int(address))
        assert policy.admits(outer) == policy.admits(address)


def test_redirects_are_checked_one_by_one(server: Server) -> None:
    server.answers["/a"] = answer(status=301, Location="b")
    server.answers["/b"] = answer(status=307, Location=f"{server.base}/page")
    assert fetch(f"{server.base}/a").url == f"{server.base}/page"
    elsewhere = {
        f"http://127.0.0.2:{server.port}/page": "127.0.0.2, which is not a public address",
        "http://169.254.169.254/latest/meta-data/": "169.254.169.254, which is not a public",
        "file:///etc/passwd": "redirected to an address which is not an http:// or https://",
        "gopher://x/": "redirected to an address which is not an http:// or https:// address",
        f"http://me:secret@127.0.0.1:{server.port}/page": "contains a user name or password",
        "http://[::1": "",
        "http:////[x": "can't be reached: ",
        "http://xn--a/": "can't be reached: ",
        "http://1.1.1.1:70000/": "an address which has port 70000, and ports are 1 to 65535",
        "/around": "redirected more than 5 times",
    }
    for target, expected in elsewhere.items():
        server.answers["/around"] = answer(status=302, Location=target)
        assert expected in problem(f"{server.base}/around")


@pytest.mark.parametrize(
    "url",
    ["", "x", "//a/b", "ftp://example.org/", "file:///etc/passwd", "http://", "http:///x",
     "javascript:alert(1)", "http://a\x1b[31m/", "http://" + "x" * 5000, "http://me@127.0.0.1/",
     "http://:pw@127.0.0.1/", "http://[1", "http://a:99999/", "http://1.1.1.1:70000/",
     "http://1.1.1.1:0/", "http://xn--a/", "http://xn--0.com/"],
)  # fmt: skip
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(FetchError) as raised:
        fetch(url)
    assert raised.value.url == url
    assert str(raised.value).isprintable()


def test_connection_goes_to_the_address_that_was_checked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers otherwise the second time is not asked a second time."""
    asked = []
    real = socket.getaddrinfo

    def rebinding(host: str, port: int, *args: object, **kwargs: object) -> object:
        if host != "rebinding.example":
            return real(host, port, *args, **kwargs)  # type: ignore[arg-type]
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    settings = dataclasses.replace(HERE, obey_robots=False)
    fetch(f"http://rebinding.example:{server.port}/page", settings)
    assert asked == ["rebinding.example"]
    assert server.headers[0]["Host"] == f"rebinding.example:{server.port}"
    found = problem(f"http://rebinding.example:{server.port}/page", settings)
    assert "127.0.0.2, which is not a public address" in found


def test_an_address_that_never_answers_keeps_no_page_from_another(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is behind a firewall that drops all of one IP version: a host has both kinds."""
    real = socket.getaddrinfo

    def both(host: str, port: int, *args: object, **kwargs: object) -> object:
        hosts = ("127.0.0.2", "127.0.0.1") if host == "both.example" else (host,)
        return [found for each in hosts for found in real(each, port, *args, **kwargs)]  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    settings = FetchSettings(allowed_networks=("127.0.0.0/30",), seconds=4, obey_robots=False)
    url = f"http://both.example:{server.port}/page"
    with socket.socket() as silent, contextlib.ExitStack() as waiting:
        silent.bind(("127.0.0.2", server.port))
        silent.listen(0)
        for _ in range(3):  # until no further connection is taken
            each = waiting.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(("127.0.0.2", server.port))
        assert fetch(url, settings).content == HTML.encode()


def test_certificates_are_those_of_the_names(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to an address, the certificate must be that of the host's name."""
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _, *args, **kw: real("127.0.0.1", *args, **kw)
    )
    certificate = self_signed("good.example", tmp_path / "certificate.pem")
    with serving(certificate) as server:
        server.answers["/page"] = answer(HTML, type="text/html")
        good = f"https://good.example:{server.port}/page"
        assert "certificate verify failed" in problem(good)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert fetch(good).content == HTML.encode()
        assert "certificate verify failed" in problem(good.replace("good", "other"))


def test_robots_txt(server: Server) -> None:
    rules = "User-agent: gophercite\nDisallow: /page\n\nUser-agent: *\nDisallow: /\n"
    server.answers["/robots.txt"] = answer(rules, type="text/plain")
    server.answers["/other"] = answer("x", type="text/plain")
    server.answers["/moved"] = answer(status=302, Location="/page")
    assert "asks robots to leave this page alone" in problem(f"{server.base}/page")
    assert "asks robots to leave this page alone" in problem(f"{server.base}/moved")
    assert "/page" not in server.requests
    assert fetch(f"{server.base}/other").content == b"x"
    assert fetch(f"{server.base}/page", dataclasses.replace(HERE, obey_robots=False)).content


@pytest.mark.parametrize("agent", ["User-agent: ", "useragent:", "USER  agent "])
def test_robots_txt_may_name_any_number_of_robots(agent: str) -> None:
    """protego's own time grows with the number of robots times that of rules."""
    text = "".join(f"{agent}{'*' * (i % 3)}robot{i}\n" for i in range(9000))
    began = time.process_time()
    rules = rules_for("gophercite", text + "".join(f"Allow: /{i}\n" for i in range(9000)))
    assert time.process_time() - began < 10
    assert rules.can_fetch("http://a.example/x", "gophercite")


ROBOTS = (
    "*",
    "gophercite",
    "GopherCite*",
    "gopher # x",
    "go",
    "opherci",
    "other",
    "gophercite-images",
)
GROUPS = st.tuples(
    st.lists(
        st.tuples(
            st.sampled_from(("User-agent: ", "user agent ", "Useragent:")), st.sampled_from(ROBOTS)
        ),
        min_size=1,
        max_size=2,
    ),
    st.lists(
        st.tuples(
            st.sampled_from(("Disallow: ", "Allow:")), st.sampled_from(("/", "/a", "/a*b", "/b$"))
        ),
        min_size=1,
        max_size=2,
    ),
)


@given(st.lists(GROUPS, min_size=1, max_size=4))
@example(
    [
        ([("User-agent: ", "go")], [("Disallow: ", "/")]),
        ([("User-agent: ", "opherci")], [("Allow: ", "/")]),
    ]
)
def test_robots_txt_says_what_it_says_to_protego(groups: list[Any]) -> None:
    text = "\n".join(name + value for group in groups for line in group for name, value in line)
    ours, whole = rules_for("gophercite", text), protego.Protego.parse(text)
    for path in ("/", "/a", "/ab", "/b"):
        url = f"http://a.example{path}"
        assert ours.can_fetch(url, "gophercite") == whole.can_fetch(url, "gophercite")


def test_a_name_of_one_letter_precedes_all_robots() -> None:
    """Where protego takes the group that comes first (RFC 9309, section 2.2.1)."""
    rules = rules_for("gophercite", "User-agent: *\nDisallow: /\nUser-agent: g\nDisallow: /a\n")
    assert rules.can_fetch("http://a.example/", "gophercite")
    assert not rules.can_fetch("http://a.example/a", "gophercite")


def test_robots_txt_that_is_not_to_be_had(server: Server) -> None:
    server.answers["/robots.txt"] = answer(status=503)
    assert "robots.txt can't be read: the server answers with status 503" in problem(
        f"{server.base}/page"
    )
    server.answers["/robots.txt"] = answer(b"Disallow: \xff\0\n" * 100_000)  # cut, and odd
    assert fetch(f"{server.base}/page").content


def fetch_in_turn(settings: FetchSettings, *urls: str) -> None:
    async def in_turn() -> None:
        async with Fetcher(settings) as fetcher:
            for url in urls:
                await fetcher.fetch(url)

    asyncio.run(in_turn())


def test_robots_txt_is_asked_again_after_a_while(server: Server) -> None:
    page = f"{server.base}/page"
    fetch_in_turn(HERE, page, page, page)
    assert server.requests == ["/robots.txt", *["/page"] * 3]
    server.requests.clear()
    fetch_in_turn(dataclasses.replace(HERE, robots_seconds=0), page, page)
    assert server.requests == ["/robots.txt", "/page"] * 2
    with pytest.raises(ValueError, match="robots_seconds must not be negative"):
        FetchSettings(robots_seconds=-1)


def test_a_fetcher_keeps_the_latest_robots_txt(server: Server) -> None:
    """Of more sites than fit, the ones used last: the process may run for months."""
    with serving() as other:
        other.answers = server.answers
        server.answers["/robots.txt"] = answer("# " + "x" * 5000, type="text/plain")
        one, two = f"{server.base}/page", f"{other.base}/page"
        fetch_in_turn(HERE, one, two, one, two)
        assert (server.requests.count("/robots.txt"), other.requests.count("/robots.txt")) == (1, 1)
        fetch_in_turn(dataclasses.replace(HERE, robots_bytes=9000), one, one, two, one)
        assert (server.requests.count("/robots.txt"), other.requests.count("/robots.txt")) == (3, 2)


def test_types_that_are_no_text(server: Server) -> None:
    server.answers["/picture"] = answer(b"\x89PNG", type="image/png")
    server.answers["/untyped"] = answer(b"x")
    assert problem(f"{server.base}/picture") == "has type 'image/png', which can't be read"
    assert fetch(f"{server.base}/untyped").content_type == ""


def test_size(server: Server) -> None:
    settings = dataclasses.replace(HERE, maximum_bytes=1000)
    server.answers["/fits"] = answer(b"x" * 1000, type="text/plain")
    server.answers["/large"] = answer(b"x" * 1001, type="text/plain")
    compressed = gzip.compress(b"x" * 1000)
    server.answers["/gzip"] = answer(compressed, type="text/plain", Content_Encoding="gzip")
    bomb = gzip.compress(bytes(1 << 26))
    server.answers["/bomb"] = answer(bomb, type="text/plain", Content_Encoding="gzip")
    twice = gzip.compress(bomb)
    server.answers["/twice"] = answer(twice, type="text/plain", Content_Encoding="gzip, gzip")
    server.answers["/wrong"] = answer(b"x" * 9, type="text/plain", Content_Encoding="gzip")
    assert len(fetch(f"{server.base}/fits", settings).content) == 1000
    assert fetch(f"{server.base}/gzip", settings).content == b"x" * 1000
    assert problem(f"{server.base}/large", settings) == "is longer than 1000 bytes"
    assert problem(f"{server.base}/bomb", settings) == "is longer than 1000 bytes"
    assert "compressed with 'gzip, gzip', which was not requested" in problem(
        f"{server.base}/twice", settings
    )
    assert "can't be decompressed" in problem(f"{server.base}/wrong", settings)
    for content in (compressed[:-9], compressed + compressed[:-9], compressed[:3]):
        server.answers["/half"] = answer(content, type="text/plain", Content_Encoding="gzip")
        quick = dataclasses.replace(settings, maximum_bytes=2000)
        assert "can't be decompressed: it ends too early" in problem(f"{server.base}/half", quick)
    for rest in (b"xxx", bytes(500)):
        padded = compressed + rest
        server.answers["/padded"] = answer(padded, type="text/plain", Content_Encoding="gzip")
        assert fetch(f"{server.base}/padded", settings).content == b"x" * 1000
    parts = gzip.compress(b"x" * 600) + gzip.compress(b"y" * 400)  # RFC 1952: members in a row
    server.answers["/parts"] = answer(parts, type="text/plain", Content_Encoding="gzip")
    assert fetch(f"{server.base}/parts", settings).content == b"x" * 600 + b"y" * 400
    server.answers["/parts"] = answer(parts * 2, type="text/plain", Content_Encoding="gzip")
    assert problem(f"{server.base}/parts", settings) == "is longer than 1000 bytes"


@given(
    parts=st.lists(st.binary(max_size=40), min_size=1, max_size=3),
    rest=st.sampled_from([b"", b"x", b"xxx", bytes(9), b"<html>"]),
    cut=st.none() | st.integers(0, 200),
    size=st.integers(1, 9),
)
def test_compressed_content_in_any_pieces(
    parts: list[bytes], rest: bytes, cut: int | None, size: int
) -> None:
    members = [gzip.compress(part) for part in parts]
    ends = list(itertools.accumulate(map(len, members)))
    data = (b"".join(members) + rest)[:cut]
    decompressor, found = fetch_module._Decompressor(), b""
    for start in range(0, len(data), size):
        found += decompressor.decompress(data[start : start + size], 1 << 20)
    complete = b"".join(part for part, end in zip(parts, ends, strict=True) if end <= len(data))
    if decompressor.is_complete:
        assert found == complete
        assert not data or len(data) >= ends[0]
    else:
        assert len(data) < ends[-1]
        assert found.startswith(complete)


def test_answers_without_end(server: Server) -> None:
    released = threading.Event()

    def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)

    def slow(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"x")
        handler.wfile.flush()
        released.wait(20)

    server.answers |= {"/endless": endless, "/slow": slow}
    assert problem(f"{server.base}/endless") == f"is longer than {16 << 20} bytes"
    quick = dataclasses.replace(HERE, seconds=1.0)
    assert "took longer than 1 s" in problem(f"{server.base}/slow", quick)
    released.set()


def test_servers_that_are_not_there(server: Server) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        settings = dataclasses.replace(HERE, obey_robots=False)
        assert problem(url, settings).startswith("can't be reached: ")
    assert "the host 'nobody.invalid' is not known" in problem("http://nobody.invalid/", settings)

    def garbage(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"\0\xff no HTTP\r\n\r\n")

    server.answers["/garbage"] = garbage
    assert problem(f"{server.base}/garbage").startswith("can't be reached: ")

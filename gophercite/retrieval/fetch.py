"""Fetches web pages: within limits, from public addresses, where their owners allow it."""

import asyncio
import concurrent.futures
import dataclasses
import datetime
import time
import weakref
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Self

import httpcore
import httpx
import protego

import gophercite
from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import TextError, is_readable, media_type
from gophercite.retrieval.addresses import AddressPolicy, CheckedBackend
from gophercite.retrieval.certificates import certificates
from gophercite.retrieval.kept import Kept
from gophercite.retrieval.robots import rules_for
from gophercite.storage.json_fields import printable

ROBOT = "gophercite"  # our name in robots.txt
USER_AGENT = f"{ROBOT}/{gophercite.__version__}"
ROBOTS_BYTES = 500 << 10  # the part of a robots.txt that RFC 9309 requires to be read
LONGEST_URL = 4000
_UNTYPED = ("", "application/octet-stream", "binary/octet-stream")
_HTTPCORE_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


@dataclasses.dataclass(frozen=True)
class FetchSettings:
    """How pages are fetched.

    Attributes:
      maximum_bytes: maximum size of a page, decompressed.
      seconds: maximum time for a page, with its redirects and its site's robots.txt.
      redirects: maximum number of redirects to follow.
      allowed_networks: networks that may be reached though they are not public, such as
        `10.1.0.0/16` for pages on the user's own network.
      obey_robots: whether to skip a page when its site's robots.txt asks for it.
      robots_seconds: how long a site's robots.txt is cached; RFC 9309 allows a day.
      robots_bytes: maximum size of all cached robots.txt files together; the least recently used
        are dropped first.
      user_agent: sent with each request; ideally with an address where you can be reached.
      connections: number of pages that are fetched at once.
    """

    maximum_bytes: int = 16 << 20
    seconds: float = 30.0
    redirects: int = 5
    allowed_networks: tuple[str, ...] = ()
    obey_robots: bool = True
    user_agent: str = USER_AGENT
    connections: int = 8
    robots_seconds: float = 3600.0
    robots_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if not self.robots_seconds >= 0:
            raise ValueError(f"robots_seconds must not be negative, got {self.robots_seconds}")


class FetchError(Exception):
    """A page can't be fetched; the message names it and says why."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{printable(url[:200])}: {problem}")
        self.url = url
        self.problem = problem


@dataclasses.dataclass(frozen=True)
class FetchedPage:
    """A page as its server sent it.

    Attributes:
      url: its address after all redirects.
      content_type: the server's header; empty if there was none.
      content: the page, decompressed.
      retrieved_at: time of retrieval in ISO 8601.
    """

    url: str
    content_type: str
    content: bytes
    retrieved_at: str


class Fetcher:
    """Fetches pages; use it in an `async with`.

    Args:
      settings: limits and permissions.
      extractor: converts pages to text, for `document`; the caller closes it.
    """

    def __init__(
        self, settings: FetchSettings | None = None, extractor: Extractor | None = None
    ) -> None:
        self._settings = settings = settings or FetchSettings()
        self._extractor = extractor
        self._slots = asyncio.Semaphore(settings.connections)
        self._robots: Kept[str, _Robots] = Kept(settings.robots_bytes, lambda each: each.size)
        # Only while they are used: there is no end of sites.
        self._asking_robots: weakref.WeakValueDictionary[str, asyncio.Lock]
        self._asking_robots = weakref.WeakValueDictionary()
        self._client = httpx.AsyncClient(
            transport=_CheckedTransport(AddressPolicy(settings.allowed_networks)),
            headers={"User-Agent": settings.user_agent, "Accept-Encoding": "gzip"},
            timeout=settings.seconds,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def fetch(self, url: str) -> FetchedPage:
        """Returns a page.

        Raises:
          FetchError: when it can't be fetched: no such page or server, a forbidden address,
            robots.txt, a type that can't be read, too large, too slow.
        """
        try:
            async with self._slots, asyncio.timeout(self._settings.seconds):
                return await self._follow(url, is_page=True)
        except TimeoutError:
            raise FetchError(url, f"took longer than {self._settings.seconds:g} s") from None

    async def document(self, url: str) -> Document:
        """Returns a page as a document whose id and url are its address after all redirects.

        Raises:
          FetchError: as for `fetch`, and when the page holds no text.
          ValueError: when the fetcher has no extractor.
        """
        if self._extractor is None:
            raise ValueError("this fetcher has no extractor, which is needed for documents")
        page = await self.fetch(url)
        try:
            text = await asyncio.to_thread(
                self._extractor.page_text, page.content, page.content_type
            )
        except TextError as error:
            raise FetchError(url, str(error)) from None
        if not text.text.strip():
            raise FetchError(url, "has no text")
        title = text.title or page.url
        return Document(
            page.url,
            title,
            text.text,
            page.url,
            page.retrieved_at,
            page_starts=text.page_starts,
        )

    async def documents(self, urls: Iterable[str]) -> list[Document | FetchError]:
        """Returns, in order, each address's document, or the error that prevented it."""

        async def one(url: str) -> Document | FetchError:
            try:
                return await self.document(url)
            except FetchError as error:
                return error

        return list(await asyncio.gather(*map(one, urls)))

    async def _follow(self, address: str, *, is_page: bool) -> FetchedPage:
        """Fetches a page or a robots.txt; each redirect is checked like the first address."""
        url = _checked_url(address, address)
        for _ in range(self._settings.redirects + 1):
            if is_page and self._settings.obey_robots:
                await self._ask_robots(url, address)
            try:
                async with self._client.stream("GET", url) as response:
                    if response.has_redirect_location:
                        target = url.join(response.headers["location"])
                        url = _checked_url(str(target), address)
                        continue
                    return await self._receive(response, address, is_page)
            # ValueError: a redirect to half an IPv6 address, for example.
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, *_HTTPCORE_ERRORS) as error:
                reason = str(error) or type(error).__name__
                raise FetchError(address, f"can't be reached: {printable(reason[:300])}") from None
        raise FetchError(address, f"is redirected more than {self._settings.redirects} times")

    async def _receive(self, response: httpx.Response, address: str, is_page: bool) -> FetchedPage:
        if response.status_code != 200:
            raise _StatusError(address, response.status_code)
        content_type = response.headers.get("content-type", "")
        media = media_type(content_type)
        if is_page and media not in _UNTYPED and not is_readable(media):
            raise FetchError(address, f"has type {printable(media[:100])!r}, which can't be read")
        limit = self._settings.maximum_bytes if is_page else ROBOTS_BYTES
        content = b"".join([chunk async for chunk in _bounded(response, limit, address, is_page)])
        now = datetime.datetime.now(datetime.UTC)
        found_at = str(response.url.copy_with(fragment=None))
        return FetchedPage(found_at, content_type, content, f"{now:%Y-%m-%dT%H:%M:%SZ}")

    async def _ask_robots(self, url: httpx.URL, address: str) -> None:
        """Refuses a page that its site forbids to robots (RFC 9309)."""
        origin = str(url.copy_with(raw_path=b"/robots.txt", fragment=None))
        async with self._asking_robots.setdefault(origin, asyncio.Lock()):
            robots = self._robots.find(origin)
            if robots is None or robots.age >= self._settings.robots_seconds:
                robots = await self._robots_of(origin)
                self._robots.keep(origin, robots)
        if isinstance(robots.rules, str):
            raise FetchError(address, f"its site's robots.txt can't be read: {robots.rules}")
        if not robots.rules.can_fetch(str(url), ROBOT):
            raise FetchError(address, "its site's robots.txt asks robots to leave this page alone")

    async def _robots_of(self, origin: str) -> "_Robots":
        try:
            page = await self._follow(origin, is_page=False)
        except _StatusError as error:
            if 400 <= error.status < 500:  # there are no rules
                return _Robots(rules_for(ROBOT, ""))
            return _Robots(error.problem)
        except FetchError as error:
            return _Robots(error.problem)
        text = page.content.decode("utf-8", errors="replace")
        return _Robots(rules_for(ROBOT, text), 20 * len(page.content) + 1000)


def fetch_documents(
    urls: Sequence[str], extractor: Extractor, settings: FetchSettings | None = None
) -> list[Document | FetchError]:
    """Returns, in order, each address's document, or the error that prevented it."""

    async def fetch() -> list[Document | FetchError]:
        async with Fetcher(settings, extractor) as fetcher:
            return await fetcher.documents(urls)

    # In a separate thread: a notebook already has a running event loop.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, fetch()).result()


@dataclasses.dataclass(frozen=True)
class _Robots:
    """A site's rules, or why they can't be fetched, which forbids everything."""

    rules: protego.Protego | str
    size: int = 1000  # in bytes, roughly
    asked_at: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """In seconds."""
        return time.monotonic() - self.asked_at


class _StatusError(FetchError):
    """The server answered, but not with the page."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, f"the server answers with status {status}")
        self.status = status


class _CheckedTransport(httpx.AsyncBaseTransport):
    """httpx over connections that only go to checked addresses."""

    def __init__(self, policy: AddressPolicy) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=certificates(),
            network_backend=CheckedBackend(policy),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                extensions=request.extensions,
            )
        )
        return httpx.Response(response.status, headers=response.headers, stream=_Stream(response))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


def _checked_url(url: str, address: str) -> httpx.URL:
    """Parses the URL to fetch next for the page that was requested at `address`."""
    if len(url) > LONGEST_URL:
        raise FetchError(address, f"is longer than {LONGEST_URL} characters")
    try:
        parsed = httpx.URL(url)
        host, port = parsed.host, parsed.port  # of an international name, only now it is decoded
    except (httpx.InvalidURL, ValueError) as error:
        raise FetchError(
            address, f"is not the address of a page: {printable(str(error))}"
        ) from None
    redirected = "" if url == address else "is redirected to an address which "
    if port is not None and not 0 < port < 1 << 16:
        raise FetchError(address, f"{redirected}has port {port}, and ports are 1 to 65535")
    if parsed.scheme not in ("http", "https") or not host:
        raise FetchError(address, f"{redirected}is not an http:// or https:// address with a host")
    if parsed.userinfo:
        raise FetchError(
            address, f"{redirected}contains a user name or password; these are never sent"
        )
    return parsed


async def _bounded(
    response: httpx.Response, limit: int, address: str, is_page: bool
) -> AsyncIterator[bytes]:
    """Yields the content, decompressed, without ever holding more of it than the limit.

    A longer page is refused; a longer robots.txt is cut.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise FetchError(
            address, f"is compressed with {printable(encoding[:50])!r}, which was not requested"
        )
    decompressor = None if encoding in ("identity", "") else _Decompressor()
    left = limit
    async for chunk in response.aiter_raw():
        if decompressor is not None:
            try:
                chunk = decompressor.decompress(chunk, left + 1)
            except zlib.error as error:
                raise FetchError(address, f"can't be decompressed: {error}") from None
        if len(chunk) > left:
            if is_page:
                raise FetchError(address, f"is longer than {limit} bytes")
            yield chunk[:left]
            return
        left -= len(chunk)
        yield chunk
    if decompressor is not None and not decompressor.is_complete:
        raise FetchError(address, "can't be decompressed: it ends too early")


class _Decompressor:
    """Decompresses zlib's own format, or gzip's, of one or more members (RFC 1952).

    What follows a complete member and is no member is ignored, as browsers do.
    """

    def __init__(self) -> None:
        self._member = _new_member()
        self._is_first = True
        self._has_begun = self._has_content = False  # the present member
        self._is_over = False

    @property
    def is_complete(self) -> bool:
        """Whether no member has been cut off; a response without content is complete, too."""
        begun = self._has_begun if self._is_first else self._has_content
        return self._is_over or self._member.eof or not begun

    def decompress(self, chunk: bytes, most: int) -> bytes:
        """Returns at most so many bytes; what is longer is not decompressed.

        Raises:
          zlib.error: the content is damaged.
        """
        found = b""
        while chunk and len(found) < most and not self._is_over:
            if self._member.eof:
                self._member, self._is_first, self._has_content = _new_member(), False, False
            self._has_begun = True
            try:
                content = self._member.decompress(chunk, most - len(found))
            except zlib.error:
                if self._is_first or self._has_content:
                    raise
                self._is_over = True
                break
            found += content
            self._has_content |= bool(content)
            chunk = self._member.unused_data if self._member.eof else b""
        return found


def _new_member() -> "zlib._Decompress":
    # 32: zlib's own format or gzip's, detected from the first bytes.
    return zlib.decompressobj(32 + zlib.MAX_WBITS)

"""Kinds of pages that answers are drawn about: real ones (`../shared/data`) and made-up ones."""

import gzip
import json
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence

from gophercite.documents import Document, Window
from gophercite.extraction.text import Budget, TextError, page_text
from tests.quoting.quote_worlds import hostile_documents

DATA = pathlib.Path(__file__).parents[2] / "../shared/data"

Sources = Sequence[Document | Window]
Kind = Callable[[random.Random], Iterator[Sources]]
"""Makes what one prompt after the other shows, without end."""

WINDOW = 3000  # characters of a long page that a prompt shows
LONG = "100 kB, and windows of it"

_EVERYWHERE = [(plane << 16, (plane << 16) + 0xFFFD) for plane in range(17)] + [(0x20, 0x7E)] * 5
_EMOJI = [(0x1F300, 0x1FAFF), (0x200D, 0x200D), (0xFE0F, 0xFE0F), (0x1F1E6, 0x1F1FF)]
_CONTROL = [(0, 0x1F), (0x7F, 0x9F), (0x41, 0x5A)]


def made_up() -> dict[str, Kind]:
    """Kinds of pages that need no data."""
    kinds = {
        "Unicode of all planes": _characters(_EVERYWHERE),
        "emoji": _characters(_EMOJI),
        "control characters": _characters(_CONTROL),
        "reserved marks, white space": lambda rng: hostile_documents(rng, 80),
    }
    return {name: _without_end(make) for name, make in kinds.items()}


def real(data: pathlib.Path, cache: pathlib.Path) -> dict[str, Kind]:
    """Kinds of pages from the folder of real data; none where there is no such folder.

    Args:
      data: the folder.
      cache: where the text of web pages and PDFs is kept, as reading them takes a minute.
    """
    if not data.exists():
        return {}
    paragraphs, sections = _paragraphs(data), _sections(data)
    web = _extracted(cache / "web_pages.jsonl", lambda: _web_pages(data))
    pdf = _extracted(cache / "pdf_pages.jsonl", lambda: _pdf_pages(data))
    kinds: dict[str, Callable[[random.Random], Sources]] = {
        "Wikipedia paragraphs": lambda rng: rng.sample(paragraphs, rng.randint(1, 4)),
        "textbook sections": lambda rng: [_window(rng, rng.choice(sections))],
        "web pages": lambda rng: [_window(rng, page) for page in rng.sample(web, 2)],
        "PDF": lambda rng: [_window(rng, rng.choice(pdf))],
        "pages of one title": lambda rng: [
            Document(page.id, "One title", page.text) for page in rng.sample(paragraphs, 3)
        ],
        "titles that begin others": lambda rng: [
            Document(page.id, title, page.text)
            for page, title in zip(
                rng.sample(paragraphs, 4),
                rng.sample(["", "T", "Th", "The", "The (", "The ()", "The ()%"], 4),
                strict=True,
            )
        ],
    }

    def long(rng: random.Random) -> Iterator[Sources]:
        page = _long(rng, paragraphs)
        yield [page]
        while True:
            yield [_window(rng, page)]

    return {name: _without_end(make) for name, make in kinds.items()} | {LONG: long}


def training_pages(data: pathlib.Path) -> list[Document]:
    """Pages to train vocabularies on: some 4 MB of text."""
    pages, characters = _paragraphs(data), 0
    for page in _sections(data):
        characters += len(page.text)
        if characters > 3_500_000:
            break
        pages.append(page)
    return pages


def _without_end(make: Callable[[random.Random], Sources]) -> Kind:
    def pages(rng: random.Random) -> Iterator[Sources]:
        while True:
            yield make(rng)

    return pages


def _window(rng: random.Random, page: Document) -> Window:
    """A part that begins and ends anywhere, also within a word or after half of a mark."""
    start = rng.randrange(max(1, len(page.text) - WINDOW))
    return Window(page, start, min(len(page.text), start + rng.randint(WINDOW // 10, WINDOW)))


def _characters(ranges: Sequence[tuple[int, int]]) -> Callable[[random.Random], Sources]:
    def text(rng: random.Random, count: int) -> str:
        drawn = (chr(rng.randint(*rng.choice(ranges))) for _ in range(count))
        return "".join(
            character + " " * (rng.random() < 0.2)
            for character in drawn
            if not 0xD800 <= ord(character) < 0xE000
        )

    return lambda rng: [
        Document(str(place), text(rng, 5), text(rng, rng.randint(5, 300)))
        for place in range(rng.randint(1, 3))
    ]


def _paragraphs(data: pathlib.Path) -> list[Document]:
    """Wikipedia paragraphs; those of an article share its title."""
    with gzip.open(data / "squad/wikipedia.json.gz") as file:
        articles = json.load(file)["data"]
    return [
        Document(f"{article['title']}/{number}", article["title"], paragraph["context"])
        for article in articles
        for number, paragraph in enumerate(article["paragraphs"])
    ]


def _sections(data: pathlib.Path) -> list[Document]:
    found = []
    for path in sorted((data / "text").glob("openstax_*.jsonl.gz"))[:3]:
        with gzip.open(path, "rt") as lines:
            for number, record in enumerate(map(json.loads, lines)):
                found.append(Document(f"{path.name}/{number}", record["title"], record["text"]))
    return [page for page in found if len(page.text) > 100]


def _long(rng: random.Random, pages: Sequence[Document]) -> Document:
    text = "\n\n".join(page.text for page in rng.sample(list(pages), 400))
    return Document("long", "A long page", text.encode()[:100_000].decode(errors="ignore"))


def _web_pages(data: pathlib.Path) -> list[Document]:
    pages = []
    for name in ("articles", "readability"):
        with gzip.open(data / f"html/{name}.jsonl.gz", "rt") as lines:
            for record in map(json.loads, lines):
                for mode in ("article", "full"):
                    read = page_text(record["html"].encode(), "text/html; charset=utf-8", mode=mode)
                    pages.append(Document(record["id"], read.title, read.text))
    return pages


def _pdf_pages(data: pathlib.Path) -> list[Document]:
    pages = []
    for path in sorted((data / "pdf").glob("*.pdf")):
        try:
            read = page_text(path.read_bytes(), "application/pdf", budget=Budget(pages=5))
        except TextError:
            continue  # some are damaged
        pages.append(Document(path.name, read.title or path.stem, read.text))
    return pages


def _extracted(path: pathlib.Path, read: Callable[[], list[Document]]) -> list[Document]:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps([page.id, page.title, page.text]) for page in read()]
        path.write_text("\n".join(lines), "utf-8")
    pages = [Document(*json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return [page for page in pages if len(page.text) > 20]

"""Damaged and hostile pages through the extractor: none may crash or hang the caller.

    python benchmarks/fuzz_pages.py [--pages 2000] [--seed 0] [--kinds html,pdf]

Real HTML pages (full text, and the article of every fifth) and real PDFs with random damage: bytes
changed, parts cut out, repeated up to a thousand times, moved, mixed with another page, or the end
missing. Prints how many gave text, were refused by the parser, cost more than 10 s, or ended the
worker.
"""

import argparse
import collections
import gzip
import json
import pathlib
import random
import sys
import time

from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite.documents import Document  # noqa: E402
from gophercite.extraction.extractor import Extractor  # noqa: E402
from gophercite.extraction.text import Budget, TextError  # noqa: E402

LARGEST = 400_000  # bytes of a page before the damage


def damaged(page: bytes, other: bytes, generator: random.Random) -> bytes:
    content = bytearray(page)
    for _ in range(generator.choice((1, 3, 30))):
        start = generator.randrange(len(content) + 1)
        end = min(len(content), start + generator.choice((1, 8, 200, 5000)))
        part = bytes(content[start:end])
        match generator.randrange(6):
            case 0:
                content[start:end] = generator.randbytes(end - start)
            case 1:
                del content[start:end]
            case 2:
                content[start:start] = part * generator.choice(
                    (1, 10, 1000 if len(part) < 300 else 1)
                )
            case 3:
                at = generator.randrange(len(content) + 1)
                content[at:at] = part
            case 4:
                at = generator.randrange(len(other) + 1)
                content[start:end] = other[at : at + 5000]
            case 5 if generator.random() < 0.2:
                del content[start:]
    return bytes(content)


def fuzz(pages: list[bytes], media: str, count: int, seed: int) -> dict[str, object]:
    generator = random.Random(seed)
    outcomes: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    budget = Budget(seconds=10, memory_bytes=2 << 30)
    with Extractor("full", budget) as full, Extractor("article", budget) as article:
        for number in range(count):
            content = damaged(generator.choice(pages), generator.choice(pages), generator)
            extractor = article if number % 5 == 0 and media == "text/html" else full
            start = time.monotonic()
            try:
                page = extractor.page_text(content, media)
                document = Document("x", page.title, page.text)
                assert Document("x", document.title, document.text).sha256 == document.sha256
                outcomes["text" if page.text else "no text"] += 1
            except TextError as error:
                outcomes[str(error).partition(":")[0]] += 1
            slowest = max(slowest, time.monotonic() - start)
    return {"media": media, "pages": count, **outcomes, "slowest_s": round(slowest, 1)}


def html_pages(data: pathlib.Path) -> list[bytes]:
    pages = []
    for name in ("articles", "readability"):
        with gzip.open(data / f"html/{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            pages += [json.loads(line)["html"].encode() for line in lines]
    return pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser)
    parser.add_argument("--pages", type=int, default=2000, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="html,pdf", help="which pages (default %(default)s)")
    options = parser.parse_args()
    for kind in options.kinds.split(","):
        if kind == "html":
            pages, media = html_pages(options.data), "text/html"
        else:
            paths = sorted((options.data / "pdf").glob("*.pdf"))
            pages, media = [path.read_bytes() for path in paths], "application/pdf"
        pages = [page for page in pages if len(page) <= LARGEST]
        print(json.dumps(fuzz(pages, media, options.pages, options.seed)), flush=True)


if __name__ == "__main__":
    main()

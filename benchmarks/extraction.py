"""How well the text of web pages is found: F1 of words against gold texts, and pages that fail.

    python benchmarks/extraction.py [--data DATA/html]

`articles.jsonl.gz` holds pages with the text of their article, marked by people (`html`, `text`).
Of `readability.jsonl.gz` every page must give some text without an error. F1 counts shingles of
four words with their repetitions, and is the mean over pages; recall of `full` says whether what
people call the article can be quoted at all.
"""

import argparse
import collections
import gzip
import json
import pathlib
import re
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite.extraction.extractor import Extractor  # noqa: E402
from gophercite.extraction.text import Mode, TextError  # noqa: E402

SHINGLE = 4  # words; what the benchmark that these pages are from compares


def shingles(text: str) -> collections.Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text)
    width = min(SHINGLE, max(1, len(words)))
    return collections.Counter(zip(*(words[i:] for i in range(width)), strict=False))


def scores(found: str, gold: str) -> tuple[float, float, float]:
    """Precision, recall and F1 of one page."""
    have, want = shingles(found), shingles(gold)
    common = (have & want).total()
    precision, recall = common / max(1, have.total()), common / max(1, want.total())
    return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)


def records(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def measure(data: pathlib.Path, mode: Mode) -> dict[str, float]:
    with Extractor(mode) as extractor:
        extractor.page_text(b"<p>The parsers are loaded now.", "text/html")
        start, size, rows = time.perf_counter(), 0, []
        for record in records(data / "articles.jsonl.gz"):
            page = record["html"].encode()
            size += len(page)
            text = extractor.page_text(page, "text/html; charset=utf-8").text
            rows.append(scores(text, record["text"]))
        seconds = time.perf_counter() - start
        empty = failed = 0
        for record in records(data / "readability.jsonl.gz"):
            try:
                page = record["html"].encode()
                empty += not extractor.page_text(page, "text/html; charset=utf-8").text
            except TextError as error:
                failed += 1
                print(f"{record['id']}: {error}", file=sys.stderr)
    precision, recall, f1 = (statistics.mean(column) for column in zip(*rows, strict=True))
    return {
        "pages": len(rows),
        "precision": round(precision, 3),
        "recall": round(recall, 3),
        "f1": round(f1, 3),
        "ms_a_page": round(1000 * seconds / len(rows), 1),
        "mb_a_second": round(size / seconds / 1e6, 2),
        "tricky_pages_failed": failed,
        "tricky_pages_empty": empty,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser, "html")
    options = parser.parse_args()
    for mode in ("article", "full"):
        print(json.dumps({"mode": mode, **measure(options.data, mode)}))


if __name__ == "__main__":
    main()

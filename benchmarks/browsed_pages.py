"""What of web pages reaches the text browser: gold article text, and the links in it.

    python benchmarks/browsed_pages.py [--data DATA/html]

Of the pages of `articles.jsonl.gz` (`html`, `text` as marked by people): precision, recall and F1
of shingles of four words (as `benchmarks/extraction.py`, means over pages) of the article mode of
`ask` and of the browser's two modes, and the share of the links in the gold text that the browser
keeps: a link counts when its text has a letter and the line that it stands in is of the gold text.
Marks of images and scripts do not count as text.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys
import time

from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from extraction import records, scores  # noqa: E402

from gophercite.extraction import browser_html, html_lines, html_text  # noqa: E402

PICTURE = re.compile(r"\[Image(?:: [^\]\n]{0,500})?\]")


def gold_links(page: str, gold: str) -> list[tuple[str, str]]:
    """Text and address of each link that stands in the gold text."""
    tree = html_text.parse(page)
    if tree is None:
        return []
    squeezed = re.sub(r"\W+", " ", gold)
    found = []
    for line in html_lines.lines_of(tree, for_browser=True):
        said = re.sub(r"\W+", " ", PICTURE.sub("", line.text)).strip()
        if len(said.split()) < 4 or said not in squeezed:
            continue
        for start, end, address in line.links:
            if re.search(r"\w", line.text[start:end]):
                found.append((line.text[start:end], address))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser, "html")
    options = parser.parse_args()
    pages = list(records(options.data / "articles.jsonl.gz"))
    modes = {
        "article": lambda page: (html_text.article(page).text, ()),
        "browser": lambda page: browser_html.read(page)[1:3],
        "browser-full": lambda page: browser_html.read(page, whole=True)[1:3],
    }
    html_text.article(pages[0]["html"])  # the parsers are loaded now
    for mode, read in modes.items():
        rows, kept, wanted = [], 0, 0
        start = time.perf_counter()
        read_pages = [read(page["html"]) for page in pages]
        seconds = time.perf_counter() - start
        for page, (text, links) in zip(pages, read_pages, strict=True):
            rows.append(scores(PICTURE.sub(" ", text), page["text"]))
            want = gold_links(page["html"], page["text"])
            have = {(text[start:end], address) for start, end, address in links}
            kept += sum(link in have for link in want)
            wanted += len(want)
        precision, recall, f1 = (statistics.mean(column) for column in zip(*rows, strict=True))
        result = {
            "mode": mode,
            "pages": len(rows),
            "precision": round(precision, 3),
            "recall": round(recall, 3),
            "f1": round(f1, 3),
            "gold_links": wanted,
            "links_kept": round(kept / max(1, wanted), 3),
            "ms_a_page": round(1000 * seconds / len(rows), 1),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

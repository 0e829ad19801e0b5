"""Random and hostile snippets, windows and JSON lines: none may crash, hang or break a promise.

    python benchmarks/fuzz_text.py [--cases 100000] [--seed 0]

Four in ten cases are snippets sought in a page, three windows of a page (tokenised anew and held),
three lines of records of every kind. Texts are put together from words, markup, the reserved marks,
characters of all of Unicode and long repetitions; lines are true records that were damaged. Prints
how many of each gave what, and how long the slowest took.
"""

import argparse
import collections
import copy
import json
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from gophercite import records
from gophercite.documents import Document
from gophercite.retrieval.snippets import find_snippet
from gophercite.retrieval.tokenised_pages import TokenisedPage
from gophercite.retrieval.windows import inference_window, training_window
from gophercite.vocabularies import Vocabulary, train_sentencepiece

PROSE = "The mill of Ormsby was built in 1812. It burned! Dr. Fenwick (engineer) said: why?"
WORDS = PROSE.split()
HOSTILE = [
    "<b>", "</b>", "<script>", "&lt;", "&#x1F;", "&amp;amp;", "…", "...", ". . .", "%<", ">%(",
    ")%[", "]%", "[...]", "\0", "\ud800", "\u202e", "\u200b", "\u2028", "\u2581", "e\u0301", "\r\n",
    "\t", "\n\n\n", "水車小屋", "🏚\ufe0f", "Mar 3, 2019 — ", "2019-03-03: ", "(((((", "\\u0000",
]  # fmt: skip
JUNK = [None, True, -1, 1e308, 10**30, "", "x", [], {}, [None], {"id": 1}, "\ud800", "NaN"]
KINDS = (records.Document, records.Question, records.RatedAnswer, records.Comparison)


def text(draw: random.Random, most: int) -> str:
    """A text of parts of every kind, some repeated."""
    parts = []
    for _ in range(draw.randrange(most)):
        match draw.randrange(12):
            case 0:
                part = draw.choice(HOSTILE)
            case 1:
                part = chr(draw.randrange(0x110000))
            case 2 if draw.random() < 0.1:
                part = draw.choice([*HOSTILE, *WORDS, "a", " "]) * draw.randrange(1, 300)
            case _:
                part = draw.choice(WORDS)
        parts.append(part)
    return draw.choice((" ", " ", "", "\n", "  ")).join(parts)


def page(draw: random.Random) -> Document:
    return Document("d", text(draw, 4), text(draw, draw.choice((3, 40, 400))))


def fuzz_snippet(draw: random.Random) -> str:
    """A snippet of a page, or of something else, decorated and damaged."""
    document = page(draw)
    start = draw.randrange(len(document.text) + 1)
    snippet = document.text[start : start + draw.choice((5, 60, 200, 3000))]
    if draw.random() < 0.6:
        cut = draw.randrange(len(snippet) + 1)
        snippet = snippet[:cut] + text(draw, 5) + snippet[cut + draw.randrange(9) :]
    match = find_snippet(snippet, document.text)
    if match is None:
        return "not found"
    assert 0.75 <= match.ratio <= 1
    for first, last in (*match.spans, *match.hulls()):
        assert 0 <= first < last <= len(document.text)
    return "found"


def fuzz_window(draw: random.Random, vocabulary: Vocabulary) -> str:
    """Windows around a place of a page: in it, around it, within the budget."""
    document = page(draw)
    start = draw.randrange(len(document.text) + 1)
    end = min(len(document.text), start + draw.choice((0, 5, 200)))
    budget, seed = draw.choice((0, 1, 7, 60, 700)), draw.getrandbits(32)
    held = TokenisedPage(document, vocabulary)
    outcomes = set()
    for window in (
        inference_window(document, (start, end), budget, vocabulary),
        training_window(document, (start, end), budget, vocabulary, random.Random(seed)),
        held.training_window((start, end), budget, random.Random(seed)),
    ):
        if window is None:
            assert budget == 0 or len(vocabulary.encode(document.text[start:end])) > budget
        else:
            assert window.start <= start <= end <= window.end
            assert len(vocabulary.encode(window.text)) <= budget
        outcomes.add("no room" if window is None else "a window")
    (outcome,) = outcomes
    return outcome


def record(draw: random.Random) -> tuple[type[records.Record], object]:
    """A kind of record and one as JSON, damaged or not."""
    document = {"id": "d", "title": "Mill", "text": "Built in 1812. " + text(draw, 6)}
    triple = {"claim": "In 1812.", "title": "Mill", "quote": "Built in 1812."}
    question = {"id": "q", "question": text(draw, 5) or "?", "source": "s", "documents": [document]}
    kind, value = draw.choice(
        (
            (records.Document, document),
            (
                records.Question,
                question
                | {"answers": ["1812"], "evidence": [{"document": "d", "start": 0, "end": 9}]},
            ),
            (
                records.RatedAnswer,
                {"question_id": "q", "question": "?", "documents": [document], "document": "d"}
                | triple,
            ),
            (
                records.Comparison,
                {"id": "c", "question": "?", "source": "s", "responses": [[triple], "text"]}
                | {"preferred": draw.choice((0, 0.5, 1, None, 2, True))},
            ),
        )
    )
    for _ in range(draw.choice((0, 1, 3))):
        damage(value, draw)
    return draw.choice(KINDS) if draw.random() < 0.1 else kind, value


def damage(value: object, draw: random.Random) -> None:
    """Changes one field, somewhere within."""
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]  # type: ignore[index, call-overload]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.5:
            value = inner
            continue
        if draw.random() < 0.3:
            del value[key]  # type: ignore[arg-type]
        else:
            value[key] = copy.deepcopy(draw.choice([*JUNK, text(draw, 4)]))  # type: ignore[index, call-overload]
        return


def fuzz_line(draw: random.Random) -> str:
    """A file of a line: its record, or an error that names the line; never anything else."""
    kind, value = record(draw)
    line = json.dumps(value, ensure_ascii=draw.random() < 0.5)
    content = line.encode("utf-8", "surrogatepass")
    if draw.random() < 0.3:
        at = draw.randrange(len(content) + 1)
        content = (
            content[:at] + draw.randbytes(draw.randrange(4)) + content[at + draw.randrange(9) :]
        )
    if draw.random() < 0.02:
        content = draw.choice((b"[", b'{"a":', b"1")) * 50_000
    report = records.Report()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(content)
        file.flush()
        found = list(records.read(file.name, kind, report=report))
        for one in found:
            assert records.from_json(records.to_json(one), type(one)) == one
        assert all(file.name in str(error) for error in report.errors)
    return "a record" if found else "refused" if report.errors else "empty"


def fuzz(cases: int, seed: int) -> dict[str, dict[str, float]]:
    """Runs so many cases; a broken promise raises, with the case's number."""
    vocabulary = train_sentencepiece([*WORDS, *HOSTILE[:12], PROSE] * 4, 320, "bpe")
    kinds: list[tuple[str, int, Callable[[random.Random], str]]] = [
        ("snippets", 4, fuzz_snippet),
        ("windows", 3, lambda draw: fuzz_window(draw, vocabulary)),
        ("lines", 3, fuzz_line),
    ]
    results: dict[str, dict[str, float]] = {}
    for name, share, once in kinds:
        outcomes: collections.Counter[str] = collections.Counter()
        slowest = 0.0
        for number in range(cases * share // 10):
            begun = time.process_time()
            try:
                outcomes[once(random.Random(f"{seed}/{name}/{number}"))] += 1
            except Exception as error:
                error.add_note(f"{name}, seed {seed}, case {number}")
                raise
            slowest = max(slowest, time.process_time() - begun)
        results[name] = {**outcomes, "slowest_ms": round(1000 * slowest, 1)}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, counts in fuzz(options.cases, options.seed).items():
        print(json.dumps({"kind": name, **counts}))


if __name__ == "__main__":
    main()

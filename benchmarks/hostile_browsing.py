"""Hostile pages and hostile commands through the text browser: nothing may crash, hang or be lost.

    python benchmarks/hostile_browsing.py [--cases 100000] [--seed 0] [--bombs]

A case is a page or a text that is issued. Pages are made of broken HTML, of all planes of Unicode,
right-to-left text, the environment's own marks, link loops, nested tables, long words and gigantic
attributes; commands are random, truncated, adversarial or right. After each step it is checked that
the log says why an invalid action was ignored and that nothing else changed by it, that the prompt
can be built and has its fields once, that each reference is its page's text; after each episode,
that it was replayed and read back from JSON to the same bytes. `--bombs` also sends large pages and
PDFs through the process that reads strangers' pages. Prints counts and the slowest case.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import random
import sys
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite.browser.browsed_answers import answer_of  # noqa: E402
from gophercite.browser.environment import replay, reset, step  # noqa: E402
from gophercite.browser.observation import TokenBudget, prompt  # noqa: E402
from gophercite.browser.page_lines import page_from_json, page_to_json  # noqa: E402
from gophercite.browser.pages import Page, error_page  # noqa: E402
from gophercite.browser.read_pages import page_of_text  # noqa: E402
from gophercite.browser.settings import Settings  # noqa: E402
from gophercite.browser.state import State, dumps, loads  # noqa: E402
from gophercite.documents import normalise_text  # noqa: E402
from gophercite.extraction.extractor import Extractor  # noqa: E402
from gophercite.extraction.text import Budget, TextError, page_text  # noqa: E402
from gophercite.retrieval.engine import Hit, SearchError  # noqa: E402

WORDS = [
    "the",
    "Lighthouse",
    "straße",
    "é",
    "e\u0301",
    "מגדל",
    "منارة",
    "灯台",
    "👩‍🚀",
    "ﬁ",
    "İ",
    "ǆ",
]
MARKS = "【】†━■♦♦Question\n♦Next action"
TAGS = [
    *("a", "b", "i", "p", "div", "span", "table", "tr", "td", "th", "ul", "ol", "li", "dl", "dd"),
    *("h1", "h6", "pre", "br", "hr", "sup", "sub", "img", "math", "mfrac", "mi", "script", "style"),
    *("nav", "aside", "form", "blockquote", "figure", "figcaption", "base", "title", "body"),
    *("html", "svg", "template"),
]
COMMANDS = (
    "Search {}",
    "Clicked on link {}",
    "Find in page: {}",
    "Quote: {}",
    "Quote: {}━{}",
    "Scrolled down {}",
    "Scrolled up {}",
    "Top",
    "Back",
    "End: {}",
)


def characters(generator: random.Random, length: int) -> str:
    """Text of any planes, surrogates and controls among them."""
    kind = generator.randrange(5)
    if kind == 0:
        return "".join(chr(generator.randrange(0x110000)) for _ in range(length))
    if kind == 1:
        return "".join(
            generator.choice("\u202e\u200f\u2067\u0301\u200d\ufeff\x00\x1b\r\n ")
            for _ in range(length)
        )
    if kind == 2:
        return "".join(generator.choice(MARKS) for _ in range(length))
    return " ".join(generator.choice(WORDS) for _ in range(length))


def address(generator: random.Random, pages: int) -> str:
    page = f"/{generator.randrange(pages)}"
    return generator.choice(
        [
            page,
            page,
            page + "#i3",
            "#i1",
            f"http://other.example{page}",
            "https://www.reddit.com/x",
            "//[",
            "javascript:x",
            "mailto:a",
            "http://",
            "x" * 5000,
            characters(generator, 5),
            "?q#",
        ]
    )


def html(generator: random.Random, pages: int) -> str:
    parts = [f"<title>{characters(generator, 4)}</title>"]
    for _ in range(generator.choice((3, 30, 150))):
        tag = generator.choice(TAGS)
        match generator.randrange(8):
            case 0 | 1:
                parts.append(f"<{tag}>")
            case 2:
                parts.append(f"</{tag}>")
            case 3:
                parts.append(f"<a href='{address(generator, pages)}' id=i{generator.randrange(5)}>")
            case 4:
                parts.append(f"<img alt='{characters(generator, generator.choice((0, 3, 900)))}'")
                parts.append(generator.choice([">", "", "width=1>"]))
            case 5:
                parts.append(f"<{tag} class='{'x ' * generator.choice((1, 3000))}' style=")
                parts.append(generator.choice(["'display:none'>", ">", "'"]))
            case _:
                parts.append(characters(generator, generator.choice((1, 5, 60))))
    if generator.random() < 0.02:
        parts.append(
            generator.choice(["<table><tr><td>", "<div>", "<a href=/1>x", "ab" * 50]) * 3000
        )
    return "".join(parts)


class HostileWorld:
    """Pages that lead to one another, and an engine that finds whatever is there, or fails."""

    name = "hostile"

    def __init__(self, generator: random.Random, pages: int, seconds: list[float]) -> None:
        self.pages: dict[str, Page] = {}
        for number in range(pages):
            url = f"http://a.example/{number}"
            mode = "browser" if generator.random() < 0.1 else "browser-full"
            text = None
            while text is None:  # some begin like binary files, and are refused as such
                content = html(generator, pages).encode("utf-8", errors="surrogatepass")
                start = time.perf_counter()
                with contextlib.suppress(TextError):
                    text = page_text(content, "text/html; charset=utf-8", mode=mode)
                seconds.append(time.perf_counter() - start)
            page = page_of_text(url, text, None)
            assert page.document.text == text.text
            read = page_from_json(json.loads(json.dumps(page_to_json(page))))
            assert (read.document, read.links) == (page.document, page.links)
            self.pages[url] = page
        self.hits = [
            Hit(
                generator.choice([*self.pages, "http://reddit.com/", "", "//["]),
                characters(generator, 3),
                text,
            )
            for text in (characters(generator, 9) for _ in range(12))
        ]

    def search(self, query: str, k: int) -> list[Hit]:
        if "fail" in query:
            raise SearchError(query)
        return self.hits[:k]

    def open(self, url: str) -> Page:
        return self.pages.get(url) or error_page(url, "there is no such page")


def command(generator: random.Random, state: State) -> str:
    text = state.view.text or "nothing"
    start = generator.randrange(len(text))
    seen = text[start : start + generator.choice((1, 8, 60))]
    given = [str(generator.randrange(12)), seen, seen, "fail", characters(generator, 4)]
    given += ["Answer", "Nonsense", "1", "2", "3", "9" * 30, ""]
    form = generator.choice(COMMANDS)
    if generator.random() < 0.5:  # something that makes sense here, so that episodes get on
        if state.place is None:
            return "Search lighthouse"
        if state.place.kind == "search":
            return f"Clicked on link {generator.randrange(8)}"
        return generator.choice([f"Quote: {seen}", "Back", f"Find in page: {seen}", "End: Answer"])
    issued = form.format(*(generator.choice(given) for _ in range(form.count("{}"))))
    match generator.randrange(12):
        case 0:
            return issued[: generator.randrange(len(issued) + 1)]
        case 1:
            return characters(generator, generator.choice((1, 20, 400)))
        case 2:
            return generator.choice(["\n", " ", "♦", "\ud800"]) + issued
        case 3 if generator.random() < 0.1:
            return issued * 3000
    return issued


def checked_step(world: HostileWorld, state: State, text: str) -> State:
    taken = step(world, state, text)
    after = taken.state
    if state.phase == "browsing":
        action = after.actions[-1]
        assert len(after.actions) == len(state.actions) + 1
        assert taken.invalid == action.invalid
        if action.invalid is not None:
            assert action.invalid
            assert action.past is None
            same = (after.place, after.view, after.history, after.references)
            assert same == (state.place, state.view, state.history, state.references)
    for reference in after.references[len(state.references) :]:
        document = world.pages[reference.url].document
        assert document.text[reference.start : reference.end] == reference.extract
        assert (document.sha256, document.id) == (reference.sha256, reference.document)
    if not after.done:
        shown = prompt(after)
        if after.phase == "browsing":
            assert shown.count("♦") == 8, "a mark of a page's own is shown"
        else:
            assert shown.count("■") == 1 + len(after.references)
        assert len(prompt(after, TokenBudget(2000, len))) <= 2000
    return after


def episode(
    world: HostileWorld, generator: random.Random, outcomes: collections.Counter[str]
) -> float:
    settings = Settings(
        actions=generator.choice((1, 12, 40)),
        reference_characters=generator.choice((30, 4000)),
        blocked=generator.choice((("reddit.com",), ("a.example",), ())),
        absent_text_is_invalid=generator.random() < 0.5,
    )
    answer = generator.choice([None, characters(generator, 20)])
    start = state = reset(characters(generator, 12), settings, reference_answer=answer)
    slowest = 0.0
    while not state.done:
        text = command(generator, state)
        begun = time.perf_counter()
        state = checked_step(world, state, text)
        slowest = max(slowest, time.perf_counter() - begun)
        kind = "answer" if state.answer is not None else None
        if kind is None:
            kind = "invalid action" if state.actions[-1].invalid else "action"
        outcomes[kind] += 1
    assert dumps(replay(world, start, state.texts)) == dumps(state)
    assert loads(dumps(state)) == state
    answer_of(state, "nobody")
    outcomes[f"ended by {state.end}"] += 1
    return slowest


def fuzz(cases: int, seed: int, pages_of_a_world: int = 6) -> dict[str, object]:
    """Runs at least so many cases; any broken promise raises AssertionError."""
    outcomes: collections.Counter[str] = collections.Counter()
    page_seconds: list[float] = []
    slowest = 0.0
    number = 0
    while outcomes["page"] + outcomes["action"] + outcomes["invalid action"] < cases:
        generator = random.Random(f"{seed}:{number}")
        world = HostileWorld(generator, pages_of_a_world, page_seconds)
        outcomes["page"] += pages_of_a_world
        try:
            for _ in range(5):
                slowest = max(slowest, episode(world, generator, outcomes))
        except Exception:
            print(f"seed {seed}, world {number}", file=sys.stderr)
            raise
        number += 1
    return {
        **outcomes,
        "slowest_page_s": round(max(page_seconds), 3),
        "slowest_step_s": round(slowest, 3),
    }


def bombs() -> dict[str, str]:
    """What becomes of large pages in the process that reads strangers' pages."""
    stream = zlib.compress(b"BT /F 12 Tf 50 700 Td (x) Tj ET\n" * 20_000_000)
    pdf = (
        b"%%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
        b"2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n"
        b"3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>\nendobj\n"
        b"4 0 obj\n<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream\nendobj\n"
        b"trailer\n<< /Root 1 0 R /Size 5 >>\n%%%%EOF\n"
    ) % (len(stream), stream)
    pages = {
        "100,000 links": b"<p>" + b"<a href=/x>some words</a> " * 100_000,
        "nested tables": b"<table><tr><td>" * 200_000,
        "an attribute of 20 MB": b"<a href='" + b"x" * 20_000_000 + b"'>y</a>",
        "100,000 anchors": b"".join(b"<p id=i%d>" % number for number in range(100_000)),
        "an unclosed comment of 10 MB": b"<p>a<!--" + b"-" * 10_000_000,
        "10 MB of one word": b"<p>" + b"x" * 10_000_000,
        "5 MB of combining marks": b"<p>e" + "\u0301".encode() * 2_500_000,
        "10 MB of entities": b"<p>" + b"&amp;" * 2_000_000,
        "100,000 beginnings of images": b"<p>" + b"[Image: " * 100_000,
        "a PDF bomb": pdf,
    }
    found = {}
    with Extractor("browser", Budget(seconds=20, memory_bytes=2 << 30)) as extractor:
        for name, content in pages.items():
            begun = time.perf_counter()
            media = "application/pdf" if "PDF" in name else "text/html"
            try:
                text = extractor.page_text(content, media)
                page = page_of_text("http://a.example/", text, None)
                shown = page.shown(Settings())
                became = f"{len(shown.text)} characters, {len(shown.links)} links"
                assert normalise_text(page.document.text) == page.document.text
            except TextError as error:
                became = f"refused: {error}"
            found[name] = f"{became}, {time.perf_counter() - begun:.1f} s"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bombs", action="store_true")
    options = parser.parse_args()
    begun = time.perf_counter()
    result = fuzz(options.cases, options.seed)
    seconds = round(time.perf_counter() - begun, 1)
    print(json.dumps({**result, "seconds": seconds}, indent=2), flush=True)
    if options.bombs:
        print(json.dumps(bombs(), indent=2))


if __name__ == "__main__":
    main()

"""How quick the text browser is: steps a second, and the time that a page of 1 MB takes.

    python benchmarks/browser.py [--data DATA/html] [--seconds 10]

Steps: the 92 real pages of `articles.jsonl.gz` as a recorded world in memory; each environment
searches, opens hits, scrolls, finds, quotes what it sees and goes back, by a seeded script, and its
prompt is made after each step. One environment, then 256 side by side, each step of all before the
next, on one core. Pages: real ones joined to 1 MB of HTML, read in the worker process, shown, found
in, quoted from.
"""

import argparse
import json
import pathlib
import random
import sys
import time

from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from extraction import records  # noqa: E402

from gophercite.browser.document_worlds import IndexWorld  # noqa: E402
from gophercite.browser.environment import page_of, reset, step  # noqa: E402
from gophercite.browser.observation import prompt  # noqa: E402
from gophercite.browser.pages import Page  # noqa: E402
from gophercite.browser.read_pages import page_of_text  # noqa: E402
from gophercite.browser.settings import Settings  # noqa: E402
from gophercite.browser.shown import ShownPage  # noqa: E402
from gophercite.browser.state import State  # noqa: E402
from gophercite.browser.worlds import SiteWorld, World  # noqa: E402
from gophercite.extraction.extractor import Extractor  # noqa: E402
from gophercite.retrieval.index import DocumentIndex  # noqa: E402

WORDS = ["music", "game", "police", "company", "city", "season", "film", "people", "water", "money"]


def text_for(state: State, generator: random.Random) -> str:
    """What the script issues next."""
    if state.phase == "answering":
        return "It is so [1]."
    if state.place is None or generator.random() < 0.1:
        return f"Search {generator.choice(WORDS)} {generator.choice(WORDS)}"
    if state.place.kind == "search":
        return f"Clicked on link {generator.randrange(10)}"
    words = state.view.text.split()
    match generator.randrange(6):
        case 0 | 1:
            return f"Scrolled down {generator.randint(1, 3)}"
        case 2:
            return f"Find in page: {generator.choice(WORDS)}"
        case 3 if len(words) > 20:
            start = generator.randrange(len(words) - 12)
            return "Quote: " + " ".join(words[start : start + 12])
        case 4:
            return "Back"
    return "Top"


def steps(world: World, environments: int, seconds: float) -> dict[str, object]:
    """Steps a second of so many environments in turn."""
    generators = [random.Random(number) for number in range(environments)]
    rules = Settings(actions=(20, 100))
    states = [reset("Why is it so?", rules, seed=number) for number in range(environments)]
    done = invalid = episodes = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for number, state in enumerate(states):
            taken = step(world, state, text_for(state, generators[number]))
            done += 1
            invalid += taken.invalid is not None
            if taken.done:
                episodes += 1
                states[number] = reset("Why is it so?", rules, seed=episodes)
            else:
                states[number] = taken.state
                prompt(taken.state)
    rate = done / (time.perf_counter() - begun)
    return {
        "environments": environments,
        "steps_a_second": round(rate),
        "invalid_share": round(invalid / done, 3),
        "episodes": episodes,
    }


def world_of(pages: list[Page], index: DocumentIndex) -> World:
    index.add(page.document for page in pages)
    return SiteWorld("articles", pages, IndexWorld(index))


def large_page(pages: list[dict[str, str]], extractor: Extractor, size: int) -> dict[str, object]:
    """Times of a page of about so many bytes of HTML."""
    bodies = [page["html"].partition("<body")[2].partition(">")[2] for page in pages]
    html = "<title>Large</title>"
    for body in bodies * 10:
        if len(html) > size:
            break
        html += body[: size - len(html) + 100].partition("</body")[0]
    times: dict[str, object] = {"bytes": len(html.encode())}
    begun = time.perf_counter()
    text = extractor.page_text(html.encode(), "text/html; charset=utf-8")
    times["read_s"] = round(time.perf_counter() - begun, 3)
    page = page_of_text("http://a.example/", text, None)
    begun = time.perf_counter()
    shown = page.shown(Settings())
    times["shown_ms"] = round(1000 * (time.perf_counter() - begun), 1)
    for name, call in (("find", shown.matcher.find), ("quote", shown.matcher.quote)):
        for which in ("first", "next"):
            begun = time.perf_counter()
            call("no such words in it", 0)
            times[f"{which}_{name}_ms"] = round(1000 * (time.perf_counter() - begun), 2)
    return times | {"characters": len(text.text), "links": len(shown.links)}


def large_text() -> dict[str, object]:
    """Times of a million characters of text: what shows, finds and steps cost."""
    text = ("The lighthouse of Ormsby was built in 1874 by Ada Fenwick. " * 40 + "\n\n") * 430
    begun = time.perf_counter()
    shown = ShownPage(text[:1_000_000], (), "a.example", 68)
    times = {"shown_ms": round(1000 * (time.perf_counter() - begun), 1), "lines": len(shown)}
    begun = time.perf_counter()
    shown.matcher.quote("no such words", 0)
    return times | {"first_quote_ms": round(1000 * (time.perf_counter() - begun), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser, "html")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    articles = list(records(options.data / "articles.jsonl.gz"))
    with DocumentIndex(None) as index, Extractor("browser") as extractor:
        pages = []
        for number, article in enumerate(articles):
            content = article["html"].encode()
            text = extractor.page_text(content, "text/html; charset=utf-8")
            pages.append(page_of_text(f"http://site{number}.example/", text, None))
        world = world_of(pages, index)
        state = step(world, reset("Why?"), "Search music").state
        assert page_of(world, state).links, "the engine finds pages"
        for environments in (1, 256):
            print(json.dumps(steps(world, environments, options.seconds)), flush=True)
        with Extractor("browser-full") as full:
            for name, reader in (("browser", extractor), ("browser-full", full)):
                print(json.dumps({"mode": name, **large_page(articles, reader, 1_000_000)}))
        print(json.dumps({"a text of": 1_000_000, **large_text()}))


if __name__ == "__main__":
    main()

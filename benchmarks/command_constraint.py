"""What the command constraint costs: its tables, and whole steps of a browsing model.

    python benchmarks/command_constraint.py --model FOLDER

Tables are built for pages of several sizes, as an episode comes to them and as its later steps find
them kept. A step is a prompt that is read and a command that is drawn: it stands beside the same
model's step without the constraint, for as many tokens, turn by turn in one run.
"""

import argparse
import functools
import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.constrained import paired
from benchmarks.public_data import DATA
from gophercite.browser.encoding import encode_state
from gophercite.browser.environment import page_of, replay, reset
from gophercite.browser.pages import Page
from gophercite.browser.settings import Settings
from gophercite.browser.shown import Link
from gophercite.browser.state import State
from gophercite.browser.worlds import SiteWorld
from gophercite.commands.constraint import CommandConstraint, CommandSettings
from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, load_model
from gophercite.retrieval.engine import Hit
from gophercite.vocabularies import Vocabulary

ADDRESS = "http://page.example/"
ON_THE_PAGE = ("Search page", "Clicked on link 0", "Scrolled down 1")


class _OneHit:
    def search(self, query: str, k: int) -> list[Hit]:
        del query, k
        return [Hit(ADDRESS, "A page", "It is long.")]


def text_of(path: Path | None) -> str:
    """A long text: a file's, or paragraphs of Wikipedia (docs/public_data.md)."""
    if path is not None:
        return path.read_text("utf-8")
    public = DATA / "squad" / "wikipedia.json.gz"
    if not public.is_file():
        sys.exit(f"{public}: there is no such file: get it (docs/public_data.md), or give --text")
    with gzip.open(public) as file:
        articles = json.load(file)["data"]
    return "\n\n".join(each["context"] for one in articles for each in one["paragraphs"])


def on_a_page(text: str, settings: Settings) -> tuple[SiteWorld, State]:
    """A world of one page with a link every hundred words, and the state in which it is open."""
    starts = [place for place in range(0, len(text) - 20, 600) if text[place : place + 20].strip()]
    links = tuple(Link(start, start + 20, f"{ADDRESS}{start}") for start in starts)
    world = SiteWorld("one", [Page(Document(ADDRESS, "A page", text, ADDRESS), links)], _OneHit())
    return world, replay(world, reset("What is it?", settings), ON_THE_PAGE)


def measure_tables(vocabulary: Vocabulary, text: str, rounds: int) -> None:
    print("| runs | characters | nodes | edges | new page | put on the device | later steps |")
    print("|---|---|---|---|---|---|---|")
    for boundaries in ("words", "characters"):
        constraint = CommandConstraint(vocabulary, 128, CommandSettings(boundaries))
        for characters in (4_000, 16_000, 32_000):
            # Pages of their own, so that none is kept: each begins at another place.
            parts = [text[place * 997 :][:characters] for place in range(rounds + 1)]
            cases = [on_a_page(part, Settings()) for part in parts]
            pages = [(page_of(world, state), state) for world, state in cases]
            graph = constraint.graph(*pages.pop())
            jax.block_until_ready(constraint.tables([graph]))
            new, put, kept = [], [], []
            for page, state in pages:
                page.shown(state.settings)
                times = [time.perf_counter()]
                for _ in range(2):
                    graph = constraint.graph(page, state)
                    times.append(time.perf_counter())
                    jax.block_until_ready(constraint.tables([graph]))
                    times.append(time.perf_counter())
                new.append(times[1] - times[0])
                put.append(times[2] - times[1])
                kept.append(times[4] - times[2])
            sizes = f"{graph.sizes.nodes:,} | {graph.sizes.edges:,}"
            print(
                f"| {boundaries} | {characters:,} | {sizes} | {1e3 * np.median(new):.1f} ms | "
                f"{1e3 * np.median(put):.1f} ms | {1e3 * np.median(kept):.3f} ms |",
                flush=True,
            )


def bound(
    run: Callable[..., Samples], vocabulary: Vocabulary, world: SiteWorld, state: State, turns: int
) -> Callable[[], Samples]:
    """The sampler under the constraint, with so many tokens."""
    constraint = CommandConstraint(vocabulary, turns)
    quotes = constraint.tables([constraint.graph(page_of(world, state), state)])
    settings = SamplingSettings(max_tokens=turns, free_log_probs=False)
    return functools.partial(run, settings=settings, eos_id=vocabulary.eos_id, quotes=quotes)


def measure_steps(model: Model, text: str, flags: argparse.Namespace) -> None:
    world, state = on_a_page(text[:16_000], Settings())
    answering = replay(world, state, ["Quote: " + text[:40].rsplit(" ", 1)[0], "End: Answer"])
    vocabulary = model.vocabulary
    print("\n| written | rows | tokens | a step | with / without |\n|---|---|---|---|---|")
    for what, each in (("commands", state), ("answers", answering)):
        for rows in flags.rows:
            run = functools.partial(
                sample,
                model.transformer,
                model.params,
                [encode_state(vocabulary, each, flags.prompt_tokens)],
                jax.random.key(0),
                pad_id=vocabulary.pad_id,
                vocabulary_size=vocabulary.size,
                least_width=flags.prompt_tokens,
                samples_per_prompt=rows,
            )
            # No more room than the longest takes; free samples never end before it.
            turns = int(bound(run, vocabulary, world, each, flags.max_tokens)().lengths.max())
            held = bound(run, vocabulary, world, each, turns)
            longest = int(held().lengths.max())
            free = functools.partial(run, settings=SamplingSettings(max_tokens=turns), eos_id=-1)
            seconds, ratio = paired(free, held, flags.rounds)
            print(
                f"| {what} | {rows} | {longest} of {turns} | {seconds:.2f} s | {ratio:.3f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="model folder")
    parser.add_argument("--text", type=Path, help="of the page; default: paragraphs of Wikipedia")
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--skip-steps", action="store_true", help="only tables")
    parser.add_argument("--skip-tables", action="store_true", help="only steps")
    flags = parser.parse_args()
    text, model = text_of(flags.text), load_model(flags.model)
    if not flags.skip_tables:
        measure_tables(model.vocabulary, text, flags.rounds)
    if not flags.skip_steps:
        measure_steps(model, text, flags)


if __name__ == "__main__":
    main()

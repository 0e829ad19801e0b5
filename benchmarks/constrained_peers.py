"""The quote constraint beside llguidance and xgrammar, in one run: quotes of one page.

    pip install -e .
    python benchmarks/constrained_peers.py --vocabulary FOLDER --text FILE
        [--llguidance PYTHON] [--xgrammar PYTHON] [--rounds 7]

Each side is a process of its own and they take turns. A PYTHON is that of an environment which has
this package and the peer; a side without one is left out. Every turn makes what a side needs for
the page, up to its first mask, then follows runs of 48 tokens of the page, the same on all sides:
each step draws a token among those that are allowed, from random logits, and goes on with the
run's. Drawing is one compiled loop; a peer is called back from it at every step, takes the tokens
and gives the mask. Its own calls are measured apart too, without the loop, and what they take when
they follow the runs for the first time. Peers may use all cores.

Peers' grammar is the quote alone, `%regex {"substring_chars": PAGE}`, which both read; ours is the
whole answer, with claim, title and marks, and knows how many tokens are left.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from peers import Side, Turn, announce, median_ratio, serve, take_turns
from substring_matchers import LLGuidance, Matchers, XGrammar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.decoding.sampling import draw, draw_allowed, given
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.attention import MASKED
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_state import QuoteState, QuoteTables, advance, allowed, initial
from gophercite.vocabularies import Vocabulary, load_vocabulary

STEPS, BATCHES = 48, (1, 16, 64)
REPEATS = 3  # of a loop in one turn
DRAWS = SamplingSettings(max_tokens=STEPS)
LEFT = 10_000  # tokens that a sample may still have
TITLE = "A page"
NONE_YET = -1  # in place of the token before the first


class Work:
    """What all sides have: the vocabulary, the page, and runs of its tokens."""

    def __init__(self, vocabulary: str, text: str, tokens: int):
        self.vocabulary: Vocabulary = load_vocabulary(vocabulary)
        shown = Path(text).read_text(encoding="utf-8")
        self.page = self.vocabulary.decode(self.vocabulary.encode(shown)[:tokens])
        self.ids = np.asarray(self.vocabulary.encode(self.page), np.int32)
        spelled = [self.vocabulary.token_bytes(id) for id in range(self.vocabulary.size)]
        # Only we end quotes by a mark: what sides allow is compared without its tokens.
        self.compared = np.array([bool(token) and b"]" not in token for token in spelled])
        whole = [is_text(spelled[id]) for id in self.ids[:-STEPS]]
        self.starts = np.flatnonzero(whole)

    def runs(self, number: int) -> np.ndarray:
        """This turn's, [steps, rows]."""
        chosen = np.random.default_rng(number).choice(self.starts, max(BATCHES))
        return self.ids[chosen + np.arange(STEPS)[:, None]]


def is_text(spelled: bytes | None) -> bool:
    """Whether a quote can begin with a token: its bytes are whole characters."""
    try:
        return bool(spelled and spelled.decode("utf-8"))
    except UnicodeDecodeError:
        return False


# From what the loop was given, states, logits, uniforms and the tokens before: tokens.
Choose = Callable[[Any, Any, jax.Array, jax.Array, jax.Array], jax.Array]


def follow(choose: Choose, go_on: Callable[[Any, Any, jax.Array], Any]) -> Callable[..., jax.Array]:
    """A compiled loop along runs of tokens, which draws a token at each step."""

    @jax.jit
    def loop(tables: Any, state: Any, logits: jax.Array, runs: jax.Array) -> jax.Array:
        rows = runs.shape[1]

        def turn(carry: Any, at: Any) -> tuple[Any, jax.Array]:
            (state, before), (step, following) = carry, at
            uniforms = jax.random.uniform(jax.random.fold_in(jax.random.key(0), step), (rows,))
            now = logits + before[:, None].astype(jnp.float32) * 1e-6  # nothing can be hoisted
            drawn = choose(tables, state, now, uniforms, before)
            token = jnp.where(drawn < 0, drawn, following)  # nor goes on before it is drawn
            return (go_on(tables, state, token), token), drawn

        first = (state, jnp.full(rows, NONE_YET))
        return jax.lax.scan(turn, first, (jnp.arange(STEPS), runs))[1]

    return loop


def stay(tables: Any, state: Any, token: jax.Array) -> Any:
    return state


draw_freely = follow(
    lambda tables, state, logits, uniforms, before: draw(logits, uniforms, DRAWS).token, stay
)


def seconds_of(run: Callable[[], Any], times: int = 1) -> float:
    """The median of so many times."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        jax.block_until_ready(run())
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def compare(
    work: Work, rows: int, runs: np.ndarray, loop: Callable[..., Any], tables: Any, state: Any
) -> dict[str, float]:
    """Seconds of the loop and of the same without the constraint."""
    random = np.random.default_rng(rows)
    logits = jnp.asarray(random.normal(size=(rows, work.vocabulary.size)).astype(np.float32))
    along = jnp.asarray(runs[:, :rows])
    free = seconds_of(lambda: draw_freely((), (), logits, along), REPEATS)
    held = seconds_of(lambda: loop(tables, state, logits, along), REPEATS)
    return {f"free_{rows}": free, f"held_{rows}": held, f"share_{rows}": held / free}


@jax.jit
def count_allowed(
    tables: QuoteTables, state: QuoteState, runs: jax.Array, compared: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Tokens allowed at each step and row, and whether the run's is."""

    def turn(state: QuoteState, token: jax.Array) -> tuple[QuoteState, tuple[jax.Array, jax.Array]]:
        mask = allowed(tables, state, jnp.full(token.shape, LEFT))
        fits = jnp.take_along_axis(mask, token[:, None], axis=1)[:, 0]
        return advance(tables, state, token), (jnp.sum(mask & compared, axis=1), fits)

    return jax.lax.scan(turn, state, runs)[1]


def gophercite(**page: Any) -> Turn:
    work = Work(**page)
    constraint = QuoteConstraint(work.vocabulary)
    source = Document("page", TITLE, work.page)
    prefix = work.vocabulary.encode(f" %<a claim>%({TITLE})%[")

    def choose(
        tables: QuoteTables, state: QuoteState, logits: Any, uniforms: Any, before: jax.Array
    ) -> jax.Array:
        left = jnp.full(before.shape, LEFT)
        logits_of, done = given(logits), before < NONE_YET  # none is
        return draw_allowed(logits_of, uniforms, DRAWS, done, tables, state, left).token

    @jax.jit
    def begin(tables: QuoteTables, rows: jax.Array) -> QuoteState:
        def go_on(state: QuoteState, token: jax.Array) -> tuple[QuoteState, None]:
            return advance(tables, state, jnp.full_like(rows, token)), None

        return jax.lax.scan(go_on, initial(tables, rows), jnp.asarray(prefix))[0]

    @jax.jit
    def first_mask(tables: QuoteTables) -> jax.Array:
        return allowed(tables, initial(tables, jnp.zeros(1, jnp.int32)), jnp.full(1, LEFT))

    loop = follow(choose, advance)
    announce(f"jax {jax.__version__}")

    def turn(number: int) -> dict[str, float]:
        begun = time.perf_counter()
        tables = constraint.tables([constraint.graph([source])], LEFT)
        jax.block_until_ready(first_mask(tables))
        found = {"build": time.perf_counter() - begun}
        runs = work.runs(number)
        for rows in BATCHES:
            state = begin(tables, jnp.zeros(rows, jnp.int32))
            found |= compare(work, rows, runs, loop, tables, state)
        counts, fits = count_allowed(tables, state, jnp.asarray(runs), jnp.asarray(work.compared))
        assert bool(jnp.all(fits)), "a run of the page is not allowed"
        return found | {"allowed": float(jnp.mean(counts))}

    return turn


def draw_with_callback(matchers: Matchers, rows: int, size: int) -> Callable[..., jax.Array]:
    """A compiled loop that asks the host for the mask at every step."""
    words = jax.ShapeDtypeStruct((rows, -(-size // 32)), jnp.int32)

    def masks(before: jax.Array) -> np.ndarray:
        tokens = np.asarray(before).tolist()
        if tokens[0] == NONE_YET:
            matchers.begin(rows)
        else:
            matchers.advance(tokens)
        return matchers.masks().copy()

    def choose(tables: Any, state: Any, logits: Any, uniforms: Any, before: Any) -> jax.Array:
        bits = io_callback(masks, words, before, ordered=True)
        mask = (bits[:, :, None] >> jnp.arange(32) & 1).astype(bool).reshape(rows, -1)[:, :size]
        return draw(jnp.where(mask, logits, MASKED), uniforms, DRAWS).token

    return follow(choose, stay)


def call_alone(matchers: Matchers, runs: np.ndarray, compared: np.ndarray | None = None) -> float:
    """Follows the runs without a loop on the device; the mean of what is allowed at a step."""
    matchers.begin(runs.shape[1])
    counts = []
    for tokens in runs.tolist():
        masks = matchers.masks()
        if compared is not None:
            bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
            counts.append(np.sum(bits[:, : len(compared)] & compared) / len(tokens))
        matchers.advance(tokens)
    return float(np.mean(counts)) if counts else 0.0


def peer(kind: Callable[[Vocabulary, str], Matchers], package: str, **page: Any) -> Turn:
    from importlib.metadata import version

    work = Work(**page)
    matchers = kind(work.vocabulary, work.page)
    loops = {rows: draw_with_callback(matchers, rows, work.vocabulary.size) for rows in BATCHES}
    announce(f"{package} {version(package)}, jax {jax.__version__}")

    def turn(number: int) -> dict[str, float]:
        found = {"build": seconds_of(matchers.build)}
        runs = work.runs(number)

        def seconds_alone(rows: int, times: int) -> float:
            return seconds_of(lambda: call_alone(matchers, runs[:, :rows]), times)

        # Peers may make states when they are first met: apart, so that loops are at their best.
        found["first"] = seconds_alone(max(BATCHES), 1)
        for rows in BATCHES:
            found |= compare(work, rows, runs, loops[rows], (), ())
            found[f"alone_{rows}"] = seconds_alone(rows, REPEATS)
        return found | {"allowed": call_alone(matchers, runs, work.compared)}

    return turn


SIDES: dict[str, Callable[..., Turn]] = {
    "gophercite": gophercite,
    "llguidance": functools.partial(peer, LLGuidance, "llguidance"),
    "xgrammar": functools.partial(peer, XGrammar, "xgrammar"),
}


def print_row(what: str, name: str, sides: list[Side], scale: float, form: str = ".1f") -> None:
    """One figure of all sides: medians, and medians of their ratios to ours turn by turn."""
    cells = []
    for side in sides:
        if name not in side.turns[0]:
            cells.append("–")
            continue
        cells.append(format(scale * statistics.median(turn[name] for turn in side.turns), form))
        if side is not sides[0] and name in sides[0].turns[0]:
            cells[-1] += f" ({median_ratio(side, sides[0], name):.2f} ×)"
    print(f"| {what} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocabulary", help="a tokenizer's file or folder")
    parser.add_argument("--text", help="a file whose beginning is the page")
    parser.add_argument("--tokens", type=int, default=4096, help="of the page (default: 4096)")
    parser.add_argument("--llguidance", metavar="PYTHON")
    parser.add_argument("--xgrammar", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, default={}, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.work:
        serve(SIDES[flags.work](**flags.settings))
        return
    if not (flags.vocabulary and flags.text):
        parser.error("--vocabulary and --text are needed")
    page = {"vocabulary": flags.vocabulary, "text": flags.text, "tokens": flags.tokens}
    sides = [Side(sys.executable, __file__, "gophercite", page)]
    for name in ("llguidance", "xgrammar"):
        if python := getattr(flags, name):
            sides.append(Side(python, __file__, name, page))
    take_turns(sides, flags.rounds, warm_up=1)
    print("| | " + " | ".join(f"{side.name.split()[0]} ({side.note})" for side in sides) + " |")
    print("|---" * (len(sides) + 1) + "|")
    print_row(f"a page of {flags.tokens} tokens until its first mask, ms", "build", sides, 1e3)
    for rows in BATCHES:
        each = 1e6 / (STEPS * rows)
        print_row(f"a token inside a quote, {rows} rows, µs", f"held_{rows}", sides, each)
        print_row(f"the same drawn freely, {rows} rows, µs", f"free_{rows}", sides, each)
        print_row(f"inside a quote / freely, {rows} rows", f"share_{rows}", sides, 1, ".2f")
        print_row(f"the library's calls alone, {rows} rows, µs", f"alone_{rows}", sides, each)
    print_row(f"the same where the page is new, {rows} rows, µs", "first", sides, each)
    print_row("tokens allowed at a step, ends aside", "allowed", sides, 1, ".2f")
    print_row("peak memory of the process, GiB", "peak_gib", sides, 1, ".2f")


if __name__ == "__main__":
    main()

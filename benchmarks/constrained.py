"""What the quote constraint costs: building its tables, drawing a token, sampling whole answers.

    python benchmarks/constrained.py --model runs/quickstart
    python benchmarks/constrained.py --vocabulary FOLDER --text FILE
    python benchmarks/constrained.py --model runs/real_questions/sft \\
      --questions runs/real_questions/data/wikipedia/questions_test.jsonl --skip-drawing

Each figure stands beside the same work without the constraint, turn by turn in one run. Drawing is
measured on random logits, in loops of 48 tokens in which all rows are inside quotes, or every
fourth is in a claim. Whole answers are the model's to one question (default: of the sample world's
test), and long quotes are what fills samples whose claim is a word or two, where pages suffice.
"""

import argparse
import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.decoding import fault_tracking
from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling import draw, draw_allowed, given
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evaluation.question_prompts import encode_question, pages_of
from gophercite.model_folders.folder import Model, load_model
from gophercite.quoting.constraint import PromptGraph, QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables, advance, initial
from gophercite.records import Question, read
from gophercite.vocabularies import Vocabulary, load_vocabulary

STEPS = 48
DRAWS = SamplingSettings(max_tokens=STEPS)
# A claim of a word or two, and a quote that has no end within the sample's tokens.
LONG_QUOTES = QuoteSettings(minimum_quote=300, maximum_claim=12)
QUOTE_TOKENS = 160


def page(vocabulary: Vocabulary, text: str, tokens: int) -> Document:
    """A page of so many tokens."""
    return Document("page", "A page", vocabulary.decode(vocabulary.encode(text)[:tokens]))


def built(constraint: QuoteConstraint, source: Document, rounds: int) -> tuple[PromptGraph, float]:
    """A prompt's graph, and the milliseconds that it took at the median."""
    graph, times = constraint.graph([source]), []
    for _ in range(rounds):
        begun = time.perf_counter()
        graph = constraint.graph([source])
        times.append(time.perf_counter() - begun)
    return graph, 1e3 * statistics.median(times)


@functools.partial(jax.jit, static_argnums=3)
def draw_many(
    tables: QuoteTables, state: Any, logits: Any, constrained: bool, faults: Any = None
) -> Any:
    """Draws `STEPS` tokens a row, with and without the constraint, and while tracking faults."""
    rows = logits.shape[0]
    tables_of_faults, seen = faults or (None, None)

    def turn(carry: Any, step: Any) -> tuple[Any, Any]:
        state, seen, before = carry
        uniforms = jax.random.uniform(jax.random.fold_in(jax.random.key(0), step), (rows,))
        now = logits + before[:, None].astype(jnp.float32) * 1e-6  # nothing can be hoisted
        if constrained:
            left = jnp.full((rows,), 10_000)
            logits_of = given(now)
            token = draw_allowed(logits_of, uniforms, DRAWS, before < 0, tables, state, left).token
            state = advance(tables, state, token)
        else:
            token = draw(now, uniforms, DRAWS).token
        found = token
        if tables_of_faults is not None:
            seen = fault_tracking.advance(tables_of_faults, seen, token)
            found = token, fault_tracking.faults(tables_of_faults, seen)
        return (state, seen, token), found

    start = (state, seen, jnp.zeros(rows, jnp.int32))
    return jax.lax.scan(turn, start, jnp.arange(STEPS))[1]


def paired(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median seconds of the second, and the median of its ratios to the first, turn by turn."""
    for run in (first, second):
        jax.block_until_ready(run())
    ratios, times = [], []
    for _ in range(rounds):
        seconds = []
        for run in (first, second):
            begun = time.perf_counter()
            jax.block_until_ready(run())
            seconds.append(time.perf_counter() - begun)
        ratios.append(seconds[1] / seconds[0])
        times.append(seconds[1])
    return statistics.median(times), statistics.median(ratios)


def measure_drawing(vocabulary: Vocabulary, source: Document, rounds: int) -> None:
    # A quote that may not end keeps the rows inside it.
    constraint = QuoteConstraint(vocabulary, QuoteSettings(minimum_quote=STEPS * 20))
    tables = constraint.tables([constraint.graph([source])], 10_000)
    tracker = fault_tracking.FaultTracker(vocabulary)
    random = np.random.default_rng(0)
    prefix = f" %<a claim>%({source.title})%["
    for rows in (1, 16, 64):
        logits = jnp.asarray(random.normal(size=(rows, vocabulary.size)).astype(np.float32))
        for name, claims in (("inside quotes", 0), ("every fourth row in its claim", 4)):
            state = initial(tables, jnp.zeros(rows, jnp.int32))
            in_claim = state
            for token in vocabulary.encode(" %<a claim"):
                in_claim = advance(tables, in_claim, jnp.full(rows, token))
            for token in vocabulary.encode(prefix + source.text[:1]):
                state = advance(tables, state, jnp.full(rows, token))
            if claims:
                chosen = jnp.arange(rows) % claims == 0
                state = jax.tree.map(lambda a, b, at=chosen: jnp.where(at, a, b), in_claim, state)
            free, held = (
                functools.partial(draw_many, tables, state, logits, constrained)
                for constrained in (False, True)
            )
            seconds, ratio = paired(free, held, rounds)
            each = 1e6 * seconds / (STEPS * rows)
            print(f"| drawing, {name} | {rows} | {each:.1f} µs a token | {ratio:.2f} |")
        tables_of_faults = tracker.tables([tracker.graph([source])])
        seen = fault_tracking.initial(tables_of_faults, jnp.zeros(rows, jnp.int32))
        for token in vocabulary.encode(prefix):
            seen = fault_tracking.advance(tables_of_faults, seen, jnp.full(rows, token))
        held, both = (
            functools.partial(draw_many, tables, state, logits, True, fault_tables=held)
            for held in (None, (tables_of_faults, seen))
        )
        seconds, ratio = paired(held, both, rounds)
        each = 1e6 * seconds / (STEPS * rows)
        what = "the same, faults tracked; against untracked"
        print(f"| {what} | {rows} | {each:.1f} µs a token | {ratio:.2f} |")


def questions_of(flags: argparse.Namespace) -> list[Question]:
    """Those given, or those that quickstart.sh writes beside its model."""
    beside = Path(flags.model) / "sample_world" / "questions_test.jsonl"
    return list(read(Path(flags.questions or beside), Question))


def has_long_pages(question: Question) -> bool:
    """Whether long quotes have room there."""
    characters = sum(len(page.text) for page in pages_of(question))
    return characters > 2 * LONG_QUOTES.minimum_quote


def measure_answers(model: Model, question: Question, rounds: int) -> None:
    """Samples at temperature 1, whose rows are in claims, titles and quotes at the same time."""
    constraint = QuoteConstraint(model.vocabulary)
    for name, wanted in (("", False), (", and the model's own log-probabilities", True)):
        settings = SamplingSettings(max_tokens=96, free_log_probs=wanted)
        measure_sampling(f"whole answers{name}", model, question, constraint, settings, rounds)


def measure_quotes(model: Model, question: Question, rounds: int) -> None:
    """Samples that are one long quote but for their first tokens."""
    constraint = QuoteConstraint(model.vocabulary, LONG_QUOTES)
    settings = SamplingSettings(max_tokens=QUOTE_TOKENS, free_log_probs=False)
    what = f"quotes of {LONG_QUOTES.minimum_quote} characters and more"
    measure_sampling(what, model, question, constraint, settings, rounds)


def measure_sampling(
    what: str,
    model: Model,
    question: Question,
    constraint: QuoteConstraint,
    settings: SamplingSettings,
    rounds: int,
) -> None:
    """The whole sampler with and without the constraint, for as many turns."""
    graph, eos_id = constraint.graph(pages_of(question)), model.vocabulary.eos_id
    run = functools.partial(
        sample,
        model.transformer,
        model.params,
        [encode_question(model.vocabulary, question)],
        jax.random.key(0),
        pad_id=model.vocabulary.pad_id,
        vocabulary_size=model.vocabulary.size,
    )

    def with_quotes(rows: int, turns: int) -> Callable[[], Samples]:
        quotes = constraint.tables([graph], turns)
        held = dataclasses.replace(settings, max_tokens=turns)
        return functools.partial(run, held, eos_id=eos_id, quotes=quotes, samples_per_prompt=rows)

    for rows in (1, 16, 64):
        # No more room than the longest answer takes; free samples never end before it.
        turns = int(with_quotes(rows, settings.max_tokens)().lengths.max())
        free = functools.partial(
            run, SamplingSettings(max_tokens=turns), eos_id=-1, samples_per_prompt=rows
        )
        seconds, ratio = paired(free, with_quotes(rows, turns), rounds)
        each = 1e6 * seconds / (turns * rows)
        print(f"| {what} | {rows} | {each:.0f} µs a token | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a model of the sample world, as quickstart.sh makes it")
    parser.add_argument("--questions", help="to answer; default: those beside the model")
    parser.add_argument("--vocabulary", help="default: the model's")
    parser.add_argument(
        "--text", type=Path, help="of the page; default: the pages of the questions"
    )
    parser.add_argument("--tokens", type=int, default=4096, help="of the page (default: 4096)")
    parser.add_argument("--skip-drawing", action="store_true", help="only tables and answers")
    parser.add_argument("--rounds", type=int, default=9)
    flags = parser.parse_args()
    if flags.model is None and not (flags.vocabulary and flags.text):
        parser.error("--model is needed, or --vocabulary and --text")
    questions = questions_of(flags) if flags.model is not None else []
    if flags.text is not None:
        text = flags.text.read_text(encoding="utf-8")
    else:
        text = "\n\n".join(page.text for question in questions for page in pages_of(question))
    name = flags.vocabulary or Path(flags.model) / "vocabulary"
    vocabulary = load_vocabulary(name)
    source = page(vocabulary, text, flags.tokens)
    graph, milliseconds = built(QuoteConstraint(vocabulary), source, flags.rounds)
    print("| what | rows | time | time / without |")
    print("|---|---|---|---|")
    size = f"{len(graph.cost)} nodes, {len(graph.edges.token)} edges"
    print(f"| tables of a page of {flags.tokens} tokens ({size}) | | {milliseconds:.1f} ms | |")
    if not flags.skip_drawing:
        measure_drawing(vocabulary, source, flags.rounds)
    if flags.model is not None:
        model = load_model(flags.model)
        question = next(filter(has_long_pages, questions), questions[0])
        measure_answers(model, question, flags.rounds)
        if has_long_pages(question):
            measure_quotes(model, question, flags.rounds)


if __name__ == "__main__":
    main()

"""What drafts from the document save inside quotes: passes of the model, and time.

    python benchmarks/speculation.py --model runs/real_questions/sft \\
      --questions runs/real_questions/data/wikipedia/questions_test.jsonl --mlp 2048 8192

Samples answers with a short claim and a long quote, so that most tokens lie inside quotes, with
drafts of several lengths beside none, turn by turn in one run. The samples must be the same.

A model of few parameters stays in a core's cache, where one token is nearly free and four cost
almost four times as much; those that people use don't. With `--mlp` the model's layers get more
hidden units, whose outputs are zero: it says what it said, at the cost of a larger one.
"""

import argparse
import dataclasses
import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.question_prompts import encode_question, pages_of
from gophercite.models.folder import Model, load_model
from gophercite.models.parameters import TRAINED
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.records import Question, read

QUOTES = QuoteSettings(minimum_quote=200, maximum_claim=12)
DRAFTS = (0, 3, 5, 7)


def long_quotes(
    model: Model, question: Question, rows: int, max_tokens: int
) -> Callable[[SamplingSettings], Samples]:
    """Sampling of one prompt, its tables made before."""
    constraint = QuoteConstraint(model.vocabulary, QUOTES)
    return functools.partial(
        sample,
        model.transformer,
        model.params,
        [encode_question(model.vocabulary, question)],
        jax.random.key(0),
        eos_id=model.vocabulary.eos_id,
        pad_id=model.vocabulary.pad_id,
        quotes=constraint.tables([constraint.graph(pages_of(question))], max_tokens),
        samples_per_prompt=rows,
        vocabulary_size=model.vocabulary.size,
    )


def widened(model: Model, width: int) -> Model:
    """The same function, computed by MLPs of more hidden units."""
    config, layers = model.transformer.config, dict(model.params[TRAINED])
    more = width - config.mlp_width
    if more < 0:
        raise ValueError(f"--mlp {width}: the model's MLPs are {config.mlp_width} wide already")
    for name in ("up", "gate"):
        if name in layers:
            matrix = layers[name]
            drawn = jax.random.normal(jax.random.key(0), (*matrix.shape[:2], more), matrix.dtype)
            layers[name] = jnp.concatenate([matrix, drawn * matrix.std()], axis=2)
    layers["down"] = jnp.pad(layers["down"], ((0, 0), (0, more), (0, 0)))
    transformer = Transformer(dataclasses.replace(config, d_ff=width))
    return dataclasses.replace(
        model, transformer=transformer, params={**model.params, TRAINED: layers}
    )


def measure(
    model: Model, question: Question, rows: int, settings: SamplingSettings, rounds: int
) -> None:
    run_with = long_quotes(model, question, rows, settings.max_tokens)
    runs = {
        drafts: functools.partial(run_with, dataclasses.replace(settings, draft_tokens=drafts))
        for drafts in DRAFTS
    }
    made = {drafts: run() for drafts, run in runs.items()}
    times: dict[int, list[float]] = {drafts: [] for drafts in runs}
    for _ in range(rounds):
        for drafts, run in runs.items():
            begun = time.perf_counter()
            run()
            times[drafts].append(time.perf_counter() - begun)
    for drafts, samples in made.items():
        ratio = statistics.median(
            with_drafts / without
            for with_drafts, without in zip(times[drafts], times[0], strict=True)
        )
        per_pass = samples.lengths.max() / samples.passes
        same = np.array_equal(samples.tokens, made[0].tokens)
        millions = model.transformer.config.parameters / 1e6
        print(
            f"| {millions:.1f}M | {rows} | {drafts} | {samples.passes} | {per_pass:.2f} | "
            f"{'yes' if same else 'NO'} | {ratio:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a model folder")
    parser.add_argument("--questions", required=True, help="a file of questions with pages")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=128, help="of the longest sample")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--mlp", type=int, nargs="*", default=[], help="widths, beside its own")
    flags = parser.parse_args()
    model = load_model(flags.model)
    long_enough = (
        question
        for question in read(Path(flags.questions), Question)
        if sum(len(page.text) for page in pages_of(question)) > 2 * QUOTES.minimum_quote
    )
    question = next(long_enough)
    settings = SamplingSettings(
        max_tokens=flags.tokens, temperature=flags.temperature, free_log_probs=False
    )
    print(
        "| parameters | rows | drafted | passes | tokens a pass | same samples "
        "| time / without drafts |\n|---|---|---|---|---|---|---|"
    )
    for each in (model, *(widened(model, width) for width in flags.mlp)):
        for rows in flags.rows:
            measure(each, question, rows, settings, flags.rounds)


if __name__ == "__main__":
    main()

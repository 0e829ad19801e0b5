"""An imported model beside one of our own of the same sizes: the same program, the same time?

    python benchmarks/imported_model.py [--rounds 15]

A model is made here (6 layers, width 256, a vocabulary of 8192, float32) and exported as a Llama;
what is imported from that checkpoint is compared with it, in one process: the compiled programs of
a training step (8 rows of 256 tokens, Adam) and of sampling (16 samples of 48 tokens), and their
CPU times, which are taken in turns. The ratio is the median over the turns, with its 95 % interval
by bootstrap.
"""

import argparse
import dataclasses
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from import_weights import byte_tokenizer
from same_model import SMALL, our_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.learning.optimizers import adam
from gophercite.learning.supervised import SupervisedLearner
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.transformer import Transformer
from gophercite.training.program import compile_lowered
from gophercite.vocabularies import HuggingFaceVocabulary
from gophercite.weights.export import export_weights
from gophercite.weights.hugging_face import import_weights

ROWS, LENGTH = 8, 256
SAMPLES, PROMPT, TOKENS = 16, 256, 48

Turn = Callable[[int], float]


def both_models(folder: Path) -> tuple[Model, Model]:
    """Our own model, and the one that is imported from its export, each from its folder."""
    transformer = Transformer(our_config())
    vocabulary = HuggingFaceVocabulary(byte_tokenizer())
    params = transformer.init(jax.random.key(0))
    save_model(folder / "own", Model(transformer, params, vocabulary, {}))
    export_weights(folder / "own", folder / "checkpoint")
    import_weights(folder / "checkpoint", folder / "imported")
    return load_model(folder / "own"), load_model(folder / "imported")


def training(model: Model) -> tuple[jax.stages.Compiled, Turn]:
    """A step's program, and a turn that gives its loss."""
    learner = SupervisedLearner(model.transformer, adam(), lambda step: 1e-3)
    state = learner.init_state(jax.tree.map(jax.numpy.copy, model.params), jax.random.key(1))
    draw = np.random.default_rng(0)
    row = draw.integers(2, SMALL.vocabulary, (ROWS, LENGTH + 1)).astype(np.int32)
    batch = {
        "tokens": row[:, :-1],
        "targets": row[:, 1:],
        "weights": np.ones((ROWS, LENGTH), np.float32),
        "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
        "segments": np.ones((ROWS, LENGTH), np.int32),
    }
    step = compile_lowered(jax.jit(learner.update, donate_argnums=0).lower(state, batch))

    def turn(number: int) -> float:
        nonlocal state
        state, metrics = step(state, batch)
        return float(metrics["loss/nll"])

    return step, turn


def sampling(model: Model) -> tuple[jax.stages.Compiled, Turn]:
    """The sampler's program, and a turn that gives the sum of its log-probabilities."""
    settings = SamplingSettings(max_tokens=TOKENS)
    size = SMALL.vocabulary
    plan = Plan(model.transformer, settings, size, 0, size, SAMPLES, SAMPLES)
    prompt = np.random.default_rng(0).integers(2, size, (1, PROMPT)).astype(np.int32)
    rest = (prompt, np.array([PROMPT], np.int32))
    keys = [jax.random.split(jax.random.key(number), 1) for number in range(2)]
    program = decode.lower(plan, model.params, *rest, keys[0], None, None).compile()

    def turn(number: int) -> float:
        made = program(model.params, *rest, keys[number % 2], None, None)
        return float(np.sum(made.log_probs))

    return program, turn


def instructions(program: jax.stages.Compiled) -> list[str]:
    """A program's operations, without where in the source they come from."""
    text = re.sub(r", metadata={[^}]*}", "", program.as_text())
    return [line for line in text.splitlines() if " = " in line]


def ratios(own: Turn, imported: Turn, rounds: int) -> list[float]:
    """Times of the imported model's turns by those of our own, which must give the same."""
    found = []
    for number in range(-2, rounds):
        seconds, results = {}, {}
        sides = {"own": own, "imported": imported}
        for name in sides if number % 2 else reversed(sides):
            begun = time.process_time()
            results[name] = sides[name](number % 2)
            seconds[name] = time.process_time() - begun
        if results["own"] != results["imported"]:
            sys.exit(f"the results differ: {results}")
        if number >= 0:  # the first turns warm up
            found.append(seconds["imported"] / seconds["own"])
    return found


def interval(values: list[float]) -> np.ndarray:
    """The median's 95 % interval."""
    draws = np.random.default_rng(0).choice(values, (10_000, len(values)))
    return np.percentile(np.median(draws, axis=1), [2.5, 97.5])


def compare(name: str, make: Callable[[Model], Any], models: tuple[Model, Model], n: int) -> None:
    """Prints a row: what the programs are, and the ratio of their times."""
    (own, own_turn), (imported, imported_turn) = (make(model) for model in models)
    lines, theirs = instructions(own), instructions(imported)
    dots = [sum(" dot(" in line for line in program) for program in (lines, theirs)]
    found = ratios(own_turn, imported_turn, n)
    low, high = interval(found)
    cells = [name, len(lines), len(theirs), *dots, "the same" if lines == theirs else "another"]
    time = f"{np.median(found):.3f} ({low:.3f} to {high:.3f})"
    print("|", " | ".join(map(str, [*cells, time])), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = both_models(Path(folder))
    own, imported = (dataclasses.asdict(model.transformer.config) for model in models)
    others = {
        field: (own[field], imported[field]) for field in own if own[field] != imported[field]
    }
    print(f"settings that are written otherwise (own, imported): {others}")
    print(
        "| program | operations: own | imported | products | imported | the same text | CPU time |"
    )
    print("|---|---|---|---|---|---|---|")
    compare("training step", training, models, flags.rounds)
    compare("sampling", sampling, models, flags.rounds)


if __name__ == "__main__":
    main()

"""Our logits of imported checkpoints beside those that `transformers`, or T5X, had for them.

python -m tests.weights.parity      # prints the table of docs/weights.md
"""

import dataclasses
import pathlib
import tempfile
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.model_folders.folder import load_model
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.weights.hugging_face import import_weights
from gophercite.weights.t5x import import_t5x
from tests.weights import t5x_samples
from tests.weights.samples import CHECKPOINTS, FAMILIES, LOGITS, WITH_IMAGES, checkpoint

Rows = list[np.ndarray]


def load_float32(family: str, folder: pathlib.Path) -> tuple[Transformer, Params]:
    """Imports a checkpoint, and loads it to be computed in float32."""
    import_weights(checkpoint(family, folder / "source"), folder / "model")
    return in_float32(folder / "model")


def in_float32(folder: pathlib.Path) -> tuple[Transformer, Params]:
    """A model, to be computed in float32."""
    model = load_model(folder, param_dtype="float32")
    config = dataclasses.replace(model.transformer.config, dtype="float32")
    return Transformer(config), model.params


def reference(family: str) -> tuple[Rows, Rows]:
    """Sequences of different lengths, and the logits of all their tokens."""
    return stored_logits(CHECKPOINTS / family / LOGITS)


def stored_logits(path: pathlib.Path) -> tuple[Rows, Rows]:
    """What a file of reference logits holds, see `reference`."""
    stored = np.load(path)
    lengths = sorted((int(name.split("_")[1]) for name in stored if "_" in name), reverse=True)
    tokens = [row[:length] for row, length in zip(stored["tokens"], lengths, strict=True)]
    return tokens, [stored[f"logits_{length}"] for length in lengths]


@partial(jax.jit, static_argnums=0)
def _logits(transformer: Transformer, params: Params, *batch: jax.Array) -> jax.Array:
    hidden, _ = transformer.apply(params, *batch)
    return transformer.logits(params, hidden)


def in_one_pass(transformer: Transformer, params: Params, sequences: Rows) -> tuple[Rows, Rows]:
    """Logits of the sequences, each padded in a row of its own, and all packed in one row."""
    total = sum(map(len, sequences))
    shape = (len(sequences) + 1, total)
    tokens, positions, segments = (np.zeros(shape, np.int32) for _ in range(3))
    packed, start = [], 0
    for row, sequence in enumerate(sequences):
        there = slice(start, start + len(sequence))
        for at in ((row, slice(len(sequence))), (len(sequences), there)):
            tokens[at], positions[at], segments[at] = sequence, np.arange(len(sequence)), row + 1
        packed.append(there)
        start += len(sequence)

    logits = np.asarray(_logits(transformer, params, tokens, positions, segments))
    padded = [logits[row, : len(sequence)] for row, sequence in enumerate(sequences)]
    return padded, [logits[-1, there] for there in packed]


def with_cache(transformer: Transformer, params: Params, sequences: Rows) -> Rows:
    """Logits of the sequences: half of each is read at once, the rest token by token."""
    lengths = np.array([len(sequence) for sequence in sequences])
    read = (lengths + 1) // 2
    tokens = np.zeros((len(sequences), lengths.max()), np.int32)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    steps = int((lengths - read).max())

    @jax.jit
    def run(params: Params) -> tuple[jax.Array, jax.Array]:
        hidden, cache, _ = transformer.prefill(params, tokens[:, : read.max()], read, steps)

        def step(cache: object, done: jax.Array) -> tuple[object, jax.Array]:
            places = read[:, None] + done
            new = jnp.take_along_axis(tokens, jnp.minimum(places, tokens.shape[1] - 1), axis=1)
            hidden, cache, _ = transformer.decode(
                params, new, places, places < lengths[:, None], cache
            )
            return cache, transformer.logits(params, hidden)[:, 0]

        _, later = jax.lax.scan(step, cache, jnp.arange(steps))
        return transformer.logits(params, hidden), later

    first, later = map(np.asarray, run(params))
    return [
        np.concatenate([first[row, :begin], later[: length - begin, row]])
        for row, (begin, length) in enumerate(zip(read, lengths, strict=True))
    ]


def largest_difference(found: Rows, expected: Rows) -> float:
    """The largest difference of any logit of any token."""
    return max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))


def agreed(found: Rows, expected: Rows) -> tuple[int, int]:
    """Tokens whose likeliest next token is the same, and all of them."""
    same = [a.argmax(-1) == b.argmax(-1) for a, b in zip(found, expected, strict=True)]
    return sum(int(row.sum()) for row in same), sum(map(len, same))


def load_t5x(kind: str, folder: pathlib.Path) -> tuple[Transformer, Params]:
    """The same of a checkpoint of T5X's."""
    source = t5x_samples.t5x_run(kind, folder / "run")
    import_t5x(source, folder / "model", source.parent / "sentencepiece.model")
    return in_float32(folder / "model")


def print_row(name: str, model: tuple[Transformer, Params], references: tuple[Rows, Rows]) -> None:
    """Prints a checkpoint's row of the table."""
    sequences, expected = references
    ways = [*in_one_pass(*model, sequences), with_cache(*model, sequences)]
    same, tokens = np.sum([agreed(way, expected) for way in ways], axis=0)
    cells = " | ".join(f"{largest_difference(way, expected):.1e}" for way in ways)
    print(f"| {name} | {cells} | {same} of {tokens} |", flush=True)


def main() -> None:
    """Prints a row for each checkpoint."""
    print("| Checkpoint | padded | packed | with a cache | tokens agreed |\n|---|---|---|---|---|")
    for family in (*FAMILIES, WITH_IMAGES):
        with tempfile.TemporaryDirectory() as folder:
            model = load_float32(family, pathlib.Path(folder))
        print_row(family, model, reference(family))
    for kind in t5x_samples.KINDS:
        with tempfile.TemporaryDirectory() as folder:
            model = load_t5x(kind, pathlib.Path(folder))
        print_row(f"T5X, {kind}", model, stored_logits(t5x_samples.CHECKPOINTS / f"{kind}.npz"))


if __name__ == "__main__":
    main()

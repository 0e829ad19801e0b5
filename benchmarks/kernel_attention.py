"""Attention while sampling: our kernel for CPUs beside XLA's code for the same.

    python benchmarks/kernel_attention.py [--rounds 7]

Caches of six layers are read in turn, so that none stays in a core's cache, as in a pass of a
model. Both give the same mixtures; the largest difference between them is in the table. Shapes: of
the sampling benchmark (64 samples of a prompt of 512 tokens, 8 heads of 32) with a quarter, three
quarters and all of 64 own entries taken, and with 256; with fewer samples; with four new tokens a
row; 16 prompts with one sample each; 4 prompts and heads of 128 with groups. Then
prompts that are read, beside our attention in blocks of 128 rows.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.steps_in_turn import seconds_in_turn
from gophercite.models.attention import attention
from gophercite.models.cache import Entries, LayerCache
from gophercite.models.cached_attention import cached_attention
from gophercite.models.kernel_attention import (
    cached_attention_by_kernel,
    causal_attention_by_kernel,
)

LAYERS, TIMES = 6, 10


class Shape(NamedTuple):
    """How much there is to read."""

    prompts: int
    samples: int
    kv_heads: int
    groups: int
    head_dim: int
    length: int
    capacity: int
    taken: int
    new: int = 1


SHAPES = (
    Shape(1, 64, 8, 1, 32, 512, 64, 16),
    Shape(1, 64, 8, 1, 32, 512, 64, 48),
    Shape(1, 64, 8, 1, 32, 512, 64, 64),
    Shape(1, 64, 8, 1, 32, 512, 256, 128),
    Shape(1, 16, 8, 1, 32, 512, 64, 48),
    Shape(1, 4, 8, 1, 32, 512, 64, 48),
    Shape(1, 1, 8, 1, 32, 512, 64, 48),
    Shape(1, 64, 8, 1, 32, 512, 64, 48, 4),
    Shape(16, 1, 8, 1, 32, 512, 64, 48),
    Shape(4, 16, 2, 4, 128, 1024, 64, 48),
)


# Batch, length, heads, heads of keys, channels.
PROMPTS = ((1, 512, 8, 8, 32), (1, 3840, 8, 8, 32), (5, 1024, 8, 2, 64), (1, 3840, 16, 4, 128))


def inputs(shape: Shape) -> tuple[Any, list[LayerCache], Any, Entries]:
    """Queries, caches of the layers, and how they lie."""
    keys = iter(jax.random.split(jax.random.key(0), 1 + 4 * LAYERS))
    normal = lambda *sizes: jax.random.normal(next(keys), sizes)  # noqa: E731
    rows = shape.prompts * shape.samples
    q = normal(rows, shape.new, shape.kv_heads * shape.groups, shape.head_dim)
    prompt = (shape.prompts, shape.kv_heads, shape.length, shape.head_dim)
    own = (shape.prompts, shape.kv_heads, shape.samples, shape.capacity, shape.head_dim)
    caches = [
        LayerCache(normal(*prompt), normal(*prompt), normal(*own), normal(*own), None)
        for _ in range(LAYERS)
    ]
    lengths = jnp.full((shape.prompts,), shape.length, jnp.int32)
    places = shape.length + jnp.arange(shape.capacity)
    by_row = (shape.prompts, shape.samples, shape.capacity)
    entries = Entries(
        lengths,
        jnp.broadcast_to(places, by_row).astype(jnp.int32),
        jnp.broadcast_to(jnp.arange(shape.capacity) < shape.taken, by_row),
        jnp.asarray(shape.taken, jnp.int32),
    )
    new = shape.length + shape.taken - shape.new + jnp.arange(shape.new)
    return q, caches, jnp.broadcast_to(new, (rows, shape.new)).astype(jnp.int32), entries


def passes(
    attend: Callable, times: int, q: Any, caches: Any, positions: Any, entries: Entries
) -> Any:
    """What a model's passes do of it, each layer on what the one before made."""

    def once(_: Any, q: Any) -> Any:
        for cache in caches:
            q = 0.5 * q + attend(q, cache, positions, entries)
        return q

    return jax.lax.fori_loop(0, times, once, q)


def prompt_passes(by_kernel: bool, times: int, q: Any, k: Any, v: Any) -> Any:
    """Whole prompts, each time on what the time before made."""
    batch, length = q.shape[:2]

    def once(_: Any, q: Any) -> Any:
        if by_kernel:
            mixed = causal_attention_by_kernel(q, k, v, jnp.full((batch,), length, jnp.int32))
        else:
            segments = jnp.ones((batch, length), jnp.int32)
            mixed = attention(q, k, v, segments, kernel="blocks", block=128)
        return 0.5 * q + mixed

    return jax.lax.fori_loop(0, times, once, q)


def step(passes: Callable, q: Any, rest: Any) -> tuple[Any, Any]:
    """The same passes again."""
    return q, passes(q, *rest)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("| shape | kernel, ms a layer | kernel / XLA | largest difference |\n|---|---|---|---|")
    for shape in SHAPES:
        ways = {
            "XLA": partial(passes, cached_attention),
            "kernel": partial(passes, cached_attention_by_kernel),
        }
        text = ", ".join(f"{name} {value}" for name, value in shape._asdict().items())
        compare(text, ways, inputs(shape), LAYERS, rounds)
    for batch, length, heads, kv_heads, width in PROMPTS:
        keys = jax.random.split(jax.random.key(0), 3)
        sizes = [(batch, length, count, width) for count in (heads, kv_heads, kv_heads)]
        arrays = [jax.random.normal(key, size) for key, size in zip(keys, sizes, strict=True)]
        ways = {"XLA": partial(prompt_passes, False), "kernel": partial(prompt_passes, True)}
        text = f"{batch} prompts of {length}, {heads} heads of {width}, {kv_heads} of keys"
        compare(text, ways, arrays, 1, rounds)


def compare(name: str, ways: dict[str, Callable], arguments: Any, layers: int, rounds: int) -> None:
    """A line of the table."""
    one = {way: jax.jit(partial(run, 1))(*arguments) for way, run in ways.items()}
    difference = float(jnp.abs(one["kernel"] - one["XLA"]).max())
    steps = {way: partial(step, jax.jit(partial(run, TIMES))) for way, run in ways.items()}
    q, *rest = arguments
    seconds = seconds_in_turn(steps, dict.fromkeys(ways, q), rest, rounds)
    ours = statistics.median(seconds["kernel"]) / (TIMES * layers)
    ratio = statistics.median(
        kernel / xla for kernel, xla in zip(seconds["kernel"], seconds["XLA"], strict=True)
    )
    print(f"| {name} | {1e3 * ours:.3f} | {ratio:.2f} | {difference:.1e} |", flush=True)


if __name__ == "__main__":
    main()

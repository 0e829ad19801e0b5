"""Softmax attention in a core's cache: for many rows with shared keys, or one row with its own.

Keys, values, queries and results are flat arrays of concatenated vectors.
"""

from typing import Any

import numpy as np

from gophercite.kernels.lanes import (
    TILE,
    WIDTH,
    add_products_to_narrow_row,
    add_products_to_narrow_tile,
    add_products_to_row,
    add_products_to_tile,
    exp_of_negative,
    larger,
    load,
    load_one,
    multiply_add,
    repeated,
    store,
    store_one,
    total,
    zeros,
)
from gophercite.native import native, native_inline

ROWS = 2 * WIDTH  # rows that are processed together with a prompt
_KEYS = 128  # number of a prompt's keys between two updates of the maximum score
_LOWEST = -1e30  # the score of a masked key


@native
def meet_prompt(
    q: Any, rows: int, keys: Any, values: Any, length: int, width: int,
    peaks: Any, weights: Any, mixed: Any,
) -> None:  # fmt: skip
    """Attends from up to 32 rows to a prompt's keys and values.

    Args:
      q: queries.
      rows: number of rows.
      keys: the prompt's keys.
      values: the prompt's values.
      length: number of keys.
      width: number of floats per key.
      peaks: output: each row's maximum score.
      weights: output: each row's sum of the exponentials of scores minus the maximum.
      mixed: output: the sum of the values with these weights.
    """
    wide = WIDTH if rows <= WIDTH else ROWS
    columns = np.empty(wide * width, np.float32)  # the queries, transposed to [channel, row]
    sums = np.zeros(wide * width, np.float32)
    scores = np.empty(wide * _KEYS, np.float32)
    for row in range(wide):
        # Missing rows repeat the last one; any values will do.
        place = min(row, rows - 1) * width
        for channel in range(width):
            store_one(columns, channel * wide + row, load_one(q, place + channel))
    for half in range(0, wide, WIDTH):
        store(peaks, half, repeated(np.float32(_LOWEST)))
        store(weights, half, zeros())
    for start in range(0, length, _KEYS):
        count = min(_KEYS, length - start)
        _score_together(columns, wide, keys, start * width, count, width, scores)
        for half in range(0, wide, WIDTH):
            _weigh_together(scores, half, wide, count, peaks, weights, sums, width)
        for channel in range(0, width, TILE):
            at, place = channel * wide, start * width + channel
            if wide == WIDTH:
                add_products_to_narrow_tile(sums, at, values, place, 1, width, scores, count)
            else:
                add_products_to_tile(sums, at, values, place, 1, width, scores, count)
    for row in range(rows):
        for channel in range(width):
            store_one(mixed, row * width + channel, load_one(sums, channel * wide + row))


@native
def _score_together(
    columns: Any, wide: int, keys: Any, first: int, count: int, width: int, scores: Any
) -> None:
    """Scores `count` keys from `first` on; scores are [key, row]."""
    scores[: count * wide] = 0.0
    whole = count - count % TILE
    for key in range(0, whole, TILE):
        at, place = key * wide, first + key * width
        if wide == WIDTH:
            add_products_to_narrow_tile(scores, at, keys, place, width, 1, columns, width)
        else:
            add_products_to_tile(scores, at, keys, place, width, 1, columns, width)
    for key in range(whole, count):
        at, place = key * wide, first + key * width
        if wide == WIDTH:
            add_products_to_narrow_row(scores, at, keys, place, width, 1, columns, width)
        else:
            add_products_to_row(scores, at, keys, place, width, 1, columns, width)


@native
def _weigh_together(
    scores: Any, half: int, wide: int, count: int, peaks: Any, weights: Any, sums: Any, width: int
) -> None:
    """Turns 16 rows' scores into weights, and rescales their previous sums to the new maximum."""
    old = load(peaks, half)
    even, odd = old, load(scores, half)  # two maxima: comparisons wait for the previous one
    for key in range(0, count - 1, 2):
        even = larger(load(scores, key * wide + half), even)
        odd = larger(load(scores, (key + 1) * wide + half), odd)
    peak = larger(larger(load(scores, (count - 1) * wide + half), even), odd)
    scale = exp_of_negative(old - peak)
    weight = load(weights, half) * scale
    for at in range(half, half + count * wide, wide):
        one = exp_of_negative(load(scores, at) - peak)
        weight = weight + one
        store(scores, at, one)
    for at in range(half, half + width * wide, wide):
        store(sums, at, load(sums, at) * scale)
    store(peaks, half, peak)
    store(weights, half, weight)


@native
def score(
    q: Any, query: int, keys: Any, count: int, width: int, seen: Any, scores: Any
) -> np.float32:
    """Scores keys for one query, masked ones with the lowest score; returns the maximum.

    `scores` is padded to a multiple of 16 with the lowest score; `seen` is empty if nothing is
    masked.
    """
    peak = np.float32(_LOWEST)
    for key in range(count):
        if len(seen) and not seen[key]:
            store_one(scores, key, np.float32(_LOWEST))
            continue
        product = load(q, query) * load(keys, key * width)
        for channel in range(WIDTH, width, WIDTH):
            product = multiply_add(
                load(q, query + channel), load(keys, key * width + channel), product
            )
        score = total(product)
        store_one(scores, key, score)
        peak = max(peak, score)
    for key in range(count, rounded_up(count)):
        store_one(scores, key, np.float32(_LOWEST))
    return peak


@native_inline
def rounded_up(count: int) -> int:
    """Rounds up to a multiple of 16."""
    return (count + WIDTH - 1) // WIDTH * WIDTH


@native
def weigh(scores: Any, count: int, peak: np.float32) -> np.float32:
    """Turns scores into weights and returns their sum."""
    largest, sum_ = repeated(peak), zeros()
    for key in range(0, rounded_up(count), WIDTH):
        weight = exp_of_negative(load(scores, key) - largest)
        sum_ = sum_ + weight
        store(scores, key, weight)
    return total(sum_)


@native
def mix(
    weights: Any, values: Any, count: int, width: int, mixed: Any, at: int, scale: np.float32
) -> None:
    """Scales `mixed` from `at` on by `scale`, and adds the weighted values."""
    for channel in range(0, width, WIDTH):
        even = load(mixed, at + channel) * repeated(scale)
        odd = zeros()  # two sums, because each addition waits for the previous one
        for key in range(0, count - 1, 2):
            place, one, other = key * width + channel, weights[key], weights[key + 1]
            if one == 0 and other == 0:  # as for masked entries: don't read them
                continue
            even = multiply_add(repeated(one), load(values, place), even)
            odd = multiply_add(repeated(other), load(values, place + width), odd)
        if count % 2:
            last = load(values, (count - 1) * width + channel)
            even = multiply_add(repeated(weights[count - 1]), last, even)
        store(mixed, at + channel, even + odd)


@native_inline
def exp_of_one(x: np.float32) -> np.float32:
    """The exponential of one number, with the same operations as for sixteen."""
    return total(exp_of_negative(repeated(x))) * np.float32(1 / WIDTH)

"""Softmax attention in a core's own memory: many rows and shared keys, one row and its own keys.

Keys, values, queries and what is made of them are flat arrays, one vector after another.
"""

from typing import Any

import numba
import numpy as np

from gophercite.kernels.lanes import (
    TILE,
    WIDTH,
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

ROWS = 2 * WIDTH  # rows that meet a prompt together
_KEYS = 128  # of a prompt, between two looks at how large the scores have become
_LOWEST = -1e30  # a score of nothing


@numba.njit(cache=True, nogil=True)
def meet_prompt(
    q: Any, rows: int, keys: Any, values: Any, length: int, width: int,
    peaks: Any, weights: Any, mixed: Any,
) -> None:  # fmt: skip
    """Up to 32 rows and a prompt's keys and values.

    Args:
      q: queries.
      rows: how many.
      keys: of the prompt.
      values: likewise.
      length: how many keys.
      width: floats of a key.
      peaks: gets each row's largest score.
      weights: gets the sum of the exponentials of all scores less that.
      mixed: gets the values' sums with these weights.
    """
    columns = np.empty(ROWS * width, np.float32)  # the queries, of each channel all rows'
    sums = np.zeros(ROWS * width, np.float32)
    scores = np.empty(ROWS * _KEYS, np.float32)
    for row in range(ROWS):
        # Rows that there are not are the last one once more: any numbers will do.
        place = min(row, rows - 1) * width
        for channel in range(width):
            store_one(columns, channel * ROWS + row, load_one(q, place + channel))
    peak_0 = peak_1 = repeated(np.float32(_LOWEST))
    weight_0 = weight_1 = zeros()
    for start in range(0, length, _KEYS):
        count = min(_KEYS, length - start)
        scores[: count * ROWS] = 0.0
        whole = count - count % TILE
        for key in range(0, whole, TILE):
            place = (start + key) * width
            add_products_to_tile(scores, key * ROWS, keys, place, width, 1, columns, width)
        for key in range(whole, count):
            place = (start + key) * width
            add_products_to_row(scores, key * ROWS, keys, place, width, 1, columns, width)
        old_0, old_1 = peak_0, peak_1
        for at in range(0, count * ROWS, ROWS):
            peak_0 = larger(load(scores, at), peak_0)
            peak_1 = larger(load(scores, at + WIDTH), peak_1)
        scale_0, scale_1 = exp_of_negative(old_0 - peak_0), exp_of_negative(old_1 - peak_1)
        weight_0, weight_1 = weight_0 * scale_0, weight_1 * scale_1
        for at in range(0, count * ROWS, ROWS):
            one = exp_of_negative(load(scores, at) - peak_0)
            other = exp_of_negative(load(scores, at + WIDTH) - peak_1)
            weight_0, weight_1 = weight_0 + one, weight_1 + other
            store(scores, at, one)
            store(scores, at + WIDTH, other)
        for at in range(0, width * ROWS, ROWS):
            store(sums, at, load(sums, at) * scale_0)
            store(sums, at + WIDTH, load(sums, at + WIDTH) * scale_1)
        for channel in range(0, width, TILE):
            place = start * width + channel
            add_products_to_tile(sums, channel * ROWS, values, place, 1, width, scores, count)
    store(peaks, 0, peak_0)
    store(peaks, WIDTH, peak_1)
    store(weights, 0, weight_0)
    store(weights, WIDTH, weight_1)
    for row in range(rows):
        for channel in range(width):
            store_one(mixed, row * width + channel, load_one(sums, channel * ROWS + row))


@numba.njit(cache=True, nogil=True)
def score(
    q: Any, query: int, keys: Any, count: int, width: int, seen: Any, scores: Any
) -> np.float32:
    """One query's scores of keys, those that it does not see the lowest; the largest of them.

    `scores` are filled up to a multiple of 16 with the lowest; `seen` is empty where all are.
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


@numba.njit(cache=True, nogil=True, inline="always")
def rounded_up(count: int) -> int:
    """The least multiple of 16 that is not less."""
    return (count + WIDTH - 1) // WIDTH * WIDTH


@numba.njit(cache=True, nogil=True)
def weigh(scores: Any, count: int, peak: np.float32) -> np.float32:
    """Makes scores to weights, and sums them."""
    largest, sum_ = repeated(peak), zeros()
    for key in range(0, rounded_up(count), WIDTH):
        weight = exp_of_negative(load(scores, key) - largest)
        sum_ = sum_ + weight
        store(scores, key, weight)
    return total(sum_)


@numba.njit(cache=True, nogil=True)
def mix(
    weights: Any, values: Any, count: int, width: int, mixed: Any, at: int, scale: np.float32
) -> None:
    """To what `mixed` has from `at` on, times `scale`, adds values by their weights."""
    for channel in range(0, width, WIDTH):
        even = load(mixed, at + channel) * repeated(scale)
        odd = zeros()  # two sums, as an addition waits for the one before
        for key in range(0, count - 1, 2):
            place, one, other = key * width + channel, weights[key], weights[key + 1]
            if one == 0 and other == 0:  # as of slots that are not seen: don't read them
                continue
            even = multiply_add(repeated(one), load(values, place), even)
            odd = multiply_add(repeated(other), load(values, place + width), odd)
        if count % 2:
            last = load(values, (count - 1) * width + channel)
            even = multiply_add(repeated(weights[count - 1]), last, even)
        store(mixed, at + channel, even + odd)


@numba.njit(cache=True, nogil=True, inline="always")
def exp_of_one(x: np.float32) -> np.float32:
    """Of one number, by the same operations as of sixteen."""
    return total(exp_of_negative(repeated(x))) * np.float32(1 / WIDTH)

"""Attention of samples to their prompt and to their own tokens, for XLA's CPU backend.

All samples of a prompt are multiplied with its keys and values as rows of two matrix products, 32
rows at a time, with an online softmax (Dao et al. 2022), so that scores never leave a core's cache.
A sample's own entries are read once, from the first to the last filled one, with all cores. XLA's
CPU backend writes all scores to memory, reads all entries, and reads a row's own entries with a
single core; that takes up to four times as long (benchmarks/kernel_attention.py).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numba import types

from gophercite.kernels import xla_calls
from gophercite.kernels.attention_rows import (
    ROWS,
    exp_of_one,
    meet_prompt,
    mix,
    rounded_up,
    score,
    weigh,
)
from gophercite.kernels.lanes import WIDTH, load, prefetch, repeated, store
from gophercite.native import native

# Up to this many rows are processed one by one, because most of a block of 32 would be empty.
_FEW_ROWS = 4

# Number of multiplications that is worth waking another thread.
_WORTH_A_THREAD = 2**19

# What a call's threads share: addresses of its arguments, in order, and of its result; whether keys
# and values are bfloat16; sizes.
_ARGUMENTS = (
    "q", "prompt_keys", "prompt_values", "own_keys", "own_values", "seen", "lengths", "taken",
    "layer",
)  # fmt: skip
_SIZES = ("prompts", "kv_heads", "samples", "queries", "width", "entries", "length", "capacity")
_JOB = np.dtype(
    [("header", np.int64, xla_calls.JOB_HEADER)]
    + [(name, np.int64) for name in (*_ARGUMENTS, "mixed", "bfloat16", *_SIZES)]
)
_job_at = xla_calls.records_at(_JOB)


@native
def _floats(address: int, count: int) -> Any:
    return numba.carray(xla_calls.floats_at(address), count)


@native
def _halves(address: int, count: int) -> Any:
    return numba.carray(xla_calls.halves_at(address), count)


@native
def _int(address: int, at: int) -> int:
    return numba.carray(xla_calls.ints_at(address), at + 1)[at]


@native
def _blocks(rows: int) -> int:
    """The number of pieces that a prompt's rows are split into, per key head."""
    return (rows + ROWS - 1) // ROWS


@native
def _work(address: int) -> None:
    """Works on pieces of a job until none is left."""
    job = numba.carray(_job_at(address), 1)[0]
    heads = job.prompts * job.kv_heads
    shared = heads * job.entries * job.width
    own = (_int(job.layer, 0) + 1) * heads * job.samples * job.capacity * job.width
    if job.bfloat16:
        keys, values = _halves(job.prompt_keys, shared), _halves(job.prompt_values, shared)
        own_keys, own_values = _halves(job.own_keys, own), _halves(job.own_values, own)
        _work_on(address, job, keys, values, own_keys, own_values)
    else:
        floats, more = _floats(job.prompt_keys, shared), _floats(job.prompt_values, shared)
        own_floats, own_more = _floats(job.own_keys, own), _floats(job.own_values, own)
        _work_on(address, job, floats, more, own_floats, own_more)


@native
def _work_on(
    address: int, job: Any, keys: Any, values: Any, own_keys: Any, own_values: Any
) -> None:
    """Works on pieces; a piece is up to 32 rows of a key head, numbered over all prompts."""
    rows = job.samples * job.queries
    blocks, size = _blocks(rows), job.entries * job.width
    while True:
        piece = xla_calls.next_piece(address)
        if piece >= job.prompts * job.kv_heads * blocks:
            return
        head, first = piece // blocks, piece % blocks * ROWS
        of_head = keys[head * size :], values[head * size :]
        _attend(job, head, first, min(ROWS, rows - first), *of_head, own_keys, own_values)


@native
def _span(seen: Any, taken: int) -> tuple[int, int]:
    """The range of a row's own entries that it attends to, as first and end.

    A sample that began long after the others uses few of many entries.
    """
    begin, end = 0, taken
    while begin < taken and not seen[begin]:
        begin += 1
    while end > begin and not seen[end - 1]:
        end -= 1
    return begin, end


@native
def _attend(
    job: Any, head: int, first: int, count: int, keys: Any, values: Any, all_own_keys: Any,
    all_own_values: Any,
) -> None:  # fmt: skip
    """Attends for some rows of a head."""
    prompt, heads = head // job.kv_heads, job.prompts * job.kv_heads
    width, in_prompt, taken = job.width, _int(job.lengths, prompt), _int(job.taken, 0)
    offset = 4 * (head * job.samples * job.queries + first) * width
    q, out = _floats(job.q + offset, count * width), _floats(job.mixed + offset, count * width)
    all_seen = job.seen + prompt * job.samples * job.length * job.capacity
    seen = numba.carray(xla_calls.bytes_at(all_seen), (job.samples, job.length, job.capacity))

    first_own = (_int(job.layer, 0) * heads + head) * job.samples
    own, entries = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        sample, query = (first + i) // job.queries, (first + i) % job.queries
        begin, end = _span(seen[sample, query % job.length], taken)
        own[i], entries[i] = ((first_own + sample) * job.capacity + begin) * width, end - begin
    if entries.max() == 0:  # all rows are idle
        out[:] = 0.0
        return

    peaks, weights = np.empty(ROWS, np.float32), np.empty(ROWS, np.float32)
    mixed = np.zeros(count * width, np.float32)
    scores = np.empty(rounded_up(max(taken, in_prompt)), np.float32)
    if count <= _FEW_ROWS:
        for i in range(count):
            peaks[i] = score(q, i * width, keys, in_prompt, width, seen[0, 0, :0], scores)
            weights[i] = weigh(scores, in_prompt, peaks[i])
            mix(scores, values, in_prompt, width, mixed, i * width, np.float32(1))
    else:
        meet_prompt(q, count, keys, values, in_prompt, width, peaks, weights, mixed)

    line = 64 // all_own_keys.itemsize
    for i in range(count):
        sample, query = (first + i) // job.queries, (first + i) % job.queries
        own_keys, own_values = all_own_keys[own[i] :], all_own_values[own[i] :]
        # A row's own entries are read once: without a prefetch, a core would wait for each first
        # one.
        for at in range(0, entries[i] * width, line):
            prefetch(own_values, at)
        if query == job.queries - 1 and i < count - 1:
            for at in range(own[i + 1], own[i + 1] + entries[i + 1] * width, line):
                prefetch(all_own_keys, at)
        begin = own[i] // width - (first_own + sample) * job.capacity
        sees = seen[sample, query % job.length, begin:]
        peak = max(peaks[i], score(q, i * width, own_keys, entries[i], width, sees, scores))
        scale = exp_of_one(peaks[i] - peak)
        weight = weights[i] * scale + weigh(scores, entries[i], peak)
        mix(scores, own_values, entries[i], width, mixed, i * width, scale)
        share = repeated(np.float32(1) / weight)
        for at in range(i * width, (i + 1) * width, WIDTH):
            store(out, at, load(mixed, at) * share)


@numba.cfunc(types.int64(types.int64), cache=True)
def _task(address: int) -> int:
    """The task of each additional thread."""
    _work(address)
    xla_calls.end_task(address)
    return 0


_NAME = "gophercite_shared_prompt_attention"
_TASK = "gophercite_shared_prompt_attention_task"
xla_calls.publish(_TASK, _task)


@numba.cfunc(types.int64(types.int64), cache=True)
def _handle(frame: int) -> int:
    """The handler that XLA calls."""
    if xla_calls.only_says_version(frame):
        return 0
    address = xla_calls.result(frame, 1)
    xla_calls.begin(address)
    job = numba.carray(_job_at(address), 1)[0]
    job.q = xla_calls.argument(frame, 0)
    job.prompt_keys = xla_calls.argument(frame, 1)
    job.prompt_values = xla_calls.argument(frame, 2)
    job.own_keys = xla_calls.argument(frame, 3)
    job.own_values = xla_calls.argument(frame, 4)
    job.seen = xla_calls.argument(frame, 5)
    job.lengths = xla_calls.argument(frame, 6)
    job.taken = xla_calls.argument(frame, 7)
    job.layer = xla_calls.argument(frame, 8)
    job.mixed = xla_calls.result(frame, 0)
    job.bfloat16 = xla_calls.is_bfloat16(frame, 1)
    job.prompts = xla_calls.size(frame, 0, 0)
    job.kv_heads = xla_calls.size(frame, 0, 1)
    job.samples = xla_calls.size(frame, 0, 2)
    job.queries = xla_calls.size(frame, 0, 3)
    job.width = xla_calls.size(frame, 0, 4)
    job.entries = xla_calls.size(frame, 1, 2)
    job.length = xla_calls.size(frame, 5, 2)
    job.capacity = xla_calls.size(frame, 5, 3)

    heads, rows = job.prompts * job.kv_heads, job.samples * job.queries
    products = 2 * heads * rows * (job.entries + _int(job.taken, 0)) * job.width
    threads = min(heads * _blocks(rows), products // _WORTH_A_THREAD)
    if threads > 1:
        xla_calls.hand_out(frame, address, xla_calls.address_of(_TASK), threads)
    _work(address)
    xla_calls.end_task(address)
    return 0


xla_calls.register(_NAME, _handle)


def shared_prompt_attention(
    q: Float[Array, "prompts kv_heads samples queries head_dim"],
    prompt_keys: Float[Array, "prompts kv_heads length head_dim"],
    prompt_values: Float[Array, "prompts kv_heads length head_dim"],
    own_keys: Float[Array, "*rows capacity head_dim"],
    own_values: Float[Array, "*rows capacity head_dim"],
    seen: Bool[Array, "prompts samples new capacity"],
    lengths: Int[Array, " prompts"],
    taken: Int[Array, ""],
    layer: Int[Array, ""],
) -> Float[Array, "prompts kv_heads samples queries head_dim"]:
    """Attends from new tokens to their prompt, which samples share, and to their sample's tokens.

    Args:
      q: scaled queries; for each sample, the query heads that share a key head in order, and within
        each of them all new tokens in order.
      prompt_keys: the prompts' keys.
      prompt_values: the prompts' values.
      own_keys: keys of each sample's own tokens: [prompts, kv_heads, samples, capacity, head_dim],
        or with a leading axis of layers; axes of size 1 may be dropped.
      own_values: the same for values.
      seen: which of its sample's own entries each new token attends to, including itself; a token
        that attends to none is padding, and its result is finite but meaningless.
      lengths: number of tokens in each prompt; each new token attends to all of them, and not to
        padding.
      taken: no token attends to own entries from here on.
      layer: index of the layer in own keys and values; 0 without a layer axis.

    Returns:
      The weighted values, in float32.

    Raises:
      TypeError: keys and values are neither all float32 nor all bfloat16.
    """
    dtypes = {x.dtype for x in (prompt_keys, prompt_values, own_keys, own_values)}
    if len(dtypes) > 1 or not dtypes <= {jnp.dtype("float32"), jnp.dtype("bfloat16")}:
        names = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"keys and values are {names}; all must be float32, or all bfloat16")
    q = q.astype(jnp.float32)
    job = jax.ShapeDtypeStruct((_JOB.itemsize,), jnp.uint8)
    call = jax.ffi.ffi_call(_NAME, (jax.ShapeDtypeStruct(q.shape, q.dtype), job))
    mixed, _ = call(
        q, prompt_keys, prompt_values, own_keys, own_values, seen, lengths, taken, layer
    )
    return mixed

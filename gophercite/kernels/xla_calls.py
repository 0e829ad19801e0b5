"""Compiled numba functions as operations of XLA's CPU programs, on all of its threads.

XLA calls a function with the address of a call frame. No Python runs in such a call, and no thread
waits in it: the function writes a *job*, lets XLA's threads take pieces of it, works on pieces
itself and returns; the thread that finishes last signals that the result is ready.
"""

import ctypes
from typing import Any

import jax
import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from gophercite.kernels import xla_interface as xla
from gophercite.kernels.intrinsics import operation
from gophercite.native import native

_WORD = ir.IntType(64)


def _place(builder: Any, args: Any) -> Any:
    """Pointer to the word at an index from an address (the two arguments)."""
    return builder.gep(builder.inttoptr(args[0], _WORD.as_pointer()), [args[1]])


@operation
def word(typing: Any, address: Any, index: Any) -> Any:
    """The 64-bit word at an index from an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(builder, args))

    return types.int64(types.int64, types.int64), generate


@operation
def set_word(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Writes such a word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _place(builder, args))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@operation
def _add_to_word(typing: Any, address: Any, index: Any, more: Any) -> Any:
    """Atomically adds to such a word; returns its previous value."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _place(builder, args), args[2], "seq_cst")

    return types.int64(types.int64, types.int64, types.int64), generate


@operation
def _call(typing: Any, function: Any, argument: Any) -> Any:
    """Calls a function at an address; argument and result are words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        llvm_type = ir.FunctionType(_WORD, [_WORD]).as_pointer()
        return builder.call(builder.inttoptr(args[0], llvm_type), [args[1]])

    return types.int64(types.int64, types.int64), generate


@operation(prefer_literal=True)
def address_of(typing: Any, name: Any) -> Any:
    """The address of a function registered with `publish`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        llvm_type = ir.FunctionType(_WORD, [_WORD])
        symbol = signature.args[0].literal_value
        function = cgutils.get_or_insert_function(builder.module, llvm_type, symbol)
        return builder.ptrtoint(function, _WORD)

    return types.int64(name), generate


def _pointer(element: ir.Type, numba_type: types.Type) -> Any:
    @operation
    def at(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], element.as_pointer())

        return types.CPointer(numba_type)(types.int64), generate

    return at


# For arrays at an address: `numba.carray(floats_at(address), shape)`.
floats_at = _pointer(ir.FloatType(), types.float32)
ints_at = _pointer(ir.IntType(32), types.int32)
halves_at = _pointer(ir.IntType(16), types.uint16)
bytes_at = _pointer(ir.IntType(8), types.uint8)


def records_at(dtype: np.dtype) -> Any:
    """Like `floats_at`, for records of a structured dtype."""
    record = numba.from_dtype(dtype)

    @operation
    def at(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(record)(types.int64), generate

    return at


@native
def only_says_version(frame: int) -> bool:
    """Handles calls in which XLA only asks for a handler's version; returns whether it was one."""
    extension = word(frame, xla.EXTENSION)
    if extension == 0 or word(extension, xla.EXTENSION_TYPE) & 0xFFFFFFFF != xla.ASKS_FOR_METADATA:
        return False
    set_word(word(extension, xla.METADATA), xla.VERSION, (xla.MINOR << 32) | xla.MAJOR)
    return True


@native
def argument(frame: int, i: int) -> int:
    """The address of an argument's elements."""
    return word(word(word(frame, xla.ARGUMENTS), i), xla.DATA)


@native
def result(frame: int, i: int) -> int:
    """The address of a result's elements."""
    return word(word(word(frame, xla.RESULTS), i), xla.DATA)


@native
def size(frame: int, i: int, axis: int) -> int:
    """An argument's size along an axis."""
    return word(word(word(word(frame, xla.ARGUMENTS), i), xla.DIMS), axis)


@native
def is_bfloat16(frame: int, i: int) -> bool:
    """Whether an argument's dtype is bfloat16."""
    return word(word(word(frame, xla.ARGUMENTS), i), xla.DTYPE) & 0xFFFFFFFF == xla.BFLOAT16


# A job's first words; the work's own data follows. The job is in a result buffer of the call, which
# XLA keeps until the future is complete.
_NEXT_PIECE, _TASKS_LEFT, _JOB_API, _JOB_FUTURE, _REQUEST = range(5)
JOB_HEADER = _REQUEST + 6


@native
def begin(job: int) -> None:
    """Initialises a job at an address: no piece is taken, and one thread works on it."""
    for i in range(JOB_HEADER):
        set_word(job, i, 0)
    set_word(job, _TASKS_LEFT, 1)


@native
def next_piece(job: int) -> int:
    """Takes the next piece of work; pieces are numbered from 0, without an upper limit."""
    return _add_to_word(job, _NEXT_PIECE, 1)


@native
def _request(job: int, function: int, x: int, y: int, z: int) -> bool:
    """Calls an XLA function with a structure of up to three fields; returns True on success."""
    # First its size, which may be too large, and no extensions.
    for i, value in enumerate((40, 0, x, y, z)):
        set_word(job, _REQUEST + i, value)
    api = word(job, _JOB_API)
    error = _call(word(api, function), job + 8 * _REQUEST)
    if error != 0:
        set_word(job, _REQUEST + 2, error)
        _call(word(api, xla.DESTROY_ERROR), job + 8 * _REQUEST)
    return error == 0


@native
def hand_out(frame: int, job: int, task: int, most: int) -> None:
    """Lets XLA's threads take pieces of a job; the caller must then work on pieces, too.

    Args:
      frame: the call frame.
      job: a job that `begin` has initialised.
      task: address of a function of the job that works until no piece is left and then calls
        `end_task`.
      most: maximum number of useful threads, including the caller's.
    """
    set_word(job, _JOB_API, word(frame, xla.API))
    context, number = word(frame, xla.CONTEXT), _REQUEST + 5
    known = _request(job, xla.NUM_THREADS, context, job + 8 * number, 0)
    tasks = min(most, word(job, number)) if known else 1
    if tasks <= 1 or not _request(job, xla.NEW_FUTURE, 0, 0, 0):
        return
    set_word(job, _TASKS_LEFT, tasks)
    future = word(job, _REQUEST + 2)
    set_word(job, _JOB_FUTURE, future)
    set_word(frame, xla.FUTURE, future)
    for _ in range(tasks - 1):
        if not _request(job, xla.SCHEDULE, context, task, job):
            _add_to_word(job, _TASKS_LEFT, -1)


@native
def end_task(job: int) -> None:
    """Ends a thread's task; the last thread to end tells XLA that the result is ready."""
    if _add_to_word(job, _TASKS_LEFT, -1) == 1 and word(job, _JOB_FUTURE) != 0:
        _request(job, xla.SET_AVAILABLE, word(job, _JOB_FUTURE), 0, 0)


def publish(name: str, function: Any) -> None:
    """Names a `numba.cfunc`, so that functions compiled later find it with `address_of(name)`."""
    llvmlite.binding.add_symbol(name, function.address)


def register(name: str, handler: Any) -> None:
    """Registers a `numba.cfunc`, which takes a frame's address, as an operation of XLA on CPU.

    Args:
      name: the operation's name, for `jax.ffi.ffi_call`.
      handler: the function, which returns 0. It must stay referenced as long as the process may
        call it.
    """
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    jax.ffi.register_ffi_target(name, new_capsule(handler.address, None, None), platform="cpu")

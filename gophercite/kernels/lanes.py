"""SIMD vectors of sixteen floats in numba functions, held in registers.

LLVM compiles an operation on them to what the machine has: one instruction with AVX-512, two with
AVX2, four on ARM. LLVM's automatic vectorisation only works where it can prove that it is safe, so
a fast kernel vectorises explicitly.
"""

import operator
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, overload, register_model

from gophercite.kernels.intrinsics import call_llvm, operation

WIDTH = 16  # number of floats in a `Lanes`

# Number of rows in a tile of `add_products`. With two lanes each, and the operands, they fill the
# registers of a machine with AVX-512; others have fewer.
_asked: str | None = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
_features = _asked or llvmlite.binding.get_host_cpu_features().flatten()
TILE = 8 if "+avx512f" in _features else 4

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(32)
_LANES, _BITS = ir.VectorType(_FLOAT, WIDTH), ir.VectorType(_INDEX, WIDTH)


class Lanes(types.Type):
    """The type of sixteen floats."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes{WIDTH}")


lanes = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Lanes) -> None:
        super().__init__(manager, numba_type, _LANES)


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Pointer to an element of a one-dimensional array; the arguments are array and index."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


def _is_flat(array: types.Type, *elements: types.Type) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.dtype in elements


def _read(builder: Any, array: types.Array, place: Any, count: int) -> Any:
    """Reads one float, or sixteen, at a pointer into an array."""
    wide = lambda element: element if count == 1 else ir.VectorType(element, count)  # noqa: E731
    if array.dtype == types.float32:
        place = builder.bitcast(place, wide(_FLOAT).as_pointer())
        return builder.load(place, align=4)
    place = builder.bitcast(place, wide(ir.IntType(16)).as_pointer())
    bits = builder.zext(builder.load(place, align=2), wide(_INDEX))
    sixteen = ir.Constant(_INDEX, 16) if count == 1 else _bits(16)
    return builder.bitcast(builder.shl(bits, sixteen), wide(_FLOAT))


def _reading(count: int, numba_type: types.Type) -> Callable:
    def typed(typing: Any, array: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _place(context, builder, signature, args)
            return _read(builder, signature.args[0], place, count)

        wanted = _is_flat(array, types.float32, types.uint16)
        return (numba_type(array, types.intp), generate) if wanted else None

    return typed


def _writing(llvm_type: ir.Type, numba_type: types.Type) -> Callable:
    def typed(typing: Any, array: Any, at: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _place(context, builder, signature, args)
            builder.store(args[2], builder.bitcast(place, llvm_type.as_pointer()), align=4)
            return context.get_dummy_value()

        signature = types.void(array, types.intp, numba_type)
        return (signature, generate) if _is_flat(array, types.float32) else None

    return typed


# Load or store one float of an array, or sixteen from an index on: `load(array, at)`, `store(array,
# at, value)`. Unlike `array[at]`, they do not check for negative indices. Arrays are float32, or
# for loads also bfloat16, whose bits numba sees as uint16.
load_one = operation(_reading(1, types.float32))
store_one = operation(_writing(_FLOAT, types.float32))
load = operation(_reading(WIDTH, lanes))
store = operation(_writing(_LANES, lanes))


@operation
def prefetch(typing: Any, array: Any, at: Any) -> Any:
    """Prefetches the cache line of an array element that is needed soon."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        to_read, into_second_level, data = (ir.Constant(_INDEX, flag) for flag in (0, 2, 1))
        kinds = (to_read, into_second_level, data)
        call_llvm(builder, "llvm.prefetch.p0", ir.VoidType(), place, *kinds)
        return context.get_dummy_value()

    wanted = _is_flat(array, types.float32, types.uint16)
    return (types.void(array, types.intp), generate) if wanted else None


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_LANES, [value] * WIDTH)


def _bits(value: int) -> ir.Constant:
    return ir.Constant(_BITS, [value] * WIDTH)


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return call_llvm(builder, f"llvm.fmuladd.v{WIDTH}f32", _LANES, x, y, z)


def _repeated(builder: Any, x: Any) -> Any:
    nothing = ir.Constant(_LANES, ir.Undefined)
    one = builder.insert_element(nothing, x, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(one, nothing, _bits(0))


@operation
def repeated(typing: Any, x: Any) -> Any:
    """Broadcasts a float to all sixteen lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _repeated(builder, args[0])

    return lanes(types.float32), generate


@operation
def multiply_add(typing: Any, x: Any, y: Any, z: Any) -> Any:
    """`x * y + z`, fused if the machine has such an instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _multiply_add(builder, *args)

    return lanes(lanes, lanes, lanes), generate


def _of_two(emit: Callable[[Any, Any, Any], Any]) -> Callable:
    @operation
    def of_two(typing: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, *args)

        return lanes(lanes, lanes), generate

    return of_two


_added = _of_two(lambda builder, x, y: builder.fadd(x, y))
_subtracted = _of_two(lambda builder, x, y: builder.fsub(x, y))
_multiplied = _of_two(lambda builder, x, y: builder.fmul(x, y))
larger = _of_two(lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))


def _lend(symbol: Callable, function: Callable) -> None:
    """Implements an operator between two `Lanes` by a function."""

    @overload(symbol, strict=False)
    def _operator(x: Any, y: Any) -> Any:
        return (lambda x, y: function(x, y)) if x is lanes and y is lanes else None


_lend(operator.add, _added)
_lend(operator.sub, _subtracted)
_lend(operator.mul, _multiplied)


@operation
def total(typing: Any, x: Any) -> Any:
    """The sum of all sixteen lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, start = f"llvm.vector.reduce.fadd.v{WIDTH}f32", ir.Constant(_FLOAT, 0.0)
        return call_llvm(builder, name, _FLOAT, start, args[0], fastmath=("reassoc",))

    return types.float32(lanes), generate


# exp on [-ln(2) / 2, ln(2) / 2], highest power first: Cephes' single-precision polynomial.
_POLYNOMIAL: tuple[float, ...] = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_LN_2 = (0.693359375, -2.12194440e-4)  # in two parts, the first with few digits
_LEAST = -87.0  # below this, exp is not a normal float


@operation
def exp_of_negative(typing: Any, x: Any) -> Any:
    """The exponential of non-positive numbers, to 2e-7 of its value; 0 below -87, NaN for NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (x,) = args
        fits = builder.fcmp_unordered(">", x, _constant(_LEAST))
        x = builder.select(fits, x, _constant(_LEAST))
        # A float of this size has no fractional bits: adding it rounds to an integer, which is then
        # in the sum's lowest bits.
        big = _constant(1.5 * 2**23)
        shifted = _multiply_add(builder, x, _constant(1.4426950408889634), big)
        power = builder.fsub(shifted, big)
        rest = x
        for part in _LN_2:
            rest = _multiply_add(builder, power, _constant(-part), rest)
        value = _constant(_POLYNOMIAL[0])
        for coefficient in _POLYNOMIAL[1:]:
            value = _multiply_add(builder, value, rest, _constant(coefficient))
        squared = builder.fmul(rest, rest)
        value = _multiply_add(builder, value, squared, builder.fadd(rest, _constant(1.0)))
        exponent = builder.add(builder.bitcast(shifted, _BITS), _bits(127))
        scale = builder.bitcast(builder.shl(exponent, _bits(23)), _LANES)
        return builder.select(fits, builder.fmul(value, scale), _constant(0.0))

    return lanes(lanes), generate


def _products(height: int, halves: int) -> Callable:
    @operation
    def add_products(
        typing: Any, sums: Any, at: Any, left: Any, first: Any, down: Any, along: Any,
        right: Any, count: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            make = lambda i: context.make_array(signature.args[i])(  # noqa: E731
                context, builder, args[i]
            )
            left_type = signature.args[2]
            sums, left, right = (make(i).data for i in (0, 2, 6))
            at, first, down, along, count = (args[i] for i in (1, 3, 4, 5, 7))
            offset = lambda i: ir.Constant(ir.IntType(64), i)  # noqa: E731

            def lanes_at(base: Any, index: Any, half: int) -> Any:
                place = builder.gep(base, [builder.add(index, offset(half * WIDTH))])
                return builder.bitcast(place, _LANES.as_pointer())

            tile = [(row, half) for row in range(height) for half in range(halves)]
            places = {
                (row, half): lanes_at(sums, builder.add(at, offset(halves * WIDTH * row)), half)
                for row, half in tile
            }
            held = {key: cgutils.alloca_once(builder, _LANES) for key in tile}
            for key in tile:
                builder.store(builder.load(places[key], align=4), held[key])
            with cgutils.for_range(builder, count) as loop:
                row_at = builder.mul(loop.index, offset(halves * WIDTH))
                row_of = [
                    builder.load(lanes_at(right, row_at, half), align=4) for half in range(halves)
                ]
                place = builder.add(first, builder.mul(loop.index, along))
                for row in range(height):
                    here = builder.add(place, builder.mul(down, offset(row)))
                    one = _read(builder, left_type, builder.gep(left, [here]), 1)
                    factor = _repeated(builder, one)
                    for half in range(halves):
                        held_at = held[row, half]
                        so_far = builder.load(held_at)
                        sum_ = _multiply_add(builder, row_of[half], factor, so_far)
                        builder.store(sum_, held_at)
            for key in tile:
                builder.store(builder.load(held[key]), places[key], align=4)
            return context.get_dummy_value()

        flat = types.float32[::1]
        index = types.intp
        wanted = _is_flat(left, types.float32, types.uint16)
        signature = types.void(flat, index, left, index, index, index, flat, index)
        return (signature, generate) if wanted else None

    return add_products


# Adds a matrix product to a tile of `TILE` rows of two lanes each: to row i, for each k < count,
# `left[first + i * down + k * along]` times row k of `right`. The tile, which is in `sums` from
# `at` on, stays in registers during this. The other variants have one row, or one lane per row.
add_products_to_tile, add_products_to_row = _products(TILE, 2), _products(1, 2)
add_products_to_narrow_tile, add_products_to_narrow_row = _products(TILE, 1), _products(1, 1)


@numba.njit(inline="always")
def zeros() -> Any:
    """Sixteen lanes of zeros."""
    return repeated(numba.float32(0.0))

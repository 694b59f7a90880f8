"""Four numbers at a time, for loops too short for the compiler's own vectoriser: those over the taps of a window.

No index is checked: a caller keeps [start, start + LANES) within a one-dimensional array of float64. A function here
gets the types of its arguments, and returns its signature and what generates its code.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types

from regard.attention.loops import Loop

LANES = 4
CONTRACT = ("contract",)  # a product and a sum may be rounded once
intrinsic: Callable[[Loop], Loop] = extending.intrinsic  # its own types do not know the first argument
VECTOR, INDEX = ir.VectorType(ir.DoubleType(), LANES), ir.IntType(32)


class Vector(types.Type):
    """LANES numbers of float64, in a register."""


@extending.register_model(Vector)
class VectorModel(extending.models.PrimitiveModel):
    """A vector is what LLVM calls one."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


vector = Vector("Vector")


def _address(context: Any, builder: Any, array_type: Any, array: Any, start: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), VECTOR.as_pointer())


@intrinsic
def load(_: Any, array: Any, start: Any) -> Any:
    """array[start : start + LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=8)

    return vector(array, types.intp), generate


@intrinsic
def store(_: Any, array: Any, start: Any, values: Any) -> Any:
    """array[start : start + LANES] = values."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature.args[0], *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def combine(_: Any, addend: Any, factor: Any, values: Any) -> Any:
    """addend + factor · values, of a number and two vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        addend, number, numbers = arguments
        nothing, lanes = ir.Constant(VECTOR, ir.Undefined), ir.VectorType(INDEX, LANES)
        one = builder.insert_element(nothing, number, ir.Constant(INDEX, 0))
        repeated = builder.shuffle_vector(one, nothing, ir.Constant(lanes, [0] * LANES))
        return builder.fadd(builder.fmul(repeated, numbers, flags=CONTRACT), addend, flags=CONTRACT)

    return vector(vector, types.float64, vector), generate


@intrinsic
def total(_: Any, left: Any, right: Any) -> Any:
    """The dot product of two vectors, summed in pairs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        products = builder.fmul(*arguments)
        a, b, c, d = (builder.extract_element(products, ir.Constant(INDEX, lane)) for lane in range(LANES))
        return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))

    return types.float64(vector, vector), generate

"""Four numbers at a time, for loops too short for the compiler's own vectoriser: those over the taps of a window.

No index is checked: a caller keeps [start, start + LANES) within a one-dimensional array of float64.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, models, register_model

from regard.attention.loops import Loop

LANES = 4
CONTRACT = ("contract",)  # a product and a sum may be rounded once
Builder = Any


class Vector(types.Type):
    """LANES numbers of float64, in a register."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is what LLVM calls one."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.DoubleType(), LANES))


vector = Vector()


def operation(define: Loop) -> Loop:
    """One that compiled loops can call: define(_, *types) returns its signature and what generates its code."""
    made: Loop = intrinsic(define)
    return made


def _address(context: Any, builder: Builder, array_type: Any, array: Any, start: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), ir.VectorType(ir.DoubleType(), LANES).as_pointer())


@operation
def load(_: Any, array: Any, start: Any) -> Any:
    """array[start : start + LANES]."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=8)

    return vector(array, types.intp), generate


@operation
def store(_: Any, array: Any, start: Any, values: Any) -> Any:
    """array[start : start + LANES] = values."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature.args[0], *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@operation
def combine(_: Any, addend: Any, factor: Any, values: Any) -> Any:
    """addend + factor · values, of a number and two vectors."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        addend, number, numbers = arguments
        kind, lanes = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(32), LANES)
        one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        repeated = builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(lanes, [0] * LANES))
        return builder.fadd(builder.fmul(repeated, numbers, flags=CONTRACT), addend, flags=CONTRACT)

    return vector(vector, types.float64, vector), generate


@operation
def total(_: Any, left: Any, right: Any) -> Any:
    """The dot product of two vectors, summed in pairs."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        products = builder.fmul(*arguments)
        a, b, c, d = (builder.extract_element(products, ir.Constant(ir.IntType(32), lane)) for lane in range(LANES))
        return builder.fadd(builder.fadd(a, b), builder.fadd(c, d))

    return types.float64(vector, vector), generate

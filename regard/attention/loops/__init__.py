"""Loops compiled by numba, a module for each engine. Imported only when a call needs them (threads.load_kernels).

Each runs in the thread that calls it, without the GIL, on the share [start, stop) of the work that it is given; shares
write to different places, so how the work is shared changes no bit of the result.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
import numba.extending
from numba import cfunc, njit, types
from numpy.typing import NDArray

Array = NDArray[Any]
Loop = Callable[..., Any]
carray: Any = numba.carray  # type: ignore[attr-defined]  # an array at an address
intrinsic: Any = numba.extending.intrinsic


def compiled(*liberties: str, inline: bool = False) -> Callable[[Loop], Loop]:
    """Compile for each dtype when it first comes, and keep the result on disk. `liberties` are LLVM's fast-math flags.

    inline: put into its callers, for what is called so often that passing arrays takes longer than the work.

    None of them is "nnan" or "ninf", so a NaN in an incoming gradient comes out where it should.
    """

    def decorate(function: Loop) -> Loop:
        dispatcher = njit(nogil=True, error_model="numpy", fastmath=set(liberties), forceinline=inline)(function)
        with suppress(RuntimeError):  # no folder can be written to, the user's own included: compile in every process
            dispatcher.enable_caching()
            _forgive_older(dispatcher)
        return dispatcher

    return decorate


def task(function: Loop) -> Any:
    """Compile a function of one address, where its arguments lie as int64: for threads that know nothing of Python."""
    signature = types.void(types.intp)
    try:
        return cfunc(signature, cache=True)(function)
    except RuntimeError:  # no folder can be written to
        return cfunc(signature)(function)


@intrinsic
def pointer(_: Any, address: Any) -> Any:
    """An address as numba.carray takes it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(address), generate


@intrinsic
def take(_: Any, address: Any) -> Any:
    """The number at an address, to which 1 is added: every thread that asks gets another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(types.intp)
        return builder.atomic_rmw("add", builder.inttoptr(arguments[0], number.as_pointer()), number(1), "monotonic")

    return types.intp(address), generate


def _forgive_older(dispatcher: Any) -> None:
    """Let numba compile anew where what an older version has left on disk names classes that are not there any more."""
    cache = dispatcher._cache
    load = cache.load_overload

    def load_overload(*key: Any) -> Any:
        try:
            return load(*key)
        except (ImportError, AttributeError):
            return cache.flush()  # which writes an empty one, and returns None: there is nothing to load

    cache.load_overload = load_overload

"""Attention that other libraries compute, followed operation by operation, for the observers of attention/observers.py.

While a `Tracker` is open, a TorchDispatchMode, it sees every operation of this thread, lets it run, and keeps how each
tensor came about (lineage.py). PyTorch's fused functions attend by themselves (fused_calls.py); attention that is
written out is complete where its weights are multiplied with values (averages.py). Nothing of PyTorch is replaced, and
what the model computes stays the same in every bit, unless an editor (attention/observers.py) changes an output. What
looks like attention and cannot be understood is reported as `Unrecognised`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _python_dispatch as dispatch_modes
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention.capture import Recorder
from regard.attention.observers import AttentionCall, has_editors
from regard.view import axes as ax
from regard.view import axis_rules
from regard.view.averages import Average, Product, State, Weights, combined
from regard.view.fused_calls import FINISH, FUSED, FusedCall
from regard.view.lineage import SEVERAL, SOFTMAX, Lineage, Operation
from regard.view.reports import Reports, constructed, is_named, running, tensors_in

OPERATIONS: dict[Any, Operation] = {}  # that were met so far
# Called before each operation that is followed: raises where the work has to end. A recurrent net is one operation to
# its caller, and thousands here.
CHECK: ContextVar[Callable[[], None]] = ContextVar("CHECK", default=lambda: None)
Computed = Average | FusedCall
PRODUCTS = {"bmm": (0, 1), "mm": (0, 1), "mv": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}


class EditError(RuntimeError):
    """An edit that cannot be carried out where the model computes its attention."""


class EditFailed(Exception):
    """Carries an error of an edit, which is the caller's, past those of following operations, which are ours."""


@dataclass(eq=False)
class Edited:
    """What was made of a call, for the trackers that follow it as well.

    result: what the operation returned, or what took its place · call: None: its edits are still to be made
    """

    result: Tensor
    call: AttentionCall | None = None
    _waiting: list[Callable[[AttentionCall], object]] = field(default_factory=list)

    def receive(self, function: Callable[[AttentionCall], object]) -> None:
        """Call a function with the call as soon as that is edited."""
        if self.call is None:
            self._waiting.append(function)
        else:
            function(self.call)

    def close(self, call: AttentionCall) -> None:
        """The call is edited."""
        self.call, waiting, self._waiting = call, self._waiting, []
        for function in waiting:
            function(call)


class Tracker(TorchDispatchMode):
    """Follows the operations of a model within a block, and delivers all of its attention in this thread.

    recorder: knows the model's modules, and what is wanted · edits: of the calls; None: they stay as they are. Without
    any, nothing is followed

    reports: what is not understood · edited: the call that it edited last · paused: whether it follows nothing
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs as it would without this mode."""
        return True

    def __init__(self, recorder: Recorder, edits: Sequence[object] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder, self.paths, self.edits = recorder, recorder.paths, edits
        self.edited: Edited | None = None
        self.paused = False
        self.reports = Reports(recorder)
        self.lineage = Lineage(self.reports)
        self.after: list[Callable[[], None]] = []  # what has to wait for the end of an operation

    def __exit__(self, *error: Any) -> None:
        """Modes that were opened later and are still open stay so, as those of other tasks of asyncio."""
        modes = dispatch_modes._get_current_dispatch_mode_stack()
        depth = modes.index(self) + 1 if self in modes else len(modes)
        with lifted(depth, torch._C._len_torch_dispatch_stack, dispatch_modes):
            super().__exit__(*error)  # type: ignore[no-untyped-call]

    # ------------------------------------------------------------------------------------------------ the operations

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and follow it."""
        CHECK.get()()
        options = kwargs or {}
        while self.after:
            self.after.pop()()
        if torch._C._current_graph_task_id() != -1:  # a backward pass, which may compute attention again
            return func(*args, **options)
        operation = OPERATIONS.get(func) or OPERATIONS.setdefault(func, Operation(func))
        if operation.name == "empty":
            made = constructed(sys._getframe(1), args)
            if made is not None:
                return made
        self.edited = None
        if self.paused or (self.edits is not None and not self.edits):
            return func(*args, **options)
        if operation.is_composite and self._is_whole(operation, types, args):
            with operation.as_outside(), self:
                result = func.decompose(*args, **options)
            if result is not NotImplemented:
                return result
        # Whatever goes wrong in following is reported, and the model runs on as it would have.
        if operation.writes:
            try:
                self.lineage.before_writing(operation, args)
            except Exception as error:
                self.reports.fail(func, error)
        with operation.as_outside():
            result = func(*args, **options)
        try:
            made = self._follow(operation, args, options, result)
            # What the operation has written into is what the model goes on with, not what it returns.
            return result.copy_(made) if operation.writes and made is not result else made
        except EditError:
            raise
        except EditFailed as failed:  # the answer would not be the one that was asked for
            raise failed.args[0] from None
        except Exception as error:
            self.reports.fail(func, error)
            return result

    def _is_whole(self, operation: Operation, types: Any, args: Sequence[Any]) -> bool:
        """Whether an operation is to be taken apart: in inference mode composite ones come as they are."""
        if types or not torch.is_inference_mode_enabled():
            return False
        if operation.name == "linear" and self.lineage.state(args[1]).learned:
            return False
        nested = any(tensor.is_nested for tensor in tensors_in(args))
        return not nested and operation.name not in FUSED

    def _follow(self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], result: Any) -> Any:
        name, func = operation.name, operation.func
        if name in FUSED:
            return self._fused(FusedCall(func, name, args, options, self.lineage), result)
        if operation.is_custom:
            self.reports.custom(operation.name, args, result)
        if isinstance(result, (list, tuple)):
            for number, part in enumerate(result if name in SEVERAL else result[:1]):
                if isinstance(part, Tensor) and part.is_floating_point() and not part.is_nested:
                    state = self.lineage.result(operation, args, options, part, number)
                    self.lineage.remember(part, state or State(ax.first_axes(part)))
        if not isinstance(result, Tensor):
            return result
        if result.is_nested:
            return self._nested(name, args, result)
        real = result.is_floating_point() or result.is_complex() or self.lineage.is_followed(args)
        # Random numbers are drawn by the model, as for dropout, or for it, as an input.
        if self._module() is None if operation.is_random else not real:
            return result
        if name in PRODUCTS:
            left, right = (args[place] for place in PRODUCTS[name])
            return self._multiply(left, right, result, alone="add" not in name)
        state = self.lineage.result(operation, args, options, result)
        if state is None:
            return result
        self.lineage.remember(result, state)
        return self._weighted_sum(state, result) if state.stage == "summed" else result

    # ------------------------------------------------------------------------------------------------------- products

    def _multiply(self, left: Tensor, right: Tensor, result: Tensor, *, alone: bool) -> Tensor:
        """(batch, n, k) × (batch, k, m), or without a batch, or × (k,)."""
        one, other = self.lineage.state(left), self.lineage.state(right)
        if right.dim() == 1:
            other = replace(other, _axes=(*other.axes, ()))
        learned_left, learned_right = one.learned > 0, other.learned > 0
        if learned_left and learned_right and (one.learned, other.learned) != (2, 2):  # learned vectors, projected
            learned_left = one.learned > other.learned
            learned_right = not learned_left
        make = axis_rules.multiplied(learned_left, learned_right, other.stage == "weights")
        whole = state = State(None, parents=(one, other), make=make, shape=(*result.shape, 1)[: left.dim()])
        if result.dim() < left.dim():
            state = State(None, parents=(whole,), make=lambda axes: axes[:-1], shape=result.shape)
        state.learned = 2 if one.learned == other.learned == 2 else 0
        self.lineage.remember(result, state)
        if learned_left or learned_right:
            state.stage, state.record = other.mixed(-2) if learned_left else one.mixed(-1)
            return result
        records = combined(one, other)
        if records:
            for record in records:
                self.reports.withdraw(record)
            state.stage, state.record = "mixed", records
            return result
        for weights, tensor, values in ((one, left, right), (other, right, left)):
            if weights.stage == "weights":
                flipped = weights is other  # values × weights, both transposed
                free, contracted = weights.axes[-2:][:: -1 if flipped else 1]
                size = whole.axes[-2 if flipped else -1]
                clean, others = weights.before or (tensor, weights.axes), ax.flat(weights.axes[:-2])
                average = Average(weights.record, *clean, contracted, free, others, values, size, flipped, alone)
                if average.is_attention:
                    return self._complete(average, result, state)
            if weights.stage == "exp" and weights.record.product is not None and not weights.record.reported:
                weights.record.reported = True
                reason = "exponentials are averaged before their sum is known"
                self.reports.report(self._module(), "exp", result.shape, reason)
        product = Product(self._module(), tuple(result.shape), whole)
        if self.recorder.operands or has_editors():
            product.left, product.right = left, right
        state.stage, state.record = "scores", product
        if is_named(product.module):
            self.reports.products.append(product)
        return result

    def _weighted_sum(self, state: State, result: Tensor) -> Tensor:
        """(weights[…, None] · values).sum(keys)"""
        record, contracted, (weights, axes) = state.record
        state.stage, state.record = "output", record
        rest = [axis for axis in record.axes if axis != contracted]
        positions = [axis for axis in rest if not any(map(ax.is_projected, axis))]
        free = positions[-1] if len(positions) > 1 else ()  # the first of several is a batch
        leading = ax.flat([axis for axis in rest if axis is not free])
        average = Average(record, weights, axes, contracted, free, leading, None, ())
        return self._complete(average, result, state) if average.is_attention else result

    def _complete(self, average: Average, result: Tensor, state: State) -> Tensor:
        """A call, from its weights to its output."""
        record, module, problem = average.record, self._module() or average.record.module, average.problem
        state.stage, state.record = "output", record
        if record.averaged and self.edits is None:  # other values by the same weights, which are known already
            return result
        if record in self.reports.pending:
            self.reports.pending.remove(record)
        if problem is not None:
            self.reports.withdraw(record, problem)
            return result
        record.reported = record.averaged = True
        if record.product is not None:
            record.product.averaged = True
        return self._deliver(average, module, result)

    # ---------------------------------------------------------------------------------------------------------- calls

    def _deliver(self, computed: Computed, module: nn.Module | None, result: Tensor) -> Tensor:
        if module is None:
            return result
        # A call is edited once, by the first that follows it; the others take what that has made of it.
        known = (tracker.edited for tracker in trackers())
        edited = next((one for one in known if one is not None and one.result is result), None)
        return self.deliver(computed, module, result, edited)

    def deliver(self, computed: Computed, module: nn.Module, result: Tensor, edited: Edited | None) -> Tensor:
        """Report a call; or edit it, unless another tracker has, and return what takes the place of the result."""
        raise NotImplementedError

    def deliver_known(self, call: AttentionCall) -> None:
        """Report a call of which no more than the weights is known."""
        raise NotImplementedError

    def call(self, computed: Computed, module: nn.Module, result: Tensor) -> AttentionCall:
        """A call that knows how many of its module came before."""
        axes = () if result.is_nested else self.lineage.state(result).axes
        with paused():
            call = computed.call(module, result, axes, self.recorder.operands or has_editors())
        self.reports.calls[module] += 1
        return replace(call, index=(id(self), self.reports.calls[module] - 1))

    def name(self, module: nn.Module) -> str:
        """The path of a module, or the class of the model."""
        return self.paths[module] or type(module).__name__

    def _fused(self, computed: FusedCall, result: Any) -> Any:
        """A function that attends by itself."""
        output = result[0] if isinstance(result, (list, tuple)) else result
        if isinstance(output, Tensor) and not output.is_nested:
            self.lineage.remember(output, computed.output_state(output))
        module = self._module()
        if module is None:
            return result
        if computed.is_nested and computed.name not in FINISH:  # nested tensors are understood by the fast paths only
            self.reports.report(module, computed.name, output.shape, "its queries are a nested tensor")
            return result
        made = self._deliver(computed, module, output)
        if made is output:
            return result
        return (made, *result[1:]) if isinstance(result, (list, tuple)) else made

    def _nested(self, name: str, args: Sequence[Any], result: Tensor) -> Tensor:
        """Nested tensors have no axes to follow, but PyTorch multiplies them in one way only."""
        states = (self.lineage.known(tensor) for tensor in tensors_in(args))
        state = next((state for state in states if state is not None and state.stage), State(()))
        stage, record = state.stage, state.record
        module = self._module()
        if name in SOFTMAX:
            self.lineage.remember(result, State((), "weights", Weights(None, record, module=module, nested=result)))
        elif name == "matmul" and stage == "weights":
            if module is None:
                return result
            self.reports.calls[module] += 1
            known = record.nested.to_padded_tensor(0.0)  # (batch, heads, n, m)
            self.deliver_known(AttentionCall(module, known[..., :0], known.mT[..., :0], known=known))
        elif name == "matmul":
            self.lineage.remember(result, State((), "scores", Product(module, ())))
        elif stage:
            self.lineage.remember(result, State((), stage, record))
        return result

    def located(self, call: AttentionCall) -> AttentionCall:
        """A call of `regard.attend`, with the module that it is in and what its axes say."""
        module = call.module if call.module is not None else running(self.paths)
        if module is not None:
            self.reports.calls[module] += 1
        query, key = self.lineage.known(call.query), self.lineage.known(call.key)
        cross = call.cross
        if cross is None and query is not None and key is not None and call.query.dim() > 1:
            cross = not ax.related(query.axes[-2], key.axes[-2])
        return replace(call, module=module, cross=cross)

    def _module(self) -> nn.Module | None:
        return running(self.paths, ours=False)

    def close(self) -> None:
        """Do what waits for the end of an operation, and report what is left."""
        while self.after:
            self.after.pop()()
        self.reports.close()


def trackers() -> list[Tracker]:
    """Those that follow what is computed now, the first one first."""
    return [mode for mode in dispatch_modes._get_current_dispatch_mode_stack() if isinstance(mode, Tracker)]


@contextmanager
def paused() -> Iterator[None]:
    """Within this block no tracker that is open follows anything: what it computes is not the model's."""
    followers = [tracker for tracker in trackers() if not tracker.paused]
    for tracker in followers:
        tracker.paused = True
    try:
        yield
    finally:
        for tracker in followers:
            tracker.paused = False


@contextmanager
def lifted(depth: int, count: Callable[[], int], stack: Any) -> Iterator[None]:
    """Within this block the modes that are higher than `depth` on a stack of modes are not on it."""
    above = []
    while count() > depth:
        above.append(stack._pop_mode())
    yield
    while above:
        stack._push_mode(above.pop())

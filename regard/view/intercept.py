"""Attention that other libraries compute, followed operation by operation, for the observers of attention/observers.py.

While an `intercept` is open, a TorchDispatchMode sees every operation of this thread, lets it run, and keeps for each
tensor where its axes come from (axes.py) and what it is on the way from scores to an average:

    product → scores → exp, softmax → weights → product with values: here the call is complete, and is reported

PyTorch's fused functions are recognised as such. Nothing of PyTorch is replaced, and what the model computes stays the
same in every bit. What looks like attention and cannot be understood is reported as `Unrecognised`.
"""

from __future__ import annotations

import functools
import linecache
import re
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention.observers import AttentionCall, Observer, edited, has_editors, observe
from regard.view import axes as ax
from regard.view.axes import Axes, Axis
from regard.view.fused_calls import FUSED, nested_call

__all__ = ["EditError", "Tracker", "Unrecognised", "intercept"]

aten = torch.ops.aten
ATTENTION = re.compile(r"att(entio)?n", re.IGNORECASE)  # in the names of classes
OURS = ("regard.attention", "regard.models")  # which notify observers themselves
PENDING = 8  # weights that are kept for a product that may still come


@dataclass(frozen=True)
class Unrecognised:
    """Attention, or what looks like it, whose weights could not be understood.

    name: path of the module · operation: what it computed · shape: of the result · reason: why it is not a map
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.operation} {self.shape}: {self.reason}"


class EditError(RuntimeError):
    """An edit that cannot be carried out where the model computes its attention."""


class Product:
    """Scores: a product of two tensors, neither of them learned.

    left, right: the operands (batch, n, size) and (batch, size, m), if they are wanted, with their axes
    """

    def __init__(self, module: nn.Module | None, shape: Sequence[int]) -> None:
        self.module, self.shape = module, tuple(shape)
        self.left: tuple[Tensor, Axes] | None = None
        self.right: tuple[Tensor, Axes] | None = None
        self.used = False


class Weights:
    """What may turn out to be attention weights, when it is multiplied with values.

    tensor, axes: the weights as they came out of a softmax · normalized: the axis along which they add up to 1; None:
    they need not · scores, product: what they were made of, as far as known
    """

    def __init__(self, scores: Tensor | None, product: Product | None) -> None:
        self.scores, self.product = scores, product
        self.tensor: Tensor | None = None
        self.axes: Axes = ()
        self.normalized: Axis | None = None
        self.module: nn.Module | None = None
        self.reported = False
        self.delivered: Any = None  # what the observer made of the complete call


class State:
    """What is known of a tensor: its axes, and its stage on the way from scores to an average.

    stage: "" · "scores" (of a Product) · "exp", "total", "log", "weights", "weighted" (of Weights) · "output" (of a call)
    """

    __slots__ = ("axes", "record", "reference", "stage")

    def __init__(self, axes: Axes, stage: str = "", record: Any = None) -> None:
        self.axes, self.stage, self.record = axes, stage, record
        self.reference: weakref.ref[Tensor] | None = None


def arrange(tensor: Tensor, axes: Axes, groups: Sequence[Axis]) -> Tensor:
    """A tensor with one dimension for each group of factors."""
    factors, sizes = ax.spread(axes)
    order = [factors.index(factor) for group in groups for factor in group]
    if sorted(order) != list(range(len(factors))):
        raise ValueError("its axes are mixed")
    shape = [-1 if not tensor.numel() else _count(group) for group in groups]
    return tensor.reshape(sizes).permute(order).reshape([_count(group) for group in groups] if -1 in shape else shape)


def restore(tensor: Tensor, axes: Axes, groups: Sequence[Axis], shape: Sequence[int]) -> Tensor:
    """The inverse of `arrange`: a tensor of this shape."""
    factors, _ = ax.spread(axes)
    ordered = [factor for group in groups for factor in group]
    spread = tensor.reshape([ax.size_of(factor) for factor in ordered])
    return spread.permute([ordered.index(factor) for factor in factors]).reshape(shape)


def _count(axis: Axis) -> int:
    return ax.axis_size(axis)


@contextmanager
def intercept(
    model: nn.Module, observer: Observer | None, *, operands: bool = False, gradients: bool = False
) -> Iterator[Tracker]:
    """Within this block the observer is called for all attention of the model in this thread.

    observer: None: calls are only edited · operands, gradients: what is wanted beside the weights
    """
    tracker = Tracker(model, observer, operands, gradients)
    with ExitStack() as block:
        if observer is not None:
            block.enter_context(observe(lambda call: observer(tracker.located(call))))
        block.enter_context(tracker)
        yield tracker


class Tracker(TorchDispatchMode):
    """Follows the operations of a model, and reports its attention."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs as it would without this mode."""
        return True

    def __init__(self, model: nn.Module, observer: Observer | None, operands: bool, gradients: bool) -> None:
        super().__init__()
        self.paths = {module: path for path, module in model.named_modules()}
        self.observer, self.operands, self.gradients = observer, operands, gradients
        self.unrecognised: list[tuple[nn.Module | None, Unrecognised]] = []
        self.after: list[Callable[[], None]] = []  # what has to wait for the end of an operation
        self.reserve: Callable[[nn.Module], object] = lambda module: None
        self._states: dict[int, State] = {}
        self._parameters = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self._pending: deque[Weights] = deque(maxlen=PENDING)
        self._products: list[Product] = []
        self._strangers: dict[nn.Module, tuple[int, ...]] = {}
        self._complete: set[nn.Module] = set()  # modules with a call that was understood
        self._failed: set[str] = set()
        self.withdrawn: list[Any] = []  # what the observer has made of calls that turned out to be parts of others

    # ------------------------------------------------------------------------------------------------ the operations

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and follow it."""
        options = dict(kwargs or {})
        if self.after:
            self._finish()
        if torch._C._current_graph_task_id() != -1:  # a backward pass, which may compute attention again
            return func(*args, **options)
        packet = getattr(func, "overloadpacket", func)
        if packet is aten.empty:
            made = _constructed(sys._getframe(1), args)
            if made is not None:
                return made
        if _is_composite(func) and (packet not in FUSED or args[0].is_nested):  # in inference mode they come whole
            with self:
                result = func.decompose(*args, **options)
            if result is not NotImplemented:
                return result
        try:
            self._save_from_writing(func, args)
        except Exception as error:  # the model goes on; what was not understood is reported
            self._fail(func, error)
        result = func(*args, **options)
        try:
            return self._follow(func, packet, args, options, result)
        except EditError:
            raise
        except Exception as error:
            self._fail(func, error)
            return result

    @property
    def wants_operands(self) -> bool:
        """Whether queries, keys, values and outputs of calls are needed."""
        return self.operands or has_editors()

    def _finish(self) -> None:
        while self.after:
            self.after.pop()()

    def _follow(self, func: Any, packet: Any, args: Sequence[Any], options: dict[str, Any], result: Any) -> Any:
        fused = FUSED.get(packet)
        if fused is not None:
            return self._fused(fused, func, args, options, result)
        if isinstance(result, Tensor):
            if result.is_nested:
                return self._nested(packet, args, result)
            if not result.is_floating_point():
                return result
            product = PRODUCTS.get(packet)
            if product is not None:
                return self._multiply(*(args[place] for place in product), packet, result)
            state = self._result(func, packet, args, options, result)
            if state is not None:
                self._remember(result, state)
            if state is not None and state.stage == "summed":
                return self._weighted_sum(state, result)
        elif isinstance(result, (list, tuple)):
            for number, part in enumerate(result):
                if isinstance(part, Tensor) and part.is_floating_point() and not part.is_nested:
                    self._remember(part, self._part(packet, args, options, part, number))
        return result

    def _state(self, tensor: Tensor) -> State:
        state = self._states.get(id(tensor))
        if state is None or state.reference is None or state.reference() is not tensor:
            learned = id(tensor) in self._parameters or isinstance(tensor, nn.Parameter)
            state = State(ax.first_axes(tensor, learned))
            self._remember(tensor, state)
            if not learned and tensor.dim() > 2 and tensor.is_floating_point():
                module = self.module()
                if module is not None and ATTENTION.search(type(module).__name__):
                    self._strangers.setdefault(module, tuple(tensor.shape))
        return state

    def _axes(self, tensor: Tensor) -> Axes:
        return self._state(tensor).axes

    def _remember(self, tensor: Tensor, state: State) -> None:
        number, states = id(tensor), self._states

        def forget(reference: weakref.ref[Tensor]) -> None:
            if number in states and states[number].reference is reference:
                del states[number]

        state.reference = weakref.ref(tensor, forget)
        states[number] = state

    def _result(
        self, func: Any, packet: Any, args: Sequence[Any], options: dict[str, Any], result: Tensor
    ) -> State | None:
        """What is known of an operation's result."""
        if packet is aten.cat or packet is aten.stack:
            return self._concatenated(packet, args, options, result)
        if packet is aten.embedding:
            return State((*ax.first_axes(args[1]), ax.fresh(result.shape[-1])))
        first = args[0] if args and isinstance(args[0], Tensor) else None
        rule = ax.RULES.get(packet)
        if rule is not None and first is not None:
            state = self._state(first)
            arguments = (*args[1:], *(options[name] for name in ("dim", "start", "end", "step") if name in options))
            made = State(rule(state.axes, arguments, result, self._axes), state.stage, state.record)
            return self._reduced(packet, state, made) if rule is ax.reduced else made
        if torch.Tag.pointwise in func.tags or packet in POINTWISE:
            return self._pointwise(packet, args, result)
        if packet in SOFTMAX and first is not None:
            return self._softmax(packet, first, args[1], result)
        if first is None:
            return None
        if first.is_nested:
            return None
        return State(ax.other_axes(first, self._axes(first), result)) if first.is_floating_point() else None

    def _part(self, packet: Any, args: Sequence[Any], options: dict[str, Any], part: Tensor, number: int) -> State:
        """What is known of one of several results: a piece of a tensor that was split, dropout's, …"""
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None or first.is_nested:
            return State(ax.first_axes(part))
        state = self._state(first)
        dim = args[2] if len(args) > 2 else options.get("dim", 0)
        if packet in SPLITS:
            sizes = args[1] if isinstance(args[1], (list, tuple)) else [args[1]] * (number + 1)
            rule = ax.RULES[aten.slice]
            return State(rule(state.axes, (dim, sum(sizes[:number])), part, self._axes), state.stage, state.record)
        if packet is aten.unbind:
            dim = args[1] if len(args) > 1 else options.get("dim", 0)
            return State(ax.RULES[aten.select](state.axes, (dim,), part, self._axes))
        same = part.shape == first.shape
        kept = (state.stage, state.record) if packet is aten.native_dropout and same else ("", None)
        if packet in REDUCTIONS:
            return State(ax.RULES[aten.amax](state.axes, args[1:], part, self._axes))
        return State(ax.other_axes(first, state.axes, part), *kept)

    def _concatenated(self, packet: Any, args: Sequence[Any], options: dict[str, Any], result: Tensor) -> State | None:
        tensors = [tensor for tensor in args[0] if tensor.dim() > 1 or result.dim() == 1]
        dim = (args[1] if len(args) > 1 else options.get("dim", 0)) % result.dim()
        states = [self._state(tensor) for tensor in tensors]
        made = list(states[0].axes)
        if packet is aten.stack:
            made.insert(dim, ax.fresh(result.shape[dim]))
        else:
            made[dim] = ax.joined([state.axes[dim] for state in states if state.axes[dim] or True])
        stages = {state.stage for state in states}
        scores = next((state for state in states if state.stage == "scores"), None)  # with a column for a sink, perhaps
        if scores is not None and stages <= {"scores", ""}:
            return State(tuple(made), "scores", scores.record)
        return State(tuple(made))

    # ----------------------------------------------------------------------------------------- from scores to weights

    def _pointwise(self, packet: Any, args: Sequence[Any], result: Tensor) -> State:
        """A result with one element for each of its operands'."""
        operands = [(tensor, self._state(tensor)) for tensor in _flat(args) if tensor.is_floating_point()]
        operands = [(tensor, state) for tensor, state in operands if not tensor.is_nested]
        operands.sort(key=lambda operand: STAGES.index(operand[1].stage))  # what is further on the way decides
        axes = ax.broadcast(result.shape, [(tensor, state.axes) for tensor, state in operands])
        if not operands:
            return State(axes)
        stage, record = operands[0][1].stage, operands[0][1].record
        others = [state for _, state in operands[1:]]
        if packet is aten.exp:
            return self._exponential(result, axes, operands[0][0], stage, record)
        if stage == "exp" and packet in (aten.div, aten.mul):
            total = next((state for state in others if state.stage == "total" and state.record is record), None)
            if total is not None:
                return self._weights(record, result, axes, record.normalized)
        if stage == "scores" and packet in NONLINEAR:
            return self._weights(Weights(None, record), result, axes, None)
        if packet is aten.sub:
            total = next((state for state in others if state.stage == "lse"), None)
            if total is not None:
                return State(axes, "log", total.record)
        if stage == "weights" and any(state.stage == "weights" and state.record is not record for state in others):
            return State(axes, "mixed", [record, *(state.record for state in others if state.stage == "weights")])
        if stage == "weights" and packet is aten.mul and _adds_axes(axes, record.axes):
            return State(axes, "weighted", record)
        return State(axes, stage, record)

    def _exponential(self, result: Tensor, axes: Axes, scores: Tensor, stage: str, record: Any) -> State:
        if stage == "log":
            return self._weights(record, result, axes, record.normalized)
        return State(axes, "exp", Weights(scores, record if stage == "scores" else None))

    def _softmax(self, packet: Any, scores: Tensor, dim: int, result: Tensor) -> State:
        state = self._state(scores)
        record = Weights(scores, state.record if state.stage == "scores" else None)
        record.normalized = state.axes[dim]
        if packet in LOG_SOFTMAX:
            return State(state.axes, "log", record)
        return self._weights(record, result, state.axes, record.normalized)

    def _weights(self, record: Weights, result: Tensor, axes: Axes, normalized: Axis | None) -> State:
        record.tensor, record.axes, record.normalized = result, axes, normalized
        record.module = self.module()
        record.reported = record.module is None
        if record.product is not None:
            record.product.used = True
        if len(self._pending) == PENDING:
            self._give_up(self._pending.popleft())
        self._pending.append(record)
        return State(axes, "weights", record)

    def _reduced(self, packet: Any, before: State, made: State) -> State:
        """Sums over an axis: of exponentials, of weighted values, of scores in logarithms."""
        gone = [axis for axis in before.axes if axis and axis not in made.axes]
        if packet is aten.sum and before.stage == "exp" and len(gone) == 1:
            before.record.normalized = gone[0]
            return State(made.axes, "total", before.record)
        if packet is aten.sum and before.stage == "weighted" and len(gone) == 1:
            state = State(made.axes, "summed", before.record)
            state.record = (before.record, gone[0])
            return state
        if packet is aten.logsumexp and len(gone) == 1:
            record = Weights(None, before.record if before.stage == "scores" else None)
            record.normalized = gone[0]
            return State(made.axes, "lse", record)
        return State(made.axes)

    def _save_from_writing(self, func: Any, args: Sequence[Any]) -> None:
        """Weights that the model is about to write into are copied before."""
        schema = getattr(func, "_schema", None)
        if schema is None or not schema.is_mutable or not args or not isinstance(args[0], Tensor):
            return
        target = self._states.get(id(args[0]))
        if target is not None and target.stage == "weights" and target.record.tensor is not None:
            if _shares(target.record.tensor, args[0]):
                target.record.tensor = target.record.tensor.clone()
        if func.overloadpacket in (aten.index_copy_, aten.copy_, aten.index_put_) and target is not None:
            self._link(target, args)

    def _link(self, target: State, args: Sequence[Any]) -> None:
        """A buffer that is written into, as the cache of a decoder, belongs to the sequence of what is written."""
        source = next((one for one in reversed(_flat(args)) if one is not args[0] and one.is_floating_point()), None)
        if source is None or source.dim() != len(target.axes):
            return
        for place, axis in enumerate(self._axes(source)):
            for root in ax.roots(target.axes[place]):
                root.parents.update(other for other in ax.roots(axis) if other is not root)

    # --------------------------------------------------------------------------------------------- products, and calls

    def _multiply(self, left: Tensor, right: Tensor, packet: Any, result: Tensor) -> Tensor:
        """(batch, n, k) × (batch, k, m), or without a batch."""
        one, other = self._state(left), self._state(right)
        learned, learned_left = ax.is_parameter(other.axes), ax.is_parameter(one.axes)
        rows, columns = one.axes[-2], other.axes[-1]
        batch = one.axes[:-2]
        if batch and (ax.is_copied(batch[0]) or learned_left) and not learned:
            batch = other.axes[:-2]
        if learned:
            state = State((*batch, ax.unfolded(rows), ax.projected(columns)))
        elif learned_left:
            state = State((*batch, ax.projected(rows), ax.unfolded(columns)))
        else:
            columns = tuple(ax.twin(factor) if factor in rows else factor for factor in columns)
            state = State((*batch, rows, columns))
        records = _mixed(one, other)
        if records:
            for record in records:
                self._withdraw(record)
            self._remember(result, State(state.axes, "mixed", records))
            return result
        for weights, values, flipped in ((one, right, False), (other, left, True)):
            if weights.stage == "weights" and not (learned if not flipped else learned_left):
                contracted = weights.axes[-2] if flipped else weights.axes[-1]
                free = weights.axes[-1] if flipped else weights.axes[-2]
                if self._averages(weights.record, contracted):
                    self._remember(result, state)
                    return self._complete_call(weights, contracted, free, values, result, state, flipped)
            if weights.stage == "exp" and weights.record.product is not None and not weights.record.reported:
                weights.record.reported = True
                self._report(self.module(), "exp", weights.axes, "exponentials are averaged before they are normalised")
        if not learned and not learned_left and packet is not aten.addmm:
            self._begin(left, right, one, other, state, result)
        self._remember(result, state)
        return result

    def _begin(self, left: Tensor, right: Tensor, one: State, other: State, state: State, result: Tensor) -> None:
        """A product of two tensors, which may be scores."""
        module = self.module()
        product = Product(module, result.shape)
        if self.wants_operands:
            product.left, product.right = (left, one.axes), (right, (*other.axes[:-1], state.axes[-1]))
        state.stage, state.record = "scores", product
        if module is not None and ATTENTION.search(type(module).__name__):
            self._products.append(product)

    def _averages(self, record: Weights, contracted: Axis) -> bool:
        """Whether a product along this axis averages values: the weights add up to 1 along it, or are of two tensors."""
        if record.tensor is None or record.module is None:
            return False
        if record.normalized is not None and _part_of(contracted, record.normalized):
            if record.product is None and any(map(ax.is_projected, contracted)):
                return False  # a router, a code book, classes
            return True
        return record.product is not None

    def _complete_call(
        self, weights: State, contracted: Axis, free: Axis, values: Tensor, result: Tensor, state: State, flipped: bool
    ) -> Tensor:
        record: Weights = weights.record
        batch = tuple(factor for axis in weights.axes[:-2] for factor in axis)
        groups = _groups(record, batch, free, contracted)
        module = self.module() or record.module
        problem = self._problem(record, contracted, groups)
        if problem is not None:
            self._report(module, "softmax", record.axes, problem)
            record.reported = True
            return result
        call = self._call(record, module, groups, contracted)
        size: Axis = state.axes[-2] if flipped else state.axes[-1]
        layout = [*groups[:3], size]
        if self.wants_operands:
            value = _values(values.mT if flipped else values, batch, groups)
            call = replace(call, value=value, output=arrange(result, state.axes, layout))
        weights_of = record.tensor
        if self.gradients and weights_of is not None and weights_of.requires_grad:

            def watch(receive: Callable[[Tensor], None]) -> None:
                weights_of.register_hook(lambda gradient: receive(arrange(gradient, record.axes, groups)))

            call = replace(call, watch=watch)
        self._done(record, module)
        state.stage, state.record = "output", record
        return self._deliver(call, result, lambda value: restore(value, state.axes, layout, result.shape), record)

    def _weighted_sum(self, state: State, result: Tensor) -> Tensor:
        """(weights[…, None] · values).sum(keys)"""
        record, contracted = state.record
        state.stage, state.record = "output", record
        if not self._averages(record, contracted):
            return result
        rest = [axis for axis in record.axes if axis != contracted]
        free: Axis = ()
        named = record.product is None or not any(map(ax.is_projected, (f for axis in rest for f in axis)))
        candidates = [axis for axis in rest if not any(map(ax.is_projected, axis))]
        if (named and len(candidates) > 1) or len(candidates) > 1:
            free = candidates[-1]
        batch = tuple(factor for axis in rest if axis is not free for factor in axis)
        groups = _groups(record, batch, free, contracted, by_rank=False)
        module = self.module() or record.module
        problem = self._problem(record, contracted, groups)
        if problem is not None:
            self._report(module, "softmax", record.axes, problem)
            record.reported = True
            return result
        self._done(record, module)
        return self._deliver(self._call(record, module, groups, contracted), result, None, record)

    def _problem(self, record: Weights, contracted: Axis, groups: Sequence[Axis]) -> str | None:
        """Why a call cannot be a map."""
        if record.reported:
            return "its weights are multiplied with others" if record.module is not None else "it was reported already"
        if any(map(ax.is_opaque, (*groups[2], *groups[3]))):
            return "its queries or keys are gathered or folded: their positions are not known"
        if record.normalized is not None and contracted != record.normalized:
            missing = _count(record.normalized) - _count(contracted)
            if _part_of(contracted, record.normalized) and missing != 1:
                return "its weights are used in parts"
        return None

    def _call(
        self, record: Weights, module: nn.Module | None, groups: Sequence[Axis], contracted: Axis
    ) -> AttentionCall:
        """The complete call, with weights (batch, heads, n, m)."""
        assert record.tensor is not None
        tensor, axes, sink = record.tensor, record.axes, None
        normalized = record.normalized
        if normalized is not None and contracted != normalized and _part_of(contracted, normalized):
            with_sink = arrange(tensor, axes, (*groups[:3], normalized))
            known = with_sink[..., : _count(contracted)]
            sink = with_sink[..., _count(contracted) :].sum(-1)
        else:
            known = arrange(tensor, axes, groups)
        scores = None
        if record.scores is not None and record.scores.shape == tensor.shape:
            scores = arrange(record.scores, axes, (*groups[:3], normalized or contracted))[..., : known.shape[-1]]
        query, key = known[..., :0], known.mT[..., :0]
        if record.product is not None and record.product.left is not None and record.product.right is not None:
            query, key = self._scored(record.product, groups, query, key)
        related = ax.related(groups[2], groups[3]) if groups[2] and groups[3] else None
        return AttentionCall(
            module,
            query,
            key,
            cross=None if related is None else not related,
            known=known,
            scores=scores,
            sink=sink,
            positions=ax.positions(groups[2]),
            key_positions=ax.positions(groups[3]),
        )

    def _scored(self, product: Product, groups: Sequence[Axis], query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """The queries and the keys (batch, heads, n or m, size) that were multiplied."""
        assert product.left is not None
        assert product.right is not None
        (left, left_axes), (right, right_axes) = product.left, product.right
        batch = tuple(factor for axis in left_axes[:-2] for factor in axis)
        rows, columns = left_axes[-2], right_axes[-1]
        try:
            one = arrange(left, left_axes, (*_shares_of(batch, rows, groups), left_axes[-1]))
            other = arrange(right.mT, (*left_axes[:-2], columns, right_axes[-2]), (
                tuple(f for f in batch if f in groups[0]), tuple(f for f in batch if f in groups[1]), columns,
                right_axes[-2]))  # fmt: skip
        except ValueError:
            return query, key
        return (one, other) if any(factor in groups[3] for factor in columns) or not columns else (other, one)

    def _deliver(
        self,
        call: AttentionCall,
        result: Tensor,
        back: Callable[[Tensor], Tensor] | None,
        record: Weights | None = None,
    ) -> Tensor:
        """Edit a call, and report it or return the result that takes the place of the model's."""
        changed = edited(call)
        if self.observer is not None:
            delivered = self.observer(changed)
            if record is not None:
                record.delivered = delivered
            return result
        if changed.output is call.output:
            return result
        if back is None:
            raise EditError(f"{self.paths[call.module] if call.module else 'a call'}: here outputs cannot be edited")
        assert changed.output is not None
        state = self._states.get(id(result))
        replaced = back(changed.output)
        if state is not None:
            self._remember(replaced, State(state.axes, state.stage, state.record))
        return replaced

    def _withdraw(self, record: Weights) -> None:
        """Weights that are multiplied with others are no map by themselves."""
        if record.delivered is not None:
            self.withdrawn.append(record.delivered)
        if record.delivered is not None or not record.reported:
            self._report(record.module, "softmax", record.axes, "its weights are combined with others")
        record.delivered, record.reported = None, True

    def _done(self, record: Weights, module: nn.Module | None) -> None:
        record.reported = True
        if record in self._pending:
            self._pending.remove(record)
        if module is not None:
            self._complete.add(module)
        if record.product is not None and record.product.module is not None:
            self._complete.add(record.product.module)

    # -------------------------------------------------------------------------------------- PyTorch's fused functions

    def _fused(self, read: Any, func: Any, args: Sequence[Any], options: dict[str, Any], result: Any) -> Any:
        """A function that attends by itself. `read` makes its call."""
        module = self.module()
        output = result[0] if isinstance(result, (list, tuple)) else result
        if module is not None:
            call = read(func, args, options, output, self._axes)
            if isinstance(call, str):
                self._report(module, str(func), ax.first_axes(output), call)
            else:
                self._complete.add(module)
                call = replace(call, module=module)
                if self.gradients and call.output is not None:
                    call = replace(
                        call, watch=lambda receive: self.after.append(lambda: self._hook(call, output, receive))
                    )
                back = None if call.output is None else lambda value: value.reshape(output.shape)
                changed = self._deliver(call, output, back)
                if changed is not output:
                    result = (changed, *result[1:]) if isinstance(result, (list, tuple)) else changed
                    output = changed
        if (
            isinstance(output, Tensor)
            and not output.is_nested
            and isinstance(args[0], Tensor)
            and not args[0].is_nested
        ):
            first = self._axes(args[0])
            same = output.dim() == len(first)
            axes = (
                (*first[:-1], self._axes(args[2])[-1])
                if same and len(args) > 2 and isinstance(args[2], Tensor)
                else None
            )
            if axes is not None and tuple(map(_count, axes)) == tuple(output.shape):
                self._remember(output, State(axes, "output"))
            elif output.shape == args[0].shape:
                self._remember(output, State(first, "output"))
        return result

    def _hook(self, call: AttentionCall, output: Tensor, receive: Callable[[Tensor], None]) -> None:
        """Wait for the gradient of an output, which has a history only when the operation is over."""
        if output.requires_grad:
            assert call.output is not None
            shape = call.output.shape
            held = replace(call, watch=None, output=output)
            output.register_hook(lambda given: receive(held.weights_gradient(given.reshape(shape))))

    def _nested(self, packet: Any, args: Sequence[Any], result: Tensor) -> Tensor:
        """Nested tensors have no axes to follow, but PyTorch multiplies them in one way only."""
        tensors = [(tensor, self._states.get(id(tensor))) for tensor in _flat(args)]
        stage, record = next(((state.stage, state.record) for _, state in tensors if state and state.stage), ("", None))
        if packet in SOFTMAX:
            record = Weights(None, record)
            record.tensor, record.module = result, self.module()
            self._remember(result, State((), "weights", record))
        elif packet is aten.matmul and stage == "weights" and record.module is not None:
            self._complete.add(record.module)
            self._deliver(nested_call(record.module, record.tensor), result, None)
        elif packet is aten.matmul:
            self._remember(result, State((), "scores", Product(self.module(), ())))
        elif stage:
            self._remember(result, State((), stage, record))
        return result

    # ------------------------------------------------------------------------------------------------ where, and what not

    def module(self) -> nn.Module | None:
        """The innermost module of the model that is running, or None; None also within regard's own functions."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name.startswith(OURS):
                return None
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                module = frame.f_locals.get("self")
                if isinstance(module, nn.Module) and module in self.paths and not isinstance(module, PARTS):
                    return module
            frame = frame.f_back
        return None

    def located(self, call: AttentionCall) -> AttentionCall:
        """A call of `regard.attend`, with the module that it is in and what its axes say."""
        module = call.module if call.module is not None else _calling(self.paths)
        if module is not None:
            self._complete.add(module)
        query, key = (self._states.get(id(tensor)) for tensor in (call.query, call.key))
        cross = call.cross
        if cross is None and query is not None and key is not None and call.query.dim() > 1:
            cross = not ax.related(query.axes[-2], key.axes[-2])
        return replace(call, module=module, cross=cross)

    def _report(self, module: nn.Module | None, operation: str, axes: Axes, reason: str) -> None:
        if module is None:
            return
        self.reserve(module)
        found = Unrecognised(self.paths[module], operation, tuple(map(_count, axes)), reason)
        if not any(other == found for _, other in self.unrecognised):
            self.unrecognised.append((module, found))

    def _give_up(self, record: Weights) -> None:
        """Weights that were never multiplied with values."""
        named = record.module is not None and ATTENTION.search(type(record.module).__name__)
        if not record.reported and (record.product is not None or named):
            self._report(record.module, "softmax", record.axes, "its weights are not multiplied with values")
        record.tensor = record.scores = None
        record.reported = True

    def _fail(self, func: Any, error: Exception) -> None:
        if str(func) not in self._failed:
            self._failed.add(str(func))
            self.unrecognised.append((None, Unrecognised("", str(func), (), f"{type(error).__name__}: {error}")))

    def close(self) -> None:
        """Report what is left when the block ends."""
        self._finish()
        while self._pending:
            self._give_up(self._pending.popleft())
        known = {module for module, _ in self.unrecognised} | self._complete
        for product in self._products:
            if not product.used and product.module not in known:
                known.add(product.module)
                shape = tuple(ax.fresh(size) for size in product.shape)
                self._report(product.module, "product", shape, "its products are not turned into weights")
        for module, shape in self._strangers.items():
            if module not in known and not any(other in known for other in module.modules()):
                axes = tuple(ax.fresh(size) for size in shape)
                self._report(module, "unknown", axes, "it was computed where no operation can be seen: compiled code?")
        self._states.clear()


PARTS = (nn.Softmax, nn.LogSoftmax, nn.Dropout, nn.Identity)  # of a module that attends
PRODUCTS = {aten.bmm: (0, 1), aten.mm: (0, 1), aten.addmm: (1, 2), aten.baddbmm: (1, 2)}
SOFTMAX = (aten._softmax, aten._safe_softmax, aten._log_softmax, aten.softmax, aten.log_softmax)
LOG_SOFTMAX = (aten._log_softmax, aten.log_softmax)
SPLITS = (aten.split, aten.split_with_sizes)
REDUCTIONS = (aten.max, aten.min)
NONLINEAR = (aten.sigmoid, aten.relu, aten.clamp, aten.clamp_min, aten.threshold)
POINTWISE = (
    aten._to_copy, aten.clone, aten.detach, aten.alias, aten.contiguous, aten.masked_fill, aten.where, aten.dropout,
    aten.masked_fill_, aten.lift_fresh, aten.native_dropout, aten.bernoulli_, aten.tril, aten.triu,
)  # fmt: skip
STAGES = ["mixed", "weighted", "weights", "exp", "log", "scores", "total", "lse", "output", "summed", ""]


def _flat(args: Any) -> list[Tensor]:
    """All tensors in arguments."""
    if isinstance(args, Tensor):
        return [args]
    return [tensor for one in args for tensor in _flat(one)] if isinstance(args, (list, tuple)) else []


_composite: dict[Any, bool] = {}


def _is_composite(func: Any) -> bool:
    if func not in _composite:
        _composite[func] = isinstance(func, torch._ops.OpOverload) and func._can_decompose()
    return _composite[func]


def _adds_axes(axes: Axes, weights: Axes) -> bool:
    """Whether a product has an axis that the weights have not, as that of the values' size is."""
    own = {factor for axis in weights for factor in axis}
    return any(factor not in own and ax.size_of(factor) > 1 for axis in axes for factor in axis)


def _mixed(one: State, other: State) -> list[Weights]:
    """The weights of two factors, where weights are multiplied with weights, or with an average by others."""
    averaging = ("weights", "mixed")
    if one.stage in averaging and other.stage in averaging or "mixed" in (one.stage, other.stage):
        records = [state.record for state in (one, other) if state.stage in (*averaging, "output") and state.record]
        return [weights for record in records for weights in (record if isinstance(record, list) else [record])]
    return []


def _part_of(contracted: Axis, normalized: Axis) -> bool:
    """Whether one axis is the other, or a piece of it."""
    if contracted == normalized:
        return True
    if len(contracted) != 1 or len(normalized) != 1:
        return False
    places = {(root, start + step) for root, start, length in normalized[0] for step in range(length)}
    return all((root, start + step) in places for root, start, length in contracted[0] for step in range(length))


def _groups(
    record: Weights, batch: Axis, free: Axis, contracted: Axis, by_rank: bool = True
) -> tuple[Axis, Axis, Axis, Axis]:
    """The factors of batch, heads, queries and keys.

    Heads are what enumerates outputs of a learned matrix. Where nothing says so, they are the last of several leading
    axes, as PyTorch's own attention has it.
    """
    positions = tuple(factor for factor in free if not ax.is_projected(factor))
    queries = positions or free
    leading = (*batch, *(factor for factor in free if factor not in queries))
    heads = tuple(factor for factor in leading if ax.is_projected(factor))
    if not heads and by_rank:
        taken = {*queries, *contracted, *(record.normalized or ())}
        axes = [axis for axis in record.axes if not any(factor in taken for factor in axis)]
        if len(record.axes) - len(axes) < 2 and axes and not queries:
            axes.remove(next(axis for axis in reversed(axes) if _count(axis) == 1))
        if len(axes) > 1:
            heads = axes[-1]
    return tuple(factor for factor in leading if factor not in heads), heads, queries, contracted


def _shares_of(batch: Axis, rows: Axis, groups: Sequence[Axis]) -> tuple[Axis, Axis, Axis]:
    """Leading factors and rows of an operand, sorted into batch, heads and the rest."""
    both = (*batch, *rows)
    return (
        tuple(factor for factor in both if factor in groups[0]),
        tuple(factor for factor in both if factor in groups[1]),
        tuple(factor for factor in both if factor not in groups[0] and factor not in groups[1]),
    )


def _values(values: Tensor, batch: Axis, groups: Sequence[Axis]) -> Tensor:
    """Values (batch, m, size) as (batch, heads, m, size). Their batch is in the order of the weights'."""
    sizes = [ax.size_of(factor) for factor in batch]
    m, size = values.shape[-2:]
    outer = [factor for factor in batch if factor in groups[0]]
    heads = [factor for factor in batch if factor in groups[1]]
    order = [batch.index(factor) for factor in (*outer, *heads)]
    spread = values.reshape(*sizes, m, size).permute(*order, len(order), len(order) + 1)
    arranged = spread.reshape(_count(tuple(outer)), _count(tuple(heads)), m, size)
    return arranged.expand(-1, _count(groups[1]), -1, -1)


def _shares(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _calling(paths: Mapping[nn.Module, str]) -> nn.Module | None:
    """The innermost module of a model that is running."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module) and module in paths:
                return module
        frame = frame.f_back
    return None


def _constructed(frame: FrameType | None, args: Sequence[Any]) -> Tensor | None:
    """A tensor of a subclass whose constructor is being called, as CausalBias' is: PyTorch cannot make it in a mode."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch._dynamo", "torch._compile")):
        frame = frame.f_back
    kind = None if frame is None else _callee(frame)
    if not isinstance(kind, type) or not issubclass(kind, Tensor) or kind is Tensor or kind.__new__ is not Tensor.__new__:
        return None
    with torch.utils._python_dispatch._disable_current_modes():
        return torch.Tensor.__new__(kind, *args[0])


def _callee(frame: FrameType) -> Any:
    """What a frame is calling right now, by its source."""
    first, last, start, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    lines = [linecache.getline(frame.f_code.co_filename, number).encode() for number in range(first or 0, (last or 0) + 1)]
    if not lines or start is None:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    name = b"".join(lines).decode(errors="replace").partition("(")[0].strip().split(".")
    scopes = {**frame.f_builtins, **frame.f_globals, **frame.f_locals}
    return functools.reduce(lambda found, part: getattr(found, part, None), name[1:], scopes.get(name[0]))

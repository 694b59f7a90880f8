"""How a tensor came about: where its axes come from, and what it is on the way from scores to an average.

    product → scores → exp, softmax → weights → weighted values → their sum

`Lineage` knows it for every tensor of a running model, as long as that lives. Views and element-wise operations pass it
on; see STAGES for the way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.view import axes as ax
from regard.view import axis_rules
from regard.view.axes import Axes, Axis
from regard.view.states import State, Weights

__all__ = ["SEVERAL", "SOFTMAX", "Lineage", "Operation", "tensors_in"]

SOFTMAX = ("_softmax", "_safe_softmax", "_log_softmax", "softmax", "log_softmax")
LOG_SOFTMAX = ("_log_softmax", "log_softmax")
SPLITS = ("split", "split_with_sizes")
SEVERAL = (*SPLITS, "unbind")  # operations with several results of one kind
REDUCTIONS = ("max", "min")
NONLINEAR = ("sigmoid", "relu", "clamp", "clamp_min", "threshold")
POINTWISE = (
    "_to_copy", "clone", "detach", "alias", "contiguous", "masked_fill", "where", "dropout",
    "masked_fill", "lift_fresh", "bernoulli", "tril", "triu",
)  # fmt: skip
WRITES = ("index_copy", "copy", "index_put")
STAGES = ["mixed", "weighted", "weights", "exp", "log", "scores", "total", "lse", "output", "summed", "noise", ""]


class Operation:
    """An operation of PyTorch, and what it is: looked up once, for there are hundreds in a run.

    name: without the namespace, and without the underscore of operations in place
    """

    __slots__ = ("func", "is_composite", "is_custom", "is_pointwise", "name", "rule", "writes")

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
        self.func, self.writes = func, schema is not None and schema.is_mutable
        space, _, name = ("", "", str(func)) if schema is None else schema.name.partition("::")
        self.name, self.is_custom = name.rstrip("_"), space not in ("", "aten", "prim", "prims", "regard")
        self.is_composite = isinstance(func, torch._ops.OpOverload) and func._can_decompose()
        tags = getattr(func, "tags", ())
        self.is_pointwise = torch.Tag.pointwise in tags or self.name in POINTWISE
        self.rule = axis_rules.RULES.get(self.name)


class _Reference(weakref.ref[Tensor]):
    """A weak reference that knows the number of its tensor."""

    __slots__ = ("number",)
    number: int


class Lineage:
    """What is known of the tensors of a running model.

    parameters: numbers (`id`) of those that are learned · meet: says of a tensor whose making was not seen whether it
    is learned · begin: is called with weights that may turn out to be attention's
    """

    def __init__(
        self, parameters: set[int], meet: Callable[[Tensor], bool], begin: Callable[[Weights], object]
    ) -> None:
        self._states: dict[int, State] = {}
        self._parameters, self._meet, self._begin = parameters, meet, begin

    def known(self, tensor: Tensor) -> State | None:
        """What is known of a tensor, if anything."""
        state = self._states.get(id(tensor))
        return state if state is not None and state.reference is not None and state.reference() is tensor else None

    def state(self, tensor: Tensor) -> State:
        """What is known of a tensor."""
        state = self.known(tensor)
        if state is None:
            learned = id(tensor) in self._parameters or isinstance(tensor, nn.Parameter)
            state = State(ax.first_axes(tensor), learned=2 if learned or self._meet(tensor) else 0)
            self.remember(tensor, state)
        return state

    def axes(self, tensor: Tensor) -> Axes:
        """Where the axes of a tensor come from."""
        return self.state(tensor).axes

    def remember(self, tensor: Tensor, state: State) -> None:
        """Keep what is known of a tensor for as long as it lives."""
        reference = _Reference(tensor, self._forget)
        reference.number = id(tensor)
        state.reference = reference
        self._states[reference.number] = state

    def _forget(self, reference: Any) -> None:
        number: int = reference.number
        state = self._states.get(number)
        if state is not None and state.reference is reference:
            del self._states[number]

    def result(
        self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], result: Tensor
    ) -> State | None:
        """What is known of an operation's result."""
        name, rule = operation.name, operation.rule
        if name == "cat" or name == "stack":
            return self._concatenated(name, args, options, result)
        if name == "embedding":
            return State((*ax.first_axes(args[1]), ax.fresh(result.shape[-1])))
        if name == "linear":  # by a learned matrix; by others it comes in its parts
            return State(None, parents=(self.state(args[0]),), make=axis_rules.projection(result.shape[-1]))
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if rule is not None and first is not None:
            state = self.state(first)
            arguments = args[1:]
            if options:
                arguments = (*arguments, *(options[key] for key in ("dim", "start", "end", "step") if key in options))
            shape = result.shape
            made = State(
                None,
                state.stage,
                state.record,
                state.learned if name == "t" or not state.learned else 1,
                state.before,
                parents=(state,),
                make=lambda axes: rule(axes, arguments, shape),
                shape=shape,
            )
            return self._reduced(name, state, made) if rule is axis_rules.reduced else made
        if operation.is_pointwise:
            return self._pointwise(name, args, result)
        if name in SOFTMAX and first is not None:
            return self._softmax(name, first, args[1], result)
        if first is result:
            return self.state(first)
        if first is None:
            return State(ax.first_axes(result))
        if first.is_nested:
            return None
        state = _otherwise(self.state(first), result)
        state.learned = 0 if name.endswith("_like") else self._all_learned(args)
        return state

    def _all_learned(self, args: Sequence[Any]) -> int:
        """Whether all that an operation was given is learned: then what it makes is, too, such as normed weights."""
        return min(self.state(tensor).learned for tensor in tensors_in(args))

    def is_learned(self, args: Sequence[Any]) -> bool:
        """Whether the first argument is known to be learned."""
        state = self.known(args[0]) if args and isinstance(args[0], Tensor) else None
        return id(args[0]) in self._parameters if state is None and args else state is not None and state.learned > 0

    def part(
        self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], part: Tensor, number: int
    ) -> State:
        """What is known of one of several results: a piece of a tensor that was split, dropout's, …"""
        name = operation.name
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None or first.is_nested:
            return State(ax.first_axes(part))
        state = self.state(first)
        dim = args[2] if len(args) > 2 else options.get("dim", 0)
        if name in SPLITS:
            sizes = args[1] if isinstance(args[1], (list, tuple)) else [args[1]] * (number + 1)
            shape, start = part.shape, sum(sizes[:number])
            make = lambda axes: axis_rules.RULES["slice"](axes, (dim, start), shape)  # noqa: E731
            return State(
                None, state.stage, state.record, state.learned, state.before, parents=(state,), make=make, shape=shape
            )
        if name == "unbind":
            dim, shape = args[1] if len(args) > 1 else options.get("dim", 0), part.shape
            return State(
                None, parents=(state,), make=lambda axes: axis_rules.RULES["select"](axes, (dim,), shape), shape=shape
            )
        same = part.shape == first.shape
        if name == "native_dropout" and same:
            before = state.before or (first, state.axes) if state.stage == "weights" else None
            return State(state.axes, state.stage, state.record, before=before)
        if name in REDUCTIONS:
            return State(axis_rules.RULES["amax"](state.axes, args[1:], part.shape))
        made = _otherwise(state, part)
        made.learned = state.learned and self._all_learned(args)
        return made

    def _concatenated(self, name: str, args: Sequence[Any], options: Mapping[str, Any], result: Tensor) -> State:
        tensors = [tensor for tensor in args[0] if tensor.dim() > 1 or result.dim() == 1]
        dim = (args[1] if len(args) > 1 else options.get("dim", 0)) % result.dim()
        states = [self.state(tensor) for tensor in tensors]
        shape = result.shape

        def joined(*axes: Axes) -> Axes:
            made = list(axes[0])
            if name == "stack":
                made.insert(dim, ax.fresh(shape[dim]))
            else:
                made[dim] = ax.joined([one[dim] for one in axes])
            return tuple(made)

        scores = next((state for state in states if state.stage == "scores"), None)  # with a column for a sink, perhaps
        if scores is not None and {state.stage for state in states} <= {"scores", ""}:
            return State(None, "scores", scores.record, parents=states, make=joined, shape=shape)
        return State(None, parents=states, make=joined, shape=shape)

    # ----------------------------------------------------------------------------------------- from scores to weights

    def _pointwise(self, name: str, args: Sequence[Any], result: Tensor) -> State:
        """A result with one element for each of its operands'."""
        tensors = [
            one for one in tensors_in(args) if (one.is_floating_point() or one.is_complex()) and not one.is_nested
        ]
        operands = [(tensor, self.state(tensor)) for tensor in tensors]
        operands.sort(key=lambda operand: STAGES.index(operand[1].stage))  # what is further on the way decides
        if name == "bernoulli" or not operands:
            return State(ax.first_axes(result), "noise" if name == "bernoulli" else "")
        if not operands[0][1].stage:  # as most of them
            return _elementwise([state for _, state in operands], result.shape)
        axes = axis_rules.broadcast(result.shape, [state.axes for _, state in operands])
        stage, record = operands[0][1].stage, operands[0][1].record
        others = [state for _, state in operands[1:]]
        if name == "exp":
            return self._exponential(result, axes, operands[0][0], stage, record)
        if stage == "exp" and name in ("div", "mul"):
            total = next((state for state in others if state.stage == "total" and state.record is record), None)
            if total is not None:
                return self._weights(record, result, axes, record.normalized)
        if stage == "scores" and name in NONLINEAR:
            return self._weights(Weights(None, record), result, axes, None)
        if name == "sub":
            total = next((state for state in others if state.stage == "lse"), None)
            if total is not None:
                return State(axes, "log", total.record)
        if stage == "weights" and any(state.stage == "weights" and state.record is not record for state in others):
            return State(axes, "mixed", [record, *(state.record for state in others if state.stage == "weights")])
        if stage == "weights":
            tensor, state = operands[0]
            before = state.before or (tensor, state.axes)
            if name == "mul" and _adds_axes(axes, record.axes):
                return State(axes, "weighted", record, before=before)
            if name == "native_dropout" or any(state.stage == "noise" for state in others):
                return State(axes, stage, record, before=before)
        return State(axes, stage, record)

    def _exponential(self, result: Tensor, axes: Axes, scores: Tensor, stage: str, record: Any) -> State:
        if stage == "log":
            return self._weights(record, result, axes, record.normalized)
        return State(axes, "exp", Weights(scores, record if stage == "scores" else None))

    def _softmax(self, name: str, scores: Tensor, dim: int, result: Tensor) -> State:
        state = self.state(scores)
        record = Weights(scores, state.record if state.stage == "scores" else None)
        record.normalized = state.axes[dim]
        if name in LOG_SOFTMAX:
            return State(state.axes, "log", record)
        return self._weights(record, result, state.axes, record.normalized)

    def _weights(self, record: Weights, result: Tensor, axes: Axes, normalized: Axis | None) -> State:
        record.axes, record.normalized = axes, normalized
        if record.product is not None:
            record.product.used = True
        self._begin(record)
        return State(axes, "weights", record)

    def _reduced(self, name: str, before: State, made: State) -> State:
        """Sums over an axis: of exponentials, of weighted values, of scores in logarithms."""
        if before.stage not in ("exp", "weighted") and name != "logsumexp":
            made.stage, made.record = "", None
            return made
        gone = [axis for axis in before.axes if axis and axis not in made.axes]
        if name == "sum" and before.stage == "exp" and len(gone) == 1:
            before.record.normalized = gone[0]
            return State(made.axes, "total", before.record)
        if name == "sum" and before.stage == "weighted" and len(gone) == 1:
            return State(made.axes, "summed", (before.record, gone[0], before.before))
        if name == "logsumexp" and len(gone) == 1:
            record = Weights(None, before.record if before.stage == "scores" else None)
            record.normalized = gone[0]
            return State(made.axes, "lse", record)
        return State(made.axes)

    def before_writing(self, operation: Operation, args: Sequence[Any]) -> None:
        """Weights into which dropout is about to be written are copied before."""
        if not args or not isinstance(args[0], Tensor):
            return
        target = self.known(args[0])
        if target is None:
            return
        noise = any((state := self.known(tensor)) and state.stage == "noise" for tensor in tensors_in(args[1:]))
        if target.stage == "weights" and noise and target.before is None:
            target.before = args[0].clone(), target.axes
        if operation.name in WRITES:
            self._link(target, args)

    def _link(self, target: State, args: Sequence[Any]) -> None:
        """A buffer that is written into, as the cache of a decoder, belongs to the sequence of what is written."""
        sources = [one for one in tensors_in(args) if one is not args[0] and one.is_floating_point()]
        source = sources[-1] if sources else None
        if source is None or source.dim() != len(target.axes):
            return
        for place, axis in enumerate(self.axes(source)):
            for root in ax.roots(target.axes[place]):
                root.parents = (*root.parents, *(other for other in ax.roots(axis) if other is not root))


def tensors_in(args: Any) -> list[Tensor]:
    """All tensors in arguments."""
    if isinstance(args, Tensor):
        return [args]
    return [tensor for one in args for tensor in tensors_in(one)] if isinstance(args, (list, tuple)) else []


def _otherwise(state: State, result: Tensor) -> State:
    """After an operation without a rule."""
    shape = result.shape
    return State(None, parents=(state,), make=lambda axes: axis_rules.other_axes(axes, shape), shape=shape)


def _elementwise(operands: Sequence[State], shape: Sequence[int]) -> State:
    """After an operation that has nothing to do with scores: the first operand mostly knows all."""

    def make(*axes: Axes) -> Axes | None:
        if len(axes) < len(operands) and not axis_rules.is_complete(axes[0], shape):
            return None
        return axis_rules.broadcast(shape, axes)

    learned = min(state.learned for state in operands)
    return State(None, learned=learned, parents=operands[:1], make=make, others=operands[1:], shape=shape)


def _adds_axes(axes: Axes, weights: Axes) -> bool:
    """Whether a product has an axis that the weights have not, as that of the values' size is."""
    own = {factor for axis in weights for factor in axis}
    return any(factor not in own and ax.size_of(factor) > 1 for axis in axes for factor in axis)

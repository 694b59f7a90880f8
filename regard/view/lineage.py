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
from regard.view.axes import Axes
from regard.view.states import State, Weights

SOFTMAX = ("_softmax", "_safe_softmax", "_log_softmax", "softmax", "log_softmax")
SPLITS = ("split", "split_with_sizes")
SORTED = {"sort": 1, "topk": 2}  # and where their dimension is given
SEVERAL = (*SPLITS, "unbind")  # operations with several results of one kind
NONLINEAR = ("sigmoid", "relu", "clamp", "clamp_min", "threshold", "softplus")
DISTANCES = ("_cdist_forward", "_euclidean_dist")  # of all rows of two tensors
WRITES = (  # a tensor into another, of which they may make a copy
    "copy", "index_copy", "index_put", "scatter", "scatter_add", "scatter_reduce", "masked_scatter", "slice_scatter",
    "select_scatter",
)  # fmt: skip
POINTWISE = (
    "_to_copy", "clone", "detach", "alias", "contiguous", "masked_fill", "where", "dropout", "lift_fresh", "tril",
    "triu",
)  # fmt: skip
STAGES = ["mixed", "weighted", "weights", "exp", "log", "scores", "total", "lse", "output", "summed", "", "noise"]


class Operation:
    """An operation of PyTorch, and what it is: looked up once, for there are hundreds in a run.

    name: without the namespace, and without the underscore of operations in place · is_random: its numbers are drawn
    """

    __slots__ = (
        "func", "is_composite", "is_custom", "is_pointwise", "is_random", "makes_views", "name", "rule", "writes"
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
        self.func, self.writes = func, schema is not None and schema.is_mutable
        space, _, name = ("", "", str(func)) if schema is None else schema.name.partition("::")
        self.name, self.is_custom = name.rstrip("_"), space not in ("", "aten", "prim", "prims", "regard")
        self.is_composite = isinstance(func, torch._ops.OpOverload) and func._can_decompose()
        key = torch._C.DispatchKey.ADInplaceOrView  # where PyTorch notes what a view is of, but for composite ones
        self.makes_views = self.is_composite and func.has_kernel_for_dispatch_key(key)
        tags = getattr(func, "tags", ())
        self.is_pointwise = torch.Tag.pointwise in tags or self.name in POINTWISE
        self.is_random = torch.Tag.nondeterministic_seeded in tags and not self.name.endswith("dropout")
        self.rule = axis_rules.RULES.get(self.name)


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
            learned = id(tensor) in self._parameters or isinstance(tensor, nn.Parameter) or self._meet(tensor)
            state = State(ax.first_axes(tensor), learned=2 if learned else 0)
            self.remember(tensor, state)
        return state

    def axes(self, tensor: Tensor) -> Axes:
        """Where the axes of a tensor come from."""
        return self.state(tensor).axes

    def remember(self, tensor: Tensor, state: State) -> None:
        """Keep what is known of a tensor for as long as it lives."""
        number = id(tensor)
        state.reference = weakref.ref(tensor, lambda reference: self._forget(number, reference))
        self._states[number] = state

    def _forget(self, number: int, reference: Any) -> None:
        state = self._states.get(number)
        if state is not None and state.reference is reference:
            del self._states[number]

    def result(
        self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], result: Tensor
    ) -> State | None:
        """What is known of an operation's result."""
        name, rule = operation.name, operation.rule
        if operation.is_random:
            return State(ax.first_axes(result), "noise")
        if name == "cat" or name == "stack":
            return self._concatenated(name, args, options, result)
        if name == "embedding":
            return State((*ax.first_axes(args[1]), ax.fresh(result.shape[-1])))
        if name == "linear":  # by a learned matrix; by others it comes in its parts
            size = result.shape[-1]
            make = lambda axes: (*map(ax.unfolded, axes[:-1]), ax.fresh(size, projected=True))  # noqa: E731
            state = self.state(args[0])
            stage, record = state.mixed(-1)
            return State(None, stage, record, parents=(state,), make=make)
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if rule is not None and first is not None:
            state = self.state(first)
            arguments = args[1:]
            if options:
                arguments = (*arguments, *(options[key] for key in ("dim", "start", "end", "step") if key in options))
            made = _by_rule(
                rule, state, arguments, result.shape, state.learned if name == "t" else min(state.learned, 1)
            )
            if name == "convolution" and state.stage != "scores":
                made.stage, made.record = state.mixed()
            return self._reduced(name, state, made) if rule is axis_rules.reduced else made
        if operation.is_pointwise:
            return self._pointwise(operation, args, options, result)
        if name in SOFTMAX and first is not None:
            state = self.state(first)
            scores = None if result is first else first
            record = Weights(scores, state.record if state.stage == "scores" else None, state.axes[args[1]])
            if "log" in name:
                return State(state.axes, "log", record)
            return self._weights(record, state.axes)
        if name in DISTANCES:
            states = self.state(args[0]), self.state(args[1])
            multiply = axis_rules.multiplied(False, states[1].learned > 0)
            return State(None, parents=states, make=lambda left, right: multiply(left, (*right[:-2], (), right[-2])))
        if name in WRITES and first is not None:
            return self._written(args, result)
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

    def is_followed(self, args: Sequence[Any]) -> bool:
        """Whether what is made of arguments is of interest though it is no real number: one is noise, or the first is
        learned."""
        learned = bool(args) and isinstance(args[0], Tensor) and self.state(args[0]).learned > 0
        return learned or any(map(self._is_noise, tensors_in(args)))

    def _is_noise(self, tensor: Tensor) -> bool:
        state = self.known(tensor)
        return state is not None and state.stage == "noise"

    def part(
        self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], part: Tensor, number: int
    ) -> State:
        """What is known of one of several results: a piece of a tensor that was split, dropout's, …"""
        name = operation.name
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None or first.is_nested:
            return State(ax.first_axes(part))
        state = self.state(first)
        if name in SPLITS:
            dim = args[2] if len(args) > 2 else options.get("dim", 0)
            sizes = args[1] if isinstance(args[1], (list, tuple)) else [args[1]] * (number + 1)
            arguments = (dim, sum(sizes[:number]))
            return _by_rule(axis_rules.RULES["slice"], state, arguments, part.shape, state.learned)
        if name == "unbind":
            dim = args[1] if len(args) > 1 else options.get("dim", 0)
            made = _by_rule(axis_rules.RULES["select"], state, (dim,), part.shape)
            made.stage, made.record, made.before = "", None, None
            return made
        if name == "native_dropout" and part.shape == first.shape:
            before = state.before or (first, state.axes) if state.stage == "weights" else None
            return State(state.axes, state.stage, state.record, before=before)
        if name in SORTED:  # along it are ranks now, not positions
            dim = args[SORTED[name]] if len(args) > SORTED[name] else options.get("dim", -1)
            return _by_rule(axis_rules.RULES["gather"], state, (dim,), part.shape)
        if name in ("max", "min"):
            return State(axis_rules.RULES["amax"](state.axes, args[1:], part.shape))
        made = _otherwise(state, part)
        made.learned = state.learned and self._all_learned(args)
        return made

    def _concatenated(self, name: str, args: Sequence[Any], options: Mapping[str, Any], result: Tensor) -> State:
        dim = (args[1] if len(args) > 1 else options.get("dim", 0)) % result.dim()
        states = [self.state(tensor) for tensor in args[0] if tensor.dim() > 1 or result.dim() == 1]
        scores = next((state for state in states if state.stage == "scores"), None)  # with a column for a sink, perhaps
        if scores is not None and not {state.stage for state in states} <= {"scores", "", "noise"}:
            scores = None

        def joined(*axes: Axes) -> Axes:
            if name == "stack":
                return axis_rules.stacked(axes, dim)
            return axis_rules.concatenated(axes, dim, placed=scores is None)  # columns of scores are no positions

        made = State(None, parents=states, make=joined, shape=result.shape)
        if scores is not None:
            made.stage, made.record = "scores", scores.record
        return made

    # ----------------------------------------------------------------------------------------- from scores to weights

    def _pointwise(
        self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], result: Tensor
    ) -> State:
        """A result with one element for each of its operands'."""
        name, given = operation.name, tensors_in(args)
        operands = [
            (one, self.state(one))
            for one in given
            if not one.is_nested and (one.is_floating_point() or one.is_complex() or self.is_followed([one]))
        ]
        # What is further on the way decides; a number, which has no axes, does not.
        operands.sort(key=lambda operand: (not operand[0].dim(), STAGES.index(operand[1].stage)))
        if not operands:
            return State(ax.first_axes(result))
        (decisive, first), others, shape = operands[0], [state for _, state in operands[1:]], result.shape
        stage, record, count = first.stage, first.record, len(operands)
        if not stage:  # as most of them, which have nothing to do with scores: the first operand mostly knows all axes

            def make(*axes: Axes) -> Axes | None:
                enough = len(axes) == count or axis_rules.is_complete(axes[0], shape)
                return axis_rules.broadcast(shape, axes) if enough else None

            learned = min(state.learned for _, state in operands)
            return State(None, learned=learned, parents=(first,), make=make, others=others, shape=shape)
        axes = axis_rules.broadcast(shape, [state.axes for _, state in operands])
        if stage == "noise":  # but for what is made of noise and of something else
            return State(axes, stage if all(self._is_noise(one) or not one.dim() for one in given) else "")
        is_exp = name in ("exp", "exp2") or (name == "pow" and not (isinstance(args[0], Tensor) and args[0].dim()))
        if is_exp and stage == "log":
            return self._weights(record, axes)
        if is_exp:
            scores = None if result is decisive else decisive  # which are gone if it was written into them
            return State(axes, "exp", Weights(scores, record if stage == "scores" else None))
        of_total = any(state.stage == "total" and state.record is record for state in others)
        if stage == "exp" and name in ("div", "mul") and of_total:
            return self._weights(record, axes)
        if stage == "scores" and name in NONLINEAR:
            return self._weights(Weights(None, record), axes)
        total = next((state for state in others if state.stage == "lse"), None)
        if name == "sub" and total is not None:
            return State(axes, "log", total.record)
        if stage == "weights" and any(state.stage == "weights" and state.record is not record for state in others):
            return State(axes, "mixed", [record, *(state.record for state in others if state.stage == "weights")])
        if stage == "weights":
            before = first.before or (decisive, first.axes)
            known = {*ax.flat(record.axes)}
            if name == "mul" and any(factor not in known and ax.size_of(factor) > 1 for factor in ax.flat(axes)):
                # An axis that the weights have not, as that of the values' size is.
                return State(axes, "weighted", record, before=before)
            if any(state.stage == "noise" for state in others):
                return State(axes, stage, record, before=before)
            alone = not any(one.dim() for one in given if one is not decisive)
            record.scores = record.scores if alone else None  # which a mask of the weights does not hide
            if alone:  # as scaling, which may belong to dropout
                return State(axes, stage, record, before=first.before)
            if first.before is not None and "out" not in options:  # as a mask, which is for those before it as well
                kept = before[0].clone() if operation.writes else before[0]
                kept = operation.func(*(kept if one is decisive else one for one in args), **options)
                return State(axes, stage, record, before=(kept, axes))
        return State(axes, stage, record)

    def _weights(self, record: Weights, axes: Axes) -> State:
        record.axes = axes
        if record.product is not None:
            record.product.used = True
        self._begin(record)
        return State(axes, "weights", record)

    def _reduced(self, name: str, before: State, made: State) -> State:
        """Sums over an axis: of exponentials, of weighted values, of scores in logarithms."""
        if before.stage not in ("exp", "weighted") and name != "logsumexp":
            # The sum of weights after dropout is as random as these.
            made.stage, made.record, made.before = "noise" if before.before is not None else "", None, None
            return made
        gone = [axis for axis in before.axes if axis and axis not in made.axes]
        if name == "sum" and before.stage == "exp" and len(gone) == 1:
            before.record.normalized = gone[0]
            return State(made.axes, "total", before.record)
        if name == "sum" and before.stage == "weighted" and len(gone) == 1:
            return State(made.axes, "summed", (before.record, gone[0], before.before))
        if name == "logsumexp" and len(gone) == 1:
            product = before.record if before.stage == "scores" else None
            if before.stage == "log":  # normalised before, along another axis
                product = before.record.product
            return State(made.axes, "lse", Weights(None, product, gone[0]))
        return State(made.axes)

    def before_writing(self, operation: Operation, args: Sequence[Any]) -> None:
        """Weights into which dropout is about to be written are copied before."""
        if not args or not isinstance(args[0], Tensor):
            return
        target = self.known(args[0])
        noise = any(map(self._is_noise, tensors_in(args[1:])))
        if target is not None and target.stage == "weights" and noise and target.before is None:
            target.before = args[0].clone(), target.axes

    def _written(self, args: Sequence[Any], result: Tensor) -> State:
        """What is known of memory, or of a copy of it, into which a tensor was written."""
        target, buffer = self.state(args[0]), args[0] if args[0]._base is None else args[0]._base
        if buffer.dim() > 2:  # a cache, and not a matrix that is learned by averages
            self.state(buffer).learned = target.learned = 0
        made = target
        if result is not args[0]:
            made = State(target.axes, target.stage, target.record, target.learned, target.before)
        sources = [one for one in tensors_in(args[1:]) if one.is_floating_point() and one.dim()]
        if not sources:
            return made
        source = self.state(sources[-1])
        if source.stage in ("weights", "exp", "log", "scores") and not target.stage:
            return self._placed(target, source, result.shape)
        if len(source.axes) == len(made.axes):
            # A buffer that is written into, as the cache of a decoder, belongs to the sequence of what is written.
            for axis, written in zip(made.axes, source.axes, strict=True):
                for root in ax.roots(axis):
                    root.parents = (*root.parents, *(other for other in ax.roots(written) if other is not root))
        return made

    def _placed(self, target: State, source: State, shape: Sequence[int]) -> State:
        """Weights, or what they are made of, in a matrix that was empty: those of the best keys among zeros."""
        record, axes = source.record, axis_rules.placed(target.axes, source.axes, shape)
        if isinstance(record, Weights):
            if len(source.axes) != len(shape) and tuple(map(ax.axis_size, record.axes)) == tuple(shape):
                axes = record.axes  # which they had before some were chosen
            record.scores, record.axes = None, axes
            record.normalized = record.normalized and ax.chosen_of(record.normalized)
        return State(axes, source.stage, record)


def tensors_in(args: Any) -> list[Tensor]:
    """All tensors in arguments."""
    if isinstance(args, Tensor):
        return [args]
    return [tensor for one in args for tensor in tensors_in(one)] if isinstance(args, (list, tuple)) else []


def _by_rule(
    rule: axis_rules.Rule, state: State, arguments: Sequence[Any], shape: Sequence[int], learned: int = 0
) -> State:
    """After a view, a cut, a sum: as far on the way as before."""
    make = lambda axes: rule(axes, arguments, shape)  # noqa: E731
    return State(None, state.stage, state.record, learned, state.before, parents=(state,), make=make, shape=shape)


def _otherwise(state: State, result: Tensor) -> State:
    """After an operation without a rule."""
    shape = result.shape
    return State(None, parents=(state,), make=lambda axes: axis_rules.other_axes(axes, shape), shape=shape)

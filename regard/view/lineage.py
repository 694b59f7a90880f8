"""How a tensor came about: where its axes come from, and what it is on the way from scores to an average (averages.py).

`Lineage` knows it for every tensor of a running model, as long as that lives. Views and element-wise operations pass it
on; see STAGES for the way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.view import axes as ax
from regard.view import axis_rules
from regard.view.averages import State, Weights
from regard.view.axes import Axes
from regard.view.reports import Reports, tensors_in

SOFTMAX = ("_softmax", "_safe_softmax", "_log_softmax", "softmax", "log_softmax")
SPLITS = ("split", "split_with_sizes")
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
        "defaults", "func", "is_composite", "is_custom", "is_pointwise", "is_random", "makes_views", "name", "rule",
        "writes",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
        self.func, self.writes = func, schema is not None and schema.is_mutable
        space, _, name = ("", "", str(func)) if schema is None else schema.name.partition("::")
        arguments = () if schema is None else schema.arguments[1:]
        self.defaults = {argument.name: argument.default_value for argument in arguments}
        self.name, self.is_custom = name.rstrip("_"), space not in ("", "aten", "prim", "prims", "regard")
        self.is_composite = isinstance(func, torch._ops.OpOverload) and func._can_decompose()
        key = torch._C.DispatchKey.ADInplaceOrView  # where PyTorch notes what a view is of, but for composite ones
        self.makes_views = self.is_composite and func.has_kernel_for_dispatch_key(key)
        tags = getattr(func, "tags", ())
        self.is_pointwise = torch.Tag.pointwise in tags or self.name in POINTWISE
        self.is_random = torch.Tag.nondeterministic_seeded in tags and not self.name.endswith("dropout")
        self.rule = axis_rules.RULES.get(self.name)

    def given(self, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments after the first, `args`, by their names."""
        return {**self.defaults, **options, **dict(zip(self.defaults, args, strict=False))}

    def as_outside(self) -> AbstractContextManager[Any]:
        """A composite operation that comes whole, in inference mode, takes views of parameters, and asks whether these
        want gradients: it has to be told the same as without a mode."""
        if not self.is_composite or self.makes_views or not torch.is_inference_mode_enabled():
            return nullcontext()
        excluded = torch._C._dispatch_tls_local_exclude_set().remove(torch._C.DispatchKey.ADInplaceOrView)
        return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


class Lineage:
    """What is known of the tensors of a running model."""

    def __init__(self, reports: Reports) -> None:
        self._states: dict[int, State] = {}
        self._reports = reports

    def known(self, tensor: Tensor) -> State | None:
        """What is known of a tensor, if anything."""
        state = self._states.get(id(tensor))
        return state if state is not None and state.reference is not None and state.reference() is tensor else None

    def state(self, tensor: Tensor) -> State:
        """What is known of a tensor."""
        state = self.known(tensor)
        if state is None:
            state = State(ax.first_axes(tensor), learned=2 if self._reports.meet(tensor) else 0)
            self.remember(tensor, state)
        return state

    def remember(self, tensor: Tensor, state: State) -> None:
        """Keep what is known of a tensor for as long as it lives."""
        number = id(tensor)
        state.reference = weakref.ref(tensor, lambda reference: self._forget(number, reference))
        self._states[number] = state

    def replace(self, tensor: Tensor, other: Tensor) -> None:
        """What is known of a tensor holds for another, which takes its place."""
        state = self.known(tensor)
        if state is not None and other is not tensor:
            self.remember(other, State(state.axes, state.stage, state.record))

    def _forget(self, number: int, reference: Any) -> None:
        state = self._states.get(number)
        if state is not None and state.reference is reference:
            del self._states[number]

    def result(
        self, operation: Operation, args: Sequence[Any], options: Mapping[str, Any], result: Tensor, number: int = 0
    ) -> State | None:
        """What is known of an operation's result. number: which of several it is"""
        name, rule, shape = operation.name, operation.rule, result.shape
        if operation.is_random:
            return State(ax.first_axes(result), "noise")
        if name == "cat" or name == "stack":
            return self._concatenated(name, args[0], operation.given(args[1:], options)["dim"] % result.dim(), shape)
        if name == "embedding":
            return State((*ax.first_axes(args[1]), ax.fresh(shape[-1])))
        if name == "linear":  # by a learned matrix; by others it comes in its parts
            state = self.state(args[0])

            def projected(axes: Axes) -> Axes:
                return (*map(ax.unfolded, axes[:-1]), ax.fresh(shape[-1], projected=True))

            stage, record = state.mixed(-1)
            return State(None, stage, record, parents=(state,), make=projected)
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is not None and first.is_nested:
            return None
        if rule is not None and first is not None:
            # Which of its arguments a rule wants is asked when its axes are; until then only these are kept alive.
            rest, kept = args[1:], {key: value for key, value in options.items() if key != "out"}

            def make(axes: Axes) -> Axes:
                return rule(axes, operation.given(rest, kept) | {"number": number}, shape)

            return self._by_rule(name, self.state(first), make, shape, is_sum=rule is axis_rules.reduced)
        if operation.is_pointwise:
            return self._pointwise(operation, args, options, result)
        if first is None:
            return State(ax.first_axes(result))
        state = self.state(first)
        if name in SOFTMAX:
            scores = None if result is first else first
            record = Weights(scores, state.record if state.stage == "scores" else None, state.axes[args[1]])
            if "log" in name:
                return State(state.axes, "log", record)
            return self._weights(record, state.axes)
        if name in DISTANCES:
            states = self.state(args[0]), self.state(args[1])
            multiply = axis_rules.multiplied(False, states[1].learned > 0)
            return State(None, parents=states, make=lambda left, right: multiply(left, (*right[:-2], (), right[-2])))
        if name in WRITES:
            return self._written(args, result)
        if first is result:
            return state
        if name == "native_dropout":
            before = state.before or (first, state.axes) if state.stage == "weights" else None
            return State(state.axes, state.stage, state.record, before=before)
        # If all that it was given is learned, what it makes is, too, such as normed weights.
        learned = 0 if name.endswith("_like") else min(self.state(tensor).learned for tensor in tensors_in(args))
        others = partial(axis_rules.other_axes, shape=shape)
        return State(None, learned=learned, parents=(state,), make=others, shape=shape)

    def is_followed(self, args: Sequence[Any]) -> bool:
        """Whether what is made of arguments is of interest though it is no real number: one is noise, or the first is
        learned."""
        learned = bool(args) and isinstance(args[0], Tensor) and self.state(args[0]).learned > 0
        return learned or any(map(self._is_noise, tensors_in(args)))

    def _is_noise(self, tensor: Tensor) -> bool:
        state = self.known(tensor)
        return state is not None and state.stage == "noise"

    def _by_rule(
        self, name: str, state: State, make: Callable[[Axes], Axes], shape: Sequence[int], *, is_sum: bool
    ) -> State:
        """After a view, a cut, a sum: as far on the way as before."""
        learned = state.learned if name == "t" or name in SPLITS else min(state.learned, 1)
        made = State(None, state.stage, state.record, learned, state.before, parents=(state,), make=make, shape=shape)
        if name == "convolution" and state.stage != "scores":
            made.stage, made.record = state.mixed()
        if name == "unbind":
            made.stage, made.record, made.before, made.learned = "", None, None, 0
        return self._reduced(name, state, made) if is_sum else made

    def _concatenated(self, name: str, tensors: Sequence[Tensor], dim: int, shape: Sequence[int]) -> State:
        states = [self.state(tensor) for tensor in tensors if tensor.dim() > 1 or len(shape) == 1]
        scores = next((state for state in states if state.stage == "scores"), None)  # with a column for a sink, perhaps
        if scores is not None and not {state.stage for state in states} <= {"scores", "", "noise"}:
            scores = None

        def joined(*axes: Axes) -> Axes:
            if name == "stack":
                return axis_rules.stacked(axes, dim)
            return axis_rules.concatenated(axes, dim, placed=scores is None)  # columns of scores are no positions

        made = State(None, parents=states, make=joined, shape=shape)
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
        if stage == "total" and name == "log":
            return State(axes, "lse", Weights(None, record.product, record.normalized))
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
        self._reports.begin(record)
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

"""Heads to cut, scale, patch and steer:  with regard.intervene(model) as edit: edit.ablate(3, 1); model(…)

Edits act on the weights of a head, or on its output, before the output projection mixes the heads. They hold until they
are removed or the block ends. Without any, the model computes the same in every bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch import overrides as function_modes
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch as dispatch_modes

from regard.attention.capture import AttentionMap, Indices, Layers, Recorder, indices, is_layer, several
from regard.attention.observers import AttentionCall, Part
from regard.attention.observers import edit as open_editor
from regard.attention.observers import edited as edited_call
from regard.view.averages import Average
from regard.view.intercept import Computed, Edited, EditError, EditFailed, Tracker, lifted, paused, trackers
from regard.view.reports import passes_no_gradients, running

# A function mode would switch off the fast paths of these, and so change the bits of a model without edits.
FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
ABLATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # of a head's output (batch, heads, n, size)
    "zero": torch.zeros_like,
    "mean": lambda output: output.mean((0, 2), keepdim=True).expand_as(output),
    "batch_mean": lambda output: output.mean(0, keepdim=True).expand_as(output),
}
Change = Callable[[Tensor, AttentionCall, "Edit"], Tensor]


@dataclass(eq=False)
class Edit:
    """What is done to some heads of some layers. `remove` undoes it.

    weights: how weights (batch, heads, n, m) change · output: how outputs (batch, heads, n, size) do
    queries, keys: positions that are concerned; None: all
    """

    owner: list[Edit]
    layers: tuple[int | str, ...] | None
    heads: tuple[int, ...] | None
    queries: tuple[int, ...] | None = None
    keys: tuple[int, ...] | None = None
    weights: Change | None = None
    output: Change | None = None
    used: bool | None = None  # None: no layer has attended since

    def remove(self) -> None:
        """Undo this edit, from the next call on."""
        if self in self.owner:
            self.owner.remove(self)

    def concerns(self, name: str, layer: int) -> bool:
        """Whether a layer is among those that are edited."""
        return self.layers is None or any(is_layer(wanted, layer, name) for wanted in self.layers)

    def __call__(self, change: Change, whole: Tensor, call: AttentionCall, name: str) -> Tensor:
        """(batch, heads, n, …) with its heads and queries changed."""
        heads = list(indices("heads", self.heads, whole.shape[1], name))
        changed = change(whole[:, heads], call, self)
        if changed.shape != whole[:, heads].shape:
            expected, got = tuple(whole[:, heads].shape), tuple(changed.shape)
            raise ValueError(f"an edit of {name}: expected a tensor of shape {expected}, got {got}")
        rows = _places(self.queries, call.positions, whole.shape[2])
        if rows is not None:
            keep = torch.ones(whole.shape[2], 1, dtype=torch.bool, device=whole.device)
            keep[rows] = False
            changed = torch.where(keep, whole[:, heads], changed)
        return whole.index_copy(1, torch.tensor(heads, device=whole.device), changed.to(whole.dtype))


class Editing(Tracker):
    """Edits the calls of a model, as long as there are edits.

    defer: whether edits through which gradients pass wait until a function of PyTorch returns: autograd sees them there
    """

    def __init__(self, recorder: Recorder, edits: list[Edit], *, defer: bool) -> None:
        super().__init__(recorder, edits)
        self.defer = defer
        self.deferred: list[tuple[Computed, nn.Module, Edited]] = []

    def deliver(self, computed: Computed, module: nn.Module, result: Tensor, edited: Edited | None) -> Tensor:
        """Edit a call, by the edits of all blocks, and return what takes the place of the result."""
        if edited is not None:
            return result
        self.edited = Edited(result)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in computed.tensors):
            if not self.defer:
                raise EditError("edits in nn.MultiheadAttention pass no gradients: run the model under torch.no_grad()")
            self.deferred.append((computed, module, self.edited))
            return result
        try:
            return self._apply(computed, module, self.edited)
        except Exception as error:
            raise EditFailed(error) from error

    def deliver_known(self, call: AttentionCall) -> None:
        """There is no way back from these weights to what the model goes on with."""
        assert call.module is not None
        raise EditError(f"{self.name(call.module)}: attention between nested tensors cannot be edited")

    def apply_deferred(self, result: Any) -> Any:
        """Edit what the function that just returned has computed, so that gradients pass through the edit."""
        deferred, self.deferred = self.deferred, []
        for computed, module, edited in deferred:
            state = self.lineage.known(result) if isinstance(result, Tensor) else None
            if state is None or state.stage != "output":
                reason = "edits pass no gradients into the function that computes it: use torch.no_grad()"
                raise EditError(f"{self.name(module)}: {reason}")
            edited.result = result
            result = self._apply(computed, module, edited)
        return result

    def check(self, edits: Sequence[Edit]) -> None:
        """Complain about attention that edits concern and that was not understood."""
        self.close()
        for module, one in self.reports.unrecognised:
            if module is None or one.operation == "unknown":  # which may be no attention
                continue
            if any(edit.concerns(*self.recorder.number(module)) for edit in edits):
                raise EditError(f"{self.name(module)}: this attention is not edited: {one.reason}")

    def _apply(self, computed: Computed, module: nn.Module, edited: Edited) -> Tensor:
        """The result with its edits."""
        result = edited.result
        with paused():
            try:
                call = self.call(computed, module, result)
            except Exception as error:
                reason = f"its attention is not understood: {type(error).__name__}: {error}"
                raise EditError(f"{self.name(module)}: {reason}") from error
            changed = edited_call(call)
            if changed.output is not call.output:
                if changed.output is None or (isinstance(computed, Average) and not computed.alone):
                    reason = "its head outputs are not known, or added to others by the same operation"
                    raise EditError(f"{self.name(module)}: {reason}")
                problem = passes_no_gradients(sys._getframe(1), result)
                if problem is not None:
                    raise EditError(problem)
                edited.result = computed.back(changed.output, result, self.lineage.state(result).axes)
        for tracker in {self, *trackers()}:
            tracker.lineage.replace(result, edited.result)
        edited.close(changed)
        return edited.result


class Intervention:
    """The edits of a model within a block. Made by `intervene`."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        self.model, self.edits = model, list[Edit]()
        self._numbers = Recorder(model, lambda layer: None)
        self._block: ExitStack | None = None
        self._made: list[Edit] = []  # also those that were removed since
        self._tracker: Editing | None = None
        self._depths = (0, 0)
        self._counts: dict[str, int] = {}

    # ------------------------------------------------------------------------------------------------------ the edits

    def ablate(
        self, layers: Layers = None, heads: Indices = None, *, queries: Indices = None, to: str = "zero"
    ) -> Edit:
        """Replace the output of heads by zero, by its mean over batch and queries ("mean"), or by its mean over the
        batch at each position ("batch_mean"). layers as for `capture`; None: all. queries: positions; None: all."""
        if to not in ABLATIONS:
            raise ValueError(f"to: expected one of {', '.join(ABLATIONS)}, got {to!r}")
        return self._add(layers, heads, queries, output=lambda output, call, edit: ABLATIONS[to](output))

    def scale(
        self, factor: float | Tensor, layers: Layers = None, heads: Indices = None, *, queries: Indices = None
    ) -> Edit:
        """Multiply the output of heads (batch, heads, n, size)."""
        return self._add(layers, heads, queries, output=lambda output, call, edit: output * factor)

    def cut(
        self,
        layers: Layers = None,
        heads: Indices = None,
        *,
        queries: Indices = None,
        keys: Indices = None,
        renormalize: bool = False,
    ) -> Edit:
        """Set the weights between queries and keys, given by position, to 0. renormalize: the others then add up to
        what they all did before."""

        def without(weights: Tensor, call: AttentionCall, edit: Edit) -> Tensor:
            columns = _places(edit.keys, call.key_positions, weights.shape[-1])
            hidden = torch.zeros(weights.shape[-1], dtype=torch.bool, device=weights.device)
            hidden[slice(None) if columns is None else columns] = True
            kept = weights.masked_fill(hidden, 0)
            if not renormalize:
                return kept
            total = kept.sum(-1, keepdim=True)
            return torch.where(total > 0, kept * weights.sum(-1, keepdim=True) / total.clamp(min=1e-30), kept)

        return self._add(layers, heads, queries, keys, weights=without)

    def set_weights(self, function: Callable[[Tensor], Tensor], layers: Layers = None, heads: Indices = None) -> Edit:
        """Replace weights (batch, heads, n, m) by what a function makes of them."""
        if not callable(function):
            raise TypeError(f"function: expected a function of the weights, got {type(function).__name__}")
        return self._add(layers, heads, weights=lambda weights, call, edit: function(weights))

    def patch(
        self,
        source: Sequence[AttentionMap],
        layers: Layers = None,
        heads: Indices = None,
        *,
        queries: Indices = None,
    ) -> Edit:
        """Give heads the outputs that they had in another run, captured with operands=True, call by call; after the
        last call of a layer in that run, from the first one on again."""
        if any(one.output is None for one in source) or not source:
            raise ValueError("source: expected a capture with operands=True, got one without outputs")
        first: dict[tuple[int, str], int] = {}

        def other(output: Tensor, call: AttentionCall, edit: Edit) -> Tensor:
            name = self._name(call)[0]
            calls = [one for one in source if one.name == name]
            if not calls:
                raise ValueError(f"source: it has no call of {name}")
            counter, index = call.index or (0, 0)
            earlier = calls[(index - first.setdefault((counter, name), index)) % len(calls)]
            wanted = indices("heads", edit.heads, call.heads, name)
            missing = [head for head in wanted if head not in earlier.heads]
            if missing:
                raise ValueError(f"source: of {name} it has the heads {earlier.heads}, not {missing}")
            assert earlier.output is not None
            patch = earlier.output[:, [earlier.heads.index(head) for head in wanted]].to(output)
            if patch.shape[1:] != output.shape[1:] or len(patch) not in (1, len(output)):
                raise ValueError(f"source: {name} had outputs {tuple(patch.shape)}, now {tuple(output.shape)}")
            return patch.expand_as(output)

        return self._add(layers, heads, queries, output=other)

    def clear(self) -> None:
        """Remove all edits."""
        self.edits.clear()

    def _add(
        self, layers: Layers, heads: Indices, queries: Indices = None, keys: Indices = None, **changes: Change
    ) -> Edit:
        if self._block is None:
            raise RuntimeError("edits hold within a block only: with regard.intervene(model) as edit: …")
        chosen = (several("heads", heads, (int,)), several("queries", queries, (int,)), several("keys", keys, (int,)))
        edit = Edit(self.edits, several("layers", layers, (int, str)), *chosen, **changes)  # type: ignore[arg-type]
        if self._tracker is None:
            self._tracker = self._follow(self._block)
        self.edits.append(edit)
        self._made.append(edit)
        return edit

    # ------------------------------------------------------------------------------------------------------ the block

    def __enter__(self) -> Intervention:
        if self._block is not None:
            raise RuntimeError("this intervention is open already: make another one")
        self._block, self._tracker, self._made = ExitStack(), None, []
        self._depths = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
        self._block.enter_context(open_editor(self._edited))
        return self

    def _follow(self, block: ExitStack) -> Editing:
        """Follow the model from now on: without edits not even that is done.

        The modes go where they would be if they had been opened with the block, below those that were opened since.
        """
        defer = not any(isinstance(module, FAST) for module in self._numbers.paths)
        tracker = Editing(self._numbers, self.edits, defer=defer)
        modes = dispatch_modes._get_current_dispatch_mode_stack()
        depth = min([self._depths[0], *map(modes.index, trackers())])  # a capture sees what the edits have made
        with lifted(depth, torch._C._len_torch_dispatch_stack, dispatch_modes):
            block.enter_context(tracker)
        if defer:
            with lifted(self._depths[1], torch._C._len_torch_function_stack, function_modes):
                block.enter_context(_Deferred(tracker))
        return tracker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None
        block, self._block = self._block, None
        block.close()
        unused = [edit for edit in self.edits if edit.used is False]
        unseen = any(edit.used is None for edit in self.edits)
        self.edits.clear()
        self._counts.clear()
        if kind is not None or self._tracker is None:
            return
        if unseen and any(hasattr(module, "_orig_mod") for module in self._numbers.paths):
            raise EditError("compiled code cannot be edited: run the module inside it, ._orig_mod")
        self._tracker.check(self._made)
        if unused:
            wanted = "; ".join(repr(edit.layers) for edit in unused)
            names = ", ".join(self._numbers.names)
            raise ValueError(f"layers: {wanted} is not among those that attended and can be edited: {names}")

    def _name(self, call: AttentionCall) -> tuple[str, int]:
        assert call.module is not None
        return self._numbers.number(call.module, call.within)

    def _edited(self, call: AttentionCall, part: Part) -> AttentionCall:
        """The editor: a call, with what the edits make of it."""
        module = call.module if call.module is not None else running(self._numbers.paths)
        if module is None or module not in self._numbers.paths or not self.edits:
            return call
        call = replace(call, module=module)
        name, layer = self._name(call)
        if call.index is None:  # one of `regard.attend`, which nobody else counts
            call = replace(call, index=(0, self._counts.get(name, 0)))
            self._counts[name] = self._counts.get(name, 0) + 1
        edits = [edit for edit in self.edits if edit.concerns(name, layer)]
        for edit in self.edits:
            edit.used = edit.used or edit in edits
        weights = [(edit, edit.weights) for edit in edits if edit.weights is not None]
        outputs = [(edit, edit.output) for edit in edits if edit.output is not None]
        if weights and part == "weights":
            if call.value is None or call.output is None:
                raise EditError(f"{name}: its values are not known")
            if call.packed:
                raise EditError(f"{name}: weights of packed sequences cannot be edited: pass no lengths")
            changed = call.known if call.known is not None else call.live_weights()
            for edit, change in weights:
                changed = edit(change, changed, call, name)
            chosen = {head for edit, _ in weights for head in indices("heads", edit.heads, changed.shape[1], name)}
            heads = torch.tensor(sorted(chosen), device=changed.device)  # others keep their outputs, and their dropout
            value, output = call.for_each_head(call.value), call.for_each_head(call.output)
            mixed = changed[:, heads].to(value.dtype) @ value[:, heads]
            output = output.index_copy(1, heads, mixed.to(output.dtype))
            call = replace(call, known=changed, output=output.reshape(call.output.shape))
        if outputs and part == "output":
            if call.output is None:
                raise EditError(f"{name}: its head outputs are not known")
            output = call.for_each_head(call.output)
            for edit, change in outputs:
                output = edit(change, output, call, name)
            call = replace(call, output=output.reshape(call.output.shape))
        return call


class _Deferred(TorchFunctionMode):
    """Edits through which gradients pass are made where autograd sees them: when a function of PyTorch returns."""

    def __init__(self, tracker: Editing) -> None:
        super().__init__()
        self.tracker = tracker

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function, and edit what it computed."""
        result = func(*args, **(kwargs or {}))
        return self.tracker.apply_deferred(result) if self.tracker.deferred else result


def _places(wanted: tuple[int, ...] | None, positions: Sequence[int] | None, count: int) -> list[int] | None:
    """The rows or columns of positions; None: all. Negative positions count from the last one."""
    if wanted is None:
        return None
    places = list(range(count) if positions is None else positions)
    end = max(places, default=-1) + 1
    return [places.index(one) for position in wanted if (one := position % end if position < 0 else position) in places]


def intervene(model: nn.Module) -> Intervention:
    """Change what heads of a model do, while it runs: `with intervene(model) as edit: edit.ablate(…); model(…)`.

    edit.ablate, scale, patch: outputs of heads, before the output projection · edit.cut, set_weights: their weights.
    For the models that `capture` understands, with and without gradients; in nn.MultiheadAttention and nn.Transformer
    without. A capture that is open meanwhile sees the edited weights. Layers, heads and positions are chosen as there.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> ids = torch.tensor([[5, 6, 7]])
    >>> before = model(ids)
    >>> with regard.intervene(model) as edit:
    ...     unchanged = model(ids)
    ...     cut = edit.ablate(layers=1, heads=[0, 2])
    ...     after = model(ids)
    ...     cut.remove()
    >>> torch.equal(before, unchanged), torch.equal(before, after)
    (True, False)
    """
    return Intervention(model)

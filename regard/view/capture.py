"""Attention out of any model:  with regard.capture(model) as seen: model(…)

What the model computes does not change, in no bit. Only what is chosen is computed and kept. Maps can be saved, without
their model: as safetensors, with what is not a tensor as JSON in the header.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard import files
from regard.attention.capture import AttentionMap, Gradient, Indices, Layers, Recorder, by_layer
from regard.attention.observers import AttentionCall, observe
from regard.attention.summary import Summary as WeightSummary
from regard.errors import RegardError
from regard.view.averages import Average
from regard.view.intercept import Computed, Edited, Tracker, paused
from regard.view.reports import Unrecognised
from regard.view.widths import Summary

SHOWN = 8  # names in an error
FORMAT = "regard capture 1"
TENSORS = ("weights", "sink", "query", "key", "value", "output", "gradient")
SUMMARY = tuple(part.name for part in fields(WeightSummary))
# What else a map has, and what it is read as.
FIELDS: dict[str, Any] = {"name": str, "kind": str, "layer": int, "call": int}
LISTS: dict[str, Any] = {"heads": int, "queries": int, "keys": int, "tokens": str, "key_tokens": str}


class CaptureWarning(UserWarning):
    """What a capture could not see, or not understand."""


class CaptureFileError(RegardError, ValueError):
    """A file that holds no capture, or a broken one."""


class AttentionMaps(Sequence[AttentionMap]):
    """The attention maps of a run, in their order.

    unrecognised: attention that was seen and is not among them, with the reason
    """

    def __init__(self, maps: list[AttentionMap], unrecognised: list[Unrecognised] | None = None) -> None:
        self._maps = maps
        self.unrecognised = [] if unrecognised is None else unrecognised

    @overload
    def __getitem__(self, number: int) -> AttentionMap: ...
    @overload
    def __getitem__(self, number: slice) -> list[AttentionMap]: ...
    def __getitem__(self, number: int | slice) -> AttentionMap | list[AttentionMap]:
        return self._maps[number]

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        layers = len({one.name for one in self._maps})
        return f"{type(self).__name__}: {len(self)} maps of {layers} layers, {len(self.unrecognised)} not recognised"

    def by_layer(self) -> list[AttentionMap]:
        """One map for each layer: the steps of a decoder, which attends anew for each token, are joined where one
        continues the other. A layer that is called several times for something else has several maps."""
        return by_layer(self._maps)

    def summary(self) -> Summary:
        """Entropy, effective width, distance and weight on the first key, of every head."""
        return Summary(self.by_layer())

    def save(self, path: str | Path) -> Path:
        """Write the maps to a file, without the model. `regard.load_capture` reads it."""
        tensors: dict[str, Tensor] = {}
        entries: list[dict[str, Any]] = []
        for number, one in enumerate(self._maps):
            parts = {name: getattr(one, name) for name in TENSORS}
            if one.summary is not None:
                parts |= {f"summary.{name}": getattr(one.summary, name) for name in SUMMARY}
            for name, part in parts.items():
                if part is not None:
                    tensors[f"{number}.{name}"] = part.detach().cpu().contiguous().clone()
            entries.append({name: getattr(one, name) for name in (*FIELDS, *LISTS)})
        header = {"maps": entries, "unrecognised": [asdict(one) for one in self.unrecognised]}
        metadata = {"format": FORMAT, "regard": json.dumps(header, ensure_ascii=False)}
        files.write(Path(path), lambda place: save_file(tensors, place, metadata))
        return Path(path)


def load_capture(path: str | Path) -> AttentionMaps:
    """The attention maps that a capture has saved. No model is needed, and nothing in the file is executed.

    >>> import regard, tempfile, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = regard.load_capture(seen.save(f"{folder}/seen.safetensors"))
    >>> again, torch.equal(again[1].weights, seen[1].weights)
    (AttentionMaps: 2 maps of 2 layers, 0 not recognised, True)
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CaptureFileError(f"{path}: expected a file that a capture has saved, got another one")
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        header = json.loads(metadata["regard"])
        maps = [_read(number, entry, tensors) for number, entry in enumerate(header["maps"])]
        unrecognised = [Unrecognised(**{**one, "shape": tuple(one["shape"])}) for one in header["unrecognised"]]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, (CaptureFileError, OSError)):
            raise
        raise CaptureFileError(f"{path}: the file is damaged: {type(error).__name__}: {error}") from error
    return AttentionMaps(maps, unrecognised)


def _read(number: int, entry: dict[str, Any], tensors: dict[str, Tensor]) -> AttentionMap:
    parts: dict[str, Any] = {name: tensors.get(f"{number}.{name}") for name in TENSORS}
    parts |= {name: kind(entry[name]) for name, kind in FIELDS.items()}
    parts |= {name: tuple(map(kind, entry[name])) for name, kind in LISTS.items()}
    weights, gradient = parts["weights"], Gradient()
    if weights is None or weights.dim() != 4 or weights.shape[1:3] != (len(parts["heads"]), len(parts["queries"])):
        raise ValueError(f"the weights of map {number} do not fit its heads and queries")
    gradient.value = parts.pop("gradient")
    parts["gradients"] = None if gradient.value is None else gradient
    if f"{number}.summary.{SUMMARY[0]}" in tensors:
        parts["summary"] = WeightSummary(*(tensors[f"{number}.summary.{name}"] for name in SUMMARY))
    return AttentionMap(**parts)


class Recording(Tracker):
    """Hands the calls of a model to its recorder, as edits have left them."""

    def deliver(self, computed: Computed, module: nn.Module, result: Tensor, edited: Edited | None) -> Tensor:
        """Report a call, as soon as it is edited."""
        if self.recorder.skips(module, computed.within):
            self.reports.calls[module] += 1
        elif edited is None:
            self._report(computed, result, self.call(computed, module, result))
        else:
            self.reports.calls[module] += 1
            edited.receive(lambda call: self._report(computed, result, replace(call, module=module)))
        return result

    def deliver_known(self, call: AttentionCall) -> None:
        """Report a call of which no more than the weights is known."""
        self.recorder(call)

    def _report(self, computed: Computed, result: Tensor, call: AttentionCall) -> None:
        whole, module = call, call.module
        assert module is not None
        if self.recorder.gradients:
            call = replace(call, watch=lambda receive: self._watch(computed, whole, result, receive))
        made = None
        try:
            with paused():
                made = self.recorder(call)
        except Exception as error:  # also where it waited for an edit, the model runs on
            self.reports.fail(type(module).__name__, error)
        self.reports.delivered.setdefault(module, []).append(made)
        if isinstance(computed, Average):
            computed.record.delivered, computed.record.scores = made, None

    def _watch(
        self, computed: Computed, call: AttentionCall, result: Tensor, receive: Callable[[Tensor], None]
    ) -> None:
        """Wait for the gradient of weights, or of an output, which has a history only when the operation is over."""
        if isinstance(computed, Average):
            if computed.weights.requires_grad:
                # A hook that holds its own tensor would keep the graph for good.
                held = copy(computed)
                del held.weights
                computed.weights.register_hook(lambda gradient: receive(held.arranged(gradient, held.axes)))
        elif call.output is not None:
            shape, others = call.output.shape, replace(call, watch=None, output=None)

            def wait() -> None:
                if result.requires_grad:
                    result.register_hook(lambda gradient: receive(others.weights_gradient(gradient.reshape(shape))))

            self.after.append(wait)


class Capture(AttentionMaps):
    """The attention maps of a model that ran within the block. Made by `capture`."""

    def __init__(self, model: nn.Module, recorder: Recorder, maps: list[AttentionMap]) -> None:
        super().__init__(maps)
        self.model, self._recorder = model, recorder
        self._block = ExitStack()
        self._tracker: Recording | None = None

    def __enter__(self) -> Capture:
        if self._tracker is not None:
            raise RuntimeError("this capture is open already: make another one")
        recorder, tracker = self._recorder, Recording(self._recorder)
        self._tracker = tracker
        self._block.enter_context(observe(lambda call: recorder(tracker.located(call))))
        self._block.enter_context(tracker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tracker, self._tracker = self._tracker, None
        self._block.close()
        assert tracker is not None
        if kind is not None:
            return
        tracker.close()
        gone = set(map(id, tracker.reports.withdrawn))
        self._maps[:] = [one for one in self._maps if id(one) not in gone]
        for module, one in tracker.reports.unrecognised:
            name = "" if module is None else self._recorder.number(module)[0]
            self.unrecognised.append(replace(one, name=name))
        self._check()

    def _check(self) -> None:
        """Complain about what was chosen and is not there; warn of what was not seen."""
        if self._recorder.error is not None:
            raise self._recorder.error
        reason = "compiled code calls no operation that could be seen; capture the module inside it, ._orig_mod"
        self.unrecognised += [
            Unrecognised(path or type(self.model).__name__, "torch.compile", (), reason)
            for path, module in self.model.named_modules()
            if hasattr(module, "_orig_mod") and not any(one.name.startswith(path) for one in self._maps)
        ]
        if self.unrecognised:
            reasons = "; ".join(map(str, self.unrecognised[:SHOWN]))
            rest = len(self.unrecognised) - SHOWN
            more = f"; and {rest} more in .unrecognised" if rest > 0 else ""
            warnings.warn(f"attention that is not among the maps: {reasons}{more}", CaptureWarning, stacklevel=3)
        elif not self._maps and self._recorder.names and self._recorder.layers:
            wanted = ", ".join(map(repr, self._recorder.layers))
            names = _listed(self._recorder.names)
            raise ValueError(f"layers: none of {wanted} is among those that attended: {names}")
        elif not self._maps:
            modules = sorted({type(module).__name__ for module in self.model.modules()})
            message = f"no attention was computed in this thread by {type(self.model).__name__}, of the modules "
            warnings.warn(message + _listed(modules), CaptureWarning, stacklevel=3)


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def capture(
    model: nn.Module,
    layers: Layers = None,
    heads: Indices = None,
    queries: Indices = None,
    *,
    operands: bool = False,
    gradients: bool = False,
    summary: bool = False,
) -> Capture:
    """The attention of any model, while it runs: `with capture(model) as seen: model(…)`.

    seen[i] is an AttentionMap: `weights` (batch, heads, n, m), the `name` of the module that computed them, their
    `kind`. The model may be one of regard's or any other torch.nn.Module: nn.MultiheadAttention and nn.Transformer on
    their fast paths, Hugging Face's models, whatever calls F.scaled_dot_product_attention. What it computes stays the
    same, bit for bit. `layers` chooses by number, in the order in which they attend, or by the path of the module
    (* stands for anything); negative layer numbers are not supported: the number of layers is unknown until the model
    has run. `heads` and `queries` choose by number, negative ones from the end. Only what is chosen is computed and
    kept.

    operands: queries, keys, values and outputs of the heads are kept as well · gradients: those of the weights, when a
    backward pass computes them, as `gradient` of a map · summary: what `summarize` says of the weights is kept instead
    of them, in memory that grows with the length of the text only

    Attention that is seen but not understood is in `seen.unrecognised` and not among the maps; a warning says so, and
    the model runs on.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model, heads=[0, 2]) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> [(layer.name, layer.kind, tuple(layer.weights.shape)) for layer in seen]
    [('blocks.0.mixer', 'causal', (1, 2, 3, 3)), ('blocks.1.mixer', 'causal', (1, 2, 3, 3))]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    maps: list[AttentionMap] = []
    options = {"operands": operands, "gradients": gradients, "summary": summary}
    return Capture(model, Recorder(model, maps.append, layers, heads, queries, **options), maps)

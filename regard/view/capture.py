"""Attention out of any model:  with regard.capture(model) as seen: model(…)

What the model computes does not change, in no bit. Only what is chosen is computed and kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from torch import nn

from regard.attention.capture import AttentionMap, Indices, Layers, Recorder
from regard.view.intercept import Tracker, intercept
from regard.view.maps import AttentionMaps, Unrecognised

__all__ = ["Capture", "CaptureWarning", "capture"]

SHOWN = 8  # names in an error


class CaptureWarning(UserWarning):
    """What a capture could not see, or not understand."""


class Capture(AttentionMaps):
    """The attention maps of a model that ran within the block. Made by `capture`."""

    def __init__(self, model: nn.Module, recorder: Recorder, maps: list[AttentionMap]) -> None:
        super().__init__(maps)
        self.model, self._recorder = model, recorder
        self._block = ExitStack()
        self._tracker: Tracker | None = None

    def __enter__(self) -> Capture:
        if self._tracker is not None:
            raise RuntimeError("this capture is open already: make another one")
        recorder = self._recorder
        tracker = intercept(recorder, recorder.paths, operands=recorder.operands, gradients=recorder.gradients)
        self._tracker = self._block.enter_context(tracker)
        self._tracker.reports.reserve, self._tracker.skips = recorder.number, recorder.skips
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
        self.unrecognised += [
            replace(one, name=_name_of(self._recorder, module)) for module, one in tracker.reports.unrecognised
        ]
        self._check()

    def _check(self) -> None:
        """Complain about what was chosen and is not there; warn of what was not seen."""
        if self._recorder.error is not None:
            raise self._recorder.error
        self.unrecognised += _compiled(self.model, self._maps)
        if self.unrecognised:
            reasons = "; ".join(map(str, self.unrecognised[:SHOWN]))
            rest = len(self.unrecognised) - SHOWN
            more = f"; and {rest} more in .unrecognised" if rest > 0 else ""
            warnings.warn(f"attention that is not among the maps: {reasons}{more}", CaptureWarning, stacklevel=3)
        if self._maps:
            return
        if self._recorder.names and self._recorder.layers and not self.unrecognised:
            wanted = ", ".join(map(repr, self._recorder.layers))
            names = _listed(self._recorder.names)
            raise ValueError(f"layers: none of {wanted} is among those that attended: {names}")
        if not self.unrecognised:
            modules = sorted({type(module).__name__ for module in self.model.modules()})
            message = f"no attention was computed in this thread by {type(self.model).__name__}, of the modules "
            warnings.warn(message + _listed(modules), CaptureWarning, stacklevel=3)


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


def _name_of(recorder: Recorder, module: nn.Module | None) -> str:
    """The name of a layer that was not understood."""
    return "" if module is None else recorder.number(module)[0]


def _compiled(model: nn.Module, maps: Sequence[AttentionMap]) -> list[Unrecognised]:
    """Compiled modules of which nothing was seen."""
    reason = "compiled code calls no operation that could be seen; capture the module inside it, ._orig_mod"
    return [
        Unrecognised(path or type(model).__name__, "torch.compile", (), reason)
        for path, module in model.named_modules()
        if hasattr(module, "_orig_mod") and not any(seen.name.startswith(path) for seen in maps)
    ]


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")

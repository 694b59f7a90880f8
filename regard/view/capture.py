"""Attention out of any model:  with regard.capture(model) as seen: model(…)

What the model computes does not change, in no bit. Only what is chosen is computed and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import overload

from torch import nn

from regard.attention.capture import AttentionMap, Indices, Layers, Recorder, by_layer
from regard.view.intercept import intercept
from regard.view.summary import Summary

__all__ = ["Capture", "capture"]

SHOWN = 8  # names in an error


class Capture(Sequence[AttentionMap]):
    """The attention maps of a model that ran within the block, in their order. Made by `capture`."""

    def __init__(self, model: nn.Module, layers: Layers, heads: Indices, queries: Indices) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        if hasattr(model, "_orig_mod"):
            raise TypeError("model: a compiled model calls no function that could be observed; capture the one in it")
        self.model = model
        self._maps: list[AttentionMap] = []
        self._recorder = Recorder(model, self._maps.append, layers, heads, queries)
        self._block = ExitStack()
        self._open = False

    def __enter__(self) -> Capture:
        if self._open:
            raise RuntimeError("this capture is open already: make another one")
        self._open = True
        self._block.enter_context(intercept(self._recorder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._block.close()
        if kind is None and not self._maps:
            raise ValueError(self._reason())

    def _reason(self) -> str:
        """Why nothing was captured."""
        if self._recorder.names:
            wanted = ", ".join(map(repr, self._recorder.layers or ()))
            return f"layers: none of {wanted} is among those that attended: {_listed(self._recorder.names)}"
        modules = sorted({type(module).__name__ for module in self.model.modules()})
        return f"no attention was computed by {type(self.model).__name__}, of the modules {_listed(modules)}"

    @overload
    def __getitem__(self, number: int) -> AttentionMap: ...
    @overload
    def __getitem__(self, number: slice) -> list[AttentionMap]: ...
    def __getitem__(self, number: int | slice) -> AttentionMap | list[AttentionMap]:
        return self._maps[number]

    def __len__(self) -> int:
        return len(self._maps)

    def by_layer(self) -> list[AttentionMap]:
        """One map for each layer: the steps of a decoder, which attends anew for each token, are joined."""
        return by_layer(self._maps)

    def summary(self) -> Summary:
        """Entropy, effective width, distance and weight on the first key, of every head."""
        return Summary(self.by_layer())

    def __repr__(self) -> str:
        return f"Capture of {type(self.model).__name__}: {len(self)} maps of {len(self._recorder.names)} layers"


def capture(model: nn.Module, layers: Layers = None, heads: Indices = None, queries: Indices = None) -> Capture:
    """The attention of any model, while it runs: `with capture(model) as seen: model(…)`.

    seen[i] is an AttentionMap: `weights` (batch, heads, n, m), the `name` of the module that computed them, their
    `kind`. The model may be one of regard's or any other torch.nn.Module: nn.MultiheadAttention and nn.Transformer on
    their fast paths, Hugging Face's models, whatever calls F.scaled_dot_product_attention. What it computes stays the
    same, bit for bit. `layers` chooses by number, in the order in which they attend, or by the path of the module
    (* stands for anything); negative layer numbers are not supported: the number of layers is unknown until the model
    has run. `heads` and `queries` choose by number, negative ones from the end. Only what is chosen is computed and
    kept.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model, heads=[0, 2]) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> [(layer.name, layer.kind, tuple(layer.weights.shape)) for layer in seen]
    [('blocks.0.mixer', 'causal', (1, 2, 3, 3)), ('blocks.1.mixer', 'causal', (1, 2, 3, 3))]
    """
    return Capture(model, layers, heads, queries)


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")

"""The weights of a model's layers as `AttentionMap`s: which layers, heads and queries, under which names.

`Recorder` does so for the calls that observers are notified of. Alignments and the widths of training runs use it as it
is; `regard.capture` adds the models of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.attention.observers import AttentionCall

__all__ = ["AttentionMap", "Recorder", "by_layer"]

CROSS = ("cross", "encoder_attn", "encdec", "multihead_attn")  # in the names of modules for cross-attention
Layers = Sequence[int | str] | int | str | None
Indices = Sequence[int] | int | None


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention weights of one layer.

    name: path of the layer in the model
    kind: "self", "causal" (no query attends to a later key) or "cross" (to keys of another sequence)
    weights: (batch, heads, n, m), a row for each query, a column for each key
    heads, queries: which of the layer's heads and queries these are
    layer: how many other layers of the model attended before it
    tokens, key_tokens: texts of the queries and of the keys; empty where they are not known
    """

    name: str
    kind: str
    weights: Tensor
    heads: tuple[int, ...]
    queries: tuple[int, ...]
    layer: int
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"AttentionMap({self.name!r}, {self.kind}, weights {tuple(self.weights.shape)})"

    def to_dict(self) -> dict[str, Any]:
        """What is known of the weights, for JSON."""
        return {
            "layer": self.layer,
            "name": self.name,
            "kind": self.kind,
            "heads": list(self.heads),
            "tokens": list(self.tokens),
            "key_tokens": list(self.key_tokens),
        }


def by_layer(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """One map for each layer: the steps of a decoder, which attends anew for each token, are joined."""
    names = dict.fromkeys(step.name for step in maps)
    return [_join([step for step in maps if step.name == name]) for name in names]


def _join(steps: list[AttentionMap]) -> AttentionMap:
    """Maps of one layer as one, with the queries below each other.

    While a model generates, each step attends to the keys of the steps before it, and to one more.
    """
    first, m = steps[0], max(step.weights.shape[-1] for step in steps)
    if len(steps) == 1:
        return first
    if len({(len(step.weights), step.heads) for step in steps}) > 1:
        raise ValueError(f"{first.name}: its calls have different batch sizes or heads, and cannot be joined")
    weights = torch.cat([functional.pad(step.weights, (0, m - step.weights.shape[-1])) for step in steps], -2)
    grows = any(step.weights.shape[-1] < m for step in steps)
    kind = "causal" if first.kind != "cross" and grows else first.kind
    return replace(first, weights=weights, kind=kind, queries=tuple(range(weights.shape[-2])))


class Recorder:
    """An observer that makes an AttentionMap of each call in a model, of the layers, heads and queries that are chosen.

    model: calls of modules that are not in it are ignored
    record: is called with each map
    layers: by number, in the order in which they first attend, or by path (* stands for anything); None: all
    heads, queries: by number, negative ones from the end; None: all
    """

    def __init__(
        self,
        model: nn.Module,
        record: Callable[[AttentionMap], object],
        layers: Layers = None,
        heads: Indices = None,
        queries: Indices = None,
    ) -> None:
        self.layers = _several("layers", layers, (int, str))
        self.heads, self.queries = _several("heads", heads, (int,)), _several("queries", queries, (int,))
        self.names: list[str] = []  # of all layers that attended
        self._paths = {module: path for path, module in model.named_modules()}
        self._root, self._record = type(model).__name__, record

    def __call__(self, call: AttentionCall) -> None:
        path = self._paths.get(call.module) if call.module is not None else None
        if path is None:
            return
        name = ".".join(part for part in (path, call.within) if part) or self._root
        if name not in self.names:
            self.names.append(name)
        layer = self.names.index(name)
        if self.layers is not None and not any(_is_layer(wanted, layer, name) for wanted in self.layers):
            return
        heads = _indices("heads", self.heads, call.heads, name)
        queries = _indices("queries", self.queries, call.queries, name)
        weights = call.weights(None if self.queries is None else queries, None if self.heads is None else heads)
        self._record(AttentionMap(name, _kind(call, name, weights, queries), weights, heads, queries, layer))


def _several(name: str, given: object, types: tuple[type, ...]) -> tuple[Any, ...] | None:
    """One or several numbers or paths, as a tuple."""
    if given is None:
        return None
    if isinstance(given, Tensor):
        given = given.tolist()
    chosen = (given,) if isinstance(given, (int, str)) else given
    if not isinstance(chosen, Sequence) or any(isinstance(one, bool) or not isinstance(one, types) for one in chosen):
        expected = " or ".join({int: "numbers", str: "module paths"}[kind] for kind in types)
        raise TypeError(f"{name}: expected {expected}, got {given!r}")
    if name == "layers" and any(isinstance(one, int) and one < 0 for one in chosen):
        raise ValueError(f"layers: expected numbers from 0 on, got {given!r}")
    return tuple(chosen)


def _is_layer(wanted: int | str, layer: int, name: str) -> bool:
    return wanted == layer if isinstance(wanted, int) else fnmatchcase(name, wanted)


def _indices(name: str, wanted: tuple[int, ...] | None, count: int, layer: str) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(count))
    for index in wanted:
        if not -count <= index < count:
            raise IndexError(f"{name}: expected numbers below {count}, as many as {layer} has, got {index}")
    return tuple(index % count for index in wanted)


def _kind(call: AttentionCall, name: str, weights: Tensor, queries: tuple[int, ...]) -> str:
    """By what the call says, else by the layer's name, else by whether any weight is on a later key."""
    if call.cross or (call.cross is None and any(part in name.lower() for part in CROSS)):
        return "cross"
    m = weights.shape[-1]
    if m < 2 or max(queries, default=0) >= m:
        return "self"
    later = torch.arange(m, device=weights.device) > torch.tensor(queries, device=weights.device)[:, None]  # (n, m)
    if not bool(later.any()):
        return "self"
    # The first head of the first entry decides for most layers that are not causal; only else are all of them read.
    attends = any(bool((part.ne(0) & later).any()) for part in (weights[:1, :1], weights))
    return "self" if attends else "causal"

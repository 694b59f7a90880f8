"""The weights of a model's layers as `AttentionMap`s: which layers, heads and queries, under which names.

`Recorder` does so for the calls that observers are notified of. Alignments and the widths of training runs use it as it
is; `regard.capture` adds the models of other libraries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.attention.observers import AttentionCall, pick

if TYPE_CHECKING:
    from regard.attention.summary import Summary


Layers = Sequence[int | str] | int | str | None
Indices = Sequence[int] | int | None
HIDDEN = -5e3  # a score below it is one that a mask has hidden


class Gradient:
    """Where the gradient of weights appears when a backward pass computes it."""

    value: Tensor | None = None

    def add(self, gradient: Tensor) -> None:
        """Add a gradient (batch, heads, n, m)."""
        self.value = gradient.detach().clone() if self.value is None else self.value + gradient


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention weights of one call of a layer.

    name: path of the layer in the model
    kind: "self", "causal" (no query attends to a later key) or "cross" (to keys of another sequence)
    weights: (batch, heads, n, m), a row for each query, a column for each key; without columns if `summary` has them
    heads, queries: which of the layer's heads, and which positions of the sequence, these are
    layer: how many other layers of the model attended before it · call: how many times this one did
    tokens, key_tokens: texts of the queries and of the keys; empty where they are not known
    keys: positions of the keys in their sequence; empty: 0, 1, 2 …
    sink: (batch, heads, n), the weight that went to a sink, which is no key; None: there is none
    query, key, value, output: (batch, heads, n or m, size), if they were asked for and are known; keys and values that
        several heads share are there for each of them
    summary: what `summarize` says of the weights, if that was asked for instead of them
    """

    name: str
    kind: str
    weights: Tensor
    heads: tuple[int, ...]
    queries: tuple[int, ...]
    layer: int
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    call: int = 0
    keys: tuple[int, ...] = ()
    sink: Tensor | None = None
    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    output: Tensor | None = None
    summary: Summary | None = None
    gradients: Gradient | None = None

    @property
    def gradient(self) -> Tensor | None:
        """The derivative of the loss with respect to the weights, after a backward pass; None before, or without."""
        return None if self.gradients is None else self.gradients.value

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
    """The maps, with the steps of a decoder joined to one where a call of a layer continues the one before.

    Keys keep their absolute positions, also those that a cache with a sliding window has forgotten meanwhile.
    """
    chains: dict[str, list[list[AttentionMap]]] = {}
    for step in maps:
        calls = chains.setdefault(step.name, [])
        chain = next((chain for chain in reversed(calls) if _continues(chain[-1], step)), None)
        if chain is None:
            calls.append([step])
        else:
            chain.append(step)
    return [_join(chain) for calls in chains.values() for chain in calls]


def _continues(before: AttentionMap, step: AttentionMap) -> bool:
    """Whether the queries of a call follow those of another, and see the same sequence of keys."""
    same = before.weights.shape[0] == step.weights.shape[0] and before.heads == step.heads
    if not same or before.summary is not None or not before.queries or not step.queries:
        return False
    if (before.kind == "cross") != (step.kind == "cross") or step.queries[0] != before.queries[-1] + 1:
        return False
    return _columns(before) == _columns(step) if step.kind == "cross" else _columns(before)[-1:] <= _columns(step)[-1:]


def _columns(step: AttentionMap) -> tuple[int, ...]:
    return step.keys or tuple(range(step.weights.shape[-1]))


def _join(steps: list[AttentionMap]) -> AttentionMap:
    """Calls of one layer as one, with the queries below each other and every key at its position."""
    first = steps[0]
    if len(steps) == 1:
        return first
    m = max(max(_columns(step), default=-1) for step in steps) + 1
    queries = tuple(query for step in steps for query in step.queries)
    weights, row = first.weights.new_zeros(*first.weights.shape[:2], len(queries), m), 0
    for step in steps:
        rows = slice(row, row + step.weights.shape[2])
        weights[:, :, rows, list(_columns(step))] = step.weights
        row = rows.stop
    later = torch.arange(m) > torch.tensor(queries)[:, None]  # (n, m)
    ahead = bool((weights.ne(0) & later.to(weights.device)).any())
    sinks = [step.sink for step in steps if step.sink is not None]
    cleared: dict[str, Any] = dict.fromkeys(("query", "key", "value", "output", "gradients"))
    return replace(
        first,
        weights=weights,
        kind=first.kind if first.kind == "cross" else "self" if ahead else "causal",
        queries=queries,
        keys=tuple(range(m)),
        sink=torch.cat(sinks, -1) if len(sinks) == len(steps) else None,
        **cleared,
    )


class Recorder:
    """An observer that makes an AttentionMap of each call in a model, of the layers, heads and queries that are chosen.

    model: calls of modules that are not in it are ignored
    record: is called with each map
    layers: by number, in the order in which they first attend, or by path (* stands for anything); None: all
    heads, queries: by number, negative ones from the end; None: all
    operands: whether queries, keys, values and outputs are kept · gradients: whether those of the weights are, when a
    backward pass comes · summary: whether only a summary of the weights is
    """

    def __init__(
        self,
        model: nn.Module,
        record: Callable[[AttentionMap], object],
        layers: Layers = None,
        heads: Indices = None,
        queries: Indices = None,
        *,
        operands: bool = False,
        gradients: bool = False,
        summary: bool = False,
    ) -> None:
        self.layers = several("layers", layers, (int, str))
        self.heads, self.queries = several("heads", heads, (int,)), several("queries", queries, (int,))
        self.operands, self.gradients, self.summary = operands, gradients, summary
        self.names: list[str] = []  # of all layers that attended
        self.error: IndexError | None = None  # a head or a query that a layer does not have: the model runs on
        self._calls: Counter[str] = Counter()
        self.paths = {module: path for path, module in model.named_modules()}
        self._root, self._record = type(model).__name__, record

    def number(self, module: nn.Module, within: str = "") -> tuple[str, int]:
        """The name of a layer, and how many others attended before it first did."""
        name = ".".join(part for part in (self.paths[module], within) if part) or self._root
        if name not in self.names:
            self.names.append(name)
        return name, self.names.index(name)

    def skips(self, module: nn.Module, within: str = "") -> bool:
        """Whether a call of a layer is not among the chosen ones; then it is counted."""
        name, layer = self.number(module, within)
        if self.layers is None or any(is_layer(wanted, layer, name) for wanted in self.layers):
            return False
        self._calls[name] += 1
        return True

    def __call__(self, call: AttentionCall) -> AttentionMap | None:
        """The map that was made of a call, if it was chosen."""
        if call.module is None or call.module not in self.paths or self.skips(call.module, call.within):
            return None
        name, layer = self.number(call.module, call.within)
        count = self._calls[name]
        self._calls[name] += 1
        try:
            heads = indices("heads", self.heads, call.heads, name)
            rows = indices("queries", self.queries, call.queries, name)
        except IndexError as error:
            self.error = self.error or error
            return None
        chosen = (None if self.queries is None else rows, None if self.heads is None else heads)
        summary = call.summary(*chosen) if self.summary else None
        weights = call.weights(*chosen) if summary is None else summary.received.new_empty(*summary.entropy.shape, 0)
        places = call.positions
        queries = rows if places is None or len(places) != call.queries else tuple(places[row] for row in rows)
        keys = tuple(call.key_positions or ())
        m = weights.shape[-1] if summary is None else summary.received.shape[-1]
        keys = keys if len(keys) == m else tuple(range(m))
        operands: dict[str, Any] = call.operands(*chosen) if self.operands else {}
        gradient = Gradient()
        if self.gradients:
            call.on_gradient(lambda whole: gradient.add(pick(whole, *chosen)))
        made = AttentionMap(
            name,
            _kind(call, weights, queries, keys, summary),
            weights,
            heads,
            queries,
            layer,
            call=count,
            keys=keys,
            sink=call.sink_of(*chosen),
            summary=summary,
            gradients=gradient if self.gradients else None,
            **operands,
        )
        self._record(made)
        return made


def several(name: str, given: object, types: tuple[type, ...]) -> tuple[Any, ...] | None:
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


def is_layer(wanted: int | str, layer: int, name: str) -> bool:
    """Whether a layer is the one that is wanted by number or path."""
    return wanted == layer if isinstance(wanted, int) else fnmatchcase(name, wanted)


def indices(name: str, wanted: tuple[int, ...] | None, count: int, layer: str) -> tuple[int, ...]:
    """The chosen ones of `count` heads or queries, from 0 on; None: all."""
    if wanted is None:
        return tuple(range(count))
    for index in wanted:
        if not -count <= index < count:
            raise IndexError(f"{name}: expected numbers below {count}, as many as {layer} has, got {index}")
    return tuple(index % count for index in wanted)


def _kind(
    call: AttentionCall, weights: Tensor, queries: tuple[int, ...], keys: tuple[int, ...], summary: Summary | None
) -> str:
    """By what the call says, else by whether a mask hides all later keys."""
    if call.cross:
        return "cross"
    if call.causal is not None:
        return "causal" if call.causal else "self"
    m = len(keys)
    columns = torch.tensor(keys, device=weights.device)
    rows = torch.tensor(queries, device=weights.device)[:, None]
    later = columns > rows  # (n, m)
    if not later.numel() or not bool(later.any()):
        return "causal" if later.numel() and len(rows) < m and int(rows.max()) == int(columns.max()) > 0 else "self"
    if summary is not None:
        ahead = (columns[summary.top_keys] > rows) & (summary.top_weights > 0)
        return "self" if bool(ahead.any()) else "causal"
    # The first head of the first entry decides for most layers that are not causal; only else are all of them read.
    if any(bool((part.ne(0) & later).any()) for part in (weights[:1, :1], weights)):
        return "self"
    if call.scores is not None and call.scores.shape == weights.shape:
        return "self" if bool(((call.scores > HIDDEN) & later).any()) else "causal"
    return "causal"

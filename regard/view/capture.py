"""Attention out of any model:  with regard.capture(model) as seen: model(…)

Nothing of what the model computes changes, in no bit. Only what is asked for is computed and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from types import TracebackType
from typing import overload

import torch
from torch import Tensor, nn

from regard.models.seq2seq import Seq2Seq
from regard.view.intercept import Heard, listening
from regard.view.seen import Seen, joined
from regard.view.summary import Summary

__all__ = ["Capture", "Seen", "capture"]

CROSS = ("cross", "encoder_attn", "encdec", "multihead_attn")  # in the names of layers that look at another sequence
SHOWN = 8  # names in an error


class Capture(Sequence[Seen]):
    """The looks that a model took within the block, in their order. Made by `capture`."""

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[int | str] | int | str | None,
        heads: Sequence[int] | int | None,
        queries: Sequence[int] | int | None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        if hasattr(model, "_orig_mod"):
            raise TypeError("model: a compiled model calls nothing that could be heard; capture the one inside it")
        self.model = model
        self.layers = None if layers is None else _several("layers", layers, (int, str))
        self.heads = None if heads is None else _several("heads", heads, (int,))
        self.queries = None if queries is None else _several("queries", queries, (int,))
        self._paths = {module: path for path, module in model.named_modules()}
        self._order: list[str] = []  # of the layers that looked
        self._seen: list[Seen] = []
        self._block = ExitStack()
        self._open = False

    def __enter__(self) -> Capture:
        if self._open:
            raise RuntimeError("this capture is open already: make another one")
        self._open = True
        self._block.enter_context(listening(self._hear))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._block.close()
        if kind is None:
            self._check()

    def _hear(self, heard: Heard) -> None:
        path = self._paths.get(heard.module) if heard.module is not None else None
        if path is None:
            return  # of another model
        name = ".".join(part for part in (path, heard.within) if part) or type(self.model).__name__
        if name not in self._order:
            self._order.append(name)
        layer = self._order.index(name)
        if self.layers is not None and not any(_is_meant(one, layer, name) for one in self.layers):
            return
        heads = _chosen("heads", self.heads, heard.heads, name)
        queries = _chosen("queries", self.queries, heard.queries, name)
        weights = heard.weights(
            None if self.queries is None else queries, None if self.heads is None else heads
        ).detach()
        self._seen.append(Seen(name, _kind(heard.module, name, weights, queries), weights, heads, queries, layer))

    def _check(self) -> None:
        """Say why nothing was seen, rather than leave an empty list behind."""
        if self._seen:
            return
        if self._order:
            wanted = ", ".join(repr(one) for one in self.layers or ())
            raise ValueError(f"layers: none of {wanted} is among those that looked: {_listed(self._order)}")
        modules = sorted({type(module).__name__ for module in self.model.modules()})
        raise ValueError(f"no attention was called; modules seen: {_listed(modules)}")

    @overload
    def __getitem__(self, number: int) -> Seen: ...
    @overload
    def __getitem__(self, number: slice) -> list[Seen]: ...
    def __getitem__(self, number: int | slice) -> Seen | list[Seen]:
        return self._seen[number]

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[Seen]:
        return iter(self._seen)

    def by_layer(self) -> list[Seen]:
        """One for each layer: what it saw in several steps, as a decoder does, is put together."""
        names = list(dict.fromkeys(own.name for own in self._seen))
        return [joined([own for own in self._seen if own.name == name]) for name in names]

    def summary(self) -> Summary:
        """Entropy, effective width, distance and weight on the first key, of every head."""
        return Summary(self.by_layer())

    def __repr__(self) -> str:
        return f"Capture of {type(self.model).__name__}: {len(self)} looks of {len(self._order)} layers"


def capture(
    model: nn.Module,
    layers: Sequence[int | str] | int | str | None = None,
    heads: Sequence[int] | int | None = None,
    queries: Sequence[int] | int | None = None,
) -> Capture:
    """The attention of any model, while it runs: `with capture(model) as seen: model(…)`.

    seen[i] has the `weights` (batch, heads, n, m) of a look, the `name` of the module that took it, and its `kind`. The
    model may be one of regard's or any other torch.nn.Module: nn.MultiheadAttention and nn.Transformer on their fast
    paths, Hugging Face's models, whatever calls F.scaled_dot_product_attention. What it computes stays the same, bit
    for bit. `layers` chooses by number, in the order in which they look (negative: not from the end, which is not known
    before), or by the path of the module (* stands for anything); `heads` and `queries` by number, negative ones from
    the end. Only what is chosen is computed and kept.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model, heads=[0, 2]) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> [(look.name, look.kind, tuple(look.weights.shape)) for look in seen]
    [('blocks.0.mixer', 'causal', (1, 2, 3, 3)), ('blocks.1.mixer', 'causal', (1, 2, 3, 3))]
    """
    return Capture(model, layers, heads, queries)


def _several(name: str, given: object, kinds: tuple[type, ...]) -> tuple[int | str, ...]:
    """One or several, as a tuple."""
    if isinstance(given, Tensor):
        given = given.tolist()
    found = (given,) if isinstance(given, (int, str)) else tuple(given) if isinstance(given, Sequence) else None
    if found is None or any(isinstance(one, bool) or not isinstance(one, kinds) for one in found):
        expected = " or ".join({int: "numbers", str: "module paths"}[kind] for kind in kinds)
        raise TypeError(f"{name}: expected {expected}, got {given!r}")
    if name == "layers" and any(isinstance(one, int) and one < 0 for one in found):
        raise ValueError(f"layers: expected numbers from 0 on, got {given!r}")
    return found


def _is_meant(wanted: int | str, layer: int, name: str) -> bool:
    return wanted == layer if isinstance(wanted, int) else fnmatchcase(name, wanted)


def _chosen(name: str, wanted: tuple[int | str, ...] | None, count: int, layer: str) -> tuple[int, ...]:
    """Which of `count` there are to be."""
    if wanted is None:
        return tuple(range(count))
    for one in wanted:
        if not -count <= int(one) < count:
            raise IndexError(f"{name}: expected numbers below {count}, as many as {layer} has, got {one}")
    return tuple(int(one) % count for one in wanted)


def _kind(layer: nn.Module | None, name: str, weights: Tensor, queries: tuple[int, ...]) -> str:
    """By its name, and by what it does not look at."""
    if isinstance(layer, Seq2Seq) or any(part in name.lower() for part in CROSS):
        return "cross"
    m = weights.shape[-1]
    if m < 2 or max(queries, default=0) >= m:
        return "self"
    later = torch.arange(m, device=weights.device) > torch.tensor(queries, device=weights.device)[:, None]  # (n, m)
    if not bool(later.any()):
        return "self"
    # One head of one entry tells at once for most layers; only where it sees nothing later have all to be asked.
    return "self" if any(bool((some.ne(0) & later).any()) for some in (weights[:1, :1], weights)) else "causal"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")

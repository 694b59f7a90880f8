"""Hearing of every look that a model takes, whatever it calls for it, while somebody listens in this thread.

    regard.attend and regard's layers        tell of it themselves (attention/observers.py)
    F.scaled_dot_product_attention           and what calls it: nn.MultiheadAttention, transformers, timm …
    PyTorch's fast paths                     of nn.MultiheadAttention and nn.TransformerEncoderLayer
    softmax over (batch, heads, n, m)        attention that is written out

For the last three the functions of PyTorch are replaced by ones that call them and then tell. They are in their places
again when the last listener leaves, in whichever thread. What they return is what PyTorch returned.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.attention import Dot, Mask, bias, causal, drop, keep
from regard.attention.formula import weights as weights_of
from regard.attention.observers import AttentionCall, watching

__all__ = ["Heard", "listening"]

Indices = Sequence[int] | None


@dataclass(frozen=True)
class Heard:
    """A look: how many heads and queries it has, in which module, and how to get the weights of some of them."""

    module: nn.Module | None
    within: str  # of the module, where the look is taken by a part of it that was not called
    heads: int
    queries: int
    weights: Callable[[Indices, Indices], Tensor]  # (queries, heads) → (batch, heads, n, m)


Listener = Callable[[Heard], None]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
_modules: ContextVar[tuple[nn.Module, ...]] = ContextVar("modules", default=())  # that run, the innermost last


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within this block the listener is told of every look in this thread."""
    with _PATCHES:
        token, running = _listeners.set((*_listeners.get(), listener)), _modules.set(_modules.get())
        try:
            with watching(lambda look: _told(listener, look)):
                yield
        finally:
            _modules.reset(running)
            _listeners.reset(token)


def _told(listener: Listener, look: AttentionCall) -> None:
    """A look of regard's own."""
    several = look.query.dim() > 3
    queries = int(look.query.shape[-2])
    sequences = None if look.mask is None else look.mask.sequences
    if sequences is not None:
        queries = max(_counts(sequences[0]), default=0)

    def weights(rows: Indices, heads: Indices) -> Tensor:
        if sequences is not None:
            return _side_by_side(look, *sequences, range(queries) if rows is None else rows, heads)
        return _with_heads(look.weights(rows, heads if several else None), several)

    heads = int(look.query.shape[-3]) if several else 1
    listener(Heard(look.layer or _innermost(), "", heads, queries, _quietly(weights)))


def _side_by_side(
    look: AttentionCall, ends: list[int], key_ends: list[int], rows: Sequence[int], heads: Indices
) -> Tensor:
    """Sequences that lie end to end, (1, heads, total, size), as a padded batch (batch, heads, n, m) of weights."""
    counts, key_counts = _counts(ends), _counts(key_ends)
    found = []
    for end, count, key_end, key_count in zip(ends, counts, key_ends, key_counts, strict=True):
        own = [place for place, row in enumerate(rows) if row < count]
        some = [end - count + rows[place] for place in own]
        block = look.weights(some, heads)[0, :, :, key_end - key_count : key_end]
        whole = block.new_zeros(len(block), len(rows), max(key_counts))
        whole[:, own, :key_count] = block
        found.append(whole)
    return torch.stack(found)


def _counts(ends: list[int]) -> list[int]:
    return [end - start for start, end in pairwise([0, *ends])]


def _with_heads(weights: Tensor, several: bool) -> Tensor:
    """(batch, heads, n, m), with one head where there are none."""
    return weights if several else weights.reshape(-1, 1, *weights.shape[-2:])


def _tell(within: str, heads: int, queries: int, weights: Callable[[Indices, Indices], Tensor]) -> None:
    for listener in _listeners.get():
        listener(Heard(_innermost(), within, heads, queries, _quietly(weights)))


def _quietly(weights: Callable[[Indices, Indices], Tensor]) -> Callable[[Indices, Indices], Tensor]:
    """Computed without gradients, and heard by nobody."""

    def computed(rows: Indices, heads: Indices) -> Tensor:
        token = _listeners.set(())
        try:
            with torch.no_grad():
                return weights(rows, heads)
        finally:
            _listeners.reset(token)

    return computed


def _innermost() -> nn.Module | None:
    running = _modules.get()
    return running[-1] if running else None


# ---------------------------------------------------------------------------------------- what PyTorch's functions tell


def _of_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """F.scaled_dot_product_attention."""
    mask = causal(align="start") if is_causal else None
    if attn_mask is not None:
        mask = keep(attn_mask) if attn_mask.dtype == torch.bool else bias(attn_mask)
    _tell_of_dots(query, key, mask, scale)


def _tell_of_dots(query: Tensor, key: Tensor, mask: Mask | None, scale: float | None = None, within: str = "") -> None:
    """Scaled dot products of (batch, heads, n, size); with fewer dimensions it is one head."""
    several = query.dim() > 3

    def weights(rows: Indices, heads: Indices) -> Tensor:
        found = weights_of(query, key, score=Dot(scale), mask=mask, rows=rows, heads=heads if several else None)
        return _with_heads(found, several)

    _tell(within, int(query.shape[-3]) if several else 1, int(query.shape[-2]), weights)


def _of_native(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
    *,
    within: str = "",
) -> None:
    """The fast path of nn.MultiheadAttention: inputs (batch, n, size), which it projects itself."""
    rows, keys = (_padded(own) for own in (query, key))
    weight, added = qkv_weight.split(embed_dim)[:2], qkv_bias.split(embed_dim)[:2]
    looking, looked_at = (
        functional.linear(own, *both).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for own, both in zip((rows, keys), zip(weight, added, strict=True), strict=True)
    )
    _tell_of_dots(looking, looked_at, _dropped(mask, mask_type, key), within=within)


def _of_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    *rest: Any,
    **more: Any,
) -> None:
    """The fast path of nn.TransformerEncoderLayer, which does not even call its attention."""
    names = ("norm_weight_2", "norm_bias_2", "w1", "b1", "w2", "b2", "mask", "mask_type")
    given = {**dict(zip(names, rest, strict=False)), **more}
    rows = functional.layer_norm(src, (embed_dim,), norm_weight_1, norm_bias_1, eps) if norm_first else src
    fixed = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, given.get("mask"))
    _of_native(rows, rows, rows, *fixed, mask_type=given.get("mask_type"), within="self_attn")


def _padded(rows: Tensor) -> Tensor:
    """A nested tensor, which the fast path makes of a padded batch, padded again."""
    return rows.to_padded_tensor(0.0) if rows.is_nested else rows


def _dropped(mask: Tensor | None, kind: int | None, key: Tensor) -> Mask | None:
    """A mask of the fast path, in which True forbids: 0: (n, m), 1: (batch, m), 2: (batch, heads, n, m)."""
    if key.is_nested:
        counts = torch.tensor([len(own) for own in key.unbind()])
        return keep((torch.arange(int(counts.max())) < counts[:, None])[:, None, None])
    if mask is None:
        return None
    forbidden = mask.to(torch.bool)
    return drop(forbidden[:, None, None] if kind == 1 else forbidden)


def _of_softmax(found: Tensor) -> None:
    """Attention that is written out: weights (batch, heads, n, m), or (batch, n, m) where a module says what it is."""
    module = _innermost()
    if module is None or not found.is_floating_point():
        return
    if found.dim() == 3 and "attention" in type(module).__name__.lower():
        heads = getattr(module, "num_heads", 1) if isinstance(module, nn.MultiheadAttention) else 1
        found = found.unflatten(0, (-1, heads))
    if found.dim() != 4:
        return

    def weights(rows: Indices, heads: Indices) -> Tensor:
        kept = found if heads is None else found[:, list(heads)]
        return (kept if rows is None else kept[:, :, list(rows)]).detach().clone()

    _tell("", int(found.shape[1]), int(found.shape[2]), weights)


# -------------------------------------------------------------------------------------------- in PyTorch's own places


def _heard(original: Any, tell: Callable[..., None]) -> Any:
    """The function, followed by what it tells of its arguments."""

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if _listeners.get():
            tell(*arguments, **named)
        return result

    return call


def _heard_softmax(original: Any) -> Any:
    """softmax(input, dim, …), where it is over the last dimension."""

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if _listeners.get():
            over = named.get("dim", arguments[1] if len(arguments) > 1 else None)
            if over in (-1, result.dim() - 1):
                _of_softmax(result)
        return result

    return call


def _enter(module: nn.Module, arguments: Any) -> None:
    if _listeners.get():
        _modules.set((*_modules.get(), module))


def _leave(module: nn.Module, arguments: Any, result: Any) -> None:
    running = _modules.get()
    if running and running[-1] is module:
        _modules.set(running[:-1])


class _Patches:
    """The functions of PyTorch that are replaced while anybody listens."""

    def __init__(self, replaced: Mapping[tuple[Any, str], Callable[[Any], Any]]) -> None:
        self.replaced, self.lock, self.listeners = replaced, threading.Lock(), 0
        self.undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        with self.lock:
            self.listeners += 1
            if self.listeners > 1:
                return
            for (place, name), around in self.replaced.items():
                original = getattr(place, name)
                own = name in vars(place)  # else it is inherited, and comes back by itself
                back: Any = functools.partial(setattr, place, name, original) if own else None
                self.undo.append(back or functools.partial(delattr, place, name))
                setattr(place, name, around(original))
            self.undo.append(register_module_forward_pre_hook(_enter).remove)
            self.undo.append(register_module_forward_hook(_leave, always_call=True).remove)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.listeners -= 1
            if not self.listeners:
                while self.undo:
                    self.undo.pop()()


_PATCHES = _Patches(
    {
        (functional, "scaled_dot_product_attention"): functools.partial(_heard, tell=_of_fused),
        (torch, "_native_multi_head_attention"): functools.partial(_heard, tell=_of_native),
        (torch, "_transformer_encoder_layer_fwd"): functools.partial(_heard, tell=_of_encoder_layer),
        (torch, "softmax"): _heard_softmax,
        (Tensor, "softmax"): _heard_softmax,  # which F.softmax and nn.Softmax call
    }
)

"""Attention that other libraries compute, for the observers of attention/observers.py.

    F.scaled_dot_product_attention           and what calls it: nn.MultiheadAttention, transformers, timm …
    PyTorch's fast paths                     of nn.MultiheadAttention and nn.TransformerEncoderLayer
    softmax over (batch, heads, n, m)        attention that is written out

These functions of PyTorch are replaced by ones that call them, return what they returned, and notify the observers.
They are back in their places when the last interception ends, in whichever thread. Global hooks of PyTorch follow which
module runs, so that a call of `regard.attend` outside of regard's layers has a module as well.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.attention import Dot, Mask, bias, causal, drop, keep
from regard.attention.observers import AttentionCall, Observer, notify, observe, observed

__all__ = ["intercept"]

_running: ContextVar[tuple[nn.Module, ...]] = ContextVar("running", default=())  # modules, the innermost last


@contextmanager
def intercept(observer: Observer) -> Iterator[None]:
    """Within this block the observer is called for all attention in this thread, with the module that it is in."""

    def located(call: AttentionCall) -> None:
        observer(replace(call, module=_innermost()) if call.module is None else call)

    with _PATCHES, observe(located):
        token = _running.set(_running.get())
        try:
            yield
        finally:
            _running.reset(token)


def _innermost() -> nn.Module | None:
    modules = _running.get()
    return modules[-1] if modules else None


# ----------------------------------------- how each function attends: its result, then its arguments in PyTorch's order


def _fused(
    output: Tensor,
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
    notify(None, query, key, Dot(scale), mask)


def _multihead_fast_path(
    output: object,
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
    projections = zip(qkv_weight.split(embed_dim), qkv_bias.split(embed_dim), strict=True)
    queries, keys = (
        functional.linear(_padded(rows), *projection).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for rows, projection in zip((query, key), projections, strict=False)
    )  # (batch, heads, n, head size)
    notify(None, queries, keys, Dot(), _fast_path_mask(mask, mask_type, key), within=within)


def _encoder_layer_fast_path(
    output: Tensor,
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
    **options: Any,
) -> None:
    """The fast path of nn.TransformerEncoderLayer, which does not even call its attention."""
    names = ("norm_weight_2", "norm_bias_2", "w1", "b1", "w2", "b2", "mask", "mask_type")
    given = {**dict(zip(names, rest, strict=False)), **options}
    rows = functional.layer_norm(src, (embed_dim,), norm_weight_1, norm_bias_1, eps) if norm_first else src
    fixed = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, given.get("mask"))
    _multihead_fast_path(None, rows, rows, rows, *fixed, mask_type=given.get("mask_type"), within="self_attn")


def _padded(rows: Tensor) -> Tensor:
    """A nested tensor, which the fast path makes of a padded batch, padded again."""
    return rows.to_padded_tensor(0.0) if rows.is_nested else rows


def _fast_path_mask(mask: Tensor | None, kind: int | None, key: Tensor) -> Mask | None:
    """A mask of the fast path, in which True forbids: 0: (n, m), 1: (batch, m), 2: (batch, heads, n, m)."""
    if key.is_nested:
        counts = torch.tensor([len(sequence) for sequence in key.unbind()])
        return keep((torch.arange(int(counts.max())) < counts[:, None])[:, None, None])
    if mask is None:
        return None
    forbidden = mask.to(torch.bool)
    return drop(forbidden[:, None, None] if kind == 1 else forbidden)


def _softmax(weights: Tensor, *arguments: Any, dim: int | None = None, **options: Any) -> None:
    """softmax(input, dim): weights (batch, heads, n, m), or (batch, n, m) in a module named after attention."""
    dim = arguments[1] if dim is None and len(arguments) > 1 else dim
    module = _innermost()
    if dim not in (-1, weights.dim() - 1) or module is None or not weights.is_floating_point():
        return
    if weights.dim() == 3 and "attention" in type(module).__name__.lower():
        heads = getattr(module, "num_heads", 1) if isinstance(module, nn.MultiheadAttention) else 1
        weights = weights.unflatten(0, (-1, heads))
    if weights.dim() == 4:
        query, key = weights[..., :0], weights.mT[..., :0]  # of the right shapes; their numbers are not known
        notify(None, query, key, known=weights)


# ------------------------------------------------------------------------------------------------ PyTorch's functions


def _notifying(original: Any, report: Callable[..., None]) -> Any:
    """The function, and then a report of its result and its arguments to the observers."""

    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if observed():
            report(result, *arguments, **options)
        return result

    return call


def _enter(module: nn.Module, arguments: Any) -> None:
    if observed():
        _running.set((*_running.get(), module))


def _leave(module: nn.Module, arguments: Any, result: Any) -> None:
    modules = _running.get()
    if modules and modules[-1] is module:
        _running.set(modules[:-1])


class _Patches:
    """The functions of PyTorch that are replaced, and its hooks, for as long as any thread is within this context.

    replaced: (module or class, name of its function) → what reports a call of it
    """

    def __init__(self, replaced: Mapping[tuple[Any, str], Callable[..., None]]) -> None:
        self.replaced, self.lock, self.users = replaced, threading.Lock(), 0
        self.undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            for (home, name), report in self.replaced.items():
                original = getattr(home, name)
                inherited = name not in vars(home)  # then it is found again when ours is deleted
                back: Any = functools.partial(delattr, home, name)
                self.undo.append(back if inherited else functools.partial(setattr, home, name, original))
                setattr(home, name, _notifying(original, report))
            self.undo.append(register_module_forward_pre_hook(_enter).remove)
            self.undo.append(register_module_forward_hook(_leave, always_call=True).remove)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                while self.undo:
                    self.undo.pop()()


_PATCHES = _Patches(
    {
        (functional, "scaled_dot_product_attention"): _fused,
        (torch, "_native_multi_head_attention"): _multihead_fast_path,
        (torch, "_transformer_encoder_layer_fwd"): _encoder_layer_fast_path,
        (torch, "softmax"): _softmax,
        (Tensor, "softmax"): _softmax,  # which F.softmax and nn.Softmax call
    }
)

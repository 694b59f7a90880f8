"""The block that Transformers are stacked from, and its parts.

    pre-norm:   x ← x + mixer(norm(x));    x ← x + cross(norm(x), memory);    x ← x + feed_forward(norm(x))
    post-norm:  x ← norm(x + mixer(x));    x ← norm(x + cross(x, memory));    x ← norm(x + feed_forward(x))

Only the mixer (and cross) looks beyond a row; everything else acts on each row alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_choice, check_dropout, check_positive, check_sizes
from regard.attention import Mask
from regard.attention.dropout import dropout
from regard.models.cache import KVCache, Memory
from regard.models.decode_kernels import Linear, RMSNorm, fed_forward
from regard.models.mixers import Convolution, Recurrent
from regard.models.multihead import SCORES, MultiHead
from regard.models.packing import Places

__all__ = ["ACTIVATIONS", "MIXERS", "NORMS", "Block", "Blocks", "FeedForward", "dropped", "make_blocks"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
}
GATED = {"swiglu": functional.silu}


NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": RMSNorm}


def dropped(rows: Tensor, share: float, training: bool) -> Tensor:
    """Dropout, which costs nothing where nothing is dropped."""
    return dropout(rows, share) if training and share else rows


class Blocks(nn.ModuleList):
    """Blocks, one after the other."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Block]: ...


class FeedForward(nn.Module):
    """activation(x W₁ + b₁) W₂ + b₂, on each row alone; swiglu: (silu(x W_g) · x W₁) W₂.

    >>> import regard, torch
    >>> regard.FeedForward(24, ffn_size=96)(torch.randn(2, 5, 24)).shape  # (…, size) → (…, size)
    torch.Size([2, 5, 24])
    """

    def __init__(
        self, size: int, ffn_size: int, activation: str = "gelu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes(size=size, ffn_size=ffn_size)
        self.name = check_choice("activation", activation, [*ACTIVATIONS, *GATED])
        self.gated = activation in GATED
        self.activation = (ACTIVATIONS | GATED)[activation]
        self.in_proj = Linear(size, ffn_size * (2 if self.gated else 1), bias=bias)  # gate and rest in one product
        self.out_proj = Linear(ffn_size, size, bias=bias)
        self.dropout = check_dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        if not (self.training and self.dropout):
            fused = fed_forward(rows, self.in_proj, self.name, self.out_proj)
            if fused is not None:
                return fused
        inner = self.in_proj(rows)
        if self.gated:
            gate, rest = inner.chunk(2, -1)
            inner = self.activation(gate) * rest
        else:
            inner = self.activation(inner)
        output: Tensor = self.out_proj(dropped(inner, self.dropout, self.training))
        return output


class Block(nn.Module):
    """A mixer, a look at a memory if there is a `cross`, and a feed-forward net, each with its norm and its shortcut.

    rows (batch, n, size) → the same. The mixer is MultiHead, Recurrent, Convolution, or whatever has their `mix`.

    >>> import regard, torch
    >>> block = regard.Block(regard.MultiHead(24, heads=3), regard.FeedForward(24, 96))
    >>> block(torch.randn(2, 5, 24)).shape
    torch.Size([2, 5, 24])
    """

    def __init__(
        self,
        mixer: nn.Module,
        feed_forward: FeedForward,
        *,
        cross: MultiHead | None = None,
        norm: str = "layer",
        epsilon: float = 1e-5,
        pre_norm: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        size = feed_forward.out_proj.out_features
        check_positive("epsilon", epsilon)
        make_norm = NORMS[check_choice("norm", norm, NORMS)]
        self.mixer, self.cross, self.feed_forward = mixer, cross, feed_forward
        self.mixer_norm, self.feed_forward_norm = make_norm(size, eps=epsilon), make_norm(size, eps=epsilon)
        self.cross_norm = None if cross is None else make_norm(size, eps=epsilon)
        self.pre_norm, self.dropout = pre_norm, check_dropout(dropout)

    def forward(
        self,
        rows: Tensor,
        places: Places | None = None,
        memory: KVCache | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        return self.extend(rows, places or Places(), None, memory, memory_mask)[0]

    def extend(
        self,
        rows: Tensor,
        places: Places,
        past: Memory | None,
        memory: KVCache | None = None,
        memory_mask: Mask | None = None,
    ) -> tuple[Tensor, Memory]:
        """The same for rows that follow what the mixer has read before, and what it has read now."""
        if (self.cross is None) != (memory is None):
            raise ValueError("memory: expected one where the block has a cross, and none where it has not")
        mixed, after = self.mixer.mix(self._before(rows, self.mixer_norm), places, past)  # type: ignore[operator]
        rows = self._after(rows, mixed, self.mixer_norm)
        if self.cross is not None and memory is not None:
            found = self.cross.cross_attend(self._before(rows, self.cross_norm), memory, memory_mask)
            rows = self._after(rows, found, self.cross_norm)
        changed = self.feed_forward(self._before(rows, self.feed_forward_norm))
        return self._after(rows, changed, self.feed_forward_norm), after

    def _before(self, rows: Tensor, norm: Any) -> Tensor:
        """What a part of the block gets to see."""
        return norm(rows) if self.pre_norm else rows

    def _after(self, rows: Tensor, change: Tensor, norm: Any) -> Tensor:
        """The shortcut around it."""
        rows = rows + dropped(change, self.dropout, self.training)
        return rows if self.pre_norm else norm(rows)


# The three ways of processing a sequence; each is made for rows of some size, and told whether it may look ahead.
MIXERS = ("attention", "convolution", "recurrent")


def make_blocks(
    count: int,
    size: int,
    heads: int,
    ffn_size: int | None,
    *,
    causal: bool,
    mixer: str = "attention",
    cross: bool = False,
    kv_heads: int | None = None,
    head_size: int | None = None,
    score: str | None = None,
    activation: str = "gelu",
    norm: str = "layer",
    epsilon: float = 1e-5,
    pre_norm: bool = True,
    bias: bool = True,
    attention_bias: bool | None = None,
    output_bias: bool | None = None,
    dropout: float = 0.0,
) -> Blocks:
    """The blocks of a Transformer, with their mixer by name; ffn_size=None is four times the size."""
    if check_choice("mixer", mixer, MIXERS) != "attention" and (score or kv_heads or head_size):
        raise ValueError(f"mixer: score, kv_heads and head_size are for mixer='attention', got {mixer!r}")
    if score is not None:
        check_choice("score", score, SCORES)  # each layer gets one of its own, so it is a name
    attention_bias = bias if attention_bias is None else attention_bias

    def attention(kv_heads: int | None = None) -> MultiHead:
        return MultiHead(
            size,
            heads,
            kv_heads=kv_heads,
            head_size=head_size,
            score=score,
            bias=attention_bias,
            output_bias=output_bias,
            dropout=dropout,
        )

    mixers: dict[str, Callable[[], nn.Module]] = {
        "attention": lambda: attention(kv_heads),
        "convolution": lambda: Convolution(size, causal=causal),
        "recurrent": lambda: Recurrent(size, causal=causal),
    }
    ffn_size = 4 * size if ffn_size is None else ffn_size
    return Blocks(
        Block(
            mixers[mixer](),
            FeedForward(size, ffn_size, activation, bias=bias, dropout=dropout),
            cross=attention() if cross else None,
            norm=norm,
            epsilon=epsilon,
            pre_norm=pre_norm,
            dropout=dropout,
        )
        for _ in range(count)
    )

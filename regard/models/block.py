"""The block that Transformers are stacked from, and its parts.

    pre-norm:   x ← x + mixer(norm(x));    x ← x + cross(norm(x), memory);    x ← x + feed_forward(norm(x))
    post-norm:  x ← norm(x + mixer(x));    x ← norm(x + cross(x, memory));    x ← norm(x + feed_forward(x))

With output norms, what a part gives goes through a norm of its own before it is added. Only the mixer (and cross) reads
other rows; everything else acts on each row alone.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_choice, check_dropout, check_positive, check_sizes
from regard.attention import Dot, Mask
from regard.attention.dropout import dropout as apply_dropout
from regard.models.cache import KVCache, LayerState
from regard.models.decode_kernels import Linear, RMSNorm
from regard.models.mixers import Convolution, Recurrent
from regard.models.multihead import SCORES, MultiHead
from regard.models.packing import SequenceInfo

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
}
NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": RMSNorm}
GATED = {"swiglu": ACTIVATIONS["silu"], "geglu": ACTIVATIONS["gelu"], "geglu_tanh": ACTIVATIONS["gelu_tanh"]}


class Blocks(nn.ModuleList):
    """Blocks, one after the other."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator["Block"]: ...


class FeedForward(nn.Module):
    """activation(x W₁ + b₁) W₂ + b₂, on each row alone; gated: (activation(x W_g) · x W₁) W₂.

    size: of input and output · ffn_size: of the hidden layer · activation: a name in ACTIVATIONS or, gated, in GATED ·
    bias: of both projections · dropout: of the hidden layer.

    >>> import regard, torch
    >>> regard.FeedForward(24, ffn_size=96)(torch.randn(2, 5, 24)).shape  # (…, size) → (…, size)
    torch.Size([2, 5, 24])
    """

    def __init__(
        self, size: int, ffn_size: int, activation: str = "gelu", *, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes(size=size, ffn_size=ffn_size)
        check_choice("activation", activation, [*ACTIVATIONS, *GATED])
        self.gated = activation in GATED
        self.activation = (ACTIVATIONS | GATED)[activation]
        self.widths = (ffn_size,) * (2 if self.gated else 1)  # of the gate and the rest, which are one product
        self.in_proj = Linear(size, sum(self.widths), bias=bias)
        self.out_proj = Linear(ffn_size, size, bias=bias)
        self.dropout = check_dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.in_proj(rows)
        if self.gated:
            gate, rest = hidden.chunk(2, -1)
            hidden = self.activation(gate) * rest
        else:
            hidden = self.activation(hidden)
        return self.out_proj(apply_dropout(hidden, self.dropout, self.training))


class Block(nn.Module):
    """A mixer, cross-attention to a memory if there is a `cross`, and a feed-forward net, each with norm and residual.

    rows (batch, n, size) → the same. The mixer is MultiHead, Recurrent, Convolution, or whatever has their `mix`.

    mixer · feed_forward · cross: a MultiHead that attends to the memory, or None · norm: layer or rms · epsilon: of the
    norms · pre_norm: norms before the parts, not after the residuals · output_norms: one more norm for what each part
    adds, as in Gemma 2 · dropout: of what each part adds.

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
        output_norms: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        size = feed_forward.out_proj.out_features
        check_positive("epsilon", epsilon)
        make_norm = functools.partial(NORMS[check_choice("norm", norm, NORMS)], size, eps=epsilon)
        self.mixer, self.cross, self.feed_forward = mixer, cross, feed_forward
        self.mixer_norm, self.feed_forward_norm = make_norm(), make_norm()
        self.cross_norm = None if cross is None else make_norm()
        self.mixer_output_norm = make_norm() if output_norms else None
        self.cross_output_norm = make_norm() if output_norms and cross is not None else None
        self.feed_forward_output_norm = make_norm() if output_norms else None
        self.pre_norm, self.dropout = pre_norm, check_dropout(dropout)

    def forward(
        self,
        rows: Tensor,
        info: SequenceInfo | None = None,
        memory: KVCache | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        return self.extend(rows, info or SequenceInfo(), None, memory, memory_mask)[0]

    def extend(
        self,
        rows: Tensor,
        info: SequenceInfo,
        past: LayerState | None,
        memory: KVCache | None = None,
        memory_mask: Mask | None = None,
    ) -> tuple[Tensor, LayerState]:
        """The same for rows that follow what the mixer has read before, and the mixer's state after them."""
        if (self.cross is None) != (memory is None):
            raise ValueError("memory: expected one where the block has a cross, and none where it has not")
        mixed, state = self.mixer.mix(self._normalize(rows, self.mixer_norm), info, past)  # type: ignore[operator]
        rows = self._add(rows, mixed, self.mixer_norm, self.mixer_output_norm)
        if self.cross is not None and memory is not None:
            read = self.cross.cross_attend(self._normalize(rows, self.cross_norm), memory, memory_mask, info.first)
            rows = self._add(rows, read, self.cross_norm, self.cross_output_norm)
        change = self.feed_forward(self._normalize(rows, self.feed_forward_norm))
        return self._add(rows, change, self.feed_forward_norm, self.feed_forward_output_norm), state

    def _normalize(self, rows: Tensor, norm: Any) -> Tensor:
        """The input of a part of the block."""
        return norm(rows) if self.pre_norm else rows

    def _add(self, rows: Tensor, change: Tensor, norm: Any, output_norm: Any) -> Tensor:
        """The residual connection around a part."""
        change = change if output_norm is None else output_norm(change)
        rows = rows + apply_dropout(change, self.dropout, self.training)
        return rows if self.pre_norm else norm(rows)


MIXERS = ("attention", "convolution", "recurrent")
ATTENTION_OPTIONS = ("score", "kv_heads", "head_size", "score_scale", "score_softcap", "qk_norm")


@dataclass(frozen=True)
class BlockConfig:
    """What the blocks of a stack have in common; the constructors of models take these arguments under these names."""

    size: int
    heads: int
    ffn_size: int | None = None  # of the feed-forward nets; 4 · size unless given
    kv_heads: int | None = None
    head_size: int | None = None
    mixer: str = "attention"  # one of MIXERS
    score: str | None = None  # a name in SCORES: each layer gets a score of its own
    score_scale: float | None = None  # of dot products; 1 / √head size unless given
    score_softcap: float | None = None  # of dot products, which it bends to softcap · tanh(score / softcap)
    qk_norm: bool = False  # RMS norms of the queries and keys of each head
    activation: str = "gelu"
    norm: str = "layer"
    epsilon: float = 1e-5
    pre_norm: bool = True
    output_norms: bool = False
    bias: bool = True
    attention_bias: bool | None = None  # of the projections of attention; as bias unless given
    attention_output_bias: bool | None = None  # of its last projection; as attention_bias unless given
    dropout: float = 0.0

    def __post_init__(self) -> None:
        options = [name for name in ATTENTION_OPTIONS if getattr(self, name) not in (None, False)]
        if check_choice("mixer", self.mixer, MIXERS) != "attention" and options:
            raise ValueError(f"mixer: {' and '.join(options)} are for mixer='attention', got {self.mixer!r}")
        if self.score is not None:
            check_choice("score", self.score, SCORES)
        if self.score not in (None, "dot") and (self.score_scale, self.score_softcap) != (None, None):
            raise ValueError(f"score: score_scale and score_softcap are for score='dot', got {self.score!r}")

    @classmethod
    def of(cls, config: Mapping[str, Any], **changes: Any) -> "BlockConfig":
        """From a model's config, which may hold other arguments too."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in config.items() if name in names} | changes)

    def make_norm(self) -> nn.Module:
        """A norm as those in the blocks."""
        return NORMS[check_choice("norm", self.norm, NORMS)](self.size, eps=self.epsilon)

    def make_blocks(self, count: int, *, causal: bool, cross: bool = False) -> Blocks:
        """Blocks whose mixers see no later rows if causal, with cross-attention to a memory if `cross`."""
        ffn_size = 4 * self.size if self.ffn_size is None else self.ffn_size
        return Blocks(
            Block(
                self._make_mixer(causal),
                FeedForward(self.size, ffn_size, self.activation, bias=self.bias, dropout=self.dropout),
                cross=self._make_attention(None) if cross else None,
                norm=self.norm,
                epsilon=self.epsilon,
                pre_norm=self.pre_norm,
                output_norms=self.output_norms,
                dropout=self.dropout,
            )
            for _ in range(count)
        )

    def _make_mixer(self, causal: bool) -> nn.Module:
        if self.mixer == "attention":
            return self._make_attention(self.kv_heads)
        return (Convolution if self.mixer == "convolution" else Recurrent)(self.size, causal=causal)

    def _make_attention(self, kv_heads: int | None) -> MultiHead:
        return MultiHead(
            self.size,
            self.heads,
            kv_heads=kv_heads,
            head_size=self.head_size,
            score=Dot(self.score_scale, self.score_softcap) if self.score in (None, "dot") else self.score,
            qk_norm_epsilon=self.epsilon if self.qk_norm else None,
            bias=self.bias if self.attention_bias is None else self.attention_bias,
            output_bias=self.attention_output_bias,
            dropout=self.dropout,
        )

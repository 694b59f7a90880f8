"""Attention layers: the formula with learned matrices around it.

Legend: batch · n queries · m keys · heads · kv heads (groups of heads may share their keys) · head size.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.arguments import check_choice, check_dropout, check_positive, check_sizes, shape_text
from regard.attention import Additive, Bilinear, Cosine, Dot, Kernel, Mask, Score
from regard.attention.api import attend_in
from regard.models.cache import KVCache
from regard.models.decode_kernels import Linear, RMSNorm, product
from regard.models.packing import SequenceInfo
from regard.models.positions import RotaryTable, apply_rotary

# Scores by name, for queries and keys of these sizes: what configs and the command line can say.
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda query_size, key_size: Dot(),
    "cosine": lambda query_size, key_size: Cosine(temperature=0.1, learnable=True),
    "bilinear": lambda query_size, key_size: Bilinear(query_size, key_size),
    "additive": lambda query_size, key_size: Additive(query_size, key_size, query_size),
    "gaussian": lambda query_size, key_size: Kernel("gaussian", width=query_size**0.5, learnable=True),
}


def make_score(score: str | nn.Module | None, query_size: int, key_size: int, argument: str = "score") -> nn.Module:
    """A score: a module as it is, or one by its name; None is the scaled dot product."""
    if isinstance(score, nn.Module):
        return score
    name = "dot" if score is None else check_choice(argument, score, SCORES)
    if name in ("dot", "cosine", "gaussian") and query_size != key_size:
        raise ValueError(f"{argument}: {name} needs queries and keys of one size, got {query_size} and {key_size}")
    return SCORES[name](query_size, key_size)


# Which of queries, keys and values: their matrices lie in this order.
QUERY, KEY, VALUE, QUERY_KEY, KEY_VALUE = slice(0, 1), slice(1, 2), slice(2, 3), slice(0, 2), slice(1, 3)
ALL = slice(0, 3)


class Attention(nn.Module):
    """A single attention layer: keys and values by two learned matrices, K = X W_k and V = X W_v, queries as they come.

    query (…, n, key size) · source (…, m, source size) → (…, n, value size). Several queries are answered at once, each
    with a distribution of its own.

    source_size: of the vectors that are attended to · key_size: of queries and keys · value_size: of the output ·
    score: a name in SCORES or a module; None is the scaled dot product.

    >>> import regard, torch
    >>> layer = regard.Attention(source_size=7, key_size=11, value_size=3)
    >>> layer(torch.randn(5, 11), torch.randn(13, 7)).shape  # five queries, thirteen inputs
    torch.Size([5, 3])
    """

    def __init__(
        self, source_size: int, key_size: int, value_size: int, *, score: str | nn.Module | None = None
    ) -> None:
        super().__init__()
        check_sizes(source_size=source_size, key_size=key_size, value_size=value_size)
        self.key = nn.Linear(source_size, key_size, bias=False)
        self.value = nn.Linear(source_size, value_size, bias=False)
        self.score = make_score(score, key_size, key_size)

    def forward(self, query: Tensor, source: Tensor, *, mask: Mask | None = None) -> Tensor:
        return attend_in(self, query, self.key(source), self.value(source), score=self.score, mask=mask)


class Linears(nn.ModuleList):
    """Linear layers, side by side."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[nn.Linear]: ...

        def __getitem__(self, number: int) -> nn.Linear: ...  # type: ignore[override]


class MultiHead(nn.Module):
    """Several heads, each attending in a subspace of its own; their outputs are put side by side and mixed.

    query (batch, n, query size) · key (batch, m, key size) · value (batch, m, value size) → (batch, n, size). Key
    defaults to the query (self-attention) and value to the key.

    size: of the output, and of query, key and value unless query_size, key_size or value_size say otherwise · heads ·
    kv_heads: heads of keys and values, shared by groups of query heads; all heads unless given · head_size: size /
    heads unless given · score: a name in SCORES or a module; None is the scaled dot product · qk_norm_epsilon: of RMS
    norms of the queries and keys of each head, before they are rotated; None: no norms · bias: of all projections ·
    output_bias: of the last one, if different · dropout: of the weights.

    >>> import regard, torch
    >>> layer = regard.MultiHead(size=24, heads=3)
    >>> layer(torch.randn(2, 5, 24), mask=regard.causal()).shape
    torch.Size([2, 5, 24])
    >>> layer(torch.randn(2, 5, 24), torch.randn(2, 7, 24)).shape  # attends to another sequence
    torch.Size([2, 5, 24])
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_size: int | None = None,
        score: str | nn.Module | None = None,
        query_size: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        qk_norm_epsilon: float | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(size=size, heads=heads, kv_heads=kv_heads, head_size=head_size)
        check_sizes(query_size=query_size, key_size=key_size, value_size=value_size)
        if head_size is None and size % heads:
            raise ValueError(f"heads: expected a divisor of size {size}, or head_size=…, got {heads}")
        self.heads, self.kv_heads = heads, kv_heads or heads
        if heads % self.kv_heads:
            raise ValueError(f"kv_heads: expected a divisor of the {heads} heads, got {kv_heads}")
        self.head_size = head_size or size // heads
        self.widths = tuple(count * self.head_size for count in (heads, self.kv_heads, self.kv_heads))
        self.sizes = (query_size or size, key_size or size, value_size or key_size or size)
        # Where queries, keys and values come from vectors of one size, their matrices lie in one: a single product.
        packed = len(set(self.sizes)) == 1
        shapes = [(self.sizes[0], sum(self.widths))] if packed else list(zip(self.sizes, self.widths, strict=True))
        self.in_proj = Linears(Linear(*shape, bias=bias) for shape in shapes)
        self.out_proj = Linear(self.widths[0], size, bias=bias if output_bias is None else output_bias)
        self.score = make_score(score, self.head_size, self.head_size)
        epsilon = None if qk_norm_epsilon is None else check_positive("qk_norm_epsilon", qk_norm_epsilon)
        self.query_norm = None if epsilon is None else RMSNorm(self.head_size, epsilon)
        self.key_norm = None if epsilon is None else RMSNorm(self.head_size, epsilon)
        self.dropout = check_dropout(dropout)
        for linear in self.in_proj:  # each of the three matrices as if it stood alone
            for weight in linear.weight.split(self.widths) if packed else (linear.weight,):
                nn.init.xavier_uniform_(weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *, mask: Mask | None = None
    ) -> Tensor:
        """The output (batch, n, size). `mask` is one of regard's, such as causal() or lengths(t)."""
        for name, rows, size in zip(("query", "key", "value"), (query, key, value), self.sizes, strict=True):
            if rows is not None and (rows.dim() != 3 or rows.shape[-1] != size):
                raise ValueError(f"{name}: expected shape (batch, n, {size}), got {shape_text(rows)}")
        if key is None and value is None:
            return self._attend(*self._project(query, ALL), mask=mask)
        key = query if key is None else key
        if value is None:
            keys, values = self._project(key, KEY_VALUE)
        else:
            (keys,), (values,) = self._project(key, KEY), self._project(value, VALUE)
        (queries,) = self._project(query, QUERY)
        return self._attend(queries, keys, values, mask=mask)

    def mix(self, rows: Tensor, info: SequenceInfo, past: KVCache | None) -> tuple[Tensor, KVCache]:
        """Self-attention over rows (batch, n, size) and the keys and values before them; and the longer cache."""
        query, keys, values = self._project(rows, ALL, info.rotary)
        past = KVCache(keys, values) if past is None else past.append(keys, values)
        mixed = self._attend(query, past.keys, past.values, mask=info.mask, cross=False, first=info.first)
        return mixed, past

    def project_kv(self, source: Tensor) -> KVCache:
        """Keys and values of (batch, m, key size), projected once, for any number of `cross_attend` calls."""
        keys, values = self._project(source, KEY_VALUE)
        return KVCache(keys, values)

    def cross_attend(self, query: Tensor, source: KVCache, mask: Mask | None, first: int | None = None) -> Tensor:
        """Attention of queries (batch, n, query size) to projected keys and values.

        Where there are fewer sources than batch entries, consecutive entries share one source, as the hypotheses of a
        beam do.
        """
        queries = query.reshape(source.keys.shape[0], -1, query.shape[-1])  # (sources, sharers · n, query size)
        (heads,) = self._project(queries, QUERY)
        first = first if queries.shape == query.shape else None
        output = self._attend(heads, source.keys, source.values, mask=mask, cross=True, first=first)
        return output.reshape(*query.shape[:-1], -1)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        """The outputs of all heads, from (batch, heads or kv heads, rows, head size) each, mixed: (batch, n, size).

        Options are those of `attend_in`.
        """
        dropout = self.dropout if self.training else 0.0
        heads = attend_in(self, query, key, value, score=self.score, dropout=dropout, **options)
        return self.out_proj(heads.transpose(1, 2).flatten(2))

    def _project(self, rows: Tensor, parts: slice, rotary: RotaryTable | None = None) -> list[Tensor]:
        """Some of queries, keys and values, (batch, heads or kv heads, n, head size) each."""
        if len(self.in_proj) > 1:
            return self._normalize([self._split_heads(linear(rows)) for linear in list(self.in_proj)[parts]], parts)
        linear: nn.Module = self.in_proj[0]
        if rotary is None and torch.is_grad_enabled() and type(linear) is Linear and not _is_hooked(linear):
            # A product each: the gradients of a single one would first have to be joined, by a copy of all of them.
            biases = (None,) * 3 if linear.bias is None else linear.bias.split(self.widths)
            matrices = list(zip(linear.weight.split(self.widths), biases, strict=True))[parts]
            return self._normalize([self._split_heads(product(rows, *matrix)) for matrix in matrices], parts)
        span = slice(sum(self.widths[: parts.start]), sum(self.widths[: parts.stop]))
        if parts == ALL:
            projected: Tensor = linear(rows)
        elif isinstance(linear, nn.Linear):
            projected = product(rows, linear.weight[span], None if linear.bias is None else linear.bias[span])
        else:  # another kind of layer, such as one with an adapter
            projected = linear(rows)[..., span]
        # Split before the heads are: then the gradients are joined as they come from attention, by a single copy.
        if rotary is None:
            return self._normalize([self._split_heads(part) for part in projected.split(self.widths[parts], -1)], parts)
        counts = (self.heads, self.kv_heads)
        query_and_key, values = map(self._split_heads, projected.split((sum(self.widths[:2]), self.widths[2]), -1))
        if self.query_norm is not None:
            query_and_key = torch.cat(self._normalize(query_and_key.split(counts, 1), QUERY_KEY), 1)
        return [*apply_rotary(query_and_key, rotary).split(counts, 1), values]

    def _normalize(self, heads: Sequence[Tensor], parts: slice) -> list[Tensor]:
        """Some of queries, keys and values, by the norms that they have."""
        norms = [self.query_norm, self.key_norm, None][parts]
        return [part if norm is None else norm(part) for part, norm in zip(heads, norms, strict=True)]

    def _split_heads(self, rows: Tensor) -> Tensor:
        """(batch, n, heads · head size) → (batch, heads, n, head size)."""
        return rows.view(*rows.shape[:-1], rows.shape[-1] // self.head_size, self.head_size).transpose(1, 2)


def _is_hooked(module: nn.Module) -> bool:
    """Whether somebody wants to know when the module is called, which has to be called then."""
    hooks = module._forward_pre_hooks, module._forward_hooks, module._backward_pre_hooks, module._backward_hooks
    return any(hooks)

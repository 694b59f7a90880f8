"""Normalisers: how the scores of a query become weights. Each is an nn.Module, normalizer(scores) → weights (…, n, m).

    Softmax()        e^{s_j} / Σ_k e^{s_k}
    Softmax(sink)    e^{s_j} / (e^{sink} + Σ_k e^{s_k})            what the sink takes goes to no key
    Sigmoid(bias)    1 / (1 + e^{−s_j − bias})                     every key for itself
    Entmax(alpha)    ((α − 1) s_j − τ)₊^{1 / (α − 1)}              τ such that weights add up to 1; Sparsemax: α = 2

A score of −inf is a key that may not be attended: its weight is exactly 0. Nothing here asks a tensor for its value:
all of it can be compiled, exported and mapped.
"""

import math

import torch
from torch import Tensor, nn
from torch import softmax as softmax_over  # bound here: view/intercept.py must not take ours for a model's

from regard.arguments import check_positive, shape_text
from regard.attention.tracing import is_traced


class Normalizer(nn.Module):
    """Subclass it: give `forward(scores, per_head=None)`, which gets scores (…, n, m) and gives weights of that shape.

    Scores are −inf where a key may not be attended, and its weight has to be 0 there. Queries that may attend to
    nothing are no concern of a normaliser: `attend` gives them weights 0.

    >>> import regard, torch
    >>> class SquaredReLU(regard.Normalizer):
    ...     def forward(self, scores, per_head=None):
    ...         return scores.relu().square()
    >>> SquaredReLU()(torch.tensor([[2.0, 0.5, -1.0, float("-inf")]]))
    tensor([[4.0000, 0.2500, 0.0000, 0.0000]])
    """

    shift_invariant = False  # whether a constant that is added to a row of scores changes nothing

    def per_head(self) -> Tensor | None:
        """One number, or one per head (heads,), which forward gets as `per_head`, broadcastable to the scores."""
        return None

    def forward(self, scores: Tensor, per_head: Tensor | None = None) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define forward(scores, per_head=None)")

    def _numbers(self, scores: Tensor, per_head: Tensor | None) -> Tensor | None:
        """`per_head` as it was given, or else this module's own for scores (…, heads, n, m); of the scores' dtype."""
        if per_head is None:
            per_head = self.per_head()
            if per_head is not None and per_head.dim():
                count, heads = per_head.shape[0], scores.shape[-3] if scores.dim() > 2 else 1
                if count != 1 and count != heads:  # not `in`, which is no question for sizes that are being traced
                    raise ValueError(f"scores: expected {count} heads in dimension -3, got shape {shape_text(scores)}")
                per_head = per_head[:, None, None] if scores.dim() > 2 else per_head
        return None if per_head is None else per_head.to(scores)


def require_normalizer(normalizer: nn.Module | None) -> Normalizer:
    """The normaliser itself; None is Softmax()."""
    if normalizer is None:
        return SOFTMAX
    if isinstance(normalizer, Normalizer):
        return normalizer
    raise TypeError(
        f"normalizer: expected Softmax(…), Sigmoid(…), Sparsemax(), Entmax(…) or another regard.Normalizer, "
        f"got {type(normalizer).__name__}"
    )


class _PerHead(Normalizer):
    """A normaliser with a number, or one per head: a parameter stays one, another tensor is a buffer."""

    name: str  # of the number
    optional = False  # whether there may be none

    def __init__(self, number: float | Tensor | None) -> None:
        super().__init__()
        expected = f"{self.name}: expected a number, or a floating-point tensor of one per head"
        if isinstance(number, Tensor):
            if number.dim() > 1 or not number.is_floating_point():
                raise ValueError(f"{expected}, got shape {shape_text(number)} of {number.dtype}")
            if isinstance(number, nn.Parameter):
                self.register_parameter(self.name, number)
            else:
                self.register_buffer(self.name, number)
        elif number is None and self.optional:
            setattr(self, self.name, None)
        elif isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(f"{expected}, got {type(number).__name__}")
        elif not number < math.inf:
            raise ValueError(f"{self.name}: expected a number below infinity, got {number}")
        else:
            setattr(self, self.name, float(number))

    def extra_repr(self) -> str:
        number = getattr(self, self.name)
        text = f"tensor {shape_text(number)}" if isinstance(number, Tensor) else str(number)
        return "" if number is None else f"{self.name}={text}"

    def per_head(self) -> Tensor | None:
        number: float | Tensor | None = getattr(self, self.name)
        if number is None or isinstance(number, Tensor):
            return number
        return torch.tensor(number, dtype=torch.float64, device="cpu")


class Softmax(_PerHead):
    """e^{s_j} / (e^{sink} + Σ_k e^{s_k}): weights add up to 1, or to less where the sink takes a share.

    sink: None for no sink; a number (0.0 is known as "softmax one"); one per head, as a tensor (heads,), or as an
    nn.Parameter to learn it (gpt-oss). −inf takes nothing.

    >>> import regard, torch
    >>> scores = torch.zeros(1, 3)
    >>> regard.Softmax()(scores), regard.Softmax(sink=0.0)(scores)
    (tensor([[0.3333, 0.3333, 0.3333]]), tensor([[0.2500, 0.2500, 0.2500]]))
    """

    name, optional = "sink", True
    sink: float | Tensor | None

    def __init__(self, sink: float | Tensor | None = None) -> None:
        super().__init__(sink)
        self.shift_invariant = sink is None

    def forward(self, scores: Tensor, per_head: Tensor | None = None) -> Tensor:
        sink = self._numbers(scores, per_head)
        if sink is None:
            return softmax_over(scores, -1)
        # One more key, whose weight is then left out. Beyond the dtype's range it would be inf − inf.
        column = sink.clamp(max=torch.finfo(scores.dtype).max).expand(*scores.shape[:-1], 1)
        return softmax_over(torch.cat([scores, column], -1), -1)[..., :-1]


SOFTMAX = Softmax()  # it holds nothing that could be changed by a call


class Sigmoid(_PerHead):
    """1 / (1 + e^{−s_j − bias}): each key gets a weight between 0 and 1 for itself, whatever the others get.

    bias: a number; one per head, as a tensor (heads,), or as an nn.Parameter to learn it. Ramapuram et al. (2024) use
    −log m for m keys, with which weights add up to about 1 at the start of training.

    >>> import regard, torch
    >>> regard.Sigmoid()(torch.tensor([[0.0, 2.0, float("-inf")]]))
    tensor([[0.5000, 0.8808, 0.0000]])
    """

    name = "bias"
    bias: float | Tensor

    def __init__(self, bias: float | Tensor = 0.0) -> None:
        super().__init__(bias)

    def forward(self, scores: Tensor, per_head: Tensor | None = None) -> Tensor:
        bias = self._numbers(scores, per_head)
        return torch.sigmoid(scores if bias is None else scores + bias)


class Entmax(Normalizer):
    """((α − 1) s_j − τ)₊^{1 / (α − 1)}, which adds up to 1: keys far below the best get exactly 0.

    alpha: above 1, where it would be the softmax; the larger, the fewer keys share the weight (Peters et al. 2019).

    >>> import regard, torch
    >>> regard.Entmax()(torch.tensor([[1.0, 0.0, -1.0, -9.0]]))
    tensor([[0.8307, 0.1693, 0.0000, 0.0000]])
    """

    shift_invariant = True

    def __init__(self, alpha: float = 1.5) -> None:
        super().__init__()
        self.alpha = check_positive("alpha", alpha)
        if self.alpha <= 1:
            raise ValueError(f"alpha: expected a number above 1, got {alpha}; alpha = 1 is Softmax()")

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"

    # With gap_j = (α − 1)(s_best − s_j) and the weight `top` of the best key, a weight is
    #     (top^{α−1} − gap_j)₊^{1/(α−1)} = top · base_j^{1/(α−1)},   base_j = 1 − gap_j / top^{α−1},
    # so τ never appears, of which float32 would lose the digits where m keys have 1/m each. d weight_j / d top is
    # base_j^{1/(α−1) − 1}, at least 1 in sum.

    def forward(self, scores: Tensor, per_head: Tensor | None = None) -> Tensor:
        if not scores.shape[-1]:
            return scores
        gap = (scores.detach().amax(-1, keepdim=True) - scores) * (self.alpha - 1)
        as_operator = is_traced(scores) and not torch.compiler.is_exporting()  # exported, it must run without regard
        top = (torch.ops.regard.entmax_top if as_operator else entmax_top)(gap.detach(), self.alpha)
        # The search has no gradient. A Newton step from where it ended has the right first derivative, the implicit
        # function theorem's; the second step, the second derivative too.
        for _ in range(2):
            weights, slopes = self._weights(gap, top)
            top = top - (weights.sum(-1, keepdim=True) - 1) / slopes.sum(-1, keepdim=True)
        return self._weights(gap, top)[0]

    def _weights(self, gap: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
        """The weights, if the best key's is `top`, and their derivatives by it."""
        power, height = 1 / (self.alpha - 1), _height(top, self.alpha)
        outside = gap.detach() >= height.detach()
        # Outside, 1 stands in for the base, so that no gradient is ever infinite; inside it is above 0.
        base = 1 - gap.masked_fill(outside, 0) / height
        weights, slopes = top * base.pow(power), base.pow(power - 1)
        return weights.masked_fill(outside, 0), slopes.masked_fill(outside, 0)


def _height(top: Tensor, alpha: float) -> Tensor:
    return top.pow(alpha - 1).clamp(min=torch.finfo(top.dtype).tiny)  # so that 0 / height is 0


def entmax_top(gap: Tensor, alpha: float) -> Tensor:
    """The best key's weight (…, n, 1), by bisection of its logarithm to the last bit.

    It is an operator of PyTorch, `regard::entmax_top`, because a compiler would unroll the loop.
    """
    terms = torch.empty_like(gap)

    def total(top: Tensor) -> Tensor:
        torch.div(gap, -_height(top, alpha), out=terms)
        return top * terms.add_(1).clamp_(min=0).pow_(1 / (alpha - 1)).sum(-1, keepdim=True)

    high = gap.new_ones(*gap.shape[:-1], 1)
    low = 1 / total(high)
    bits = round(-math.log2(torch.finfo(gap.dtype).eps))
    for _ in range(bits + 4):  # 4: the logarithm is in an interval of log m, which is below 2⁴
        middle = (low * high).sqrt()
        above = total(middle) > 1
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return low.contiguous()


torch.library.define("regard::entmax_top", "(Tensor gap, float alpha) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
torch.library.impl("regard::entmax_top", "default")(entmax_top)
torch.library.register_fake("regard::entmax_top", lambda gap, alpha: gap.new_empty(*gap.shape[:-1], 1))
torch.library.register_vmap(
    "regard::entmax_top",
    lambda info, dims, gap, alpha: (torch.ops.regard.entmax_top(gap.movedim(dims[0], 0), alpha), 0),
)


class Sparsemax(Entmax):
    """(s_j − τ)₊, which adds up to 1 (Martins and Astudillo 2016): Entmax with alpha = 2.

    >>> import regard, torch
    >>> regard.Sparsemax()(torch.tensor([[1.0, 0.5, -1.0]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    def __init__(self) -> None:
        super().__init__(2.0)

    def extra_repr(self) -> str:
        return ""

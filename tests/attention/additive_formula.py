"""The formula of the additive score, and numbers for it."""

import torch
from torch import Tensor


def formula(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ w


def ordinary(n: int, m: int, hidden: int, *, lead=(), key_lead=None, dtype=torch.float32, scale=1.0) -> list[Tensor]:
    """query, key and w that want gradients."""
    query = scale * torch.randn(*lead, n, hidden, dtype=dtype)
    key = scale * torch.randn(*(lead if key_lead is None else key_lead), m, hidden, dtype=dtype)
    return [x.requires_grad_() for x in (query, key, torch.randn(hidden, dtype=dtype))]


def results(scores, query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> list[Tensor]:
    """Scores and gradients."""
    out = scores(query, key, w)
    return [out.detach(), *torch.autograd.grad(out, (query, key, w), grad.to(out.dtype))]


def same_bits(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(left, right, strict=True))

"""The formula once more, as slowly and plainly as it can be written, to hold the product against.

Nothing here comes from regard, and nothing is done the way regard does it: every pair of query and key is laid out in
full (…, n, m, size), kernels are K itself and not its logarithm, heads are copied, masks are asked pair by pair.

Evidence (…, n, m) ≥ 0 is what softmax calls the exponential of the score, and kernel regression K:

    weight_ij = evidence_ij · exp(added_ij) / Σ_j' evidence_ij' · exp(added_ij')      over the allowed j' alone
"""

import itertools
import math

import torch


def pairs(query, key):
    """Each query beside each key: two tensors (…, n, m, size)."""
    n, m = query.shape[-2], key.shape[-2]
    beside = query.unsqueeze(-2).repeat_interleave(m, -2)
    return beside, key.unsqueeze(-3).repeat_interleave(n, -3)


def evidence(scores):
    """exp(score), shifted by the row's largest so that it stays finite: a factor that the quotient does not see."""
    return (scores - scores.detach().max(-1, keepdim=True).values).exp() if scores.shape[-1] else scores


def dot(query, key, scale=None, softcap=None):
    scores = torch.einsum("...id,...jd->...ij", query, key)
    scores = scores / max(query.shape[-1], 1) ** 0.5 if scale is None else scores * scale
    return scores if softcap is None else softcap * torch.tanh(scores / softcap)


def cosine(query, key, temperature=1.0):
    left, right = pairs(query, key)
    lengths = left.pow(2).sum(-1).sqrt() * right.pow(2).sum(-1).sqrt()
    return (left * right).sum(-1) / lengths / temperature


def bilinear(query, key, weight):
    return torch.einsum("...ip,pr,...jr->...ij", query, weight, key)


def additive(query, key, query_weight, key_weight, value_weight):
    left, right = pairs(
        torch.einsum("...ip,hp->...ih", query, query_weight), torch.einsum("...jp,hp->...jh", key, key_weight)
    )
    return torch.einsum("...ijh,h->...ij", torch.tanh(left + right), value_weight)


def squared_difference(query, key):
    left, right = pairs(query, key)
    return -(left - right).pow(2).sum(-1)


def distance(query, key, width=1.0):
    """‖(q − k) / width‖ for one width or one per feature."""
    left, right = pairs(query, key)
    return ((left - right) / width).pow(2).sum(-1).sqrt()


def inside(u, height, edge=False):
    """A compact kernel: `height` within reach, 0 outside of it, with gradient 0 there."""
    within = u <= 1 if edge else u < 1
    return torch.where(within, height(torch.where(within, u, 0.0)), 0.0)


# K(u) as the textbooks have it, without the constant in front.
KERNELS = {
    "gaussian": lambda u: torch.exp(-0.5 * u**2),
    "laplace": lambda u: torch.exp(-u),
    "constant": lambda u: torch.ones_like(u),
    "boxcar": lambda u: inside(u, torch.ones_like, edge=True),
    "triangular": lambda u: inside(u, lambda u: 1 - u),
    "epanechnikov": lambda u: inside(u, lambda u: 1 - u**2),
    "biweight": lambda u: inside(u, lambda u: (1 - u**2) ** 2),
    "triweight": lambda u: inside(u, lambda u: (1 - u**2) ** 3),
    "tricube": lambda u: inside(u, lambda u: (1 - u**3) ** 3),
    "cosine": lambda u: inside(u, lambda u: torch.cos(math.pi * u / 2)),
}


def kernel(query, key, name, width=1.0):
    return KERNELS[name](distance(query, key, width))


def attend(found_evidence, value, allowed=None, added=None):
    """(output, weights) from the evidence (…, n, m) and the values (…, m, size)."""
    if added is not None:
        found_evidence = found_evidence * torch.where(added == -math.inf, 0.0, added).exp() * (added != -math.inf)
    if allowed is not None:
        found_evidence = torch.where(allowed, found_evidence, 0.0)
    total = found_evidence.sum(-1, keepdim=True)
    empty = total == 0
    weights = torch.where(empty, 0.0, found_evidence / torch.where(empty, 1.0, total))
    return torch.einsum("...ij,...jd->...id", weights, value), weights


def shared_heads(tensor, heads):
    """Grouped key heads, copied for each of the query heads that reads them: head h reads h // (heads per key head)."""
    group = heads // tensor.shape[-3]
    return torch.stack([tensor[..., head // group, :, :] for head in range(heads)], -3)


def dense(shape, predicate):
    """A boolean tensor of that shape from a predicate over its indices."""
    flat = [bool(predicate(*place)) for place in itertools.product(*map(range, shape))]
    return torch.tensor(flat, dtype=torch.bool).reshape(shape)

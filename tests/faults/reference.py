"""The formula in float64, plainly and independently of the product, for scores and gradients of any size.

A score is a row of SCORES: a function of the product's score object (from which it reads the settings alone), its
parameters in float64, query (…, n, dq) and key (…, m, dk), that gives (…, n, m), −inf for "out of reach".
"""

import math

import torch
from torch import Tensor

from regard import Additive, Bilinear, Cosine, Dot, Kernel, Score

NEVER = -math.inf


def dot(score: Dot, _: dict[str, Tensor], query: Tensor, key: Tensor) -> Tensor:
    scale = 1 / max(query.shape[-1], 1) ** 0.5 if score.scale is None else score.scale
    scores = torch.einsum("...id,...jd->...ij", query, key) * scale
    return scores if score.softcap is None else torch.tanh(scores / score.softcap) * score.softcap


def cosine(score: Cosine, parameters: dict[str, Tensor], query: Tensor, key: Tensor) -> Tensor:
    learnt = [log.exp() for log in parameters.values()]
    temperature = learnt[0] if learnt else score.temperature.double()
    lengths = root(query.square().sum(-1))[..., :, None] * root(key.square().sum(-1))[..., None, :]
    products = torch.einsum("...id,...jd->...ij", query, key)
    return products / torch.where(lengths > 0, lengths, 1.0) / temperature


def bilinear(_: Bilinear, parameters: dict[str, Tensor], query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("...ip,pr,...jr->...ij", query, parameters["weight"], key)


def additive(_: Additive, parameters: dict[str, Tensor], query: Tensor, key: Tensor) -> Tensor:
    rows = query @ parameters["query_weight"].T
    keys = key @ parameters["key_weight"].T
    return torch.tanh(rows[..., :, None, :] + keys[..., None, :, :]) @ parameters["value_weight"]


def kernel(score: Kernel, parameters: dict[str, Tensor], query: Tensor, key: Tensor) -> Tensor:
    learnt = [log.exp() for log in parameters.values()]
    width = learnt[0] if learnt else score.width.double()
    squares = ((query[..., :, None, :] - key[..., None, :, :]) / width).square().sum(-1)
    if score.name == "gaussian":
        return -squares / 2
    u = root(squares)
    if score.name in ("laplace", "constant"):
        return -u if score.name == "laplace" else 0 * u
    reached = u <= 1 if score.name == "boxcar" else u < 1
    height = COMPACT[score.name](torch.where(reached, u, 0.0))
    return torch.where(reached, height.log(), NEVER)


COMPACT = {
    "boxcar": torch.ones_like,
    "triangular": lambda u: 1 - u,
    "epanechnikov": lambda u: 1 - u**2,
    "biweight": lambda u: (1 - u**2) ** 2,
    "triweight": lambda u: (1 - u**2) ** 3,
    "tricube": lambda u: (1 - u**3) ** 3,
    "cosine": lambda u: torch.cos(math.pi / 2 * u),
}
SCORES = {Dot: dot, Cosine: cosine, Bilinear: bilinear, Additive: additive, Kernel: kernel}


def root(squares: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0."""
    zero = squares == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    parameters: dict[str, Tensor],
    allowed: Tensor,
    added: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, weights and the best score of each row, −inf where it sees nothing.

    allowed is boolean (…, n, m); added broadcasts to it, and its −inf forbid like allowed.
    """
    scores = SCORES[type(score)](score, parameters, query, key)
    if added is not None:
        allowed = allowed & (added != NEVER)
        scores = scores + torch.where(added == NEVER, 0.0, added)
    scores = torch.where(allowed & (scores != NEVER), scores, NEVER)
    best = scores.detach().amax(-1, keepdim=True) if scores.shape[-1] else scores.new_zeros(())
    seen = scores != NEVER
    shares = torch.where(seen, torch.where(seen, scores - torch.where(seen, best, 0.0), 0.0).exp(), 0.0)
    total = shares.sum(-1, keepdim=True)
    weights = shares / torch.where(total > 0, total, 1.0)
    return weights @ value, weights, best

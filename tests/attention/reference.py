"""The formula once more, in float64 and as plainly as it can be written, to hold the product against.

Nothing here is done the way regard does it: every pair of query and key is laid out in full (…, n, m, size), heads are
copied, masks are asked pair by pair, kernels are written as K itself. From a score or a normaliser only its settings
and parameters are read.
"""

import itertools
import math

import torch

from regard import Additive, Bilinear, Cosine, Dot, Entmax, Kernel, Separable, Sigmoid, Softmax, Sparsemax

NEVER = -math.inf


def pairs(query, key):
    """Each query beside each key, broadcastable to (…, n, m, size)."""
    return query.unsqueeze(-2), key.unsqueeze(-3)


def root(squares):
    """The square root, with gradient 0 at 0."""
    zero = squares == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())


def distance(query, key, width=1.0):
    """‖(q − k) / width‖ for one width or one per feature."""
    left, right = pairs(query, key)
    return root(((left - right) / width).square().sum(-1))


def dot(score, query, key):
    scores = torch.einsum("...id,...jd->...ij", query, key)
    scores = scores / max(query.shape[-1], 1) ** 0.5 if score.scale is None else scores * score.scale
    return scores if score.softcap is None else score.softcap * torch.tanh(scores / score.softcap)


def cosine(score, query, key):
    left, right = pairs(query, key)
    lengths = root(left.square().sum(-1)) * root(right.square().sum(-1))
    return (left * right).sum(-1) / torch.where(lengths > 0, lengths, 1.0) / score.temperature


def bilinear(score, query, key):
    return torch.einsum("...ip,pr,...jr->...ij", query, score.weight, key)


def additive(score, query, key):
    left, right = pairs(query @ score.query_weight.T, key @ score.key_weight.T)
    return torch.einsum("...ijh,h->...ij", torch.tanh(left + right), score.value_weight)


def kernel(score, query, key):
    u = distance(query, key, score.width)
    if score.name in ("gaussian", "laplace"):  # K underflows where its logarithm does not
        return -0.5 * u**2 if score.name == "gaussian" else -u
    reached = torch.ones_like(u).bool() if score.name == "constant" else u <= 1 if score.name == "boxcar" else u < 1
    height = KERNELS[score.name](torch.where(reached, u, 0.0))
    return torch.where(reached, height.log(), NEVER)


def separable(score, query, key):
    left, right = pairs(score.feature_map(query), score.feature_map(key))
    products = (left * right).sum(-1)
    return torch.where(products > 0, torch.where(products > 0, products, 1.0).log(), NEVER)


# K(u) as the textbooks have it, without the constant in front; the last seven are 0 beyond u = 1.
KERNELS = {
    "gaussian": lambda u: torch.exp(-0.5 * u**2),
    "laplace": lambda u: torch.exp(-u),
    "constant": lambda u: u**0,
    "boxcar": lambda u: u**0,
    "triangular": lambda u: 1 - u,
    "epanechnikov": lambda u: 1 - u**2,
    "biweight": lambda u: (1 - u**2) ** 2,
    "triweight": lambda u: (1 - u**2) ** 3,
    "tricube": lambda u: (1 - u**3) ** 3,
    "cosine": lambda u: torch.cos(math.pi * u / 2),
}
COMPACT = list(KERNELS)[3:]
SCORES = {Dot: dot, Cosine: cosine, Bilinear: bilinear, Additive: additive, Kernel: kernel, Separable: separable}


def scores(score, query, key):
    """(…, n, m), −inf for pairs out of reach; grouped key heads are copied. A score of the user's defines itself."""
    key = shared_heads(key, query.shape[-3] if query.dim() > 2 else 1)
    if type(score).__module__.startswith("regard."):
        return SCORES[type(score)](score, query, key)
    return getattr(score, "pairs", score)(query, key)


def restrict(scores, allowed=None, added=None):
    """−inf where a pair is not allowed or its bias is −inf."""
    if added is not None:
        allowed = (added != NEVER) if allowed is None else allowed & (added != NEVER)
        scores = scores + torch.where(added == NEVER, 0.0, added)
    return scores if allowed is None else torch.where(allowed, scores, NEVER)


def attend(scores, value, allowed=None, added=None, normalizer=None):
    """(output, weights) from scores (…, n, m) and values (…, m, size); rows with nothing allowed are 0."""
    weights = normalize(restrict(scores, allowed, added), normalizer)
    heads = scores.shape[-3] if scores.dim() > 2 else 1
    return torch.einsum("...ij,...jd->...id", weights, shared_heads(value, heads)), weights


# ---------------------------------------------------------------------------------------------------------- normalisers


def normalize(scores, normalizer=None):
    """Weights of scores (…, n, m), 0 where they are −inf. A normaliser of the user's defines itself."""
    visible = scores != NEVER
    some = visible.any(-1, keepdim=True)
    scores = torch.where(some, scores, 0.0)  # a row of nothing is an ordinary one until its weights are taken away
    if not scores.shape[-1]:
        return scores
    kind = Softmax if normalizer is None else type(normalizer)
    if kind is Softmax:
        weights = softmax(scores, None if normalizer is None else normalizer.sink)
    elif kind in NORMALIZERS:
        weights = NORMALIZERS[kind](normalizer, scores)
    else:
        weights = normalizer(scores)
    return torch.where(visible, weights, 0.0)


def by_head(number, scores):
    """A number, or one for each head of scores (…, heads, n, m)."""
    number = torch.as_tensor(number, dtype=scores.dtype)
    return number.reshape(-1, 1, 1) if scores.dim() > 2 else number.reshape(())


def softmax(scores, sink):
    """e^{s} over the sum of them all, in which the sink is one more."""
    sink = NEVER if sink is None else by_head(sink, scores)
    best = scores.detach().amax(-1, keepdim=True).maximum(torch.as_tensor(sink, dtype=scores.dtype))
    shares, rest = (scores - best).exp(), (torch.as_tensor(sink, dtype=scores.dtype) - best).exp()
    return shares / (shares.sum(-1, keepdim=True) + rest)


def sigmoid(normalizer, scores):
    finite = torch.where(scores == NEVER, 0.0, scores)  # those weights are taken away
    shifted = finite + by_head(normalizer.bias, scores)
    return 1 / (1 + torch.exp(-shifted.clamp(min=-300)))  # e³⁰⁰ has a square, so that the gradient is finite


def sparsemax(normalizer, scores):
    """By sorting: the k best share the weight, k the largest for which 1 + k s_k > s_1 + … + s_k."""
    falling = scores.sort(-1, descending=True).values
    sums, counts = falling.cumsum(-1), torch.arange(1, scores.shape[-1] + 1)
    k = (1 + counts * falling > sums).sum(-1, keepdim=True)
    return (scores - (sums.gather(-1, k - 1) - 1) / k).clamp(min=0)


def entmax(normalizer, scores):
    """τ by bisection until it moves no more, and its slopes from the sum of the weights, which stays 1."""
    power = 1 / (normalizer.alpha - 1)
    scaled = (scores - scores.detach().amax(-1, keepdim=True)) / power
    known = scaled.detach()
    low, high = torch.full_like(known[..., :1], -1.0), torch.zeros_like(known[..., :1])
    for _ in range(100):
        middle = (low + high) / 2
        above = (known - middle).clamp(min=0).pow(power).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    inside = known > high
    slopes = torch.where(inside, (known - high).clamp(min=0), 1.0).pow(power - 1) * inside
    moved = torch.where(inside, scaled - known, 0.0)  # 0, but it has gradients
    threshold = high + (slopes * moved).sum(-1, keepdim=True) / slopes.sum(-1, keepdim=True)
    return torch.where(inside, torch.where(inside, scaled - threshold, 0.0).pow(power), 0.0)


NORMALIZERS = {Sigmoid: sigmoid, Sparsemax: sparsemax, Entmax: entmax}


def shared_heads(rows, heads):
    """Grouped key heads copied for each query head that reads them: head h reads h // (heads per key head)."""
    if rows.dim() < 3 or rows.shape[-3] in (0, 1) or heads <= rows.shape[-3]:
        return rows
    group = heads // rows.shape[-3]
    return torch.stack([rows[..., head // group, :, :] for head in range(heads)], -3)


def dense(shape, predicate):
    """A boolean tensor of that shape from a predicate over its indices."""
    flat = [bool(predicate(*place)) for place in itertools.product(*map(range, shape))]
    return torch.tensor(flat, dtype=torch.bool).reshape(shape)

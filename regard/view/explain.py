"""How much each token matters for a prediction, by several methods: a function for each, Prediction → (batch, n).

Legend: batch · n tokens · m keys · heads · size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from regard.attention import numbers
from regard.attention.capture import AttentionMap
from regard.view.capture import Capture, capture
from regard.view.module_calls import Call, after_calls, find_projection, project
from regard.view.prediction import Prediction

__all__ = ["TOKEN_METHODS"]

STEPS = 50  # of the integral, at Gauss and Legendre's places
CONVERGED = 0.05  # of the change, which the integral may miss


def weights(prediction: Prediction) -> Tensor:
    """The attention of the prediction's query, on average over heads and layers."""
    with torch.no_grad(), capture(prediction.model) as seen:
        prediction.logits()
    return _mean([prediction.rows(layer.weights).mean((1, 2)) for layer in _over_tokens(seen, prediction)])


def rollout(prediction: Prediction) -> Tensor:
    """Attention through all layers, by Abnar and Zuidema (2020)."""
    with torch.no_grad(), capture(prediction.model) as seen:
        prediction.logits()
    through = numbers.rollout([layer.weights for layer in _over_tokens(seen, prediction)])
    return prediction.rows(through[:, None]).mean((1, 2))


def value_norms(prediction: Prediction) -> Tensor:
    """‖Σ_heads α · v · W_o‖, by Kobayashi et al. (2020): what the query really gets from each token; mean over layers.

    Where no linear layer reads the heads, W_o is left out.
    """
    calls: list[Call] = []
    with torch.no_grad(), after_calls(prediction.model, calls.append), capture(prediction.model, operands=True) as seen:
        prediction.logits()
    norms = []
    for layer in _over_tokens(seen, prediction):
        if layer.value is None or layer.output is None:
            raise ValueError(f"model: the values of {layer.name} are not known")
        number = find_projection(calls, layer)
        for row in prediction.rows(layer.weights).unbind(2):
            weighted = row[..., None] * layer.value  # (batch, heads, m, value size)
            moved = weighted.transpose(1, 2).flatten(2) if number is None else project(calls[number], weighted)
            norms.append(moved.norm(dim=-1))  # (batch, m)
    return _mean(norms)


def gradient_weights(prediction: Prediction) -> Tensor:
    """Σ α · d log p / dα over all layers, heads and queries: what scaling the attention to a token would change."""
    leaves: list[Tensor] = []

    def leaf(vectors: Tensor, absent: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[0]

    with torch.enable_grad(), prediction.embedded(leaf), capture(prediction.model, gradients=True) as seen:
        likely = prediction.log_probability()
    likely.sum().backward(inputs=leaves)  # the parameters get no gradients
    maps = _over_tokens(seen, prediction)
    slopes = [layer.weights * layer.gradient for layer in maps if layer.gradient is not None]
    return torch.stack([slope.sum((1, 2)) for slope in slopes]).sum(0)


def gradient(prediction: Prediction) -> Tensor:
    """‖d log p / d vector‖."""
    norms: Tensor = prediction.gradient()[0].norm(dim=-1)
    return norms


def gradient_input(prediction: Prediction) -> Tensor:
    """d log p / d vector · vector (less that of an absent token)."""
    slope, vectors = prediction.gradient()
    return (slope * vectors).sum(-1)


def integrated_gradients(prediction: Prediction) -> Tensor:
    """The same with the mean gradient on the way from absent tokens to the given ones: they add up to what changes.

    By Sundararajan et al. (2017).
    """
    places, shares = numpy.polynomial.legendre.leggauss(STEPS)  # on −1 … 1
    scores = torch.zeros(prediction.ids.shape, device=prediction.ids.device)
    for place, share in zip(places, shares, strict=True):
        slope, vectors = prediction.gradient((1 + place) / 2)
        scores += (slope * vectors).sum(-1) * (share / 2)
    with torch.no_grad():
        change = prediction.log_probability()
        with prediction.without_tokens(torch.zeros_like(prediction.ids, dtype=torch.bool)):
            change -= prediction.log_probability()
    gap = float((scores.sum(1) - change).abs().max())
    if gap > 0.01 + CONVERGED * float(change.abs().max()):
        # Between zeros and a token a norm leaves everything as it is, but for the very beginning.
        message = f"integrated_gradients: scores miss the change that they should add up to by {gap:.2g}; "
        warnings.warn(message + "choose another baseline=, the id of a token that says nothing", stacklevel=4)
    return scores


@torch.no_grad()
def occlusion(prediction: Prediction) -> Tensor:
    """By how much log p falls when the token alone is absent."""
    before, kept = prediction.log_probability(), torch.ones_like(prediction.ids, dtype=torch.bool)
    drops = []
    for token in range(kept.shape[1]):
        with prediction.without_tokens(kept.index_fill(1, torch.tensor([token], device=kept.device), False)):
            drops.append(before - prediction.log_probability())
    return torch.stack(drops, 1)


TOKEN_METHODS: dict[str, Callable[[Prediction], Tensor]] = {
    "weights": weights,
    "rollout": rollout,
    "value_norms": value_norms,
    "gradient_weights": gradient_weights,
    "gradient": gradient,
    "gradient_input": gradient_input,
    "integrated_gradients": integrated_gradients,
    "occlusion": occlusion,
}

# -------------------------------------------------------------------------------------------------------- from captures


def _mean(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).mean(0)


def _over_tokens(seen: Capture, prediction: Prediction) -> list[AttentionMap]:
    """The maps whose keys are the tokens: of cross-attention, if there is any, else of self-attention."""
    maps = [layer for layer in seen.by_layer() if layer.weights.shape[-1] == prediction.ids.shape[1]]
    crossing = [layer for layer in maps if layer.kind == "cross"]
    if not maps:
        raise ValueError(f"model: expected attention to the {prediction.ids.shape[1]} tokens, got none")
    return crossing or maps

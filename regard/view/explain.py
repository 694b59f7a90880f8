"""How much each token matters for a prediction, by several methods: a function for each, Prediction → (batch, n).

Legend: batch · n tokens · m keys · heads · size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from regard.attention import numbers
from regard.attention.capture import AttentionMap
from regard.view.capture import Capture, capture
from regard.view.prediction import Prediction

__all__ = ["TOKEN_METHODS", "Projections"]

STEPS = 50  # of the integral, at Gauss and Legendre's places
Projection = Callable[[Tensor], Tensor]


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
    with torch.no_grad(), Projections(prediction.model) as found, capture(prediction.model, operands=True) as seen:
        prediction.logits()
    norms = []
    for layer in _over_tokens(seen, prediction):
        if layer.value is None:
            raise ValueError(f"model: the values of {layer.name} are not known")
        project = found.of(layer)
        with torch.no_grad():
            rows = [row[..., None] * layer.value for row in prediction.rows(layer.weights).unbind(2)]
            norms.append(_mean([project(row.transpose(1, 2).flatten(2)).norm(dim=-1) for row in rows]))  # (batch, m)
    return _mean(norms)


def gradient_weights(prediction: Prediction) -> Tensor:
    """Σ α · d log p / dα over all layers, heads and queries: what scaling the attention to a token would change."""
    leaves: list[Tensor] = []

    def leaf(vectors: Tensor, absent: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[0]

    with torch.enable_grad(), prediction.embedded(leaf), capture(prediction.model, gradients=True) as seen:
        prediction.log_probability().sum().backward(inputs=leaves)  # the parameters get no gradients
    maps = _over_tokens(seen, prediction)
    return torch.stack([(layer.weights * layer.gradient).sum((1, 2)) for layer in maps]).sum(0)


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
    total: Any = 0
    for place, share in zip(places, shares, strict=True):
        slope, vectors = prediction.gradient((1 + place) / 2)
        total = total + slope * (share / 2)
    return (total * vectors).sum(-1)


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


class Projections:
    """Within this block, which module reads what the heads of a layer put out: their output projection."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.calls = model, list[tuple[nn.Module, Tensor]]()

    def __enter__(self) -> Projections:
        matrices = [part for part in self.model.modules() if any(own.dim() == 2 for own in part.parameters(False))]
        self.handles = [part.register_forward_pre_hook(self._keep) for part in matrices]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _keep(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point():
            self.calls.append((module, inputs[0]))

    def module(self, layer: AttentionMap) -> nn.Module | None:
        """The module whose input was the output of the layer's heads, side by side."""
        attention = self.model.get_submodule(layer.name) if layer.name else self.model
        if isinstance(attention, nn.MultiheadAttention):  # which reads the matrix without calling its module
            return attention.out_proj
        assert layer.output is not None
        heads = layer.output.transpose(1, 2).flatten(2).flatten(0, 1)  # (batch · n, heads · value size)
        for module, rows in self.calls:
            same = rows.numel() == heads.numel() and rows.shape[-1] == heads.shape[-1]
            if same and torch.allclose(rows.reshape(heads.shape), heads, rtol=1e-3, atol=1e-5):
                return module
        return None

    def of(self, layer: AttentionMap) -> Projection:
        """(…, heads · value size) → (…, size), without the bias; the same numbers where there is none."""
        module = self.module(layer)
        if module is None:
            return lambda rows: rows
        return lambda rows: module(rows) - module(torch.zeros_like(rows[..., :1, :]))

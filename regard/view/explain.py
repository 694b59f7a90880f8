"""What matters for a prediction, by several methods: for each of its tokens, (batch, n); and for each layer or head, by
what it writes into the residual stream, as logits.

The logit lens reads the stream after each layer as if it were the last. Direct logit attribution takes the last norm's
scale as it is; then the logit is a sum over all that was written, and what each part adds to it is known.

Legend: batch · n tokens · m keys · heads · size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from regard.attention import numbers
from regard.attention.capture import AttentionMap
from regard.view.capture import Capture, capture
from regard.view.intervene import intervene
from regard.view.prediction import Call, Prediction, after_calls, find_projection, first, has_matrix, project

STEPS = 50  # of the integral, at Gauss and Legendre's places
CONVERGED = 0.05  # of the change, which the integral may miss


# ---------------------------------------------------------------------------------------------------------- tokens


def _run(prediction: Prediction, *, operands: bool = False) -> tuple[list[Call], Capture]:
    """The calls of a model's modules, and its attention. operands: of the heads as well"""
    calls: list[Call] = []
    hooks, attention = after_calls(prediction.model, calls.append), capture(prediction.model, operands=operands)
    with torch.no_grad(), hooks, attention as captured:
        prediction.logits()
    return calls, captured


def weights(prediction: Prediction) -> Tensor:
    """The attention of the prediction's query, on average over heads and layers."""
    with torch.no_grad(), capture(prediction.model) as captured:
        prediction.logits()
    rows = [prediction.rows(layer.weights).mean((1, 2)) for layer in _over_tokens(captured, prediction)]
    return torch.stack(rows).mean(0)


def rollout(prediction: Prediction) -> Tensor:
    """Attention through all layers, by Abnar and Zuidema (2020)."""
    with torch.no_grad(), capture(prediction.model) as captured:
        prediction.logits()
    through = numbers.rollout([layer.weights for layer in _over_tokens(captured, prediction)])
    return prediction.rows(through[:, None]).mean((1, 2))


def value_norms(prediction: Prediction) -> Tensor:
    """‖Σ_heads α · v · W_o‖, by Kobayashi et al. (2020): what the query really gets from each token; mean over layers.

    Where no linear layer reads the heads, W_o is left out.
    """
    calls, captured = _run(prediction, operands=True)
    norms = []
    for layer in _over_tokens(captured, prediction):
        if layer.value is None or layer.output is None:
            raise ValueError(f"model: the values of {layer.name} are not known")
        number = find_projection(calls, layer)
        for row in prediction.rows(layer.weights).unbind(2):
            weighted = row[..., None] * layer.value  # (batch, heads, m, value size)
            moved = weighted.transpose(1, 2).flatten(2) if number is None else project(calls[number], weighted)
            norms.append(moved.norm(dim=-1))  # (batch, m)
    return torch.stack(norms).mean(0)


def gradient_weights(prediction: Prediction) -> Tensor:
    """Σ α · d log p / dα over all layers, heads and queries: what scaling the attention to a token would change."""
    leaves: list[Tensor] = []

    def leaf(vectors: Tensor, absent: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[0]

    with torch.enable_grad(), prediction.embedded(leaf), capture(prediction.model, gradients=True) as captured:
        likely = prediction.log_probability()
    likely.sum().backward(inputs=leaves)  # the parameters get no gradients
    maps = _over_tokens(captured, prediction)
    slopes = [layer.weights * layer.gradient for layer in maps if layer.gradient is not None]
    return torch.stack([slope.sum((1, 2)) for slope in slopes]).sum(0)


def integrated_gradients(prediction: Prediction) -> Tensor:
    """d log p / d vector · vector, with the mean gradient on the way from absent tokens to the given ones: they add up
    to what changes.

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


def _over_tokens(captured: Capture, prediction: Prediction) -> list[AttentionMap]:
    """The maps whose keys are the tokens: of cross-attention, if there is any, else of self-attention."""
    maps = [layer for layer in captured.by_layer() if layer.weights.shape[-1] == prediction.ids.shape[1]]
    crossing = [layer for layer in maps if layer.kind == "cross"]
    if not maps:
        raise ValueError(f"model: expected attention to the {prediction.ids.shape[1]} tokens, got none")
    return crossing or maps


TOKEN_METHODS: dict[str, Callable[[Prediction], Tensor]] = {
    "weights": weights,
    "rollout": rollout,
    "value_norms": value_norms,
    "gradient_weights": gradient_weights,
    # ‖d log p / d vector‖
    "gradient": lambda prediction: prediction.gradient()[0].norm(dim=-1),
    # d log p / d vector · vector (less that of an absent token)
    "gradient_input": lambda prediction: torch.mul(*prediction.gradient()).sum(-1),
    "integrated_gradients": integrated_gradients,
    "occlusion": occlusion,
}


# ------------------------------------------------------------------------------------------------- layers and heads


@dataclass(frozen=True)
class Part:
    """A part of a model that can be left out.

    label · block: path of a layer, which then returns what it was given · module: path of a module, which then writes
    zeros · layer, head: of attention. None of these: it cannot be left out.
    """

    label: str
    block: str | None = None
    module: str | None = None
    head: tuple[int, int] | None = None

    @property
    def removable(self) -> bool:
        return (self.block, self.module, self.head) != (None, None, None)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not any(True for _ in module.children())


def _last_norm(calls: Sequence[Call]) -> int:
    norms = [number for number, call in enumerate(calls) if _is_norm(call.module)]
    if not norms:
        raise ValueError("model: expected a language model with a norm before its output layer, got none")
    return norms[-1]


def logit_lens(prediction: Prediction) -> tuple[Tensor, list[Part]]:
    """What each layer adds to log p, read from the stream after it by the last norm and the output layer; the embedding
    comes first. Up to a layer, they add up to what the lens reads there."""
    calls, captured = _run(prediction)
    norm = calls[_last_norm(calls)]
    if not captured:
        raise ValueError(f"model: expected attention in its layers, got none in {type(prediction.model).__name__}")
    paths = [layer.name.split(".") for layer in captured]
    depth = next((k for k in range(min(map(len, paths))) if all(path[k].isdigit() for path in paths)), None)
    if depth is None:
        listed = ", ".join(layer.name for layer in captured)
        raise ValueError(f"model: expected layers in a list, got attention in {listed}")
    names = {".".join(path[: depth + 1]) for path in paths}  # of the modules of a list that have attention within
    blocks = [call for call in calls if call.path in names]
    streams = [first(blocks[0].input), *(first(block.output) for block in blocks)]
    if norm.input is not streams[-1] and not torch.equal(norm.input, streams[-1]):
        raise ValueError(f"model: expected {norm.path}, its last norm, to read what its last layer writes")
    readings = []
    for stream in streams:
        handle = norm.module.register_forward_pre_hook(lambda module, args, stream=stream: (stream, *args[1:]))
        try:
            with torch.no_grad():
                readings.append(prediction.log_probability())
        finally:
            handle.remove()
    read = torch.stack(readings, 1)  # (batch, 1 + layers)
    parts = [Part("embedding"), *(Part(block.path, block=block.path) for block in blocks)]
    return read.diff(dim=1, prepend=torch.zeros_like(read[:, :1])), parts


def direct_logits(prediction: Prediction) -> tuple[Tensor, list[Part]]:
    """What each head, and each other module that writes into the stream, adds to the target's logit directly.

    "rest" is what no part writes: biases. They add up to the logit.
    """
    calls, captured = _run(prediction, operands=True)
    # Calls of modules with matrices of their own, the innermost ones, before the last norm: with what they return taken
    # as it is, the stream is a sum of what some of them wrote.
    paths = {call.path for call in calls if has_matrix(call.module)}
    inner = {path for path in paths if not any(other.startswith(f"{path}.".lstrip(".")) for other in paths - {path})}
    writers = {number for number, call in enumerate(calls[: _last_norm(calls)]) if call.path in inner}
    logit, written, slopes = _direct_gradients(prediction, writers)
    scores, parts, projections = list[Tensor](), list[Part](), set[int]()
    for layer in captured:
        number = None if layer.output is None else find_projection(calls, layer)
        if layer.output is None or number is None or number not in slopes:
            raise ValueError(f"model: no linear layer that reads the heads of {layer.name} writes into the stream")
        projections.add(number)
        for index, head in enumerate(layer.heads):
            alone = torch.zeros_like(layer.output)
            alone[:, index] = layer.output[:, index]
            rows = project(calls[number], alone)
            if not getattr(calls[number].module, "batch_first", True):
                rows = rows.transpose(0, 1)
            scores.append(slopes[number].flatten(1) @ rows.flatten())
            parts.append(Part(f"{layer.layer}.{head}", head=(layer.layer, head)))
    for number, slope in slopes.items():
        if number not in projections:
            scores.append(slope.flatten(1) @ written[number].flatten())
            parts.append(Part(calls[number].path, module=calls[number].path))
    total = torch.stack(scores, 1)
    return torch.cat([total, (logit - total.sum(1))[:, None]], 1), [*parts, Part("rest")]


def _direct_gradients(prediction: Prediction, writers: set[int]) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
    """The target's logit, (batch,), what the writers return, and its gradients with respect to that, (batch, …) each,
    through nothing but sums and norms, whose scale is taken as it is."""
    count, leaves = 0, dict[int, Tensor]()

    def hook(call: Call) -> Any:
        nonlocal count
        number, count = count, count + 1
        output = first(call.output)
        if number in writers and isinstance(output, Tensor) and output.is_floating_point():
            leaves[number] = output.detach().requires_grad_()
            written = leaves[number].clone()  # into which the model may write
            return (written, *call.output[1:]) if isinstance(call.output, tuple) else written
        if _is_norm(call.module) and isinstance(call.input, Tensor) and call.input.requires_grad:
            return _linear_norm(call.module, call.input, output)
        return None

    with torch.enable_grad(), after_calls(prediction.model, hook):
        logit = prediction.logits().gather(1, prediction.target[:, None])[:, 0]
    # One entry after the other: some writers, those of positions, write the same for all of them.
    options: Any = {"retain_graph": True, "allow_unused": True}
    by_entry = [torch.autograd.grad(entry, list(leaves.values()), **options) for entry in logit]
    slopes = {number: torch.stack(parts) for number, *parts in zip(leaves, *by_entry, strict=True) if None not in parts}
    return logit.detach(), {number: leaf.detach() for number, leaf in leaves.items()}, slopes


def _linear_norm(norm: nn.Module, rows: Tensor, output: Tensor) -> Tensor:
    """What a norm returned, as a linear function of its rows: their scale is a constant.

    The scale is asked of the norm itself, with rows ± r, r their root mean square, which have the same one.
    """
    size = rows.shape[-1]
    signs = 1 - 2 * (torch.arange(size, device=rows.device) % 2).to(rows.dtype)
    if size % 2:  # the signs have the mean 0, and one of an odd number is 0
        signs[-1] = 0
        signs *= (size / (size - 1)) ** 0.5
    with torch.no_grad():
        zero = norm.forward(torch.zeros_like(rows))
        centres = torch.allclose(norm.forward(torch.ones_like(rows)), zero, atol=1e-4)
        centred = rows - rows.mean(-1, keepdim=True) if centres else rows
        root_mean_square = centred.square().mean(-1, keepdim=True).sqrt()
        probes = [root_mean_square * way for way in (signs, signs.flip(0))]
        forwards, backwards = ((norm.forward(probe) - zero) / probe for probe in probes)
        scale = torch.where(signs != 0, forwards, backwards).nan_to_num(0)
    linear = (scale * (rows - rows.mean(-1, keepdim=True) if centres else rows)).to(output.dtype)
    return output.detach() + linear - linear.detach()


@contextmanager
def without_parts(prediction: Prediction, parts: Sequence[Part], kept: Tensor) -> Iterator[None]:
    """Within this block the model runs without the parts that are not kept, (batch, parts)."""
    columns = {part.block or part.module: kept[:, number] for number, part in enumerate(parts) if not part.head}

    def hook(call: Call) -> Any:
        if call.path not in columns:
            return None
        output = first(call.output)
        instead = call.input if any(part.block == call.path for part in parts) else torch.zeros_like(output)
        stays = columns[call.path][:, None, None]
        if output.dim() == 2:  # (batch · n, size), as experts write
            stays = stays[:, 0].repeat_interleave(len(output) // len(stays), 0)
        changed = torch.where(stays, output, instead)  # (batch, n, size)
        return (changed, *call.output[1:]) if isinstance(call.output, tuple) else changed

    with after_calls(prediction.model, hook), intervene(prediction.model) as edit:
        for number, part in enumerate(parts):
            if part.head is not None:
                edit.scale(kept[:, number, None, None, None], *part.head)
        yield


PART_METHODS: dict[str, Callable[[Prediction], tuple[Tensor, list[Part]]]] = {
    "logit_lens": logit_lens,
    "direct_logits": direct_logits,
}

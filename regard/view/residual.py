"""What the layers and heads of a language model write into the residual stream, as logits.

The logit lens reads the stream after each layer as if it were the last. Direct logit attribution takes the last norm's
scale as it is; then the logit is a sum over all that was written, and what each part adds to it is known.

Legend: batch · n tokens · size · heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.view.capture import capture
from regard.view.explain import Projections
from regard.view.prediction import Prediction

__all__ = ["PART_METHODS", "Part", "without_parts"]


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


class Call(NamedTuple):
    """A module that was called: with what, and what it returned. Tensors, or what has them first."""

    path: str
    module: nn.Module
    input: Any
    output: Any


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple | list) and value else value


@contextmanager
def _hooks(model: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    """Call hook(path, module, input, output) after every module; what it returns replaces the output, unless None."""
    with ExitStack() as stack:
        for path, module in model.named_modules():

            def after(module: nn.Module, args: Any, options: Any, output: Any, path: str = path) -> Any:
                return hook(path, module, _first(args) if args else next(iter(options.values()), None), output)

            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        yield


def _calls(prediction: Prediction) -> list[Call]:
    calls: list[Call] = []
    with torch.no_grad(), _hooks(prediction.model, lambda *call: calls.append(Call(*call))):
        prediction.logits()
    return calls


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not any(True for _ in module.children())


def _last_norm(calls: Sequence[Call]) -> int:
    norms = [number for number, call in enumerate(calls) if _is_norm(call.module)]
    if not norms:
        raise ValueError("model: expected a language model with a norm before its output layer, got none")
    return norms[-1]


# ------------------------------------------------------------------------------------------------------- the logit lens


def logit_lens(prediction: Prediction) -> tuple[Tensor, list[Part]]:
    """What each layer adds to log p, read from the stream after it by the last norm and the output layer; the embedding
    comes first. Up to a layer, they add up to what the lens reads there."""
    calls = _calls(prediction)
    norm, blocks = calls[_last_norm(calls)], _blocks(prediction, calls)
    streams = [_first(calls[blocks[0]].input), *(_first(calls[block].output) for block in blocks)]
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
    paths = [calls[block].path for block in blocks]
    return read.diff(dim=1, prepend=torch.zeros_like(read[:, :1])), [
        Part("embedding"),
        *(Part(path, block=path) for path in paths),
    ]


def _blocks(prediction: Prediction, calls: Sequence[Call]) -> list[int]:
    """The calls of the model's layers: the modules of a list that have attention within."""
    with torch.no_grad(), capture(prediction.model) as seen:
        prediction.logits()
    paths = [layer.name.split(".") for layer in seen]
    depth = next((k for k in range(min(map(len, paths))) if all(path[k].isdigit() for path in paths)), None)
    if depth is None:
        raise ValueError(
            f"model: expected layers in a list, got attention in {', '.join(layer.name for layer in seen)}"
        )
    names = {".".join(path[: depth + 1]) for path in paths}
    return [number for number, call in enumerate(calls) if call.path in names]


# --------------------------------------------------------------------------------------------- direct logit attribution


def direct_logits(prediction: Prediction) -> tuple[Tensor, list[Part]]:
    """What each head, and each other module that writes into the stream, adds to the target's logit directly.

    "rest" is what no part writes: biases. They add up to the logit.
    """
    model = prediction.model
    calls: list[Call] = []
    with torch.no_grad(), Projections(model) as found, capture(model, operands=True) as seen:
        with _hooks(model, lambda *call: calls.append(Call(*call))):
            prediction.logits()
    leaves = _writers(calls)
    logit, slopes = _direct_gradients(prediction, leaves)
    scores, parts = [], []
    read = {}
    for layer in seen:
        module = found.module(layer)
        number = next(
            (n for n, call in enumerate(calls) if call.module is module and n in slopes and n not in read), None
        )
        if number is None or layer.output is None:
            raise ValueError(f"model: no linear layer that reads the heads of {layer.name} writes into the stream")
        read[number] = layer
        project = found.of(layer)
        for head in range(len(layer.heads)):
            alone = torch.zeros_like(layer.output)
            alone[:, head] = layer.output[:, head]
            with torch.no_grad():
                written = project(alone.transpose(1, 2).flatten(2))
            scores.append((slopes[number] * written.reshape(slopes[number].shape)).flatten(1).sum(1))
            parts.append(Part(f"{layer.layer}.{layer.heads[head]}", head=(layer.layer, layer.heads[head])))
    for number, slope in slopes.items():
        if number not in read:
            scores.append((slope * _first(calls[number].output)).flatten(1).sum(1))
            parts.append(Part(calls[number].path, module=calls[number].path))
    total = torch.stack(scores, 1)
    return torch.cat([total, (logit - total.sum(1))[:, None]], 1), [*parts, Part("rest")]


def _writers(calls: Sequence[Call]) -> set[int]:
    """Calls of modules with matrices of their own, the innermost ones, before the last norm: with what they return taken
    as it is, the stream is a sum of what some of them wrote."""
    last = _last_norm(calls)
    matrices = {call.path for call in calls if any(part.dim() > 1 for part in call.module.parameters(recurse=False))}
    outer = {
        path for path in matrices if any(other.startswith(f"{path}." if path else "") for other in matrices - {path})
    }
    return {number for number, call in enumerate(calls[:last]) if call.path in matrices - outer}


def _direct_gradients(prediction: Prediction, writers: set[int]) -> tuple[Tensor, dict[int, Tensor]]:
    """The target's logit, (batch,), and its gradients with respect to what the writers return, through nothing but
    norms, whose scale is taken as it is, and sums."""
    count, leaves = 0, dict[int, Tensor]()

    def hook(path: str, module: nn.Module, given: Any, output: Any) -> Any:
        nonlocal count
        number, count = count, count + 1
        if number in writers:
            leaf = _first(output).detach().requires_grad_(_first(output).is_floating_point())
            if leaf.requires_grad:
                leaves[number] = leaf
            return (leaf, *output[1:]) if isinstance(output, tuple) else leaf
        if _is_norm(module) and isinstance(given, Tensor) and given.requires_grad:
            return _linear_norm(module, given, output)
        return None

    with torch.enable_grad(), _hooks(prediction.model, hook):
        logit = prediction.logits().gather(1, prediction.target[:, None])[:, 0]
    slopes = torch.autograd.grad(logit.sum(), list(leaves.values()), allow_unused=True)
    return logit.detach(), {number: slope for number, slope in zip(leaves, slopes, strict=True) if slope is not None}


def _linear_norm(norm: nn.Module, rows: Tensor, output: Tensor) -> Tensor:
    """What a norm returned, as a linear function of its rows: their scale is a constant.

    The scale is asked of the norm itself, with rows ± r, r their root mean square, which have the same one.
    """
    size = rows.shape[-1]
    signs = 1.0 - 2.0 * (torch.arange(size, device=rows.device) % 2)
    if size % 2:  # the signs have the mean 0, and one of an odd number is 0
        signs[-1] = 0
        signs *= (size / (size - 1)) ** 0.5
    with torch.no_grad():
        zero = norm.forward(torch.zeros_like(rows))
        centres = torch.allclose(norm.forward(torch.ones_like(rows)), zero, atol=1e-4)
        centred = rows - rows.mean(-1, keepdim=True) if centres else rows
        size_of_rows = centred.square().mean(-1, keepdim=True).sqrt()
        probes = [size_of_rows * way for way in (signs, signs.flip(0))]
        first, second = ((norm.forward(probe) - zero) / probe for probe in probes)
        scale = torch.where(signs != 0, first, second).nan_to_num(0)
    linear = scale * (rows - rows.mean(-1, keepdim=True) if centres else rows)
    return output.detach() + linear - linear.detach()


# -------------------------------------------------------------------------------------------------------- leaving out


@contextmanager
def without_parts(prediction: Prediction, parts: Sequence[Part], kept: Tensor) -> Iterator[None]:
    """Within this block the model runs without the parts that are not kept, (batch, parts)."""
    from regard.view.intervene import intervene

    columns = {part.block or part.module: kept[:, [number], None] for number, part in enumerate(parts) if not part.head}

    def hook(path: str, module: nn.Module, given: Any, output: Any) -> Any:
        if path not in columns or path is None:
            return None
        instead = given if any(part.block == path for part in parts) else torch.zeros_like(_first(output))
        changed = torch.where(columns[path], _first(output), instead)  # (batch, n, size)
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    with ExitStack() as stack:
        stack.enter_context(_hooks(prediction.model, hook))
        if any(part.head for part in parts):
            edit = stack.enter_context(intervene(prediction.model))
            for layer in dict.fromkeys(part.head[0] for part in parts if part.head):
                numbers = {
                    part.head[1]: number for number, part in enumerate(parts) if part.head and part.head[0] == layer
                }
                heads = kept[:, [numbers[head] for head in sorted(numbers)], None, None]
                edit.set_weights(lambda weights, heads=heads: weights * heads, layer)
        yield


PART_METHODS: dict[str, Callable[[Prediction], tuple[Tensor, list[Part]]]] = {
    "logit_lens": logit_lens,
    "direct_logits": direct_logits,
}

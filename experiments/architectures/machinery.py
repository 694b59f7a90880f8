"""Attention that is scripted, traced, compiled, checkpointed, shared, or run in another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from experiments.architectures.campaign import Architecture, Layer, Subject
from experiments.architectures.library import numbers
from experiments.architectures.written import (
    BATCH,
    HEADS,
    INPUT,
    SIZE,
    SOURCE,
    Block,
    N,
    Written,
    fused,
    matmul,
    row,
    weights,
    written,
)

KIND = "run in another way"


ROWS: list[Architecture] = []


def block(attend: Callable[..., Tensor] = fused) -> tuple[Block, Tensor]:
    """A model and its weights."""
    torch.manual_seed(7)
    model = Block(Written(attend)).eval()
    with torch.no_grad():
        return model, weights(*model.attention.project(model.first(INPUT), SOURCE)[:2])


# ------------------------------------------------------------------------------------- scripted, traced, compiled


def scriptable(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scaled = query.transpose(1, 2) @ key.permute(0, 2, 3, 1) * 5**-0.5
    return (torch.softmax(scaled, -1) @ value.transpose(1, 2)).transpose(1, 2)


@cache
def scripted_function() -> Callable[..., Tensor]:
    return torch.jit.script(scriptable)


class Scriptable(nn.Module):
    """As Written, in the part of Python that TorchScript understands."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(15, 15), nn.Linear(15, 15), nn.Linear(15, 15)

    def forward(self, rows: Tensor, source: Tensor) -> Tensor:
        query = 2 * self.query(rows).unflatten(-1, [3, 5])
        key = 2 * self.key(source).unflatten(-1, [3, 5])
        value = 2 * self.value(source).unflatten(-1, [3, 5])
        fused = torch.nn.functional.scaled_dot_product_attention
        return fused(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)).transpose(1, 2).flatten(-2)


def transformed(
    change: Callable[[Block], nn.Module],
    name: str = "",
    attend: Callable[..., Tensor] = fused,
    *,
    gradients: bool = True,
) -> Subject:
    """A model that was changed into another one, with the same weights."""
    model, expected = block(attend)
    changed = change(model)
    return Subject(changed, lambda: changed(INPUT, SOURCE), [Layer(name, expected)], gradients)


@row(ROWS, KIND, "torch.jit.script, a module in the model")
def scripted_part() -> Subject:
    def change(model: Block) -> Block:
        part = Scriptable()
        part.load_state_dict(model.attention.state_dict())
        model.attention = torch.jit.script(part)
        return model

    return transformed(change, "attention")


@row(ROWS, KIND, "torch.jit.script, the whole model")
def scripted() -> Subject:
    def change(model: Block) -> nn.Module:
        part = Scriptable()
        part.load_state_dict(model.attention.state_dict())
        model.attention = part
        return torch.jit.script(model)

    return transformed(change)


@row(ROWS, KIND, "torch.jit.trace")
def traced() -> Subject:
    return transformed(lambda model: torch.jit.trace(model, (INPUT, SOURCE)))


@row(ROWS, KIND, "torch.fx, a GraphModule")
def graph() -> Subject:
    return transformed(torch.fx.symbolic_trace, attend=matmul)


@row(ROWS, KIND, "torch.export")
def exported() -> Subject:
    change = lambda model: torch.export.export(model, (INPUT, SOURCE)).module()  # noqa: E731
    return transformed(change, gradients=False)  # it has no train()


@row(ROWS, KIND, "torch.compile, the whole model")
def compiled() -> Subject:
    torch.compiler.reset()
    return transformed(lambda model: torch.compile(model, backend="aot_eager"))


@row(ROWS, KIND, "torch.compile, a part of the model")
def compiled_part() -> Subject:
    def change(model: Block) -> Block:
        model.attention = torch.compile(model.attention, backend="aot_eager")
        return model

    torch.compiler.reset()
    return transformed(change, "attention")


@row(ROWS, KIND, "torch.compile with inductor", fast=False)
def inductor() -> Subject:
    torch.compiler.reset()
    return transformed(torch.compile, attend=matmul)


class Opaque(torch.autograd.Function):
    """Attention as one step of autograd."""

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        context.save_for_backward(query, key, value)
        return matmul(query, key, value)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            inputs = [tensor.detach().requires_grad_() for tensor in context.saved_tensors]
            return torch.autograd.grad(matmul(*inputs), inputs, gradients)


@torch.library.custom_op("regard_architectures::attention", mutates_args=())
def operator(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention as an operator of its own, as kernels of other packages are."""
    return matmul(query, key, value).contiguous()


# -------------------------------------------------------------------------------------------------- other ways to run


def checkpointed(reentrant: bool) -> Subject:
    class Checkpointed(Block):
        def forward(self, rows: Tensor, source: Tensor) -> Tensor:
            attended = checkpoint(self.attention, self.first(rows), source, use_reentrant=reentrant)
            return self.last(rows + attended)

    model, expected = block(matmul)
    model.__class__ = Checkpointed

    def run() -> list[Tensor | None]:
        model.zero_grad()
        with torch.enable_grad():
            output = model(INPUT, SOURCE)
            output.sum().backward()
        return [output.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    return Subject(model, run, [Layer("attention", expected)], gradients=False)  # they are among what it returns


row(ROWS, KIND, "gradient checkpointing, backward in the block")(lambda: checkpointed(reentrant=False))
row(ROWS, KIND, "gradient checkpointing, reentrant")(lambda: checkpointed(reentrant=True))


@row(ROWS, KIND, "inference mode")
def inference() -> Subject:
    model, expected = block()
    run = torch.inference_mode()(lambda: model(INPUT, SOURCE))
    return Subject(model, run, [Layer("attention", expected)], gradients=False)


@row(ROWS, KIND, "torch.func.functional_call")
def functionally() -> Subject:
    model, expected = block(matmul)
    other = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    run = lambda: torch.func.functional_call(model, other, (INPUT, SOURCE))  # noqa: E731
    return Subject(model, run, [Layer("attention", expected)], gradients=False)  # the model's are not used


@row(ROWS, KIND, "nn.DataParallel")
def parallel() -> Subject:
    return transformed(nn.DataParallel, "module.attention")


class Threads(nn.Module):
    """Two branches, one of which runs in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Written(fused), Written(matmul)

    def forward(self, rows: Tensor, source: Tensor) -> Tensor:
        outputs: list[Tensor] = []
        gradients = torch.is_grad_enabled()

        def branch() -> None:
            with torch.set_grad_enabled(gradients):
                outputs.append(self.other(rows, source))

        thread = threading.Thread(target=branch)
        thread.start()
        thread.join()
        return self.one(rows, source) + outputs[0]


@row(ROWS, KIND, "a branch in a thread", "right + reported")
def threads() -> Subject:
    torch.manual_seed(7)
    model = Threads()
    with torch.no_grad():
        layers = [Layer(name, weights(*part.project(INPUT, SOURCE)[:2])) for name, part in model.named_children()]
    return Subject(model, lambda: model(INPUT, SOURCE), layers)


class MadeInForward(nn.Module):
    """A layer that is not there before the model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(15, 45)

    def forward(self, rows: Tensor) -> Tensor:
        layer = nn.MultiheadAttention(15, 3, batch_first=True)
        layer.in_proj_weight, layer.in_proj_bias = self.projection.weight, self.projection.bias
        nn.init.eye_(layer.out_proj.weight)
        return layer(rows, rows, rows, need_weights=False)[0]


@row(ROWS, KIND, "nn.MultiheadAttention made in forward")
def made_in_forward() -> Subject:
    torch.manual_seed(7)
    model = MadeInForward()
    with torch.no_grad():
        query, key, _ = (one.unflatten(-1, (HEADS, SIZE)) for one in model.projection(INPUT).split(15, -1))
    return Subject(model, lambda: model(INPUT), [Layer("", weights(query, key))])


class Twice(nn.Module):
    """One layer, called twice, as ALBERT's."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Written(fused)

    def forward(self, rows: Tensor) -> Tensor:
        once = self.attention(rows, rows)
        return self.attention(once, once)


@row(ROWS, KIND, "a shared layer, called twice")
def twice() -> Subject:
    torch.manual_seed(7)
    model = Twice()
    with torch.no_grad():
        once = model.attention(INPUT, INPUT)
        layers = [Layer("attention", weights(*model.attention.project(rows, rows)[:2])) for rows in (INPUT, once)]
    return Subject(model, lambda: model(INPUT), layers, check=lambda seen: not_joined(seen, N))


@row(ROWS, KIND, "two prompts through one block")
def two_prompts() -> Subject:
    model, expected = block()
    others = numbers(BATCH, N, HEADS * SIZE, seed=8)
    with torch.no_grad():
        other = weights(*model.attention.project(model.first(others), SOURCE)[:2])
    run = lambda: [model(INPUT, SOURCE), model(others, SOURCE)]  # noqa: E731
    layers = [Layer("attention", expected), Layer("attention", other)]
    return Subject(model, run, layers, check=lambda seen: not_joined(seen, N))


def not_joined(seen: Any, n: int) -> str:
    longest = max(layer.weights.shape[-2] for layer in seen.by_layer())
    return "" if longest == n else f"by_layer() joins calls that do not continue each other, to {longest} queries"


ROWS += [
    written("torch.jit.script, a function", lambda *rows: scripted_function()(*rows)),
    written("torch.autograd.Function", Opaque.apply),
    written("an operator of its own", operator, gradients=False, expected="reported"),
]

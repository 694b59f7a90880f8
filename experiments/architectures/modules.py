"""What of PyTorch attends: nn.MultiheadAttention, nn.Transformer, nested tensors, FlexAttention, vmap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from experiments.architectures.campaign import Architecture, Layer, Subject
from experiments.architectures.library import family, numbers
from experiments.architectures.texts import LLAMA, WHOLE
from experiments.architectures.written import (
    BATCH,
    HEADS,
    INPUT,
    SOURCE,
    M,
    N,
    Written,
    fused,
    heads_first,
    matmul,
    row,
    scores,
    weights,
    written,
)

KIND = "of PyTorch"
ROWS: list[Architecture] = []


def multihead(**options: Any) -> Subject:
    torch.manual_seed(7)
    layer = nn.MultiheadAttention(15, 3, **{"batch_first": True} | options.pop("layer", {})).eval()
    model = nn.ModuleDict({"attention": layer})
    first = options.pop("inputs", (INPUT, SOURCE, SOURCE))
    run = lambda: layer(*first, **options)  # noqa: E731
    with torch.no_grad():
        oracle = layer(*first, **options | {"need_weights": True, "average_attn_weights": False})[1]
    oracle = oracle if oracle.dim() == 4 else oracle[None]
    return Subject(model, run, [Layer("attention", oracle)])


row(ROWS, KIND, "nn.MultiheadAttention, need_weights=True")(lambda: multihead(need_weights=True))
row(ROWS, KIND, "nn.MultiheadAttention, need_weights=False")(lambda: multihead(need_weights=False))
row(ROWS, KIND, "nn.MultiheadAttention, fast path")(lambda: multihead(need_weights=False, inputs=(INPUT, INPUT, INPUT)))
row(ROWS, KIND, "nn.MultiheadAttention, padding")(
    lambda: multihead(need_weights=False, key_padding_mask=torch.arange(M) >= torch.tensor([[11], [5]]))
)
row(ROWS, KIND, "nn.MultiheadAttention, batch second")(
    lambda: multihead(layer={"batch_first": False}, inputs=(INPUT.mT.permute(2, 0, 1),) * 3)
)
row(ROWS, KIND, "nn.MultiheadAttention, no batch")(lambda: multihead(inputs=(INPUT[0], SOURCE[0], SOURCE[0])))
row(ROWS, KIND, "nn.MultiheadAttention, add_bias_kv and add_zero_attn")(
    lambda: multihead(layer={"add_bias_kv": True, "add_zero_attn": True})
)


def encoder(padded: bool, first: bool) -> Subject:
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(20, 4, 31, batch_first=True, norm_first=first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not first).eval()
    inputs, lengths = numbers(BATCH, N, 20), torch.tensor([[7], [4]])
    hidden = torch.arange(N) >= lengths if padded else None
    layers, rows = [], inputs
    with torch.no_grad():
        for number, part in enumerate(model.layers):
            seen = part.norm1(rows) if first else rows
            oracle = part.self_attn(seen, seen, seen, key_padding_mask=hidden, average_attn_weights=False)[1]
            if hidden is not None:
                oracle = oracle.masked_fill(hidden[:, None, :, None], torch.nan)  # rows of padding
            layers.append(Layer(f"layers.{number}.self_attn", oracle))
            rows = part(rows, src_key_padding_mask=hidden)
    return Subject(model, lambda: model(inputs, src_key_padding_mask=hidden), layers)


row(ROWS, KIND, "nn.TransformerEncoder, fast path")(lambda: encoder(padded=False, first=False))
row(ROWS, KIND, "nn.TransformerEncoder, fast path, norm first, padding")(lambda: encoder(padded=True, first=True))
row(ROWS, KIND, "nn.TransformerEncoder, fast path, padding as nested tensors")(
    lambda: encoder(padded=True, first=False)
)


@row(ROWS, KIND, "nn.Transformer")
def transformer() -> Subject:
    torch.manual_seed(7)
    model = nn.Transformer(20, 4, 1, 1, 31, batch_first=True).eval()
    source, target = numbers(BATCH, M, 20), numbers(BATCH, N, 20, seed=4)
    future = nn.Transformer.generate_square_subsequent_mask(N)
    layers: list[Layer] = []

    def keep(module: Any, given: Any, options: Any, output: Any) -> None:
        options = options | {"need_weights": True, "average_attn_weights": False}
        name = next(name for name, one in model.named_modules() if one is module)
        layers.append(Layer(name, module.forward(*given, **options)[1]))

    attentions = [one for one in model.modules() if isinstance(one, nn.MultiheadAttention)]
    handles = [one.register_forward_hook(keep, with_kwargs=True) for one in attentions]
    run = lambda: model(source, target, tgt_mask=future, tgt_is_causal=True)  # noqa: E731
    with torch.no_grad():
        run()
    for handle in handles:
        handle.remove()
    return Subject(model, run, layers)


# ---------------------------------------------------------------------------------------------- nested, mapped, masked


def nested(layout: torch.layout) -> Subject:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Written(self.attend)

        def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            parts = [[one[b, : (7, 4)[b]] for b in range(BATCH)] for one in (query, key, value)]
            rows = [torch.nested.nested_tensor(part, layout=layout).transpose(1, 2) for part in parts]
            rows = [one.contiguous() for one in rows] if layout == torch.strided else rows
            output = functional.scaled_dot_product_attention(*rows)
            return output.transpose(1, 2).contiguous().to_padded_tensor(0.0)

        def forward(self, rows: Tensor) -> Tensor:
            return self.attention(rows, rows)

    torch.manual_seed(7)
    model = Nested().eval()
    oracle = torch.full((BATCH, HEADS, N, N), torch.nan)
    with torch.no_grad():
        query, key, _ = model.attention.project(INPUT, INPUT)
    for b, n in enumerate((7, 4)):
        oracle[b, :, :n] = functional.pad(weights(query[b : b + 1, :n], key[b : b + 1, :n]), (0, N - n))[0]
    # No gradients: of these, PyTorch has none on a CPU.
    return Subject(model, lambda: model(INPUT), [Layer("attention", oracle)], gradients=False)


row(ROWS, KIND, "nested tensors, jagged")(lambda: nested(torch.jagged))
row(ROWS, KIND, "nested tensors, strided")(lambda: nested(torch.strided))


def mapped(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    one = lambda query, key, value: attend(query[None], key[None], value[None])[0]  # noqa: E731
    return torch.vmap(one)


def one_by_one(architecture: Architecture) -> Architecture:
    """Where PyTorch calls its function for each entry of the batch: as many calls."""

    def subjects() -> dict[str, Subject]:
        return {
            name: replace(
                subject,
                oracle=[Layer(layer.name, part) for layer in subject.oracle for part in layer.weights.split(1)],
            )
            for name, subject in architecture.subjects().items()
        }

    return replace(architecture, subjects=subjects)


def lower_right(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = heads_first(query, key, value)
    return functional.scaled_dot_product_attention(query, key, value, causal_lower_right(N, M)).transpose(1, 2)


def upper_left(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, value = heads_first(query, key, value)
    return functional.scaled_dot_product_attention(query, key, value, causal_upper_left(N, M)).transpose(1, 2)


def causal(offset: int) -> Callable[[Tensor, Tensor], Tensor]:
    later = torch.ones(N, M).triu(1 + offset).bool()
    return lambda query, key: scores(query, key).masked_fill(later, -torch.inf).softmax(-1)


def flex(**options: Any) -> Callable[..., Tensor]:
    return lambda *rows: flex_attention(*heads_first(*rows), **options).transpose(1, 2)


def tilted(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score + 0.3 * (h + 1) * (q - k)


def tilted_weights(query: Tensor, key: Tensor) -> Tensor:
    steps = torch.arange(N)[:, None] - torch.arange(M)
    return (scores(query, key) + 0.3 * torch.arange(1, HEADS + 1)[:, None, None] * steps).softmax(-1)


def flex_masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    lower = create_block_mask(lambda b, h, q, k: k <= q + 4, None, None, N, M, device="cpu")
    return flex_attention(*heads_first(query, key, value), block_mask=lower).transpose(1, 2)


ROWS += [
    written("causal_lower_right made in forward", lower_right, causal(M - N)),
    written("causal_upper_left made in forward", upper_left, causal(0)),
    written("FlexAttention", flex(), gradients=False),
    written("FlexAttention, score_mod", flex(score_mod=tilted), tilted_weights, gradients=False),
    written("FlexAttention, block_mask", flex_masked, causal(4), gradients=False),
    one_by_one(written("vmap of the fused function", mapped(fused))),
    written("vmap of a softmax", mapped(matmul)),
    family(
        "Llama with flex_attention",
        "text decoder",
        "LlamaModel",
        LLAMA,
        WHOLE,
        ways=["flex_attention"],
        gradients=False,
        expected="reported",
    ),
]

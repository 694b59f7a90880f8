"""A training step of the language model under torch.compile, against the same model on PyTorch's attention."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Row, compare
from benchmarks.models import training
from regard import LanguageModel, MultiHead
from regard.models.cache import KVCache
from regard.models.packing import SequenceInfo


class FusedAttention(nn.Module):
    """The mixer of a block: the matrices of a MultiHead around F.scaled_dot_product_attention, causal."""

    def __init__(self, layer: MultiHead) -> None:
        super().__init__()
        self.heads, self.in_proj, self.out_proj = layer.heads, layer.in_proj[0], layer.out_proj

    def mix(self, rows: Tensor, info: SequenceInfo, past: None) -> tuple[Tensor, KVCache]:
        """What a block asks of its mixer."""
        parts = self.in_proj(rows).chunk(3, -1)  # (batch, n, size) each
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out_proj(output.transpose(1, 2).flatten(2)), KVCache(key, value)


def rows(tiny: bool = False) -> Iterator[Row]:
    """Forward, backward and update."""
    vocab_size, size, layers, batch, length = (50, 16, 1, 2, 8) if tiny else (4_000, 256, 4, 8, 256)
    torch.manual_seed(0)
    ours = LanguageModel(vocab_size, size, layers, 4, max_positions=length)
    theirs = deepcopy(ours)
    for block in theirs.blocks:
        assert isinstance(block.mixer, MultiHead)
        block.mixer = FusedAttention(block.mixer)
    ids = torch.randint(vocab_size, (batch, length))
    backend = "inductor" if not tiny and any(map(shutil.which, ("g++", "clang++", "c++"))) else "aot_eager"

    def compiled(model: LanguageModel) -> Callable[[], Tensor]:
        def loss(ids: Tensor) -> Tensor:
            return functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

        compiled_loss = torch.compile(loss, backend=backend, fullgraph=True, dynamic=False)
        return lambda: compiled_loss(ids)

    their_loss, our_loss = compiled(theirs), compiled(ours)
    answers, expectations = (
        torch.autograd.grad(loss(), list(model.parameters()))
        for model, loss in ((ours, our_loss), (theirs, their_loss))
    )
    for answer, expected in zip(answers, expectations, strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)
    how = "torch.compile" if backend == "inductor" else f"torch.compile, no C++ compiler here: backend {backend}"
    yield compare(
        f"training step, GPT {size} × {layers}, length {length}, batch {batch}, {how}",
        "the same model on F.scaled_dot_product_attention, compiled",
        training(theirs, lambda _: their_loss()),
        training(ours, lambda _: our_loss()),
        0.97,
        1 if tiny else 9,
    )
    torch._dynamo.reset()

"""A training step of the language model under torch.compile, against the same model on PyTorch's attention."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Figures, Row, race
from benchmarks.models import cross_entropy, training
from regard import LanguageModel, MultiHead
from regard.models.cache import KVCache
from regard.models.packing import SequenceInfo

COMPILER = any(map(shutil.which, ("g++", "clang++", "c++")))


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


def step(tiny: bool) -> Figures:
    """Forward, backward and update."""
    vocab_size, size, layers, batch, length = (50, 16, 1, 2, 8) if tiny else (4_000, 256, 4, 8, 256)
    torch.manual_seed(0)
    ours = LanguageModel(vocab_size, size, layers, 4, max_positions=length)
    theirs = deepcopy(ours)
    for block in theirs.blocks:
        assert isinstance(block.mixer, MultiHead)
        block.mixer = FusedAttention(block.mixer)
    ids = torch.randint(vocab_size, (batch, length))
    backend = "inductor" if COMPILER and not tiny else "aot_eager"

    def compiled(model: LanguageModel) -> Callable[[], Tensor]:
        def loss(ids: Tensor) -> Tensor:
            return cross_entropy(model(ids)[:, :-1], ids[:, 1:])

        compiled_loss = torch.compile(loss, backend=backend, fullgraph=True, dynamic=False)
        return lambda: compiled_loss(ids)

    our_loss, their_loss = compiled(ours), compiled(theirs)
    answers, expectations = (
        torch.autograd.grad(loss(), list(model.parameters()))
        for model, loss in ((ours, our_loss), (theirs, their_loss))
    )
    for answer, expected in zip(answers, expectations, strict=True):
        torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)
    figures = race(training(ours, our_loss), training(theirs, their_loss), tiny=tiny)
    torch._dynamo.reset()
    return figures


ROWS = (
    Row(
        "compiled/gpt",
        "training step, GPT 256 × 4, length 256, batch 8, torch.compile",
        "the same model on F.scaled_dot_product_attention, compiled",
        step,
        at_least=0.97,
        why="Compiled, both are the same products around the same kernel; what differs is noise.",
    ),
)

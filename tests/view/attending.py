"""Small modules that attend, and a capture of a model that must change no bit of its answers."""

import torch
from torch import nn
from torch.nn import functional

import regard

SIZE, HEADS = 24, 3


class Direct(nn.Module):
    """Attention by PyTorch's fused function."""

    def __init__(self, **options):
        super().__init__()
        self.linear, self.options = nn.Linear(SIZE, 3 * SIZE), options

    def project(self, rows):
        """Queries, keys and values, (batch, heads, n, head size) each."""
        return [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.linear(rows).split(SIZE, -1)]

    def forward(self, rows):
        return functional.scaled_dot_product_attention(*self.project(rows), **self.options)


class Written(Direct):
    """The same, written out."""

    def forward(self, rows):
        query, key, value = self.project(rows)
        scores = query @ key.transpose(-2, -1) * (SIZE // HEADS) ** -0.5
        return functional.softmax(scores, dim=-1) @ value


def rows(n=7, batch=5):
    return torch.randn(batch, n, SIZE, generator=torch.Generator().manual_seed(3))


def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        output = [output[name] for name in output if name != "past_key_values"]
    return [tensor for part in output for tensor in tensors(part)] if isinstance(output, list | tuple) else []


def captured(model, *arguments, chosen=None, **options):
    """The capture, after a check that outputs during and after it are the same in every bit."""
    with torch.no_grad():
        before = tensors(model(*arguments, **options))
        with regard.capture(model, **(chosen or {})) as seen:
            during = tensors(model(*arguments, **options))
        after = tensors(model(*arguments, **options))
    assert before
    for outputs in zip(before, during, after, strict=True):
        assert torch.equal(outputs[0], outputs[1])
        assert torch.equal(outputs[0], outputs[2])
    return seen


class Attends(nn.Module):
    def __init__(self, score=None, mask=None):
        super().__init__()
        self.score, self.mask = score, mask

    def forward(self, rows):
        return regard.attend(rows, rows, rows, score=self.score, mask=self.mask)

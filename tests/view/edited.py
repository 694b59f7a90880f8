"""Attention written out in several ways, to be edited; and the same edits by hand."""

import torch
from torch import nn
from torch.nn import functional

import regard

SIZE, HEADS, BATCH, N = 24, 3, 5, 7


class Written(nn.Module):
    """Attention, written out, with the output projection behind it; `change` is applied to the weights or outputs."""

    def __init__(self, fused=False, layout="bhqk"):
        super().__init__()
        self.linear, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.fused, self.layout = fused, layout

    def forward(self, rows, weights=lambda tensor: tensor, output=lambda tensor: tensor):
        query, key, value = self.linear(rows).unflatten(-1, (3, HEADS, -1)).unbind(2)  # (batch, n, heads, size)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (query, key, value)))
        elif self.layout == "bqhk":
            scores = torch.einsum("bqhd,bkhd->bqhk", query, key) * 8**-0.5
            mixed = torch.einsum("bqhk,bkhd->bhqd", scores.softmax(-1), value)
        elif self.layout == "values first":
            scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * 8**-0.5
            mixed = (value.permute(0, 2, 3, 1) @ scores.softmax(-1).mT).mT
        elif self.layout == "folded":
            query, key, value = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))
            mixed = torch.bmm(torch.bmm(query * 8**-0.5, key.mT).softmax(-1), value).unflatten(0, (-1, HEADS))
        else:
            query, key, value = (part.transpose(1, 2) for part in (query, key, value))
            mixed = weights((query @ key.mT * 8**-0.5).softmax(-1)) @ value
        return self.out(output(mixed).transpose(1, 2).flatten(2))


def rows(batch=BATCH):
    return torch.randn(batch, N, SIZE, generator=torch.Generator().manual_seed(3))


def alike(model):
    """The model that is edited by hand, with the same weights."""
    other = Written()
    other.load_state_dict(model.state_dict())
    return other


MODELS = {
    "written": Written,
    "fused": lambda: Written(fused=True),
    "bqhk": lambda: Written(layout="bqhk"),
    "folded": lambda: Written(layout="folded"),
    "values first": lambda: Written(layout="values first"),
}


def zeroed(heads, queries=slice(None)):
    def change(output):
        output = output.clone()
        output[:, heads, queries] = 0
        return output

    return change


def run(model, change):
    with regard.intervene(model) as edit:
        change(edit)
        return model(rows())

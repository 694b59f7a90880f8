"""A correct problem, from which every wrong call of the tables differs in one thing."""

import torch
from torch import nn

from regard.attention import (
    attend,
)


def t(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def yes(*shape, device="cpu"):
    return torch.ones(shape, dtype=torch.bool, device=device)


# A correct problem: 3 sequences, 2 heads, 5 queries, 7 keys, 4 features, values of size 6.
QUERY, KEY, VALUE = t(3, 2, 5, 4), t(3, 2, 7, 4), t(3, 2, 7, 6)


def ask(mask=None, query=QUERY, key=KEY, value=VALUE, **options):
    return lambda: attend(query, key, value, mask=mask() if callable(mask) else mask, **options)


class Wrong(nn.Module):
    """A score that gives back what it was told to."""

    def __init__(self, result):
        super().__init__()
        self.result = result

    def forward(self, query, key):
        return self.result


COMPLEX, INT, HALF, DOUBLE = torch.complex64, torch.int64, torch.float16, torch.float64

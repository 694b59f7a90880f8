"""Attention as it is written elsewhere: heads along the batch or in front, sinks in front, keys kept from before, and
scores that are bent, shifted or joined with others; and more that is none."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.architectures import shapes
from experiments.architectures.campaign import Architecture
from experiments.architectures.shapes import HEADS, SIZE, Shaped

BATCH, N = 2, 7
ROWS: list[Architecture] = []
row = partial(shapes.row, rows=ROWS)


class Written(Shaped):
    """Attention between rows, of which others change a part."""

    def split(self, rows: Tensor) -> list[Tensor]:
        """Queries, keys and values, (batch, heads, n, size)."""
        return [part.transpose(1, 2) for part in self.project(rows)]

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = self.split(rows)
        probabilities = self.weights(query @ key.mT * 5**-0.5, rows)
        self.note(lambda: probabilities)
        return (probabilities @ value).transpose(1, 2).flatten(2)

    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        return scores.softmax(-1)


@row("heads split off and joined along the batch")
class AlongTheBatch(Shaped):
    def forward(self, rows: Tensor) -> Tensor:
        parts = self.projection(rows).chunk(3, -1)
        query, key, value = (torch.cat(part.chunk(HEADS, -1), 0) for part in parts)  # (heads · batch, n, size)
        probabilities = torch.bmm(query, key.mT).softmax(-1)
        self.note(lambda: probabilities.unflatten(0, (HEADS, BATCH)).transpose(0, 1))
        return torch.cat(torch.bmm(probabilities, value).chunk(HEADS, 0), -1)


@row("heads split off and stacked in front")
class InFront(Shaped):
    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = (torch.stack(part.chunk(HEADS, -1)) for part in self.projection(rows).chunk(3, -1))
        probabilities = (query @ key.mT).softmax(-1)  # (heads, batch, n, n)
        self.note(lambda: probabilities.transpose(0, 1))
        return torch.cat((probabilities @ value).unbind(), -1)


@row("a linear layer for each head, stacked in front")
class LinearForEachHead(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(SIZE, 3 * 5) for _ in range(HEADS))

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = torch.stack([head(rows) for head in self.heads]).chunk(3, -1)
        probabilities = (query @ key.mT).softmax(-1)
        self.note(lambda: probabilities.transpose(0, 1))
        return torch.cat((probabilities @ value).unbind(), -1)


@row("Set Transformer, with induced points")
class Induced(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(1, 4, SIZE))

    def attend(self, rows: Tensor, source: Tensor) -> Tensor:
        query = self.projection(rows).chunk(3, -1)[0]
        parts = (query, *self.projection(source).chunk(3, -1)[1:])
        query, key, value = (torch.cat(part.split(5, 2), 0) for part in parts)
        probabilities = (query @ key.mT * SIZE**-0.5).softmax(2)
        self.note(lambda: probabilities.unflatten(0, (HEADS, BATCH)).transpose(0, 1))
        return torch.cat((query + probabilities @ value).split(BATCH, 0), 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.attend(rows, self.attend(self.points.repeat(BATCH, 1, 1), rows))


@row("sink: a column in front, dropout, then cut off")
class SinkInFront(Written):
    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(HEADS))

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = self.split(rows)
        column = self.sink.view(1, HEADS, 1, 1).expand(BATCH, -1, N, -1)
        probabilities = torch.cat([column, query @ key.mT], -1).softmax(-1)
        self.note(lambda: probabilities[..., 1:])
        kept = functional.dropout(probabilities, 0.3, training=True)[..., 1:]
        return (kept @ value).transpose(1, 2).flatten(2)


class Cache(nn.Module):
    """Keys and values in buffers that are written into."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(BATCH, HEADS, N, 5))


@row("keys and values in buffers, token by token")
class Buffers(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()

    def forward(self, rows: Tensor) -> Tensor:
        outputs = []
        for place in range(N):
            query, key, value = (part.transpose(1, 2) for part in self.project(rows[:, place : place + 1]))
            keys, values = (old.detach().clone() for old in (self.cache.keys, self.cache.values))
            keys[:, :, place : place + 1], values[:, :, place : place + 1] = key, value
            with torch.no_grad():  # what the next step finds there
                self.cache.keys[:, :, [place]], self.cache.values[:, :, [place]] = key, value
            if not torch.is_grad_enabled():
                keys, values = self.cache.keys, self.cache.values
            scores = (query @ keys.mT).masked_fill(torch.arange(N) > place, -torch.inf)
            probabilities = scores.softmax(-1)
            if self.noted is not None:
                self.noted.append(probabilities)
            outputs.append((probabilities @ values).transpose(1, 2).flatten(2))
        return torch.cat(outputs, 1)


@row("keys and values that an attribute has kept")
class Kept(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = torch.randn(BATCH, HEADS, 11, 5), torch.randn(BATCH, HEADS, 11, 5)

    def forward(self, rows: Tensor) -> Tensor:
        query = self.project(rows)[0].transpose(1, 2)
        probabilities = (query @ self.keys.mT).softmax(-1)
        self.note(lambda: probabilities)
        return (probabilities @ self.values).transpose(1, 2).flatten(2)


@row("projections in int8, heads first")
class Quantised(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("numbers", (self.projection.weight.detach() * 500).round().to(torch.int8))
        self.scale = nn.Parameter(torch.full((3 * SIZE, 1), 0.002))

    def forward(self, rows: Tensor) -> Tensor:
        projected = (rows @ (self.numbers.float() * self.scale).T).unflatten(-1, (3, HEADS, -1))
        query, key, value = projected.permute(2, 3, 0, 1, 4)  # (heads, batch, n, size)
        probabilities = (query @ key.mT * 4).softmax(-1)
        self.note(lambda: probabilities.transpose(0, 1))
        return (probabilities @ value).permute(1, 2, 0, 3).flatten(2)


@row("inference mode, rows that are not contiguous")
class Inference(Shaped):
    def forward(self, rows: Tensor) -> Tensor:
        with torch.inference_mode(not torch.is_grad_enabled()):
            query, key, value = self.project(rows.transpose(0, 1))  # (n, batch, heads, size)
            probabilities = torch.einsum("nbhd,mbhd->hnbm", query, key).softmax(-1)
            self.note(lambda: probabilities.permute(2, 0, 1, 3).clone())
            return torch.einsum("hnbm,mbhd->bnhd", probabilities, value).flatten(2)


# ------------------------------------------------------------------------------------------------- scores that are bent


@row("logits that are soft-capped")
class Capped(Written):
    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        return (5 * torch.tanh(scores / 5)).masked_fill(torch.ones(N, N).triu(1).bool(), -1e9).softmax(-1)


@row("the best two keys of each query")
class BestKeys(Written):
    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        return scores.where(scores >= scores.topk(2, -1).values[..., -1:], -torch.inf).softmax(-1)


@row("sigmoids, divided by their sum")
class Sigmoids(Written):
    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        shares = scores.sigmoid()
        return shares / shares.sum(-1, keepdim=True)


@row("ReLU, divided by the number of keys")
class Rectified(Written):
    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        return functional.relu(scores) / N


@row("heads mixed before the softmax")
class Mixed(Written):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(HEADS, HEADS))

    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        return torch.einsum("bhnm,hg->bgnm", scores, self.mix).softmax(-1)


@row("a bias of pairs, as AlphaFold's")
class Pairs(Written):
    def __init__(self) -> None:
        super().__init__()
        self.pairs = nn.Linear(SIZE, HEADS)

    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        return (scores + self.pairs(rows[:, :, None] * rows[:, None]).permute(0, 3, 1, 2)).softmax(-1)


@row("a relative shift, as Transformer-XL's")
class Shifted(Written):
    def __init__(self) -> None:
        super().__init__()
        self.distances = nn.Parameter(torch.randn(HEADS, 5, 2 * N - 1))

    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        far = self.split(rows)[0] @ self.distances  # (batch, heads, n, 2n − 1)
        shifted = functional.pad(far, (1, 0)).view(BATCH, HEADS, 2 * N, N)[:, :, 1:].reshape(far.shape)
        return (scores + shifted[..., :N]).softmax(-1)


@row("the difference of two softmaxes", "reported")
class Difference(Written):
    def weights(self, scores: Tensor, rows: Tensor) -> Tensor:
        query, key, _ = self.split(rows.flip(-1))
        return scores.softmax(-1) - 0.4 * (query @ key.mT).softmax(-1)


@row("a graph's edges, as GAT's")
class Graph(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.ends = nn.Linear(5, 2)

    def forward(self, rows: Tensor) -> Tensor:
        value = self.project(rows)[0].transpose(1, 2)
        start, end = self.ends(value).split(1, -1)
        edges = functional.leaky_relu(start + end.mT).masked_fill(torch.eye(N).roll(1, 0).bool(), -9e15)
        probabilities = edges.softmax(-1)
        self.note(lambda: probabilities)
        return (probabilities @ value).transpose(1, 2).flatten(2)


@row("a memory that is read twice, as in memory networks")
class Memory(Shaped):
    def forward(self, rows: Tensor) -> Tensor:
        _, keys, values = self.projection(rows[:, 1:]).chunk(3, -1)
        state = rows[:, 0]
        for _ in range(2):
            probabilities = (keys * state[:, None]).sum(-1).softmax(-1)  # (batch, m)
            if self.noted is not None:
                self.noted.append(probabilities[:, None, None])
            state = state + (probabilities[..., None] * values).sum(1)
        return state


# ----------------------------------------------------------------------------------------------------- no attention


class Nothing(Shaped):
    kind = "no attention"


@row("an MLP-mixer", "not attention")
class Mixer(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.back = nn.Linear(N, 11), nn.Linear(11, N)

    def forward(self, rows: Tensor) -> Tensor:
        return self.projection(rows + self.back(functional.gelu(self.rows(rows.mT))).mT)


@row("distances to a codebook", "not attention")
class Distances(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(9, SIZE)

    def forward(self, rows: Tensor) -> Tensor:
        distances = torch.cdist(rows, self.codes.weight.expand(BATCH, -1, -1))
        return (-distances).softmax(-1) @ self.codes.weight


@row("a contrastive loss", "not attention")
class Contrastive(Nothing):
    def forward(self, rows: Tensor) -> Tensor:
        one, other, _ = functional.normalize(self.projection(rows[:, 0]).unflatten(-1, (3, -1)), dim=-1).unbind(1)
        return functional.cross_entropy(one @ other.T, torch.arange(BATCH))

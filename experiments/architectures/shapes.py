"""Attention over windows, pools, channels and chunks; and what looks like attention and is none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.architectures.campaign import Architecture, Layer, Subject
from experiments.architectures.library import numbers

KIND = "written by hand"
SIZE, HEADS = 15, 3
ROWS: list[Architecture] = []


class Shaped(nn.Module):
    """A module that notes the weights of every call as (batch, heads, n, m), when it is asked to."""

    kind = KIND
    inputs = (2, 7, SIZE)

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(SIZE, 3 * SIZE)
        self.noted: list[Tensor] | None = None

    def note(self, weights: Callable[[], Tensor]) -> None:
        """Keep weights, which are not even computed while a capture watches."""
        if self.noted is not None:
            self.noted.append(weights())

    def project(self, rows: Tensor) -> list[Tensor]:
        """Queries, keys and values, (…, n, heads, size)."""
        return [2 * part.unflatten(-1, (HEADS, -1)) for part in self.projection(rows).chunk(3, -1)]


def row(name: str, expected: str = "right", rows: list[Architecture] = ROWS) -> Callable[[type[Shaped]], type[Shaped]]:
    """A row of the table, of a class. What it notes is the oracle."""

    def subjects(kind: type[Shaped]) -> dict[str, Subject]:
        torch.manual_seed(7)
        model, inputs = kind().eval(), numbers(*kind.inputs)
        model.noted = []
        with torch.no_grad():
            model(inputs)
        layers, model.noted = [Layer("", weights) for weights in model.noted], None
        return {"": Subject(model, lambda: model(inputs), layers)}

    def add(kind: type[Shaped]) -> type[Shaped]:
        rows.append(Architecture(name, kind.kind, lambda: subjects(kind), expected))
        return kind

    return add


@row("windows of an image, as Swin's")
class Windows(Shaped):
    inputs = (2, 6, 4, SIZE)

    def forward(self, image: Tensor) -> Tensor:
        windows = image.unflatten(1, (3, 2)).unflatten(3, (2, 2)).transpose(2, 3).flatten(3, 4)  # (2, 3, 2, 4, SIZE)
        query, key, value = (part.flatten(0, 2).transpose(1, 2) for part in self.project(windows))
        probabilities = (query @ key.mT * 5**-0.5).softmax(-1)  # (2 · 6, heads, 4, 4)
        self.note(lambda: probabilities)
        return (probabilities @ value).transpose(1, 2).flatten(-2)


@row("F.scaled_dot_product_attention, 5-D: batch, windows, heads, rows, size")
class FiveDimensions(Shaped):
    inputs = (2, 4, 7, SIZE)

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = (part.transpose(2, 3) for part in self.project(rows))  # (2, 4, heads, 7, 5)
        self.note(lambda: (query @ key.mT * 5**-0.5).softmax(-1).flatten(0, 1))
        return functional.scaled_dot_product_attention(query, key, value).transpose(2, 3).flatten(-2)


@row("softmax, 5-D: batch, windows, heads, rows, keys")
class FiveDimensionsWritten(Shaped):
    inputs = (2, 4, 7, SIZE)

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = (part.transpose(2, 3) for part in self.project(rows))
        probabilities = (query @ key.mT * 5**-0.5).softmax(-1)
        self.note(lambda: probabilities.flatten(0, 1))
        return (probabilities @ value).transpose(2, 3).flatten(-2)


@row("pooling by a learned query, fused")
class Pooled(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(HEADS, 1, 5))

    def forward(self, rows: Tensor) -> Tensor:
        _, key, value = (part.transpose(1, 2) for part in self.project(rows))
        query = self.query.expand(len(rows), -1, -1, -1)
        self.note(lambda: (query @ key.mT * 5**-0.5).softmax(-1))
        return functional.scaled_dot_product_attention(query, key, value).flatten(1)


@row("pooling: softmax of a linear layer over the rows")
class PooledByScores(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(SIZE, 1)

    def forward(self, rows: Tensor) -> Tensor:
        probabilities = (5 * self.score(rows)).softmax(1)  # (batch, n, 1)
        self.note(lambda: probabilities.mT[:, None])
        return (probabilities * rows).sum(1)


@row("pooling: einsum bn,bnd->bd")
class PooledByEinsum(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(SIZE, 1)

    def forward(self, rows: Tensor) -> Tensor:
        probabilities = (5 * self.score(rows))[..., 0].softmax(-1)  # (batch, n)
        self.note(lambda: probabilities[:, None, None])
        return torch.einsum("bn,bnd->bd", probabilities, rows)


@row("between channels, as XCiT's")
class Channels(Shaped):
    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = (part.permute(0, 2, 3, 1) for part in self.project(rows))  # (batch, heads, size, n)
        probabilities = (functional.normalize(query, dim=-1) @ functional.normalize(key, dim=-1).mT).softmax(-1)
        self.note(lambda: probabilities)
        return (probabilities @ value).permute(0, 3, 1, 2).flatten(-2)


@row("a non-local block of an image")
class NonLocal(Shaped):
    inputs = (2, SIZE, 3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv2d(SIZE, 5, 1) for _ in range(3))

    def forward(self, image: Tensor) -> Tensor:
        theta, phi, g = (part(image).flatten(2) for part in (self.theta, self.phi, self.g))  # (batch, 5, pixels)
        probabilities = torch.bmm(theta.mT, phi).softmax(-1)
        self.note(lambda: probabilities[:, None])
        return torch.bmm(g, probabilities.mT).unflatten(-1, (3, 4))


@row("rows in chunks")
class Chunks(Shaped):
    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = (part.transpose(1, 2) for part in self.project(rows))
        outputs = []
        for chunk in query.split(3, 2):
            probabilities = (chunk @ key.mT * 5**-0.5).softmax(-1)
            self.note(lambda weights=probabilities: weights)
            outputs.append(probabilities @ value)
        return torch.cat(outputs, 2).transpose(1, 2).flatten(-2)


@row("a recurrent decoder's attention, step by step")
class Recurrent(Shaped):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(SIZE, SIZE)

    def forward(self, rows: Tensor) -> Tensor:
        state = rows[:, 0]
        for _ in range(4):
            probabilities = torch.softmax(torch.einsum("bd,bnd->bn", 3 * state, rows) / SIZE**0.5, 1)  # (batch, n)
            self.note(lambda weights=probabilities: weights[:, None, None])
            state = self.cell(torch.bmm(probabilities[:, None], rows)[:, 0], state)
        return state


# ------------------------------------------------------------------------------------------------------- no attention


class Nothing(Shaped):
    """What must be neither captured nor reported."""

    kind = "no attention"


def nothing(name: str) -> Callable[[type[Shaped]], type[Shaped]]:
    return row(name, "not attention")


@nothing("a router of experts, the best two")
class Router(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(SIZE, 4), nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(4))

    def forward(self, rows: Tensor) -> Tensor:
        shares, chosen = self.router(rows).softmax(-1).topk(2, -1)
        outputs = torch.stack([expert(rows) for expert in self.experts], -2)  # (batch, n, experts, size)
        picked = outputs.gather(-2, chosen[..., None].expand(*chosen.shape, SIZE))
        return (shares[..., None] * picked).sum(-2)


@nothing("a router of experts, all of them")
class DenseRouter(Router):
    def forward(self, rows: Tensor) -> Tensor:
        outputs = torch.stack([expert(rows) for expert in self.experts], -2)
        return torch.einsum("bne,bned->bnd", self.router(rows).softmax(-1), outputs)


@nothing("a codebook, by a Gumbel softmax")
class Codebook(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.logits, self.codes = nn.Linear(SIZE, 13), nn.Parameter(torch.randn(13, 5))

    def forward(self, rows: Tensor) -> Tensor:
        return functional.gumbel_softmax(self.logits(rows), hard=True) @ self.codes


@nothing("a softmax over the classes of a segmentation")
class Segmentation(Nothing):
    inputs = (2, SIZE, 3, 4)

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(SIZE, 6, 1)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(image).softmax(1)


@nothing("a softmax over the classes of a segmentation, classes last")
class SegmentationLast(Segmentation):
    def forward(self, image: Tensor) -> Tensor:
        return self.head(image).permute(0, 2, 3, 1).softmax(-1)


@nothing("masks by class, as MaskFormer's")
class Masks(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.classes, self.masks = nn.Linear(SIZE, 6), nn.Linear(SIZE, 12)

    def forward(self, rows: Tensor) -> Tensor:
        masks = self.masks(rows).sigmoid().unflatten(-1, (3, 4))
        return torch.einsum("bqc,bqhw->bchw", self.classes(rows).softmax(-1), masks)


@nothing("a classifier's softmax")
class Classifier(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(SIZE, 6)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(rows.mean(1)).softmax(-1)


@nothing("a language model's loss")
class Loss(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(SIZE, 31)

    def forward(self, rows: Tensor) -> Tensor:
        return functional.cross_entropy(self.head(rows).flatten(0, 1), torch.arange(14))


@nothing("gates: a softmax over features, times features")
class Gates(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SIZE, SIZE)

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows * self.first(rows).softmax(-1)
        query, key, _ = self.project(rows)
        return query.transpose(1, 2).softmax(-1) * key.transpose(1, 2)


@nothing("squeeze and excite")
class Excite(Nothing):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(SIZE, SIZE)

    def forward(self, rows: Tensor) -> Tensor:
        return rows * self.gate(rows.mean(1, keepdim=True)).sigmoid()


@nothing("linear attention, which has no weights")
class Linear(Nothing):
    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = (part.transpose(1, 2) for part in self.project(rows))
        query, key = functional.elu(query) + 1, functional.elu(key) + 1
        return (query @ (key.mT @ value)) / (query @ key.sum(-2, keepdim=True).mT)

"""Wrong calls: each raises ValueError or TypeError that names the argument, what was expected and what came.

A row of a table is the exception, the argument with which the message starts, what it says was expected, what it says
came, and the call: a right one with one thing wrong. What the message says is checked for the sizes that `Call` has by
default, the rest also for random sizes, dtypes, scores and masks. Rows about masks are in bad_masks.py.
"""

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from regard.attention import (
    Additive,
    Bilinear,
    Cosine,
    Dot,
    Kernel,
    Mask,
    Score,
    Separable,
    attend,
    average_pool,
    bias,
    causal,
    drop,
    keep,
    lengths,
    masked_softmax,
    max_pool,
    segments,
    weights,
    window,
)
from tests.attention import bad_masks
from tests.attention.cases import RANDOM_SCORES, campaign
from tests.attention.meanings import DTYPES, Draw

INT, COMPLEX, META = torch.int64, torch.complex64, "meta"
NAN, INF = float("nan"), float("inf")


@dataclass
class Call:
    """A right call: query (b, h, n, d), key (b, h, m, d), value (b, h, m, v). No two sizes fit each other."""

    b: int = 3
    h: int = 2
    n: int = 5
    m: int = 7
    d: int = 4
    v: int = 6
    dtype: torch.dtype = torch.float32
    score: nn.Module | None = None
    mask: Mask | None = None

    def __post_init__(self) -> None:
        self.query, self.key = self.t(self.b, self.h, self.n, self.d), self.t(self.b, self.h, self.m, self.d)
        self.value = self.t(self.b, self.h, self.m, self.v)

    def t(self, *shape: int, dtype: torch.dtype | None = None, device: str = "cpu") -> Tensor:
        return torch.zeros(shape, dtype=dtype or self.dtype, device=device)

    def yes(self, *shape: int, device: str = "cpu") -> Tensor:
        return torch.ones(shape, dtype=torch.bool, device=device)

    def attend(self, **changes):
        right = {"query": self.query, "key": self.key, "value": self.value, "score": self.score, "mask": self.mask}
        return attend(**right | changes)

    def attend_heads(self, query: int, key: int, value: int, **options):
        """With these numbers of heads."""
        sizes = ((query, self.n, self.d), (key, self.m, self.d), (value, self.m, self.v))
        return attend(*(self.t(self.b, *size) for size in sizes), **options)

    def weights(self, **options):
        return weights(self.query, self.key, **options)

    @property
    def other(self) -> torch.dtype:
        return torch.float64 if self.dtype != torch.float64 else torch.float32


class Returns(nn.Module):
    """A score that gives back what it was made with."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result

    def forward(self, query: Tensor, key: Tensor) -> object:
        return self.result


Row = tuple[type[Exception], str, str, str, Callable[[Call], object]]

# ------------------------------------------------------------------------------------------------------------- tensors


def nested(rows: Tensor, layout: torch.layout) -> Tensor:
    """Sequences of different lengths, as PyTorch puts them into one tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype
        return torch.nested.nested_tensor([rows[0], rows[0, :, 1:]], layout=layout)


# What is wrong with any one of the three.
TENSORS: list[Row] = [
    (kind, name, expected, came, lambda c, name=name, wrong=wrong: c.attend(**{name: wrong(getattr(c, name))}))
    for name in ("query", "key", "value")
    for kind, expected, came, wrong in (
        (TypeError, "torch.Tensor", "list", lambda rows: rows.tolist()),
        (TypeError, "torch.Tensor", "tuple", lambda rows: (1.0,)),
        (TypeError, "torch.Tensor", "NoneType", lambda rows: None),
        (TypeError, "torch.Tensor", "numpy.ndarray; torch.from_numpy", lambda rows: rows.double().numpy()),
        (TypeError, "dense", "nested", lambda rows: nested(rows, torch.strided)),
        (TypeError, "to_padded_tensor", "nested", lambda rows: nested(rows, torch.jagged)),
        (TypeError, "floating", "int64", lambda rows: rows.long()),
        (TypeError, "floating", "bool", lambda rows: rows > 0),
        (TypeError, "floating", "complex64", lambda rows: rows.to(COMPLEX)),
        (TypeError, "floating", "float8", lambda rows: rows.to(torch.float8_e4m3fn)),
        (TypeError, "dense", "sparse", lambda rows: rows.to_sparse()),
        (ValueError, "two dimensions", "()", lambda rows: rows[0, 0, 0, 0]),
        (ValueError, "two dimensions", ",)", lambda rows: rows[0, 0, 0]),
    )
]
# Shapes that do not fit the other two. Where the query is wrong, the key is the first that does not fit it.
TENSORS += [
    (ValueError, named, "", "", lambda c, name=name, wrong=wrong: c.attend(**{name: wrong(getattr(c, name))}))
    for name, named in (("query", "key"), ("key", "key"), ("value", "value"))
    for wrong in (
        lambda rows: torch.cat([rows, rows[:, :1]], 1),  # a head too many
        lambda rows: torch.cat([rows, rows[:1]], 0),  # a longer batch
        lambda rows: rows[:0],  # no batch
        lambda rows: rows[:, 0],  # a dimension dropped
        lambda rows: rows.expand(rows.shape[0], *rows.shape).transpose(0, 2),  # a dimension too many
    )
]
TENSORS += [
    (TypeError, "key", "float64", "float32", lambda c: c.attend(query=c.query.to(c.other))),
    (TypeError, "key", "float32", "float64", lambda c: c.attend(key=c.key.to(c.other))),
    (TypeError, "value", "float32", "float64", lambda c: c.attend(value=c.value.to(c.other))),
    (ValueError, "key", "meta", "cpu", lambda c: c.attend(query=c.query.to(META))),
    (ValueError, "key", "cpu", "meta", lambda c: c.attend(key=c.key.to(META))),
    (ValueError, "value", "cpu", "meta", lambda c: c.attend(value=c.value.to(META))),
    (ValueError, "key", "4", "(3, 2, 7, 5)", lambda c: c.attend(key=c.t(c.b, c.h, c.m, c.d + 1), mask=None)),
    (ValueError, "key", "(3, 2)", "(4, 2)", lambda c: c.attend(key=c.t(c.b + 1, c.h, c.m, c.d))),
    (ValueError, "key", "(3, 2)", "(3, 5, 2)", lambda c: c.attend(key=c.t(c.b, c.n, c.h, c.m, c.d))),
    (ValueError, "key", "6", "(3, 4, 7, 4)", lambda c: c.attend_heads(6, 4, 4)),
    (ValueError, "key", "2", "(3, 4, 7, 4)", lambda c: c.attend(key=c.t(c.b, 2 * c.h, c.m, c.d))),
    (ValueError, "key", "2", "(3, 0, 7, 4)", lambda c: c.attend(key=c.t(c.b, 0, c.m, c.d))),
    (ValueError, "value", "7", "(3, 2, 6, 6)", lambda c: c.attend(value=c.t(c.b, c.h, c.m - 1, c.v))),
    (ValueError, "value", "7", "(3, 2, 8, 6)", lambda c: c.attend(value=c.t(c.b, c.h, c.m + 1, c.v))),
    (ValueError, "value", "7", "(3, 2, 1, 6)", lambda c: c.attend(value=c.t(c.b, c.h, 1, c.v))),
    (ValueError, "value", "7", "(3, 2, 6, 7)", lambda c: c.attend(value=c.value.mT)),
    (ValueError, "value", "(3, 2)", "(4, 2)", lambda c: c.attend(value=c.t(c.b + 1, c.h, c.m, c.v))),
    (ValueError, "value", "5", "(3, 2, 7, 6)", lambda c: c.attend(query=c.key, key=c.query)),
    (ValueError, "value", "2", "3", lambda c: c.attend_heads(6, 2, 3)),
    (ValueError, "value", "6", "(3, 4, 7, 6)", lambda c: c.attend_heads(6, 6, 4)),
    # where key and value have one shape, attend has a shortcut
    (TypeError, "key", "dense", "sparse", lambda c: attend(c.query, c.key.to_sparse(), c.key)),
    (TypeError, "value", "dense", "sparse", lambda c: attend(c.query, c.key, c.key.to_sparse())),
    (TypeError, "need_weights", "True or False", "str", lambda c: c.attend(need_weights="yes")),
    (TypeError, "need_weights", "True or False", "NoneType", lambda c: c.attend(need_weights=None)),
]
TENSORS += [
    (kind, "dropout", expected, came, lambda c, dropout=dropout: c.attend(dropout=dropout))
    for kind, expected, came, dropout in (
        (ValueError, "from 0", "-0.1", -0.1),
        (ValueError, "1", "1", 1),
        (ValueError, "1", "1.5", 1.5),
        (ValueError, "from 0", "nan", NAN),
        (ValueError, "from 0", "inf", INF),
        (TypeError, "number", "str", "0.1"),
        (TypeError, "number", "NoneType", None),
        (TypeError, "number", "bool", True),
        (TypeError, "number", "Tensor", torch.tensor(0.1)),
    )
]

# -------------------------------------------------------------------------------------------------------------- scores


def scored(kind: type[Exception], argument: str, expected: str, came: str, score: Callable, more: int = 0) -> Row:
    """attend with this score, and with keys that are `more` wider."""
    return kind, argument, expected, came, lambda c: c.attend(score=score(c), key=c.t(c.b, c.h, c.m, c.d + more))


def additive(c: Call, *sizes: int) -> Additive:
    return Additive(*sizes).to(c.dtype)


def bilinear(c: Call, *sizes: int) -> Bilinear:
    return Bilinear(*sizes).to(c.dtype)


def unprojected(c: Call, score: Score) -> None:
    """The keys themselves, where those that the score made of them should be."""
    c.attend(key=score.project_key(c.key), score=score.projected)
    c.attend(score=score.projected)


SCORES: list[Row] = [
    scored(TypeError, "score", "nn.Module", "type", lambda c: Dot),
    scored(TypeError, "score", "nn.Module", "str", lambda c: "dot"),
    scored(TypeError, "score", "nn.Module", "function", lambda c: lambda query, key: query @ key.mT),
    scored(TypeError, "score", "nn.Module", "Tensor", lambda c: c.t(5, 7)),
    scored(ValueError, "score", "(3, 2, 5, 7)", "(5, 6)", lambda c: Returns(c.t(5, 6))),
    scored(ValueError, "score", "(3, 2, 5, 7)", "(5, 7)", lambda c: Returns(c.t(5, 7))),
    scored(ValueError, "score", "(3, 2, 5, 7)", "NoneType", lambda c: Returns(None)),
    scored(
        ValueError, "score", "Returns to map query (3, 2, 5, 4) and key (3, 2, 7, 4)", "()", lambda c: Returns(c.t())
    ),
    scored(TypeError, "score", "Linear to map query", "2 positional arguments", lambda c: nn.Linear(c.d, c.d)),
    scored(ValueError, "key", "4", "(3, 2, 7, 5)", lambda c: Dot(), 1),
    scored(ValueError, "key", "4", "(3, 2, 7, 5)", lambda c: Cosine(), 1),
    scored(ValueError, "key", "4", "(3, 2, 7, 5)", lambda c: Kernel(), 1),
    scored(ValueError, "query", "5", "(3, 2, 5, 4)", lambda c: Kernel(width=[1.0] * (c.d + 1))),
    scored(ValueError, "query", "5", "(3, 2, 5, 4)", lambda c: bilinear(c, c.d + 1, c.d)),
    scored(ValueError, "key", "5", "(3, 2, 7, 4)", lambda c: bilinear(c, c.d, c.d + 1)),
    scored(ValueError, "query", "5", "(3, 2, 5, 4)", lambda c: additive(c, c.d + 1, c.d, 3)),
    scored(ValueError, "key", "5", "(3, 2, 7, 4)", lambda c: additive(c, c.d, c.d + 1, 3)),
    scored(TypeError, "query", "float64", "float32", lambda c: Bilinear(c.d, c.d).to(c.other)),
    scored(TypeError, "query", "float64", "float32", lambda c: Additive(c.d, c.d, 3).to(c.other)),
    scored(ValueError, "query", "meta", "cpu", lambda c: bilinear(c, c.d, c.d).to(META)),
    scored(ValueError, "query", "meta", "cpu", lambda c: additive(c, c.d, c.d, 3).to(META)),
    # keys that are projected, or should be
    scored(ValueError, "query", "5", "(3, 2, 5, 4)", lambda c: additive(c, c.d + 1, c.d, c.d).projected),
    scored(ValueError, "key", "17", "(3, 2, 7, 4)", lambda c: additive(c, c.d, c.d, 17).projected),
    scored(ValueError, "query", "5", "(3, 2, 5, 4)", lambda c: bilinear(c, c.d + 1, c.d).projected),
    scored(ValueError, "key", "4", "(3, 2, 7, 5)", lambda c: bilinear(c, c.d, c.d + 1).projected, 1),
    scored(ValueError, "query", "1", "(3, 2, 5, 4)", lambda c: Kernel(width=[1.0]).projected),
    scored(TypeError, "query", "float64", "float32", lambda c: Additive(c.d, c.d, c.d).to(c.other).projected),
    *(
        (ValueError, "key", "went through project_key", "it was given", lambda c, make=make: unprojected(c, make(c)))
        for make in (
            lambda c: additive(c, c.d, c.d, c.d),
            lambda c: bilinear(c, c.d, c.d),
            lambda c: Cosine(),
            lambda c: Separable(),
        )
    ),
    (ValueError, "key", "4", "(7, 5)", lambda c: additive(c, c.d, c.d, 3).project_key(c.t(c.m, c.d + 1))),
    (ValueError, "key", "5", "(7, 4)", lambda c: bilinear(c, c.d, c.d + 1).project_key(c.t(c.m, c.d))),
    # scores by themselves
    (ValueError, "key", "4", "(7, 5)", lambda c: Dot()(c.t(c.n, c.d), c.t(c.m, c.d + 1))),
    (TypeError, "key", "float32", "float64", lambda c: Dot()(c.t(c.n, c.d), c.t(c.m, c.d, dtype=c.other))),
    (ValueError, "query", "two dimensions", "(4,)", lambda c: Dot()(c.t(c.d), c.t(c.m, c.d))),
    (TypeError, "query", "torch.Tensor", "list", lambda c: Dot()([[1.0]], c.t(c.m, c.d))),
    (ValueError, "key", "(3, 1)", "(4, 1)", lambda c: Dot()(c.t(c.b, 1, c.n, c.d), c.t(c.b + 1, 1, c.m, c.d))),
    (TypeError, "query", "floating", "int64", lambda c: Kernel()(c.t(c.n, c.d, dtype=INT), c.t(c.m, c.d))),
]


PARAMETERS: list[Row] = [
    (TypeError, "scale", "number", "str", lambda c: Dot(scale="1")),
    (TypeError, "scale", "number", "bool", lambda c: Dot(scale=True)),
    (TypeError, "scale", "number", "Tensor", lambda c: Dot(scale=torch.tensor(1.0))),
    (ValueError, "scale", "finite", "nan", lambda c: Dot(scale=NAN)),
    (ValueError, "scale", "finite", "inf", lambda c: Dot(scale=INF)),
    (ValueError, "softcap", "positive", "0", lambda c: Dot(softcap=0)),
    (ValueError, "softcap", "positive", "-2.0", lambda c: Dot(softcap=-2.0)),
    (ValueError, "softcap", "finite", "inf", lambda c: Dot(softcap=INF)),
    (TypeError, "softcap", "number", "str", lambda c: Dot(softcap="2")),
    (ValueError, "temperature", "positive", "0.0", lambda c: Cosine(0.0)),
    (ValueError, "temperature", "positive", "-1", lambda c: Cosine(-1)),
    (ValueError, "temperature", "finite", "nan", lambda c: Cosine(NAN)),
    (TypeError, "temperature", "number", "list", lambda c: Cosine([1.0])),
    (TypeError, "temperature", "number", "NoneType", lambda c: Cosine(None)),
    (ValueError, "name", "gaussian", "'gauss'", lambda c: Kernel("gauss")),
    (ValueError, "name", "gaussian", "None", lambda c: Kernel(None)),
    (ValueError, "name", "gaussian", "['gaussian']", lambda c: Kernel(["gaussian"])),
    (ValueError, "name", "gaussian", "2.0", lambda c: Kernel(2.0)),
    (ValueError, "width", "positive", "0", lambda c: Kernel(width=0)),
    (ValueError, "width", "positive", "-1.0", lambda c: Kernel(width=[1.0, -1.0])),
    (ValueError, "width", "positive", "-2.0", lambda c: Kernel(width=torch.full((999,), -2.0))),
    (ValueError, "width", "finite", "nan", lambda c: Kernel(width=NAN)),
    (ValueError, "width", "finite", "inf", lambda c: Kernel(width=[1.0, INF])),
    (TypeError, "width", "number", "str", lambda c: Kernel(width="wide")),
    (TypeError, "width", "number", "NoneType", lambda c: Kernel(width=None)),
    (TypeError, "width", "number", "bool", lambda c: Kernel(width=True)),
    (TypeError, "width", "number", "complex", lambda c: Kernel(width=1 + 2j)),
    (ValueError, "width", "one per feature", "(0,)", lambda c: Kernel(width=[])),
    (ValueError, "width", "feature", "(2, 2)", lambda c: Kernel(width=torch.ones(2, 2))),
    (ValueError, "width", "number", "meta", lambda c: Kernel(width=torch.ones(3, device=META))),
]
PARAMETERS += [
    (kind, argument, expected, came, lambda c, make=make, size=size: make(size))
    for argument, make in (
        ("query_size", lambda size: Bilinear(size, 3)),
        ("key_size", lambda size: Bilinear(3, size)),
        ("query_size", lambda size: Additive(size, 3, 4)),
        ("key_size", lambda size: Additive(3, size, 4)),
        ("hidden_size", lambda size: Additive(3, 4, size)),
    )
    for kind, expected, came, size in (
        (ValueError, "1 to", "0", 0),
        (ValueError, "1 to", "-3", -3),
        (TypeError, "whole", "float", 3.0),
        (TypeError, "whole", "str", "4"),
        (TypeError, "whole", "bool", True),
    )
]

CHOICES: list[Row] = [
    (kind, "rows", expected, came, lambda c, rows=rows: c.weights(rows=rows(c)))
    for kind, expected, came, rows in (
        (ValueError, "4", "5", lambda c: [0, c.n]),
        (ValueError, "-5", "-6", lambda c: [-c.n - 1]),
        (TypeError, "whole", "float", lambda c: [1.0]),
        (TypeError, "whole", "bool", lambda c: c.yes(c.n)),
        (TypeError, "sequence", "int", lambda c: 2),
        (TypeError, "sequence", "int", lambda c: torch.tensor(2)),
        (TypeError, "whole", "list", lambda c: [[1, 2]]),
        (TypeError, "whole", "str", lambda c: "first"),
        (TypeError, "sequence", "set", lambda c: {1, 2}),
    )
]
CHOICES += [
    (ValueError, "rows", "", "0", lambda c: weights(c.t(3, 0, 4), c.t(3, 7, 4), rows=[0])),
    (ValueError, "heads", "1", "2", lambda c: c.weights(heads=[c.h])),
    (ValueError, "heads", "-2", "-3", lambda c: c.weights(heads=torch.tensor([-c.h - 1]))),
    (TypeError, "heads", "whole", "float", lambda c: c.weights(heads=torch.tensor([1.0]))),
    (TypeError, "heads", "sequence", "int", lambda c: c.weights(heads=1)),
    (ValueError, "heads", "heads", "(5, 4)", lambda c: weights(c.t(c.n, c.d), c.t(c.m, c.d), heads=[0])),
    (TypeError, "key", "float32", "float64", lambda c: weights(c.query, c.key.to(c.other))),
    (ValueError, "key", "4", "(3, 2, 7, 5)", lambda c: weights(c.query, c.t(c.b, c.h, c.m, c.d + 1))),
    (ValueError, "key", "cpu", "meta", lambda c: weights(c.query, c.key.to(META))),
    (TypeError, "score", "nn.Module", "str", lambda c: c.weights(score="dot")),
    (TypeError, "scores", "torch.Tensor", "list", lambda c: masked_softmax([[1.0]])),
    (TypeError, "scores", "floating", "int64", lambda c: masked_softmax(c.t(5, 7, dtype=INT))),
    (ValueError, "scores", "two dimensions", "(7,)", lambda c: masked_softmax(c.t(7))),
    (TypeError, "scores", "floating", "float8", lambda c: masked_softmax(c.t(5, 7).to(torch.float8_e5m2))),
    (TypeError, "scores", "dense", "sparse", lambda c: masked_softmax(c.t(5, 7).to_sparse())),
    *(
        (kind, "value", expected, came, lambda c, pool=pool, value=value: pool(value))
        for pool in (average_pool, max_pool)
        for kind, expected, came, value in (
            (TypeError, "torch.Tensor", "list", [[1.0]]),
            (TypeError, "floating", "int64", torch.zeros(7, 6, dtype=INT)),
            (ValueError, "two dimensions", "(7,)", torch.zeros(7)),
        )
    ),
]

ROWS = [*TENSORS, *bad_masks.ROWS, *SCORES, *PARAMETERS, *CHOICES]


def refusal(call: Call, row: Row) -> str:
    kind, argument, *_, wrong = row
    with pytest.raises((TypeError, ValueError)) as caught:
        wrong(call)
    message = str(caught.value)
    assert type(caught.value) is kind, message
    assert message.startswith(f"{argument}: "), message
    assert "\n" not in message, message
    return message


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[1]}-{row[3]}")
def test_a_wrong_call_is_refused(row):
    message = refusal(Call(), row)
    _, _, expected, came, _ = row
    assert expected in message, message
    assert came in message, message


@campaign(fast=500, whole=5_000)
def test_a_wrong_call_of_any_size_is_refused(seed):
    draw = Draw(seed)
    b, h, n, m, d, v = draw.random.sample([2, 3, 5, 7, 11, 13], 6)  # never equal, nor multiples
    dtype, score = draw.choice(DTYPES), draw.choice([name for name in RANDOM_SCORES if name != "custom"])
    masks = [None, lengths(draw.integers(0, m + 1, (b,))), keep(draw.booleans((b, h, n, m))), causal(align="end")]
    call = Call(b, h, n, m, d, v, dtype, RANDOM_SCORES[score](draw, d, d).to(dtype), draw.choice(masks))
    call.attend()
    refusal(call, ROWS[seed % len(ROWS)])


def test_the_call_itself_is_right():
    """So that every refusal above is for the one thing that its row says."""
    call = Call()
    allowed = torch.ones(2, 5, 7).bool()
    fine = [keep(allowed), drop(allowed[0]), bias(call.t(3, 1, 1, 7)), lengths([7, 0, 3]), causal(1), window(1, 1, 0)]
    fine.append(segments([5], [7]))
    for mask in (None, *fine, *(one & other for one, other in itertools.combinations(fine, 2))):
        assert call.attend(mask=mask).shape == (3, 2, 5, 6)


def test_options_are_given_by_name():
    call = Call()
    with pytest.raises(TypeError, match="positional"):
        attend(call.query, call.key, call.value, Dot())
    with pytest.raises(TypeError, match="unexpected keyword"):
        call.attend(is_causal=True)

"""Bad calls: a random right call, and one thing wrong with it, which has to be refused by name."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pytest
import torch
from torch import Tensor, nn

import regard
from regard import Additive, Bilinear, Cosine, Dot, Kernel, Score
from tests.faults import campaign
from tests.faults.cases import DTYPES, SCORES, Draw

PRIMES = [2, 3, 5, 7, 11, 13]  # sizes that are never equal or multiples: a wrong one cannot fit by chance


@dataclass
class Call:
    """A right call: query (b, h, n, d), key (b, h, m, d), value (b, h, m, dv), some score, some mask or none."""

    draw: Draw
    b: int
    h: int
    n: int
    m: int
    d: int
    dv: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.query, self.key, self.value = self.rows(self.n), self.rows(self.m), self.rows(self.m, self.dv)
        self.score: Score = SCORES[self.draw.choice(list(SCORES))](self.draw, self.d, self.d).to(self.dtype)
        masks = [None, regard.lengths(self.lengths()), regard.keep(self.shown()), regard.causal(align="end")]
        self.mask = self.draw.choice(masks)

    def rows(self, count: int, size: int | None = None) -> Tensor:
        return self.draw.normal(self.b, self.h, count, size or self.d).to(self.dtype)

    def lengths(self, *more: int) -> Tensor:
        return self.draw.integers(0, self.m + 1, (self.b, *more))

    def shown(self) -> Tensor:
        return self.draw.booleans((self.b, self.h, self.n, self.m), 0.5)

    def other_dtype(self) -> torch.dtype:
        return self.draw.choice([dtype for dtype in DTYPES if dtype != self.dtype])

    def attend(self, **changes: object) -> object:
        right = {"query": self.query, "key": self.key, "value": self.value, "score": self.score, "mask": self.mask}
        given = right | changes
        return regard.attend(given.pop("query"), given.pop("key"), given.pop("value"), **given)


class Flat(nn.Module):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query.sum(-1)


Bad = Callable[[Call], object]

# What is wrong with one of the three tensors.
TENSORS: dict[str, Callable[[Call, Tensor], object]] = {
    "a list": lambda call, rows: rows.tolist(),
    "an array": lambda call, rows: numpy.zeros(tuple(rows.shape)),
    "nothing": lambda call, rows: None,
    "whole numbers": lambda call, rows: rows.long(),
    "booleans": lambda call, rows: rows > 0,
    "complex numbers": lambda call, rows: torch.complex(rows.double(), rows.double()),
    "another dtype": lambda call, rows: rows.to(call.other_dtype()),
    "another device": lambda call, rows: rows.to("meta"),
    "no dimensions": lambda call, rows: rows[0, 0, 0, 0],
    "one dimension": lambda call, rows: rows[0, 0, 0],
    "a head too many": lambda call, rows: torch.cat([rows, rows[:, :1]], 1),
    "a batch too long": lambda call, rows: torch.cat([rows, rows[:1]], 0),
    "no batch at all": lambda call, rows: rows[:0],
    "a dimension dropped": lambda call, rows: rows[:, 0],
    "a dimension too many": lambda call, rows: rows.expand(call.b, *rows.shape).transpose(0, 2),
}


def tensor_mutations() -> dict[str, tuple[str, Bad]]:
    def bad(name: str, wrong: Callable[[Call, Tensor], object]) -> Bad:
        return lambda call: call.attend(**{name: wrong(call, getattr(call, name))})

    names = ("query", "key", "value")
    return {f"{name} is {what}": (name, bad(name, wrong)) for name in names for what, wrong in TENSORS.items()}


def mask_mutations(name: str, wrap: Callable[[Tensor], regard.Mask], right: Callable[[Call], Tensor]) -> dict:
    """What is wrong with a dense mask: keep, drop or bias."""
    wrong: dict[str, Callable[[Call, Tensor], Tensor]] = {
        "a list": lambda call, mask: mask.tolist(),
        "of whole numbers": lambda call, mask: mask.long(),
        "of the other kind": lambda call, mask: mask.float() if mask.dtype == torch.bool else mask > 0,
        "of keys alone": lambda call, mask: mask[0, 0, 0],
        "of too many rows": lambda call, mask: torch.cat([mask, mask[:, :, :1]], 2),
        "of too few keys": lambda call, mask: mask[..., :-1] if call.m > 2 else mask[..., :0],
        "transposed": lambda call, mask: mask.mT,
        "of (batch, m) as (n, m)": lambda call, mask: mask[:, 0, 0],
        "of too few heads": lambda call, mask: mask[:, :0],
        "of a longer batch": lambda call, mask: torch.cat([mask, mask]),
        "of too many dimensions": lambda call, mask: mask[None].expand(2, *mask.shape),
        "on another device": lambda call, mask: mask.to("meta"),
    }
    return {
        f"{name} is {what}": (name, lambda call, change=change: call.attend(mask=wrap(change(call, right(call)))))
        for what, change in wrong.items()
    }


MUTATIONS: dict[str, tuple[str, Bad]] = {
    **tensor_mutations(),
    **mask_mutations("keep", regard.keep, Call.shown),
    **mask_mutations("drop", regard.drop, Call.shown),
    **mask_mutations("bias", regard.bias, lambda call: call.shown().to(call.dtype)),
    # sizes that do not fit together
    "query of another size": ("query", lambda call: call.attend(query=call.query[..., :-1])),
    "key of another size": ("key", lambda call: call.attend(key=call.rows(call.m, call.d + 1))),
    "a value too few": ("value", lambda call: call.attend(value=call.value[..., :-1, :])),
    "a value too many": ("value", lambda call: call.attend(value=call.rows(call.m + 1, call.dv))),
    "one value for all keys": ("value", lambda call: call.attend(value=call.value[..., :1, :])),
    "a key too few": ("key", lambda call: call.attend(key=call.key[..., :-1, :], mask=None)),
    # masks
    "a bare boolean mask": ("mask", lambda call: call.attend(mask=call.shown())),
    "a bare float mask": ("mask", lambda call: call.attend(mask=call.shown().to(call.dtype))),
    "bare lengths": ("mask", lambda call: call.attend(mask=call.lengths())),
    "a mask by name": ("mask", lambda call: call.attend(mask="causal")),
    "a mask not called": ("mask", lambda call: call.attend(mask=regard.causal)),
    "a tensor joined by &": ("&", lambda call: call.attend(mask=regard.causal(0) & call.shown())),
    "a tensor joined by |": ("|", lambda call: call.attend(mask=regard.keep(call.shown()) | call.shown())),
    "a bias joined by |": ("bias", lambda call: regard.causal(0) | regard.bias(call.shown().double())),
    "masks joined by and": ("mask", lambda call: call.attend(mask=regard.causal(0) and regard.keep(call.shown()))),
    "negative lengths": ("lengths", lambda call: call.attend(mask=regard.lengths(call.lengths() - call.m - 1))),
    "too long lengths": ("lengths", lambda call: call.attend(mask=regard.lengths(call.lengths() + call.m + 1))),
    "lengths in floats": ("lengths", lambda call: call.attend(mask=regard.lengths(call.lengths().float()))),
    "lengths in booleans": ("lengths", lambda call: call.attend(mask=regard.lengths(call.lengths() > 0))),
    "lengths in words": ("lengths", lambda call: call.attend(mask=regard.lengths(["two"] * call.b))),
    "lengths of a ragged list": ("lengths", lambda call: call.attend(mask=regard.lengths([[1], [1, 2]]))),
    "one length": ("lengths", lambda call: call.attend(mask=regard.lengths(torch.tensor(1)))),
    "a length too many": ("lengths", lambda call: call.attend(mask=regard.lengths([0] * (call.b + 1)))),
    "no lengths": ("lengths", lambda call: call.attend(mask=regard.lengths(torch.zeros(0, dtype=torch.long)))),
    "lengths by key": ("lengths", lambda call: call.attend(mask=regard.lengths(call.lengths(call.m)))),
    "lengths by head and row": ("lengths", lambda call: call.attend(mask=regard.lengths(call.lengths(call.h, call.n)))),
    "lengths without a batch": (
        "lengths",
        lambda call: regard.attend(call.query[0, 0], call.key[0, 0], call.value[0, 0], mask=regard.lengths([1])),
    ),
    "causal, but how": ("causal", lambda call: call.attend(mask=regard.causal())),
    "causal by a float": ("causal", lambda call: call.attend(mask=regard.causal(offset=0.5))),
    "causal by a tensor": ("causal", lambda call: call.attend(mask=regard.causal(offset=call.lengths()))),
    "causal from the middle": ("causal", lambda call: call.attend(mask=regard.causal(align="middle"))),
    "causal twice": ("causal", lambda call: call.attend(mask=regard.causal(offset=0, align="end"))),
    "a window, but where": ("window", lambda call: call.attend(mask=regard.window(1, 1))),
    "a negative window": ("window", lambda call: call.attend(mask=regard.window(-1, 2, align="end"))),
    "a window of half a key": ("window", lambda call: call.attend(mask=regard.window(0, 0.5, align="end"))),
    # scores
    "a score by name": ("score", lambda call: call.attend(score="dot")),
    "a score not made": ("score", lambda call: call.attend(score=Dot)),
    "a score that is a function": ("score", lambda call: call.attend(score=lambda query, key: query @ key.mT)),
    "a score of the wrong shape": ("score", lambda call: call.attend(score=Flat())),
    "a score in another dtype": (
        "score",
        lambda call: call.attend(score=Bilinear(call.d, call.d).to(call.other_dtype())),
    ),
    "a score on another device": (
        "score",
        lambda call: call.attend(score=Additive(call.d, call.d, 3).to(call.dtype).to("meta")),
    ),
    "a score for other queries": (
        "query",
        lambda call: call.attend(score=Additive(call.d + 1, call.d, 3).to(call.dtype)),
    ),
    "a score for other keys": ("key", lambda call: call.attend(score=Bilinear(call.d, call.d + 1).to(call.dtype))),
    "a width too many": ("width", lambda call: call.attend(score=Kernel(width=[1.0] * (call.d + 1)))),
    "a negative width": ("width", lambda call: Kernel(width=-1.0)),
    "a width of 0": ("width", lambda call: Kernel(width=[1.0, 0.0])),
    "no width": ("width", lambda call: Kernel(width=[])),
    "a width in words": ("width", lambda call: Kernel(width="wide")),
    "an unknown kernel": ("name", lambda call: Kernel("gauss")),
    "an infinite scale": ("scale", lambda call: Dot(scale=float("inf"))),
    "a scale in words": ("scale", lambda call: Dot(scale="large")),
    "a softcap of 0": ("softcap", lambda call: Dot(softcap=0.0)),
    "a negative temperature": ("temperature", lambda call: Cosine(-1.0)),
    "a temperature that is not a number": ("temperature", lambda call: Cosine(float("nan"))),
    "a size of 0": ("query_size", lambda call: Bilinear(0, call.d)),
    "a negative size": ("hidden_size", lambda call: Additive(call.d, call.d, -call.d)),
    "a size of a half": ("key_size", lambda call: Additive(call.d, 0.5, call.d)),
    # the rest
    "negative dropout": ("dropout", lambda call: call.attend(dropout=-0.1)),
    "total dropout": ("dropout", lambda call: call.attend(dropout=1.0)),
    "dropout that is not a number": ("dropout", lambda call: call.attend(dropout=float("nan"))),
    "dropout in words": ("dropout", lambda call: call.attend(dropout="0.1")),
    "dropout yes": ("dropout", lambda call: call.attend(dropout=True)),
    "a row too far": ("rows", lambda call: regard.weights(call.query, call.key, rows=[0, call.n])),
    "half a row": ("rows", lambda call: regard.weights(call.query, call.key, rows=[0.5])),
    "a head too far": ("heads", lambda call: regard.weights(call.query, call.key, heads=torch.tensor([-call.h - 1]))),
    "heads of nothing": ("heads", lambda call: regard.weights(call.query[0, 0], call.key[0, 0], heads=[0])),
    "scores in a list": ("scores", lambda call: regard.masked_softmax([0.0, 1.0])),
    "scores of one dimension": ("scores", lambda call: regard.masked_softmax(call.query[0, 0, 0])),
    "scores in whole numbers": ("scores", lambda call: regard.masked_softmax(call.query.long())),
    "a mask for other scores": ("keep", lambda call: regard.masked_softmax(call.query, regard.keep(call.shown()))),
    "a pool of one dimension": ("value", lambda call: regard.average_pool(call.value[0, 0, 0])),
    "a pool with a bare mask": ("mask", lambda call: regard.max_pool(call.value, call.shown())),
    "a maximum with a bias": ("mask", lambda call: regard.max_pool(call.value, regard.bias(torch.zeros(1, call.m)))),
}


def check_bad_call(seed: int) -> None:
    """The right call runs; the wrong one raises ValueError or TypeError, and the message has the argument's name."""
    draw = Draw(seed)
    call = Call(draw, *draw.random.sample(PRIMES, 6), dtype=draw.choice(DTYPES))
    call.attend()
    wrong, (name, bad) = list(MUTATIONS.items())[seed % len(MUTATIONS)]
    try:
        bad(call)
    except (ValueError, TypeError) as error:
        refusal = str(error)
    else:
        raise AssertionError(f"{wrong}: {name} was not refused")
    assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", refusal), f"{wrong}: {name} is not named by {refusal!r}"


def test_bad_calls():
    campaign.run(check_bad_call, range(500))


@pytest.mark.faults
def test_bad_calls_whole():
    campaign.run(check_bad_call, range(5_000))

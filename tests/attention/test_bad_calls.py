"""Wrong calls: each raises ValueError or TypeError, names the argument, what was expected, what came (FAULTS 5).

A row is the call, the exception, how the message starts (the argument's name), and what else it has to say.
"""

import itertools

import pytest
import torch

from regard.attention import (
    Additive,
    Bilinear,
    Cosine,
    Dot,
    Kernel,
    attend,
    average_pool,
    bias,
    causal,
    drop,
    keep,
    lengths,
    masked_softmax,
    max_pool,
    weights,
    window,
)
from tests.attention.wrong_calls import COMPLEX, INT, KEY, QUERY, VALUE, Wrong, ask, t, yes
from tests.attention.wrong_masks import BANDS, BARE, DENSE, JOINS, LENGTHS

TENSORS = {
    "query is a list": (ask(query=[[1.0, 2.0]]), TypeError, "query", "torch.Tensor", "list"),
    "query is None": (ask(query=None), TypeError, "query", "torch.Tensor", "NoneType"),
    "query is an array": (ask(query=QUERY.numpy()), TypeError, "query", "torch.Tensor", "ndarray"),
    "query of integers": (ask(query=t(3, 2, 5, 4, dtype=INT)), TypeError, "query", "floating", "int64"),
    "query of booleans": (ask(query=yes(3, 2, 5, 4)), TypeError, "query", "floating", "bool"),
    "query of complex numbers": (ask(query=t(3, 2, 5, 4, dtype=COMPLEX)), TypeError, "query", "floating", "complex64"),
    "query in 8 bits": (
        ask(query=QUERY.to(torch.float8_e4m3fn)),
        TypeError,
        "query",
        "floating",
        "float8",
    ),
    "query is sparse": (ask(query=t(5, 4).to_sparse()), TypeError, "query", "dense", "sparse"),
    "query of one dimension": (ask(query=t(4)), ValueError, "query", "two dimensions", "(4,)"),
    "query of no dimension": (ask(query=t()), ValueError, "query", "two dimensions", "()"),
    "key is a list": (ask(key=[[1.0]]), TypeError, "key", "torch.Tensor", "list"),
    "key is None": (ask(key=None), TypeError, "key", "torch.Tensor", "NoneType"),
    "key of integers": (ask(key=t(3, 2, 7, 4, dtype=INT)), TypeError, "key", "floating", "int64"),
    "key of one dimension": (ask(key=t(4)), ValueError, "key", "two dimensions", "(4,)"),
    "key in double": (ask(key=KEY.double()), TypeError, "key", "float32", "float64"),
    "key in half": (ask(key=KEY.half()), TypeError, "key", "float32", "float16"),
    "key on another device": (ask(key=t(3, 2, 7, 4, device="meta")), ValueError, "key", "cpu", "meta"),
    "key of another size": (ask(key=t(3, 2, 7, 3)), ValueError, "key", "4", "(3, 2, 7, 3)"),
    "key of another batch": (ask(key=t(4, 2, 7, 4)), ValueError, "key", "(3, 2)", "(4, 2)"),
    "key of a batch in between": (ask(key=t(3, 5, 2, 7, 4)), ValueError, "key", "(3, 2)", "(3, 5, 2)"),
    "key heads that do not divide": (
        ask(query=t(3, 6, 5, 4), key=t(3, 4, 7, 4), value=t(3, 4, 7, 6)),
        ValueError,
        "key",
        "6",
        "(3, 4, 7, 4)",
    ),
    "more key heads than query heads": (
        ask(key=t(3, 4, 7, 4), value=t(3, 4, 7, 6)),
        ValueError,
        "key",
        "2",
        "(3, 4, 7",
    ),
    "no key heads": (ask(key=t(3, 0, 7, 4), value=t(3, 0, 7, 6)), ValueError, "key", "2", "(3, 0, 7, 4)"),
    "value is a tuple": (ask(value=(1.0,)), TypeError, "value", "torch.Tensor", "tuple"),
    "value is None": (ask(value=None), TypeError, "value", "torch.Tensor", "NoneType"),
    "value of integers": (ask(value=t(3, 2, 7, 6, dtype=INT)), TypeError, "value", "floating", "int64"),
    "value of one dimension": (ask(value=t(7)), ValueError, "value", "two dimensions", "(7,)"),
    "value in double": (ask(value=VALUE.double()), TypeError, "value", "float32", "float64"),
    "value in bfloat16": (ask(value=VALUE.bfloat16()), TypeError, "value", "float32", "bfloat16"),
    "value on another device": (ask(value=t(3, 2, 7, 6, device="meta")), ValueError, "value", "cpu", "meta"),
    "fewer values than keys": (ask(value=t(3, 2, 6, 6)), ValueError, "value", "7", "(3, 2, 6, 6)"),
    "more values than keys": (ask(value=t(3, 2, 8, 6)), ValueError, "value", "7", "(3, 2, 8, 6)"),
    "one value for all keys": (ask(value=t(3, 2, 1, 6)), ValueError, "value", "7", "(3, 2, 1, 6)"),
    "value transposed": (ask(value=t(3, 2, 6, 7)), ValueError, "value", "7", "(3, 2, 6, 7)"),
    "value of another batch": (ask(value=t(2, 2, 7, 6)), ValueError, "value", "(3, 2)", "(2, 2)"),
    "value heads unlike key heads": (
        ask(query=t(3, 6, 5, 4), key=t(3, 2, 7, 4), value=t(3, 3, 7, 6)),
        ValueError,
        "value",
        "2",
        "3",
    ),
    "value heads that do not divide": (
        ask(query=t(3, 6, 5, 4), key=t(3, 6, 7, 4), value=t(3, 4, 7, 6)),
        ValueError,
        "value",
        "6",
        "(3, 4, 7, 6)",
    ),
    "all on a device without numbers": (
        ask(**{name: t(3, 5, 4, device="meta") for name in ("query", "key", "value")}),
        ValueError,
        "query",
        "holds numbers",
        "meta",
    ),
    "need_weights is a word": (ask(need_weights="yes"), TypeError, "need_weights", "True or False", "str"),
    "need_weights is None": (ask(need_weights=None), TypeError, "need_weights", "True or False", "NoneType"),
    "query and key swapped": (ask(query=KEY, key=QUERY), ValueError, "value", "5", "(3, 2, 7, 6)"),
}

DROPOUT = {
    f"dropout {number!r}": (ask(dropout=number), kind, "dropout", said, came)
    for number, kind, said, came in (
        (-0.1, ValueError, "from 0", "-0.1"),
        (1, ValueError, "1", "1"),
        (1.5, ValueError, "1", "1.5"),
        (float("nan"), ValueError, "from 0", "nan"),
        (float("inf"), ValueError, "from 0", "inf"),
        ("0.1", TypeError, "number", "str"),
        (None, TypeError, "number", "NoneType"),
        (True, TypeError, "number", "bool"),
        (torch.tensor(0.1), TypeError, "number", "Tensor"),
    )
}

SCORES = {
    "score is a class": (ask(score=Dot), TypeError, "score", "nn.Module", "type"),
    "score is a name": (ask(score="dot"), TypeError, "score", "nn.Module", "str"),
    "score is a function": (ask(score=lambda q, k: q @ k.mT), TypeError, "score", "nn.Module", "function"),
    "score is a tensor": (ask(score=t(5, 7)), TypeError, "score", "nn.Module", "Tensor"),
    "score of the wrong shape": (ask(score=Wrong(t(5, 6))), ValueError, "score", "(3, 2, 5, 7)", "(5, 6)"),
    "score without batch": (ask(score=Wrong(t(5, 7))), ValueError, "score", "(3, 2, 5, 7)", "(5, 7)"),
    "score of nothing": (ask(score=Wrong(None)), ValueError, "score", "(3, 2, 5, 7)", "NoneType"),
    "dot of different sizes": (ask(key=t(3, 2, 7, 5)), ValueError, "key", "4", "(3, 2, 7, 5)"),
    "cosine of different sizes": (ask(key=t(3, 2, 7, 5), score=Cosine()), ValueError, "key", "4", "(3, 2, 7, 5)"),
    "kernel of different sizes": (ask(key=t(3, 2, 7, 5), score=Kernel()), ValueError, "key", "4", "(3, 2, 7, 5)"),
    "kernel of other widths": (ask(score=Kernel(width=[1.0, 2.0])), ValueError, "query", "2", "(3, 2, 5, 4)"),
    "bilinear of another query": (ask(score=Bilinear(5, 4)), ValueError, "query", "5", "(3, 2, 5, 4)"),
    "bilinear of another key": (ask(score=Bilinear(4, 5)), ValueError, "key", "5", "(3, 2, 7, 4)"),
    "additive of another query": (ask(score=Additive(5, 4, 3)), ValueError, "query", "5", "(3, 2, 5, 4)"),
    "additive of another key": (ask(score=Additive(4, 5, 3)), ValueError, "key", "5", "(3, 2, 7, 4)"),
    "bilinear in double": (ask(score=Bilinear(4, 4).double()), TypeError, "query", "float64", "float32"),
    "additive in half": (ask(score=Additive(4, 4, 3).half()), TypeError, "query", "float16", "float32"),
    "additive on another device": (ask(score=Additive(4, 4, 3).to("meta")), ValueError, "query", "meta", "cpu"),
    "bilinear on another device": (ask(score=Bilinear(4, 4).to("meta")), ValueError, "query", "meta", "cpu"),
    "projected: additive, another query": (
        ask(key=t(3, 2, 7, 3), score=Additive(5, 4, 3).projected),
        ValueError,
        "query",
        "5",
        "(3, 2, 5, 4)",
    ),
    "projected: additive, key not projected": (ask(score=Additive(4, 4, 3).projected), ValueError, "key", "3", "7, 4)"),
    "projected: bilinear, another query": (
        ask(score=Bilinear(5, 4).projected),
        ValueError,
        "query",
        "5",
        "(3, 2, 5, 4)",
    ),
    "projected: bilinear, key not projected": (
        ask(key=t(3, 2, 7, 6), score=Bilinear(4, 6).projected),
        ValueError,
        "key",
        "4",
        "(3, 2, 7, 6)",
    ),
    "projected: kernel, other widths": (
        ask(score=Kernel(width=[1.0]).projected),
        ValueError,
        "query",
        "1",
        "(3, 2, 5, 4)",
    ),
    "projected: additive in double": (
        ask(key=t(3, 2, 7, 3), score=Additive(4, 4, 3).double().projected),
        TypeError,
        "query",
        "float64",
        "float32",
    ),
    "project_key of another size": (lambda: Additive(4, 4, 3).project_key(t(7, 5)), ValueError, "key", "4", "(7, 5)"),
    "project_key of another size, bilinear": (
        lambda: Bilinear(4, 6).project_key(t(7, 4)),
        ValueError,
        "key",
        "6",
        "(7, 4)",
    ),
    "dot by itself, different sizes": (lambda: Dot()(t(5, 4), t(7, 3)), ValueError, "key", "4", "(7, 3)"),
    "dot by itself, different dtypes": (
        lambda: Dot()(t(5, 4), t(7, 4).double()),
        TypeError,
        "key",
        "float32",
        "float64",
    ),
    "dot by itself, one dimension": (lambda: Dot()(t(4), t(7, 4)), ValueError, "query", "two dimensions", "(4,)"),
    "dot by itself, a list": (lambda: Dot()([[1.0]], t(7, 4)), TypeError, "query", "torch.Tensor", "list"),
    "dot by itself, other batch": (lambda: Dot()(t(3, 1, 5, 4), t(2, 1, 7, 4)), ValueError, "key", "(3, 1)", "(2, 1)"),
    "kernel by itself, integers": (
        lambda: Kernel()(t(5, 4, dtype=INT), t(7, 4)),
        TypeError,
        "query",
        "floating",
        "int64",
    ),
}

PARAMETERS = {
    "Dot, scale as word": (lambda: Dot(scale="1"), TypeError, "scale", "number", "str"),
    "Dot, scale as bool": (lambda: Dot(scale=True), TypeError, "scale", "number", "bool"),
    "Dot, scale as tensor": (lambda: Dot(scale=torch.tensor(1.0)), TypeError, "scale", "number", "Tensor"),
    "Dot, scale nan": (lambda: Dot(scale=float("nan")), ValueError, "scale", "finite", "nan"),
    "Dot, scale inf": (lambda: Dot(scale=float("inf")), ValueError, "scale", "finite", "inf"),
    "Dot, softcap 0": (lambda: Dot(softcap=0), ValueError, "softcap", "positive", "0"),
    "Dot, negative softcap": (lambda: Dot(softcap=-2.0), ValueError, "softcap", "positive", "-2.0"),
    "Dot, softcap inf": (lambda: Dot(softcap=float("inf")), ValueError, "softcap", "finite", "inf"),
    "Dot, softcap as word": (lambda: Dot(softcap="2"), TypeError, "softcap", "number", "str"),
    "Cosine, temperature 0": (lambda: Cosine(0.0), ValueError, "temperature", "positive", "0.0"),
    "Cosine, negative temperature": (lambda: Cosine(-1), ValueError, "temperature", "positive", "-1"),
    "Cosine, temperature nan": (lambda: Cosine(float("nan")), ValueError, "temperature", "finite", "nan"),
    "Cosine, temperature as list": (lambda: Cosine([1.0]), TypeError, "temperature", "number", "list"),
    "Cosine, temperature None": (lambda: Cosine(None), TypeError, "temperature", "number", "NoneType"),
    "Bilinear, size 0": (lambda: Bilinear(0, 3), ValueError, "query_size", "1 or more", "0"),
    "Bilinear, negative size": (lambda: Bilinear(3, -1), ValueError, "key_size", "1 or more", "-1"),
    "Bilinear, size as float": (lambda: Bilinear(3.0, 4), TypeError, "query_size", "whole", "float"),
    "Bilinear, size as word": (lambda: Bilinear(3, "4"), TypeError, "key_size", "whole", "str"),
    "Additive, hidden size 0": (lambda: Additive(3, 4, 0), ValueError, "hidden_size", "1 or more", "0"),
    "Additive, negative size": (lambda: Additive(-3, 4, 5), ValueError, "query_size", "1 or more", "-3"),
    "Additive, size as float": (lambda: Additive(3, 4.5, 5), TypeError, "key_size", "whole", "float"),
    "Additive, size as bool": (lambda: Additive(3, 4, True), TypeError, "hidden_size", "whole", "bool"),
    "Kernel, unknown name": (lambda: Kernel("gauss"), ValueError, "name", "gaussian", "'gauss'"),
    "Kernel, name None": (lambda: Kernel(None), ValueError, "name", "gaussian", "None"),
    "Kernel, name as list": (lambda: Kernel(["gaussian"]), ValueError, "name", "gaussian", "['gaussian']"),
    "Kernel, width as first argument": (lambda: Kernel(2.0), ValueError, "name", "gaussian", "2.0"),
    "Kernel, width 0": (lambda: Kernel(width=0), ValueError, "width", "positive", "0"),
    "Kernel, negative width": (lambda: Kernel(width=-1.0), ValueError, "width", "positive", "-1.0"),
    "Kernel, one negative width": (lambda: Kernel(width=[1.0, -1.0]), ValueError, "width", "positive", "-1.0"),
    "Kernel, width nan": (lambda: Kernel(width=float("nan")), ValueError, "width", "finite", "nan"),
    "Kernel, width inf": (lambda: Kernel(width=[1.0, float("inf")]), ValueError, "width", "finite", "inf"),
    "Kernel, width as word": (lambda: Kernel(width="wide"), TypeError, "width", "number", "str"),
    "Kernel, width None": (lambda: Kernel(width=None), TypeError, "width", "number", "NoneType"),
    "Kernel, width as bool": (lambda: Kernel(width=True), TypeError, "width", "number", "bool"),
    "Kernel, many negative widths": (lambda: Kernel(width=t(999) - 2), ValueError, "width", "positive", "-2.0"),
    "Kernel, no widths": (lambda: Kernel(width=[]), ValueError, "width", "one per feature", "(0,)"),
    "Kernel, widths of two dimensions": (lambda: Kernel(width=t(2, 2) + 1), ValueError, "width", "feature", "(2, 2)"),
    "Kernel, complex width": (lambda: Kernel(width=1 + 2j), TypeError, "width", "number", "complex"),
    "Kernel, width without numbers": (lambda: Kernel(width=t(3, device="meta")), ValueError, "width", "number", "meta"),
}

CHOICES = {
    "rows beyond the end": (lambda: weights(QUERY, KEY, rows=[0, 5]), ValueError, "rows", "4", "5"),
    "rows before the start": (lambda: weights(QUERY, KEY, rows=[-6]), ValueError, "rows", "-5", "-6"),
    "rows of floats": (lambda: weights(QUERY, KEY, rows=[1.0]), TypeError, "rows", "whole", "float"),
    "rows of a mask": (lambda: weights(QUERY, KEY, rows=yes(5)), TypeError, "rows", "whole", "bool"),
    "rows as a number": (lambda: weights(QUERY, KEY, rows=2), TypeError, "rows", "sequence", "int"),
    "rows as a tensor of no dimension": (
        lambda: weights(QUERY, KEY, rows=torch.tensor(2)),
        TypeError,
        "rows",
        "sequence",
        "int",
    ),
    "rows of two dimensions": (lambda: weights(QUERY, KEY, rows=[[1, 2]]), TypeError, "rows", "whole", "list"),
    "rows as a word": (lambda: weights(QUERY, KEY, rows="first"), TypeError, "rows", "whole", "str"),
    "rows as a set": (lambda: weights(QUERY, KEY, rows={1, 2}), TypeError, "rows", "sequence", "set"),
    "rows of no queries": (lambda: weights(t(3, 0, 4), t(3, 7, 4), rows=[0]), ValueError, "rows", "", "0"),
    "heads beyond the end": (lambda: weights(QUERY, KEY, heads=[2]), ValueError, "heads", "1", "2"),
    "heads before the start": (lambda: weights(QUERY, KEY, heads=[-3]), ValueError, "heads", "-2", "-3"),
    "heads of floats": (lambda: weights(QUERY, KEY, heads=torch.tensor([1.0])), TypeError, "heads", "whole", "float"),
    "heads as a number": (lambda: weights(QUERY, KEY, heads=1), TypeError, "heads", "sequence", "int"),
    "heads without heads": (lambda: weights(t(5, 4), t(7, 4), heads=[0]), ValueError, "heads", "heads", "(5, 4)"),
    "weights of different dtypes": (lambda: weights(QUERY, KEY.double()), TypeError, "key", "float32", "float64"),
    "weights of different sizes": (lambda: weights(QUERY, t(3, 2, 7, 3)), ValueError, "key", "4", "(3, 2, 7, 3)"),
    "weights on two devices": (lambda: weights(QUERY, t(3, 2, 7, 4, device="meta")), ValueError, "key", "cpu", "meta"),
    "weights by a name": (lambda: weights(QUERY, KEY, score="dot"), TypeError, "score", "nn.Module", "str"),
    "scores as a list": (lambda: masked_softmax([[1.0]]), TypeError, "scores", "torch.Tensor", "list"),
    "scores of integers": (lambda: masked_softmax(t(5, 7, dtype=INT)), TypeError, "scores", "floating", "int64"),
    "scores of one dimension": (lambda: masked_softmax(t(7)), ValueError, "scores", "two dimensions", "(7,)"),
    "scores in 8 bits": (
        lambda: masked_softmax(t(5, 7).to(torch.float8_e5m2)),
        TypeError,
        "scores",
        "floating",
        "float8",
    ),
    "scores that are sparse": (lambda: masked_softmax(t(5, 7).to_sparse()), TypeError, "scores", "dense", "sparse"),
    "average of a list": (lambda: average_pool([[1.0]]), TypeError, "value", "torch.Tensor", "list"),
    "average of integers": (lambda: average_pool(t(7, 6, dtype=INT)), TypeError, "value", "floating", "int64"),
    "average of one dimension": (lambda: average_pool(t(7)), ValueError, "value", "two dimensions", "(7,)"),
    "maximum of a list": (lambda: max_pool([[1.0]]), TypeError, "value", "torch.Tensor", "list"),
    "maximum of integers": (lambda: max_pool(t(7, 6, dtype=INT)), TypeError, "value", "floating", "int64"),
    "maximum of one dimension": (lambda: max_pool(t(7)), ValueError, "value", "two dimensions", "(7,)"),
    "maximum with a bias": (
        lambda: max_pool(t(7, 6), bias(t(1, 7))),
        TypeError,
        "mask",
        "keep, drop or lengths",
        "bias",
    ),
    "maximum with a joined bias": (
        lambda: max_pool(t(7, 6), causal(3) & bias(t(1, 7))),
        TypeError,
        "mask",
        "keep",
        "bias",
    ),
    "pooling with a mask of other keys": (
        lambda: max_pool(t(7, 6), keep(yes(1, 6))),
        ValueError,
        "keep",
        "7",
        "(1, 6)",
    ),
    "pooling with a mask of several queries": (
        lambda: average_pool(t(7, 6), keep(yes(5, 7))),
        ValueError,
        "keep",
        "1",
        "(5, 7)",
    ),
    "pooling with lengths beyond": (lambda: max_pool(t(3, 7, 6), lengths([1, 2, 9])), ValueError, "lengths", "7", "9"),
}

TABLES = (TENSORS, DROPOUT, BARE, DENSE, LENGTHS, BANDS, JOINS, SCORES, PARAMETERS, CHOICES)
CALLS = {name: row for table in TABLES for name, row in table.items()}


def test_there_are_many_and_no_name_is_used_twice():
    assert len(CALLS) == sum(map(len, TABLES)) >= 120


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_refused(name):
    call, kind, argument, expected, came = CALLS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert message.startswith(f"{argument}: "), message
    assert expected in message, message
    assert came in message, message
    assert "\n" not in message, message


def test_the_problem_itself_is_correct():
    """So that every refusal above is for the one thing that its row says."""
    fine = [
        None,
        keep(yes(5, 7)),
        drop(~yes(2, 5, 7)),
        bias(t(3, 1, 1, 7)),
        lengths([7, 0, 3]),
        causal(1),
        window(1, 1, 0),
    ]
    for mask in fine:
        assert attend(QUERY, KEY, VALUE, mask=mask).shape == (3, 2, 5, 6)
    for one, other in itertools.combinations(fine[1:], 2):
        attend(QUERY, KEY, VALUE, mask=one & other)


def test_options_are_given_by_name():
    with pytest.raises(TypeError, match="positional"):
        attend(QUERY, KEY, VALUE, Dot())
    with pytest.raises(TypeError, match="unexpected keyword"):
        attend(QUERY, KEY, VALUE, is_causal=True)

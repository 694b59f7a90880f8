"""Wrong masks: rows as in test_bad_calls.py, where the call c is described."""

import torch

from regard.attention import (
    alibi,
    attend,
    average_pool,
    bias,
    causal,
    drop,
    keep,
    lengths,
    masked_softmax,
    max_pool,
    relative,
    segments,
    t5_buckets,
    visible,
    window,
)

INT, COMPLEX, META = torch.int64, torch.complex64, "meta"


def jagged(rows):
    """Nested: a sequence and one that is shorter."""
    return torch.nested.nested_tensor([rows, rows[1:]], layout=torch.jagged)


BARE = [
    (TypeError, "mask", hint, came, lambda c, mask=mask: c.attend(mask=mask(c)))
    for hint, came, mask in (
        ("keep(t)", "torch.bool", lambda c: c.yes(c.n, c.m)),
        ("drop(t)", "(3, 7)", lambda c: c.yes(c.b, c.m)),
        ("bias(t)", "torch.float32", lambda c: c.t(c.n, c.m)),
        ("lengths(t)", "torch.int64", lambda c: c.t(c.b, dtype=INT)),
        ("lengths(t)", "torch.uint8", lambda c: c.t(c.n, c.m, dtype=torch.uint8)),
        ("keep, drop, bias", "list", lambda c: [True]),
        ("keep, drop, bias", "bool", lambda c: True),
        ("causal", "str", lambda c: "causal"),
        ("causal", "function", lambda c: causal),
    )
]
BARE += [
    *(
        (TypeError, name, "dense", "nested", lambda c, wrong=wrong: c.attend(mask=wrong(c)))
        for name, wrong in (
            ("mask", lambda c: jagged(c.yes(c.n, c.m))),
            ("keep", lambda c: keep(jagged(c.yes(c.n, c.m)))),
            ("drop", lambda c: drop(jagged(c.yes(c.n, c.m)))),
            ("bias", lambda c: bias(jagged(c.t(c.n, c.m)))),
            ("lengths", lambda c: lengths(jagged(c.t(c.n, dtype=INT)))),
        )
    ),
    (TypeError, "mask", "keep(t)", "(5, 7)", lambda c: masked_softmax(c.t(c.n, c.m), c.yes(c.n, c.m))),
    (TypeError, "mask", "keep(t)", "(5, 7)", lambda c: c.weights(mask=c.yes(c.n, c.m))),
    (TypeError, "mask", "keep(t)", "(1, 7)", lambda c: average_pool(c.value, c.yes(1, c.m))),
    (TypeError, "mask", "keep(t)", "(1, 7)", lambda c: max_pool(c.value, c.yes(1, c.m))),
]


def dense_rows(name, wrap, full):
    """keep, drop or bias of full(c, *shape)."""
    shapes = {
        "(7, 5)": ("5", lambda c: (c.m, c.n)),
        "(3, 7)": ("5", lambda c: (c.b, c.m)),
        "(0, 7)": ("5", lambda c: (0, c.m)),
        "(5, 8)": ("7", lambda c: (c.n, c.m + 1)),
        "(6, 7)": ("7", lambda c: (c.n + 1, c.m)),
        "(4, 5, 7)": ("(3, 2)", lambda c: (2 * c.h, c.n, c.m)),
        "(3, 5, 7)": ("(3, 2)", lambda c: (c.b, c.n, c.m)),
        "(4, 1, 5, 7)": ("(3, 2)", lambda c: (c.b + 1, 1, c.n, c.m)),
        "(3, 0, 5, 7)": ("(3, 2)", lambda c: (c.b, 0, c.n, c.m)),
        "(2, 3, 2, 5, 7)": ("(3, 2)", lambda c: (2, c.b, c.h, c.n, c.m)),
    }

    def shaped(shape):
        return lambda c: c.attend(mask=wrap(full(c, *shape(c))))

    return [
        (TypeError, name, "torch.Tensor", "list", lambda c: wrap([[True]])),
        (TypeError, name, "torch.Tensor", "NoneType", lambda c: wrap(None)),
        (TypeError, name, "torch.Tensor", "int", lambda c: wrap(1)),
        (TypeError, name, "torch.Tensor", "Band", lambda c: wrap(causal())),
        (TypeError, name, "expected", "int64", lambda c: wrap(c.t(c.n, c.m, dtype=INT))),
        (TypeError, name, "expected", "complex64", lambda c: wrap(c.t(c.n, c.m, dtype=COMPLEX))),
        (ValueError, name, "t[..., None, :]", "(7,)", lambda c: wrap(full(c, c.m))),
        (ValueError, name, "cpu", "meta", lambda c: c.attend(mask=wrap(full(c, c.n, c.m).to(META)))),
        *((ValueError, name, expected, came, shaped(shape)) for came, (expected, shape) in shapes.items()),
    ]


DENSE = [
    *dense_rows("keep", keep, lambda c, *shape: c.yes(*shape)),
    *dense_rows("drop", drop, lambda c, *shape: c.yes(*shape)),
    *dense_rows("bias", bias, lambda c, *shape: c.t(*shape)),
    (TypeError, "keep", "boolean", "uint8", lambda c: keep(c.t(5, 7, dtype=torch.uint8))),
    (TypeError, "keep", "boolean", "float32", lambda c: keep(c.t(5, 7))),
    (TypeError, "drop", "boolean", "float32", lambda c: drop(c.t(5, 7))),
    (TypeError, "bias", "keep or drop", "bool", lambda c: bias(c.yes(5, 7))),
    (ValueError, "keep", "5", "(7, 5)", lambda c: c.attend(mask=causal(1) & keep(c.yes(c.m, c.n)))),
    (ValueError, "drop", "5", "(7, 5)", lambda c: c.attend(mask=causal(1) | drop(c.yes(c.m, c.n)))),
    (ValueError, "keep", "(3, 6)", "(2, 5, 7)", lambda c: c.attend_heads(6, 2, 2, mask=keep(c.yes(2, c.n, c.m)))),
    (ValueError, "keep", "5", "(3, 7)", lambda c: masked_softmax(c.t(c.n, c.m), keep(c.yes(c.b, c.m)))),
    (ValueError, "keep", "()", "(3, 5, 7)", lambda c: masked_softmax(c.t(c.n, c.m), keep(c.yes(c.b, c.n, c.m)))),
    (ValueError, "keep", "7", "(1, 8)", lambda c: max_pool(c.value, keep(c.yes(1, c.m + 1)))),
    (ValueError, "keep", "1", "(5, 7)", lambda c: average_pool(c.value, keep(c.yes(c.n, c.m)))),
]

LENGTHS = [
    (kind, "lengths", expected, came, lambda c, counts=counts: lengths(counts(c)))
    for kind, expected, came, counts in (
        (ValueError, "0 or more", "-1", lambda c: [3, -1, 2]),
        (TypeError, "whole", "float32", lambda c: torch.tensor([3.0, 1.0])),
        (TypeError, "whole", "float", lambda c: [3.5, 1.0]),
        (TypeError, "whole", "bool", lambda c: c.yes(3)),
        (TypeError, "whole", "complex", lambda c: c.t(3, dtype=COMPLEX)),
        (TypeError, "whole", "list", lambda c: ["a"]),
        (TypeError, "whole", "str", lambda c: "357"),
        (TypeError, "whole", "NoneType", lambda c: None),
        (TypeError, "whole", "list", lambda c: [[1, 2], [3]]),
        (TypeError, "whole", "set", lambda c: {1, 2, 3}),
        (ValueError, "(batch,)", "()", lambda c: 3),
        (ValueError, "(batch,)", "(3, 2, 5)", lambda c: c.t(c.b, c.h, c.n, dtype=INT)),
    )
]
LENGTHS += [
    (ValueError, "lengths", expected, came, lambda c, counts=counts: c.attend(mask=lengths(counts(c))))
    for expected, came, counts in (
        ("7", "8", lambda c: [c.m, c.m + 1, 0] if c.b == 3 else [c.m + 1] * c.b),
        ("7", "9", lambda c: c.t(c.b, c.n, dtype=INT) + c.m + 2),
        ("numbers", "meta", lambda c: c.t(c.b, dtype=INT, device=META)),
        ("(3,)", "(4,)", lambda c: [1] * (c.b + 1)),
        ("(3,)", "(0,)", lambda c: []),
        ("(3,)", "(5,)", lambda c: [1] * c.n),
        ("(3, 5)", "(3, 2)", lambda c: [[1] * c.h] * c.b),
        ("(3, 5)", "(3, 7)", lambda c: [[1] * c.m] * c.b),
    )
]
LENGTHS += [
    (ValueError, "lengths", "batch", "without", lambda c: attend(*[c.t(c.n, c.n)] * 3, mask=lengths([1]))),
    (ValueError, "lengths", "batch", "without", lambda c: masked_softmax(c.t(c.n, c.m), lengths([1] * c.n))),
    (ValueError, "lengths", "7", "9", lambda c: max_pool(c.t(3, 7, 6), lengths([1, 2, 9]))),
    (ValueError, "segments", "0 or more", "-1", lambda c: segments([3, -1, 2])),
    (TypeError, "segments", "whole", "float32", lambda c: segments(torch.tensor([3.0]))),
    (ValueError, "segments", "(batch, sequences)", "(1, 2, 2)", lambda c: segments([[[1, 2], [3, 4]]])),
    (ValueError, "segments", "2", "1", lambda c: segments([1, 2], [3])),
    (ValueError, "segments", "(2, 1)", "(1, 1)", lambda c: segments([[1], [2]], [[3]])),
    (ValueError, "segments", "(3, sequences)", "(4, 1)", lambda c: c.attend(mask=segments([[1]] * (c.b + 1)))),
    (ValueError, "segments", "at most 5", "6", lambda c: c.attend(mask=segments([[c.n + 1]] * c.b))),
    (ValueError, "segments", "at most 7", "8", lambda c: c.attend(mask=segments([[1]] * c.b, [[c.m + 1]] * c.b))),
    (ValueError, "segments", "without a batch", "(2, 1)", lambda c: attend(*[c.t(5, 5)] * 3, mask=segments([[2]] * 2))),
    (ValueError, "segments", "numbers", "meta", lambda c: c.attend(mask=segments(c.t(c.b, 2, dtype=INT, device=META)))),
    (ValueError, "segments", "5", "4", lambda c: c.attend(mask=segments([c.n - 1, 0], [c.m, 0]))),
    (ValueError, "segments", "7", "5", lambda c: c.attend(mask=segments([c.n, 0]))),
]

BANDS = [
    (ValueError, "causal", "offset=", "5 queries and 7 keys", lambda c: c.attend(mask=causal())),
    (ValueError, "window", "align='start'", "5 queries and 7 keys", lambda c: c.attend(mask=window(1, 1))),
    (ValueError, "causal", "offset=", "7 keys", lambda c: c.attend(mask=lengths([1] * c.b) & causal())),
    (ValueError, "causal", "offset=", "1 queries", lambda c: average_pool(c.value, causal())),
    (ValueError, "causal", "offset or align", "both", lambda c: causal(offset=1, align="end")),
    (ValueError, "window", "offset or align", "both", lambda c: window(1, 1, 0, "start")),
    (TypeError, "causal", "whole number", "float", lambda c: causal(offset=1.0)),
    (TypeError, "causal", "whole number", "bool", lambda c: causal(True)),
    (TypeError, "causal", "whole number", "Tensor", lambda c: causal(torch.tensor(1))),
    (TypeError, "causal", "whole number", "str", lambda c: causal("end")),
    (ValueError, "causal", "'start' or 'end'", "'left'", lambda c: causal(align="left")),
    (ValueError, "causal", "'start' or 'end'", "True", lambda c: causal(align=True)),
    (ValueError, "causal", "'start' or 'end'", "['end']", lambda c: causal(align=["end"])),
    (ValueError, "window", "'end'", "'middle'", lambda c: window(1, 1, align="middle")),
    (ValueError, "window", "left to be 0 or more", "-1", lambda c: window(-1, 1)),
    (ValueError, "window", "right to be 0 or more", "-2", lambda c: window(1, -2)),
    (TypeError, "window", "left", "float", lambda c: window(1.5, 1)),
    (TypeError, "window", "right", "float", lambda c: window(1, 2.0)),
    (TypeError, "window", "left", "bool", lambda c: window(True, 1)),
    (TypeError, "window", "right", "str", lambda c: window(1, "2")),
    (TypeError, "window", "offset", "float", lambda c: window(1, 1, 0.5)),
]

RELATIVE = [
    (ValueError, "alibi", "offset=", "5 queries and 7 keys", lambda c: c.attend(mask=alibi(1.0))),
    (ValueError, "relative", "align='start'", "7 keys", lambda c: c.attend(mask=relative(c.t(9, c.h), torch.abs))),
    (ValueError, "alibi", "offset or align", "both", lambda c: alibi(1.0, 1, "end")),
    (TypeError, "relative", "whole number", "float", lambda c: relative(c.t(9, 2), torch.abs, 1.5)),
    (ValueError, "alibi", "2 heads", "3", lambda c: c.attend(mask=alibi(c.t(c.h + 1), 0))),
    (ValueError, "relative", "2 heads", "3", lambda c: c.attend(mask=relative(c.t(99, c.h + 1), torch.abs, 0))),
    (ValueError, "alibi", "1 heads", "2", lambda c: masked_softmax(c.t(c.n, c.m), alibi([1.0, 2.0], 0))),
    (ValueError, "alibi", "(heads,)", "(2, 2)", lambda c: alibi(c.t(2, 2))),
    (TypeError, "alibi", "a number", "str", lambda c: alibi("steep")),
    (TypeError, "alibi", "a number", "NoneType", lambda c: alibi(None)),
    (TypeError, "alibi", "numbers", "torch.bool", lambda c: alibi(c.yes(2))),
    (ValueError, "alibi", "cpu", "meta", lambda c: c.attend(mask=alibi(c.t(c.h).to(META), 0))),
    (TypeError, "relative", "(buckets, heads)", "list", lambda c: relative([[1.0]], torch.abs)),
    (TypeError, "relative", "floating-point", "int64", lambda c: relative(c.t(9, 2, dtype=INT), torch.abs)),
    (ValueError, "relative", "(buckets, heads)", "(9,)", lambda c: relative(c.t(9), torch.abs)),
    (TypeError, "relative", "function", "int", lambda c: relative(c.t(9, 2), 3)),
    (ValueError, "bucket", "0 to 3", "-4", lambda c: c.attend(mask=relative(c.t(4, c.h), lambda steps: steps, 0))),
    (ValueError, "bucket", "0 to 0", "6", lambda c: c.attend(mask=relative(c.t(1, c.h), torch.abs, 0))),
    (
        ValueError,
        "bucket",
        "LongTensor",
        "float",
        lambda c: c.attend(mask=relative(c.t(4, c.h), lambda steps: steps / 2, 0)),
    ),
    (
        ValueError,
        "bucket",
        "LongTensor",
        "(1,)",
        lambda c: c.attend(mask=relative(c.t(4, c.h), lambda steps: steps[:1], 0)),
    ),
    (ValueError, "bucket", "LongTensor", "int", lambda c: c.attend(mask=relative(c.t(4, c.h), len, 0))),
    (ValueError, "buckets", "4 or more", "3", lambda c: t5_buckets(3)),
    (ValueError, "distance", "more than 8", "8", lambda c: t5_buckets(32, 8)),
    (TypeError, "buckets", "whole number", "float", lambda c: t5_buckets(32.0)),
]

VISIBLE = [
    (TypeError, "visible", "mask_mod(b, h, q_idx, kv_idx)", "Tensor", lambda c: visible(c.yes(c.n, c.m))),
    (TypeError, "visible", "function", "NoneType", lambda c: visible(None)),
    (TypeError, "visible", "function", "Band", lambda c: visible(causal())),
    (TypeError, "visible", "boolean", "int64", lambda c: c.attend(mask=visible(lambda b, h, q, k: q - k))),
    (TypeError, "visible", "boolean", "(2,)", lambda c: c.attend(mask=visible(lambda b, h, q, k: c.yes(2) & (q > k)))),
]

JOINS = [
    (TypeError, "~", "allows or forbids", "bias((5, 7))", lambda c: ~bias(c.t(5, 7))),
    (TypeError, "~", "allows or forbids", "alibi", lambda c: ~(causal() & alibi(1.0))),
    (TypeError, "&", "keep(t)", "(5, 7)", lambda c: causal() & c.yes(5, 7)),
    (TypeError, "&", "keep(t)", "(5, 7)", lambda c: c.yes(5, 7) & causal()),
    (TypeError, "|", "keep(t)", "(5, 7)", lambda c: causal() | c.yes(5, 7)),
    (TypeError, "|", "keep(t)", "(5, 7)", lambda c: c.yes(5, 7) | causal()),
    (TypeError, "&", "expected a mask", "NoneType", lambda c: causal() & None),
    (TypeError, "|", "expected a mask", "bool", lambda c: causal() | True),
    (TypeError, "&", "expected a mask", "int", lambda c: causal() & 1),
    (TypeError, "mask", "use &", "bias", lambda c: causal() | bias(c.t(5, 7))),
    (TypeError, "mask", "use &", "bias", lambda c: bias(c.t(5, 7)) | causal()),
    (TypeError, "mask", "use &", "bias", lambda c: causal() | (bias(c.t(5, 7)) & causal())),
    (TypeError, "mask", "& and |", "'and'", lambda c: causal() and window(1, 1)),
    (TypeError, "mask", "& and |", "'or'", lambda c: causal() or window(1, 1)),
    (TypeError, "mask", "& and |", "neither true nor false", lambda c: not causal()),
    (TypeError, "mask", "keep, drop or lengths", "bias", lambda c: max_pool(c.value, bias(c.t(1, c.m)))),
    (TypeError, "mask", "keep, drop or lengths", "bias", lambda c: max_pool(c.value, causal(3) & bias(c.t(1, c.m)))),
]

ROWS = [*BARE, *DENSE, *LENGTHS, *BANDS, *RELATIVE, *VISIBLE, *JOINS]

"""Wrong masks: rows as in test_bad_calls.py."""

import torch

from regard.attention import (
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
from tests.attention.wrong_calls import COMPLEX, INT, KEY, QUERY, ask, t, yes

BARE = {
    f"a bare tensor of {dtype}": (ask(mask=torch.ones(5, 7).to(dtype)), TypeError, "mask", hint, str(dtype))
    for dtype, hint in (
        (torch.bool, "keep(t)"),
        (torch.float32, "bias(t)"),
        (torch.int64, "lengths(t)"),
        (torch.uint8, "lengths(t)"),
    )
}
BARE |= {
    "a bare padding mask": (ask(mask=yes(3, 7)), TypeError, "mask", "drop(t)", "(3, 7)"),
    "a list as mask": (ask(mask=[True]), TypeError, "mask", "keep, drop, bias", "list"),
    "True as mask": (ask(mask=True), TypeError, "mask", "keep, drop, bias", "bool"),
    "a word as mask": (ask(mask="causal"), TypeError, "mask", "causal", "str"),
    "a function as mask": (ask(mask=lambda: causal), TypeError, "mask", "causal", "function"),
    "mask for masked_softmax": (lambda: masked_softmax(t(5, 7), yes(5, 7)), TypeError, "mask", "keep(t)", "(5, 7)"),
    "mask for weights": (lambda: weights(QUERY, KEY, mask=yes(5, 7)), TypeError, "mask", "keep(t)", "(5, 7)"),
    "mask for average_pool": (lambda: average_pool(t(5, 7), yes(1, 5)), TypeError, "mask", "keep(t)", "(1, 5)"),
    "mask for max_pool": (lambda: max_pool(t(5, 7), yes(1, 5)), TypeError, "mask", "keep(t)", "(1, 5)"),
}

DENSE = {
    "keep of floats": (lambda: keep(t(5, 7)), TypeError, "keep", "boolean", "float32"),
    "keep of integers": (lambda: keep(t(5, 7, dtype=INT)), TypeError, "keep", "boolean", "int64"),
    "keep of bytes": (lambda: keep(t(5, 7, dtype=torch.uint8)), TypeError, "keep", "boolean", "uint8"),
    "keep of a list": (lambda: keep([[True]]), TypeError, "keep", "torch.Tensor", "list"),
    "keep of a mask": (lambda: keep(causal()), TypeError, "keep", "torch.Tensor", "_Band"),
    "keep of None": (lambda: keep(None), TypeError, "keep", "torch.Tensor", "NoneType"),
    "keep of one dimension": (lambda: keep(yes(7)), ValueError, "keep", "t[..., None, :]", "(7,)"),
    "drop of floats": (lambda: drop(t(5, 7)), TypeError, "drop", "boolean", "float32"),
    "drop of a number": (lambda: drop(1), TypeError, "drop", "torch.Tensor", "int"),
    "drop of one dimension": (lambda: drop(yes(7)), ValueError, "drop", "two dimensions", "(7,)"),
    "bias of booleans": (lambda: bias(yes(5, 7)), TypeError, "bias", "keep or drop", "bool"),
    "bias of integers": (lambda: bias(t(5, 7, dtype=INT)), TypeError, "bias", "floating", "int64"),
    "bias of complex numbers": (lambda: bias(t(5, 7, dtype=COMPLEX)), TypeError, "bias", "floating", "complex64"),
    "bias of a number": (lambda: bias(0.5), TypeError, "bias", "torch.Tensor", "float"),
    "bias of one dimension": (lambda: bias(t(7)), ValueError, "bias", "two dimensions", "(7,)"),
}
for _name, _make in {
    "keep": lambda *s: keep(yes(*s)),
    "drop": lambda *s: drop(yes(*s)),
    "bias": lambda *s: bias(t(*s)),
}.items():
    DENSE |= {
        f"{_name} transposed": (ask(_make(7, 5)), ValueError, _name, "5", "(7, 5)"),
        f"{_name} (batch, m) where (n, m) is meant": (ask(_make(3, 7)), ValueError, _name, "5", "(3, 7)"),
        f"{_name} of too many keys": (ask(_make(5, 8)), ValueError, _name, "7", "(5, 8)"),
        f"{_name} of other heads": (ask(_make(4, 5, 7)), ValueError, _name, "(3, 2)", "(4, 5, 7)"),
        f"{_name} (batch, n, m) without heads": (ask(_make(3, 5, 7)), ValueError, _name, "(3, 2)", "(3, 5, 7)"),
        f"{_name} of another batch": (ask(_make(4, 1, 5, 7)), ValueError, _name, "(3, 2)", "(4, 1, 5, 7)"),
        f"{_name} of more dimensions": (ask(_make(2, 3, 2, 5, 7)), ValueError, _name, "(3, 2)", "(2, 3, 2, 5, 7)"),
        f"{_name} of no queries": (ask(_make(0, 7)), ValueError, _name, "5", "(0, 7)"),
    }
DENSE |= {
    "keep on another device": (ask(keep(yes(5, 7, device="meta"))), ValueError, "keep", "cpu", "meta"),
    "drop on another device": (ask(drop(yes(5, 7, device="meta"))), ValueError, "drop", "cpu", "meta"),
    "bias on another device": (ask(bias(t(5, 7, device="meta"))), ValueError, "bias", "cpu", "meta"),
    "a wrong part of a joined mask": (ask(causal(1) & keep(yes(7, 5))), ValueError, "keep", "5", "(7, 5)"),
    "a wrong part of an alternative": (ask(causal(1) | drop(yes(7, 5))), ValueError, "drop", "5", "(7, 5)"),
    "keep of grouped key heads": (
        ask(keep(yes(2, 5, 7)), query=t(3, 6, 5, 4)),
        ValueError,
        "keep",
        "(3, 6)",
        "(2, 5, 7)",
    ),
    "keep for masked_softmax": (lambda: masked_softmax(t(5, 7), keep(yes(3, 7))), ValueError, "keep", "5", "(3, 7)"),
    "keep of a batch for masked_softmax": (
        lambda: masked_softmax(t(5, 7), keep(yes(3, 5, 7))),
        ValueError,
        "keep",
        "()",
        "(3, 5, 7)",
    ),
}

LENGTHS = {
    "negative lengths": (lambda: lengths([3, -1, 2]), ValueError, "lengths", "0 or more", "-1"),
    "lengths of floats": (lambda: lengths(torch.tensor([3.0, 1.0])), TypeError, "lengths", "whole", "float32"),
    "lengths of a list of floats": (lambda: lengths([3.5, 1.0]), TypeError, "lengths", "whole", "float"),
    "lengths of booleans": (lambda: lengths(yes(3)), TypeError, "lengths", "whole", "bool"),
    "lengths of complex numbers": (lambda: lengths(t(3, dtype=COMPLEX)), TypeError, "lengths", "whole", "complex"),
    "one length": (lambda: lengths(3), ValueError, "lengths", "(batch,)", "()"),
    "lengths of three dimensions": (
        lambda: lengths(t(3, 2, 5, dtype=INT)),
        ValueError,
        "lengths",
        "(batch,)",
        "(3, 2, 5)",
    ),
    "lengths of words": (lambda: lengths(["a"]), TypeError, "lengths", "whole", "list"),
    "negative segments": (lambda: segments([3, -1, 2]), ValueError, "segments", "0 or more", "-1"),
    "segments of floats": (lambda: segments(torch.tensor([3.0])), TypeError, "segments", "whole", "float32"),
    "segments by row": (lambda: segments([[1, 2], [3, 4]]), ValueError, "segments", "(sequences,)", "(2, 2)"),
    "segments of other numbers": (lambda: segments([1, 2], [3]), ValueError, "segments", "2", "1"),
    "segments that miss a query": (ask(segments([2, 2], [3, 4])), ValueError, "segments", "5", "4"),
    "segments that miss a key": (ask(segments([2, 3])), ValueError, "segments", "7", "5"),
    "lengths as a word": (lambda: lengths("357"), TypeError, "lengths", "whole", "str"),
    "lengths of None": (lambda: lengths(None), TypeError, "lengths", "whole", "NoneType"),
    "ragged lengths": (lambda: lengths([[1, 2], [3]]), TypeError, "lengths", "whole", "list"),
    "lengths of a set": (lambda: lengths({1, 2, 3}), TypeError, "lengths", "whole", "set"),
    "lengths without numbers": (
        lambda: lengths(t(3, dtype=INT, device="meta")),
        ValueError,
        "lengths",
        "numbers",
        "meta",
    ),
    "a length beyond the keys": (ask(lengths([7, 8, 3])), ValueError, "lengths", "7", "8"),
    "a length by row beyond the keys": (ask(lengths(t(3, 5, dtype=INT) + 9)), ValueError, "lengths", "7", "9"),
    "lengths of another batch": (ask(lengths([1, 2])), ValueError, "lengths", "(3,)", "(2,)"),
    "a length per head": (ask(lengths([[1, 2]] * 3)), ValueError, "lengths", "(3, 5)", "(3, 2)"),
    "a length per key": (ask(lengths([[1] * 7] * 3)), ValueError, "lengths", "(3, 5)", "(3, 7)"),
    "a length per query": (ask(lengths([1] * 5)), ValueError, "lengths", "(3,)", "(5,)"),
    "lengths without a batch": (
        ask(lengths([1] * 5), t(5, 4), t(7, 4), t(7, 6)),
        ValueError,
        "lengths",
        "batch",
        "without",
    ),
    "lengths for unbatched softmax": (
        lambda: masked_softmax(t(5, 7), lengths([1] * 5)),
        ValueError,
        "lengths",
        "batch",
        "",
    ),
}

BANDS = {
    "causal without offset": (ask(causal()), ValueError, "causal", "offset=", "5 queries and 7 keys"),
    "window without offset": (ask(window(1, 1)), ValueError, "window", "align='start'", "5 queries and 7 keys"),
    "causal without offset inside a join": (
        ask(lengths([1, 2, 3]) & causal()),
        ValueError,
        "causal",
        "offset=",
        "7 keys",
    ),
    "causal with both": (lambda: causal(offset=1, align="end"), ValueError, "causal", "offset or align", "both"),
    "window with both": (lambda: window(1, 1, 0, "start"), ValueError, "window", "offset or align", "both"),
    "causal with a float": (lambda: causal(offset=1.0), TypeError, "causal", "whole number", "float"),
    "causal with a bool": (lambda: causal(True), TypeError, "causal", "whole number", "bool"),
    "causal with a tensor": (lambda: causal(torch.tensor(1)), TypeError, "causal", "whole number", "Tensor"),
    "causal with a word as offset": (lambda: causal("end"), TypeError, "causal", "whole number", "str"),
    "causal with another align": (lambda: causal(align="left"), ValueError, "causal", "'start' or 'end'", "'left'"),
    "causal with align True": (lambda: causal(align=True), ValueError, "causal", "'start' or 'end'", "True"),
    "causal with align as a list": (lambda: causal(align=["end"]), ValueError, "causal", "'start' or 'end'", "['end']"),
    "window, negative left": (lambda: window(-1, 1), ValueError, "window", "left to be 0 or more", "-1"),
    "window, negative right": (lambda: window(1, -2), ValueError, "window", "right to be 0 or more", "-2"),
    "window, left as float": (lambda: window(1.5, 1), TypeError, "window", "left", "float"),
    "window, right as float": (lambda: window(1, 2.0), TypeError, "window", "right", "float"),
    "window, left as bool": (lambda: window(True, 1), TypeError, "window", "left", "bool"),
    "window, right as word": (lambda: window(1, "2"), TypeError, "window", "right", "str"),
    "window with a float offset": (lambda: window(1, 1, 0.5), TypeError, "window", "offset", "float"),
    "window with another align": (lambda: window(1, 1, align="middle"), ValueError, "window", "'end'", "'middle'"),
    "causal pooling without offset": (
        lambda: average_pool(t(7, 6), causal()),
        ValueError,
        "causal",
        "offset=",
        "1 queries",
    ),
}

JOINS = {
    "mask & tensor": (lambda: causal() & yes(5, 7), TypeError, "&", "keep(t)", "(5, 7)"),
    "tensor & mask": (lambda: yes(5, 7) & causal(), TypeError, "&", "keep(t)", "(5, 7)"),
    "mask | tensor": (lambda: causal() | yes(5, 7), TypeError, "|", "keep(t)", "(5, 7)"),
    "tensor | mask": (lambda: yes(5, 7) | causal(), TypeError, "|", "keep(t)", "(5, 7)"),
    "mask & None": (lambda: causal() & None, TypeError, "&", "expected a mask", "NoneType"),
    "mask | True": (lambda: causal() | True, TypeError, "|", "expected a mask", "bool"),
    "mask & number": (lambda: causal() & 1, TypeError, "&", "expected a mask", "int"),
    "mask | bias": (lambda: causal() | bias(t(5, 7)), TypeError, "mask", "use &", "bias"),
    "bias | mask": (lambda: bias(t(5, 7)) | causal(), TypeError, "mask", "use &", "bias"),
    "mask | joined bias": (lambda: causal() | (bias(t(5, 7)) & causal()), TypeError, "mask", "use &", "bias"),
    "mask and mask": (lambda: causal() and window(1, 1), TypeError, "mask", "& and |", "'and'"),
    "mask or mask": (lambda: causal() or window(1, 1), TypeError, "mask", "& and |", "'or'"),
    "not mask": (lambda: not causal(), TypeError, "mask", "& and |", "neither true nor false"),
    "if mask": (lambda: 1 if causal() else 2, TypeError, "mask", "& and |", "neither true nor false"),
}

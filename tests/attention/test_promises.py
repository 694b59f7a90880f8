"""What holds on every road and for every score, beside what test_random.py shows: a NaN that may be attended is not
hidden, one that may not does no harm, and half precision adds up in full.

"Bit-identical" is meant so: torch.equal, with the number of threads fixed.
"""

import itertools
from dataclasses import replace

import pytest
import torch

from regard.attention import Dot, Kernel, bias, causal, keep, lengths, masked_softmax, weights
from tests.attention.cases import (
    CUTS,
    ENGINES,
    NORMALIZERS,
    SCORES,
    SHAPES,
    SOME_SCORES,
    Case,
    assert_near,
    build,
    cut,
    gradients,
    in_turn,
    key_size,
    restricted,
    run,
    table_case,
)
from tests.attention.meanings import MASKS, Meaning, Shape, band, kept, lengths_of

SHAPE = SHAPES["more-keys"]
LARGEST = torch.finfo(torch.float32).max
POISONS = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf, "1e30": 1e30, "largest": LARGEST}


def poisoned(tensor, *place, poison=torch.nan):
    tensor = tensor.detach().clone()
    tensor[place] = poison
    return tensor


def wanting(case):
    """The same with inputs that want gradients."""
    query, key, value = (tensor.detach().requires_grad_() for tensor in case.inputs)
    return replace(case, query=query, key=key, value=value)


def inputs_of(case):
    return list(case.leaves.values())


# ----------------------------------------------------------------------------------------- what may not be attended to


@pytest.mark.parametrize("score", SOME_SCORES)
def test_an_empty_row_stays_zero_whatever_asks(score):
    """Even a query of NaN gets 0 where it may attend to nothing, and nothing of it reaches the keys."""
    allowed = torch.rand(SHAPE) < 0.8
    empty = torch.zeros(SHAPE[:3], dtype=torch.bool)
    empty[0], empty[1, 1, 2:5], empty[2, :, 6] = True, True, True
    case = replace(table_case(score, dtype=torch.float32), meaning=kept(allowed & ~empty[..., None]))
    case = wanting(replace(case, query=poisoned(case.query, empty)))
    for engine in ENGINES:
        output = run(case, engine)
        assert (output[empty] == 0).all(), engine
        slopes = gradients(output, list(case.leaves.values()))
        assert all(slope.isfinite().all() for slope in slopes), engine
        assert (slopes[0][empty] == 0).all(), engine


@pytest.mark.parametrize("mask", ["none", "lengths"])
@pytest.mark.parametrize("score", SCORES)
def test_without_a_query_no_key_reaches_a_gradient(score, mask):
    case = table_case(score, mask, Shape(3, 2, 0, 11), torch.float32)
    case = wanting(replace(case, key=poisoned(case.key, ...), value=poisoned(case.value, ...)))
    for engine in ("plain", "weights"):
        assert all((slope == 0).all() for slope in gradients(run(case, engine), list(case.leaves.values()))), engine


@pytest.mark.parametrize(("score", "poison"), list(zip(SOME_SCORES, itertools.cycle(POISONS.values()), strict=False)))
def test_padding_changes_nothing_in_a_large_batch(score, poison):
    """Sizes as they come: ragged sequences with a call of their own, streamed tiles, two threads."""
    torch.set_num_threads(2)
    shape, counts = Shape(3, 2, 131, 257), [257, 11, 101]
    case = table_case(score, "none", shape, torch.float32)
    case = replace(case, meaning=lengths_of(counts, shape) & band(causal(align="end"), shape, None, 0, 126))
    hidden = (torch.arange(257) >= torch.tensor(counts)[:, None, None]).expand(3, 2, 257)
    spoilt = replace(case, **{name: poisoned(getattr(case, name), hidden, poison=poison) for name in ("key", "value")})
    clean, other = (wanting(each) for each in (case, spoilt))
    outputs = clean.attend(), other.attend()
    assert torch.equal(*outputs)
    slopes = (
        gradients(output, list(each.leaves.values())) for output, each in zip(outputs, (clean, other), strict=True)
    )
    assert all(torch.equal(*pair) for pair in zip(*slopes, strict=True))


def assert_padding_changes_nothing(case, poison):
    hidden = case.meaning.hides(case.shape).all(-2)
    keys, values = (poisoned(rows, hidden, poison=poison) for rows in (case.key, case.value))
    clean, spoilt = wanting(case), wanting(replace(case, key=keys, value=values))
    for engine in ENGINES:
        outputs = run(clean, engine), run(spoilt, engine)
        assert torch.equal(*outputs), engine
        slopes = [gradients(*pair) for pair in zip(outputs, map(inputs_of, (clean, spoilt)), strict=True)]
        assert all(torch.equal(*pair) for pair in zip(*slopes, strict=True)), engine


@pytest.mark.parametrize(
    ("score", "mask", "poison"), in_turn(SOME_SCORES, MASKS, list(POISONS), often=["dot", "additive"])
)
def test_padding_changes_nothing_whatever_says_that_it_is_padding(score, mask, poison):
    """Keys behind the end, those that `~` hides in front, and those that another mask leaves to no query."""
    for meaning in (lengths_of([11, 5, 1], SHAPE), ~lengths_of([0, 2, 1], SHAPE)):
        case = restricted(table_case(score, mask, SHAPE, torch.float32), meaning)
        assert_padding_changes_nothing(case, POISONS[poison])


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("score", ["dot", "bilinear", "kernel-gaussian", "additive"])
def test_padding_changes_nothing_under_any_normalizer(score, normalizer):
    case = table_case(score, "none", SHAPE, torch.float32, normalizer=normalizer)
    assert_padding_changes_nothing(restricted(case, lengths_of([11, 5, 1], SHAPE)), LARGEST)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SCORES)
def test_the_future_does_not_reach_the_past(monkeypatch, score, size):
    """NaN in keys and values from position 4 on: the rows before it, which may not see them, stay as they are."""
    cut(monkeypatch, size)
    case = table_case(score, "causal-start", SHAPES["square"], torch.float32)
    late_key, late_value = (poisoned(tensor, ..., slice(4, None), slice(None)) for tensor in (case.key, case.value))
    reached = weights(case.query, case.key, **case.options)[..., 4:, 4:].sum(-1) > 0
    for engine in ENGINES:
        clean = run(case, engine)
        for key, value in ((late_key, case.value), (case.key, late_value), (late_key, late_value)):
            output = run(replace(case, key=key, value=value), engine)
            assert_near(output[..., :4, :], clean[..., :4, :], 1e-6, engine)
            assert output[..., 4:, :].isnan()[reached].all(), engine


# -------------------------------------------------------------------------------------------- what may be attended to


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SCORES)
def test_a_nan_that_may_be_attended_is_not_hidden(monkeypatch, score, size):
    cut(monkeypatch, size)
    case = replace(table_case(score, dtype=torch.float32), meaning=lengths_of([11, 4, 6], SHAPE))
    for engine in ENGINES:
        clean = run(case, engine)

        output = run(replace(case, query=poisoned(case.query, 1, 0, 2, 3)), engine)
        assert output[1, 0, 2].isnan().all(), f"{engine}: query"
        assert output.isnan().sum() == output.shape[-1], f"{engine}: a query of NaN reaches its own row only"
        output[1, 0, 2] = clean[1, 0, 2]
        assert_near(output, clean, 1e-5, f"{engine}: the other rows")

        output = run(replace(case, key=poisoned(case.key, 1, 0, 2, 1)), engine)
        assert output[1, 0].isnan().all(), f"{engine}: key"
        assert output.isnan().sum() == output[1, 0].numel(), engine

        if score == "kernel-boxcar":  # may give weight 0 to that key, which is then not attended to
            continue
        output = run(replace(case, value=poisoned(case.value, 1, 0, 2, 3)), engine)
        attended = weights(case.query, case.key, **case.options)[1, 0, :, 2] > 0
        assert torch.equal(output[1, 0, :, 3].isnan(), attended), f"{engine}: value"
        assert output.isnan().sum() == attended.sum(), engine


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 31, 64, 67, 513, 519, 1031])
def test_a_nan_query_at_any_number_of_keys(m, dtype):
    """PyTorch's fused attention on the CPU turns a query of NaN into 0, for some numbers of keys (7 in float32)."""
    query, key, value = (torch.randn(2, 3, rows, 4, dtype=dtype) for rows in (5, m, m))
    query[1, 2, 3, 0] = torch.nan
    masks = [None, causal(align="end"), lengths([m, m]), keep(torch.ones(1, m).bool()), bias(torch.zeros(5, m))]
    for mask, score, engine in itertools.product(masks, (Dot(), Kernel(), Dot(softcap=3.0)), ENGINES):
        output = run(Case(query, key, value, score, Meaning(mask)), engine)
        if mask is masks[1] and 3 + m - 5 < 0:
            assert (output[1, 2, 3] == 0).all()
        else:
            assert output[1, 2, 3].isnan().all()
        output[1, 2, 3] = 0
        assert output.isfinite().all()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
@pytest.mark.parametrize("m", [3, 7, 8, 11, 16, 17, 67])
def test_a_bias_that_is_no_number(m, poison):
    """+inf − inf is NaN, as in softmax; neither may end as 0."""
    query, key, value, added = (torch.randn(shape) for shape in ((5, 4), (m, 4), (m, 3), (5, m)))
    added[3, 1] = poison
    for engine in ENGINES:
        output = run(Case(query, key, value, Dot(), Meaning(bias(added))), engine)
        assert output[3].isnan().all()
        assert output[[0, 1, 2, 4]].isfinite().all()
    assert masked_softmax(torch.zeros(5, m), bias(added))[3].isnan().any()


# ------------------------------------------------------------------------------------------------------ half precision

HALF = {torch.float16: 1e-3, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("score", ["dot", "additive", "kernel-laplace"])
def test_half_precision_adds_up_in_full(score, dtype):
    """4,099 equal keys: in bfloat16 a sum of ones stops at 256, and 1/4,099 loses its digits in float16."""
    query, key = torch.ones(3, 5, dtype=dtype), torch.ones(4099, key_size(score), dtype=dtype)
    case = Case(query, key, torch.full((4099, 2), 3.0, dtype=dtype), build(score, dtype), MASKS["none"](SHAPE))
    for engine in ENGINES:
        assert_near(run(case, engine), torch.full((3, 2), 3.0), HALF[dtype])

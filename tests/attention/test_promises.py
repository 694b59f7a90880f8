"""What holds on every path and for every score: empty rows, hidden keys, visible NaN, half precision, memory.

"Bit-identical" is meant so: torch.equal, with the number of threads fixed.
"""

import itertools

import pytest
import torch

from regard.attention import (
    Dot,
    Kernel,
    attend,
    bias,
    causal,
    drop,
    keep,
    lengths,
    masked_softmax,
    weights,
)
from tests.attention import reference
from tests.attention.cases import (
    CUTS,
    ENGINES,
    MASKS,
    SCORES,
    SHAPES,
    SOME_SCORES,
    Shape,
    assert_near,
    cut,
    expected,
    gradients,
    in_turn,
    tensors,
)

SHAPE = SHAPES["more-keys"]


# --------------------------------------------------------------------------------------------------------- empty rows

FULL = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)) < 0.8
FULL[..., 0] = True  # every row sees something
EMPTIED = torch.zeros(SHAPE[:3], dtype=torch.bool)
EMPTIED[0], EMPTIED[1, 1, 2:5], EMPTIED[2, :, 6] = True, True, True
FIRST_ROWS = torch.arange(7) < 3
BY_ROW = torch.tensor([[0] * 7, [4, 11, 0, 3, 0, 1, 2], [1, 0, 9, 5, 11, 2, 0]])


def minus_infinity(allowed):
    return torch.where(allowed, 0.25, -torch.inf)


# A mask that leaves rows with nothing, the same mask with something for them, and which rows these are.
EMPTYING = {
    "keep": (keep(FULL & ~EMPTIED[..., None]), keep(FULL), EMPTIED),
    "drop": (drop(~FULL | EMPTIED[..., None]), drop(~FULL), EMPTIED),
    "bias": (bias(minus_infinity(FULL & ~EMPTIED[..., None])), bias(minus_infinity(FULL)), EMPTIED),
    "keep rows": (keep(~EMPTIED[2, 0, :, None]), keep(torch.ones(7, 1).bool()), EMPTIED[2, 0].expand(3, 2, 7)),
    "lengths": (
        lengths([0, 11, 4]),
        lengths([3, 11, 4]),
        torch.tensor([1, 0, 0]).bool()[:, None, None].expand(3, 2, 7),
    ),
    "lengths by row": (lengths(BY_ROW), lengths(BY_ROW.clamp(min=1)), (BY_ROW == 0)[:, None].expand(3, 2, 7)),
    "causal": (causal(-3), None, FIRST_ROWS.expand(3, 2, 7)),
    "both": (lengths([0, 11, 4]) & causal(-1), None, reference.dense((3, 2, 7), lambda b, h, i: b == 0 or i == 0)),
}


@pytest.mark.parametrize(("score", "mask", "size"), in_turn(SCORES, EMPTYING, list(CUTS), often=SOME_SCORES))
def test_empty_rows_are_exactly_zero(monkeypatch, score, mask, size):
    cut(monkeypatch, size)
    case = SCORES[score]
    module, (mask, fuller, empty) = case.build(torch.float32), EMPTYING[mask]
    inputs = tensors(case, SHAPE, torch.float32, grad=True)
    for name, engine in ENGINES.items():
        output = engine(*inputs, score=module, mask=mask)
        assert (output[empty] == 0).all(), name
        assert output.isfinite().all(), name
        slopes = gradients(output, [*inputs, *module.parameters()])
        assert all(slope.isfinite().all() for slope in slopes), name
        assert (slopes[0][empty] == 0).all(), name
        if fuller is not None:
            assert torch.equal(output[~empty], engine(*inputs, score=module, mask=fuller)[~empty]), name
    assert (weights(*inputs[:2], score=module, mask=mask)[empty] == 0).all()


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", [name for name, case in SCORES.items() if case.kernel])
def test_rows_out_of_every_kernels_reach(monkeypatch, score, size):
    """A compact kernel empties rows by itself."""
    cut(monkeypatch, size)
    case = SCORES[score]
    module, inputs = case.build(torch.float32), tensors(case, SHAPE, torch.float32)
    inputs[0][1, 0, 3] = 1e4
    for tensor in inputs:
        tensor.requires_grad_()
    unlimited = any(name in score for name in ("gaussian", "laplace", "constant"))
    for engine in ENGINES.values():
        output = engine(*inputs, score=module)
        assert bool((output[1, 0, 3] == 0).all()) != unlimited
        assert all(slope.isfinite().all() for slope in gradients(output, [*inputs, *module.parameters()]))


def test_an_empty_row_stays_zero_whatever_asks():
    """Even a query of NaN gets 0 where it may attend to nothing, and nothing of it reaches the keys."""
    for score in SOME_SCORES:
        case = SCORES[score]
        module, inputs = case.build(torch.float32), tensors(case, SHAPE, torch.float32)
        inputs[0][EMPTIED] = torch.nan
        for tensor in inputs:
            tensor.requires_grad_()
        for name, engine in ENGINES.items():
            output = engine(*inputs, score=module, mask=EMPTYING["keep"][0])
            assert (output[EMPTIED] == 0).all(), (score, name)
            slopes = gradients(output, [*inputs, *module.parameters()])
            assert all(slope.isfinite().all() for slope in slopes), (score, name)


# --------------------------------------------------------------------------------------------- what nobody may attend

POISONS = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf, "1e30": 1e30}


def hidden_keys(meaning, shape):
    """(batch, heads, m): True where no query may attend."""
    allowed = torch.ones(shape, dtype=torch.bool) if meaning.allowed is None else meaning.allowed
    if meaning.added is not None:
        allowed = allowed & (meaning.added.detach() != -torch.inf)
    return ~allowed.any(-2)


HIDING = [name for name, make in MASKS.items() if hidden_keys(make(SHAPE), SHAPE).any()]
# Keys that differ from one row of the mask to the next, but of which some are hidden from all.
COLUMNS = torch.tensor([3, 8, 9])


def spoilt(inputs, hidden, poison):
    query, key, value = inputs
    return query, *(tensor.masked_fill(hidden.unsqueeze(-1), poison) for tensor in (key, value))


def check_poison(monkeypatch, score, mask, size, poison):
    cut(monkeypatch, size)
    case = SCORES[score]
    hidden = hidden_keys(MASKS[mask](SHAPE), SHAPE)
    inputs = tensors(case, SHAPE, torch.float32)
    results = []
    for own in (inputs, spoilt(inputs, hidden, POISONS[poison])):
        module, meaning = case.build(torch.float32), MASKS[mask](SHAPE)
        own = [tensor.clone().requires_grad_() for tensor in own]
        results.append({"weights": weights(*own[:2], score=module, mask=meaning.mask)})
        for name, engine in ENGINES.items():
            output = engine(*own, score=module, mask=meaning.mask)
            slopes = gradients(output, [*own, *module.parameters(), *meaning.learned])
            results[-1] |= {f"{name}: output": output}
            results[-1] |= {f"{name}: gradient {place}": slope for place, slope in enumerate(slopes)}
    clean, poisoned = results
    for what, tensor in clean.items():
        assert tensor.isfinite().all(), what
        assert torch.equal(tensor, poisoned[what]), f"{what} changed"


def test_masks_of_every_kind_hide_keys():
    for kind in ("lengths", "keep", "drop", "bias", "causal", "window", "&", "|"):
        assert any(kind in name for name in HIDING) or kind in ("drop", "|")


POISON_WAYS = list(itertools.product(CUTS, POISONS))
OFTEN = ["dot", "additive", "custom"]


@pytest.mark.parametrize(("score", "mask", "way"), in_turn(SCORES, HIDING, POISON_WAYS, often=OFTEN))
def test_what_nobody_may_attend_changes_nothing(monkeypatch, score, mask, way):
    """Neither the output nor a gradient, to the last bit."""
    check_poison(monkeypatch, score, mask, *way)


@pytest.mark.faults
@pytest.mark.parametrize("score", SCORES)
def test_what_nobody_may_attend_changes_nothing_in_any_way(monkeypatch, score):
    for mask, way in itertools.product(HIDING, POISON_WAYS):
        with monkeypatch.context() as patch:
            check_poison(patch, score, mask, *way)


@pytest.mark.parametrize(("score", "poison"), list(zip(SOME_SCORES, itertools.cycle(POISONS), strict=False)))
def test_padding_changes_nothing_in_a_large_batch(score, poison):
    """Sizes as they come: ragged sequences with a call of their own, streamed pieces, two threads."""
    torch.set_num_threads(2)
    case, shape = SCORES[score], Shape(3, 2, 131, 257)
    module, inputs = case.build(torch.float32), tensors(case, shape, torch.float32)
    counts = [257, 11, 101]
    hidden = torch.arange(257) >= torch.tensor(counts)[:, None, None]
    results = []
    for own in (inputs, spoilt(inputs, hidden, POISONS[poison])):
        own = [tensor.clone().requires_grad_() for tensor in own]
        output = attend(*own, score=module, mask=lengths(counts) & causal(align="end"))
        results.append([output, *gradients(output, [*own, *module.parameters()])])
    assert all(torch.equal(clean, poisoned) for clean, poisoned in zip(*results, strict=True))


# ------------------------------------------------------------------------------------------ what may be attended to


def hurt(tensor, *place):
    tensor = tensor.clone()
    tensor[place] = torch.nan
    return tensor


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SCORES)
def test_a_nan_that_may_be_attended_is_not_hidden(monkeypatch, score, size):
    cut(monkeypatch, size)
    case = SCORES[score]
    module, (query, key, value) = case.build(torch.float32), tensors(case, SHAPE, torch.float32)
    mask = lengths([11, 4, 6])
    for name, engine in ENGINES.items():
        clean = engine(query, key, value, score=module, mask=mask)

        found = engine(hurt(query, 1, 0, 2, 3), key, value, score=module, mask=mask)
        assert found[1, 0, 2].isnan().all(), f"{name}: query"
        assert found.isnan().sum() == found.shape[-1], f"{name}: a query of NaN reaches its own row only"
        found[1, 0, 2] = clean[1, 0, 2]
        assert_near(found, clean, 1e-5, f"{name}: the other rows")

        found = engine(query, hurt(key, 1, 0, 2, 1), value, score=module, mask=mask)
        assert found[1, 0].isnan().all(), f"{name}: key"
        assert found.isnan().sum() == found[1, 0].numel(), name

        if score == "kernel-boxcar":  # may give weight 0 to that key, which is then not attended to
            continue
        found = engine(query, key, hurt(value, 1, 0, 2, 3), score=module, mask=mask)
        seen = weights(query, key, score=module, mask=mask)[1, 0, :, 2] > 0
        assert torch.equal(found[1, 0, :, 3].isnan(), seen), f"{name}: value"
        assert found.isnan().sum() == seen.sum(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 31, 64, 67, 513, 519, 1031])
def test_a_nan_query_at_any_number_of_keys(m, dtype):
    """PyTorch's fused attention on the CPU turns a query of NaN into 0, for some numbers of keys (7 in float32)."""
    query, key, value = (torch.randn(2, 3, rows, 4, dtype=dtype) for rows in (5, m, m))
    query[1, 2, 3, 0] = torch.nan
    for mask in (None, causal(align="end"), lengths([m, m]), keep(torch.ones(1, m).bool()), bias(torch.zeros(5, m))):
        for score in (Dot(), Kernel(), Dot(softcap=3.0)):
            for engine in ENGINES.values():
                output = engine(query, key, value, mask=mask, score=score)
                if mask is not None and "causal" in repr(mask) and 3 + m - 5 < 0:
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
    for engine in ENGINES.values():
        output = engine(query, key, value, mask=bias(added))
        assert output[3].isnan().all()
        assert output[[0, 1, 2, 4]].isfinite().all()
    assert masked_softmax(torch.zeros(5, m), bias(added))[3].isnan().any()


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("score", SCORES)
def test_the_future_does_not_reach_the_past(monkeypatch, score, size):
    """NaN in keys and values from position 4 on: the rows before it, which may not see them, stay as they are."""
    cut(monkeypatch, size)
    case, shape = SCORES[score], SHAPES["square"]
    module, (query, key, value) = case.build(torch.float32), tensors(case, shape, torch.float32)
    late_key, late_value = key.clone(), value.clone()
    late_key[..., 4:, :], late_value[..., 4:, :] = torch.nan, torch.nan
    for name, engine in ENGINES.items():
        clean = engine(query, key, value, score=module, mask=causal())
        for own_key, own_value in ((late_key, value), (key, late_value), (late_key, late_value)):
            found = engine(query, own_key, own_value, score=module, mask=causal())
            assert_near(found[..., :4, :], clean[..., :4, :], 1e-6, name)
            seen = weights(query, key, score=module, mask=causal())[..., 4:, 4:].sum(-1) > 0
            assert found[..., 4:, :].isnan()[seen].all(), name


# ------------------------------------------------------------------------------------------------------ half precision

HALF = {torch.float16: (3e-3, 2e-2), torch.bfloat16: (3e-2, 1e-1)}


HALF_MASKS = ["none", "lengths", "causal-end", "keep", "bias-learned"]
HALF_WAYS = list(itertools.product(HALF, CUTS))


@pytest.mark.parametrize(("score", "mask", "way"), in_turn(SCORES, HALF_MASKS, HALF_WAYS, often=SOME_SCORES))
def test_half_precision_is_close_to_full(monkeypatch, score, mask, way):
    dtype, size = way
    cut(monkeypatch, size)
    forward, backward = HALF[dtype]
    case = SCORES[score]
    module, meaning = case.build(dtype), MASKS[mask](SHAPE)
    inputs = tensors(case, SHAPE, dtype, grad=True)
    own = [*inputs, *module.parameters(), *meaning.learned]
    right = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact = case.build(dtype).double()  # the same rounded parameters
    output, _ = expected(case, exact, *right, meaning)
    slopes = gradients(output, [*right, *exact.parameters(), *meaning.learned])
    for name, engine in ENGINES.items():
        found = engine(*inputs, score=module, mask=meaning.mask)
        assert found.dtype == dtype
        assert_near(found, output, forward, name)
        if found.requires_grad:
            for slope, wanted in zip(gradients(found, own), slopes, strict=True):
                assert_near(slope, wanted, backward, f"{name}: gradient")


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("score", ["dot", "additive", "kernel-laplace"])
def test_half_precision_adds_up_in_full(score, dtype):
    """4,099 equal keys: in bfloat16 a sum of ones stops at 256, and 1/4,099 loses its digits in float16."""
    case = SCORES[score]
    module = case.build(dtype)
    query, key = torch.ones(3, 5, dtype=dtype), torch.ones(4099, case.key_size, dtype=dtype)
    value = torch.full((4099, 2), 3.0, dtype=dtype)
    for engine in ENGINES.values():
        assert_near(engine(query, key, value, score=module), torch.full((3, 2), 3.0), HALF[dtype][0] / 3)

"""What may not be seen does no harm: rows that see nothing, and NaN, inf and 1e30 in keys that nobody sees."""

import math

import pytest
import torch
from torch import Tensor

import regard
from tests.faults import campaign
from tests.faults.cases import Case, Draw, dense_shape, draw_case, spread
from tests.faults.test_numbers import with_gradients


def outcomes(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The output by each of the ways through `attend`, and the gradients."""
    with torch.no_grad():
        ways = {"attend": case.attend()}
        ways["attend, weights"], ways["weights"] = case.attend(need_weights=True)
    upstream = torch.ones_like(ways["attend"])
    ways["attend, weights, gradients"], found = with_gradients(case, upstream, need_weights=True)
    ways["attend, gradients"], more = with_gradients(case, upstream, need_weights=False)
    return ways, found | {f"{name}, streamed": gradient for name, gradient in more.items()}


# ---------------------------------------------------------------------------------------------------------- empty rows


def emptied(case: Case, draw: Draw) -> tuple[Case, Case, Tensor]:
    """The case with one more mask, the same with a mask that also hides everything from some rows, and which rows."""
    *batch, n, m = case.allowed.shape
    ways = ["keep", "drop", "bias", "lengths"] if batch else ["keep", "drop", "bias"]
    way = draw.choice(ways)
    if way == "lengths":
        counts = draw.integers(min(m, 1), m + 1, (batch[0], n))
        gone = draw.booleans((batch[0], n), 0.3)
        masks = regard.lengths(counts), regard.lengths(counts.masked_fill(gone, 0))
        rows = gone.reshape(batch[0], *[1] * (len(batch) - 1), n)
    else:
        shape = (*dense_shape(draw, tuple(batch), n, m)[:-2], n, m)
        shown, rows = draw.booleans(shape, 0.8), draw.booleans(shape[:-1], 0.3)
        wrap = {
            "keep": regard.keep,
            "drop": lambda seen: regard.drop(~seen),
            "bias": lambda seen: regard.bias(torch.zeros(shape, dtype=case.query.dtype).masked_fill(~seen, -math.inf)),
        }[way]
        masks = wrap(shown), wrap(shown & ~rows[..., None])
    before, after = (
        Case(case.query, case.key, case.value, case.score, [*case.masks, mask], case.allowed, case.bias)
        for mask in masks
    )
    after.mask_names = [*case.mask_names, f"rows emptied by {way}"]
    return before, after, rows.expand(*batch, n)


def check_empty_rows(seed: int) -> None:
    """Rows that see nothing give exactly 0 and finite gradients, and no other row changes by a bit."""
    draw = Draw(seed)
    before, after, rows = emptied(draw_case(seed), draw)
    with_them, _ = outcomes(before)
    without, found = outcomes(after)
    for way, output in without.items():
        assert not output[rows].any(), f"{after}: {way}: an empty row is not 0"
        assert torch.equal(output[~rows], with_them[way][~rows]), f"{after}: {way}: another row changed"
    for name, gradient in found.items():
        assert gradient.isfinite().all(), f"{after}: gradient of {name}"


# ------------------------------------------------------------------------------------------------------------- padding


def unseen(case: Case, rows: Tensor) -> Tensor:
    """Which of these keys or values (…, m, size) no query may attend, (…, m, 1)."""
    allowed = case.allowed if case.bias is None else case.allowed & (case.bias != -math.inf)
    seen = allowed.any(-2)  # (*batch, m)
    lead = rows.shape[:-2]
    if lead and spread(rows, case.heads).shape != rows.shape:  # grouped heads: whoever of the group sees it
        seen = seen.unflatten(-2, (lead[-1], -1)).any(-2)
    return seen.double().sum_to_size(*lead, rows.shape[-2]).unsqueeze(-1) == 0


def check_padding(seed: int) -> None:
    """Whatever stands in keys and values that nobody may attend, the output and the gradients are the same bits."""
    draw, case = Draw(seed), draw_case(seed)
    *batch, _, m = case.allowed.shape
    if batch and draw.chance(0.7):
        counts = draw.integers(0, m + 1, (batch[0],))
        case.masks.append(regard.lengths(counts))
        shown = torch.arange(m) < counts.reshape(-1, *[1] * len(batch), 1)
    else:
        shown = draw.booleans((1, m), 0.7)
        case.masks.append(regard.keep(shown))
    case.allowed = case.allowed & shown
    clean, clean_gradients = outcomes(case)
    for name in ("key", "value"):
        rows = getattr(case, name)
        poison = torch.tensor(draw.choice([math.nan, math.inf, -math.inf, 1e30, -1e30])).to(rows.dtype)
        setattr(case, name, rows.clone().masked_fill_(unseen(case, rows), poison))  # with the strides that it had
    case.mask_names.append("poisoned padding")
    poisoned, gradients = outcomes(case)
    for way, output in poisoned.items():
        assert torch.equal(output, clean[way]), f"{case}: {way}: padding leaks"
    for name, gradient in gradients.items():
        assert torch.equal(gradient, clean_gradients[name]), f"{case}: padding leaks into the gradient of {name}"


def test_empty_rows():
    campaign.run(check_empty_rows, range(100))


def test_padding():
    campaign.run(check_padding, range(100))


@pytest.mark.faults
def test_empty_rows_whole():
    campaign.run(check_empty_rows, range(2_000))


@pytest.mark.faults
def test_padding_whole():
    campaign.run(check_padding, range(2_000))

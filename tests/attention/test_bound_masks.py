"""Masks that are bound to the shapes of a call: what they remember, and that they ask for no numbers while traced."""

import copy
import pickle

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from regard import attend, bias, causal, drop, keep, lengths, segments, weights, window
from regard.attention.layout import Layout, Tile, check_layout
from tests.attention.meanings import MASKS, Shape

SHAPE = Shape(3, 2, 5, 7)
RESTRICTING = [name for name in MASKS if name != "none"]


def layout_of(shape=SHAPE, device="cpu"):
    return check_layout(*(torch.zeros(*shape[:2], rows, 4, device=device) for rows in shape[2:]))


def restrictions(query, key, mask, *, remembered=False):
    """What is allowed and what is added, in full, as (B, R, n, m)."""
    *batch, n, _ = query.shape
    layout = Layout(tuple(batch), n, key.shape[-2], query.shape[-3] // key.shape[-3], query.device)
    bound = mask.bound(layout) if remembered else mask.bind(layout)
    whole = Tile.whole(layout.folded[0], layout.n, layout.m)
    scores = query.new_zeros(*layout.folded, layout.n, layout.m)
    allowed, added = bound.allowed(whole), bound.bias(whole)
    return (
        torch.ones_like(scores) > 0 if allowed is None else allowed.expand_as(scores),
        scores if added is None else added.expand_as(scores),
    )


def same(left, right):
    return all(torch.equal(*pair) for pair in zip(left, right, strict=True))


# ---------------------------------------------------------------------------------------------------------- remembered


@pytest.mark.parametrize("name", RESTRICTING)
def test_the_same_shapes_are_bound_once(name):
    meaning = MASKS[name](SHAPE)
    again = meaning.mask.bound(layout_of()) is meaning.mask.bound(layout_of())
    assert again == (not meaning.learned and "visible" not in name)
    other = Shape(SHAPE.batch, SHAPE.heads, 7, 7)
    if "segments" not in name and not any(word in name for word in ("keep", "drop", "bias", "by-row", "learned")):
        assert meaning.mask.bound(layout_of(other)) is not meaning.mask.bound(layout_of())


CHANGES = {
    "lengths": (lengths, torch.tensor([7, 0, 3])),
    "lengths by row": (lengths, torch.arange(15).reshape(3, 5) % 8),
    "keep": (keep, torch.arange(35).reshape(5, 7) % 3 > 0),
    "drop": (drop, torch.arange(105).reshape(3, 1, 5, 7) % 3 > 0),
    "bias": (bias, torch.arange(35.0).reshape(5, 7)),
    "a join": (lambda counts: causal(1) & lengths(counts), torch.tensor([7, 0, 3])),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("group", [1, 2])
def test_a_tensor_that_changes_is_noticed(name, group):
    """Also where the folded form of the tensor is a copy."""
    make, tensor = CHANGES[name]
    tensor = tensor.clone()
    query, key = torch.zeros(3, 4, 5, 4), torch.zeros(3, 4 // group, 7, 4)
    mask = make(tensor)
    restrictions(query, key, mask, remembered=True)
    for change in (lambda: tensor.copy_(tensor.flip(0)), lambda: setattr(tensor, "data", tensor.roll(1, 0).clone())):
        change()
        assert same(restrictions(query, key, mask, remembered=True), restrictions(query, key, make(tensor.clone())))
    if tensor.is_floating_point():
        tensor[0, 0] = -torch.inf
        assert same(restrictions(query, key, mask, remembered=True), restrictions(query, key, make(tensor.clone())))


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_version_counts_is_noticed(name):
    make, tensor = CHANGES[name]
    tensor, rows = tensor.clone(), torch.arange(3 * 4 * 7 * 4).reshape(3, 4, 7, 4) / 99
    mask, query = make(tensor), rows[:, :, :5]
    for change in (
        lambda: tensor.data.copy_(tensor.flip(0)),
        lambda: torch.from_dlpack(tensor.view(torch.uint8)).copy_(tensor.roll(1, 0).view(torch.uint8)),
    ):
        attend(query, rows, rows, mask=mask)
        change()
        assert torch.equal(attend(query, rows, rows, mask=mask), attend(query, rows, rows, mask=make(tensor.clone())))


def test_a_mask_that_is_learned_is_bound_anew():
    added = torch.zeros(5, 7, requires_grad=True)
    mask = bias(added)
    for _ in range(2):
        (grad,) = torch.autograd.grad(mask.bound(layout_of()).bias(Tile.whole(3, 5, 7)).sum(), added)
        assert grad.sum() == 35  # one bias for all of the batch
    assert mask.bound(layout_of()).learned
    added.requires_grad_(False)
    assert mask.bound(layout_of()) is mask.bound(layout_of())
    assert not mask.bound(layout_of()).learned


def test_what_is_remembered_in_inference_mode_is_not_trained_with():
    allowed = torch.arange(35).reshape(5, 7) % 3 > 0
    mask = keep(allowed.expand(3, 4, 5, 7))  # grouped heads make a copy, an inference tensor there
    query, key = torch.zeros(3, 4, 5, 4), torch.zeros(3, 2, 7, 4)
    with torch.inference_mode():
        inference = mask.bound(check_layout(query, key))
        made_there = keep(torch.ones(5, 7) > 0)
        made_there.bound(layout_of())
    assert mask.bound(check_layout(query, key)) is not inference
    assert not any(tensor.is_inference() for tensor in mask.bound(check_layout(query, key)).tensors)
    with torch.inference_mode():
        made_there.tensor.zero_()  # which nothing counts
        assert not made_there.bound(layout_of()).allowed(Tile.whole(3, 5, 7)).any()


def test_copies_do_not_carry_what_is_remembered():
    mask = lengths([7, 0, 3]) & causal(1)
    fresh = len(pickle.dumps(mask))
    bound = mask.bound(layout_of())
    assert len(pickle.dumps(mask)) == fresh
    assert copy.deepcopy(mask).bound(layout_of()) is not bound


def test_chosen_rows_and_heads_are_not_taken_for_all():
    query, key = torch.zeros(3, 2, 5, 4), torch.zeros(3, 2, 7, 4)
    mask = lengths(torch.arange(15).reshape(3, 5) % 8) & keep(torch.arange(70).reshape(2, 5, 7) % 3 > 0)
    full = weights(query, key, mask=mask)
    for rows, heads in (([3, 1], None), ([0, 1], [1]), (None, [1]), ([3, 1], [1, 0])):
        chosen = full if rows is None else full[:, :, rows]
        chosen = chosen if heads is None else chosen[:, heads]
        assert torch.equal(weights(query, key, mask=mask, rows=rows, heads=heads), chosen)


def test_tensors_are_what_a_mask_reads():
    mask = lengths([7, 0, 3]) & keep(torch.ones(5, 7) > 0) & bias(torch.ones(1, 7)) & causal(1)
    bound = mask.bind(layout_of())
    assert [tensor.dtype for tensor in bound.tensors] == [torch.int64, torch.bool, torch.float32]
    assert [tuple(tensor.shape) for tensor in bound.tensors] == [(3, 1, 1, 1), (1, 1, 5, 7), (1, 1, 1, 7)]
    assert window(1, 1, 0).bind(layout_of()).tensors == ()
    assert [tensor.tolist() for tensor in segments([2, 3], [3, 4]).bind(layout_of()).tensors] == [
        [[[2, 5]]],
        [[[3, 7]]],
    ]


# -------------------------------------------------------------------------------------------------------------- traced


# One of each kind: it is the compiler that takes the time.
COMPILED = [
    "lengths-by-row",
    "segments",
    "keep",
    "bias-holes",
    "window",
    "alibi-learned",
    "relative-t5-learned",
    "visible-by_sequence",
    "~segments-ragged&causal",
    "drop&window&learned",
    "(lengths|keep)&causal",
]


@pytest.mark.parametrize("name", COMPILED)
def test_one_graph_serves_all_shapes(name):
    """Compiled without a break, with sizes that are left open."""
    torch._dynamo.reset()
    graphs = CompileCounter()
    compiled = torch.compile(restrictions, fullgraph=True, backend=graphs, dynamic=True)
    for shape in (Shape(11, 2, 29, 19), Shape(13, 3, 31, 23)):
        mask = MASKS[name](shape).mask
        rows = [torch.zeros(*shape[:2], size, 17) for size in shape[2:]]
        assert same(compiled(*rows, mask), restrictions(*rows, mask))
    assert graphs.frame_count == 1


def test_masks_are_made_while_compiling():
    def make(query, key, counts, allowed):
        mask = lengths(counts) & segments(counts[:, None], counts[:, None] + 2) & causal(2) & keep(allowed)
        return restrictions(query, key, mask, remembered=True)

    arguments = torch.zeros(3, 2, 5, 4), torch.zeros(3, 2, 7, 4), torch.tensor([5, 0, 3]), torch.rand(5, 7) < 0.5
    assert same(torch.compile(make, fullgraph=True, backend="eager", dynamic=True)(*arguments), make(*arguments))


@pytest.mark.parametrize("name", RESTRICTING)
def test_shapes_alone_are_enough(name):
    """A fake tensor has no value to be asked for."""
    mask = MASKS[name](SHAPE).mask
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:  # a global that a function reads is not copied
        with FakeCopyMode(mode):
            fake = copy.deepcopy(mask)
        allowed, added = restrictions(*(torch.zeros(*SHAPE[:2], rows, 4) for rows in SHAPE[2:]), fake, remembered=True)
    assert allowed.shape == added.shape == SHAPE
    assert allowed.dtype == torch.bool


@pytest.mark.parametrize("name", RESTRICTING)
def test_masks_under_vmap_are_the_same(name):
    mask = MASKS[name](SHAPE).mask
    rows = [torch.zeros(2, *SHAPE[:2], size, 4) for size in SHAPE[2:]]
    expected = restrictions(rows[0][0], rows[1][0], mask)
    mapped = torch.vmap(lambda query, key: restrictions(query, key, mask, remembered=True))(*rows)
    assert same([part[1] for part in mapped], expected)
    assert same(restrictions(rows[0][0], rows[1][0], mask, remembered=True), expected)  # nothing of it is remembered

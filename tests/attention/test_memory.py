"""What the paths keep and make on the way: nothing as large as the scores."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from regard.attention import additive, attend, tiling, weights
from tests.attention.cases import CUTS, Case, cut, in_turn, table_case
from tests.attention.meanings import MASKS, Shape


class Allocations(TorchDispatchMode):
    """The sizes of all tensors that are made while it is on, and which of them are still there."""

    def __init__(self, *known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.made = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.known:
                    elements = storage.nbytes() // max(1, tensor.element_size())
                    self.made.append((elements, StorageWeakRef(storage), str(function)))
        return result

    def largest(self):
        return max(((elements, name) for elements, _, name in self.made), default=(0, ""))

    def largest_kept(self):
        return max(((elements, name) for elements, ref, name in self.made if not ref.expired()), default=(0, ""))


def callers(case: Case):
    """The tensors that are the caller's, those that the mask was made of among them."""
    mask = case.meaning.mask
    return [*case.leaves.values(), *(() if mask is None else mask.sources or ())]


def kept_and_made(score, mask, shape, **options):
    """The largest tensor that is kept for the backward pass, and the largest made at any time, with their makers."""
    case = table_case(score, mask, shape, grad=True)
    with Allocations(*callers(case)) as allocations:
        output = case.attend(**options)
        kept = allocations.largest_kept()
        slopes = torch.autograd.grad(output.sum(), list(case.leaves.values()), allow_unused=True)
    del output, slopes
    return kept, allocations.largest()


@pytest.mark.parametrize("size", CUTS)
def test_the_measure_itself_sees_what_it_should(monkeypatch, size):
    """With weights, (n × m) is kept; the textbook formula keeps (n × m × hidden)."""
    cut(monkeypatch, size)
    inputs = table_case("dot", "none", Shape(2, 1, 61, 67), grad=True).inputs
    with Allocations(*inputs) as allocations:
        outputs = attend(*inputs, need_weights=True)
        assert allocations.largest_kept()[0] >= 61 * 67
    del outputs
    query, key = inputs[0][..., :3].detach().requires_grad_(), inputs[1][..., :3].detach().requires_grad_()
    with Allocations(query, key) as allocations:
        scores = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)).sum(-1)
        assert allocations.largest_kept()[0] >= 61 * 67 * 3
    del scores
    assert allocations.largest()[0] >= 61 * 67 * 3


ECONOMICAL = ["dot", "dot-softcap", "cosine-learnable", "bilinear", "additive", "kernel-gaussian-learnable"]
ECONOMICAL += ["kernel-laplace", "kernel-tricube-learnable"]
SPARING = ["dot", "additive", "kernel-tricube-learnable"]
# The gradient of a learned bias is as large as the bias.
SLIM_MASKS = [name for name in MASKS if "learned" not in name and name != "bias&bias"] + ["bias-keys-learned"]


@pytest.mark.parametrize(("score", "mask", "dropout"), in_turn(ECONOMICAL, MASKS, [0.0, 0.0, 0.2], often=SPARING))
def test_nothing_as_large_as_the_scores_is_kept(score, mask, dropout):
    """With need_weights=False, at any size; a small problem may make (n × m), but must not keep it."""
    (kept, maker), _ = kept_and_made(score, mask, Shape(2, 1, 31, 61), dropout=dropout)
    assert kept < 31 * 61, f"{maker} keeps {kept} elements"


@pytest.mark.parametrize(("score", "mask", "dropout"), in_turn(ECONOMICAL, SLIM_MASKS, [0.0, 0.0, 0.2], often=SPARING))
def test_nothing_as_large_as_the_scores_is_ever_made(monkeypatch, score, mask, dropout):
    """Where (n × m) is far more than a tile may hold, no tensor comes near it, forward or backward."""
    for constant, number in {"STREAMED": 1 << 9, "MASKED_ROWS": 6, "DENSE": 1 << 9, "WORTH_A_CALL": 1 << 8}.items():
        monkeypatch.setattr(tiling, constant, number)
    monkeypatch.setattr(additive, "SMALL", 0)
    # 2,501 scores in a sequence, 512 in a tile, 1,586 values
    _, (made, maker) = kept_and_made(score, mask, Shape(2, 1, 41, 61), dropout=dropout)
    assert made <= 2048, f"{maker} makes {made} elements"


@pytest.mark.parametrize(("score", "mask"), [("dot", "keep"), ("additive", "none"), ("kernel-tricube", "causal-end")])
def test_nothing_as_large_as_the_scores_is_made_at_real_sizes(score, mask):
    shape = Shape(3, 1, 1999, 2003)  # 12 M scores, tiles of half a million, dense masks of 4 M
    (kept, keeper), (made, maker) = kept_and_made(score, mask, shape)
    assert kept <= 3 * 2003 * 16, f"{keeper} keeps {kept} elements"
    assert made <= (tiling.DENSE if mask == "keep" else tiling.STREAMED), f"{maker} makes {made} elements"


@pytest.mark.parametrize(
    "score", ["dot", "dot-scale", "cosine", "bilinear", "kernel-gaussian", "kernel-gaussian-learnable"]
)
@pytest.mark.parametrize("mask", ["none", "lengths", "causal-start", "lengths&causal"])
def test_causal_and_lengths_are_never_dense_on_the_fused_path(monkeypatch, score, mask):
    monkeypatch.setattr(tiling, "WORTH_A_CALL", 1)  # as sequences of ordinary size are
    shape = Shape(3, 1, 61, 61)
    _, (made, maker) = kept_and_made(score, mask, shape)
    assert made < 61 * 61, f"{maker} makes {made} elements"


@pytest.mark.parametrize("mask", ["lengths", "keep", "causal-end"])
@pytest.mark.parametrize("score", ["dot", "additive", "kernel-tricube"])
def test_weights_of_some_rows_cost_only_those(score, mask):
    case = table_case(score, mask, Shape(2, 1, 97, 151))
    with Allocations(*callers(case)) as allocations, torch.no_grad():
        weights(case.query, case.key, **case.options, rows=[5, 90])
    assert allocations.largest()[0] <= 2 * 2 * 151 * 13  # all scores would be 2 · 97 · 151, times 11 before the sum

"""What happens between the forward and the backward pass must not make gradients wrong without a word."""

import numpy
import pytest
import torch
from torch import nn

from regard import Additive, Dot, Kernel, Softmax, attend, bias, causal, keep, lengths
from tests.attention.cases import SOME_SCORES, Case, cut, gradients, table_case
from tests.attention.meanings import Shape

SHAPE = Shape(3, 2, 7, 11)
CHANGED_IN_PLACE = "modified by an inplace operation"


def gradients_or_refusal(output, leaves):
    """None where PyTorch says that something was changed in place."""
    try:
        return gradients(output, leaves)
    except RuntimeError as error:
        if CHANGED_IN_PLACE in str(error):
            return None
        raise


def right_or_refused(case: Case, tensor: torch.Tensor) -> bool:
    """Change the tensor after the forward pass: gradients are as if it had not been changed, or PyTorch refuses."""
    leaves = [leaf for leaf in case.leaves.values() if leaf.requires_grad]
    expected = gradients(case.attend(), leaves)
    output = case.attend()
    with torch.no_grad():
        tensor.copy_(~tensor if tensor.dtype == torch.bool else tensor * 2 + 1)
    found = gradients_or_refusal(output, leaves)
    return found is None or all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("mask", ["none", "causal-end", "keep", "bias-keys-learned", "lengths-by-row"])
@pytest.mark.parametrize("score", SOME_SCORES)
@pytest.mark.parametrize("changed", ["query", "key", "value", "score"])
def test_an_input_changed_in_place(monkeypatch, score, mask, changed):
    cut(monkeypatch, "small")
    case = table_case(score, mask, SHAPE, grad=True)
    tensors = [*case.score.parameters(), *case.score.buffers()] if changed == "score" else [case.leaves[changed]]
    for tensor in tensors:
        assert right_or_refused(case, tensor)


@pytest.mark.parametrize("score", [Dot(), Dot(softcap=2.0), Kernel("laplace", 2.0)])
def test_two_masks_in_one_buffer(score):
    rows = [torch.randn(2, 3, 41, 5, requires_grad=True) for _ in range(3)]
    buffer = torch.rand(41, 41) < 0.5
    first, second = buffer.clone(), torch.rand(41, 41) < 0.5
    expected = sum(attend(*rows, score=score, mask=keep(mask)) for mask in (first, second))
    wanted = gradients(expected, rows)
    outputs = [attend(*rows, score=score, mask=keep(buffer))]
    buffer.copy_(second)
    outputs.append(attend(*rows, score=score, mask=keep(buffer)))
    found = gradients_or_refusal(sum(outputs), rows)
    assert found is None or all(torch.allclose(*pair) for pair in zip(found, wanted, strict=True))


def test_a_mask_whose_memory_numpy_writes_into():
    """PyTorch does not count such changes: what the mask was must not be remembered."""
    rows, counts = [torch.randn(2, n, 4) for n in (5, 11, 11)], numpy.array([11, 3])
    allowed = numpy.arange(11) < counts[:, None, None]
    masks = lengths(torch.from_numpy(counts)), keep(torch.from_numpy(allowed))
    for mask in masks:
        attend(*rows, mask=mask)
    counts[1] = 7
    allowed[1] = numpy.arange(11) < 7
    for mask in masks:
        assert torch.equal(attend(*rows, mask=mask), attend(*rows, mask=lengths([11, 7])))


def test_a_sink_that_a_step_changed_is_noticed():
    rows = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    sink = nn.Parameter(torch.zeros(3))
    output = attend(*rows, normalizer=Softmax(sink=sink), mask=causal())
    with torch.no_grad():
        sink += 1
    found = gradients_or_refusal(output, rows)
    wanted = gradients(attend(*rows, normalizer=Softmax(sink=torch.zeros(3)), mask=causal()), rows)
    assert found is None or all(torch.allclose(*pair) for pair in zip(found, wanted, strict=True))


class WithLayer(nn.Module):
    """A score of the user's with a layer that has a state or draws random numbers."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, query, key):
        scores = query @ key.mT
        return self.layer(scores.reshape(-1, 1)).reshape(scores.shape)


def test_batch_norm_in_a_score_is_updated_once():
    score = WithLayer(nn.BatchNorm1d(1))
    rows = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    attend(*rows, score=score).sum().backward()
    assert score.layer.num_batches_tracked == 1


def test_dropout_in_a_score_is_the_same_backward_also_after_eval():
    rows = [torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    score, slopes = WithLayer(nn.Dropout(0.4)).double(), []
    for toggled in (False, True):
        torch.manual_seed(3)
        score.train()
        output = attend(*rows, score=score)
        score.train(not toggled)
        slopes.append(gradients(output, rows))
    torch.manual_seed(3)
    slopes.append(gradients(attend(*rows, score=score.train(), need_weights=True)[0], rows))
    assert all(torch.allclose(a, b) and torch.allclose(a, c) for a, b, c in zip(*slopes, strict=True))


def test_what_a_score_captures_gets_its_gradient_once():
    """Also where one of two captured tensors depends on the other."""
    rows = [torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    source = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    class Captures(nn.Module):
        def forward(self, query, key):
            return (query @ key.mT) * doubled + source

    slopes = []
    for need_weights in (False, True):
        doubled = source * 2
        output = attend(*rows, score=Captures(), mask=bias(source.expand(5, 5)), need_weights=need_weights)
        slopes.append(gradients(output[0] if need_weights else output, [source, *rows]))
    assert all(torch.allclose(*pair) for pair in zip(*slopes, strict=True))


@pytest.mark.parametrize("score", [Dot(), Dot(softcap=2.0), Kernel("laplace", 2.0), Additive(4, 4, 5)])
def test_a_nan_in_a_future_key_leaves_earlier_rows_finite(score):
    query, key, value = (torch.randn(1, 7, 4) for _ in range(3))
    key[0, 4] = torch.nan
    rows = [row.requires_grad_() for row in (query, key, value)]
    output = attend(*rows, score=score, mask=causal())
    slopes = torch.autograd.grad(output[:, :4].sum(), rows)
    assert all(slope[:, :4].isfinite().all() for slope in slopes)

"""What weights say, as numbers."""

import math

import pytest
import torch

from regard.attention import numbers


def rows(*given):
    return torch.tensor(given)[None, None]


EVEN, ONE, HALVES = [0.25] * 4, [0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 0.5]


def test_entropy_and_width():
    weights = rows(EVEN, ONE, HALVES, [0.0] * 4)
    torch.testing.assert_close(
        numbers.entropy(weights)[0, 0], torch.tensor([math.log(4), 0, math.log(2), 0], dtype=torch.float64)
    )
    torch.testing.assert_close(numbers.width(weights)[0, 0], torch.tensor([4.0, 1, 2, 0], dtype=torch.float64))


def test_intervals():
    low, high = numbers.interval(rows(EVEN, ONE, HALVES, [0.03, 0.94, 0.03, 0.0]))
    assert low[0, 0].tolist() == [0, 2, 0, 1]
    assert high[0, 0].tolist() == [3, 2, 3, 1]
    with pytest.raises(ValueError, match="share"):
        numbers.interval(rows(EVEN), 0)


def test_the_interval_is_that_of_the_regressor():
    import numpy

    import regard

    x = numpy.sort(numpy.random.default_rng(0).uniform(size=(17, 1)), 0)
    model = regard.KernelRegressor("gaussian", 0.1).fit(x, x[:, 0])
    window, weights = model.window(x), torch.from_numpy(model.weights(x))
    low, high = numbers.interval(weights)
    numpy.testing.assert_allclose(x[low.numpy(), 0], window.low)
    numpy.testing.assert_allclose(x[high.numpy(), 0], window.high)
    numpy.testing.assert_allclose(numbers.width(weights).numpy(), window.effective)


def test_distance_and_sink():
    weights = rows(EVEN, ONE, HALVES)
    assert numbers.distance(weights)[0, 0].tolist() == [1.5, 1, 1.5]
    assert numbers.distance(weights, [3, 2, 0])[0, 0].tolist() == [1.5, 0, 1.5]
    assert numbers.sink(weights)[0, 0].tolist() == [0.25, 0, 0.5]


def test_padding_does_not_count():
    weights = rows(EVEN, [0.0] * 4, ONE)
    assert numbers.mean_of_rows(numbers.width(weights), weights).tolist() == [2.5]


def test_similar_heads():
    one, other = torch.eye(3), torch.full((3, 3), 1 / 3)
    found = numbers.similarity(torch.stack([one, other, one])[None])
    torch.testing.assert_close(found[0], torch.tensor([1, 1 / 3, 1], dtype=torch.float64))
    torch.testing.assert_close(found, found.T)


def test_rollout():
    """Looking only at oneself passes nothing on; the layers multiply, the last one first."""
    eye = torch.eye(3).expand(2, 5, 3, 3)
    torch.testing.assert_close(numbers.rollout([eye, eye]), torch.eye(3, dtype=torch.float64).expand(2, 3, 3))
    first = torch.tensor([[0.0, 1.0], [1.0, 0.0]])[None, None]
    last = torch.tensor([[1.0, 0.0], [1.0, 0.0]])[None, None]
    expected = torch.tensor([[1.0, 0.0], [0.5, 0.5]]) @ torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    torch.testing.assert_close(numbers.rollout([first, last])[0], expected.double())
    assert numbers.rollout([torch.rand(1, 2, 7, 7).softmax(-1)]).sum(-1).allclose(torch.ones(1, 7).double())
    with pytest.raises(ValueError, match="one layer or more"):
        numbers.rollout([])
    with pytest.raises(ValueError, match=r"layers\[0\]: expected weights"):
        numbers.rollout([torch.ones(2, 3)])

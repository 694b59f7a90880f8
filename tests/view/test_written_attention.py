"""Attention written out in ways that people find: weights put into a matrix of zeros, dropout by hand, heads mixed."""

import pytest
import torch

import regard
from regard.view.capture import CaptureWarning
from tests.view.attending import Direct, captured, rows


class By(Direct):
    """Weights by a function of the scores. `change`: what is done to them, as an edit would."""

    def __init__(self, weigh):
        super().__init__()
        self.weigh, self.change = weigh, lambda weights: weights

    def forward(self, rows):
        query, key, value = self.project(rows)
        self.weights = self.change(self.weigh(query @ key.mT * 8**-0.5))
        return self.weights @ value


def damped(weights):
    return weights * torch.linspace(1, 0, weights.shape[-1])


def check(model, *, kind="self"):
    """That a capture shows the weights, and that an edit of them does what it says, with gradients and without."""
    model = model.eval()
    seen = captured(model, rows())
    assert [layer.kind for layer in seen] == [kind]
    assert not seen.unrecognised
    torch.testing.assert_close(seen[0].weights, model.weights)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            with regard.intervene(model) as edit:
                edit.set_weights(damped)
                output = model(rows())
            model.change = damped
            expected = model(rows())
            model.change = lambda weights: weights
        torch.testing.assert_close(output, expected)
        if gradients:
            pairs = [torch.autograd.grad(one.square().sum(), model.linear.weight)[0] for one in (output, expected)]
            torch.testing.assert_close(*pairs)


# ------------------------------------------------------------------------------------------- put into a matrix of zeros


def places(index):
    """The indices of the best keys of each query, of all four dimensions."""
    return (*torch.meshgrid(*map(torch.arange, index.shape[:3]), torch.arange(1), indexing="ij")[:3], index)


def assigned(zeros, index, best):
    zeros[places(index)] = best
    return zeros


PUT = {
    "scatter": lambda zeros, index, best: zeros.scatter(-1, index, best),
    "scatter_": lambda zeros, index, best: zeros.scatter_(-1, index, best),
    "scatter_add": lambda zeros, index, best: zeros.scatter_add(-1, index, best),
    "index_put": lambda zeros, index, best: zeros.index_put(places(index), best),
    "assigned": assigned,
}
ZEROS = {
    "zeros": lambda scores: torch.zeros(scores.shape),
    "zeros_like": torch.zeros_like,
    "new_zeros": lambda scores: scores.new_zeros(scores.shape),
}


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("put", PUT)
def test_weights_of_the_best_keys_that_are_put_into_a_matrix_of_zeros(put, zeros):
    def weigh(scores):
        best, index = scores.topk(3, -1)
        return PUT[put](ZEROS[zeros](scores), index, best.softmax(-1))

    check(By(weigh))


def test_the_best_weights_are_put_into_a_matrix_of_zeros():
    def weigh(scores):
        best, index = scores.softmax(-1).topk(3, -1)
        return torch.zeros_like(scores).scatter(-1, index, best / best.sum(-1, keepdim=True))

    check(By(weigh))


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("masked", [True, False])
def test_chosen_weights_are_put_into_a_matrix_of_zeros(zeros, masked):
    def weigh(scores):
        chosen, weights, made = scores > 0, scores.softmax(-1), ZEROS[zeros](scores)
        if masked:
            return made.masked_scatter(chosen, weights[chosen])
        made[chosen] = weights[chosen]
        return made

    check(By(weigh))


def test_weights_in_another_order_are_reported():
    def weigh(scores):
        ordered, index = scores.sort(-1)
        return ordered.softmax(-1).gather(-1, index.argsort(-1))

    with pytest.warns(CaptureWarning, match=r"By: softmax \(5, 3, 7, 7\)"):
        assert not captured(By(weigh), rows())

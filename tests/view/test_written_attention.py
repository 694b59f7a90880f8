"""Attention written out in ways that people find: weights put into a matrix of zeros, dropout by hand, heads mixed."""

import pytest
import torch
from torch import nn

import regard
from regard.view.capture import CaptureWarning
from tests.view.attending import HEADS, SIZE, Direct, captured, rows


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
            torch.testing.assert_close(*(gradients_of(model, one) for one in (output, expected)))


def gradients_of(model, output):
    gradients = torch.autograd.grad(output.square().sum(), [*model.parameters()], allow_unused=True)
    return [gradient for gradient in gradients if gradient is not None]


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


# ------------------------------------------------------------------------------------------------------ dropout by hand


def dropped_in_place(weights):
    weights = weights.clone()
    weights[torch.rand_like(weights) < 0.3] = 0
    return weights.div_(0.7)


FUTURE = torch.ones(7, 7).triu(1).bool()
DROPOUTS = {
    "functional": lambda weights: nn.functional.dropout(weights, 0.3),
    "rand_like": lambda weights: weights * (torch.rand_like(weights) > 0.3) / 0.7,
    "rand": lambda weights: weights * ((torch.rand(weights.shape) > 0.3).float() / 0.7),
    "bernoulli": lambda weights: weights * torch.bernoulli(torch.full_like(weights, 0.7)) / 0.7,
    "bernoulli_": lambda weights: weights * torch.empty_like(weights).bernoulli_(0.7) / 0.7,
    "distribution": lambda weights: weights * torch.distributions.Bernoulli(0.7).sample(weights.shape) * (1 / 0.7),
    "masked_fill": lambda weights: weights.masked_fill(torch.rand_like(weights) < 0.3, 0) / 0.7,
    "where": lambda weights: torch.where(torch.rand_like(weights) < 0.3, 0.0, weights) / 0.7,
    "keys": lambda weights: weights * (torch.rand(5, 1, 1, 7) > 0.3).expand_as(weights),
    "in place": dropped_in_place,
    "cast": lambda weights: nn.functional.dropout(weights, 0.3).double().float(),
    "normalised again": lambda weights: (kept := weights * (torch.rand_like(weights) > 0.3)) / kept.sum(-1, True),
}


@pytest.mark.parametrize("way", DROPOUTS)
def test_weights_are_those_before_dropout(way):
    class Dropped(By):
        def forward(self, rows):
            query, key, value = self.project(rows)
            self.weights = (query @ key.mT).softmax(-1)
            return DROPOUTS[way](self.weights) @ value

    model = Dropped(None)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), regard.capture(model) as seen:
            model(rows())
        torch.testing.assert_close(seen[0].weights, model.weights)


@pytest.mark.parametrize("mask", [lambda weights: weights * ~FUTURE, lambda weights: weights.masked_fill_(FUTURE, 0)])
def test_a_mask_after_dropout_is_seen(mask):
    class Masked(By):
        def forward(self, rows):
            query, key, value = self.project(rows)
            self.weights = (query @ key.mT).softmax(-1)
            return mask(nn.functional.dropout(self.weights, 0.3)) @ value

    model = Masked(None)
    with torch.no_grad(), regard.capture(model) as seen:
        model(rows())
    torch.testing.assert_close(seen[0].weights, model.weights * ~FUTURE)
    assert seen[0].kind == "causal"


# ------------------------------------------------------------------------------------------------------ heads in groups


class Grouped(By):
    """Two query heads for each key head, side by side in one product."""

    def __init__(self):
        super().__init__(None)
        self.query, self.both = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, rows):
        query = self.query(rows).unflatten(-1, (3, 2, 4))
        key, value = self.both(rows).unflatten(-1, (2, 3, 4)).unbind(2)
        weights = torch.einsum("bngrd,bmgd->bgrnm", query, key).softmax(-1)
        self.weights = self.change(weights).flatten(1, 2)
        return torch.einsum("bgrnm,bmgd->bngrd", self.weights.unflatten(1, (3, 2)), value)


class ValuesFirst(By):
    """Channels before positions, as convolutions have them, in projections that are split before the heads are."""

    def __init__(self):
        super().__init__(None)
        self.convolution = nn.Conv1d(SIZE, 3 * SIZE, 1)

    def forward(self, rows):
        parts = self.convolution(rows.mT).chunk(3, 1)
        query, key, value = (part.unflatten(1, (HEADS, -1)) for part in parts)  # (batch, heads, size, n)
        self.weights = self.change((query.mT @ key).softmax(-1))
        return value @ self.weights.mT


@pytest.mark.parametrize("make", [Grouped, ValuesFirst])
def test_values_whose_heads_are_not_those_of_the_weights(make):
    model = make()
    check(model)
    (layer,) = captured(model, rows(), chosen={"operands": True})
    torch.testing.assert_close(layer.weights @ layer.value, layer.output)


def test_what_cannot_be_understood_is_not_left_unedited(monkeypatch):
    def fail(*given):
        raise ValueError("no such axis")

    monkeypatch.setattr("regard.view.averages.Average.call", fail)
    model = By(lambda scores: scores.softmax(-1))
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), regard.intervene(model) as edit:
            edit.ablate(heads=1)
            with pytest.raises(RuntimeError, match="By: its attention is not understood: ValueError: no such axis"):
                model(rows())


def test_heads_without_edits_keep_their_outputs():
    """Bit for bit, and after dropout: weights that are edited are those before it, and are used as they are."""

    class Dropped(By):
        def forward(self, rows):
            query, key, value = self.project(rows)
            self.weights = (query @ key.mT).softmax(-1)
            return nn.functional.dropout(self.weights, 0.3) @ value

    model = Dropped(None)
    with torch.no_grad(), regard.intervene(model) as edit:
        edit.set_weights(torch.zeros_like, heads=1)
        torch.manual_seed(3)
        output = model(rows())
    torch.manual_seed(3)
    expected = model(rows())
    assert torch.equal(output[:, [0, 2]], expected[:, [0, 2]])
    assert not output[:, 1].any()


# ------------------------------------------------------------------------------------ other ways to weights, or to none


def sinkhorn(scores):
    for _ in range(3):
        scores = scores - scores.logsumexp(-1, keepdim=True)
        scores = scores - scores.logsumexp(-2, keepdim=True)
    return scores.exp()


WEIGHTS = {
    "exp2": lambda scores: (power := torch.exp2(scores)) / power.sum(-1, keepdim=True),
    "power": lambda scores: (power := 2.5**scores) / power.sum(-1, keepdim=True),
    "sinkhorn": sinkhorn,
    "log-sum-exp": lambda scores: (
        scores - (top := scores.amax(-1, True)) - (scores - top).exp().sum(-1, True).log()
    ).exp(),
}


@pytest.mark.parametrize("way", WEIGHTS)
def test_other_exponentials(way):
    check(By(WEIGHTS[way]))


def test_weights_of_distances():
    class Near(By):
        def forward(self, rows):
            query, key, value = self.project(rows)
            self.weights = self.change((-torch.cdist(query, key)).softmax(-1))
            return self.weights @ value

    check(Near(None))


class OneQuery(By):
    """A sequence without a batch, and one query, which is learned or that of the last place: products with vectors."""

    def __init__(self, learned):
        super().__init__(None)
        self.query = nn.Parameter(torch.randn(SIZE)) if learned else None

    def forward(self, rows):
        query, key, value = self.linear(rows[0]).split(SIZE, -1)
        weights = (key.tanh() @ (query[-1] if self.query is None else self.query)).softmax(-1)
        self.weights = self.change(weights[None, None, None])
        return value.mT @ self.weights.flatten()


@pytest.mark.parametrize("learned", [True, False])
def test_products_with_vectors(learned):
    check(OneQuery(learned))


class Mixing(By):
    """Heads that are mixed after the softmax, by a linear layer or a convolution; perhaps also before."""

    def __init__(self, convolution):
        super().__init__(None)
        self.mix = nn.Conv2d(HEADS, HEADS, 1) if convolution else nn.Linear(HEADS, HEADS)
        self.before = nn.Linear(HEADS, HEADS)

    def forward(self, rows):
        query, key, value = self.project(rows)
        if isinstance(self.mix, nn.Conv2d):
            return self.mix((query @ key.mT).softmax(-1)) @ value
        weights = self.before((query @ key.mT).permute(0, 2, 3, 1)).softmax(2)  # (batch, n, m, heads)
        return self.mix(weights).permute(0, 3, 1, 2) @ value


@pytest.mark.parametrize("convolution", [True, False])
def test_heads_that_are_mixed_are_reported(convolution):
    model = Mixing(convolution)
    with pytest.warns(CaptureWarning, match="Mixing: softmax .*combined with others"):
        assert not captured(model, rows())
    with torch.inference_mode(), pytest.warns(CaptureWarning, match="combined with others"), regard.capture(model):
        model(rows())


def test_products_of_features_are_not_reported():
    class Linear(By):
        def forward(self, rows):
            query, key, value = self.project(rows)
            return query.softmax(-1) @ ((nn.functional.elu(key) + 1).mT @ value)

    with pytest.warns(CaptureWarning, match="no attention was computed"):
        assert not captured(Linear(None), rows())


@pytest.mark.parametrize("way", ["rand_like", "bernoulli", "functional"])
def test_rows_after_dropout_are_of_the_same_sequence(way):
    class Dropped(By):
        def forward(self, rows):
            (query, _, _), (_, key, value) = self.project(rows), self.project(DROPOUTS[way](rows))
            return (query @ key.mT).softmax(-1) @ value

    inputs = rows()
    with torch.no_grad(), regard.capture(model := Dropped(None)) as seen:
        model(inputs)
    assert seen[0].kind == "self"


def test_a_mask_of_an_input_that_is_drawn_in_the_block_is_no_dropout():
    class Masked(By):
        def forward(self, rows):
            query, key, value = self.project(rows)
            self.weights = (query @ key.mT).softmax(-1) * (rows[..., 0] > 0)[:, None, None]
            return self.weights @ value

    with torch.no_grad(), regard.capture(model := Masked(None)) as seen:
        model(torch.randn(5, 7, SIZE))
    torch.testing.assert_close(seen[0].weights, model.weights)

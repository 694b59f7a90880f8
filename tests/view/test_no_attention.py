"""Nets that a capture must not take for attention, and attention that it does not understand and says so."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

import regard
from regard.view.capture import CaptureWarning
from tests.view.attending import HEADS, SIZE, Direct, rows


class Net(nn.Module):
    """A feed-forward net with a ReLU, whose second matrix averages nothing."""

    def __init__(self, change):
        super().__init__()
        self.one, self.two = nn.Linear(SIZE, 31), nn.Linear(31, SIZE)
        change(self)

    def forward(self, rows):
        return self.two(functional.relu(self.one(rows)))


class Plain(nn.Module):
    """The same, of matrices that are no parameters."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.randn(SIZE, 31), torch.randn(31, SIZE)

    def forward(self, rows):
        return (rows @ self.one).sigmoid() @ self.two


class Packed(nn.Module):
    """The same, of matrices that are packed: two whole numbers in a byte, of which one is taken out."""

    def __init__(self):
        super().__init__()
        for name, shape in (("one", (SIZE, 31)), ("two", (31, SIZE))):
            self.register_buffer(name, torch.randint(256, shape, dtype=torch.uint8))

    def forward(self, rows):
        one, two = (((packed >> 2) & 15).float() / 15 for packed in (self.one, self.two))
        return (rows @ one).sigmoid() @ two


def low_rank(net):
    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Parameter(torch.randn(31, 3)), nn.Parameter(torch.randn(3, SIZE))

        def forward(self, weight):
            return weight + self.left @ self.right

    torch.nn.utils.parametrize.register_parametrization(net.one, "weight", Added())


class Mixture(nn.Module):
    """Weights over the outputs of a matrix at every position at once, as if they were one long code book."""

    def __init__(self):
        super().__init__()
        self.gate, self.codes = nn.Linear(SIZE, 3), nn.Linear(SIZE, 3 * SIZE)

    def forward(self, rows):
        weights = self.gate(rows).flatten(1).softmax(-1)  # (batch, n · 3)
        return rows + (weights[:, None] @ self.codes(rows).reshape(len(rows), -1, SIZE))


class Norms(nn.Module):
    """Products of rows with each other, which average nothing."""

    def forward(self, rows):
        return rows * (rows @ rows.mT).diagonal(dim1=-2, dim2=-1)[..., None]


NETS = {
    "plain": lambda: Net(lambda net: None),
    "no parameters": Plain,
    "packed": Packed,
    "weight norm": lambda: Net(lambda net: torch.nn.utils.parametrizations.weight_norm(net.one)),
    "spectral norm": lambda: Net(lambda net: torch.nn.utils.parametrizations.spectral_norm(net.two)),
    "low rank": lambda: Net(low_rank),
    "mixture": Mixture,
    "norms": Norms,
}


@pytest.mark.parametrize("functional_parameters", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_nets_are_no_attention(name, functional_parameters):
    model = nn.Sequential(Direct(), Flattened(), NETS[name]()).eval()
    parameters = {name: parameter.detach().clone() for name, parameter in model.state_dict().items()}

    def run():
        return torch.func.functional_call(model, parameters, rows()) if functional_parameters else model(rows())

    with torch.no_grad(), regard.capture(model) as captured:
        run()
    assert [(layer.name, layer.weights.shape[1]) for layer in captured] == [("0", HEADS)]
    assert not captured.unrecognised


class Flattened(nn.Module):
    def forward(self, heads):
        return heads.transpose(1, 2).flatten(2)


# --------------------------------------------------------------------------------------------- what is not understood


class Differential(Direct):
    """Averages by the difference of two softmaxes; perhaps after one by the first of them."""

    def __init__(self, alone):
        super().__init__()
        self.alone = alone

    def forward(self, rows):
        query, key, value = self.project(rows)
        one, two = (query @ key.mT).softmax(-1), (key @ query.mT).softmax(-1)
        before = one @ value if self.alone else 0
        return before + (one - two / 2) @ value


@pytest.mark.parametrize("alone", [True, False])
def test_weights_that_are_combined_are_reported_and_are_no_map(alone):
    """The layer keeps its number, so that those after it have theirs."""
    model = nn.Sequential(Direct(), Flattened(), Differential(alone), Flattened(), Direct()).eval()
    with torch.no_grad(), pytest.warns(CaptureWarning, match="combined with others"), regard.capture(model) as captured:
        model(rows())
    assert [(one.name, one.layer) for one in captured] == [("0", 0), ("4", 2)]
    assert {(one.name, one.reason) for one in captured.unrecognised} == {("2", "its weights are combined with others")}


@pytest.mark.parametrize("gradients", [True, False])
def test_edits_of_weights_that_are_combined_are_refused(gradients):
    """But for edits of other layers."""
    model = nn.Sequential(Direct(), Flattened(), Differential(False)).eval()
    with torch.set_grad_enabled(gradients):
        with regard.intervene(model) as edit:
            edit.scale(0.5, layers=0)
            model(rows())
        for layers in (None, 1, "2"):
            with pytest.raises(RuntimeError, match="2: this attention is not edited: its weights are combined"):
                scaled(model, layers)


def scaled(model, layers):
    with regard.intervene(model) as edit:
        edit.scale(0.5, layers).remove()
        edit.scale(0.5, layers)
        return model(rows())


class Compiled(nn.Module):
    """As torch.compile leaves a module: no mode sees what it computes."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, rows):
        with _disable_current_modes():
            return self._orig_mod(rows)


def test_edits_of_compiled_code_are_refused():
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"run the module inside it, \._orig_mod"):
        scaled(Compiled(Direct()), None)

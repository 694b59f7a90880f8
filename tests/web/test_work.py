"""An answer that is cut short, at whichever operation, leaves the models and the thread as they were."""

import json
import threading

import pytest
import torch
from torch.overrides import TorchFunctionMode

import regard
from regard.web.answers import ANSWERS
from regard.web.guard import Params
from regard.web.model_store import ModelStore
from regard.web.work import LimitError, Limits
from tests.web.serving import folders

TEXT = "the cat is on the mat"
QUESTIONS = {
    "text": {"model": "language", "text": TEXT},
    "next": {"display": 1, "cut": [[0, 1]]},
    "contributions": {"display": 1, "token": 3},
    "inside": {"display": 1, "layer": 1, "head": 2, "row": 3, "key": 2},
}
STRIDE = 7  # operations from one cut to the next


@pytest.fixture
def store(tmp_path):
    made = ModelStore([folder for folder in folders(tmp_path) if folder.name == "language"])
    ANSWERS["text"](made, Params(json.dumps(QUESTIONS["text"]).encode()))  # display 1
    return made


class Counter(TorchFunctionMode):
    """Sets an event at the operation of this number."""

    def __init__(self, event, number):
        super().__init__()
        self.event, self.left = event, number

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.left -= 1
        if self.left == 0:
            self.event.set()
        return func(*args, **(kwargs or {}))


def state(model):
    """Everything of a model that an answer might leave changed."""
    modules = list(model.modules())
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in modules]
    return [module.training for module in modules], hooks, [p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_cut_short_leaves_all_as_it_was(store, name):
    model, body = store.model("language"), json.dumps(QUESTIONS[name]).encode()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    before, whole = state(model), answer_of(store, name, body)
    stop, number = threading.Event(), 0
    while True:
        number += STRIDE
        stop.clear()
        for kept in store.displays.values():
            kept.logits.clear()
        try:
            with Limits(stop), Counter(stop, number):
                ANSWERS[name](store, Params(body))
            break
        except LimitError:
            pass
        assert torch.is_grad_enabled(), number
        assert not torch.is_inference_mode_enabled(), number
        assert state(model) == before, number
        assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0, number
    assert number > 5 * STRIDE  # it was cut at several places
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert answer_of(store, name, body) == whole


def answer_of(store, name, body):
    answer = ANSWERS[name](store, Params(body))
    return {key: value for key, value in answer.items() if key != "display"}  # which is counted


@pytest.mark.parametrize("operation", [lambda x: x + 1, lambda x: x.__setitem__(0, 1.0)])
def test_whatever_computes_ends_and_what_sets_a_state_does_not(operation):
    stop, x = threading.Event(), torch.zeros(3)
    stop.set()
    with Limits(stop):
        torch.set_grad_enabled(False)
        torch.set_grad_enabled(True)
        with pytest.raises(LimitError):
            operation(x)


def test_a_recurrent_net_is_one_operation_and_is_ended_within_it():
    looks = []

    class Counting(Limits):
        def check(self):
            looks.append(None)

    net = torch.nn.GRU(3, 5)
    with pytest.warns(match="no attention"), Counting(threading.Event()), regard.capture(net):
        net(torch.randn(101, 2, 3))
    assert len(looks) > 101

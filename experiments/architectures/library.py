"""The models of the library transformers: small, of random weights, with what they attend to.

The oracle is the same model with eager attention: all weights that its modules return then.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from experiments.architectures.campaign import Architecture, Layer, Subject, related, seeded, tensors

transformers.logging.set_verbosity_error()
Inputs = Mapping[str, Any]
Oracle = Callable[[nn.Module, Inputs], Sequence[Layer]]


def numbers(*shape: int, seed: int = 3) -> Tensor:
    """Random numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ids(batch: int, n: int, vocabulary: int = 97, seed: int = 1) -> Tensor:
    """Random ids of tokens that mean nothing special."""
    return torch.randint(11, vocabulary, (batch, n), generator=torch.Generator().manual_seed(seed))


def family(
    name: str,
    kind: str,
    model: str,
    config: Mapping[str, Any],
    inputs: Inputs,
    *,
    ways: Sequence[str] = ("", "eager"),
    unknown: Sequence[str] = (),
    scores: str = "none",
    expected: str = "right",
    gradients: bool = True,
    fast: bool = False,
) -> Architecture:
    """A row: the name of the model's class, options of its configuration, inputs.

    ways: to attend, which are all tried; "" is the model's choice
    unknown: paths of modules (* stands for anything) that attend without a matrix of n × m weights
    scores: paths of modules that return what they take the softmax of
    """
    oracle = (lambda model, inputs: []) if expected == "not attention" else partial(returned, unknown, scores)
    subjects = partial(_subjects, model, config, inputs, ways, oracle, gradients)
    return Architecture(name, kind, subjects, expected, fast)


def _subjects(
    name: str, options: Mapping[str, Any], inputs: Inputs, ways: Sequence[str], oracle: Oracle, gradients: bool
) -> dict[str, Subject]:
    eager = make(name, options, "eager")
    layers = oracle(eager, inputs)
    subjects: dict[str, Subject] = {}
    for way in ways:
        model = make(name, options, way)
        model.load_state_dict(eager.state_dict())
        _check_equal(partial(eager, **inputs), partial(model, **inputs))
        subjects.setdefault(
            model.config._attn_implementation, Subject(model, partial(model, **inputs), layers, gradients)
        )
    return subjects


def _check_equal(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    """Where ways to attend have different results, the weights of one are no oracle for the other."""
    with torch.no_grad():
        for expected, output in zip(tensors(seeded(one)), tensors(seeded(other)), strict=True):
            if output.is_floating_point():
                torch.testing.assert_close(output, expected, atol=1e-3, rtol=1e-3)


def make(name: str, options: Mapping[str, Any], way: str) -> Any:
    """A model with random weights, large enough that no head attends evenly."""
    kind = getattr(transformers, name)
    torch.manual_seed(5)
    model = kind._from_config(kind.config_class(**options), attn_implementation=way or None).eval()
    for parameter in model.parameters():
        matrix = parameter.dim() > 1 and parameter.numel() > 0
        scale = 1.2 * parameter[0].numel() ** -0.5 if matrix else 0.1
        parameter.data = (0 if matrix else parameter.data) + scale * torch.randn(parameter.shape)
    return model


def returned(unknown: Sequence[str], scores: str, model: nn.Module, inputs: Inputs) -> list[Layer]:
    """The weights that modules of a model return, each once, under the path of the innermost module that does."""
    paths = [path for path, _ in model.named_modules()]
    hidden = [path for path in paths if any(fnmatchcase(path, one) for one in unknown)]
    layers = [Layer(path, None) for path in hidden]
    apart: list[Tensor] = []
    multi_head = functional.multi_head_attention_forward

    def keep(path: str, module: nn.Module, given: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        above = path.rpartition(".")[0]
        path = above if isinstance(module, (nn.Softmax, nn.Dropout)) else path
        if any(related(path, one) for one in hidden):
            return
        if isinstance(module, nn.MultiheadAttention):
            options |= {"need_weights": True, "average_attn_weights": False}
            output = module.forward(*given, **options)[1]
        if type(module).__name__ == "GroupViTAssignAttention":  # which returns others than it uses
            layers.append(Layer(path, _assigned(module, *given, **options)))
            return
        for tensor in tensors(output):
            if apart and tensor.dim() == 4 and not tensor.stride(1):  # the mean of the heads, for each of them
                tensor = apart[-1]
            if fnmatchcase(path, scores) and tensor.dim() == 4 and not _are_weights(tensor, sinks=False):
                tensor = tensor.softmax(-1)
            weights = _unfold(tensor, module)
            known = [layer.weights for layer in layers if related(above, layer.name) and layer.weights is not None]
            if _are_weights(weights, hasattr(module, "sinks")) and not any(torch.equal(weights, one) for one in known):
                layers.append(Layer(path, weights))

    def attend_apart(*given: Any, **options: Any) -> Any:
        apart.append(multi_head(*given, **options | {"need_weights": True, "average_attn_weights": False})[1])
        return multi_head(*given, **options)

    def attend(eager: Callable[..., tuple[Tensor, Tensor]], module: nn.Module, *given: Any, **options: Any) -> Any:
        output = eager(module, *given, **options)
        keep(modules[module], module, (), {}, output[1])
        return output

    modules = {module: path for path, module in model.named_modules()}
    home = sys.modules[type(model).__module__]
    eager = getattr(home, "eager_attention_forward", None)  # some modules do not return what it returned
    with (
        torch.no_grad(),
        _hooked(model, keep),
        patch.object(home, "eager_attention_forward", partial(attend, eager), create=True),
        patch.object(functional, "multi_head_attention_forward", attend_apart),
    ):
        seeded(partial(model, **inputs, **_asking(model)))
    return layers


def _assigned(module: Any, query: Tensor, key: Tensor) -> Tensor:
    """The hard assignment of GroupViT, as its values are averaged by it: (batch, 1, groups, tokens)."""
    weights = module.get_attn(module.q_proj(query) @ module.k_proj(key).mT * module.scale)
    return (weights / (weights.sum(-1, keepdim=True) + module.assign_eps))[:, None]


@contextmanager
def _hooked(model: nn.Module, hook: Callable[..., None]) -> Iterator[None]:
    modules = [(path, module) for path, module in model.named_modules() if path]  # the model returns what they return
    handles = [module.register_forward_hook(partial(hook, path), with_kwargs=True) for path, module in modules]
    yield
    for handle in handles:
        handle.remove()


def _asking(model: nn.Module) -> dict[str, bool]:
    parameters = inspect.signature(model.forward).parameters.values()
    asks = any(one.name == "output_attentions" or one.kind is one.VAR_KEYWORD for one in parameters)
    return {"output_attentions": True} if asks else {}


def _are_weights(tensor: Tensor, sinks: bool) -> bool:
    """Whether no number is negative and every row sums to 1, to 0 where it is masked, or to less with sinks."""
    if tensor.dim() != 4 or not tensor.is_floating_point() or not tensor.numel() or bool((tensor < 0).any()):
        return False
    sums = tensor.sum(-1)
    return bool((sums < 1.0001).all() if sinks else sums.any() and ((sums == 0) | ((sums - 1).abs() < 1e-4)).all())


def _unfold(weights: Tensor, module: nn.Module) -> Tensor:
    """Weights as (batch, heads, n, m), where heads are folded into the batch, or blocks beside them are in it."""
    names = ("num_heads", "num_attention_heads", "num_attn_heads", "n_heads")
    heads = next((int(getattr(module, name)) for name in names if hasattr(module, name)), 0)
    if weights.dim() == 3 and heads and len(weights) % heads == 0:
        return weights.unflatten(0, (-1, heads))
    if (
        weights.dim() == 5 and heads in weights.shape[1:3]
    ):  # (batch, heads, blocks, n, m) or (batch, blocks, heads, n, m)
        return weights.movedim(1 + weights.shape[1:3].index(heads), 2).flatten(0, 1)
    return weights

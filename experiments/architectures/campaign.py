"""One architecture, run plainly, under `regard.capture`, and plainly again: is it the same, and is what was seen right?

The weights are compared with an oracle, which is what the model itself says that it attends to. A layer of the oracle
has to be captured to 1e-5, or to be in `seen.unrecognised`. Everything else is a fault:

    changed   another output or gradient than without capture, or something of torch replaced
    wrong     a map with other numbers or another shape than the oracle's, or a report where nothing attends
    absent    a layer of the oracle that was neither captured nor reported
    failed    an exception that does not come without capture
"""

from __future__ import annotations

import random
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import regard

Result = TypeVar("Result")
TOLERANCE = 1e-5
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
FAULTS = ("failed", "changed", "wrong", "absent")  # the worst first


@dataclass(frozen=True, eq=False)
class Layer:
    """What a model says of one attention.

    name: path of the module; of several, one within the other, any
    weights: (batch, heads, n, m), NaN where it does not matter; None where there is no such matrix, so that only a
        report is right
    """

    name: str
    weights: Tensor | None


@dataclass(frozen=True)
class Subject:
    """A model, and how it is run.

    run: one run; all tensors of what it returns are compared
    oracle: what the model attends to in it, in order
    gradients: whether it is also run in training, and the gradients of its parameters compared; False where it has none
    joined: whether the oracle is about `seen.by_layer()`
    check: what else has to hold: returns what does not, or nothing
    """

    model: nn.Module
    run: Callable[[], Any]
    oracle: Sequence[Layer]
    gradients: bool = True
    joined: bool = False
    check: Callable[[Any], str] = lambda seen: ""


@dataclass(frozen=True)
class Architecture:
    """A row of the table.

    subjects: makes what is tried, by name ("" where there is only one), with the same weights each time
    expected: the result, as the tests ask for it
    fast: whether the tests try it
    """

    name: str
    kind: str
    subjects: Callable[[], Mapping[str, Subject]]
    expected: str = "right"
    fast: bool = True


@dataclass
class Outcome:
    """What came of it: of `layers` layers so many were right, so many only reported."""

    layers: int = 0
    right: int = 0
    reported: int = 0
    difference: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        """The worst fault, else what the capture did."""
        for fault in FAULTS:
            if any(text.startswith(fault) for text in self.faults):
                return fault
        results = [name for name, count in (("right", self.right), ("reported", self.reported)) if count]
        return " + ".join(results) or "not attention"


def examine(architecture: Architecture) -> Outcome:
    """Try an architecture. Of several subjects, the one is counted of which the fewest layers are right."""
    outcomes = []
    for name, subject in _quietly(architecture.subjects).items():
        outcome = _quietly(lambda subject=subject: watch(subject))
        outcome.faults = [f"{fault} ({name})" if name else fault for fault in dict.fromkeys(outcome.faults)]
        outcomes.append(outcome)
    worst = min(outcomes, key=lambda outcome: outcome.right - outcome.layers)
    worst.difference = max(outcome.difference for outcome in outcomes)
    worst.faults = [fault for outcome in outcomes for fault in outcome.faults]
    return worst


def _quietly(work: Callable[[], Result]) -> Result:
    """Without the warnings of models and of PyTorch: those of captures are looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def watch(subject: Subject) -> Outcome:
    """Run one model thrice, and compare."""
    _check_oracle(subject.oracle)
    outcome = Outcome(layers=len(subject.oracle))
    with torch.no_grad():
        seen = _thrice(subject, lambda: list(tensors(subject.run())), outcome)
    if seen is not None:
        _compare(subject, seen, outcome)
    if subject.gradients:
        subject.model.train()
        _thrice(subject, lambda: _gradients(subject), outcome)
        subject.model.eval()
    return outcome


def _thrice(subject: Subject, run: Callable[[], list[Tensor | None]], outcome: Outcome) -> Any:
    """The capture of a run, after and before plain ones; None where it failed."""
    before, state, modules = seeded(run), _state_of_torch(), _state_of_modules(subject.model)
    assert before, "the model returns no tensor"
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            with regard.capture(subject.model) as seen:
                replaced = _changes(state, _state_of_torch())
                during = seeded(run)
                replaced |= _changes(state, _state_of_torch())
        except Exception as error:
            outcome.faults.append(f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"[:300])
            return None
    after = seeded(run)
    if not _same(before, after):
        assert _same(after, seeded(run)), "the model does not compute the same twice: nothing can be said about it"
        outcome.faults.append("changed: the output after the capture")
    if not _same(before, during):
        outcome.faults.append(f"changed: the output under capture, by {_distance(before, during):.1e}")
    if replaced:
        outcome.faults.append(f"changed: replaced during the capture: {', '.join(sorted(replaced))}")
    if left := _changes(state, _state_of_torch()) | _changes(modules, _state_of_modules(subject.model)):
        outcome.faults.append(f"changed: not as before the capture: {', '.join(sorted(left))}")
    if getattr(seen, "unrecognised", ()) and not raised:
        outcome.faults.append("wrong: what is unrecognised came without a warning")
    return seen


def _compare(subject: Subject, seen: Any, outcome: Outcome) -> None:
    """What was seen with the oracle."""
    root = type(subject.model).__name__
    right: list[Layer] = []
    wrong: list[str] = []
    for layer in seen.by_layer() if subject.joined else seen:
        name = _path(layer.name, root)
        alike = [one for one in subject.oracle if related(name, one.name) and _shape(one) == layer.weights.shape]
        # The nearest; of several calls with the same weights the first that is not taken yet.
        differences = [
            (_difference(one.weights, layer.weights), one in right) for one in alike if one.weights is not None
        ]
        difference, again = min(differences, default=(torch.inf, False))
        if difference <= TOLERANCE:
            outcome.difference = max(outcome.difference, difference)
            right += [] if again else [alike[differences.index((difference, again))]]
        else:
            wrong.append(name)
            how = f"differs by {difference:.1e}" if differences else "is unlike the oracle's"
            outcome.faults.append(f"wrong: {layer.name}, {tuple(layer.weights.shape)}, {how}")
    outcome.right = len(right)
    reports = [_path(report.name, root) for report in getattr(seen, "unrecognised", ())]
    for one in subject.oracle:
        if one not in right and any(related(name, one.name) for name in reports):
            outcome.reported += 1
        elif one not in right and not any(related(name, one.name) for name in wrong):
            outcome.faults.append(f"absent: {one.name or root}")
    for name in dict.fromkeys(reports):
        if not any(related(name, one.name) for one in subject.oracle):
            outcome.faults.append(f"wrong: {name or root} was reported, and does not attend")
    if not any(fault.startswith("wrong") for fault in outcome.faults) and (
        fault := _inconsistent(seen) or subject.check(seen)
    ):
        outcome.faults.append(f"wrong: {fault}")


def _inconsistent(seen: Any) -> str:
    """What a map says of itself and is not so: its heads, queries and keys, how many calls of its layer came before."""
    for layer in seen:
        keys = getattr(layer, "keys", ()) or range(layer.weights.shape[-1])  # empty: 0, 1, 2 …
        shape = (len(layer.heads), len(layer.queries), len(keys))
        if shape != layer.weights.shape[1:]:
            return f"{layer.name} has {shape} heads, queries and keys"
    names = [layer.name for layer in seen]
    expected = [names[:number].count(name) for number, name in enumerate(names)]
    calls = [getattr(layer, "call", number) for layer, number in zip(seen, expected, strict=True)]
    return "" if calls == expected else f"calls are numbered {calls}"


def _path(name: str, root: str) -> str:
    return "" if name == root else name


def _shape(layer: Layer) -> torch.Size | None:
    return None if layer.weights is None else layer.weights.shape


def related(one: str, other: str) -> bool:
    """Whether two paths are of the same module, or one is of a module within the other's."""
    short, long = sorted((one, other), key=len)
    return not short or long == short or long.startswith(short + ".")


def _check_oracle(layers: Sequence[Layer]) -> None:
    """Layers that could be taken for each other, or weights that are all alike, would prove nothing."""
    known = [(layer.name, layer.weights) for layer in layers if layer.weights is not None]
    uneven = [_difference(weights, torch.tensor(1 / weights.shape[-1])) > 1e-3 for _, weights in known]
    assert any(uneven) or not known, "oracle: all layers attend evenly"
    for number, (name, weights) in enumerate(known):
        assert weights.dim() == 4, f"oracle: {name} has the shape {tuple(weights.shape)}"
        for other_name, other in known[:number]:
            if other.shape == weights.shape and uneven[number]:
                assert _difference(other, weights) > 1e-4, f"oracle: {other_name} and {name} are alike"


def _difference(expected: Tensor, weights: Tensor) -> float:
    return _largest((expected - weights).where(~expected.isnan(), 0.0))


def _largest(numbers: Tensor) -> float:
    return float(numbers.abs().max().nan_to_num(torch.inf)) if numbers.numel() else 0.0


# ------------------------------------------------------------------------------------------------------- the same bits


def seeded(run: Callable[[], Result]) -> Result:
    """A run with the same random numbers each time."""
    torch.manual_seed(11)
    numpy.random.seed(11)
    random.seed(11)
    return run()


def _gradients(subject: Subject) -> list[Tensor | None]:
    """The outputs in training, and the gradients of their sum."""
    subject.model.zero_grad()
    outputs = [output for output in tensors(subject.run()) if output.requires_grad]
    torch.stack([output.float().sum() for output in outputs]).sum().backward()
    gradients = [parameter.grad for parameter in subject.model.parameters()]
    return [*(output.detach() for output in outputs), *gradients]


def tensors(output: Any) -> Iterator[Tensor]:
    """All tensors in what a model returns, those in its cache included."""
    if isinstance(output, Tensor):
        yield from output.unbind() if output.is_nested else [output]
    elif isinstance(output, Mapping):
        yield from tensors(list(output.values()))
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from tensors(part)
    elif type(output).__module__ == "transformers.cache_utils":
        yield from tensors(list(vars(output).values()))


def _same(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    same = (one.dtype, one.shape, one.requires_grad) == (other.dtype, other.shape, other.requires_grad)
    return same and torch.equal(*(tensor.detach().flatten().view(torch.uint8) for tensor in (one, other)))


def _distance(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> float:
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a is not None and b is not None]
    return max((_largest(a.double() - b.double()) for a, b in pairs if a.shape == b.shape), default=torch.inf)


def _state_of_torch() -> dict[str, Any]:
    """Everything of torch that could be replaced, its global hooks, and how many modes are open."""
    homes = {"torch": torch, "F": functional, "Tensor": Tensor, "Module": nn.Module, "hooks": nn.modules.module}
    state = {f"{home}.{name}": value for home, space in homes.items() for name, value in vars(space).items()}
    state |= {name: tuple(value) for name, value in state.items() if isinstance(value, dict) and "hooks" in name}
    return state


def _state_of_modules(model: nn.Module) -> dict[str, Any]:
    """The hooks of the modules, their attributes, and how many modes are open."""
    modes = (len(_get_current_function_mode_stack()), len(_get_current_dispatch_mode_stack()))
    hooks = {
        f"{path}.{name}": len(getattr(module, name, ())) for path, module in model.named_modules() for name in HOOKS
    }
    return {"modes": modes} | hooks | {f"{path}.forward": vars(m).get("forward") for path, m in model.named_modules()}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """What is not what it was. A submodule of torch that was imported in the meantime is no change."""
    new = {name for name in now.keys() - before.keys() if not isinstance(now[name], types.ModuleType)}
    return new | {name for name, value in before.items() if name not in now or not _identical(now[name], value)}


def _identical(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, (int, tuple)) and bool(one == other))

"""A prediction that is to be explained: how likely a model finds a target, as it is and without some of the tokens; and
the modules that are called on the way to it: what they are given, what they return, and which one reads the heads.

Legend: batch · n tokens · size of their vectors · classes (or vocabulary).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.arguments import check_ids
from regard.attention.capture import AttentionMap
from regard.models.model import evaluation

Forward = Callable[[Tensor], Any]  # ids → logits, or an object that has them
Change = Callable[[Tensor, Tensor], Tensor]  # vectors (batch, n, size), those of absent tokens → other vectors


def logits_of(output: Any) -> Tensor:
    """The logits that a model returned: as they are, in an object of Hugging Face's, or first in a tuple."""
    logits = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise TypeError(
            f"model: expected logits (batch, classes) or (batch, n, vocabulary), got {type(output).__name__}"
        )
    return logits


def embeddings(model: nn.Module) -> list[nn.Embedding]:
    """Modules that may turn tokens into vectors; the one that a model of Hugging Face's names comes first."""
    try:
        named = [model.get_input_embeddings()]  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        named = []
    tables = (module for module in (*named, *model.modules()) if isinstance(module, nn.Embedding))
    return list(dict.fromkeys(tables))


class Prediction:
    """The probability of a target, in what a model answers to ids.

    ids: (batch, n) · target: a class or token for each entry, (batch,) or one number; None: the most likely ·
    position: for logits (batch, n, vocabulary), which of the n, (batch,) or one number · baseline: the token that
    stands for an absent one; None: a vector of zeros · forward: how the model is run on ids, if it is not model(ids)
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Tensor,
        *,
        target: Tensor | int | None = None,
        position: Tensor | int = -1,
        baseline: int | None = None,
        forward: Forward | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
        self.embeddings = embeddings(model)
        check_ids("ids", ids, max((table.num_embeddings for table in self.embeddings), default=1 << 31))
        self.model, self.ids, self.baseline, self.forward = model, ids, baseline, forward or model
        with torch.no_grad():
            logits = self._run()
        # (batch,), or None where there is one prediction for all tokens together
        self.position = None if logits.dim() == 2 else self._for_each("position", position, logits.shape[1])
        chosen = self._chosen(logits)
        self.target = chosen.argmax(-1) if target is None else self._for_each("target", target, chosen.shape[-1])

    def _for_each(self, name: str, given: Tensor | int, limit: int) -> Tensor:
        """A number below the limit for each entry, (batch,); negative ones count from the end."""
        numbers = torch.as_tensor(given, device=self.ids.device)
        if numbers.dim() > 1 or numbers.is_floating_point() or numbers.numel() not in (1, len(self.ids)):
            expected = f"one number or {len(self.ids)}, one for each sequence"
            raise ValueError(f"{name}: expected {expected}, got shape {tuple(numbers.shape)}")
        if numbers.numel() and not -limit <= int(numbers.min()) <= int(numbers.max()) < limit:
            raise ValueError(f"{name}: expected numbers from {-limit} to {limit - 1}, got {numbers.tolist()}")
        return (numbers % limit).expand(len(self.ids))

    def _run(self) -> Tensor:
        with evaluation(self.model):
            return logits_of(self.forward(self.ids))

    def _chosen(self, logits: Tensor) -> Tensor:
        entries = torch.arange(len(logits), device=logits.device)
        return logits if self.position is None else logits[entries, self.position]

    def logits(self) -> Tensor:
        """(batch, classes)."""
        return self._chosen(self._run())

    def log_probability(self) -> Tensor:
        """Of the target, (batch,)."""
        return -functional.cross_entropy(self.logits().float(), self.target, reduction="none")

    def rows(self, maps: Tensor) -> Tensor:
        """Of (batch, heads, n, m) what belongs to the prediction, (batch, heads, rows, m): one query, or all."""
        if self.position is None:
            return maps
        entries = torch.arange(len(maps), device=maps.device)
        return maps[entries, :, self.position.to(maps.device)].unsqueeze(2)

    @contextmanager
    def embedded(self, change: Change) -> Iterator[None]:
        """Within this block, for one run, the vectors of the tokens are changed where the model has looked them up."""
        changed: list[nn.Module] = []

        def hook(table: nn.Embedding, inputs: tuple[Tensor, ...], vectors: Tensor) -> Tensor | None:
            if changed or not inputs or inputs[0].shape != self.ids.shape or not torch.equal(inputs[0], self.ids):
                return None  # positions, or a decoder's tokens
            changed.append(table)
            if self.baseline is None:
                return change(vectors, torch.zeros_like(vectors))
            return change(vectors, table.forward(torch.full_like(self.ids, self.baseline)))  # forward: without hooks

        with ExitStack() as stack:
            for table in self.embeddings:
                stack.callback(table.register_forward_hook(hook).remove)
            yield
        if not changed:
            expected = "expected one that looks up ids (batch, n) in an nn.Embedding"
            raise ValueError(f"model: {expected}, got {type(self.model).__name__}")

    def without_tokens(self, kept: Tensor) -> Any:
        """The same, with the tokens absent that are not kept, (batch, n)."""
        return self.embedded(lambda vectors, absent: torch.where(kept[..., None], vectors, absent))

    def gradient(self, place: float = 1.0) -> tuple[Tensor, Tensor]:
        """d log-probability / d vectors, at a place between absent tokens (0) and the given ones (1); and the vectors
        less the absent ones. Both are (batch, n, size)."""
        kept: list[Tensor] = []

        def change(vectors: Tensor, absent: Tensor) -> Tensor:
            difference = (vectors - absent).detach()
            kept.extend([torch.add(absent.detach(), difference, alpha=place).requires_grad_(), difference])
            return kept[0]

        with torch.enable_grad(), self.embedded(change):
            likely = self.log_probability()
        (gradient,) = torch.autograd.grad(likely.sum(), kept[0])
        return gradient, kept[1]


# ----------------------------------------------------------------------------------------------- the calls of modules


class Call(NamedTuple):
    """A module that was called: its path, what it was given first, and what it returned."""

    path: str
    module: nn.Module
    input: Any
    output: Any


def first(value: Any) -> Any:
    """The first of a tuple or list; else the value."""
    return value[0] if isinstance(value, tuple | list) and value else value


@contextmanager
def after_calls(model: nn.Module, hook: Callable[[Call], Any]) -> Iterator[None]:
    """Within this block the hook is called after every module; what it returns replaces the output, unless None."""

    def after(path: str, module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], output: Any) -> Any:
        return hook(Call(path, module, first(args) if args else next(iter(options.values()), None), output))

    with ExitStack() as stack:
        for path, module in model.named_modules():
            stack.callback(module.register_forward_hook(partial(after, path), with_kwargs=True).remove)
        yield


def has_matrix(module: nn.Module) -> bool:
    """Whether the module itself, not one in it, has a parameter of two dimensions or more."""
    return any(parameter.dim() > 1 for parameter in module.parameters(recurse=False))


def find_projection(calls: Sequence[Call], layer: AttentionMap) -> int | None:
    """The call of the linear layer that reads the heads' outputs side by side; None: there is none.

    nn.MultiheadAttention, which uses the matrix without calling its module, stands for it.
    """
    assert layer.output is not None
    heads = layer.output.transpose(1, 2).flatten(0, 1).flatten(1)  # (batch · n, heads · value size)
    for number, (path, module, rows, _) in enumerate(calls):
        if isinstance(module, nn.MultiheadAttention) and path == layer.name:
            return number
        same = isinstance(rows, Tensor) and rows.numel() == heads.numel() and rows.shape[-1] == heads.shape[-1]
        if same and has_matrix(module) and torch.allclose(rows.reshape(heads.shape), heads, rtol=1e-3, atol=1e-5):
            return number
    return None


def project(call: Call, heads: Tensor) -> Tensor:
    """The output projection without its bias: (batch, heads, n, value size) → (batch, n, size)."""
    module = call.module.out_proj if isinstance(call.module, nn.MultiheadAttention) else call.module
    rows = heads.transpose(1, 2).flatten(2)
    with torch.no_grad():
        projected: Tensor = module(rows) - module(torch.zeros_like(rows[:1, :1]))
    return projected

"""Transfer: begin with what another model has learned, keep some layers as they are, let others learn more slowly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from regard.models.folders import load
from regard.models.model import Model
from regard.training.options import Options
from regard.training.task import TaskError

__all__ = ["begun_from", "groups"]

Kind = TypeVar("Kind", bound=Model)


def begun_from(options: Options, kind: type[Kind], **arguments: Any) -> Kind:
    """The model of a folder, with these arguments changed: a tensor that has the same shape in both is kept.

    What is new, such as a head for other classes, begins as in a new model.
    """
    folder = Path(str(options.init_from))
    old = load(folder)
    if not isinstance(old, kind):
        raise TaskError(f"{folder}: expected a model for this task ({kind.__name__}), got a {type(old).__name__}")
    for tokenizer, name in ((old.tokenizer, "vocab_size"), (old.target_tokenizer, "target_vocab_size")):
        size = old.config.get(name, old.config.get("source_vocab_size", 0))
        if tokenizer is not None and size and tokenizer.get_vocab_size() > size:
            count = tokenizer.get_vocab_size()
            raise TaskError(f"{folder}: its tokenizer does not fit: it has {count} tokens, the model {size}")
    torch.manual_seed(options.seed)
    changed = {**arguments, "dropout": options.dropout} if "dropout" in old.config else arguments
    new = type(old)(**{**old.config, **changed})
    known = {name: tensor for name, tensor in old.state_dict().items() if _fits(new, name, tensor)}
    # A head for classes of the same number but with other names has other things to say.
    if arguments.get("labels") != list(old.config.get("labels", ())):
        known = {name: tensor for name, tensor in known.items() if not name.startswith("classifier.")}
    new.load_state_dict(known, strict=False)
    new.tokenizer, new.target_tokenizer = old.tokenizer, old.target_tokenizer
    return new


def _fits(model: nn.Module, name: str, tensor: torch.Tensor) -> bool:
    own = model.state_dict().get(name)
    return own is not None and own.shape == tensor.shape


def groups(model: nn.Module, options: Options) -> list[dict[str, Any]]:
    """The parameters that learn, in groups with a factor of the learning rate and a weight decay each."""
    frozen = _frozen(model, options)
    depth = max((number + 1 for number in map(_block, dict(model.named_parameters())) if number is not None), default=0)
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
        if not parameter.requires_grad:
            continue
        factor = options.layer_decay ** _distance(name, depth)
        decay = options.weight_decay if parameter.dim() > 1 else 0.0
        found.setdefault((factor, decay), []).append(parameter)
    if not found:
        raise TaskError("freeze: every layer stays as it is, so there is nothing to train")
    return [{"params": own, "factor": factor, "weight_decay": decay} for (factor, decay), own in found.items()]


def _frozen(model: nn.Module, options: Options) -> set[str]:
    names = [name for name, _ in model.named_parameters()]
    frozen: set[str] = set()
    for beginning in (options.freeze or "").split(","):
        if not beginning.strip():
            continue
        own = {name for name in names if name == beginning.strip() or name.startswith(beginning.strip() + ".")}
        if not own:
            known = ", ".join(sorted({re.sub(r"\.[^.]*$", "", name) for name in names})[:12])
            raise TaskError(f"freeze: no layer is called {beginning.strip()!r}; there are {known} …")
        frozen |= own
    return frozen


def _block(name: str) -> int | None:
    """The number of the block that a parameter belongs to."""
    found = re.search(r"blocks\.(\d+)\.", name)
    return None if found is None else int(found.group(1))


def _distance(name: str, depth: int) -> int:
    """How many layers lie between a parameter and the output: 0 for heads, depth + 1 for what comes before blocks."""
    number = _block(name)
    if number is not None:
        return depth - number
    return depth + 1 if re.match(r"(\w+_embedding|class_token|stem)\b", name) else 0

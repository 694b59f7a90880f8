"""LoRA: low-rank adapters of the linear layers in a model's blocks, by peft. The weights stay as they are.

    W  →  W + 2 · B A      A (rank, inputs) starts random, B (outputs, rank) as 0

What is saved is a model like any other: the products are added to the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor, nn

from regard.models.model import Model
from regard.training.options import OptionError
from regard.training.task import TaskError
from regard.training.transfer import is_head

__all__ = ["add_adapters", "merge_adapters"]

SCALE = 2  # lora_alpha / rank
ADAPTER = re.compile(r"(.+)\.lora_([AB])\.default\.weight")


def add_adapters(model: Model, rank: int) -> None:
    """Put adapters beside the linear layers of the blocks; they and the heads are all that is trained then."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise OptionError("lora: needs peft: pip install 'regard[lora]'") from error
    layers = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and "blocks." in name]
    if not layers:
        raise TaskError(f"lora: a {type(model).__name__} has no blocks with linear layers that could be adapted")
    heads = [parameter for name, parameter in model.named_parameters() if parameter.requires_grad and is_head(name)]
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=layers), model)
    for parameter in heads:
        parameter.requires_grad_(True)


def merge_adapters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of a model with adapters as that of the model without them, with the products added."""
    factors = {match.groups(): state[name] for name in state if (match := ADAPTER.fullmatch(name))}
    merged = {name.replace(".base_layer.", "."): tensor for name, tensor in state.items() if ".lora_" not in name}
    for layer, _ in {key for key in factors if key[1] == "A"}:
        product = factors[layer, "B"] @ factors[layer, "A"]
        merged[f"{layer}.weight"] = merged[f"{layer}.weight"] + SCALE * product
    return merged

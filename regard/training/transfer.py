"""Transfer: start from a trained model, freeze layers, let layers further from the output learn more slowly.

LoRA, by peft: low-rank adapters of the linear layers in a model's blocks. The weights stay as they are.

    W  →  W + 2 · B A      A (rank, inputs) starts random, B (outputs, rank) as 0

What is saved is a model like any other: the products are added to the weights.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.models.folders import load
from regard.models.model import Model
from regard.training.options import OptionError, Options
from regard.training.task import TaskError

AnyModel = TypeVar("AnyModel", bound=Model)

# Parameters before the blocks, by the beginning of their names: embeddings, positions, patches, convolutions.
EMBEDDINGS = re.compile(r"(\w+_embedding|class_token|stem)\b")
LORA_SCALE = 2  # lora_alpha / rank
LORA_A, LORA_B = ".lora_A.default.weight", ".lora_B.default.weight"  # how peft names the factors of a layer


def load_pretrained(options: Options, kind: type[AnyModel], **arguments: Any) -> AnyModel:
    """The model of the folder `init_from`, rebuilt with some arguments changed.

    Every tensor that has the same shape in both is kept; what is new, such as a head for other classes, is initialised
    as in a new model.
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
    if "dropout" in old.config:
        arguments = {**arguments, "dropout": options.dropout}
    if arguments.get("classes") and old.config.get("pooler") and not old.config["classes"]:
        # A new head reads the mean of the vectors, not a pooler that was trained for something else: MiniLM gains 3 %
        # of accuracy by it where 500 reviews have labels.
        arguments = {**arguments, "pooler": False}
    new = type(old)(**{**old.config, **arguments})
    shapes = {name: tensor.shape for name, tensor in new.state_dict().items()}
    tensors = {name: tensor for name, tensor in old.state_dict().items() if shapes.get(name) == tensor.shape}
    # A head for as many classes, but with other names, has to be learned anew.
    if arguments.get("labels") != list(old.config.get("labels", ())):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier.")}
    new.load_state_dict(tensors, strict=False)
    new.tokenizer, new.target_tokenizer = old.tokenizer, old.target_tokenizer
    return new


def freeze(model: nn.Module, options: Options) -> None:
    """Freeze the layers that options.freeze names: their parameters require no gradient."""
    parameters = dict(model.named_parameters())
    for layer in filter(None, map(str.strip, (options.freeze or "").split(","))):
        names = [name for name in parameters if name == layer or name.startswith(layer + ".")]
        if not names:
            layers = ", ".join(sorted({name.rpartition(".")[0] or name for name in parameters})[:12])
            raise TaskError(f"freeze: no layer is called {layer!r}; there are {layers} …")
        for name in names:
            parameters[name].requires_grad_(False)


def checkpoint_blocks(model: nn.Module) -> None:
    """Let each block compute its activations again in the backward pass, instead of keeping them."""
    blocks = [module for name, module in model.named_modules() if name.rpartition(".")[0].endswith("blocks")]
    if not blocks:
        raise TaskError(f"checkpoint_activations: a {type(model).__name__} has no blocks")
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def parameter_groups(model: nn.Module, options: Options) -> list[dict[str, Any]]:
    """The parameters that require gradients, grouped by the factor of their learning rate and their weight decay."""
    blocks = (_block(name) for name, _ in model.named_parameters())
    depth = max((block for block in blocks if block is not None), default=-1) + 1
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        # How many layers lie between it and the output: 0 for heads, depth + 1 for what comes before blocks.
        block = _block(name)
        distance = depth - block if block is not None else 0 if is_head(name) else depth + 1
        factor = options.layer_decay**distance
        weight_decay = options.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault((factor, weight_decay), []).append(parameter)
    if not groups:
        raise TaskError("freeze: every layer is frozen, so there is nothing to train")
    return [{"params": group, "factor": factor, "weight_decay": decay} for (factor, decay), group in groups.items()]


def is_head(name: str) -> bool:
    """Whether a parameter comes after the blocks: in a head, by its name, or in the last norm."""
    return _block(name) is None and not EMBEDDINGS.match(name)


def _block(name: str) -> int | None:
    """The number of the block that a parameter belongs to."""
    match = re.search(r"blocks\.(\d+)\.", name)
    return None if match is None else int(match.group(1))


def add_adapters(model: Model, rank: int) -> None:
    """Put adapters beside the linear layers of the blocks; they and the heads are all that is trained then."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise OptionError("lora: needs peft: pip install 'regard[lora]'") from error
    linear = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    layers = [name for name, layer in linear if "blocks." in name and layer.weight.requires_grad]  # none that is frozen
    if not layers:
        raise TaskError(f"lora: a {type(model).__name__} has no blocks with linear layers that could be adapted")
    heads = [parameter for name, parameter in model.named_parameters() if parameter.requires_grad and is_head(name)]
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=LORA_SCALE * rank, target_modules=layers), model)
    for parameter in heads:
        parameter.requires_grad_(True)


def merge_adapters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of a model with adapters as that of the model without them, with the products added."""
    merged = {name.replace(".base_layer.", "."): tensor for name, tensor in state.items() if ".lora_" not in name}
    for layer in [name.removesuffix(LORA_A) for name in state if name.endswith(LORA_A)]:
        product = state[layer + LORA_B] @ state[layer + LORA_A]
        merged[f"{layer}.weight"] = merged[f"{layer}.weight"] + LORA_SCALE * product
    return merged

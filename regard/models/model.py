"""What every model is: a module that knows its constructor's arguments, may have a tokenizer, and can be saved."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import nn

from regard.arguments import check_choice, check_sizes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Arguments that are sizes, in every model that has them.
SIZES = (
    *("vocab_size", "source_vocab_size", "target_vocab_size", "size", "hidden_size", "layers", "decoder_layers"),
    *("heads", "max_positions", "patch_size", "channels", "width"),
)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, without dropout, within this block; afterwards every module is in its previous mode again."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def evaluated(method: Callable[Concatenate[Any, Parameters], Result]) -> Callable[Concatenate[Any, Parameters], Result]:
    """A method that runs in evaluation mode."""

    @functools.wraps(method)
    def run(self: Model, /, *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        with evaluation(self):
            return method(self, *arguments, **options)

    return run


class Model(nn.Module):
    """A model of this project. `config` holds the arguments of its constructor: sizes are checked by their names,
    others by the choices that they have."""

    config: dict[str, Any]
    tokenizer: "Tokenizer | None"
    target_tokenizer: "Tokenizer | None"

    def __init__(self, arguments: Mapping[str, Any], **choices: Collection[str]) -> None:
        super().__init__()
        self.config = {name: value for name, value in arguments.items() if name not in ("self", "__class__")}
        self.tokenizer = self.target_tokenizer = None
        check_sizes(**{name: self.config[name] for name in SIZES if name in self.config})
        for name, names in choices.items():
            check_choice(name, self.config[name], names)

    @property
    def parameter_count(self) -> int:
        """The number of learned parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.parameters()).device

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors, tokenizer.json, README.md and manifest.json, for `regard.load`."""
        from regard.models.folders import save

        save(self, Path(folder))

    def export(self, folder: str | Path) -> None:
        """Write a Hugging Face folder, for `transformers`."""
        from regard.models.huggingface import export

        export(self, Path(folder))

    def need_tokenizer(self) -> "Tokenizer":
        """The tokenizer, or an error that says what is missing."""
        if self.tokenizer is None:
            raise ValueError(
                f"this {type(self).__name__} has no tokenizer: set model.tokenizer (a tokenizers.Tokenizer) or pass ids"
            )
        if not hasattr(self.tokenizer, "encode_batch"):
            raise TypeError(f"model.tokenizer: expected a tokenizers.Tokenizer, got {type(self.tokenizer).__name__}")
        return self.tokenizer

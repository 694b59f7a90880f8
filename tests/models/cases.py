"""What the tests of models share: weights that matter, a small tokenizer, and folders that are refused."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from regard import FolderError, load


def shaken(model: nn.Module) -> nn.Module:
    """With weights large enough that everything matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def word_tokenizer(words=("the", "cat", "is", "on", "mat")):
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def check_message(message, expected):
    """One line, which holds the parts of what is expected in their order: "argument … wanted … given"."""
    pattern = ".*".join(re.escape(part) for part in expected.split(" … "))
    assert re.fullmatch(f".*{pattern}.*", message), message


def refused(folder, expected):
    with pytest.raises(FolderError) as raised:
        load(folder)
    check_message(str(raised.value), expected)


def edit(path, **changes):
    """Change entries of a JSON file; ... removes one."""
    config = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in (config | changes).items() if value is not ...}))


def rewrite(folder, change):
    """Change the tensors of a folder."""
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", {"format": "pt"})

"""Tensors in files: safetensors, one file or several with an index, checked before memory is taken."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.errors import RegardError
from regard.files import ContentError, parse_json, read_file

LARGEST_TEXT = 1 << 26  # bytes of a config, an index or a manifest
TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")
DTYPES = {"F64", "F32", "F16", "BF16", "I64"}


class FolderError(RegardError, ValueError):
    """A folder that holds no model, or a broken one. The message names the file and the reason.

    >>> import regard
    >>> try:
    ...     regard.load("nowhere")
    ... except regard.FolderError as error:
    ...     print(str(error).partition(";")[0])
    nowhere: expected a folder with a model, found none
    """


class UnsupportedError(FolderError):
    """A folder of Hugging Face's that may be in order, but is of a kind that regard has no model for."""


@dataclass(frozen=True)
class Rule:
    """Where a tensor of ours comes from: tensors of theirs, transposed if they are written so, one below the other."""

    theirs: tuple[str, ...]
    heights: tuple[int, ...] = ()  # of each part, where there are several
    transposed: bool = False
    skipped: int = 0  # rows at the beginning of theirs that ours lacks
    offset: float = 0.0  # ours are larger by so much

    def shape(self, shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
        """Of the whole, from the shapes of the parts; None where they cannot be put together."""
        parts = [tuple(reversed(shape)) if self.transposed else shape for shape in shapes]
        if not self.heights:
            return (parts[0][0] - self.skipped, *parts[0][1:]) if self.skipped else parts[0]
        rest = parts[0][1:]
        return (sum(self.heights), *rest) if parts == [(height, *rest) for height in self.heights] else None

    def join(self, parts: list[Tensor]) -> Tensor:
        """The tensor, from its parts."""
        parts = [part.t() if self.transposed else part for part in parts]
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0].contiguous()
        return tensor[self.skipped :].contiguous() if self.skipped else tensor

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        """The way back; there is none for rows that were skipped."""
        assert not self.skipped
        tensor = tensor - self.offset if self.offset else tensor
        parts = list(tensor.split(list(self.heights))) if self.heights else [tensor]
        parts = [(part.t() if self.transposed else part).contiguous() for part in parts]
        return dict(zip(self.theirs, parts, strict=True))


class Tensors:
    """The tensors of a folder, by name: their shapes are read at once, their numbers by `take`."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder
        self.files: dict[str, tuple[Path, str]] = {}  # the file that holds each, and its name there
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file in sorted(set(files.values())):
            path = folder / file
            with open_tensors(path) as reader:
                for name in reader.keys():  # noqa: SIM118 (it has no __iter__)
                    part = reader.get_slice(name)
                    if part.get_dtype() not in DTYPES:
                        raise FolderError(f"{path}: {name} has dtype {part.get_dtype()}, which is not supported")
                    self.files[name], self.shapes[name] = (path, name), tuple(part.get_shape())
        for name, file in files.items():
            if name and name not in self.files:
                raise FolderError(f"{folder / file}: {name} is missing, though the index says that it is there")

    @classmethod
    def of(cls, folder: Path) -> "Tensors":
        """Of model.safetensors, or of the files that an index lists."""
        if (folder / TENSORS).exists():
            return cls(folder, {"": TENSORS})
        if (folder / INDEX).exists():
            files = read_json(folder / INDEX).get("weight_map")
            if not isinstance(files, dict) or not files:
                raise FolderError(f"{folder / INDEX}: expected a weight_map from tensors to files")
            for file in files.values():
                if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                    raise FolderError(
                        f"{folder / INDEX}: expected names of .safetensors files in this folder, got {file!r}"
                    )
            return cls(folder, files)
        pickle = next((name for name in PICKLES if (folder / name).exists()), None)
        if pickle is not None:
            raise FolderError(
                f"{folder / pickle}: is a pickle, which can run any code when it is read, so it is not read; "
                "convert it to model.safetensors (save_pretrained of transformers writes one)"
            )
        raise FolderError(f"{folder / TENSORS}: no such file")

    def rename(self, change: Callable[[str], str]) -> None:
        """Give every tensor another name here: change(its name in the file)."""
        files = {change(name): place for name, place in self.files.items()}
        if len(files) < len(self.files):
            raise FolderError(f"{self.folder}: two tensors have the same name but for a prefix")
        self.files = files
        self.shapes = {change(name): shape for name, shape in self.shapes.items()}

    def take(self, rule: Rule, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The tensor of a rule, in this dtype; its shape has to be this one, its numbers finite."""
        for part in rule.theirs:
            if part not in self.files:
                raise FolderError(f"{self.folder}: {part} is missing, which the config requires")
        shapes = [self.shapes[part] for part in rule.theirs]
        if rule.shape(shapes) != shape:
            names, came = " and ".join(rule.theirs), " and ".join(map(str, shapes))
            raise FolderError(f"{self.folder}: {names}: expected shape {shape} by the config, got {came}")
        tensor = rule.join([self._read(part) for part in rule.theirs])
        if tensor.is_floating_point() != dtype.is_floating_point:
            raise FolderError(f"{self.folder}: {rule.theirs[0]}: expected {dtype}, got {tensor.dtype}")
        if not bool(tensor.isfinite().all()):
            raise FolderError(f"{self.files[rule.theirs[0]][0]}: {rule.theirs[0]} holds NaN or infinity")
        return tensor.to(dtype) + rule.offset if rule.offset else tensor.to(dtype)

    def are_same(self, name: str, other: str) -> bool:
        """Whether two tensors hold the same numbers."""
        return self.shapes[name] == self.shapes[other] and bool((self._read(name) == self._read(other)).all())

    def _read(self, name: str) -> Tensor:
        path, name_in_file = self.files[name]
        with open_tensors(path) as reader:
            tensor: Tensor = reader.get_tensor(name_in_file)
            return tensor


def open_tensors(path: Path) -> Any:
    """A safetensors file; its header is checked, its numbers are not read yet."""
    check_regular(path)
    try:
        return safe_open(path, "pt")
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{path}: not a readable safetensors file: {error}") from error


def fill(
    model: nn.Module,
    tensors: Tensors,
    rules: Mapping[str, Rule],
    copies: Mapping[str, str] = {},
    ignored: str = "(?!)",
) -> None:
    """Give a model on the meta device its numbers.

    No tensor of the files may be left over, but copies (name = the tensor that it has to be the same as), and those
    whose names match a pattern.
    """
    empty = model.state_dict()
    used = {part for name in empty for part in rules[name].theirs}
    unused = sorted(tensors.files.keys() - used)
    for name in unused:
        if copies.get(name) in tensors.files and not tensors.are_same(name, copies[name]):
            raise FolderError(f"{tensors.folder}: {name} differs from {copies[name]}, to which the config ties it")
    extra = [name for name in unused if name not in copies and not re.fullmatch(ignored, name)]
    if extra:
        more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
        raise FolderError(f"{tensors.folder}: {extra[0]}{more} has no place in a {type(model).__name__} of this config")
    assign(model, {name: tensors.take(rules[name], tuple(meta.shape), meta.dtype) for name, meta in empty.items()})


def assign(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Replace a model's tensors by these, as parameters that can be trained."""
    model.load_state_dict(state, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)


# --------------------------------------------------------------------------------------------------------- plain files


def check_regular(path: Path) -> None:
    """FolderError where a path is a folder, or a pipe or a device, which could be read forever."""
    if path.exists() and not path.is_file():
        raise FolderError(f"{path}: expected a regular file, got a folder, a pipe or a device")


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON object, or a list, from a file of a reasonable size."""
    try:
        content = parse_json(read_file(path, LARGEST_TEXT))
    except OSError as error:
        raise FolderError(f"{path}: {'no such file' if not path.exists() else error.strerror}") from error
    except ContentError as error:
        raise FolderError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, kind):
        raise FolderError(f"{path}: expected a JSON {kind.__name__}, got {type(content).__name__}")
    return content


def write_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """All tensors into one safetensors file."""
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in state.items()}
    try:
        save_file(tensors, path, {"format": "pt"})
    except SafetensorError as error:  # the disk is full, or gone
        raise OSError(f"{path.parent}: the tensors could not be written: {error}") from error

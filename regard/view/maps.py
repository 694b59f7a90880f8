"""Attention maps of a run, and their file: safetensors, with what is not a tensor as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, overload

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard import files
from regard.attention.capture import AttentionMap, Gradient, by_layer
from regard.attention.summary import Summary as WeightSummary
from regard.errors import RegardError
from regard.view.summary import Summary

__all__ = ["AttentionMaps", "CaptureFileError", "Unrecognised", "load_capture"]

FORMAT = "regard capture 1"
TENSORS = ("weights", "sink", "query", "key", "value", "output", "gradient")
NUMBERS = ("heads", "queries", "keys")
TEXTS = ("tokens", "key_tokens")


class CaptureFileError(RegardError, ValueError):
    """A file that holds no capture, or a broken one."""


@dataclass(frozen=True)
class Unrecognised:
    """Attention, or what looks like it, whose weights could not be understood.

    name: path of the module · operation: what it computed · shape: of the result · reason: why it is not a map
    """

    name: str
    operation: str
    shape: tuple[int, ...]
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.operation} {self.shape}: {self.reason}"


class AttentionMaps(Sequence[AttentionMap]):
    """The attention maps of a run, in their order.

    unrecognised: attention that was seen and is not among them, with the reason
    """

    def __init__(self, maps: list[AttentionMap], unrecognised: list[Unrecognised] | None = None) -> None:
        self._maps = maps
        self.unrecognised = [] if unrecognised is None else unrecognised

    @overload
    def __getitem__(self, number: int) -> AttentionMap: ...
    @overload
    def __getitem__(self, number: slice) -> list[AttentionMap]: ...
    def __getitem__(self, number: int | slice) -> AttentionMap | list[AttentionMap]:
        return self._maps[number]

    def __len__(self) -> int:
        return len(self._maps)

    def __repr__(self) -> str:
        layers = len({one.name for one in self._maps})
        return f"{type(self).__name__}: {len(self)} maps of {layers} layers, {len(self.unrecognised)} not recognised"

    def by_layer(self) -> list[AttentionMap]:
        """One map for each layer: the steps of a decoder, which attends anew for each token, are joined where one
        continues the other. A layer that is called several times for something else has several maps."""
        return by_layer(self._maps)

    def summary(self) -> Summary:
        """Entropy, effective width, distance and weight on the first key, of every head."""
        return Summary(self.by_layer())

    def save(self, path: str | Path) -> Path:
        """Write the maps to a file, without the model. `regard.load_capture` reads it."""
        tensors: dict[str, Tensor] = {}
        entries: list[dict[str, Any]] = []
        for number, one in enumerate(self._maps):
            parts = {name: getattr(one, name) for name in TENSORS}
            if one.summary is not None:
                parts |= {f"summary.{part.name}": getattr(one.summary, part.name) for part in fields(one.summary)}
            tensors |= {
                f"{number}.{name}": part.detach().cpu().contiguous().clone()
                for name, part in parts.items()
                if part is not None
            }
            names = ("name", "kind", "layer", "call", *NUMBERS, *TEXTS)
            entries.append({name: getattr(one, name) for name in names})
        header = {"maps": entries, "unrecognised": [asdict(one) for one in self.unrecognised]}
        metadata = {"format": FORMAT, "regard": json.dumps(header, ensure_ascii=False)}
        files.write(Path(path), lambda place: save_file(tensors, place, metadata))
        return Path(path)


def load_capture(path: str | Path) -> AttentionMaps:
    """The attention maps that a capture has saved. No model is needed, and nothing in the file is executed.

    >>> import regard, tempfile, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = regard.load_capture(seen.save(f"{folder}/seen.safetensors"))
    >>> again, torch.equal(again[1].weights, seen[1].weights)
    (AttentionMaps: 2 maps of 2 layers, 0 not recognised, True)
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CaptureFileError(f"{path}: expected a file that a capture has saved, got another one")
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        header = json.loads(metadata["regard"])
        maps = [_read(number, entry, tensors) for number, entry in enumerate(header["maps"])]
        unrecognised = [Unrecognised(**{**one, "shape": tuple(one["shape"])}) for one in header["unrecognised"]]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, (CaptureFileError, OSError)):
            raise
        raise CaptureFileError(f"{path}: the file is damaged: {type(error).__name__}: {error}") from error
    return AttentionMaps(maps, unrecognised)


def _read(number: int, entry: dict[str, Any], tensors: dict[str, Tensor]) -> AttentionMap:
    parts: dict[str, Any] = {name: tensors.get(f"{number}.{name}") for name in TENSORS}
    gradient = Gradient()
    gradient.value = parts.pop("gradient")
    names = [part.name for part in fields(WeightSummary)]
    has_summary = f"{number}.summary.{names[0]}" in tensors
    known: dict[str, Any] = {
        "name": str(entry["name"]),
        "kind": str(entry["kind"]),
        "layer": int(entry["layer"]),
        "call": int(entry["call"]),
        **{name: tuple(map(int, entry[name])) for name in NUMBERS},
        **{name: tuple(map(str, entry[name])) for name in TEXTS},
    }
    weights = parts["weights"]
    if weights is None or weights.dim() != 4 or weights.shape[1:3] != (len(known["heads"]), len(known["queries"])):
        raise ValueError(f"the weights of map {number} do not fit its heads and queries")
    return AttentionMap(
        **known,
        **parts,
        gradients=None if gradient.value is None else gradient,
        summary=WeightSummary(*(tensors[f"{number}.summary.{name}"] for name in names)) if has_summary else None,
    )

"""The format of llama2.c: model.bin, a header of seven numbers and then every matrix; tokenizer.bin, pieces and scores.

Small real decoders, such as the 15 million parameters that write stories, come in it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from regard.models.folders import build, model_class
from regard.models.model import Model
from regard.models.tensors import FolderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["load"]

HEADER = struct.Struct("<7i")
UNKNOWN, BEGIN, END = 0, 1, 2


def load(folder: Path) -> Model:
    """The model in model.bin, with the tokenizer in tokenizer.bin if it is there."""
    path = folder / "model.bin"
    arguments, positions = _header(path)
    model = build(model_class("LanguageModel"), arguments, path)
    numbers = _Numbers(path, HEADER.size)
    state = _state(arguments, numbers)
    numbers.skip(
        2 * positions * (arguments["size"] // arguments["heads"] // 2)
    )  # cosines and sines, which are computed
    if not arguments["tie_embeddings"]:
        state["output.weight"] = numbers.take(arguments["vocab_size"], arguments["size"])
    numbers.finish()
    model.load_state_dict(state, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    if (folder / "tokenizer.bin").exists():
        model.tokenizer = _tokenizer(folder / "tokenizer.bin", arguments["vocab_size"])
    return model


def _header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise FolderError(f"{path}: expected a header of {HEADER.size} bytes, got {len(header)}")
    size, ffn_size, layers, heads, kv_heads, vocab_size, max_positions = HEADER.unpack(header)
    if min(size, ffn_size, layers, heads, kv_heads, abs(vocab_size), max_positions) < 1:
        raise FolderError(f"{path}: not a model of llama2.c: its header has a size below 1")
    arguments = {
        "vocab_size": abs(vocab_size),
        "size": size,
        "layers": layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn_size": ffn_size,
        "max_positions": max_positions,
        "positions": "rotary",
        "activation": "swiglu",
        "norm": "rms",
        "bias": False,
        "tie_embeddings": vocab_size > 0,  # the sign says it
        "bos": BEGIN,
        "eos": BEGIN,  # stories follow one another, each with the mark of a beginning
    }
    return arguments, max_positions


class _Numbers:
    """float32 numbers of a file, taken one matrix after the other."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        if (path.stat().st_size - start) % 4:
            raise FolderError(
                f"{path}: expected whole float32 numbers, got {path.stat().st_size - start} bytes of them"
            )
        self.numbers = numpy.memmap(path, dtype="<f4", mode="r", offset=start)
        self.place = 0

    def skip(self, count: int) -> None:
        if self.place + count > len(self.numbers):
            raise FolderError(f"{self.path}: ends too early: its header promises more numbers")
        self.place += count

    def take(self, *shape: int) -> Tensor:
        start = self.place
        self.skip(int(numpy.prod(shape)))
        tensor = torch.from_numpy(numpy.array(self.numbers[start : self.place], dtype=numpy.float32)).view(shape)
        if not bool(tensor.isfinite().all()):
            raise FolderError(f"{self.path}: holds NaN or infinity")
        return tensor

    def finish(self) -> None:
        if self.place != len(self.numbers):
            raise FolderError(f"{self.path}: {len(self.numbers) - self.place} numbers are left over after the model")


def _state(own: dict[str, Any], numbers: _Numbers) -> dict[str, Tensor]:
    """All matrices, in the order of the file: each kind for all layers at once."""
    size, inner, layers = own["size"], own["ffn_size"], own["layers"]
    head_size = size // own["heads"]
    kv_size = own["kv_heads"] * head_size
    state = {"word.weight": numbers.take(own["vocab_size"], size)}
    mixer_norm = numbers.take(layers, size)
    query, key, value = (numbers.take(layers, height, size) for height in (size, kv_size, kv_size))
    out_proj = numbers.take(layers, size, size)
    feed_forward_norm = numbers.take(layers, size)
    gate, down, up = (
        numbers.take(layers, inner, size),
        numbers.take(layers, size, inner),
        numbers.take(layers, inner, size),
    )
    for number in range(layers):
        turned = [_halves(part[number], head_size) for part in (query, key)]
        block = {
            "mixer_norm.weight": mixer_norm[number],
            "mixer.in_proj.0.weight": torch.cat([*turned, value[number]]),
            "mixer.out_proj.weight": out_proj[number],
            "feed_forward_norm.weight": feed_forward_norm[number],
            "feed_forward.in_proj.weight": torch.cat([gate[number], up[number]]),
            "feed_forward.out_proj.weight": down[number],
        }
        state |= {f"blocks.{number}.{name}": tensor.clone() for name, tensor in block.items()}
    state["norm.weight"] = numbers.take(size)
    return state


def _halves(weight: Tensor, head_size: int) -> Tensor:
    """Rotary pairs are neighbours (2i, 2i + 1) there and halves apart (i, i + half) here: the rows change places."""
    return weight.view(-1, head_size // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _tokenizer(path: Path, vocab_size: int) -> Tokenizer:
    """The pieces of tokenizer.bin as byte-pair encoding: the two neighbours with the best score are joined first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    pieces = _pieces(path, vocab_size)
    places = {piece: number for number, (piece, _) in enumerate(pieces)}
    merges = [
        (score, piece[:cut], piece[cut:])
        for piece, score in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in places and piece[cut:] in places
    ]
    merges.sort(key=lambda merge: -merge[0])
    pairs = [(first, second) for _, first, second in merges]
    tokenizer = Tokenizer(models.BPE(places, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BEGIN)])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    return tokenizer


def _pieces(path: Path, vocab_size: int) -> list[tuple[str, float]]:
    """Every piece with its score. Spaces are written ▁ while pieces are joined."""
    content = path.read_bytes()
    pieces, place = [], 4  # after the length of the longest
    special = {UNKNOWN: "<unk>", BEGIN: "<s>", END: "</s>"}
    try:
        for number in range(vocab_size):
            score, length = struct.unpack_from("<fi", content, place)
            place += 8
            text = content[place : place + length].decode()
            if length < 0 or place + length > len(content):
                raise FolderError(f"{path}: ends too early, at piece {number} of {vocab_size}")
            place += length
            pieces.append((special.get(number, text.replace(" ", "▁")), score))
    except (struct.error, UnicodeDecodeError) as error:
        raise FolderError(f"{path}: not a tokenizer of llama2.c with {vocab_size} pieces: {error}") from error
    return pieces

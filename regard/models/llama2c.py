"""The format of llama2.c: model.bin, a header of seven numbers and then every matrix; tokenizer.bin, pieces and scores.

Small pretrained models come in it, such as the 15 million parameters that write stories for children.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from regard.models.folders import build
from regard.models.model import Model
from regard.models.tensors import FolderError, assign

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HEADER = struct.Struct("<7i")
UNKNOWN, BOS, EOS = 0, 1, 2


def load(folder: Path) -> Model:
    """The model in model.bin, with the tokenizer in tokenizer.bin if it is there."""
    path = folder / "model.bin"
    arguments = _header(path)
    model = build("LanguageModel", arguments, path)
    assign(model, _state(arguments, _Numbers(path, HEADER.size)))
    if (folder / "tokenizer.bin").exists():
        model.tokenizer = _tokenizer(folder / "tokenizer.bin", arguments["vocab_size"])
    return model


def _header(path: Path) -> dict[str, Any]:
    """The arguments of the model."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise FolderError(f"{path}: expected a header of {HEADER.size} bytes, got {len(header)}")
    size, ffn_size, layers, heads, kv_heads, vocab_size, max_positions = HEADER.unpack(header)
    if min(size, ffn_size, layers, heads, kv_heads, abs(vocab_size), max_positions) < 1:
        raise FolderError(f"{path}: not a model of llama2.c: its header has a size below 1")
    return {
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
        "bos": BOS,
        "eos": BOS,  # it was trained on stories one after another, each with a bos token in front
    }


class _Numbers:
    """float32 numbers of a file, taken one matrix after the other."""

    def __init__(self, path: Path, start: int) -> None:
        self.path = path
        if (path.stat().st_size - start) % 4:
            raise FolderError(
                f"{path}: expected whole float32 numbers, got {path.stat().st_size - start} bytes of them"
            )
        self.numbers = numpy.memmap(path, dtype="<f4", mode="r", offset=start)
        self.position = 0

    def skip(self, count: int) -> None:
        """Leave out some numbers."""
        if self.position + count > len(self.numbers):
            raise FolderError(f"{self.path}: ends too early: its header promises more numbers")
        self.position += count

    def take(self, *shape: int) -> Tensor:
        """The next tensor."""
        start = self.position
        self.skip(int(numpy.prod(shape)))
        tensor = torch.from_numpy(numpy.array(self.numbers[start : self.position], dtype=numpy.float32)).view(shape)
        if not bool(tensor.isfinite().all()):
            raise FolderError(f"{self.path}: holds NaN or infinity")
        return tensor

    def finish(self) -> None:
        """Check that all of the file was taken."""
        if self.position != len(self.numbers):
            raise FolderError(f"{self.path}: {len(self.numbers) - self.position} numbers are left over after the model")


def _state(arguments: dict[str, Any], numbers: _Numbers) -> dict[str, Tensor]:
    """All tensors, in the order of the file: each kind for all layers at once."""
    size, ffn_size, layers = arguments["size"], arguments["ffn_size"], arguments["layers"]
    head_size = size // arguments["heads"]
    kv_size = arguments["kv_heads"] * head_size
    state = {"token_embedding.weight": numbers.take(arguments["vocab_size"], size)}
    mixer_norm = numbers.take(layers, size)
    query, key, value = (numbers.take(layers, height, size) for height in (size, kv_size, kv_size))
    out_proj = numbers.take(layers, size, size)
    feed_forward_norm = numbers.take(layers, size)
    shapes = ((ffn_size, size), (size, ffn_size), (ffn_size, size))
    gate, down, up = (numbers.take(layers, *shape) for shape in shapes)
    for number in range(layers):
        rotated = [_to_halves(part[number], head_size) for part in (query, key)]
        block = {
            "mixer_norm.weight": mixer_norm[number],
            "mixer.in_proj.0.weight": torch.cat([*rotated, value[number]]),
            "mixer.out_proj.weight": out_proj[number],
            "feed_forward_norm.weight": feed_forward_norm[number],
            "feed_forward.in_proj.weight": torch.cat([gate[number], up[number]]),
            "feed_forward.out_proj.weight": down[number],
        }
        state |= {f"blocks.{number}.{name}": tensor.clone() for name, tensor in block.items()}
    state["norm.weight"] = numbers.take(size)
    numbers.skip(2 * arguments["max_positions"] * (head_size // 2))  # cosines and sines, which are computed
    if not arguments["tie_embeddings"]:
        state["output.weight"] = numbers.take(arguments["vocab_size"], size)
    numbers.finish()
    return state


def _to_halves(weight: Tensor, head_size: int) -> Tensor:
    """Rows reordered: rotary pairs are neighbours (2i, 2i + 1) there and half a head apart (i, i + half) here."""
    return weight.view(-1, head_size // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _tokenizer(path: Path, vocab_size: int) -> Tokenizer:
    """The pieces of tokenizer.bin as byte-pair encoding: the two neighbours with the best score are joined first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    pieces = _pieces(path, vocab_size)
    ids = {piece: number for number, (piece, _) in enumerate(pieces)}
    merges = [
        (score, piece[:cut], piece[cut:])
        for piece, score in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    merges.sort(key=lambda merge: -merge[0])
    pairs = [(first, second) for _, first, second in merges]
    tokenizer = Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    return tokenizer


def _pieces(path: Path, vocab_size: int) -> list[tuple[str, float]]:
    """Every piece with its score. Spaces are written ▁ while pieces are joined."""
    content = path.read_bytes()
    pieces, offset = [], 4  # after the length of the longest
    special = {UNKNOWN: "<unk>", BOS: "<s>", EOS: "</s>"}
    try:
        for number in range(vocab_size):
            score, length = struct.unpack_from("<fi", content, offset)
            offset += 8
            text = content[offset : offset + length].decode()
            if length < 0 or offset + length > len(content):
                raise FolderError(f"{path}: ends too early, at piece {number} of {vocab_size}")
            offset += length
            pieces.append((special.get(number, text.replace(" ", "▁")), score))
    except (struct.error, UnicodeDecodeError) as error:
        raise FolderError(f"{path}: not a tokenizer of llama2.c with {vocab_size} pieces: {error}") from error
    return pieces

"""Models in formats of others, without a config.json.

llama2.c   model.bin, a header of seven numbers and then every matrix, and tokenizer.bin, pieces and scores. Small
           pretrained models come in it, such as the 15 million parameters that write stories for children
g2p        checkpoint20.npz, the arrays of a GRU that encodes the letters of an English word into one vector and of a
           GRU that says phonemes from it: the bottleneck that attention removed, trained by others
"""

import math
import string
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

from regard.data.image_sets import open_array
from regard.files import ContentError, read_file
from regard.models.folders import build
from regard.models.model import Model
from regard.models.tensors import LARGEST_TEXT, FolderError, assign, check_regular

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HEADER = struct.Struct("<7i")
UNKNOWN, BOS, EOS = 0, 1, 2
LONGEST_PIECE = 256  # bytes: a piece is cut everywhere, and both parts are looked up


def load_llama2c(folder: Path) -> Model:
    """The model in model.bin, with the tokenizer in tokenizer.bin if it is there."""
    path = folder / "model.bin"
    check_regular(path)
    arguments = _header(path)
    model = build("LanguageModel", arguments, path)
    assign(model, _llama_state(arguments, path))
    if (folder / "tokenizer.bin").exists():
        model.tokenizer = llama_tokenizer(folder / "tokenizer.bin", arguments["vocab_size"])
    return model


def _header(path: Path) -> dict[str, Any]:
    """The arguments of the model."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise FolderError(f"{path}: expected a header of {HEADER.size} bytes, got {len(header)}")
    names = ("size", "ffn_size", "layers", "heads", "kv_heads", "vocab_size", "max_positions")
    sizes = dict(zip(names, HEADER.unpack(header), strict=True))
    tied, sizes["vocab_size"] = sizes["vocab_size"] > 0, abs(sizes["vocab_size"])  # the sign says it
    if min(sizes.values()) < 1:
        raise FolderError(f"{path}: not a model of llama2.c: its header has a size below 1")
    form = {"positions": "rotary", "activation": "swiglu", "norm": "rms", "bias": False, "tie_embeddings": tied}
    # It was trained on stories one after another, each with a bos token in front.
    return {**sizes, **form, "bos": BOS, "eos": BOS}


def _llama_state(arguments: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """All tensors. In the file each kind stands for all layers at once."""
    size, ffn_size, layers, heads = (arguments[name] for name in ("size", "ffn_size", "layers", "heads"))
    head_size = size // heads
    kv_size = arguments["kv_heads"] * head_size
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding": (arguments["vocab_size"], size),
        "mixer_norm": (layers, size),
        "query": (layers, size, size),
        "key": (layers, kv_size, size),
        "value": (layers, kv_size, size),
        "out_proj": (layers, size, size),
        "feed_forward_norm": (layers, size),
        "gate": (layers, ffn_size, size),
        "down": (layers, size, ffn_size),
        "up": (layers, ffn_size, size),
        "norm": (size,),
        "rotations": (2, arguments["max_positions"], head_size // 2),  # cosines and sines, which are computed
    }
    if not arguments["tie_embeddings"]:
        shapes["output"] = (arguments["vocab_size"], size)
    parts = _read_numbers(path, shapes)
    state = {f"{name}.weight": parts[name] for name in ("token_embedding", "norm", "output") if name in parts}
    for number in range(layers):
        rotated = [_to_halves(parts[name][number], head_size) for name in ("query", "key")]
        block = {
            "mixer_norm": parts["mixer_norm"][number],
            "mixer.in_proj.0": torch.cat([*rotated, parts["value"][number]]),
            "mixer.out_proj": parts["out_proj"][number],
            "feed_forward_norm": parts["feed_forward_norm"][number],
            "feed_forward.in_proj": torch.cat([parts["gate"][number], parts["up"][number]]),
            "feed_forward.out_proj": parts["down"][number],
        }
        state |= {f"blocks.{number}.{name}.weight": tensor.clone() for name, tensor in block.items()}
    return state


def _read_numbers(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The float32 numbers of a file behind its header, as tensors of these shapes."""
    count = path.stat().st_size - HEADER.size
    if count % 4:
        raise FolderError(f"{path}: expected whole float32 numbers, got {count} bytes of them")
    left = count // 4 - sum(math.prod(shape) for shape in shapes.values())
    if left < 0:
        raise FolderError(f"{path}: ends too early: its header promises more numbers")
    if left:
        raise FolderError(f"{path}: {left} numbers are left over after the model")
    numbers = numpy.memmap(path, dtype="<f4", mode="r", offset=HEADER.size)
    tensors: dict[str, Tensor] = {}
    start = 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        if name != "rotations":
            tensors[name] = torch.from_numpy(numpy.array(numbers[start:stop], dtype=numpy.float32)).view(shape)
            if not bool(tensors[name].isfinite().all()):
                raise FolderError(f"{path}: holds NaN or infinity")
        start = stop
    return tensors


def _to_halves(weight: Tensor, head_size: int) -> Tensor:
    """Rows reordered: rotary pairs are neighbours (2i, 2i + 1) there and half a head apart (i, i + half) here."""
    return weight.view(-1, head_size // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def llama_tokenizer(path: Path, vocab_size: int) -> "Tokenizer":
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
    pieces, offset = [], 4  # after the length of the longest
    special = {UNKNOWN: "<unk>", BOS: "<s>", EOS: "</s>"}
    try:
        content = read_file(path, LARGEST_TEXT)
        for number in range(vocab_size):
            score, length = struct.unpack_from("<fi", content, offset)
            offset += 8
            text = content[offset : offset + length].decode()
            if length < 0 or offset + length > len(content):
                raise FolderError(f"{path}: ends too early, at piece {number} of {vocab_size}")
            if length > LONGEST_PIECE:
                raise FolderError(f"{path}: piece {number}: expected at most {LONGEST_PIECE} bytes, got {length:,}")
            offset += length
            pieces.append((special.get(number, text.replace(" ", "▁")), score))
    except (struct.error, UnicodeDecodeError, ContentError) as error:
        raise FolderError(f"{path}: not a tokenizer of llama2.c with {vocab_size} pieces: {error}") from error
    return pieces


# ------------------------------------------------------------------------------------------------------------------ g2p

CHECKPOINT = "checkpoint20.npz"
LARGEST = 1 << 28  # bytes of its arrays
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = (
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N"),
    *("NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y", "Z", "ZH"),
)
STRESSED = [f"{vowel}{stress}" for vowel in VOWELS for stress in range(3)]  # 0: none, 1: the main one, 2: another
LETTERS = ["<pad>", "<unk>", "</s>", *string.ascii_lowercase]
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *sorted([*STRESSED, *CONSONANTS, "UW"])]
ARRAYS = (
    *("enc_emb", "enc_w_ih", "enc_w_hh", "enc_b_ih", "enc_b_hh"),
    *("dec_emb", "dec_w_ih", "dec_w_hh", "dec_b_ih", "dec_b_hh", "fc_w", "fc_b"),
)


def load_g2p(folder: Path) -> Model:
    """The model in checkpoint20.npz, with its letters and phonemes as tokenizers."""
    path = folder / CHECKPOINT
    arrays = _read_arrays(path)
    hidden_size, size = arrays["enc_w_hh"].shape[-1], arrays["enc_emb"].shape[-1]
    arguments = {
        "source_vocab_size": len(LETTERS),
        "target_vocab_size": len(PHONEMES),
        "size": size,
        "hidden_size": hidden_size,
        "bidirectional": False,
        "attention": None,
        "bos": PHONEMES.index("<s>"),
        "eos": PHONEMES.index("</s>"),
    }
    model = build("Seq2Seq", arguments, path)
    state = _g2p_state(arrays, hidden_size)
    for name, expected in model.state_dict().items():
        if state[name].shape != expected.shape:
            raise FolderError(
                f"{path}: expected shape {tuple(expected.shape)} for {name}, got {tuple(state[name].shape)}"
            )
    assign(model, state)
    model.tokenizer, model.target_tokenizer = _g2p_tokenizers()
    return model


def _read_arrays(path: Path) -> dict[str, Tensor]:
    """All arrays, which may not be pickled objects: reading those could run code."""
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > LARGEST:
                raise ValueError(f"expected at most {LARGEST:,} bytes of arrays, got {size:,}")
            arrays = {name: _read_array(archive, name) for name in ARRAYS}
    except Exception as error:  # of many kinds, where an archive is broken
        raise FolderError(f"{path}: not readable as a checkpoint of g2p: {error}") from error
    for name, array in arrays.items():
        if array.dim() != (1 if "_b" in name else 2) or not bool(array.isfinite().all()):
            raise FolderError(f"{path}: {name}: expected finite numbers in rows, got shape {tuple(array.shape)}")
    return arrays


def _read_array(archive: zipfile.ZipFile, name: str) -> Tensor:
    def check(shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> None:
        if dtype.kind != "f":
            raise ValueError(f"{name}: expected floating-point numbers, got {dtype.name}")

    with open_array(archive, name, check) as ((shape, is_fortran, dtype), member):
        numbers = numpy.frombuffer(member.read(), dtype).astype(numpy.float32)
    return torch.from_numpy(numbers.reshape(shape, order="F" if is_fortran else "C"))


def _g2p_state(arrays: dict[str, Tensor], hidden_size: int) -> dict[str, Tensor]:
    """Our tensors. The gates stand in PyTorch's order: reset, update, new.

    The decoder there sees the encoder's last state only as its own first state; the weights with which it would read it
    at every step, and those with which the output would, are zeros here.
    """
    state = {"source_embedding.weight": arrays["enc_emb"], "target_embedding.weight": arrays["dec_emb"]}
    for ours, theirs in (("encoder", "enc"), ("decoder", "dec")):
        for kind in ("ih", "hh"):
            state[f"{ours}.weight_{kind}_l0"] = arrays[f"{theirs}_w_{kind}"]
            state[f"{ours}.bias_{kind}_l0"] = arrays[f"{theirs}_b_{kind}"]
    for name, weight in (("decoder.weight_ih_l0", arrays["dec_w_ih"]), ("output.weight", arrays["fc_w"])):
        state[name] = torch.cat([weight, weight.new_zeros(weight.shape[0], hidden_size)], 1)  # none for the context
    return state | {"output.bias": arrays["fc_b"]}


def _g2p_tokenizers() -> "tuple[Tokenizer, Tokenizer]":
    """Letters, without accents and capitals, whether spaces stand between them or not; phonemes between spaces."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    letters, phonemes = _symbols(LETTERS), _symbols(PHONEMES)
    letters.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    phonemes.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single = pre_tokenizers.Split(Regex("."), "isolated")
    letters.pre_tokenizer = pre_tokenizers.Sequence([phonemes.pre_tokenizer, single])
    return letters, phonemes


def _symbols(tokens: Sequence[str]) -> Any:
    """One for each token; </s> follows a text."""
    from tokenizers import Tokenizer, models, processors

    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.add_special_tokens([token for token in tokens if token in ("<pad>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", ids["</s>"])])
    return tokenizer

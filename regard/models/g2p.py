"""The format of g2p, a reader of English words: checkpoint20.npz, the arrays of a GRU that encodes letters into one
vector and of a GRU that says phonemes from it. It is the bottleneck that attention removed, trained by others.

The decoder there sees the encoder's last state only as its own first state; the weights with which it would read it
at every step, and those with which the output would, are zeros here.
"""

from __future__ import annotations

import string
import zipfile
from collections.abc import Sequence
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


def load(folder: Path) -> Model:
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
    state = _state(arrays, hidden_size)
    for name, expected in model.state_dict().items():
        if state[name].shape != expected.shape:
            raise FolderError(
                f"{path}: expected shape {tuple(expected.shape)} for {name}, got {tuple(state[name].shape)}"
            )
    assign(model, state)
    model.tokenizer, model.target_tokenizer = _tokenizers()
    return model


def _read_arrays(path: Path) -> dict[str, Tensor]:
    """All arrays, which may not be pickled objects: reading those could run code."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > LARGEST:
            raise FolderError(f"{path}: expected at most {LARGEST:,} bytes of arrays, got {size:,}")
        with numpy.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name].astype(numpy.float32)) for name in ARRAYS}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, FolderError):
            raise
        raise FolderError(f"{path}: not readable as a checkpoint of g2p: {error}") from error
    for name, array in arrays.items():
        if array.dim() != (1 if "_b" in name else 2) or not bool(array.isfinite().all()):
            raise FolderError(f"{path}: {name}: expected finite numbers in rows, got shape {tuple(array.shape)}")
    return arrays


def _state(arrays: dict[str, Tensor], hidden_size: int) -> dict[str, Tensor]:
    """Our tensors. The gates stand in PyTorch's order: reset, update, new."""
    state = {"source_embedding.weight": arrays["enc_emb"], "target_embedding.weight": arrays["dec_emb"]}
    for ours, theirs in (("encoder", "enc"), ("decoder", "dec")):
        for kind in ("ih", "hh"):
            state[f"{ours}.weight_{kind}_l0"] = arrays[f"{theirs}_w_{kind}"]
            state[f"{ours}.bias_{kind}_l0"] = arrays[f"{theirs}_b_{kind}"]
    for name, weight in (("decoder.weight_ih_l0", arrays["dec_w_ih"]), ("output.weight", arrays["fc_w"])):
        state[name] = torch.cat([weight, weight.new_zeros(weight.shape[0], hidden_size)], 1)  # none for the context
    return state | {"output.bias": arrays["fc_b"]}


def _tokenizers() -> tuple[Tokenizer, Tokenizer]:
    """Letters, without accents and capitals, whether spaces stand between them or not; phonemes between spaces."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    letters, phonemes = _tokenizer(LETTERS), _tokenizer(PHONEMES)
    letters.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    phonemes.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single = pre_tokenizers.Split(Regex("."), "isolated")
    letters.pre_tokenizer = pre_tokenizers.Sequence([phonemes.pre_tokenizer, single])
    return letters, phonemes


def _tokenizer(tokens: Sequence[str]) -> Any:
    """One for each token; </s> follows a text."""
    from tokenizers import Tokenizer, models, processors

    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.add_special_tokens([token for token in tokens if token in ("<pad>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", ids["</s>"])])
    return tokenizer

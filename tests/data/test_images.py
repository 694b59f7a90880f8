"""Images with classes: every layout gives the same tensors, and errors name the file."""

import gzip
import io
import re
import struct
import zipfile

import numpy
import pytest
import torch
from PIL import Image

from regard.data.image_files import ORIENTATION, ImageError, peek, read_image
from regard.data.images import DigitImages, digits
from tests.data.whole_images import read_images

COUNT, HEIGHT, WIDTH = 11, 7, 5
NAMES = ("cat", "dog", "emu")


@pytest.fixture
def grey():
    return numpy.random.default_rng(0).integers(0, 256, (COUNT, HEIGHT, WIDTH), dtype=numpy.uint8)


@pytest.fixture
def colour():
    return numpy.random.default_rng(1).integers(0, 256, (COUNT, HEIGHT, WIDTH, 3), dtype=numpy.uint8)


@pytest.fixture
def labels():
    return numpy.sort(numpy.arange(COUNT) % 3)


def write_folders(folder, pixels, labels, ending="png"):
    for row, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        (folder / NAMES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / NAMES[label] / f"{row:03}.{ending}")
    return folder


def idx(array):
    array = numpy.asarray(array, dtype=numpy.uint8)
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, part, pixels, labels, pack=lambda content: content, ending="", mark="-"):
    folder.mkdir(exist_ok=True)
    (folder / f"{part}-images{mark}idx3-ubyte{ending}").write_bytes(pack(idx(pixels)))
    (folder / f"{part}-labels{mark}idx1-ubyte{ending}").write_bytes(pack(idx(labels)))
    return folder


def check(part, pixels, labels, names=NAMES):
    pixels = torch.from_numpy(pixels)
    assert torch.equal(part.pixels, pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2))
    assert torch.equal(part.labels, torch.from_numpy(labels))
    assert (part.pixels.dtype, part.labels.dtype) == (torch.uint8, torch.int64)
    assert part.pixels.is_contiguous()
    assert part.names == names


@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "ppm"])
@pytest.mark.parametrize("kind", ["grey", "colour"])
def test_a_folder_per_class(tmp_path, kind, ending, labels, request):
    pixels = request.getfixturevalue(kind)
    write_folders(tmp_path, pixels, labels, ending)
    (tmp_path / "README").write_text("about these pictures")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "cat" / ".hidden").write_text("no picture")
    data = read_images(tmp_path)
    check(data.train, pixels, labels)
    assert data.test is None


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
@pytest.mark.parametrize("kind", ["grey", "colour"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", ">i4", "uint64"])
def test_arrays(tmp_path, kind, save, dtype, labels, request):
    pixels = request.getfixturevalue(kind)
    save(tmp_path / "a.npz", images=pixels, labels=labels.astype(dtype), names=numpy.array(NAMES))
    check(read_images(tmp_path / "a.npz").train, pixels, labels)
    save(tmp_path / "b.npz", images=numpy.asfortranarray(pixels), labels=labels)
    check(read_images(tmp_path / "b.npz").train, pixels, labels, ("0", "1", "2"))


def test_sets_with_a_part_for_the_test(tmp_path, grey, labels):
    write_folders(tmp_path / "folders" / "train", grey, labels)
    write_folders(tmp_path / "folders" / "test", grey[::-1], labels)
    (tmp_path / "arrays").mkdir()
    numpy.savez(tmp_path / "arrays" / "train.npz", images=grey, labels=labels, names=numpy.array(NAMES))
    numpy.savez(tmp_path / "arrays" / "test.npz", images=grey[:5], labels=labels[:5])  # without the last class
    for layout, pixels, test_labels in (("folders", grey[::-1].copy(), labels), ("arrays", grey[:5], labels[:5])):
        data = read_images(tmp_path / layout)
        check(data.train, grey, labels)
        check(data.test, pixels, test_labels)
    (tmp_path / "arrays" / "test.npz").unlink()
    assert read_images(tmp_path / "arrays").test is None


@pytest.mark.parametrize("mark", "-.")
@pytest.mark.parametrize(("pack", "ending"), [(bytes, ""), (gzip.compress, ".gz")])
def test_idx_files(tmp_path, grey, labels, pack, ending, mark):
    folder = write_idx(tmp_path, "train", grey, labels, pack, ending, mark)
    assert read_images(folder).test is None
    write_idx(tmp_path, "t10k", grey[:3], labels[:3], pack, ending, mark)
    data = read_images(folder)
    check(data.train, grey, labels, ("0", "1", "2"))
    check(data.test, grey[:3], labels[:3], ("0", "1", "2"))


def test_a_size_means_the_same_for_every_layout(tmp_path, colour, labels):
    write_folders(tmp_path / "folders", colour, labels)
    numpy.savez(tmp_path / "a.npz", images=colour, labels=labels, names=numpy.array(NAMES))
    one, two = (read_images(tmp_path / name, size=3).train for name in ("folders", "a.npz"))
    assert torch.equal(one.pixels, two.pixels)
    assert one.pixels.shape == (COUNT, 3, 3, 3)
    first = read_image(tmp_path / "folders" / "cat" / "000.png", 3, (3, 3))
    assert torch.equal(first, one.pixels[0])


def test_pictures_of_several_sizes_need_a_size(tmp_path, grey, labels):
    write_folders(tmp_path, grey, labels)
    Image.fromarray(grey[0].T.copy()).save(tmp_path / "dog" / "turned.png")
    Image.fromarray(grey[0, :3]).save(tmp_path / "dog" / "wide.png")
    with pytest.raises(
        ImageError, match=r"have several sizes, such as 7×5 and 5×7: pass --image-size.* --image-size 5"
    ):
        read_images(tmp_path)
    assert read_images(tmp_path, size=13).train.pixels.shape == (13, 1, 13, 13)
    with pytest.raises(ImageError, match="--image-size: expected 1 or more, got 0"):
        read_images(tmp_path, size=0)


def test_one_colour_picture_makes_all_of_them_colour(tmp_path, grey, colour, labels):
    write_folders(tmp_path, grey, labels)
    Image.fromarray(colour[0]).save(tmp_path / "cat" / "000.png")
    pixels = read_images(tmp_path).train.pixels
    assert torch.equal(pixels[0], torch.from_numpy(colour[0]).permute(2, 0, 1))
    assert torch.equal(pixels[1:], torch.from_numpy(grey[1:])[:, None].expand(-1, 3, -1, -1))


def test_a_picture_cut_to_size_keeps_its_middle(tmp_path):
    wide = numpy.zeros((7, 21), dtype=numpy.uint8)
    wide[:, 7:14] = 201
    Image.fromarray(wide).save(tmp_path / "a.png")
    assert (read_image(tmp_path / "a.png", 1, (7, 7)) == 201).all()
    assert read_image(tmp_path / "a.png", 3, (5, 3)).shape == (3, 5, 3)


def test_deep_transparent_and_turned_pictures(tmp_path, grey):
    deep = grey[0].astype(numpy.uint16) * 256 + 97
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert numpy.array_equal(read_image(tmp_path / "deep.png", 1, (HEIGHT, WIDTH))[0], grey[0])
    Image.new("RGBA", (WIDTH, HEIGHT), (3, 5, 7, 0)).save(tmp_path / "clear.png")
    assert (read_image(tmp_path / "clear.png", 3, (HEIGHT, WIDTH)) == 255).all()
    exif = Image.Exif()
    exif[ORIENTATION] = 6  # the camera was held upright
    left = numpy.zeros((16, 32), dtype=numpy.uint8)
    left[:, :16] = 255
    Image.fromarray(left).save(tmp_path / "turned.jpg", exif=exif)
    assert peek(tmp_path / "turned.jpg") == (1, (32, 16))
    turned = read_image(tmp_path / "turned.jpg", 1, (32, 16))[0].float()
    assert turned[:14].min() > 200 > 50 > turned[18:].max()
    Image.fromarray(grey[0].astype(numpy.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(ImageError, match="expected 8 or 16 bits a channel, got 32"):
        read_image(tmp_path / "float.tiff", 1, (HEIGHT, WIDTH))
    with pytest.raises(ImageError, match=r"expected 1 channel \(grey\) or 3 \(colour\), got 2"):
        read_image(tmp_path / "deep.png", 2, (HEIGHT, WIDTH))


@pytest.mark.parametrize("claim", ["8001 8001", "10007 10007", "60000 60000", "2000000000 2"])
def test_giant_images_are_refused_before_they_are_decoded(tmp_path, grey, labels, claim):
    write_folders(tmp_path, grey, labels)
    giant = tmp_path / "emu" / "giant.ppm"
    giant.write_bytes(f"P5 {claim} 255\n".encode() + bytes(101))
    for read in (lambda: read_images(tmp_path), lambda: read_images(tmp_path, 7), lambda: read_image(giant, 1, (7, 7))):
        with pytest.raises(ImageError, match=r"giant.ppm: claims more than 64000000 pixels"):
            read()


def test_what_is_wrong_with_a_folder(tmp_path, grey, labels):
    write_folders(tmp_path, grey, labels)
    picture = tmp_path / "cat" / "000.png"
    whole = picture.read_bytes()
    for content, message in [
        (whole[:-30], "000.png: cannot be read as a picture"),
        (b"", "000.png: is no picture: expected PNG, JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 7 5\n", "000.png: is no picture: expected"),
    ]:
        picture.write_bytes(content)
        with pytest.raises(ImageError, match=message):
            read_images(tmp_path)
    picture.write_bytes(whole)
    for name, make, message in [
        ("gnu", lambda path: path.mkdir(), "gnu: no pictures of this class"),
        ("dog/inner", lambda path: path.mkdir(), "inner: expected a regular file, got a folder"),
        ("dog/notes.txt", lambda path: path.write_text("x"), "notes.txt: is no picture"),
    ]:
        path = tmp_path / name
        make(path)
        with pytest.raises(ImageError, match=message):
            read_images(tmp_path)
        path.rmdir() if path.is_dir() else path.unlink()
    assert len(read_images(tmp_path).train.labels) == COUNT


def test_what_is_no_set_of_pictures(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    for name in ("empty", "parts/train/cat", "parts/valid/cat"):
        (tmp_path / name).mkdir(parents=True)
    for path, message in [
        (tmp_path / "none", "none: does not exist, expected an .npz file"),
        (tmp_path / "a.txt", "a.txt: is a file, expected an .npz file"),
        (tmp_path / "empty", "empty: no folders in it, expected"),
        (
            tmp_path / "parts",
            r"cat: expected a regular file.*parts can be read: expected a folder of pictures per class",
        ),
    ]:
        with pytest.raises(ImageError, match=message):
            read_images(path)


def test_parts_that_do_not_fit_together(tmp_path, grey, labels):
    write_folders(tmp_path / "a" / "train", grey, labels)
    write_folders(tmp_path / "a" / "test", grey[:5], labels[:5])
    with pytest.raises(ImageError, match="expected the classes of train, 'cat', 'dog', 'emu', got 'cat', 'dog'"):
        read_images(tmp_path / "a")
    write_idx(tmp_path / "b", "train", grey, labels)
    write_idx(tmp_path / "b", "t10k", grey[:, :, :3], labels)
    with pytest.raises(ImageError, match=r"t10k.*: expected pictures of 1×7×5 as in train-.*, got 1×7×3"):
        read_images(tmp_path / "b")
    write_idx(tmp_path / "b", "t10k", grey, labels + 1)
    with pytest.raises(ImageError, match=r"t10k.*row 8: expected a label of 0 to 2, got 3"):
        read_images(tmp_path / "b")
    (tmp_path / "b" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ImageError, match="no t10k-labels-idx1-ubyte beside t10k-images"):
        read_images(tmp_path / "b")


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    (pixels, labels), expected = digits(), load_digits()
    assert pixels.shape == (1797, 1, 8, 8)
    assert pixels.dtype == torch.uint8
    scaled = pixels[:, 0].double() * 16 / 255
    assert (scaled - torch.from_numpy(expected.images)).abs().max() < 16 / 255
    assert pixels.max() == 255
    assert torch.equal(labels, torch.from_numpy(expected.target))
    images = DigitImages()
    assert images.names == tuple(map(str, expected.target_names))
    assert numpy.array_equal(images.labels, expected.target)


def npy(shape, dtype="|u1", content=b"", version=1):
    """An .npy file that claims a shape."""
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + content


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


PIXELS, LABELS = npy((3, 7, 5), content=bytes(105)), npy((3,), content=b"\0\1\1")
WRONG = {
    "cannot be read as an .npz file": b"PK\3\4 but not really",
    "expected the arrays 'images' and 'labels', got 'images', 'other'": npz(images=PIXELS, other=LABELS),
    r"images: expected uint8 as .* got float32": npz(images=npy((3, 7, 5), "<f4"), labels=LABELS),
    r"images: expected uint8 as .* got uint16": npz(images=npy((3, 7, 5), "<u2"), labels=LABELS),
    r"images: expected uint8 as .* got object": npz(images=npy((3, 7, 5), "|O"), labels=LABELS),
    r"images: expected .* got uint8 as \(3, 35\)": npz(images=npy((3, 35), content=bytes(105)), labels=LABELS),
    r"1 or 3\]\), got 3×3×7×5": npz(images=npy((3, 3, 7, 5), content=bytes(315)), labels=LABELS),
    r"expected pictures .* got 0×7×5": npz(images=npy((0, 7, 5)), labels=npy((0,))),
    "a label for every picture, got 3 and 2": npz(images=PIXELS, labels=npy((2,), content=b"\0\1")),
    "labels: expected integers as": npz(images=PIXELS, labels=npy((3,), "<f8")),
    "row 2: expected a label of 0 to 1, got -1": npz(images=PIXELS, labels=npy((3,), "|i1", b"\0\1\xff")),
    "row 0: expected a label of 0 to 0, got -1": npz(images=PIXELS, labels=npy((3,), "|i1", b"\xff" * 3)),
    "row 2: .* 0 to 65535": npz(images=PIXELS, labels=npy((3,), "<i8", struct.pack("<3q", 0, 1, 10**15))),
    "row 1: .* 0 to 0, got 1": npz(images=PIXELS, labels=LABELS, names=npy((1,), "<U1", b"a\0\0\0")),
    "names: expected .* different": npz(images=PIXELS, labels=LABELS, names=npy((2,), "<U1", b"a\0\0\0" * 2)),
    "cannot be read": npz(images=PIXELS, labels=LABELS, names=npy((1,), "<U1", b"\0\xd8\0\0")),
    r"images: expected version 1 or 2 of .npy": npz(images=npy((3, 7, 5), version=3), labels=LABELS),
    r"claims 1000000000×7×5×1 bytes, expected 4000000000": npz(images=npy((10**9, 7, 5)), labels=LABELS),
    r"its header claims 350000000 bytes, the archive 0": npz(images=npy((10**7, 7, 5)), labels=LABELS),
    "claims 105 bytes, the archive 10": npz(images=npy((3, 7, 5), content=bytes(10**6)), labels=LABELS),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_with_arrays(tmp_path, message):
    path = tmp_path / "a.npz"
    path.write_bytes(WRONG[message])
    with pytest.raises(ImageError, match=f"{re.escape(str(path))}: .*{message}"):
        read_images(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(numpy.zeros((3, 7, 5)))[:-1], "claims 3×7×5 bytes, it holds 104"),
        (idx(numpy.zeros((3, 7, 5))) + b"\0", "claims 3×7×5 bytes, it holds more"),
        (struct.pack(">4B3I", 0, 0, 8, 3, *[2**32 - 1] * 3), "bytes, expected 4000000000 at most"),
        (idx(numpy.zeros(105)), "expected an idx file of bytes in 3 dimensions"),
        (b"\0\0\x08\3\0", "expected an idx file of bytes in 3 dimensions"),
    ],
)
def test_what_is_wrong_with_idx_files(tmp_path, pack, content, message):
    ending = "" if pack is bytes else ".gz"
    write_idx(tmp_path, "train", numpy.zeros((3, 7, 5)), [0, 1, 1], pack, ending)
    (tmp_path / f"train-images-idx3-ubyte{ending}").write_bytes(pack(content))
    with pytest.raises(ImageError, match=message):
        read_images(tmp_path)

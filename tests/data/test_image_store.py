"""Images in a store: the pixels that the files have, whatever their layout; decoded once, a few at a time."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from regard.data import image_sets, images, store
from regard.data.image_files import ORIENTATION, ImageError, fit, read_image
from regard.data.images import find_images, skipped_images, store_images, stored_part
from regard.data.texts import RowsError
from tests.data.test_images import COUNT, NAMES, write_folders, write_idx
from tests.data.whole_images import read_images

ROOT = Path(__file__).resolve().parents[2]
ALL = slice(None)
OLD = 1_500_000_000  # seconds: a time long ago, so that files count as settled


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path_factory.mktemp("prepared")))


@pytest.fixture
def colour():
    return numpy.random.default_rng(1).integers(0, 256, (COUNT, 7, 5, 3), dtype=numpy.uint8)


@pytest.fixture
def labels():
    return numpy.sort(numpy.arange(COUNT) % 3)


def stored(path, size=None):
    images = find_images(path)
    return store_images(images, images.shape(size))


def settle(folder, monkeypatch):
    """As if the files had been there for long: ctime cannot be set, so the clock goes on."""
    monkeypatch.setattr(store, "SETTLED", -1e9)
    return folder


def photo(height, width, seed=0):
    """Noise with the spectrum of photos: 1/f."""
    generator = numpy.random.default_rng(seed)
    squares = numpy.fft.fftfreq(height)[:, None, None] ** 2 + numpy.fft.fftfreq(width)[:, None] ** 2
    spectrum = numpy.fft.fft2(generator.normal(size=(height, width, 3)), axes=(0, 1)) / numpy.sqrt(squares + 1e-9)
    noise = numpy.fft.ifft2(spectrum, axes=(0, 1)).real
    return Image.fromarray(numpy.clip(128 + 40 * noise / noise.std(), 0, 255).astype(numpy.uint8))


@pytest.mark.parametrize("size", [None, 3, 11])
@pytest.mark.parametrize("layout", ["folder", "npz", "idx", "parts"])
def test_a_store_holds_what_is_read_at_once(tmp_path, colour, labels, layout, size):
    grey = colour[..., 0]
    path = tmp_path / layout
    if layout == "npz":
        numpy.savez(path := tmp_path / "a.npz", images=colour, labels=labels, names=numpy.array(NAMES))
    elif layout == "idx":
        write_idx(path, "train", grey, labels)
        write_idx(path, "t10k", grey[:4], labels[:4])
    elif layout == "folder":
        write_folders(path, colour, labels)
    else:
        write_folders(path / "train", colour, labels)
        write_folders(path / "test", grey[::-1].copy(), labels)  # all grey: decoded as colour, like those of train
    expected, store = read_images(path, size), stored(path, size)
    assert set(store.facts["counts"]) == ({"train"} if expected.test is None else {"train", "test"})
    for part in store.facts["counts"]:
        images, whole = stored_part(store, part), getattr(expected, part)
        assert torch.equal(images.pixels(ALL), whole.pixels)
        assert torch.equal(images.labels(ALL), whole.labels)
        assert images.names == whole.names
        assert images.class_counts() == torch.bincount(whole.labels, minlength=len(whole.names)).tolist()
        scaled = whole.pixels.double() / 255
        mean, deviation = images.statistics()
        assert mean == pytest.approx(scaled.mean((0, 2, 3)).tolist(), abs=5.1e-5)
        assert deviation == pytest.approx(scaled.std((0, 2, 3), correction=0).tolist(), abs=5.1e-5)
    assert skipped_images(store, "stop").notes() == []
    in_folders = layout in ("folder", "parts")
    assert stored_part(store, "train").titles(numpy.array([5])) == ["dog/005.png" if in_folders else "image 5"]


def test_arrays_of_many_blocks(tmp_path, colour, labels, monkeypatch):
    """Also the last one, which is not full, and arrays whose first axis is the fastest."""
    monkeypatch.setattr("regard.data.image_sets.BLOCK_BYTES", 2 * colour[0].size)
    for order in (numpy.ascontiguousarray, numpy.asfortranarray):
        numpy.savez_compressed(tmp_path / "a.npz", images=order(colour), labels=labels)
        images = stored_part(stored(tmp_path / "a.npz"), "train")
        assert torch.equal(images.pixels(ALL), torch.from_numpy(colour).permute(0, 3, 1, 2))
        assert torch.equal(images.labels(ALL), torch.from_numpy(labels))


@pytest.mark.parametrize("turned", [1, 6])
def test_a_large_photo_is_decoded_coarsely_and_well(tmp_path, turned):
    exif = Image.Exif()
    exif[ORIENTATION] = turned
    whole = photo(601, 797)
    whole.save(tmp_path / "a.jpg", quality=90, exif=exif)
    plain = Image.open(tmp_path / "a.jpg").convert("RGB")
    plain = plain.transpose(Image.Transpose.ROTATE_270) if turned == 6 else plain
    for size in ((37, 37), (67, 41), (211, 307), plain.size[::-1]):
        pixels = read_image(tmp_path / "a.jpg", 3, size).int()
        difference = (pixels - torch.from_numpy(fit(plain, size)).int()).abs().float()
        assert difference.mean() < 1  # of 255, for pixels that deviate by 40
        assert difference.max() < 13
    assert difference.max() == 0  # as it is, nothing is scaled


def test_a_store_is_made_once(tmp_path, colour, labels, monkeypatch):
    folder = settle(write_folders(tmp_path / "a", colour, labels), monkeypatch)
    first = stored(folder)
    with monkeypatch.context() as patch:
        patch.setattr(image_sets, "decode", None)
        assert stored(folder).key == first.key
        os.utime(folder / "cat" / "000.png", (OLD, OLD))  # the same content
        assert stored(folder).key == first.key
        patch.setattr(image_sets, "peek", None)
        assert stored(folder).key == first.key  # nor looked through, if nothing has changed
    keys = {first.key, stored(folder, size=3).key}
    Image.fromarray(colour[1]).save(folder / "cat" / "000.png")
    keys.add(stored(folder).key)
    (folder / "cat" / "000.png").rename(folder / "dog" / "000.png")
    keys.add(stored(folder).key)
    (folder / "emu").rename(folder / "gnu")
    keys.add(stored(folder).key)
    assert len(keys) == 5


def test_a_folder_that_changes_while_it_is_read(tmp_path, colour, labels):
    folder = write_folders(tmp_path / "a", colour, labels)
    images = find_images(folder)
    shape = images.shape(None)
    blocks = images.train.blocks(shape, None)
    next(blocks)
    (folder / "emu" / "more.png").write_bytes((folder / "emu" / "010.png").read_bytes())
    with pytest.raises(ImageError, match="changed while it was read"):
        list(blocks)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-30])


def test_what_cannot_be_read_is_counted_and_named(tmp_path, colour, labels, monkeypatch):
    folder = settle(write_folders(tmp_path / "a", colour, labels), monkeypatch)
    for number in range(13):
        Image.fromarray(colour[0]).save(folder / "dog" / f"{number:02}-broken.jpg")
        truncated(folder / "dog" / f"{number:02}-broken.jpg")
    (folder / "emu" / "notes.txt").write_text("about emus")
    (folder / "emu" / "giant.ppm").write_bytes(b"P5 60000 60000 255\n" + bytes(101))
    (folder / "emu" / "inner").mkdir()
    (folder / "emu" / "nowhere.png").symlink_to(folder / "gone.png")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._000.png"):
        (folder / "cat" / name).write_text("hidden")
    store = stored(folder)
    assert torch.equal(stored_part(store, "train").pixels(ALL), torch.from_numpy(colour).permute(0, 3, 1, 2))
    with pytest.raises(RowsError, match="17 of 28 pictures cannot be used") as error:
        skipped_images(store, "stop")
    lines = str(error.value).splitlines()
    assert len(lines) == 13
    assert lines[1].startswith(f"  {folder}/dog/00-broken.jpg: cannot be read as a picture: ")
    assert lines[-2:] == ["  and 7 more", "fix them or pass --on-error skip"]
    monkeypatch.setattr(image_sets, "decode", None)  # the store is there already
    notes = skipped_images(stored(folder), "skip").notes()
    assert notes[0] == "17 pictures are left out:"


@pytest.mark.skipif(sys.platform == "win32", reason="names are text there")
def test_names_of_files_may_be_no_text_and_those_of_classes_not(tmp_path, colour, labels):
    folder = write_folders(tmp_path / "a", colour, labels)
    shutil.copy(folder / "cat" / "000.png", folder / "cat" / os.fsdecode(b"\xe9\n.png"))
    (folder / "dog" / os.fsdecode(b"\xe9.txt")).write_text("no picture")
    store = stored(folder)
    assert "cat/\ufffd\n.png" in stored_part(store, "train").titles(ALL)
    assert os.fsdecode(b"dog/\xe9.txt: is no picture") in skipped_images(store, "skip").notes()[1]
    (folder / "dog").rename(folder / os.fsdecode(b"d\xf6g"))
    with pytest.raises(ImageError, match=r"the folder 'd\\udcf6g' has no name in UTF-8: rename it"):
        stored(folder)


def test_folders_in_which_nothing_can_be_read(tmp_path, colour, labels):
    folder = write_folders(tmp_path / "a", colour, labels)
    for path in folder.rglob("*.png"):
        truncated(path)  # the headers are whole
    with pytest.raises(RowsError, match="none of the 11 pictures can be used"):
        stored(folder)
    for path in folder.rglob("*.png"):
        path.write_text("no picture")
    with pytest.raises(ImageError, match=r"000.png: is no picture"):
        stored(folder)
    assert not [path for path in (Path(os.environ["REGARD_PREPARED"])).iterdir() if path.is_dir()]


def test_what_does_not_fit_on_the_disk_is_refused_before_it_is_decoded(tmp_path, colour, labels, monkeypatch):
    folder = write_folders(tmp_path / "a", colour, labels)
    monkeypatch.setattr(images.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_154}))
    monkeypatch.setattr(image_sets, "decode", None)
    with pytest.raises(ImageError, match=r"expected 1,155 bytes free .* got 1,154: choose a smaller --image-size"):
        stored(folder)


def test_a_picture_in_many_sizes_is_found_in_one(tmp_path):
    """The facts that the size follows from: the median of the smaller edges, and whether all are alike."""
    for number, (height, width) in enumerate([(31, 67), (89, 37), (41, 41), (59, 43), (47, 47)]):
        (tmp_path / NAMES[number % 2]).mkdir(exist_ok=True)
        Image.new("L", (width, height)).save(tmp_path / NAMES[number % 2] / f"{number}.png")
    shapes = find_images(tmp_path).train.shapes
    assert (shapes.count, shapes.channels, shapes.edge, shapes.other is None) == (5, 1, 41, False)


SCRIPT = """
import sys
from pathlib import Path
import torch
from regard.data.images import find_images, store_images, stored_part
images = find_images(Path(sys.argv[1]))
store = store_images(images, images.shape(192))
part = stored_part(store, "train")
for start in range(0, len(part), 16):
    part.pixels(slice(start, start + 16))
status = Path("/proc/self/status").read_text()  # ru_maxrss would be that of the process that started this one
print(len(part), status.partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    contents = []
    for seed in range(3):
        file = io.BytesIO()
        photo(601, 797, seed).save(file, "JPEG")
        contents.append(file.getvalue())

    def resident(count):
        """Kilobytes of a process that decodes so many photos into a store, and reads all of it."""
        for number in range(count):
            path = tmp_path / str(count) / NAMES[number % 2] / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[number % 3])
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / str(count))],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
        )
        images, kilobytes = map(int, run.stdout.split())
        assert images == count
        return kilobytes

    # 400 more images have 44 MB of pixels; what threads and the allocator keep is about 5 MB more or less.
    assert resident(500) < resident(100) + 20_000

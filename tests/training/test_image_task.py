"""Training on images in a store: batches, augmentation, subsets, and what a user meets in a folder of photos."""

import shutil

import numpy
import pytest
import torch
from PIL import Image
from torch.nn import functional

import regard
from regard.data.split import balanced_rows, split
from regard.data.texts import RowsError
from regard.training import tasks
from regard.training.metrics import class_metrics, class_outcome
from regard.training.options import resolve
from regard.training.processes import World
from regard.training.run import evaluate
from regard.training.task import TaskError
from regard.training.tasks import images
from regard.training.tasks.examples import check_trained, class_notes, counted_classes
from regard.training.tasks.images import augmented
from tests.data.whole_images import read_images
from tests.training import tiny

ALL = slice(None)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path_factory.mktemp("prepared")))


@pytest.fixture
def photos(tmp_path):
    """A folder of pictures of many sizes, in two classes that their brightness tells."""
    generator = numpy.random.default_rng(3)
    for number in range(61):
        name, height, width = ("night", "noon")[number % 2], *generator.integers(67, 131, 2).tolist()
        pixels = generator.integers(0, 120, (height, width, 3)) + 130 * (number % 2)
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(numpy.uint8)).save(tmp_path / "photos" / name / f"{number:02}.jpg")
    return tmp_path / "photos"


def prepare(data, **given):
    return tasks.prepare("images", resolve("images", {"data": str(data), **tiny.options("images", **given)}))


def metrics(model, pixels, labels):
    """Of all images at once."""
    targets = torch.tensor([model.labels.index(label) for label in labels])
    return class_metrics([class_outcome(model.probabilities(pixels).log(), targets)], model.labels)


def test_augmentation_is_a_crop_of_the_framed_image():
    pixels = torch.randint(256, (13, 3, 17, 11), dtype=torch.uint8)
    tops, lefts, flips = torch.randint(5, (13,)), torch.randint(3, (13,)), torch.rand(13) < 0.5
    framed = functional.pad(pixels, (1, 1, 2, 2))  # an eighth of each edge
    for flipped in (None, flips):
        result = augmented(pixels, tops, lefts, flipped)
        for row, (top, left, flip) in enumerate(zip(tops, lefts, flips, strict=True)):
            crop = framed[row, :, top : top + 17, left : left + 11]
            assert torch.equal(result[row], crop.flip(2) if flipped is not None and flip else crop)
    mirrored = torch.where(flips[:, None, None, None], pixels.flip(3), pixels)
    assert torch.equal(augmented(pixels, None, None, flips), mirrored)


def test_every_shift_of_up_to_an_eighth_occurs(tmp_path, monkeypatch):
    moves = []
    monkeypatch.setattr(images, "augmented", lambda pixels, *drawn: moves.extend(drawn) or pixels)
    prepare(tiny.make("images", tmp_path), augment=True, flip=False).batch(range(40), ALL, torch.Generator())
    tops, lefts, flips = moves
    assert set(tops.tolist()) == set(lefts.tolist()) == {0, 1, 2}  # of eight pixels
    assert flips is None


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_share_one_batch(tmp_path, size):
    task = prepare(tiny.make("images", tmp_path))
    rows = [5, 0, 11, 3, 7, 2, 101]

    def batch(share):
        return task.batch(rows, share, torch.Generator().manual_seed(7))

    whole, plain = batch(ALL), task.train.pixels(numpy.array(rows))
    assert not torch.equal(whole.inputs[0], plain)
    for rank in range(size):
        share = slice(rank, None, size)
        assert torch.equal(batch(share).inputs[0], whole.inputs[0][share])
        assert torch.equal(batch(share).targets, whole.targets[share])
        assert batch(share).tokens == len(rows[share])


def test_worker_processes_change_nothing(tmp_path):
    data = tiny.make("images", tmp_path)
    for workers in (0, 2):
        options = tiny.options("images", workers=workers, threads=1)
        regard.train("images", data, out=tmp_path / str(workers), **options)
    assert tiny.outcome(tmp_path / "0") == tiny.outcome(tmp_path / "2")


def test_parts_are_those_of_the_contents(tmp_path):
    """The same as `split` makes of the pixels; equal pictures, of whichever class, are in one part."""
    path = tiny.make("images", tmp_path)
    with numpy.load(path) as arrays:
        images, labels, names = (arrays[name] for name in ("images", "labels", "names"))
    images[100:] = images[:63]
    numpy.savez(path, images=images, labels=labels, names=names)
    task = prepare(path)
    expected = split(range(163), lambda row: images[row].tobytes(), 0.1, 0.1)
    for part in ("train", "validation", "test"):
        assert getattr(task, part).rows.tolist() == getattr(expected, part)
    contents = [{image.numpy().tobytes() for image in getattr(task, part).pixels(ALL)} for part in ("train", "test")]
    assert not contents[0] & contents[1]


@pytest.mark.parametrize("count", [0, 1, 7, 31, 59, 96, 97, 150])
def test_a_balanced_subset_takes_classes_in_turn(count):
    generator = numpy.random.default_rng(count)
    labels, hashes = generator.integers(0, 5, 97), generator.integers(0, 1 << 62, 97).astype(numpy.uint64)
    rows = balanced_rows(labels, hashes, count)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == (min(count, 97) or 97)
    counts = numpy.bincount(labels[rows], minlength=5)
    for number in range(5):
        mine = numpy.flatnonzero(labels == number)
        assert counts[number] in (len(mine), counts.max(), counts.max() - 1)
        smallest = mine[numpy.argsort(hashes[mine])][: counts[number]]
        assert set(smallest) == set(rows[labels[rows] == number])


def test_photos_of_many_sizes_need_no_flag(photos, tmp_path):
    (photos / "night" / "broken.jpg").write_bytes((photos / "noon" / "01.jpg").read_bytes()[:1_000])
    options = tiny.options("images", patch_size=8, augment=False, learning_rate=0.01)
    with pytest.raises(RowsError, match=r"photos/night/broken.jpg: cannot be read .*; fix it or pass --on-error skip"):
        regard.train("images", photos, out=tmp_path / "model", **options)
    trained = regard.train("images", photos, out=tmp_path / "model", on_error="skip", **options)
    assert trained.model.config["image_size"] == [64, 64]
    assert trained.results["test"]["accuracy"] == 1
    task = prepare(photos, patch_size=8, on_error="skip")
    counts = dict(zip(task.train.names, task.train.class_counts(), strict=True))
    assert f"to train on: night: {counts['night']} · noon: {counts['noon']}" in task.notes
    assert "1 picture is left out:" in task.notes
    assert task.samples(trained.model)[0].input.endswith(".jpg")


def test_small_pictures_of_many_sizes(tmp_path):
    """The median of the smaller edges, cut to a multiple of 8; as they are if all are alike."""
    for sizes, expected in (([(29, 31), (23, 41), (29, 29)], 24), ([(29, 31)], 29), ([(3, 5), (5, 7)], 8)):
        folder = tmp_path / str(len(sizes))
        for number in range(24):
            (folder / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
            pixels = numpy.random.default_rng(number).integers(0, 256, sizes[number % len(sizes)], dtype=numpy.uint8)
            Image.fromarray(pixels).save(folder / "ab"[number % 2] / f"{number}.png")
        task = prepare(folder, patch_size=1)
        assert min(task.train.shape[1:]) == expected
        shutil.rmtree(folder)


def test_a_class_that_is_left_with_nothing(photos):
    for path in (photos / "noon").iterdir():
        path.write_bytes(path.read_bytes()[:1_000])
    with pytest.raises(ValueError, match="expected two classes or more, all 31 pictures are 'night'"):
        prepare(photos, patch_size=8, on_error="skip")
    (photos / "noon" / "00.jpg").write_bytes((photos / "night" / "00.jpg").read_bytes())
    (photos / "dawn").mkdir()
    with pytest.raises(ValueError, match="dawn: no pictures of this class: add some or delete the folder"):
        prepare(photos, patch_size=8, on_error="skip")


def test_what_may_be_wrong_with_a_folder_is_a_note(photos, tmp_path):
    (tmp_path / "both").mkdir()
    for part in ("train", "test"):
        shutil.copytree(photos, tmp_path / "both" / part)
    shutil.copy(photos / "night" / "00.jpg", photos / "noon" / "same.jpg")
    for name in ("loose.png", "labels.csv", ".DS_Store"):
        (photos / name).touch()
    expected = {
        "images that are in several classes: 1; a model is wrong about all but one of these",
        "left out, because they are in no folder of a class: 'labels.csv', 'loose.png'",
    }
    assert expected <= set(prepare(photos, patch_size=8).notes)
    notes = prepare(tmp_path / "both", patch_size=8).notes
    assert not expected & set(notes)
    assert "61 of the 61 images for the test are also among those to learn from" in notes


def test_what_may_be_wrong_with_classes_is_a_note():
    assert class_notes(["1", "1.10", "2", "ten"], numpy.array([3, 3, 5]), numpy.array([1, 1, 0]), "texts") == []
    hashes = numpy.array([2**64 - 1, 3, 7, 3, 2**64 - 1, 7, 3], numpy.uint64)
    assert class_notes(["1", "0", "1.0"], hashes, numpy.array([0, 1, 2, 1, 2, 2, 0]), "texts") == [
        "the classes '1' and '1.0' are the same number: are they one class?",
        "texts that are in several classes: 2; a model is wrong about all but one of these",
    ]


def test_texts_that_are_in_several_classes_are_counted(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"text {n % 90},{'ab'[n % 7 > 5]}\n" for n in range(120)))
    notes = tasks.prepare("text", resolve("text", {**tiny.options("text"), "data": str(path)})).notes
    several = sum((n % 7 > 5) != ((n + 90) % 7 > 5) for n in range(30))
    assert f"texts that are in several classes: {several}; a model is wrong about all but one of these" in notes


def test_classes_without_an_example_to_train_on_are_counted():
    with pytest.raises(TaskError, match=r"x.csv: class 'b' \(and 2 more\) has too few examples: none is left"):
        check_trained(["a", "b", "c", "d"], [3, 0, 0, 0], "x.csv")
    check_trained(["a", "b"], [3, 1], "x.csv")


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_evaluation_on_other_data(photos, tmp_path, model):
    shape = {"patch_size": 8} if model == "vit" else {"model": "resnet", "width": 4, "depths": "1,1"}
    trained = regard.train("images", photos, out=tmp_path / "model", **tiny.options("images", **shape))
    other = tmp_path / "other"
    shutil.copytree(photos / "noon", other / "noon")
    images = read_images(photos, 64).train
    chosen = images.labels == 1
    expected = metrics(trained.model, images.pixels[chosen], ["noon"] * int(chosen.sum()))
    got = evaluate(tmp_path / "model", other)
    assert got.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-5)
    assert got == expected
    files = sorted((other / "noon").iterdir())  # of other sizes than it learned from
    torch.testing.assert_close(trained.model.probabilities(files), trained.model.probabilities(images.pixels[chosen]))
    (other / "noon" / "notes.txt").write_text("about noon")
    with pytest.raises(RowsError, match=r"noon/notes.txt: is no picture.*; fix it or pass --on-error skip"):
        evaluate(tmp_path / "model", other)
    assert evaluate(tmp_path / "model", other, on_error="skip")["accuracy"] == expected["accuracy"]
    (other / "noon").rename(other / "dusk")
    with pytest.raises(TaskError, match="class 'dusk' is none of the model's: 'night', 'noon'"):
        evaluate(tmp_path / "model", other, on_error="skip")


def test_evaluation_block_by_block(tmp_path, monkeypatch):
    task = prepare(tiny.make("images", tmp_path))
    labels = [task.test.names[label] for label in task.test.labels(ALL).tolist()]
    expected = metrics(task.model, task.test.pixels(ALL), labels)
    monkeypatch.setattr(tasks.images, "EVALUATED", 3)
    got = task.evaluate(task.model, "test", World())
    assert got.pop("loss") == pytest.approx(expected.pop("loss"), rel=1e-5)
    assert got == expected


def test_a_run_goes_on_when_the_cache_was_emptied(tmp_path, tmp_path_factory, monkeypatch):
    data = tiny.make("images", tmp_path)
    regard.train("images", data, out=tmp_path / "whole", **tiny.options("images", threads=1))
    regard.train("images", data, out=tmp_path / "cut", **tiny.options("images", threads=1, steps=6))
    monkeypatch.setenv("REGARD_PREPARED", str(tmp_path_factory.mktemp("empty")))
    regard.train("images", data, out=tmp_path / "cut", resume=True, steps=12)
    assert tiny.losses(tmp_path / "cut").keys() == tiny.losses(tmp_path / "whole").keys()


def test_many_classes_are_cut_short():
    names, counts = [f"c{number}" for number in range(23)], list(range(1_000, 1_023))
    assert counted_classes(names, counts).endswith("c19: 1,019 and 3 more")
    assert counted_classes(names[:2], counts[:2]) == "c0: 1,000 · c1: 1,001"

"""What cannot be trained is refused before data are read: shapes of which there is no model, and devices."""

import pytest
import torch

from regard.cli import main
from regard.training.options import TASKS, OptionError, resolve
from regard.training.processes import find_device
from regard.training.tasks import check_shapes

TRANSFORMER = {"model": "transformer", "data": "pairs.tsv"}
RESNET = {"model": "resnet"}
REFUSED = [
    ("translate", {**TRANSFORMER, "size": 30, "heads": 4}, "30"),
    ("translate", {"hidden_size": 31}, "hidden_size"),
    ("translate", {"max_length": 0}, "max_length"),
    ("language", {"size": 30, "heads": 4}, "30"),
    ("language", {"model": "masked", "size": 31, "heads": 3}, "31"),
    ("text", {"data": "texts.csv", "size": 30, "heads": 4}, "30"),
    ("text", {"data": "texts.csv", "max_length": 0}, "max_length"),
    ("images", {"size": 30, "heads": 4}, "30"),
    ("images", {"patch_size": 3}, "patch_size"),
    ("images", {"data": "images", "image_size": 28, "patch_size": 5}, "patch_size"),
    ("images", {"image_size": 16}, "image_size"),
    *(("images", {**RESNET, "depths": depths}, "depths") for depths in ("", "3,,3", "three", "3,0,3", "3,-1", "1.5")),
    ("images", {**RESNET, "depths": "2000,2000"}, "layers"),
]


@pytest.mark.parametrize(("task", "given", "name"), REFUSED)
def test_shapes_of_which_there_is_no_model_are_refused(task, given, name):
    options = resolve(task, given)
    with pytest.raises(OptionError, match=name):
        check_shapes(options)


@pytest.mark.parametrize(
    ("task", "given"),
    [
        *((task, {}) for task in TASKS),
        *((task, {"data": "somewhere"}) for task in TASKS),
        ("translate", {**TRANSFORMER, "heads": 7}),
        ("translate", {**TRANSFORMER, "size": 34}),
        ("translate", {"attention": "none", "cell": "lstm", "layers": 3}),
        ("language", {"heads": 7, "positions": "sinusoidal"}),
        ("language", {"model": "masked", "context": 1}),
        ("text", {"data": "texts.csv", "size": 250_000, "layers": 9}),
        ("images", {"data": "images", "patch_size": 7}),
        ("images", {"data": "images", "image_size": 28, "patch_size": 7}),
        ("images", {**RESNET, "depths": "1,2,3,4"}),
        ("images", {"data": "images", "init_from": "folder"}),
    ],
)
def test_what_only_the_data_can_decide_is_left_to_them(task, given):
    """And nothing is computed: the largest of these has trillions of parameters."""
    generator = torch.get_rng_state()
    check_shapes(resolve(task, given))
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("device", ["nonsense", "", "cpu:x", "meta", "cuda:99", "hpu", "xla", "opencl"])
@pytest.mark.parametrize("more", [[], ["--shard"]])
def test_a_device_that_is_not_there_is_one_line_and_leaves_no_folder(device, more, tmp_path, capsys):
    assert main(["train", "images", "--device", device, *more, "--out", str(tmp_path / "run")]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "device: expected cpu" in output.err
    assert list(tmp_path.iterdir()) == []


def test_devices_that_are_there_are_found(monkeypatch):
    assert find_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert [find_device(name) for name in ("cuda", "cuda:1")] == [torch.device("cuda"), torch.device("cuda:1")]
    with pytest.raises(OptionError, match=r"expected cpu, cuda, cuda:0, cuda:1, .* got 'cuda:2'"):
        find_device("cuda:2")

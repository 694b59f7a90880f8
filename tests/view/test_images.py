"""Where in an image a model attends."""

import numpy
import pytest
import torch
from PIL import Image

import regard
from regard.view.images import ImageAttentionDisplay


def picture(side=8, channels=1, seed=0):
    return torch.randint(256, (channels, side, side), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.fixture(params=["class", "mean"])
def vit(request):
    return regard.ViT(8, 2, 24, 3, 3, 5, channels=1, pooling=request.param).eval()


def test_heatmaps_add_up(vit):
    display = ImageAttentionDisplay.from_model(vit, picture())
    for chosen in ((), (0,), (2, 1), (-1,)):
        heatmap = display.heatmap(*chosen)
        assert heatmap.shape == (4, 4)
        assert float(heatmap.sum()) == pytest.approx(1, abs=1e-5)


def test_a_layer_is_what_its_heads_are(vit):
    display = ImageAttentionDisplay.from_model(vit, picture())
    with torch.no_grad(), regard.capture(vit) as seen:
        vit(vit.preprocess(picture()[None]))
    weights = seen[1].weights[0].mean(0)
    row = weights.mean(0) if vit.class_token is None else weights[0, 1:]
    torch.testing.assert_close(display.heatmap(1).flatten(), row / row.sum())


def test_class_activation_adds_up_to_the_logit():
    """Before what speaks against the class is left out, the mean over all positions is the logit, but for the bias."""
    model = regard.ResNet([1, 1], 5, width=4, stem="cifar", channels=1).eval()
    with torch.no_grad():
        model.classifier.weight.abs_()  # then nothing speaks against any class, as features are never negative
        logits = model(model.preprocess(picture()[None]))[0]
    display = ImageAttentionDisplay.from_model(model, picture())
    best = int(logits.argmax())
    assert display.kind == "class activation"
    assert float(display.heatmap().mean()) == pytest.approx(
        float(logits[best] - model.classifier.bias[best].detach()), rel=1e-4
    )
    with pytest.raises(IndexError, match="no attention"):
        display.heatmap(0)


def test_files(vit, tmp_path):
    Image.fromarray(picture()[0].numpy()).save(tmp_path / "digit.png")
    display = ImageAttentionDisplay.from_model(vit, tmp_path / "digit.png")
    for name, chosen in (("grid.png", ()), ("layer.svg", (1,)), ("head.html", (1, 2))):
        assert display.save(tmp_path / name, *chosen).stat().st_size > 1_000
    assert display.to_frame(0).shape == (4, 4)


def test_the_overlay_lies_on_the_image(vit):
    axes = ImageAttentionDisplay.from_model(vit, picture()).plot(0).ax_
    under, over = axes.get_images()
    paler, pixels = under.get_array().astype(int), picture()[0].numpy().astype(int)
    assert paler.min() >= 160  # light enough for the colours over it
    numpy.testing.assert_allclose(paler, 160 + pixels * 3 / 8, atol=3)
    assert over.get_extent() == [-0.5, 7.5, 7.5, -0.5]


@pytest.mark.parametrize("chosen", [(3,), (0, 3)])
def test_wrong_layers_and_heads(vit, chosen):
    with pytest.raises(IndexError, match="below 3, got 3"):
        ImageAttentionDisplay.from_model(vit, picture()).heatmap(*chosen)

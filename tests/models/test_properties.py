"""What has to hold of every model, whatever its weights."""

import pytest
import torch
from torch.nn import functional

from regard import Encoder, LanguageModel, ResNet, Seq2Seq, Transformer, ViT
from regard.models.vision import Residual
from tests.models.cases import shaken

LANGUAGE = {
    "learned": {},
    "rotary": {"positions": "rotary", "kv_heads": 2, "norm": "rms", "activation": "swiglu"},
    "alibi": {"positions": "alibi"},
    "windows": {"positions": "rotary", "window": [3, None], "rotary_base": [100.0, 1e4], "qk_norm": True},
    "additive": {"score": "additive"},
    "recurrent": {"mixer": "recurrent"},
    "convolution": {"mixer": "convolution"},
}
LENGTHS = torch.tensor([13, 4, 9])


MODELS = {
    **{
        f"language-{name}": (lambda options=options: LanguageModel(31, 24, 2, 4, **options))
        for name, options in LANGUAGE.items()
    },
    **{
        f"encoder-{mixer}": (lambda mixer=mixer: Encoder(31, 24, 2, 4, token_types=2, mixer=mixer))
        for mixer in ("attention", "recurrent", "convolution")
    },
    "encoder-pre-norm": lambda: Encoder(31, 24, 2, 4, pre_norm=True, positions="sinusoidal"),
    "encoder-gaussian": lambda: Encoder(31, 24, 2, 4, score="gaussian"),
}


@pytest.fixture(params=MODELS)
def model(request):
    return shaken(MODELS[request.param]())


def same(ours, theirs, atol=2e-5):
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=2e-5)


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_future_changes_no_bit_of_the_past(name):
    model = shaken(LanguageModel(31, 24, 2, 4, **LANGUAGE[name]))
    ids = torch.randint(31, (3, 13))
    changed = ids.clone()
    changed[:, 8:] = torch.randint(31, (3, 5))
    with torch.no_grad():
        before, after = model(ids), model(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


def test_windows_add_up():
    """With windows of 4 and 3, a token depends on itself and on the five before it, and on nothing else."""
    model = shaken(LanguageModel(31, 24, 2, 4, positions="rotary", window=[4, 3]))
    ids = torch.randint(31, (3, 13))
    changed = ids.clone()
    changed[:, 5] = (ids[:, 5] + 1) % 31
    with torch.no_grad():
        differs = (model(ids) != model(changed)).any(-1).any(0)
    assert differs.tolist() == [5 <= place <= 10 for place in range(13)]


def test_a_decoder_does_not_see_its_future():
    for model in (shaken(Transformer(31, 29, 24, 2, 4)), shaken(Seq2Seq(31, 29, 12, 14))):
        source, target = torch.randint(31, (3, 11)), torch.randint(29, (3, 13))
        changed = target.clone()
        changed[:, 8:] = torch.randint(29, (3, 5))
        with torch.no_grad():
            assert torch.equal(model(source, target)[:, :8], model(source, changed)[:, :8])


def test_padding_does_not_matter(model):
    """Not its length, not what stands in it; and a padded batch is each sequence alone."""
    ids = torch.randint(31, (3, 13))
    with torch.no_grad():
        rows = model(ids, LENGTHS)
        other = ids.clone()
        other[torch.arange(13) >= LENGTHS[:, None]] = 7
        assert torch.equal(model(other, LENGTHS), rows)
        longer = torch.cat([ids, torch.randint(31, (3, 4))], 1)
        assert torch.equal(model(longer, LENGTHS)[:, :13], rows)
        for number, count in enumerate(LENGTHS.tolist()):
            same(rows[number, :count], model(ids[number : number + 1, :count])[0])
            assert (rows[number, count:] == 0).all()


def test_gradients_of_a_padded_batch_are_those_of_each_sequence(model):
    ids = torch.randint(31, (3, 13))
    model(ids, LENGTHS).square().sum().backward()
    together = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    for number, count in enumerate(LENGTHS.tolist()):
        model(ids[number : number + 1, :count]).square().sum().backward()
    for gradient, parameter in zip(together, model.parameters(), strict=True):
        if gradient is not None and parameter.grad is not None:
            same(gradient, parameter.grad, 2e-3)


def test_training_and_evaluation_agree_without_dropout(model):
    ids = torch.randint(31, (3, 13))
    with torch.no_grad():
        plain = model.eval()(ids, LENGTHS)
    same(model.train()(ids, LENGTHS), plain)


def test_dropout_drops_in_training_alone():
    model = shaken(Encoder(31, 24, 2, 4, dropout=0.5))
    ids = torch.randint(31, (3, 13))
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_without_positions_an_encoder_takes_its_words_as_a_set():
    order = torch.randperm(13)
    ids = torch.randint(31, (3, 13))
    bare, placed = (shaken(Encoder(31, 24, 2, 4, positions=positions)) for positions in ("none", "learned"))
    with torch.no_grad():
        same(bare(ids[:, order]), bare(ids)[:, order])
        assert not torch.allclose(placed(ids[:, order]), placed(ids)[:, order], atol=1e-2)


@pytest.mark.parametrize("pooling", ["class", "mean"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_vit_knows_where_its_patches_are_or_not(pooling, positions):
    model = shaken(ViT(12, 4, 24, 2, 4, 5, pooling=pooling, positions=positions))
    images = torch.randn(2, 3, 12, 12)
    turned = images.unflatten(2, (3, 4)).roll(1, 2).flatten(2, 3)  # patches, not pixels, change places
    with torch.no_grad():
        alike = torch.allclose(model(images), model(turned), atol=1e-4)
    assert alike == (positions == "none")


def test_sinusoidal_vit_reads_another_size_after_resize():
    model = shaken(ViT(12, 4, 24, 2, 4, 5, positions="sinusoidal"))
    assert model.resize((8, 20))(torch.randn(2, 3, 8, 20)).shape == (2, 5)


def test_resnet_in_evaluation_does_not_depend_on_the_batch():
    model = shaken(ResNet((1, 1), 5, width=8, stem="cifar"))
    images = torch.randn(3, 3, 13, 17)
    with torch.no_grad():
        same(model(images)[:1], model(images[:1]))


def test_a_resnet_learns_from_one_image_of_one_place():
    """The last of an epoch may be alone in its batch: its last maps have one number per channel, without variance."""
    model = ResNet((1, 1, 1), 5, width=4, stem="cifar").train()
    model(torch.randn(1, 3, 4, 4)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_resnet_is_its_formula(channels, bottleneck):
    """Also its gradients, with convolutions of every width and stride as PyTorch has them for plain images."""
    model = shaken(ResNet((1, 2, 1), 5, width=4, stem="cifar", channels=channels, bottleneck=bottleneck)).train()
    images, goal = torch.randn(7, channels, 29, 31), torch.randn(7, 5)

    def convolve(images, layer, stride=1):
        weight, norm = layer[0].weight, layer[1]
        images = functional.conv2d(images, weight, stride=stride, padding=weight.shape[-1] // 2).contiguous()
        return functional.batch_norm(images, None, None, norm.weight, norm.bias, training=True)

    hidden = functional.relu(convolve(images, model.stem))
    for number, block in enumerate(model.blocks):
        stride = 2 if number in (1, 3) else 1
        changed = hidden
        for place, layer in enumerate(block.convolutions):
            strided = place == (1 if bottleneck else 0)
            changed = convolve(functional.relu(changed) if place else changed, layer, stride if strided else 1)
        hidden = functional.relu(changed + (convolve(hidden, block.shortcut, stride) if block.shortcut else hidden))
    expected, parameters = model.classifier(hidden.mean((2, 3))), list(model.parameters())
    result = model(images)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    gradients = (torch.autograd.grad((output * goal).sum(), parameters) for output in (result, expected))
    for got, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("make", "paper"),
    [
        (lambda: ViT(224, 16, 768, 12, 12, 1_000), 86.6e6),
        (lambda: Encoder(30_522, 768, 12, 12, token_types=2, pooler=True), 109.5e6),
        (lambda: ResNet((3, 4, 6, 3), 1_000, bottleneck=True), 25.6e6),
        (lambda: ResNet((2, 2, 2, 2), 1_000), 11.7e6),
        (lambda: ResNet((3, 3, 3), 10, width=16, stem="cifar"), 0.27e6),
        (lambda: LanguageModel(50_257, 768, 12, 12), 124.4e6),
        # The paper says "about 37,000" words and 65 million parameters.
        (lambda: Transformer(37_000, 37_000, 512, 6, 8, share_embeddings=True), 65e6),
    ],
    ids=["ViT-B/16", "BERT-base", "ResNet-50", "ResNet-18", "ResNet-20", "GPT-2", "Transformer-base"],
)
def test_the_papers_sizes_have_the_papers_number_of_parameters(make, paper):
    with torch.device("meta"):
        count = make().parameter_count
    assert abs(count / paper - 1) < (0.04 if paper == 65e6 else 0.02)


@pytest.mark.parametrize("lengths", [None, [13, 4, 9] * 60, [11, 4, 9] * 60])
def test_a_large_batch_goes_through_in_parts(lengths):
    """Without gradients; with them at once."""
    model = shaken(Encoder(31, 24, 2, 4, token_types=2))
    ids, token_types = torch.randint(31, (180, 13)), torch.randint(2, (180, 13))
    whole = model(ids, lengths, token_types)
    with torch.no_grad():
        same(model(ids, lengths, token_types), whole)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_new_residual_block_changes_nothing(bottleneck):
    block = Residual(8, 2 if bottleneck else 8, 1, bottleneck, stride_first=False).eval()
    images = torch.rand(3, 8, 5, 7)
    assert torch.equal(block(images), images)

"""Folders of ours: what is saved is what is loaded; a broken one is refused in a line with the file and the reason."""

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import regard
from regard import Encoder, FolderError, LanguageModel, ResNet, Seq2Seq, Transformer, ViT, load
from regard.files import digest
from regard.models.texts import CutWarning
from tests.models.cases import edit, refused, shaken, word_tokenizer

MODELS = {
    "encoder": (
        lambda: Encoder(31, 24, 2, 4, token_types=2, mlm_head=True, pooler=True, classes=3, score="cosine"),
        (13,),
    ),
    "language": (lambda: LanguageModel(31, 24, 2, 4, positions="rotary", mixer="convolution"), (13,)),
    "seq2seq": (lambda: Seq2Seq(31, 29, 10, 14, layers=2, attention="gaussian"), (13, 5)),
    "transformer": (lambda: Transformer(31, 29, 24, 2, 4, pre_norm=True), (13, 5)),
    "vit": (lambda: ViT((8, 12), 4, 24, 2, 4, 5, pooling="mean"), None),
    "resnet": (lambda: ResNet([1, 1], 5, width=8), None),
}


def outputs(model, sizes):
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        if sizes is None:
            return model(torch.randn(3, 3, 8, 12, generator=generator))
        return model(*(torch.randint(29, (3, size), generator=generator) for size in sizes))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_is_what_is_loaded(name, tmp_path):
    make, sizes = MODELS[name]
    model = shaken(make())
    model.tokenizer = word_tokenizer()
    model.save(tmp_path)
    files = {"config.json", "model.safetensors", "tokenizer.json", "README.md", "manifest.json"}
    assert {path.name for path in tmp_path.iterdir()} == files
    again = regard.load(tmp_path)
    assert type(again) is type(model)
    assert again.config == json.loads(json.dumps(model.config))
    assert not again.training
    assert torch.equal(outputs(again, sizes), outputs(model, sizes))
    assert again.tokenizer.encode("the mat").ids == [1, 5]
    assert all(parameter.requires_grad for parameter in again.parameters())
    assert f"{model.parameter_count:,}" in (tmp_path / "README.md").read_text()


def test_saving_over_another_model(tmp_path):
    first = LanguageModel(31, 24, 2, 4)
    first.tokenizer = word_tokenizer()
    first.save(tmp_path)
    ResNet([1], 5, width=8).save(tmp_path)
    assert isinstance(load(tmp_path), ResNet)
    assert load(tmp_path).tokenizer is None


def test_two_tokenizers(tmp_path):
    model = Seq2Seq(31, 29, 10, 14)
    model.tokenizer, model.target_tokenizer = word_tokenizer(), word_tokenizer(["le", "chat"])
    model.save(tmp_path)
    assert load(tmp_path).target_tokenizer.encode("le chat").ids == [1, 2]


def test_a_score_without_a_name_is_not_saved(tmp_path):
    with pytest.raises(FolderError, match=r"attention: .*Dot"):
        Seq2Seq(31, 29, 10, 14, attention=regard.Dot()).save(tmp_path)


def test_a_tokenizer_stays_as_it_was():
    model = Encoder(31, 24, 1, 4, max_positions=8).eval()
    model.tokenizer = word_tokenizer()
    model.tokenizer.enable_padding(length=5)
    with pytest.warns(CutWarning), ThreadPoolExecutor(4) as pool:
        vectors = list(pool.map(lambda _: model.embed(["cat " * 200, "mat"]), range(8)))
    assert all(torch.equal(vector, vectors[0]) for vector in vectors)
    assert model.tokenizer.truncation is None
    assert model.tokenizer.padding["length"] == 5


@pytest.mark.parametrize("write", ["save", "export"])
def test_files_of_others_are_not_touched(write, tmp_path):
    model = LanguageModel(31, 24, 1, 4)
    for name in ("README.md", "tokenizer.json", "modules.json"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(FolderError, match=name):
            getattr(model, write)(folder)
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "mine")]
    (tmp_path / "README.md" / "README.md").unlink()
    (tmp_path / "README.md" / "notes.txt").write_text("mine")
    getattr(model, write)(tmp_path / "README.md")
    assert (tmp_path / "README.md" / "notes.txt").read_text() == "mine"


def test_a_folder_is_saved_or_exported_but_not_both(tmp_path):
    model = LanguageModel(31, 24, 1, 4)
    for write in (model.save, model.export, model.save):
        write(tmp_path)
        assert load(tmp_path).config["layers"] == 1
        assert (tmp_path / "manifest.json").exists() == (write == model.save)


# ------------------------------------------------------------------------------------------------------- broken folders


@pytest.fixture
def folder(tmp_path):
    LanguageModel(31, 24, 2, 4).save(tmp_path / "saved")
    return tmp_path / "saved"


def sealed(folder):
    """Changed files with a manifest that fits them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(folder / "manifest.json", sha256={file: digest(folder / file) for file in manifest["sha256"]})
    return folder


def test_what_is_not_a_folder(tmp_path):
    refused(tmp_path / "nowhere", "nowhere … found none")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "file … got a file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "not a model folder … found nothing")
    (tmp_path / "empty" / "notes.txt").touch()
    refused(tmp_path / "empty", "config.json … notes.txt")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_changed_file(folder, file):
    content = bytearray((folder / file).read_bytes())
    content[-2] ^= 1
    (folder / file).write_bytes(content)
    refused(folder, file if file == "config.json" else f"{file} … SHA-256")


def test_a_missing_file(folder):
    (folder / "manifest.json").rename(folder / "hidden")
    refused(folder, "manifest.json … no such file")
    (folder / "hidden").rename(folder / "manifest.json")
    (folder / "model.safetensors").unlink()
    refused(folder, "model.safetensors … no such file")


def test_a_card_may_be_edited(folder):
    (folder / "README.md").write_text("Trained by us.")
    load(folder)


def test_a_folder_of_an_older_regard(folder):
    """Also where its manifest, written by that version, fits."""
    edit(folder / "config.json", regard=1, arguments={"vocabulary": 31, "size": 24, "layers": 2, "heads": 4})
    refused(folder, "config.json … format 1 … older regard … train … convert … again")
    refused(sealed(folder), "config.json … format 1 … older regard … train … convert … again")
    edit(folder / "config.json", regard=3)
    refused(sealed(folder), "config.json … format 3 … unknown")


def test_a_manifest_that_points_elsewhere(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(folder / "manifest.json", sha256=manifest["sha256"] | {"../../secret": "0"})
    refused(folder, "manifest.json … secret")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 10**9}, "layers … 1000000000"),
        ({"size": -24}, "size … -24"),
        ({"size": "24"}, "size … str"),
        ({"sise": 24}, "sise"),
        ({"positions": "absolute"}, "positions … absolute"),
        ({"layers": 3}, "blocks.2 … missing"),
        ({"size": 28}, "shape"),
    ],
)
def test_a_config_that_does_not_fit(folder, changes, message):
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", arguments=config["arguments"] | changes)
    refused(sealed(folder), message)


def test_an_unknown_model(folder):
    edit(folder / "config.json", model="Trnsformer")
    refused(sealed(folder), "config.json … Transformer … Trnsformer")


def mutate(folder, number):
    """One file with a byte changed, cut off, or something put in."""
    random.seed(number)
    path = random.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    content = bytearray(path.read_bytes())
    index = random.randrange(len(content))
    kind = random.randrange(3)
    if kind == 0:
        content[index] ^= 1 << random.randrange(8)
    elif kind == 1:
        del content[index:]
    else:
        content[index:index] = random.randbytes(random.randrange(1, 9))
    path.write_bytes(content)


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.faults)])
def test_mutated_folders_never_give_other_weights(folder, tmp_path, count):
    state = load(folder).state_dict()
    for number in range(count):
        mutated = tmp_path / "mutated"
        shutil.copytree(folder, mutated)
        mutate(mutated, number)
        message, loaded = "", state
        try:
            loaded = load(mutated).state_dict()  # then only a file that is not in the manifest has changed
        except FolderError as error:
            message = str(error)
        assert "\n" not in message
        assert loaded.keys() == state.keys()
        assert all(torch.equal(loaded[name], state[name]) for name in state), number
        shutil.rmtree(mutated)

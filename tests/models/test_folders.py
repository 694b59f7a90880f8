"""Folders: what is saved is what is loaded; what is broken is refused in a line that names the file and the reason."""

import json
import pickle
import random
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import regard
from regard.models import Encoder, FolderError, LanguageModel, ResNet, Seq2Seq, Transformer, ViT, load
from tests.models import hugging
from tests.models.test_properties import shaken

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


def word_tokenizer(words=("the", "cat", "is", "on", "mat")):
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["?", *words])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


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


@pytest.mark.parametrize("make", [lambda: Encoder(31, 24, 1, 4), lambda: ResNet([1], 5), lambda: Seq2Seq(31, 29)])
def test_what_has_no_counterpart_is_not_exported(make, tmp_path):
    with pytest.raises(FolderError, match=r"transformers|Hugging Face"):
        make().export(tmp_path)


# ------------------------------------------------------------------------------------------------------- broken folders


def test_an_encoder_is_exported_with_how_it_pools(tmp_path):
    model = shaken(Encoder(31, 24, 1, 4, token_types=2, pooling="max", normalized=False, max_length=7))
    model.tokenizer = word_tokenizer()
    model.export(tmp_path)
    again = load(tmp_path)
    assert [again.config[name] for name in ("pooling", "normalized", "max_length")] == ["max", False, 7]
    assert torch.equal(again.embed(["the cat", "mat"]), model.embed(["the cat", "mat"]))
    model.tokenizer = None
    model.export(tmp_path)
    assert load(tmp_path).tokenizer is None


def test_a_llama_with_the_usual_biases_is_exported(tmp_path):
    model = shaken(LanguageModel(31, 24, 1, 4, positions="rotary", norm="rms", activation="swiglu"))
    model.export(tmp_path)
    ids = torch.randint(31, (3, 7))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path)(ids), model(ids))
    with pytest.raises(FolderError, match="swiglu"):
        LanguageModel(31, 24, 1, 4, activation="swiglu").export(tmp_path)


def test_a_tokenizer_stays_as_it_was():
    model = Encoder(31, 24, 1, 4, max_positions=8).eval()
    model.tokenizer = word_tokenizer()
    model.tokenizer.enable_padding(length=5)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model.embed(["cat " * 200, "mat"]), range(8)))
    assert all(torch.equal(own, found[0]) for own in found)
    assert model.tokenizer.truncation is None
    assert model.tokenizer.padding["length"] == 5


@pytest.fixture
def own(tmp_path):
    LanguageModel(31, 24, 2, 4).save(tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def theirs(tmp_path):
    hugging.gpt2("tied").save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def refused(folder, *words):
    with pytest.raises(FolderError) as raised:
        load(folder)
    message = str(raised.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def edit(path, **changes):
    config = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in (config | changes).items() if value is not ...}))


def rewrite(folder, change):
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors")


def test_what_is_not_a_folder(tmp_path):
    refused(tmp_path / "nowhere", "nowhere", "found none")
    (tmp_path / "file").touch()
    refused(tmp_path / "file", "file", "got a file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "not a model folder", "found nothing")
    (tmp_path / "empty" / "notes.txt").touch()
    refused(tmp_path / "empty", "config.json", "notes.txt")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_changed_file_of_ours(own, file):
    content = bytearray((own / file).read_bytes())
    content[-2] ^= 1
    (own / file).write_bytes(content)
    refused(own, file, "SHA-256" if file != "config.json" else "config.json")


def test_a_missing_file_of_ours(own):
    (own / "manifest.json").rename(own / "hidden")
    refused(own, "manifest.json", "no such file")
    (own / "hidden").rename(own / "manifest.json")
    (own / "model.safetensors").unlink()
    refused(own, "model.safetensors", "no such file")


def test_a_card_may_be_edited(own):
    (own / "README.md").write_text("Trained by us.")
    load(own)


@pytest.mark.parametrize("write", ["save", "export"])
def test_files_of_somebody_else_are_not_touched(write, tmp_path):
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


def test_a_folder_is_one_or_the_other(tmp_path):
    model = LanguageModel(31, 24, 1, 4)
    for write in (model.save, model.export, model.save):
        write(tmp_path)
        assert load(tmp_path).config["layers"] == 1
        assert (tmp_path / "manifest.json").exists() == (write == model.save)


def test_a_manifest_that_points_elsewhere(own):
    manifest = json.loads((own / "manifest.json").read_text())
    manifest["sha256"]["../../secret"] = "0"
    (own / "manifest.json").write_text(json.dumps(manifest))
    refused(own, "manifest.json", "secret")


def sealed(folder):
    """Changed files with a manifest that fits them."""
    from regard.files import digest

    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"] = {file: digest(folder / file) for file in manifest["sha256"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 10**9}, ("layers", "1000000000")),
        ({"size": -24}, ("size", "-24")),
        ({"size": "24"}, ("size", "str")),
        ({"sise": 24}, ("sise",)),
        ({"positions": "absolute"}, ("positions", "absolute")),
        ({"layers": 3}, ("blocks.2", "missing")),
        ({"size": 28}, ("shape",)),
    ],
)
def test_a_config_that_does_not_fit(own, changes, words):
    config = json.loads((own / "config.json").read_text())
    edit(own / "config.json", arguments=config["arguments"] | changes)
    sealed(own)
    refused(own, *words)


def test_an_unknown_model(own):
    edit(own / "config.json", model="Trnsformer")
    sealed(own)
    refused(own, "config.json", "Trnsformer", "Transformer")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt5"}, ("model_type", "gpt5", "gpt2")),
        ({"n_embd": ...}, ("n_embd", "missing")),
        ({"n_layer": 10**9}, ("1000000000", "layers")),
        ({"n_layer": 2_000}, ("2000 layers", "tensors")),
        ({"n_layer": 1}, ("h.1.", "no place")),
        ({"n_layer": 3}, ("h.2.", "missing")),
        ({"n_positions": 43}, ("wpe.weight", "(43, 12)", "(41, 12)")),
        ({"n_head": 5}, ("heads", "5")),
        ({"activation_function": "mish"}, ("activation_function", "mish")),
        ({"scale_attn_by_inverse_layer_idx": True}, ("scale_attn_by_inverse_layer_idx", "True")),
        ({"vocab_size": 1 << 40}, ("vocab_size",)),
    ],
)
def test_a_config_of_theirs_that_does_not_fit(theirs, changes, words):
    edit(theirs / "config.json", **changes)
    refused(theirs, "theirs", *words)


@pytest.mark.parametrize("rope", [{"rope_type": "llama3", "factor": 8.0}, {"rope_type": "linear", "factor": 2.0}])
def test_positions_that_are_not_built(rope, tmp_path):
    hugging.llama("heads").save_pretrained(tmp_path)
    edit(tmp_path / "config.json", rope_parameters=rope)
    refused(tmp_path, "rope_type", rope["rope_type"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("transformer.h.0.ln_1.weight"), ("h.0.ln_1.weight", "missing")),
        (lambda state: state.update(surplus=torch.ones(3)), ("surplus", "no place")),
        (lambda state: state["transformer.wte.weight"].view(-1)[7:8].fill_(torch.nan), ("wte.weight", "NaN")),
        (lambda state: state["transformer.wte.weight"].view(-1)[7:8].fill_(torch.inf), ("wte.weight", "infinity")),
        (lambda state: state.update({"transformer.wte.weight": torch.ones(31, 11)}), ("(31, 12)", "(31, 11)")),
    ],
)
def test_tensors_of_theirs_that_do_not_fit(theirs, change, words):
    rewrite(theirs, change)
    refused(theirs, *words)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model_type": NaN', "\udcff", '{"a": ' * 100_000])
def test_a_config_that_is_no_json(theirs, content):
    (theirs / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    refused(theirs, "config.json")


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle was read')",))


def test_a_pickle_is_not_read(theirs):
    (theirs / "model.safetensors").unlink()
    (theirs / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    refused(theirs, "pytorch_model.bin", "pickle", "safetensors")


def test_shards(theirs, tmp_path):
    whole = load(theirs)
    state = load_file(theirs / "model.safetensors")
    names = sorted(state)
    files = {name: f"model-{number % 3}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: state[name] for name in names if files[name] == file}, theirs / file)
    (theirs / "model.safetensors").unlink()
    index = theirs / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    ids = torch.randint(31, (3, 13))
    with torch.no_grad():
        assert torch.equal(load(theirs)(ids), whole(ids))
    index.write_text(json.dumps({"weight_map": files | {"transformer.more": "model-1.safetensors"}}))
    refused(theirs, "transformer.more", "missing")
    index.write_text(json.dumps({"weight_map": files | {names[0]: "../model.safetensors"}}))
    refused(theirs, "index.json", "../model.safetensors")
    index.write_text(json.dumps({"weight_map": files}))
    (theirs / "model-2.safetensors").unlink()
    refused(theirs, "model-2.safetensors")


def test_an_oversized_header(theirs):
    (theirs / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    refused(theirs, "model.safetensors", "safetensors")
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 10], "data_offsets": [0, 8]}}).encode()
    (theirs / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    refused(theirs, "model.safetensors")


def mutated(folder, number):
    """One file with a byte changed, cut off, or something put in."""
    random.seed(number)
    path = random.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    content = bytearray(path.read_bytes())
    place = random.randrange(len(content))
    kind = random.randrange(3)
    if kind == 0:
        content[place] ^= 1 << random.randrange(8)
    elif kind == 1:
        del content[place:]
    else:
        content[place:place] = random.randbytes(random.randrange(1, 9))
    path.write_bytes(content)


def check_mutations(own, tmp_path, count):
    state = load(own).state_dict()
    for number in range(count):
        folder = tmp_path / "mutated"
        shutil.copytree(own, folder)
        mutated(folder, number)
        message, found = "", state
        try:
            found = load(folder).state_dict()  # then only what the manifest does not speak of has changed
        except FolderError as error:
            message = str(error)
        assert "\n" not in message
        assert found.keys() == state.keys()
        assert all(torch.equal(found[name], state[name]) for name in state), number
        shutil.rmtree(folder)


def test_mutated_folders_never_give_other_weights(own, tmp_path):
    check_mutations(own, tmp_path, 60)


@pytest.mark.faults
def test_many_mutated_folders(own, tmp_path):
    check_mutations(own, tmp_path, 2_000)

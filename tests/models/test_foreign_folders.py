"""Folders of Hugging Face that are not what they seem: refused in one line, or read as what they are; and exports."""

import json
import pickle
import socket
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard import Encoder, FolderError, LanguageModel, ResNet, Seq2Seq, load
from regard.models.foreign import llama_tokenizer
from tests.models import hugging
from tests.models.cases import edit, refused, rewrite, shaken, word_tokenizer


@pytest.fixture
def gpt2(tmp_path):
    hugging.gpt2("tied").save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


@pytest.fixture
def bert(tmp_path):
    hugging.bert("words").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


# -------------------------------------------------------------------------------------------------------------- configs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt5"}, "model_type … gpt5 … gpt2"),
        ({"n_embd": ...}, "n_embd … missing"),
        ({"n_layer": 10**9}, "layers … 1000000000"),
        ({"n_layer": 2_000}, "2000 layers … tensors"),
        ({"n_layer": 1}, "h.1. … no place"),
        ({"n_layer": 3}, "h.2. … missing"),
        ({"n_positions": 43}, "wpe.weight … (43, 12) … (41, 12)"),
        ({"n_head": 5}, "heads … 5"),
        ({"activation_function": "mish"}, "activation_function … mish"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx … True"),
        ({"vocab_size": 1 << 40}, "vocab_size"),
    ],
)
def test_a_config_of_gpt2_that_does_not_fit(gpt2, changes, message):
    edit(gpt2 / "config.json", **changes)
    refused(gpt2, f"gpt2 … {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": "2"}, "layers … str"),
        ({"num_hidden_layers": None}, "layers … NoneType"),
        ({"hidden_act": []}, "config.json"),
        ({"type_vocab_size": -1}, "token_types … -1"),
        ({"layer_norm_eps": "x"}, "epsilon … str"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings … False"),
        ({"architectures": ["BertForTokenClassification"]}, "BertForTokenClassification"),
        ({"hidden_size": 1 << 20, "intermediate_size": 1 << 20}, "bert"),
    ],
)
def test_a_config_of_bert_that_does_not_fit(bert, changes, message):
    edit(bert / "config.json", **changes)
    refused(bert, message)


@pytest.mark.parametrize("kind", ["llama3", "linear"])
def test_rotary_positions_that_are_not_supported(kind, tmp_path):
    hugging.llama("heads").save_pretrained(tmp_path)
    edit(tmp_path / "config.json", rope_parameters={"rope_type": kind, "factor": 2.0})
    refused(tmp_path, f"rope_type … {kind}")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model_type": NaN', "\udcff", '{"a": ' * 100_000])
def test_a_config_that_is_no_json(gpt2, content):
    (gpt2 / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    refused(gpt2, "config.json")


@pytest.mark.parametrize("model_type", [None, 1, [], ["bert"], {"bert": 1}], ids=str)
def test_a_model_type_that_is_no_text(bert, model_type):
    edit(bert / "config.json", model_type=model_type)
    refused(bert, "config.json … model_type … not supported")


@pytest.mark.parametrize("maximum", ["17", [17], {}], ids=str)
def test_a_sentence_encoder_whose_number_of_positions_is_no_number(bert, maximum):
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (bert / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    edit(bert / "config.json", max_position_embeddings=maximum)
    refused(bert, "config.json … max_positions")


def test_pieces_of_llama2c_are_short(tmp_path):
    """They are cut in two everywhere: one of some megabytes would take days."""
    pieces = [b"<unk>", b"<s>", b"</s>", b"a" * 10_000]
    content = b"".join(struct.pack("<fi", 0.0, len(piece)) + piece for piece in pieces)
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 10_000) + content)
    with pytest.raises(FolderError, match=r"tokenizer\.bin: piece 3: expected at most 256 bytes, got 10,000"):
        llama_tokenizer(tmp_path / "tokenizer.bin", len(pieces))


def test_a_config_that_is_a_folder(bert):
    (bert / "config.json").unlink()
    (bert / "config.json").mkdir()
    refused(bert, "config.json")


def test_a_bert_without_the_files_of_a_sentence_encoder_is_read_as_sentence_transformers_reads_it(bert):
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), pad_token="<padding>").save_pretrained(bert)
    texts = ["the cat", "mat"]
    theirs = SentenceTransformer(str(bert), device="cpu").encode(texts, show_progress_bar=False)
    torch.testing.assert_close(load(bert).embed(texts), torch.from_numpy(theirs), atol=1e-5, rtol=0)


def test_steps_of_a_sentence_encoder_that_are_not_supported(bert):
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (bert / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    (bert / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    refused(bert, "modules.json … Dense")
    (bert / "modules.json").write_text("{}")
    refused(bert, "modules.json … list")
    (bert / "modules.json").write_text("[]")
    assert load(bert).config["max_length"] == 17  # no longer than there are positions
    (bert / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    refused(bert, "1_Pooling … lasttoken")


# -------------------------------------------------------------------------------------------------------------- tensors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("transformer.h.0.ln_1.weight"), "h.0.ln_1.weight … missing"),
        (lambda state: state.update(surplus=torch.ones(3)), "surplus … no place"),
        (lambda state: state["transformer.wte.weight"].view(-1)[7:8].fill_(torch.nan), "wte.weight … NaN"),
        (lambda state: state["transformer.wte.weight"].view(-1)[7:8].fill_(torch.inf), "wte.weight … infinity"),
        (lambda state: state.update({"transformer.wte.weight": torch.ones(31, 11)}), "(31, 12) … (31, 11)"),
    ],
)
def test_tensors_that_do_not_fit(gpt2, change, message):
    rewrite(gpt2, change)
    refused(gpt2, message)


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
KEY = "bert.encoder.layer.0.attention.self.key.weight"
WORD = "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({QUERY: torch.ones(10, 12), KEY: torch.ones(14, 12)}, "query … (10, 12)"),
        ({KEY: torch.ones(12, 9)}, "key … (12, 9)"),
        ({WORD: torch.ones(31, 12, dtype=torch.long)}, "word … int64"),
    ],
)
def test_parts_that_do_not_fit_together(bert, tensors, message):
    rewrite(bert, lambda state: state.update(tensors))
    refused(bert, message)


def test_half_and_double_precision_become_float32(bert):
    rewrite(bert, lambda state: state.update({WORD: state[WORD].double(), QUERY: state[QUERY].half()}))
    assert {parameter.dtype for parameter in load(bert).parameters()} == {torch.float32}


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle was read')",))


def test_nothing_is_downloaded(gpt2, monkeypatch):
    monkeypatch.setattr(socket, "socket", lambda *given, **options: pytest.fail("a connection"))
    assert load(gpt2).config["vocab_size"] == 31
    refused("gpt2", "gpt2")


def test_a_pickle_is_not_read(gpt2):
    (gpt2 / "model.safetensors").unlink()
    (gpt2 / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    refused(gpt2, "pytorch_model.bin … pickle … safetensors")


def test_shards(gpt2):
    whole = load(gpt2)
    state = load_file(gpt2 / "model.safetensors")
    names = sorted(state)
    files = {name: f"model-{number % 3}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: state[name] for name in names if files[name] == file}, gpt2 / file)
    (gpt2 / "model.safetensors").unlink()
    index = gpt2 / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    ids = torch.randint(31, (3, 13))
    with torch.no_grad():
        assert torch.equal(load(gpt2)(ids), whole(ids))
    index.write_text(json.dumps({"weight_map": files | {"transformer.more": "model-1.safetensors"}}))
    refused(gpt2, "transformer.more … missing")
    index.write_text(json.dumps({"weight_map": files | {names[0]: "../model.safetensors"}}))
    refused(gpt2, "index.json … ../model.safetensors")
    index.write_text(json.dumps({"weight_map": files}))
    (gpt2 / "model-2.safetensors").unlink()
    refused(gpt2, "model-2.safetensors")


def test_an_oversized_header(gpt2):
    (gpt2 / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    refused(gpt2, "model.safetensors … safetensors")
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 10], "data_offsets": [0, 8]}}).encode()
    (gpt2 / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 8)
    refused(gpt2, "model.safetensors")


# --------------------------------------------------------------------------------------------------------------- images


@pytest.fixture
def resnet(tmp_path):
    hugging.resnet("basic").save_pretrained(tmp_path / "resnet")
    return tmp_path / "resnet"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_type": "dense"}, "layer_type … dense … bottleneck"),
        ({"hidden_sizes": [7, 15]}, "hidden_sizes [7, 15] … [7, 14]"),
        ({"downsample_in_first_stage": True}, "downsample_in_first_stage … True"),
        ({"hidden_act": "gelu"}, "hidden_act … gelu"),
        ({"depths": ...}, "depths … missing"),
        ({"depths": 3}, "int"),
        ({"depths": [1] * 5_000}, "layers … 5000"),
        ({"depths": [10**9, 1]}, "layers … 1000000001"),
        ({"depths": [2, 2]}, "encoder.stages.1.layers.1. … missing"),
        ({"depths": [1, 1]}, "encoder.stages.0.layers.1. … no place"),
    ],
)
def test_a_config_of_a_resnet_that_does_not_fit(resnet, changes, message):
    edit(resnet / "config.json", **changes)
    refused(resnet, f"resnet … {message}")


def test_a_resnet_without_its_classifier(tmp_path):
    hugging.resnet("basic").resnet.save_pretrained(tmp_path)
    refused(tmp_path, "no classifier")


NORMAL = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.1]}


@pytest.mark.parametrize(
    ("file", "size", "numbers"),
    [
        ({"size": {"shortest_edge": 53}}, [53, 53], ([0.4, 0.5, 0.6], [0.2, 0.3, 0.1])),
        ({"size": {"height": 47, "width": 53}}, [47, 53], ([0.4, 0.5, 0.6], [0.2, 0.3, 0.1])),
        ({"size": 53, "do_normalize": False}, [53, 53], ([0.0], [1.0])),
        ({"do_resize": False}, None, ([0.4, 0.5, 0.6], [0.2, 0.3, 0.1])),
    ],
)
def test_images_are_prepared_as_the_folder_says(resnet, tmp_path, file, size, numbers):
    (resnet / "preprocessor_config.json").write_text(json.dumps(NORMAL | file))
    model = load(resnet)
    assert model.config["image_size"] == size
    assert (model.config["mean"], model.config["deviation"]) == numbers
    model.export(tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.config["image_size"] == size
    image = torch.randint(0, 256, (2, 3, 31, 37), dtype=torch.uint8)
    torch.testing.assert_close(again.preprocess(image), model.preprocess(image))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"rescale_factor": 1.0}, "divided by 255"),
        ({"do_rescale": False}, "divided by 255"),
        ({"rescale_factor": "x"}, "divided by 255"),
        ({"size": {}}, "height … missing"),
        ({"size": [1, 2, 3]}, "image_size … [1, 2, 3]"),
        ({"size": 53, "image_std": [0.2, 0.0, 0.1]}, "deviation … 0.0"),
        ({"size": 53, "image_mean": [0.2, 0.3]}, "mean … 3 channels … [0.2, 0.3]"),
        ({"size": 53, "image_mean": 0.5}, "mean … numbers … 0.5"),
        ({"size": 53, "image_mean": ["a", "b", "c"]}, "mean … numbers … a"),
        ({"size": "x"}, "image_size … x"),
        ({}, "size … missing"),
        ({"size": 53, "image_std": ...}, "image_std … missing"),
    ],
)
def test_how_images_are_prepared_is_checked(resnet, file, message):
    entries = {name: value for name, value in (NORMAL | file).items() if value is not ...}
    (resnet / "preprocessor_config.json").write_text(json.dumps(entries))
    refused(resnet, f"preprocessor_config.json … {message}")


def test_a_vit_takes_its_mean_from_the_folder_and_its_size_from_the_config(tmp_path):
    hugging.vit("class").save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(NORMAL | {"size": 53}))
    model = load(tmp_path)
    assert (model.config["mean"], model.config["image_size"]) == ([0.4, 0.5, 0.6], 12)


@pytest.mark.parametrize("names", [["ant", "bee", "cat", "dog", "elk"], []])
def test_classes_have_their_names_unless_these_are_only_numbered(names, tmp_path):
    theirs = hugging.vit("class")
    theirs.config.id2label = dict(enumerate(names)) or theirs.config.id2label
    assert hugging.twin(theirs, tmp_path).config["labels"] == names


# -------------------------------------------------------------------------------------------------------------- exports


@pytest.mark.parametrize(
    "make",
    [lambda: Encoder(31, 24, 1, 4, epsilon=1e-5), lambda: ResNet([1], 5, stem="cifar"), lambda: Seq2Seq(31, 29)],
)
def test_what_has_no_counterpart_is_not_exported(make, tmp_path):
    with pytest.raises(FolderError, match=r"transformers|Hugging Face"):
        make().export(tmp_path)


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

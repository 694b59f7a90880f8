"""Folders of Hugging Face that are not what they seem: refused in one line, or read as what they are; and exports."""

import json
import pickle
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.models import Encoder, FolderError, LanguageModel, ResNet, Seq2Seq, load
from regard.models.huggingface import ARCHITECTURES
from tests.models import hugging
from tests.models.cases import check_message, edit, refused, shaken, word_tokenizer


@pytest.fixture
def gpt2(tmp_path):
    hugging.gpt2("tied").save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


@pytest.fixture
def bert(tmp_path):
    hugging.bert("words").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def first(make):
    """The first model of a family."""
    return make(next(iter(getattr(hugging, f"{make.__name__.upper()}S"))))


def rewrite(folder, change):
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", {"format": "pt"})


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


@pytest.mark.parametrize(("ids", "expected"), [(-1, None), (31, None), ([99, 30, 7], 30), ([], None), (30, 30)])
def test_marks_are_in_the_vocabulary(gpt2, ids, expected):
    edit(gpt2 / "config.json", bos_token_id=ids, eos_token_id=ids)
    assert [load(gpt2).config[name] for name in ("bos", "eos")] == [expected, expected]


def test_marks_of_a_translator_are_in_the_vocabulary(tmp_path):
    hugging.marian("plain").save_pretrained(tmp_path)
    edit(tmp_path / "config.json", decoder_start_token_id=58_100, eos_token_id=-1, pad_token_id=58_100)
    model = load(tmp_path)
    assert [model.config[name] for name in ("bos", "eos", "forbidden")] == [None, None, []]
    with pytest.raises(ValueError, match="bos"):
        model.generate(torch.randint(31, (3, 13)))


def test_the_families_that_are_read_are_named(gpt2):
    edit(gpt2 / "config.json", model_type="gpt5")
    refused(gpt2, "gpt5 … only " + ", ".join(ARCHITECTURES))


OLD = {  # what configs said before there were layer_types and rope_parameters
    "qwen2": (hugging.qwen2, {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "gemma2": (hugging.gemma2, {"sliding_window": 3}),
    "gemma3": (hugging.gemma3, {"sliding_window": 5, "sliding_window_pattern": 2, "rope_local_base_freq": 50.0}),
    "gemma3-defaults": (hugging.gemma3, {}),
}


@pytest.mark.parametrize("name", OLD)
def test_older_configs(name, tmp_path):
    make, entries = OLD[name]
    theirs = first(make)
    theirs.save_pretrained(tmp_path)
    theta = {} if name == "gemma3-defaults" else {"rope_theta": 700.0}
    edit(tmp_path / "config.json", layer_types=..., rope_parameters=..., **entries, **theta)
    ids = torch.randint(31, (3, 13))
    with torch.no_grad():
        expected = type(theirs).from_pretrained(tmp_path).eval()(ids).logits
        torch.testing.assert_close(load(tmp_path)(ids), expected, atol=1e-4, rtol=1e-4)


MISSING = {
    "mistral": (hugging.mistral, "sliding_window", lambda ours: ours["window"]),
    "gemma2-window": (hugging.gemma2, "sliding_window", lambda ours: ours["window"][0]),
    "gemma2-score": (hugging.gemma2, "attn_logit_softcapping", lambda ours: ours["score_softcap"]),
    "gemma2-logits": (hugging.gemma2, "final_logit_softcapping", lambda ours: ours["logit_softcap"]),
    "gemma3-window": (hugging.gemma3, "sliding_window", lambda ours: ours["window"][0]),
    "gemma3-logits": (hugging.gemma3, "final_logit_softcapping", lambda ours: ours["logit_softcap"]),
    "gemma3-scale": (hugging.gemma3, "query_pre_attn_scalar", lambda ours: ours["score_scale"] ** -2),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_a_config_leaves_out_is_their_default(name, tmp_path):
    make, entry, value = MISSING[name]
    theirs = first(make)
    theirs.save_pretrained(tmp_path)
    edit(tmp_path / "config.json", **{entry: ...})
    assert value(load(tmp_path).config) == getattr(type(theirs.config)(), entry)


def test_a_t5_with_an_output_layer(tmp_path):
    theirs = hugging.t5("first")
    theirs.save_pretrained(tmp_path / "theirs")
    output = torch.randn(31, 12)
    rewrite(tmp_path / "theirs", lambda state: state.update({"lm_head.weight": output}))
    edit(tmp_path / "theirs" / "config.json", tie_word_embeddings=False, scale_decoder_outputs=...)
    ours, source, target = load(tmp_path / "theirs"), torch.randint(31, (3, 13)), torch.randint(31, (3, 7))
    ours.export(tmp_path / "ours")
    assert torch.equal(ours.output.weight, output)
    with torch.no_grad():
        for folder in ("theirs", "ours"):
            peer = type(theirs).from_pretrained(tmp_path / folder).eval()
            expected = peer(source, decoder_input_ids=target).logits
            torch.testing.assert_close(ours(source, target), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (hugging.gemma2, {"layer_types": ["chunked_attention"] * 3}, "layer_types … chunked_attention … sliding"),
        (hugging.gemma2, {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2}, "window … 3 layers … 4"),
        (hugging.gemma2, {"layer_types": 3}, "config.json"),
        (hugging.gemma2, {"use_bidirectional_attention": True}, "use_bidirectional_attention … True"),
        (hugging.gemma2, {"hidden_activation": "gelu"}, "hidden_activation … gelu"),
        (hugging.gemma2, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar … 0"),
        (hugging.gemma2, {"num_hidden_layers": 10**9}, "layers … 1000000000"),
        (hugging.gemma3, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping … 50"),
        (hugging.gemma3, {"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "rope_type … linear"),
        (hugging.qwen3, {"sliding_window": 0, "use_sliding_window": True, "max_window_layers": "1"}, "config.json"),
        (hugging.qwen3, {"sliding_window": 0, "use_sliding_window": True, "max_window_layers": 1}, "window … 0"),
        (hugging.mistral, {"sliding_window": "4"}, "window … str"),
        (hugging.roberta, {"hidden_act": "relu"}, "hidden_act … relu … masked"),
        (hugging.roberta, {"pad_token_id": 0}, "pad_token_id … 0"),
        (hugging.roberta, {"max_position_embeddings": 2}, "max_positions … 0"),
        (hugging.roberta, {"architectures": ["RobertaForTokenClassification"]}, "RobertaForTokenClassification"),
        (hugging.t5, {"feed_forward_proj": "gated-relu"}, "feed_forward_proj … gated-relu … gated-gelu"),
        (hugging.t5, {"is_encoder_decoder": False}, "is_encoder_decoder … False"),
        (hugging.t5, {"relative_attention_num_buckets": 2}, "buckets … 2"),
        (hugging.distilbert, {"sinusoidal_pos_embds": True}, "sinusoidal_pos_embds … True"),
        (hugging.distilbert, {"architectures": ["DistilBertForQuestionAnswering"]}, "DistilBertForQuestionAnswering"),
    ],
)
def test_configs_of_more_families_that_do_not_fit(make, changes, message, tmp_path):
    first(make).save_pretrained(tmp_path)
    edit(tmp_path / "config.json", **{"layer_types": None} | changes)
    refused(tmp_path, message)


@pytest.mark.parametrize("kind", ["llama3", "linear"])
def test_rotary_positions_that_are_not_supported(kind, tmp_path):
    hugging.llama("heads").save_pretrained(tmp_path)
    edit(tmp_path / "config.json", rope_parameters={"rope_type": kind, "factor": 2.0})
    refused(tmp_path, f"rope_type … {kind}")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model_type": NaN', "\udcff", '{"a": ' * 100_000])
def test_a_config_that_is_no_json(gpt2, content):
    (gpt2 / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    refused(gpt2, "config.json")


def test_a_config_that_is_a_folder(bert):
    (bert / "config.json").unlink()
    (bert / "config.json").mkdir()
    refused(bert, "config.json")


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


# -------------------------------------------------------------------------------------------------------------- exports


@pytest.mark.parametrize(
    "make", [lambda: Encoder(31, 24, 1, 4, epsilon=1e-5), lambda: ResNet([1], 5), lambda: Seq2Seq(31, 29)]
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": [2, 3]}, "mistral has no window=[2, 3]"),
        ({"rotary_base": [10.0, 1e4]}, "llama has no rotary_base=[10.0, 10000.0]"),
        ({"output_norms": True}, "gemma2 has no scale_embeddings=False"),
        (
            {"output_norms": True, "scale_embeddings": True, "activation": "geglu_tanh", "score_scale": 0.9},
            "gemma2 has no score_scale=0.9",
        ),
        (
            {
                "output_norms": True,
                "scale_embeddings": True,
                "activation": "geglu_tanh",
                "qk_norm": True,
                "rotary_base": [10.0, 1e4],
            },
            "gemma3_text has no rotary_base=[10.0, 10000.0]",
        ),
    ],
)
def test_what_no_family_has_is_not_exported(options, message, tmp_path):
    form = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "attention_bias": False}
    with pytest.raises(FolderError) as raised:
        LanguageModel(31, 24, 2, 4, **form | options).export(tmp_path)
    check_message(str(raised.value), message)


def test_a_llama_with_the_usual_biases_is_exported(tmp_path):
    model = shaken(LanguageModel(31, 24, 1, 4, positions="rotary", norm="rms", activation="swiglu"))
    model.export(tmp_path)
    ids = torch.randint(31, (3, 7))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path)(ids), model(ids))
    with pytest.raises(FolderError, match="swiglu"):
        LanguageModel(31, 24, 1, 4, activation="swiglu").export(tmp_path)

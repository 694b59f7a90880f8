"""More families of Hugging Face: older configs, entries that are left out, marks, what is refused, what is written."""

import pytest
import torch
from safetensors.torch import load_file

from regard import FolderError, LanguageModel, Transformer, load
from regard.models.huggingface import ARCHITECTURES
from tests.models import hugging
from tests.models.cases import check_message, edit, refused, rewrite, shaken


@pytest.fixture
def gpt2(tmp_path):
    hugging.gpt2("tied").save_pretrained(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def first(make):
    """The first model of a family."""
    return make(next(iter(getattr(hugging, f"{make.__name__.upper()}S"))))


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
        (hugging.gemma3, {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "rope_type … linear"),
        (hugging.llama, {"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_type … linear"),
        (hugging.qwen2, {"is_causal": False}, "is_causal … False"),
        (hugging.gpt2, {"is_causal": False}, "is_causal … False"),
        (hugging.marian, {"is_causal": False}, "is_causal … False"),
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


@pytest.mark.parametrize(
    ("option", "value"),
    [("norm", "rms"), ("bias", False), ("scale_output", True), ("score_scale", 1.0), ("head_size", 5)],
)
def test_what_a_marian_cannot_say_is_not_exported(option, value, tmp_path):
    form = {"positions": "sinusoidal_halves", "share_embeddings": True, "output_bias": True}
    Transformer(31, 31, 24, 1, 4, **form).export(tmp_path)
    with pytest.raises(FolderError) as raised:
        Transformer(31, 31, 24, 1, 4, **form, **{option: value}).export(tmp_path)
    check_message(str(raised.value), f"marian has no {option}={value!r}")


def test_a_transformer_with_relative_positions_is_exported(tmp_path):
    """With the sizes that it has where none are given."""
    form = {"positions": "relative", "norm": "rms", "bias": False, "score_scale": 1.0, "pre_norm": True}
    model = shaken(
        Transformer(31, 31, 24, 1, 4, **form, share_embeddings=True, scale_embeddings=False, scale_output=True)
    )
    model.export(tmp_path)
    source, target = torch.randint(31, (3, 13)), torch.randint(31, (3, 7))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path)(source, target), model(source, target))


TIED = (hugging.bert, hugging.roberta, hugging.distilbert, hugging.gpt2, hugging.llama, hugging.marian, hugging.t5)


@pytest.mark.parametrize("make", TIED)
def test_what_a_config_ties_is_the_same_in_the_files(make, tmp_path):
    """Files may hold a tied tensor twice; where the two differ, no one can say which one is meant."""
    theirs = first(make)
    for name, original in ARCHITECTURES[theirs.config.model_type].copies.items():
        theirs.save_pretrained(tmp_path)
        edit(tmp_path / "config.json", tie_word_embeddings=True)
        rewrite(tmp_path, lambda state, name=name: state.pop(name, None))
        expected = load(tmp_path).state_dict()
        tensors = load_file(tmp_path / "model.safetensors")
        tensor = next((tensor for key, tensor in tensors.items() if key.endswith(original)), torch.ones(31))
        rewrite(tmp_path, lambda state, name=name, tensor=tensor: state.update({name: tensor.clone()}))
        twice = load(tmp_path).state_dict()
        assert all(torch.equal(twice[key], expected[key]) for key in expected)
        if any(key.endswith(original) for key in tensors):  # not of a head that this model does not have
            rewrite(tmp_path, lambda state, name=name: state[name].view(-1)[7:8].add_(1))
            refused(tmp_path, f"{name} differs from {original}")

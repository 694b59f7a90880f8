"""What `regard look` and `explore` read: folders of any family, by transformers, and any module with a tokenizer."""

import json
import sys

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

import regard
from regard import FolderError
from regard.cli import main
from regard.view.reading import load, prepare, read
from regard.web.model_store import ModelStore
from tests.models.cases import check_message, edit

TEXT, TARGET = "the cat is on the mat", "a dog sees it"


def byte_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), ["<pad>", "</s>", "<s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=311, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT, TARGET] * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


TOKENIZER = byte_tokenizer()
COUNT = TOKENIZER.get_vocab_size()
NAMES = ("the", "cat", "is", "on", "the", "mat", "</s>")
MARKS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "decoder_start_token_id": 0}
SIZES = {
    "vocab_size": COUNT,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "max_position_embeddings": 37,
    "initializer_range": 0.4,
    **{name: MARKS[name] for name in ("pad_token_id", "eos_token_id", "bos_token_id")},
}
BART = {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in {"layers": 2, "attention_heads": 3, "ffn_dim": 19}.items()
}
T5 = {"d_model": 24, "d_kv": 8, "d_ff": 19, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3}
ROPE = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAMILIES = {  # that regard has no model for
    "Starcoder2ForCausalLM": SIZES | {"num_key_value_heads": 1},
    "GPTNeoXForCausalLM": SIZES,
    "LlamaForCausalLM": SIZES | {"rope_parameters": ROPE | {"original_max_position_embeddings": 16}},
    "RobertaForMaskedLM": SIZES,
    "RobertaForSequenceClassification": SIZES | {"num_labels": 5},
    "BertForQuestionAnswering": SIZES,
    "ElectraModel": SIZES | {"embedding_size": 12},
    "AlbertForMaskedLM": SIZES | {"embedding_size": 12},  # one layer, called twice
    "MT5ForConditionalGeneration": {"vocab_size": COUNT, **T5, **MARKS},
    "BartForConditionalGeneration": {"vocab_size": COUNT, "d_model": 24, "init_std": 0.4, **BART, **MARKS},
    "BartModel": {"vocab_size": COUNT, "d_model": 24, "init_std": 0.4, **BART, **MARKS},
}


def made(name, **changes):
    kind = getattr(transformers, name)
    return kind(kind.config_class(**FAMILIES[name] | changes)).eval()


def saved(folder, name, **changes):
    """A folder with a random model of this family; and the model."""
    model = made(name, **changes)
    model.save_pretrained(folder)
    TOKENIZER.save(str(folder / "tokenizer.json"))
    return folder, model


def eager(model, reading):
    """What transformers itself says that the layers attend to, in their order, and its logits or states."""
    model.set_attn_implementation("eager")
    names = ("input_ids", "decoder_input_ids")
    with torch.no_grad():
        output = model(**dict(zip(names, reading.inputs, strict=False)), output_attentions=True)
    if "encoder_attentions" not in output:
        return output.attentions, output[0]
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(weights for pair in pairs for weights in pair)], output[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_another_family_is_read_by_transformers(name, tmp_path):
    folder, model = saved(tmp_path, name)
    loaded = load(folder)
    assert type(loaded) is type(model)
    assert not loaded.training
    display, reading = read(loaded, TEXT), prepare(loaded, TEXT)
    expected, result = eager(model, reading)
    for layer, weights in zip(display.maps, expected, strict=True):
        torch.testing.assert_close(layer.weights, weights, atol=1e-5, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(reading.run()[0], result, atol=1e-5, rtol=1e-4)
    assert display.maps[0].tokens == display.maps[0].key_tokens == NAMES
    kinds = {layer.kind for layer in display.maps}
    if len(reading.inputs) == 2:
        assert kinds == {"self", "causal", "cross"}
        cross = display.maps[-1]
        assert cross.key_tokens == NAMES
        assert cross.tokens[-1] == "(end)"
        assert reading.inputs[1][0, 0] == MARKS["decoder_start_token_id"]
    else:
        assert kinds == ({"causal"} if name.endswith("CausalLM") else {"self"})


OURS = {  # that regard reads itself
    "Qwen2ForCausalLM": SIZES | {"num_key_value_heads": 1},
    "Gemma2ForCausalLM": SIZES | {"num_key_value_heads": 1, "head_dim": 10, "sliding_window": 3},
    "DistilBertForMaskedLM": {"vocab_size": COUNT, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 19},
    "T5ForConditionalGeneration": {"vocab_size": COUNT, **T5, **MARKS},
}


@pytest.mark.parametrize("name", OURS)
def test_what_regard_reads_itself_attends_as_there(name, tmp_path):
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**OURS[name])).eval()
    model.save_pretrained(tmp_path)
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    loaded = load(tmp_path)
    assert type(loaded).__module__.startswith("regard.")
    display, reading = read(loaded, TEXT), prepare(loaded, TEXT)
    for layer, weights in zip(display.maps, eager(model, reading)[0], strict=True):
        torch.testing.assert_close(layer.weights, weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["MT5ForConditionalGeneration", "BartForConditionalGeneration"])
def test_an_encoder_decoder_reads_what_it_would_write_or_what_it_is_given(name, tmp_path):
    model = load(saved(tmp_path, name)[0])
    source = torch.tensor([TOKENIZER.encode(TEXT).ids])
    written = model.generate(source, max_new_tokens=30, do_sample=False, use_cache=False)[0].tolist()
    assert MARKS["eos_token_id"] not in written
    assert prepare(model, TEXT).inputs[1][0].tolist() == written
    model.generation_config.eos_token_id = written[-1]
    assert prepare(model, TEXT).inputs[1][0].tolist() == written[: written.index(written[-1], 1)]
    reading = prepare(model, TEXT, TARGET)
    assert reading.inputs[1][0].tolist() == [0, *TOKENIZER.encode(TARGET, add_special_tokens=False).ids]
    assert reading.title == f"{TEXT} → {TARGET}"
    assert read(model, TEXT, TARGET).maps[-1].tokens[-3:] == ("sees", "it", "(end)")


def test_long_texts_are_cut_at_the_limit_of_positions(tmp_path):
    roberta, starcoder = (
        load(saved(tmp_path / name, name)[0]) for name in ("RobertaForMaskedLM", "Starcoder2ForCausalLM")
    )
    lengths = [prepare(model, f"{TEXT} " * 9).inputs[0].shape[1] for model in (roberta, starcoder)]
    assert lengths == [36, 37]  # RoBERTa's first position is that of the padding
    assert len(read(roberta, f"{TEXT} " * 9).maps[0].tokens) == 36


# ------------------------------------------------------------------------------------------------------ any module


class Letters:
    """A tokenizer as people write them: called with a text, and with `decode`."""

    def __call__(self, text):
        return torch.tensor([ord(letter) for letter in text])

    def decode(self, ids):
        return "".join(map(chr, ids))


class Encodes:
    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return ""


class Writer(nn.Module):
    """A decoder by hand."""

    def __init__(self):
        super().__init__()
        self.embedding, self.project, self.out = nn.Embedding(COUNT, 12), nn.Linear(12, 36), nn.Linear(12, COUNT)

    def forward(self, ids):
        rows = self.embedding(ids)  # (batch, n, 12)
        heads = self.project(rows).unflatten(-1, (3, 3, 4)).transpose(1, 3)  # (batch, heads, 3, n, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(2), is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Pair(nn.Module):
    """An encoder–decoder by hand."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(127, 12)
        self.transformer = nn.Transformer(12, 2, 1, 1, 19, batch_first=True)

    def forward(self, source, target):
        return self.transformer(self.embedding(source), self.embedding(target))


def test_any_tokenizer_will_do():
    model = Writer().eval()
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=TOKENIZER)
    displays = [read(model, TEXT, tokenizer=tokenizer) for tokenizer in (TOKENIZER, theirs)]
    model.tokenizer = TOKENIZER
    displays.append(read(model, TEXT))
    for display in displays:
        assert display.maps[0].tokens == NAMES
        assert torch.equal(display.maps[0].weights, displays[0].maps[0].weights)
        assert display.maps[0].kind == "causal"
    letters, encodes = (read(model, "a cat", tokenizer=tokenizer).maps[0] for tokenizer in (Letters(), Encodes()))
    assert torch.equal(letters.weights, encodes.weights)
    assert letters.tokens == tuple("a␣cat")
    assert encodes.tokens == tuple(str(ord(letter)) for letter in "a cat")
    with pytest.raises(ValueError, match="tokenizer: expected one that belongs to this Writer"):
        read(Writer(), TEXT)


def test_a_module_with_two_inputs_reads_a_text_and_a_target():
    model = Pair()
    display = read(model, "abc", "vwxyz", tokenizer=Letters())
    assert [tuple(layer.weights.shape[-2:]) for layer in display.maps] == [(3, 3), (5, 5), (5, 3)]
    assert display.maps[2].key_tokens == tuple("abc")
    assert display.maps[2].tokens == tuple("vwxyz")
    assert model.training  # as it was


def test_a_model_of_regards_can_be_given_its_tokenizer_or_have_it():
    model = regard.LanguageModel(COUNT, 24, 2, 3, max_positions=41)
    display = read(model, TEXT, tokenizer=TOKENIZER, layers=1, heads=[0, 2])
    assert [(layer.layer, layer.heads, layer.tokens) for layer in display.maps] == [(1, (0, 2), NAMES)]
    model.tokenizer = TOKENIZER
    assert torch.equal(read(model, TEXT).maps[1].weights[:, [0, 2]], display.maps[0].weights)
    with pytest.raises(ValueError, match="target: expected None"):
        read(model, TEXT, TARGET)
    translator = regard.Transformer(COUNT, COUNT, 24, 1, 3, bos=2, eos=1)
    translator.tokenizer = TOKENIZER
    assert [len(layer.tokens) for layer in read(translator, TEXT, "").maps] == [7, 1, 1]


def test_a_text_whose_weights_do_not_fit_into_memory_is_refused_before_they_are_computed():
    model = regard.LanguageModel(COUNT, 24, 30, 12, max_positions=8_192)
    model.tokenizer = TOKENIZER
    with pytest.raises(ValueError, match=r"at most 2\.1 GB of weights, got .* 30 layers and 12 heads: give a shorter"):
        read(model, f"{TEXT} " * 300)


@pytest.mark.filterwarnings("ignore::regard.view.capture.CaptureWarning")
def test_models_that_pool_tokens_or_do_not_attend():
    sizes = {"vocab_size": COUNT, "d_model": 24, "n_head": 3, "d_head": 8, "d_inner": 19, "block_sizes": [1, 1]}
    funnel = transformers.FunnelBaseModel(transformers.FunnelConfig(**sizes)).eval()
    assert [layer.tokens[1] for layer in read(funnel, TEXT, tokenizer=TOKENIZER).maps] == ["1", "1"]
    mamba = transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=COUNT, hidden_size=12, num_hidden_layers=1)
    )
    with pytest.raises(ValueError, match="one that attends, got a MambaForCausalLM"):
        read(mamba, TEXT, tokenizer=TOKENIZER)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder, _ = saved(tmp_path, "Starcoder2ForCausalLM", vocab_size=7)
    with pytest.raises(ValueError, match=r"tokenizer: expected ids below 7, .* belongs to another model"):
        read(load(folder), TEXT)


# ------------------------------------------------------------------------------------------------------ folders


def refused(folder, expected):
    with pytest.raises(FolderError) as raised:
        load(folder)
    check_message(str(raised.value), expected)


def test_without_transformers_the_error_says_what_to_install(tmp_path, monkeypatch, capsys):
    folder, _ = saved(tmp_path, "Starcoder2ForCausalLM")
    variant, _ = saved(tmp_path / "llama", "LlamaForCausalLM")
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(folder, "config.json … model_type … starcoder2 … only bert, … gpt2, … pip install 'regard[hf]'")
    assert main(["look", str(folder), TEXT]) == 2
    assert "regard[hf]" in capsys.readouterr().err
    refused(variant, "config.json … rope_type … llama3 … pip install 'regard[hf]'")


def test_regards_own_families_come_without_transformers(tmp_path, monkeypatch):
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=COUNT, n_embd=12, n_layer=2, n_head=3, bos_token_id=2, eos_token_id=1)
    ).eval()
    model.save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=TOKENIZER).save_pretrained(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        loaded = load(tmp_path)
        display = read(loaded, TEXT)
    assert isinstance(loaded, regard.LanguageModel)
    expected, _ = eager(model, prepare(loaded, TEXT))
    for layer, weights in zip(display.maps, expected, strict=True):
        torch.testing.assert_close(layer.weights, weights, atol=1e-5, rtol=0)


def test_a_tokenizer_without_tokenizer_json_is_read_by_transformers(tmp_path):
    sizes = {name: size for name, size in SIZES.items() if "token_id" not in name} | {"vocab_size": 11}
    transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(TEXT.split())]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    display = read(load(tmp_path), TEXT)
    assert display.maps[0].tokens == ("[CLS]", *TEXT.split(), "[SEP]")


def test_folders_that_are_refused(tmp_path):
    folder, model = saved(tmp_path / "missing", "Starcoder2ForCausalLM")
    state = {name: tensor for name, tensor in model.state_dict().items() if "layers.1.self_attn.k_proj" not in name}
    model.save_pretrained(folder, state_dict=state)
    refused(folder, "model.layers.1.self_attn.k_proj … (of 2) is missing")

    folder, _ = saved(tmp_path / "other", "GPTNeoXForCausalLM")
    edit(folder / "config.json", hidden_size=48)
    refused(folder, f"{folder}: … missing … or has another shape")

    for name, claimed in {"num_hidden_layers": 100_000, "vocab_size": 1 << 40, "intermediate_size": 1 << 40}.items():
        folder, _ = saved(tmp_path / name, "GPTNeoXForCausalLM")
        edit(folder / "config.json", **{name: claimed})
        refused(folder, f"{folder}: transformers … config.json: … but the files hold")

    folder, _ = saved(tmp_path / "unknown", "GPTNeoXForCausalLM")
    edit(folder / "config.json", model_type="gpt5")
    refused(folder, f"{folder}: transformers … cannot read it: … gpt5")

    folder, model = saved(tmp_path / "pickle", "GPTNeoXForCausalLM")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    refused(folder, "pytorch_model.bin … is a pickle")

    folder, _ = saved(tmp_path / "broken", "GPTNeoXForCausalLM")
    (folder / "model.safetensors").write_bytes(b"\xff" * 999)
    refused(folder, f"{folder}: transformers … cannot read it")

    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "image_size": 8, "patch_size": 4}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes)).save_pretrained(tmp_path / "images")
    refused(tmp_path / "images", "a Dinov2Model reads pixel_values, no text")


def test_no_code_of_a_folder_is_run(tmp_path):
    folder, _ = saved(tmp_path, "GPTNeoXForCausalLM")
    mark = tmp_path / "ran"
    for name in ("configuration_own", "modeling_own"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    edit(
        folder / "config.json",
        model_type="own",
        auto_map={"AutoConfig": "configuration_own.Own", "AutoModel": "modeling_own.Own"},
    )
    refused(folder, "cannot read it")
    edit(folder / "config.json", model_type="gpt_neox", architectures=["Own"])
    assert type(load(folder)).__name__ in ("GPTNeoXModel",)
    edit(folder / "config.json", attn_implementation="somebody/kernels")
    assert load(folder).config._attn_implementation in ("eager", "sdpa")
    assert not mark.exists()


# --------------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize("name", ["Starcoder2ForCausalLM", "RobertaForMaskedLM", "MT5ForConditionalGeneration"])
def test_look_shows_and_writes_them(name, tmp_path, capsys):
    folder, _ = saved(tmp_path / "model", name)
    capsys.readouterr()
    assert main(["look", str(folder), TEXT]) == 0
    shown = capsys.readouterr()
    assert "query (looks) at the left" in shown.out
    assert shown.err == ""
    for ending in ("json", "png", "html"):
        out = tmp_path / f"looks.{ending}"
        assert main(["look", str(folder), TEXT, "--out", str(out)]) == 0
        assert out.stat().st_size > 999
    record = json.loads((tmp_path / "looks.json").read_text())
    for layer, expected in zip(record["layers"], read(load(folder), TEXT).maps, strict=True):
        torch.testing.assert_close(torch.tensor([*layer["weights"].values()]), expected.weights[0])


def test_explore_opens_them(tmp_path):
    store = ModelStore([saved(tmp_path / "starcoder", "Starcoder2ForCausalLM")[0]])
    assert store.list_models()[0]["name"] == "starcoder"
    assert store.kind("starcoder") == "language"  # it looks at no later token, and predicts the next
    assert type(store.model("starcoder")).__name__ == "Starcoder2ForCausalLM"

"""Every architecture gives the numbers that `transformers` gives with the same weights, and goes back to it."""

import pytest
import torch

from regard import capture
from tests.models import hugging

LENGTHS = torch.tensor([13, 1, 7, 3, 12])
REAL = torch.arange(13) < LENGTHS[:, None]  # (batch, n)


@pytest.fixture
def ids():
    return torch.randint(0, 30, (5, 13))


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=3e-5)


def generated(model, *inputs, **options):
    return [hypothesis.ids for hypothesis in model.generate(*inputs, max_new_tokens=17, **options)]


def trimmed(rows, end):
    """The tokens before eos."""
    return [row[: row.index(end)] if end in row else row for row in rows.tolist()]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


ENCODERS = {hugging.bert: hugging.BERTS, hugging.roberta: hugging.ROBERTAS, hugging.distilbert: hugging.DISTILBERTS}


@pytest.mark.parametrize(("make", "name"), [(make, name) for make, names in ENCODERS.items() for name in names])
def test_encoders(make, name, ids, tmp_path):
    theirs = make(name)
    ids = ids.clamp(min=2)  # RoBERTa does not count the padding token as a position
    ours = hugging.twin(theirs, tmp_path / "theirs")
    kind = type(hugging.bert(name)) if make is hugging.roberta else type(theirs)  # RoBERTas are written as BERTs
    again = hugging.back(ours, kind, tmp_path / "ours")
    for peer in (theirs, again):
        output = peer(ids, attention_mask=REAL.long())
        if "ForMaskedLM" in type(theirs).__name__:
            same(ours.mlm_logits(ids, LENGTHS)[REAL], output.logits[REAL])
        elif "Classification" in type(theirs).__name__:
            same(ours.class_logits(ids, LENGTHS), output.logits)
        else:
            same(ours(ids, LENGTHS)[REAL], output.last_hidden_state[REAL])
            same(ours(ids), peer(ids).last_hidden_state)
    assert (ours(ids, LENGTHS)[~REAL] == 0).all()


def test_bert_with_two_texts(ids, tmp_path):
    theirs = hugging.bert("bare")
    ours = hugging.twin(theirs, tmp_path)
    token_types = torch.randint(0, 2, ids.shape)
    vectors = theirs(ids, attention_mask=REAL.long(), token_type_ids=token_types).last_hidden_state
    same(ours(ids, LENGTHS, token_types)[REAL], vectors[REAL])


LANGUAGE_MODELS = {
    hugging.gpt2: hugging.GPT2S,
    hugging.llama: hugging.LLAMAS,
    hugging.mistral: hugging.MISTRALS,
    hugging.qwen2: hugging.QWEN2S,
    hugging.qwen3: hugging.QWEN3S,
    hugging.gemma2: hugging.GEMMA2S,
    hugging.gemma3: hugging.GEMMA3S,
}


@pytest.mark.parametrize(("make", "name"), [(make, name) for make, names in LANGUAGE_MODELS.items() for name in names])
def test_language_models(make, name, ids, tmp_path):
    theirs = make(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, type(theirs), tmp_path / "ours")
    is_llama = name == "no-window" and make is hugging.mistral
    assert again.config.architectures == ["LlamaForCausalLM" if is_llama else type(theirs).__name__]
    for peer in (theirs, again):
        same(ours(ids, LENGTHS)[REAL], peer(ids, attention_mask=REAL.long()).logits[REAL])
        same(ours(ids), peer(ids).logits)
    end = ours.config["eos"]
    options = {"max_new_tokens": 17, "do_sample": False, "pad_token_id": end}
    greedy = theirs.generate(ids, **options)[:, 13:]
    assert generated(ours, ids) == trimmed(greedy, end)
    beam = theirs.generate(ids, num_beams=4, **options)[:, 13:]
    assert generated(ours, ids, beam_size=4) == trimmed(beam, end)


@pytest.mark.parametrize("make", LANGUAGE_MODELS)
def test_prompts_of_different_lengths(make, ids, tmp_path):
    """They are padded on the left there, and on the right here."""
    theirs = make(next(iter(LANGUAGE_MODELS[make])))
    ours = hugging.twin(theirs, tmp_path)
    left = torch.stack([row.roll(13 - int(count)) for row, count in zip(ids, LENGTHS, strict=True)])
    end = ours.config["eos"]
    options = {"max_new_tokens": 17, "do_sample": False, "pad_token_id": end}
    greedy = theirs.generate(left, attention_mask=REAL.flip(1).long(), **options)[:, 13:]
    assert generated(ours, ids, LENGTHS) == trimmed(greedy, end)


@pytest.mark.parametrize("make", LANGUAGE_MODELS)
def test_captured_weights_are_theirs(make, ids, tmp_path):
    theirs = make(next(iter(LANGUAGE_MODELS[make])))
    ours = hugging.twin(theirs, tmp_path)
    theirs.set_attn_implementation("eager")
    with capture(ours) as seen:
        ours(ids)
    assert [layer.name for layer in seen] == [f"blocks.{number}.mixer" for number in range(ours.config["layers"])]
    for layer, weights in zip(seen, theirs(ids, output_attentions=True).attentions, strict=True):
        same(layer.weights, weights)


@pytest.mark.parametrize("make", LANGUAGE_MODELS)
def test_marks_of_another_vocabulary_mark_nothing(make, ids, tmp_path):
    """As the ids that a new config has by default, for a model with a vocabulary of its own."""
    theirs = make(next(iter(LANGUAGE_MODELS[make])))
    for settings in (theirs.config, theirs.generation_config):
        settings.bos_token_id = settings.eos_token_id = 50_256
    ours = hugging.twin(theirs, tmp_path)
    assert (ours.config["bos"], ours.config["eos"]) == (None, None)
    options = {"max_new_tokens": 17, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    greedy = theirs.generate(ids, pad_token_id=0, **options)[:, 13:]
    assert generated(ours, ids) == greedy.tolist()


@pytest.mark.parametrize("name", hugging.VITS)
def test_vit(name, tmp_path):
    theirs = hugging.vit(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, type(theirs), tmp_path / "ours")
    side = theirs.config.image_size
    sides = side if isinstance(side, tuple | list) else (side, side)
    images = torch.randn(3, ours.config["channels"], *sides)
    for peer in (theirs, again):
        same(ours(images), peer(images).logits)
    if sides[0] != sides[1]:
        return  # they take positions that are learned for a square, and nothing else
    larger = torch.randn(3, ours.config["channels"], 24, 16)
    same(ours.resize((24, 16))(larger), theirs(larger, interpolate_pos_encoding=True).logits)


TRANSLATORS = {hugging.marian: hugging.MARIANS, hugging.t5: hugging.T5S}


@pytest.mark.parametrize(("make", "name"), [(make, name) for make, names in TRANSLATORS.items() for name in names])
def test_translators(make, name, ids, tmp_path):
    theirs = make(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, type(theirs), tmp_path / "ours")
    target = torch.randint(0, 30, (5, 7))
    mask = {"attention_mask": REAL.long()}
    for peer in (theirs, again):
        same(ours(ids, target, LENGTHS), peer(ids, decoder_input_ids=target, **mask).logits)
    forbidden = [[token] for token in ours.config["forbidden"]] or None
    options = {"max_new_tokens": 17, "do_sample": False, "bad_words_ids": forbidden, "forced_eos_token_id": None}
    greedy = theirs.generate(ids, **mask, **options)[:, 1:]
    assert generated(ours, ids, LENGTHS) == trimmed(greedy, 0)
    for penalty in (1.0, 0.3):
        beam = theirs.generate(ids, num_beams=4, length_penalty=penalty, **mask, **options)[:, 1:]
        assert generated(ours, ids, LENGTHS, beam_size=4, length_penalty=penalty) == trimmed(beam, 0)


@pytest.mark.parametrize("name", hugging.RESNETS)
def test_resnet(name, tmp_path):
    theirs = hugging.resnet(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, theirs, tmp_path / "ours")
    images = torch.randn(3, ours.config["channels"], 37, 41)
    for peer in (theirs, again):
        same(ours(images), peer(images).logits)

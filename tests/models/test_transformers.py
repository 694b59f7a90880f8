"""Every architecture gives the numbers that `transformers` gives with the same weights, and goes back to it."""

import pytest
import torch

from tests.models import hugging

LENGTHS = torch.tensor([13, 1, 7, 3, 12])
REAL = torch.arange(13) < LENGTHS[:, None]  # (batch, n)


@pytest.fixture
def ids():
    return torch.randint(0, 30, (5, 13))


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def generated(model, *inputs, **options):
    return [hypothesis.ids for hypothesis in model.generate(*inputs, max_new_tokens=17, **options)]


def trimmed(rows, end):
    """The tokens before eos."""
    return [row[: row.index(end)] if end in row else row for row in rows.tolist()]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", hugging.BERTS)
def test_bert(name, ids, tmp_path):
    theirs = hugging.bert(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, theirs, tmp_path / "ours")
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


@pytest.mark.parametrize(
    ("make", "name"),
    [*((hugging.gpt2, name) for name in hugging.GPT2S), *((hugging.llama, name) for name in hugging.LLAMAS)],
)
def test_language_models(make, name, ids, tmp_path):
    theirs = make(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, theirs, tmp_path / "ours")
    for peer in (theirs, again):
        same(ours(ids, LENGTHS)[REAL], peer(ids, attention_mask=REAL.long()).logits[REAL])
        same(ours(ids), peer(ids).logits)
    end = ours.config["eos"]
    options = {"max_new_tokens": 17, "do_sample": False, "pad_token_id": end}
    greedy = theirs.generate(ids, **options)[:, 13:]
    assert generated(ours, ids) == trimmed(greedy, end)
    beam = theirs.generate(ids, num_beams=4, **options)[:, 13:]
    assert generated(ours, ids, beam_size=4) == trimmed(beam, end)


@pytest.mark.parametrize("make", [hugging.gpt2, hugging.llama])
def test_prompts_of_different_lengths(make, ids, tmp_path):
    """They are padded on the left there, and on the right here."""
    theirs = make(next(iter(hugging.GPT2S if make is hugging.gpt2 else hugging.LLAMAS)))
    ours = hugging.twin(theirs, tmp_path)
    left = torch.stack([row.roll(13 - int(count)) for row, count in zip(ids, LENGTHS, strict=True)])
    end = ours.config["eos"]
    options = {"max_new_tokens": 17, "do_sample": False, "pad_token_id": end}
    greedy = theirs.generate(left, attention_mask=REAL.flip(1).long(), **options)[:, 13:]
    assert generated(ours, ids, LENGTHS) == trimmed(greedy, end)


@pytest.mark.parametrize("name", hugging.VITS)
def test_vit(name, tmp_path):
    theirs = hugging.vit(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, theirs, tmp_path / "ours")
    side = theirs.config.image_size
    sides = side if isinstance(side, tuple | list) else (side, side)
    images = torch.randn(3, ours.config["channels"], *sides)
    for peer in (theirs, again):
        same(ours(images), peer(images).logits)
    if sides[0] != sides[1]:
        return  # they take positions that are learned for a square, and nothing else
    larger = torch.randn(3, ours.config["channels"], 24, 16)
    same(ours.resize((24, 16))(larger), theirs(larger, interpolate_pos_encoding=True).logits)


@pytest.mark.parametrize("name", hugging.MARIANS)
def test_marian(name, ids, tmp_path):
    theirs = hugging.marian(name)
    ours = hugging.twin(theirs, tmp_path / "theirs")
    again = hugging.back(ours, theirs, tmp_path / "ours")
    target = torch.randint(0, 30, (5, 7))
    mask = {"attention_mask": REAL.long()}
    for peer in (theirs, again):
        same(ours(ids, target, LENGTHS), peer(ids, decoder_input_ids=target, **mask).logits)
    options = {"max_new_tokens": 17, "do_sample": False, "bad_words_ids": [[30]], "forced_eos_token_id": None}
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

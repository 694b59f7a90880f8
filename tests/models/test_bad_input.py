"""Wrong calls of models: one clear error each, which names the argument, what was expected and what came."""

import pytest
import torch

from regard.attention import Dot
from regard.models import Encoder, LanguageModel, ResNet, Sampling, Seq2Seq, Transformer, ViT
from tests.models.test_folders import word_tokenizer

IDS = torch.randint(31, (3, 13))


def encoder(**options):
    return Encoder(31, 24, 1, 4, max_positions=17, **options)


def language(**options):
    return LanguageModel(31, 24, 1, 4, max_positions=17, **options)


def with_tokenizer(model, tokenizer=None):
    model.tokenizer = tokenizer or word_tokenizer()
    return model


def transformer(**options):
    return Transformer(31, 31, 24, 1, 4, **options)


def read(make, ids=IDS, lengths=None):
    return lambda: make()(ids, lengths)


CALLS = {
    "an id beyond the vocabulary": (read(encoder, IDS + 31), ValueError, "ids", "0 to 30"),
    "a negative id": (read(language, IDS - 40), ValueError, "ids", "0 to 30", "-"),
    "ids that are floats": (read(language, IDS.float()), TypeError, "ids", "whole", "float32"),
    "ids that are a list": (read(encoder, IDS.tolist()), TypeError, "ids", "Tensor", "list"),
    "ids of one dimension": (read(encoder, IDS[0]), ValueError, "ids", "(batch, n)", "(13,)"),
    "ids of nothing": (read(encoder, IDS[:, :0]), ValueError, "ids", "at least one", "(3, 0)"),
    "a length of 0": (read(encoder, IDS, [13, 0, 4]), ValueError, "lengths", "1 to 13", "0"),
    "a length beyond the ids": (read(language, IDS, [13, 14, 4]), ValueError, "lengths", "1 to 13", "14"),
    "lengths that are floats": (read(language, IDS, [13.0, 1.0, 4.0]), TypeError, "lengths", "whole", "float"),
    "too few lengths": (read(encoder, IDS, [13, 4]), ValueError, "lengths", "(3,)", "(2,)"),
    "too many positions": (read(encoder, IDS.repeat(1, 2)), ValueError, "ids", "at most 17", "26"),
    "too many positions to write": (read(language, IDS.repeat(1, 2)), ValueError, "ids", "at most 17", "26"),
    "too many rotary positions": (
        read(lambda: language(positions="rotary"), IDS.repeat(1, 2)),
        ValueError,
        "ids",
        "at most 17",
        "26",
    ),
    "too many positions after a cache": (
        lambda: (model := language()).extend(IDS, model.extend(IDS)[1]),
        ValueError,
        "ids",
        "at most 17",
        "26",
    ),
    "padding in the middle": (
        lambda: language().extend(IDS, None, [1, 2, 3], "middle"),
        ValueError,
        "padding",
        "left, right",
        "middle",
    ),
    "no head for words": (lambda: encoder().mlm_logits(IDS), ValueError, "mlm_head=True"),
    "no head for classes": (lambda: encoder().class_logits(IDS), ValueError, "classes="),
    "no tokenizer": (lambda: encoder().embed(["a"]), ValueError, "tokenizer"),
    "no tokenizer to write with": (lambda: language().generate("a"), ValueError, "tokenizer"),
    "a source id beyond the vocabulary": (
        lambda: Transformer(31, 29, 24, 1, 4)(IDS + 31, IDS),
        ValueError,
        "source",
        "0 to 30",
    ),
    "a target id beyond the vocabulary": (
        lambda: Transformer(31, 5, 24, 1, 4)(IDS, IDS),
        ValueError,
        "target",
        "0 to 4",
    ),
    "a recurrent source id beyond": (lambda: Seq2Seq(5, 31)(IDS, IDS), ValueError, "source", "0 to 4"),
    "a recurrent length of 0": (
        lambda: Seq2Seq(31, 31)(IDS, IDS, [0, 1, 2]),
        ValueError,
        "source_lengths",
        "1 to 13",
        "0",
    ),
    "a source that is too long": (
        lambda: transformer(max_positions=11)(IDS, IDS[:, :2]),
        ValueError,
        "at most 11",
        "13",
    ),
    "more targets than sources": (
        lambda: transformer()(IDS[:2], IDS.repeat(2, 1)[:4]),
        ValueError,
        "target",
        "2 sequences",
        "4",
    ),
    "fewer targets than sources": (lambda: transformer()(IDS, IDS[:1]), ValueError, "target", "3 sequences", "1"),
    "more recurrent targets": (
        lambda: Seq2Seq(31, 31)(IDS[:2], IDS.repeat(2, 1)),
        ValueError,
        "target",
        "2 sequences",
        "6",
    ),
    "a cache of another batch": (
        lambda: (model := language()).extend(IDS[:1, :2], model.extend(IDS[:, :3])[1]),
        ValueError,
        "ids",
        "3 sequences",
        "1",
    ),
    "no tokens to generate": (
        lambda: language().generate(IDS, max_new_tokens=0),
        ValueError,
        "max_new_tokens",
        "1 token",
        "0",
    ),
    "no beams": (lambda: language().generate(IDS, beam_size=0), ValueError, "beam_size", "0"),
    "beams and a sampling": (
        lambda: language().generate(IDS, beam_size=2, sampling=Sampling(0.5)),
        ValueError,
        "sampling",
        "beam_size=2",
    ),
    "a sampling that is a name": (
        lambda: language().generate(IDS, sampling="sample"),
        TypeError,
        "sampling",
        "Sampling(",
        "str",
    ),
    "a seed of letters": (lambda: Sampling(seed="x"), TypeError, "seed", "str"),
    "an end beyond the vocabulary": (lambda: language(eos=31), ValueError, "eos", "0 to 30", "31"),
    "a forbidden word beyond": (lambda: Seq2Seq(31, 29, forbidden=[29]), ValueError, "forbidden", "0 to 28", "29"),
    "rotations backwards": (lambda: language(rotary_base=-3), ValueError, "rotary_base", "-3"),
    "a score without attention": (lambda: language(mixer="recurrent", score="dot"), ValueError, "mixer", "score"),
    "one score for all layers": (lambda: language(score=Dot()), ValueError, "score", "additive", "Dot"),
    "a cache of another model": (
        lambda: language().extend(IDS[:, :2], LanguageModel(31, 24, 3, 4).extend(IDS[:, :2])[1]),
        ValueError,
        "cache",
        "1 layers",
        "3",
    ),
    "a type that is not there": (
        lambda: encoder(token_types=2)(IDS, None, IDS + 2),
        ValueError,
        "token_types",
        "0 to 1",
    ),
    "a depth that is a number": (lambda: ResNet(18, 10), ValueError, "depths", "18"),
    "a stage of nothing": (lambda: ResNet((2, 0), 10), ValueError, "depths", "(2, 0)"),
    "heads that do not divide": (lambda: Transformer(31, 31, 24, 1, 5), ValueError, "heads", "24", "5"),
    "a tokenizer of another kind": (
        lambda: with_tokenizer(language(), "gpt2").generate("a"),
        TypeError,
        "Tokenizer",
        "str",
    ),
    "two prompts for a stream": (
        lambda: list(with_tokenizer(language()).stream(["a", "b"])),
        TypeError,
        "prompt",
        "list",
    ),
    "a prompt that is a number": (lambda: with_tokenizer(language()).generate(5), TypeError, "prompt", "int"),
    "a text that is none": (lambda: with_tokenizer(encoder()).embed(["cat", None]), TypeError, "texts", "1"),
    "types where there are none": (lambda: encoder()(IDS, None, IDS), ValueError, "token_types"),
    "a negative number of types": (lambda: encoder(token_types=-1), ValueError, "token_types", "-1"),
    "an epsilon of words": (lambda: encoder(epsilon="x"), TypeError, "epsilon", "str"),
    "an odd rotary head": (
        lambda: LanguageModel(31, 24, 1, 8, positions="rotary"),
        ValueError,
        "head_size",
        "even",
        "3",
    ),
    "shared words of two sizes": (
        lambda: Transformer(31, 29, share_embeddings=True),
        ValueError,
        "share_embeddings",
        "31",
        "29",
    ),
    "an odd hidden size": (lambda: Seq2Seq(31, 29, 10, 15), ValueError, "hidden_size", "even", "15"),
    "a cell of another kind": (lambda: Seq2Seq(31, 29, cell="rnn"), ValueError, "cell", "gru, lstm", "rnn"),
    "an unknown score": (lambda: Seq2Seq(31, 29, attention="aditive"), ValueError, "attention", "additive", "aditive"),
    "an image of another size": (
        lambda: ViT(12, 4, 24, 1, 4, 5)(torch.randn(2, 3, 12, 16)),
        ValueError,
        "images",
        "(batch, 3, 12, 12)",
        "(2, 3, 12, 16)",
        "resize",
    ),
    "an image of bytes": (
        lambda: ViT(12, 4, 24, 1, 4, 5)(torch.zeros(2, 3, 12, 12, dtype=torch.uint8)),
        TypeError,
        "images",
        "floating-point",
        "uint8",
    ),
    "an image with too many channels": (
        lambda: ResNet([1], 5)(torch.randn(2, 4, 32, 32)),
        ValueError,
        "images",
        "(batch, 3, height, width)",
        "(2, 4, 32, 32)",
    ),
    "an image that is a list": (lambda: ResNet([1], 5)([[1.0]]), TypeError, "images", "list"),
    "patches that do not fit": (lambda: ViT(13, 4, 24, 1, 4, 5), ValueError, "image_size", "multiple", "4", "13"),
    "an image of three sides": (lambda: ViT((8, 8, 8), 4, 24, 1, 4, 5), ValueError, "image_size", "(8, 8, 8)"),
    "a billion layers": (lambda: LanguageModel(31, 24, 10**9, 4), ValueError, "layers", "1000000000"),
    "a billion blocks": (lambda: ResNet([10**9], 5), ValueError, "layers", "1000000000"),
    "no layers": (lambda: Encoder(31, 24, 0, 4), ValueError, "layers", "0"),
    "a vocabulary that is a list": (lambda: Encoder(["a"], 24, 1, 4), TypeError, "vocab_size", "list"),
    "positions of another kind": (lambda: language(positions="rotatory"), ValueError, "positions", "rotary"),
    "a mixer of another kind": (lambda: language(mixer="lstm"), ValueError, "mixer", "recurrent", "lstm"),
    "pooling of another kind": (lambda: encoder(pooling="last"), ValueError, "pooling", "first", "last"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_one_clear_error(name):
    call, error, *words = CALLS[name]
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("pooling", ["first", "max", "mean"])
def test_pooling_is_over_the_words_of_each_text_alone(pooling):
    model = with_tokenizer(encoder(pooling=pooling, normalized=False)).eval()
    texts = ["cat", "the cat is on the mat", "mat the", "on the mat"]
    with torch.no_grad():
        rows = [model(torch.tensor([model.tokenizer.encode(text).ids]))[0] for text in texts]
    pools = {"first": lambda row: row[0], "max": lambda row: row.amax(0), "mean": lambda row: row.mean(0)}
    torch.testing.assert_close(model.embed(texts), torch.stack([pools[pooling](row) for row in rows]))


def test_texts_longer_than_the_model_are_cut():
    model = with_tokenizer(encoder()).eval()
    long = " ".join(["cat"] * 40)
    assert torch.equal(model.embed(long), model.embed(" ".join(["cat"] * 17)))


def test_an_empty_text_has_no_vector_where_nothing_marks_its_ends():
    model = with_tokenizer(encoder()).eval()
    with pytest.raises(ValueError, match=r"text 2 .*no tokens"):
        model.embed(["cat", "mat", ""])


@pytest.mark.parametrize("training", [True, False])
def test_writing_and_embedding_drop_nothing(training):
    writer, reader = (with_tokenizer(make(dropout=0.5)).train(training) for make in (language, encoder))
    reader.blocks[0].eval()
    assert writer.generate(IDS, max_new_tokens=3) == writer.generate(IDS, max_new_tokens=3)
    assert "".join(writer.stream("the cat", max_new_tokens=5)) == "".join(writer.stream("the cat", max_new_tokens=5))
    assert torch.equal(reader.embed("the cat"), reader.embed("the cat"))
    assert writer.training == reader.training == training
    assert not reader.blocks[0].training


def test_an_empty_batch_is_an_empty_answer():
    assert language()(IDS[:0]).shape == (0, 13, 31)
    assert encoder()(IDS[:0]).shape == (0, 13, 24)

"""Wrong calls of models: one clear error each, which names the argument, what was expected and what came."""

import pytest
import torch

from regard import Block, Encoder, FeedForward, LanguageModel, MultiHead, ResNet, Sampling, Seq2Seq, Transformer, ViT
from regard.attention import Dot
from regard.data.tokens import train_tokenizer
from regard.models.mixers import Recurrent
from regard.models.texts import CutWarning
from tests.models.cases import check_message, word_tokenizer

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


BLOCK = (MultiHead(24, 6), FeedForward(24, 7))
CALLS = [
    (lambda: MultiHead(20, 3), ValueError, "heads … divisor … 20 … 3"),
    (lambda: MultiHead(24, 6, kv_heads=4), ValueError, "kv_heads … divisor … 4"),
    (lambda: MultiHead(24, 0), ValueError, "heads … 0"),
    (lambda: MultiHead(24.0, 6), TypeError, "size … float"),
    (lambda: MultiHead(24, 6, score="cosin"), ValueError, "score … cosine … cosin"),
    (lambda: MultiHead(24, 6, dropout=1.0), ValueError, "dropout … 1"),
    (lambda: MultiHead(24, 6)(torch.randn(3, 7, 23)), ValueError, "query … (batch, n, 24) … (3, 7, 23)"),
    (lambda: MultiHead(24, 6)(torch.randn(7, 24)), ValueError, "query … (batch, n, 24) … (7, 24)"),
    (lambda: FeedForward(24, 7, "gelo"), ValueError, "activation … gelu … gelo"),
    (lambda: Block(*BLOCK, norm="batch"), ValueError, "norm … layer … batch"),
    (lambda: Block(*BLOCK, cross=MultiHead(24, 6))(torch.randn(3, 7, 24)), ValueError, "memory"),
    (lambda: Recurrent(7, causal=False), ValueError, "size … even … 7"),
    (read(encoder, IDS + 31), ValueError, "ids … 0 to 30"),
    (read(language, IDS - 40), ValueError, "ids … 0 to 30 … -"),
    (read(language, IDS.float()), TypeError, "ids … whole … float32"),
    (read(encoder, IDS.tolist()), TypeError, "ids … Tensor … list"),
    (read(encoder, IDS[0]), ValueError, "ids … (batch, n) … (13,)"),
    (read(encoder, IDS[:, :0]), ValueError, "ids … at least one … (3, 0)"),
    (read(encoder, IDS, [13, 0, 4]), ValueError, "lengths … 1 to 13 … 0"),
    (read(language, IDS, [13, 14, 4]), ValueError, "lengths … 1 to 13 … 14"),
    (read(language, IDS, [13.0, 1.0, 4.0]), TypeError, "lengths … whole … float"),
    (read(encoder, IDS, [13, 4]), ValueError, "lengths … (3,) … (2,)"),
    (read(encoder, IDS.repeat(1, 2)), ValueError, "ids … at most 17 … 26"),
    (read(language, IDS.repeat(1, 2)), ValueError, "ids … at most 17 … 26"),
    (read(lambda: language(positions="rotary"), IDS.repeat(1, 2)), ValueError, "ids … at most 17 … 26"),
    (lambda: (model := language()).extend(IDS, model.extend(IDS)[1]), ValueError, "ids … at most 17 … 26"),
    (lambda: language().extend(IDS, None, [1, 2, 3], "middle"), ValueError, "padding … left, right … middle"),
    (lambda: encoder().mlm_logits(IDS), ValueError, "mlm_head=True"),
    (lambda: encoder().class_logits(IDS), ValueError, "classes="),
    (lambda: encoder().embed(["a"]), ValueError, "tokenizer"),
    (lambda: language().generate("a"), ValueError, "tokenizer"),
    (lambda: Transformer(31, 29, 24, 1, 4)(IDS + 31, IDS), ValueError, "source … 0 to 30"),
    (lambda: Transformer(31, 5, 24, 1, 4)(IDS, IDS), ValueError, "target … 0 to 4"),
    (lambda: Seq2Seq(5, 31)(IDS, IDS), ValueError, "source … 0 to 4"),
    (lambda: Seq2Seq(31, 31)(IDS, IDS, [0, 1, 2]), ValueError, "source_lengths … 1 to 13 … 0"),
    (lambda: transformer(max_positions=11)(IDS, IDS[:, :2]), ValueError, "at most 11 … 13"),
    (lambda: transformer()(IDS[:2], IDS.repeat(2, 1)[:4]), ValueError, "target … 2 sequences … 4"),
    (lambda: transformer()(IDS, IDS[:1]), ValueError, "target … 3 sequences … 1"),
    (lambda: Seq2Seq(31, 31)(IDS[:2], IDS.repeat(2, 1)), ValueError, "target … 2 sequences … 6"),
    (
        lambda: (model := language()).extend(IDS[:1, :2], model.extend(IDS[:, :3])[1]),
        ValueError,
        "ids … 3 sequences … 1",
    ),
    (lambda: language().generate(IDS, max_new_tokens=0), ValueError, "max_new_tokens … 1 token … 0"),
    (lambda: language().beam_search(IDS, beam_size=2, max_new_tokens=0), ValueError, "max_new_tokens … 1 token … 0"),
    (lambda: language().generate(IDS, beam_size=0), ValueError, "beam_size … 0"),
    (lambda: language().generate(IDS, beam_size=2, sampling=Sampling(0.5)), ValueError, "sampling … beam_size=2"),
    (lambda: language().generate(IDS, sampling="sample"), TypeError, "sampling … Sampling( … str"),
    (lambda: Sampling(seed="x"), TypeError, "seed … str"),
    (lambda: language(eos=31), ValueError, "eos … 0 to 30 … 31"),
    (lambda: Seq2Seq(31, 29, forbidden=[29]), ValueError, "forbidden … 0 to 28 … 29"),
    (lambda: language(rotary_base=-3), ValueError, "rotary_base … -3"),
    (lambda: language(rotary_base=[1e4, 1e6]), ValueError, "rotary_base … 1 layers … 2"),
    (lambda: language(window=0), ValueError, "window … 0"),
    (lambda: language(window="3"), TypeError, "window … str"),
    (lambda: language(window=[3, None]), ValueError, "window … 1 layers … 2"),
    (lambda: language(window=3, mixer="convolution"), ValueError, "window … convolution … 3"),
    (lambda: language(logit_softcap=0), ValueError, "logit_softcap … 0"),
    (lambda: language(score_softcap=-1.0), ValueError, "softcap … -1"),
    (lambda: language(score_scale=0.5, score="cosine"), ValueError, "score … score_scale … dot … cosine"),
    (lambda: language(qk_norm=True, mixer="recurrent"), ValueError, "mixer … qk_norm … recurrent"),
    (lambda: MultiHead(24, 6, qk_norm_epsilon=0), ValueError, "qk_norm_epsilon … 0"),
    (lambda: encoder(pooler_activation="swiglu"), ValueError, "pooler_activation … gelu … swiglu"),
    (lambda: transformer(bos=None).generate(IDS), ValueError, "bos … Transformer"),
    (lambda: language(mixer="recurrent", score="dot"), ValueError, "mixer … score"),
    (lambda: language(score=Dot()), ValueError, "score … additive … Dot"),
    (
        lambda: language().extend(IDS[:, :2], LanguageModel(31, 24, 3, 4).extend(IDS[:, :2])[1]),
        ValueError,
        "cache … 1 layers … 3",
    ),
    (lambda: encoder(token_types=2)(IDS, None, IDS + 2), ValueError, "token_types … 0 to 1"),
    (lambda: ResNet(18, 10), ValueError, "depths … 18"),
    (lambda: ResNet((2, 0), 10), ValueError, "depths … (2, 0)"),
    (lambda: Transformer(31, 31, 24, 1, 5), ValueError, "heads … 24 … 5"),
    (lambda: with_tokenizer(language(), "gpt2").generate("a"), TypeError, "Tokenizer … str"),
    (lambda: list(with_tokenizer(language()).stream(["a", "b"])), TypeError, "prompt … list"),
    (lambda: with_tokenizer(language()).generate(5), TypeError, "prompt … int"),
    (lambda: with_tokenizer(transformer()).translate(5), TypeError, "text … int"),
    (lambda: encoder(mlm_head=True, activation="swiglu"), ValueError, "activation … gelu … swiglu"),
    (lambda: with_tokenizer(encoder()).embed(["cat", None]), TypeError, "texts … 1"),
    (lambda: encoder()(IDS, None, IDS), ValueError, "token_types"),
    (lambda: encoder(token_types=-1), ValueError, "token_types … -1"),
    (lambda: encoder(epsilon="x"), TypeError, "epsilon … str"),
    (lambda: LanguageModel(31, 24, 1, 8, positions="rotary"), ValueError, "head_size … even … 3"),
    (lambda: Transformer(31, 29, share_embeddings=True), ValueError, "share_embeddings … 31 … 29"),
    (lambda: Seq2Seq(31, 29, 10, 15), ValueError, "hidden_size … even … 15"),
    (lambda: Seq2Seq(31, 29, share_embeddings=True), ValueError, "share_embeddings … one size … 31 and 29"),
    (lambda: Seq2Seq(31, 29, cell="rnn"), ValueError, "cell … gru, lstm … rnn"),
    (lambda: Seq2Seq(31, 29, attention="aditive"), ValueError, "attention … additive … aditive"),
    (
        lambda: ViT(12, 4, 24, 1, 4, 5)(torch.randn(2, 3, 12, 16)),
        ValueError,
        "images … (batch, 3, 12, 12) … (2, 3, 12, 16) … resize",
    ),
    (
        lambda: ViT(12, 4, 24, 1, 4, 5)(torch.zeros(2, 3, 12, 12, dtype=torch.uint8)),
        TypeError,
        "images … floating-point … uint8",
    ),
    (
        lambda: ResNet([1], 5)(torch.randn(2, 4, 32, 32)),
        ValueError,
        "images … (batch, 3, height, width) … (2, 4, 32, 32)",
    ),
    (lambda: ResNet([1], 5)([[1.0]]), TypeError, "images … list"),
    (lambda: ResNet([1], 5, stride_first=True), ValueError, "stride_first … bottleneck=True"),
    (lambda: ResNet([1], 5, image_size=0), ValueError, "image_size … 0"),
    (lambda: ResNet([1], 5, image_size=(3, 4, 5)), ValueError, "image_size … (3, 4, 5)"),
    (lambda: ViT(13, 4, 24, 1, 4, 5), ValueError, "image_size … multiple … 4 … 13"),
    (lambda: ViT((8, 8, 8), 4, 24, 1, 4, 5), ValueError, "image_size … (8, 8, 8)"),
    (lambda: LanguageModel(31, 24, 10**9, 4), ValueError, "layers … 1000000000"),
    (lambda: ResNet([10**9], 5), ValueError, "layers … 1000000000"),
    (lambda: Encoder(31, 24, 0, 4), ValueError, "layers … 0"),
    (lambda: Encoder(["a"], 24, 1, 4), TypeError, "vocab_size … list"),
    (lambda: language(positions="rotatory"), ValueError, "positions … rotary"),
    (lambda: language(mixer="lstm"), ValueError, "mixer … recurrent … lstm"),
    (lambda: encoder(pooling="last"), ValueError, "pooling … first … last"),
]


@pytest.mark.parametrize(("call", "error", "message"), CALLS)
def test_a_wrong_call_is_one_clear_error(call, error, message):
    with pytest.raises(error) as raised:
        call()
    check_message(str(raised.value), message)


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
    long, short = " ".join(["cat"] * 40), " ".join(["cat"] * 17)
    expected = model.embed(short)
    for texts, message in {
        (long,): "cut from 40 to 17",
        (short, long, short): "1 of 3 cut from up to 40 to 17",
    }.items():
        with pytest.warns(CutWarning, match=f"texts: {message} tokens") as caught:
            vectors = model.embed(texts)
        assert len(caught) == 1
        torch.testing.assert_close(vectors, expected.expand_as(vectors))


def test_an_empty_text_has_no_vector_where_nothing_marks_its_ends():
    model = with_tokenizer(encoder()).eval()
    with pytest.raises(ValueError, match="expected one token or more, got none in '' at index 2"):
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


def test_space_around_a_text_changes_nothing():
    """Texts to train on are read without it: a line with a space at its end would have a token that nobody learned."""
    model = with_tokenizer(Encoder(300, 24, 1, 4, classes=3), train_tokenizer(["a cat", "a mat"], "bpe", 300))
    plain, spaced = model.probabilities(["a cat", "  a cat \n"])
    torch.testing.assert_close(plain, spaced)

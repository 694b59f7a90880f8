"""Pictures with Chinese words."""

import re

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.data.grammar import corpus
from regard.data.words import split
from regard.tour import labels
from regard.tour.labels import LABELS, in_chinese, translate
from tests.fonts import system_font


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("weights", "权重"),
        ("from 50,000 samples", "50,000 个样本"),
        ("lengths 1, 2, 5, 8", "长度 1, 2, 5, 8"),
        ("a width for each feature: 0.13 and 52", "每个特征一个带宽：0.13 和 52"),
        ("batch 1\nlength 6", "批次 1\n长度 6"),
        ("le chat", "le chat"),
        ("", ""),
    ],
)
def test_labels_with_their_numbers(english, chinese):
    assert translate(english) == chinese


def test_both_have_the_same_numbers():
    for english, chinese in LABELS.items():
        assert english.count("#") == chinese.count("#")
        assert re.search(r"[\u4e00-\u9fff]", chinese)


def test_no_word_of_the_sentences_is_a_label():
    """Their pictures have words of sentences at the ticks."""
    words = {word for pair in corpus("fr", 700).train for text in (pair.source, pair.target) for word in split(text)}
    assert words & set(LABELS) == set()


# What is written the same in Chinese. The sentences of claims 1, 18, 19 and 31 are data.
SAME = r"\$.*\$|ViT|ResNet|BLEU|attend|laplace|constant|boxcar|triangular|epanechnikov|biweight|triweight|tricube"


def test_every_label_of_every_picture_is_translated(finished):
    for number, texts in finished.labels.items():
        words = {text for text in texts if re.search("[a-zA-Z]{3}", text) and not re.fullmatch(SAME, text)}
        assert texts
        assert number in (1, 18, 19, 31) or all(re.search("[\u4e00-\u9fff]", translate(text)) for text in words), number


def drawing():
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1], label="truth")
    axes.set(title="weights", xlabel="chat")
    axes.set_xticks([0, 1], ["loss", "mat"])
    axes.legend()
    return figure


def texts_of(figure):
    figure.draw_without_rendering()
    return {text.get_text() for text in figure.findobj(Text)}


@pytest.mark.filterwarnings("ignore:Glyph")  # the words are there, whatever fonts there are
@pytest.mark.parametrize("fonts", [["DejaVu Sans"], None])
def test_titles_ticks_and_legends(monkeypatch, fonts):
    monkeypatch.setattr(labels, "fonts", lambda: fonts)
    english, chinese = {"weights", "truth", "loss"}, {"权重", "真实曲线", "损失"}
    texts = texts_of(in_chinese(drawing)())
    assert {"mat", "chat"} | (chinese if fonts else english) <= texts
    assert not texts & (english if fonts else chinese)


@pytest.mark.parametrize("letters", ["".join(LABELS.values()), ""])
def test_fonts_have_every_letter_or_there_are_none(tmp_path, letters):
    with system_font(tmp_path, letters):
        labels.fonts.cache_clear()
        assert labels.fonts() == (["DejaVu Sans", "Only One"] if letters else None)
    labels.fonts.cache_clear()

"""Pictures with Chinese words."""

import re

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.data.grammar import corpus
from regard.data.words import split
from regard.tour import labels
from regard.tour.labels import LABELS, chinese, in_chinese
from tests.fonts import system_font


@pytest.mark.parametrize(
    ("english", "expected"),
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
def test_labels_with_their_numbers(english, expected):
    assert in_chinese(english) == expected


def test_both_have_the_same_numbers():
    for english, own in LABELS.items():
        assert english.count("#") == own.count("#")
        assert re.search(r"[\u4e00-\u9fff]", own)


def figure():
    made = Figure()
    axes = made.subplots()
    axes.plot([0, 1], label="truth")
    axes.set(title="weights", xlabel="chat")
    axes.set_xticks([0, 1], ["loss", "mat"])
    axes.legend()
    return made


def texts(made):
    made.draw_without_rendering()
    return {text.get_text() for text in made.findobj(Text)}


@pytest.mark.filterwarnings("ignore:Glyph")  # the words are there, whatever fonts there are
def test_titles_ticks_and_legends(monkeypatch):
    monkeypatch.setattr(labels, "fonts", lambda: ["DejaVu Sans"])
    assert {"权重", "真实曲线", "损失", "mat", "chat"} <= texts(chinese(figure)())
    assert {"weights", "truth", "loss"} <= texts(figure())


@pytest.mark.parametrize("letters", ["".join(LABELS.values()), ""])
def test_fonts_have_every_letter_or_there_are_none(tmp_path, letters):
    with system_font(tmp_path, letters):
        assert labels.fonts.__wrapped__() == (["DejaVu Sans", "Only One"] if letters else None)


def test_without_a_font_they_stay_english(monkeypatch):
    monkeypatch.setattr(labels, "fonts", lambda: None)
    assert {"weights", "truth", "loss"} <= texts(chinese(figure)())


def test_no_word_of_the_sentences_is_a_label():
    """Their pictures have words of sentences at the ticks."""
    words = {word for pair in corpus("fr", 700).train for text in (pair.source, pair.target) for word in split(text)}
    assert words & set(LABELS) == set()

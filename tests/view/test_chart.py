"""Charts: what is in the data is in the picture and in its table, in either language, and nothing breaks it."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.view.chart import LANGUAGES, Band, Bars, Chart, Dots, Heat, Line, Note, Panel, Text
from regard.view.marks import short

numbers = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=0, max_size=7)


def read(chart, language="en"):
    """The picture as a tree: it has to be well-formed."""
    return ElementTree.fromstring(chart.svg(language))


def texts(chart, language="en"):
    return [element.text for element in read(chart, language).iter("text")]


def test_labels_are_texts_in_the_language():
    line = Line([0, 1], [2, 3], Text("truth", "真实曲线"))
    chart = Chart(
        [Panel([line], x=Text("width", "带宽"), y="y", title=Text("A < B & C", "甲"))], caption=Text("Lines.", "线。")
    )
    assert {"truth", "width", "y", "A < B & C"} <= set(texts(chart))
    assert {"真实曲线", "带宽", "y", "甲"} <= set(texts(chart, "zh"))
    assert read(chart, "zh").attrib["aria-label"] == "线。"


def test_colours_are_names_of_the_page_and_one_for_each_label():
    panels = [Panel([Line([0, 1], [0, 1], name) for name in ("a", "b")]) for _ in range(2)]
    strokes = [path.attrib["stroke"] for path in read(Chart(panels)).iter("path") if path.get("class") == "line"]
    assert len(strokes) == 6  # the legend's, then each panel's
    assert set(strokes) == {"var(--truth)", "var(--attention)"}
    assert strokes[:2] == strokes[2:4] == strokes[4:]


def test_points_are_where_the_numbers_are():
    svg = read(Chart([Panel([Dots([0, 1, 2], [0, 10, 20])])]))
    centres = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in svg.iter("circle")]
    (x0, y0), (x1, y1), (x2, y2) = centres
    assert x0 < x1 < x2
    assert y0 > y1 > y2
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_logarithms_have_equal_steps():
    svg = read(Chart([Panel([Dots([1, 10, 100], [1, 10, 100])], x_log=True, y_log=True)]))
    xs = [float(dot.attrib["cx"]) for dot in svg.iter("circle")]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)


def test_the_shade_of_a_cell_is_its_weight():
    svg = Chart([Panel([Heat(torch.tensor([[1.0, 0.5], [0.0, 0.25]]))])]).svg("en")
    shades = {float(shade): path.count("M") for shade, path in re.findall(r'fill-opacity="([\d.]+)" d="([^"]*)"', svg)}
    assert shades == {1.0: 1, 0.5: 1, 0.25: 1}


def test_a_large_map_shows_the_largest_of_each_block():
    matrix = np.zeros((401, 401))
    matrix[400, 3] = 1
    svg = Chart([Panel([Heat(matrix)])]).svg("en")
    assert len(svg) < 10_000
    assert 'fill-opacity="1.00"' in svg


def test_bars_stand_on_zero_side_by_side():
    names = ["a", "b"]
    svg = read(Chart([Panel([Bars(names, [1, -1]), Bars(names, [2, 3], spread=[0.1, 0.2])])]))
    bars = [{key: float(bar.attrib[key]) for key in ("x", "y", "width", "height")} for bar in svg.iter("rect")]
    assert len(bars) == 4
    assert bars[0]["y"] + bars[0]["height"] == pytest.approx(bars[1]["y"], abs=0.2)
    assert len([path for path in svg.iter("path") if path.get("class") == "whisker"]) == 2


def test_bars_have_all_names_whichever_of_them_has_most():
    assert {"a", "b", "c"} <= set(texts(Chart([Panel([Bars(["a", "b", "c"], [1, 2, 3]), Bars(["a"], [4])])])))
    assert {"a", "b", "c"} <= set(texts(Chart([Panel([Bars(["a"], [4]), Bars(["a", "b", "c"], [1, 2, 3])])])))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (-1024, "−1,024"),
        (1e-16, "10⁻¹⁶"),
        (1e5, "10⁵"),
        (-3.2e7, "−3.2·10⁷"),
        (9.99e-4, "9.99·10⁻⁴"),
    ],
)
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_the_table_has_the_numbers():
    marks = [Line([1, 2], [3.5, 4.25], "line"), Band([1], [2], [3], "band"), Bars(["x<"], [7], spread=[0.5])]
    table = Chart([Panel(marks), Panel([Heat([[0.1, 0.9]], rows=["r"], columns=["c", "d"])])]).table("en")
    cells = re.findall(r"<td>(.*?)</td>", table)
    assert cells == ["1", "3.5", "2", "4.25", "1", "2", "3", "x&lt;", "7", "0.5", "r", "0.1", "0.9"]


@given(numbers, st.booleans(), st.booleans(), st.text(max_size=9).filter(lambda text: text.isprintable()))
def test_no_numbers_and_no_text_break_it(values, x_log, y_log, text):
    marks = [
        Line(values, values, text, dots=True),
        Dots(values, values),
        Band(values, values, values),
        Note(1.0, 1.0, text),
    ]
    bars = Panel([Bars([text] * len(values), values, spread=values)])
    heat = Panel([Heat(np.array(values or [0.0]).reshape(1, -1), rows=[text])])
    chart = Chart([Panel(marks, text, text, text, x_log=x_log, y_log=y_log), bars, heat], Text(text, text), columns=2)
    for language in LANGUAGES:
        assert "nan" not in re.sub(
            r">[^<]*<|\"[^\"]*label[^\"]*\"", "", ElementTree.tostring(read(chart, language), "unicode")
        ).replace(text, "")
        assert chart.table(language).startswith("<table>") or not values

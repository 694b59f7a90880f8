"""Defaults that follow from the data: rules for whatever is not given, from hundreds of examples to millions."""

import dataclasses
import math
import re
from pathlib import Path

import numpy
import pytest

from regard.training.defaults import RULES, complete
from regard.training.options import EMBEDDED, TASKS, OptionError, applies, kind_of, read_yaml, resolve

DATA = {"translate": "pairs.tsv", "language": "prose.txt", "text": "texts.csv", "images": "images.npz"}
KINDS = [
    (task, model)
    for task, kind in TASKS.items()
    for model in (
        kind.__dataclass_fields__["model"].metadata["choices"] if "model" in kind.__dataclass_fields__ else [None]
    )
]
COUNTS = [round(500 * 1.9**power) for power in range(19)]  # 500 to fifty million
FALLING = ("dropout", "learning_rate")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "defaults.md"


def chosen(task, model, examples, **given):
    """The options of a run on this many examples of a hundred bytes, or of 32 × 48 pixels."""
    options = resolve(task, {"data": DATA[task], **({} if model is None else {"model": model}), **given})
    return complete(options, examples=examples, text_bytes=100 * examples, edge=32, common=16)


@pytest.mark.parametrize(("task", "model"), KINDS)
def test_whatever_follows_from_the_data_has_a_rule(task, model):
    """None is left, and what comes out is what a user could have given."""
    for examples in (1, *COUNTS):
        options = chosen(task, model, examples)
        for field in dataclasses.fields(options):
            _, may_be_none = kind_of(field, type(options))
            assert may_be_none or not applies(options, field.name) or getattr(options, field.name) is not None, (
                field.name
            )
        given = {name: value for name, value in dataclasses.asdict(options).items() if applies(options, name)}
        assert resolve(task, given) == options
        if getattr(options, "heads", None):
            assert options.size % options.heads == 0


@pytest.mark.parametrize(("task", "model"), KINDS)
def test_more_data_never_make_a_model_smaller(task, model):
    runs = [chosen(task, model, examples) for examples in COUNTS]
    for name in RULES[TASKS[task]]:
        values = [getattr(run, name) for run in runs if applies(run, name)]
        assert values == sorted(values, reverse=name in FALLING), name
    assert dataclasses.asdict(runs[0]) != dataclasses.asdict(runs[-1])


@pytest.mark.parametrize(("task", "model"), KINDS)
def test_what_is_given_stays(task, model):
    for name, rule in RULES[TASKS[task]].items():
        if applies(chosen(task, model, 500), name) and name not in ("image_size", "patch_size"):
            value = 0.125 if isinstance(getattr(chosen(task, model, 500), name), float) else 12
            assert getattr(chosen(task, model, 500, **{name: value}), name) == value, rule
    assert chosen(task, model, 500, minutes=3.0).steps is None  # they follow from the speed


def test_patches_cut_both_edges_into_whole_parts():
    for height in range(1, 97):
        for width in (height, 2 * height, 48):
            facts = {"edge": min(height, width), "common": math.gcd(height, width)}
            patch = complete(resolve("images", {"data": "images.npz"}), examples=500, **facts).patch_size
            assert height % patch == 0
            assert width % patch == 0
    for edge, patch in ((28, 4), (32, 4), (64, 8), (224, 32)):
        assert complete(resolve("images", {"data": "images.npz"}), examples=500, edge=edge).patch_size == patch


@pytest.mark.parametrize("task", TASKS)
def test_embedded_data_keep_their_table(task):
    options = complete(resolve(task, {}), examples=500, text_bytes=50_000, edge=8, common=8)
    assert {name: getattr(options, name) for name in EMBEDDED[task]} == EMBEDDED[task]


@pytest.mark.parametrize("task", TASKS)
def test_the_page_has_the_rules(task):
    table = PAGE.read_text(encoding="utf-8").partition(f"## `regard train {task}`")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(name, rule.text) for name, rule in RULES[TASKS[task]].items()]


def test_numbers_may_have_exponents_in_a_file_and_may_be_those_of_numpy(tmp_path):
    """PyYAML takes 1e-3 for a text, people do not."""
    (tmp_path / "own.yaml").write_text("learning_rate: 1e-3\nclip: 2\n")
    options = resolve("text", read_yaml(tmp_path / "own.yaml"))
    assert (options.learning_rate, options.clip) == (1e-3, 2.0)
    options = resolve("text", {"steps": numpy.int64(3), "clip": numpy.float32(0.5), "dropout": numpy.float64(0.1)})
    assert [type(value) for value in (options.steps, options.clip, options.dropout)] == [int, float, float]
    with pytest.raises(OptionError, match="learning_rate: expected a number, got 'fast'"):
        resolve("text", {"learning_rate": "fast"})

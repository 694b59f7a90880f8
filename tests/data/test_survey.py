"""A first reading of rows: what is known of them afterwards is what a list of all of them would say."""

import dataclasses
from collections import Counter

import numpy
import pytest

from regard.data import split as split_module
from regard.data import tokens
from regard.data.labelled import choose_balanced, read_labelled, texts_in_file
from regard.data.pairs import Pair, pairs_in_files, pairs_in_memory
from regard.data.split import LEFT_OUT, PARTS, Parts, split, survey
from regard.data.texts import RowsError, TextError
from tests.training.tiny import balanced_subset

COUNT = 211


@pytest.fixture
def blocks(monkeypatch):
    """Many small blocks instead of one."""
    monkeypatch.setattr(tokens, "BLOCK", 97)
    monkeypatch.setattr(split_module, "NUMBERS", 31)


def pairs(write, *extra, name="pairs.tsv"):
    lines = [f"sentence {number % 150}\tphrase {number}\n" for number in range(COUNT)]
    return write(name, "".join([*lines, *extra]))


def texts(write):
    """Classes of very different sizes, and copies."""
    rows = [f"text {number % 170},{'abcd'[min(number % 7, 3)]}\n" for number in range(COUNT)]
    return write("texts.csv", "text,label\n" + "".join(rows))


def test_parts_are_those_of_the_split_of_all_rows(write, blocks):
    rows = survey(pairs_in_files(pairs(write)), "stop", 1_000)
    read = [pair for block in rows.blocks("testing") for pair in block.rows]
    expected = split(read, lambda pair: pair.source)
    assert len(read) == len(rows) == COUNT
    indices = [index for block in rows.blocks("testing") for index in block.parts]
    for index, name in enumerate(PARTS):
        assert [pair for pair, here in zip(read, indices, strict=True) if here == index] == getattr(expected, name)
        assert rows.counts[index] == len(getattr(expected, name))


def test_validation_and_test_are_capped(write):
    path = write("pairs.tsv", "".join(f"sentence {number}\tphrase\n" for number in range(6_007)))
    train, validation, test = survey(pairs_in_files(path), "stop", 101).counts
    assert train + validation + test == 6_007
    assert 60 < validation < 150
    assert 60 < test < 150


def test_a_second_survey_reads_no_row_and_remembers_the_bad_ones(write):
    path = pairs(write, "blank\t\n", "three\tcolumns\tof\n")
    source = pairs_in_files(path)
    with pytest.raises(RowsError, match="2 of 213 pairs cannot be used"):
        survey(source, "stop", 100)
    first = survey(source, "skip", 100)
    unread = dataclasses.replace(source, read=lambda skipped: pytest.fail("read again"))
    assert survey(unread, "skip", 100).skipped.notes() == first.skipped.notes()
    assert len(first.skipped.notes()) == 3
    with pytest.raises(RowsError, match="2 of 213 pairs cannot be used"):
        survey(unread, "stop", 100)


def test_files_that_change_while_they_are_read_are_noticed(write):
    path = pairs(write, "of this test\talone\n")
    source = pairs_in_files(path)

    def growing(skipped):
        yield from source.read(skipped)
        path.write_bytes(path.read_bytes() + b"one\tmore\n")

    with pytest.raises(TextError, match=r"pairs.tsv: changed while it was read"):
        survey(dataclasses.replace(source, read=growing), "stop", 100)
    rows = survey(source, "stop", 100)
    for content in (b"one\tmore\n" * 300, b"one\tless\n"):
        path.write_bytes(content)
        with pytest.raises(TextError, match=r"pairs.tsv: changed while it was read"):
            list(rows.blocks("testing"))


@pytest.mark.parametrize("share", [0.2, 1.0, 3.0])
def test_a_sample_is_spread_over_the_training_part(write, blocks, monkeypatch, share):
    rows = survey(pairs_in_files(pairs(write)), "stop", 1_000)
    monkeypatch.setattr(tokens, "SAMPLE", int(share * rows.store.facts["characters"]))
    train = [pair for block in rows.blocks("testing") for pair, part in zip(*block[:2], strict=True) if part == 0]
    sample = list(rows.sample(slice(2)))
    if share >= 1:
        assert sample == [text for pair in train for text in (pair.source, pair.target)]
    else:
        assert set(sample) < {text for pair in train for text in (pair.source, pair.target)}
        assert 0.5 * share < len(sample) / (2 * len(train)) < 2 * share
    assert list(rows.sample(slice(1, 2))) == sample[1::2]


def test_classes_are_counted(write, blocks):
    path = texts(write)
    rows = survey(texts_in_file(path, "text", "label"), "stop", 1_000)
    expected = split(read_labelled(path), lambda example: example.text)
    for counts, part in zip(rows.class_counts, (expected.train, expected.validation, expected.test), strict=True):
        assert dict(zip(rows.labels, counts, strict=True)) == {
            label: Counter(example.label for example in part)[label] for label in rows.labels
        }


@pytest.mark.parametrize("count", [0, 1, 3, 4, 50, 101, 150, 1_000])
def test_a_balanced_subset_is_that_of_a_list(write, blocks, count):
    path = texts(write)
    rows = choose_balanced(survey(texts_in_file(path, "text", "label"), "stop", 1_000), count)
    parts = split(read_labelled(path), lambda example: example.text)
    chosen = [row for block in rows.blocks("testing") for row, part in zip(*block[:2], strict=True) if part == 0]
    assert chosen == balanced_subset(parts.train, count)
    assert len(chosen) == (count if 0 < count < len(parts.train) else len(parts.train))
    assert rows.counts == [len(chosen), len(parts.validation), len(parts.test)]
    left_out = sum((block.parts == LEFT_OUT).sum() for block in rows.blocks("testing"))
    assert left_out == len(parts.train) - len(chosen)
    amounts = Counter(example.label for example in chosen)
    available = Counter(example.label for example in parts.train)
    assert all(amounts[a] + 1 >= amounts[b] or amounts[a] == available[a] for a in available for b in available)


def test_more_classes_than_a_model_should_have_are_refused(write, monkeypatch):
    monkeypatch.setattr(split_module, "MAX_CLASSES", 3)
    path = write("texts.csv", "text,label\n" + "".join(f"text {number},{number}\n" for number in range(7)))
    with pytest.raises(TextError, match=r"texts.csv: more than 3 classes \('0', '1', '2' …\): is --label the right"):
        survey(texts_in_file(path, "text", "label"), "stop", 100)


def test_parts_that_are_known_are_kept():
    made = [Pair(f"source {number}", f"target {number}", frozenset({(0, number)})) for number in range(17)]
    rows = survey(pairs_in_memory("made", Parts(made[:11], made[11:14], made[14:])), "stop", 1)
    assert rows.counts == [11, 3, 3]
    (block,) = rows.blocks("testing")
    assert block.rows == made
    assert numpy.array_equal(block.parts, [0] * 11 + [1] * 3 + [2] * 3)


def test_a_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(TextError, match="is a folder, expected a file"):
        survey(pairs_in_files(tmp_path), "stop", 1)
    with pytest.raises(TextError, match=r"none.tsv: No such file"):
        survey(pairs_in_files(tmp_path / "none.tsv"), "stop", 1)

"""Files: JSON and YAML without trust, what is no regular file, errors and permissions of what is written."""

import errno
import json
import os
import re
import stat

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file

import regard
from regard import files
from regard.files import ContentError, parse_json, parse_yaml, read_file, to_json
from regard.models.tensors import FolderError
from regard.training.options import OptionError, read_yaml

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_is_read_back(value):
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,5}\Z"), st.integers() | st.booleans() | st.none() | st.floats(-9, 9)))
def test_plain_yaml_is_read_as_the_library_reads_it(value):
    text = yaml.safe_dump(value)
    assert parse_yaml(text.encode()) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "codec can't decode"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64"),
        (b"[" * 100_000, "nested deeper than 64"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested deeper than 64"),
        (b"1" * 301, "at most 300 digits"),
        (b"[-" + b"1" * 5_000 + b"]", "at most 300 digits"),
        (b'{"a": "\\ud800"}', "half a character"),
        (b'{"\\udfff": 1}', "half a character"),
        (b'[["x", "\\udc00y"]]', "half a character"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_that_is_refused(content, reason):
    with pytest.raises(ContentError, match=reason):
        parse_json(content)


def bomb(width, levels):
    """A few lines that stand for width ** levels words."""
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bomb(9, 9), "no alias"),
        (b"a: &a [*a]", "no alias"),
        (b"a: &a {b: 1}\nc:\n  <<: *a\n", "no alias"),
        (b"[" * 50_000, "nested deeper than 64"),
        (b"- " * 50_000, "nested deeper than 64"),
        (b"steps: " + b"1" * 5_000, "digits"),
        (b"steps: " + b"9" * 400, "digits"),
        (b"steps: !!int ''", ""),
        (b"steps: !!timestamp x", ""),
        (b"steps: 2001-99-99", ""),
        (b"steps: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"steps: 1\nseed: 2\nsteps: 3", "steps: expected once, got 2 times"),
        (b"a: [", "expected"),
        (b"\xff", "codec can't decode"),
        (b'a: "\\ud800"', ""),
    ],
    ids=lambda value: str(value)[:24],
)
def test_yaml_that_is_refused_is_one_line(tmp_path, content, reason):
    path = tmp_path / "options.yaml"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=f"not readable as YAML: .*{reason}") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)


def test_a_large_yaml_file_is_refused(tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("# \n" * 1_000_000)
    with pytest.raises(OptionError, match="at most 131,072 bytes"):
        read_yaml(path)


# -------------------------------------------------------------------------------------------- what is no regular file

IRREGULAR = {
    "pipe": os.mkfifo,
    "device": lambda path: os.symlink("/dev/zero", path),
    "folder": os.mkdir,
}


@pytest.fixture(params=IRREGULAR)
def irregular(request):
    """Puts something that is no regular file at a path."""
    return IRREGULAR[request.param]


def test_only_regular_files_are_read(tmp_path, irregular):
    irregular(tmp_path / "file")
    with pytest.raises((ContentError, OSError), match="regular file"):
        read_file(tmp_path / "file", 100)
    (tmp_path / "other").write_bytes(b"12345")
    assert read_file(tmp_path / "other", 5) == b"12345"
    with pytest.raises(ContentError, match="at most 4 bytes"):
        read_file(tmp_path / "other", 4)


@pytest.fixture
def folder(tmp_path):
    model = regard.LanguageModel(31, 8, 1, 2)
    model.export(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "manifest.json"])
def test_a_model_folder_with_one_is_refused(folder, irregular, name, tmp_path):
    for home in (folder, tmp_path / "saved"):
        if home != folder:
            regard.LanguageModel(31, 8, 1, 2).save(home)
        elif name == "manifest.json":
            continue  # an exported folder has none
        (home / name).unlink(missing_ok=True)
        irregular(home / name)
        if home != folder and name == "tokenizer.json":
            assert regard.load(home).tokenizer is None  # the manifest has no such file
            continue
        with pytest.raises(FolderError, match=name):
            regard.load(home)


@pytest.mark.parametrize("name", ["model.bin", "checkpoint20.npz"])
def test_a_folder_of_others_with_one_is_refused(tmp_path, irregular, name):
    irregular(tmp_path / name)
    with pytest.raises(FolderError, match=name):
        regard.load(tmp_path)


# ------------------------------------------------------------------------------------------------------------- writing


def test_an_error_that_somebody_else_wrote_keeps_its_text(tmp_path, monkeypatch):
    """As that of safetensors, which has no number."""
    monkeypatch.setattr(
        "regard.models.tensors.save_file", lambda *_: (_ for _ in ()).throw(SafetensorError("disk full"))
    )
    with pytest.raises(OSError, match=f"{tmp_path}.*: the tensors could not be written: disk full$"):
        regard.Encoder(7, 12, 1, 3).save(tmp_path)


def test_an_error_of_the_system_names_the_file(tmp_path):
    def write_on_full_disk(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=re.escape(f"No space left on device: {str(tmp_path / 'a.txt')!r}")):
        files.write(tmp_path / "a.txt", write_on_full_disk)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_permissions_that_the_umask_leaves_when_they_are_written(tmp_path, mask):
    before = os.umask(mask)
    try:
        files.write(tmp_path / "file", "text")
        with files.new_folder(tmp_path / "folder") as beside:
            save_file({"x": torch.zeros(3)}, beside / "inner")
        regard.LanguageModel(31, 8, 1, 2).save(tmp_path / "model")
    finally:
        os.umask(before)
    written = list(tmp_path.rglob("*"))
    assert len(written) > 6
    for path in written:
        expected = (0o777 if path.is_dir() else 0o666) & ~mask
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_what_json_lacks_is_null():
    value = {"a": [1.5, float("nan"), (float("-inf"), 2)], "猫": {"b": float("inf")}, "c": True}
    assert json.loads(to_json(value)) == {"a": [1.5, None, [None, 2]], "猫": {"b": None}, "c": True}
    assert to_json({"猫": 1.5}) == '{"猫": 1.5}'

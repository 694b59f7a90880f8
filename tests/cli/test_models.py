"""The commands that put models to work: what they print, and what they say to wrong models and inputs."""

import io
import json
import shlex

import numpy
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.cli.train import USES
from tests.training import tiny


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a small trained model of every task."""
    home = tmp_path_factory.mktemp("models")
    for task in tiny.SHAPES:
        regard.train(task, tiny.make(task, home), out=home / task, **tiny.options(task))
    return home


@pytest.fixture
def run(capsys, monkeypatch):
    """A command; its exit code, stdout and stderr."""

    def call(*arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


@pytest.mark.parametrize("task", tiny.SHAPES)
def test_the_command_that_training_ends_with_uses_the_model(task, home, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8)).save("image.png")
    code, out, err = run(*shlex.split(USES[task].format(home / task))[1:])
    assert (code, err) == (0, "")
    assert out.endswith("\n")


def test_translate_is_the_models_translation(home, run):
    model = regard.load(home / "translate")
    code, out, _ = run("translate", home / "translate", "ant bee", "cat")
    assert (code, out.splitlines()) == (0, model.translate(["ant bee", "cat"], beam_size=5))
    code, out, _ = run("translate", home / "translate", "--beam-size", "3", "--json", "ant bee")
    translation = model.translate("ant bee", beam_size=3)
    assert json.loads(out) == {"line": 1, "source": "ant bee", "translation": translation}


def test_translate_shows_who_looks_where(home, run):
    code, _, err = run("translate", home / "translate", "ant bee", "--show")
    assert code == 0
    assert "query (looks)" in err
    assert "░" in err


def test_generate_streams_what_the_model_writes(home, run):
    model = regard.load(home / "language")
    code, out, _ = run("generate", home / "language", "ant b", "--max-new-tokens", "7")
    assert (code, out) == (0, "ant b" + model.generate("ant b", max_new_tokens=7) + "\n")
    code, out, err = run(
        "generate", home / "language", "--max-new-tokens", "5", "--temperature", "1", "--json", "--show", "ant b"
    )
    choice = regard.Sampling(seed=0)
    assert (code, json.loads(out)["text"]) == (0, model.generate("ant b", max_new_tokens=5, sampling=choice))
    assert "query (looks)" in err


def test_classify_texts(home, run):
    model = regard.load(home / "text")
    texts = ["ant bee cat", "hen jay"]
    code, out, err = run("classify", home / "text", *texts, "--show")
    assert (code, [line.split("\t")[0] for line in out.splitlines()]) == (0, model.classify(texts))
    assert "query (looks)" in err
    code, out, _ = run("classify", home / "text", "--json", stdin="\n".join(texts).encode())
    rows = [json.loads(line)["probabilities"] for line in out.splitlines()]
    torch.testing.assert_close(torch.tensor([list(row.values()) for row in rows]), model.probabilities(texts))


def test_pictures_before_a_damaged_one_are_classified(home, run, tmp_path):
    Image.fromarray(numpy.arange(64, dtype=numpy.uint8).reshape(8, 8)).save(tmp_path / "one.png")
    (tmp_path / "two.png").write_text("no picture")
    code, out, err = run("classify", home / "images", tmp_path / "one.png", tmp_path / "two.png", tmp_path / "one.png")
    assert (code, out.count("\n"), err.count("\n")) == (2, 1, 1)
    assert out.endswith("one.png\n")
    assert "two.png: is no picture" in err


def test_classify_images(home, run, tmp_path):
    pixels = numpy.arange(64, dtype=numpy.uint8).reshape(8, 8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    Image.fromarray(pixels).resize((31, 17)).save(tmp_path / "two.png")
    model = regard.load(home / "images")
    code, out, err = run("classify", home / "images", tmp_path / "one.png", tmp_path / "two.png", "--show")
    labels = [line.split("\t")[0] for line in out.splitlines()]
    assert (code, labels[0]) == (0, model.classify(torch.from_numpy(pixels)[None]))
    assert labels == model.classify([tmp_path / "one.png", tmp_path / "two.png"])
    assert "rows and columns of the image" in err


def test_classify_shows_where_a_class_token_attends_as_look_does(run, tmp_path):
    Image.fromarray(numpy.arange(64, dtype=numpy.uint8).reshape(8, 8)).save(tmp_path / "one.png")
    regard.ViT(8, 2, 24, 2, 3, 5, channels=1, pooling="class", labels=list("abcde")).save(tmp_path / "vit")
    _, shown, _ = run("look", tmp_path / "vit", tmp_path / "one.png")
    code, _, err = run("classify", tmp_path / "vit", tmp_path / "one.png", "--show")
    assert (code, err) == (0, shown)


@pytest.mark.parametrize("task", list(tiny.SHAPES))
def test_evaluate_finds_what_the_run_found(home, run, task):
    """On the test part of the data that the run was trained on."""
    code, out, _ = run("evaluate", home / task, "--json")
    assert code == 0
    got, expected = json.loads(out), json.loads((home / task / "results.json").read_text())["test"]
    assert got.pop("confusion", None) == expected.pop("confusion", None)
    assert got == pytest.approx(expected)


@pytest.mark.parametrize("task", list(tiny.SHAPES))
def test_evaluate_takes_other_data(home, run, task):
    files = {"translate": "pairs.tsv", "language": "prose.txt", "text": "texts.csv", "images": "pictures.npz"}
    code, out, err = run("evaluate", home / task, home / files[task])
    assert code == 0, err
    assert {"translate": "BLEU", "language": "perplexity"}.get(task, "accuracy") in out


WRONG = {
    "no folder": (["translate", "{home}/nowhere", "x"], "found none"),
    "translate by a classifier": (["translate", "{home}/text", "x"], "regard train translate"),
    "generate by a translator": (["generate", "{home}/translate", "x"], "regard train language"),
    "classify by a language model": (["classify", "{home}/language", "x"], "without classes"),
    "no picture": (["classify", "{home}/images", "{home}/pairs.tsv"], "no picture"),
    "a picture that is not there": (["classify", "{home}/images", "{home}/gone.png"], "gone.png"),
    "hot": (["generate", "{home}/language", "x", "--temperature", "-1"], "temperature"),
    "some of one": (["generate", "{home}/language", "x", "--top-k", "3"], "--top-k: means nothing at temperature 0"),
    "a seed of nothing": (["generate", "{home}/language", "x", "--seed", "0"], "--seed: means nothing"),
    "no beam": (["translate", "{home}/translate", "ant", "--beam-size", "0"], "beam_size"),
    "other data": (["evaluate", "{home}/translate", "{home}/texts.csv"], "texts.csv"),
    "a folder as data": (["evaluate", "{home}/translate", "{home}"], "folder"),
    "a beam for a classifier": (["evaluate", "{home}/text", "--beam-size", "3"], "--beam-size means nothing"),
    "a target for a language model": (["evaluate", "{home}/language", "{home}/text.txt", "x"], "TARGET means nothing"),
    "a column for a translator": (["evaluate", "{home}/translate", "{home}/pairs.tsv", "--text", "a"], "--text means"),
    "a column where none is read": (["evaluate", "{home}/text", "--label", "a"], "--label means nothing"),
    "no data": (["evaluate", "{home}/text", "{home}/nothing.csv"], "nothing.csv"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_one_line_and_exit_2(home, run, name):
    arguments, message = WRONG[name]
    code, _, err = run(*(argument.replace("{home}", str(home)) for argument in arguments))
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err


def test_a_model_without_attention_has_none_to_show(tmp_path, home, run):
    given = tiny.options("translate", attention=None)
    regard.train("translate", home / "pairs.tsv", out=tmp_path / "plain", **given)
    code, _, err = run("translate", tmp_path / "plain", "ant", "--show")
    assert (code, err.count("\n")) == (2, 1)
    assert "no attention" in err


BAD_DATA = {
    "empty": ("translate", "pairs.tsv", b"", "pairs.tsv"),
    "one column": ("translate", "pairs.tsv", b"ant\tbee\ncat\n", "line 2"),
    "not UTF-8": ("translate", "pairs.tsv", b"ant\tbee\n\xff\tcat\n", "UTF-8"),
    "NUL": ("language", "text.txt", b"ant\0bee", "NUL"),
    "one class": ("text", "texts.csv", b"text,label\na,x\nb,x\nc,x\n", "two classes"),
    "no column": ("text", "texts.csv", b"words,label\na,x\nb,y\n", "no column 'text'"),
    "no archive": ("images", "pictures.npz", b"nothing", "pictures.npz"),
    "little": ("language", "text.txt", b"a", "text.txt"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_one_line_that_names_them(run, tmp_path, name):
    task, file, content, message = BAD_DATA[name]
    (tmp_path / file).write_bytes(content)
    code, _, err = run("train", task, tmp_path / file, "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err
    assert not (tmp_path / "run" / "training.yaml").exists()


def test_arguments_may_come_after_options(home, run, tmp_path):
    code, out, err = run("evaluate", home / "text", "--json", home / "texts.csv")
    assert (code, "accuracy" in out) == (0, True), err
    pace = tiny.flags(tiny.options("text"))
    code, _, err = run("train", "text", *pace, "--out", tmp_path / "run", home / "texts.csv")
    assert code == 0, err


def test_files_of_different_lengths_are_refused(run, tmp_path):
    (tmp_path / "en").write_text("one\ntwo\nthree\n")
    (tmp_path / "fr").write_text("un\ndeux\n")
    code, _, err = run("train", "translate", tmp_path / "en", tmp_path / "fr", "--out", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    assert "3" in err
    assert "2" in err


def test_training_prints_its_result_and_where_the_model_is(run, tmp_path):
    data = tiny.make("translate", tmp_path)
    code, out, err = run("train", "translate", data, "--out", tmp_path / "run", *tiny.flags(tiny.options("translate")))
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()] == ["test:", "sacreBLEU", "12", "the"]
    assert f"the model is in {tmp_path / 'run'}; to use it: regard translate " in out
    assert "parameters" in err


def test_options_from_a_file_and_flags_over_them(run, tmp_path):
    data = tiny.make("text", tmp_path)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in tiny.options("text").items()]
    (tmp_path / "options.yaml").write_text("\n".join(lines))
    config = ["--config", tmp_path / "options.yaml"]
    code, out, err = run("train", "text", data, "--out", tmp_path / "run", *config, "--steps", "3", "--json")
    assert code == 0, err
    assert json.loads(out)["steps"] == 3
    wrong = {"steps: many": "steps", "stps: 3": "did you mean steps", "- a": "expected lines", "{": "YAML"}
    wrong |= {"out: other": "out: no option", "task: images": "another task"}
    for content, message in wrong.items():
        (tmp_path / "options.yaml").write_text(content)
        code, _, err = run("train", "text", data, "--out", tmp_path / "other", *config)
        assert (code, err.count("\n")) == (2, 1), err
        assert message in err

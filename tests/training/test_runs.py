"""Whole runs of every task, small: they learn, they stop when they should, they resume exactly."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.batches import Batches, Position
from regard.models.translator import Translator
from regard.training import loop, options
from regard.training.folder import read_log, read_options
from regard.training.loop import Diverged, step_data
from regard.training.options import resolve
from regard.training.report import head_widths
from regard.training.run import evaluate
from regard.training.schedule import Average
from regard.training.tasks import prepare
from tests.training import tiny

TASKS = list(tiny.SHAPES)


@pytest.mark.parametrize("task", TASKS)
def test_a_run_leaves_a_model_that_works(task, tmp_path):
    data = tiny.make(task, tmp_path)
    trained = regard.train(task, data, out=tmp_path / "run", **tiny.options(task))
    assert trained.results == json.loads((tmp_path / "run" / "results.json").read_text())
    tokens, seconds, rate = (trained.results[name] for name in ("tokens", "seconds", "tokens_per_second"))
    assert tokens / (seconds + 0.1) < rate < tokens / max(seconds - 0.1, 1e-3)
    steps = [record["step"] for record in read_log(tmp_path / "run") if "loss" in record]
    assert steps == list(range(1, 13))
    model = regard.load(tmp_path / "run")
    assert torch.equal(next(model.parameters()), next(trained.model.parameters()))
    if task == "translate":
        assert isinstance(model.translate("ant bee cat"), str)
    elif task == "language":
        assert isinstance(model.generate("ant bee"), str)
    elif task == "text":
        assert model.classify(["ant bee", "hen jay kid"])[0] in ("early", "late")
    else:
        assert model.classify(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))[1] in ("high", "middle", "low")


def test_an_example_that_does_not_count_changes_nothing(tmp_path, monkeypatch):
    """As a process has where there are fewer rows than processes."""

    def with_another(*arguments):
        for step in step_data(*arguments):
            yield replace(step, shares=[*step.shares, (step.shares[0][0], False)])

    data = tiny.make("text", tmp_path)
    regard.train("text", data, out=tmp_path / "plain", **tiny.options("text"))
    monkeypatch.setattr(loop, "step_data", with_another)
    regard.train("text", data, out=tmp_path / "run", **tiny.options("text"))
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "plain")


def test_widths_are_those_of_the_first_four_examples(tmp_path):
    data = tiny.make("text", tmp_path)
    task = prepare("text", resolve("text", {**tiny.options("text"), "data": str(data)}))
    model = task.model.eval()
    maps = []
    for row in next(iter(task.batches.epoch(0)))[:4]:
        batch = task.batch([row], slice(None), torch.Generator())
        with regard.capture(model) as captured:
            model(*batch.inputs)
        maps.append([layer.weights for layer in captured])
    measured = list(head_widths(task, model).values())
    assert len(measured) == len(maps[0]) > 0
    for number, widths in enumerate(measured):
        entropies = [-(layers[number] * layers[number].log()).sum(-1) for layers in maps]  # (1, heads, n)
        expected = torch.stack([entropy.exp().mean((0, 2)) for entropy in entropies]).mean(0)
        assert widths == pytest.approx(expected.tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("translate", {"model": "transformer", "heads": 2}),
        ("translate", {"attention": None, "cell": "lstm"}),
        ("translate", {"accumulate": 2, "schedule": "inverse-root", "tokenizer": "bpe", "vocab_size": 300}),
        ("language", {"model": "masked"}),
        ("images", {"model": "resnet", "width": 4, "depths": "1,1", "schedule": "constant"}),
        ("text", {"examples": 31, "label_smoothing": 0.1}),
    ],
)
def test_other_models_and_options_run_too(task, more, tmp_path):
    data = tiny.make(task, tmp_path)
    trained = regard.train(task, data, out=tmp_path / "run", **tiny.options(task, **more))
    assert trained.results["steps"] == 12
    written = read_options(tmp_path / "run")[1]
    assert {name: getattr(written, name) for name in more} == more


@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_run_is_the_run_that_was_never_interrupted(task, tmp_path):
    """Its last steps are lost, between two checkpoints and in the middle of an epoch: every bit comes back."""
    data = tiny.make(task, tmp_path)
    for save_every in (7, 5):
        out, cut = tmp_path / f"every-{save_every}", tmp_path / f"cut-{save_every}"
        regard.train(task, data, out=out, **tiny.options(task, save_every=save_every))
        shutil.copytree(out, cut)
        shutil.rmtree(cut / "checkpoints" / "step-00000012")
        (cut / "results.json").unlink()
        resumed = regard.train(task, data, out=cut, resume=True)
        assert resumed.results["test"] == json.loads((out / "results.json").read_text())["test"]
        assert tiny.outcome(cut) == tiny.outcome(out) == tiny.outcome(tmp_path / "every-7")


@pytest.mark.parametrize("task", TASKS)
def test_it_learns(task, tmp_path):
    data = tiny.make(task, tmp_path)
    pace = {"steps": 150, "evaluate_every": 50, "learning_rate": 1e-2, "dropout": 0.0}
    results = regard.train(task, data, out=tmp_path / "run", **tiny.options(task, **pace)).results["test"]
    if task == "language":
        assert results["perplexity"] < 4  # ten words of three letters: no more than 10^(1/4) is needed in the end
    elif task == "translate":
        evaluations = [record["validation"] for record in read_log(tmp_path / "run") if "validation" in record]
        assert evaluations[-1]["perplexity"] < evaluations[0]["perplexity"] < 30
    else:
        assert results["accuracy"] > 0.9


def test_the_same_run_twice_is_the_same_and_another_seed_is_not(tmp_path):
    data = tiny.make("translate", tmp_path)
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        regard.train("translate", data, out=tmp_path / name, **tiny.options("translate", seed=seed))
    assert tiny.outcome(tmp_path / "one") == tiny.outcome(tmp_path / "two")
    assert tiny.losses(tmp_path / "one") != tiny.losses(tmp_path / "three")


def test_a_loss_is_a_mean_over_all_targets_however_batches_are_cut(tmp_path, monkeypatch):
    """The same two batches in one step, or as one: the loss and the gradient's norm are those of all the targets."""
    data = tiny.make("translate", tmp_path)
    batches = {"one": [list(range(11))], "two": [list(range(8)), list(range(8, 11))]}
    records = {}
    for name, rows in batches.items():
        following = [(batch, Position()) for batch in rows]
        monkeypatch.setattr(Batches, "following", lambda self, position, following=following: iter(following))
        given = tiny.options("translate", dropout=0.0, steps=1, accumulate=len(rows))
        regard.train("translate", data, out=tmp_path / name, **given)
        records[name] = next(record for record in read_log(tmp_path / name) if "loss" in record)
    assert records["one"]["tokens"] == records["two"]["tokens"]
    assert records["one"]["loss"] == pytest.approx(records["two"]["loss"], rel=1e-6)
    assert records["one"]["norm"] == pytest.approx(records["two"]["norm"], rel=1e-4)


@pytest.mark.parametrize("task", ["translate", "language", "text"])
def test_a_step_is_the_same_in_several_passes(tmp_path, monkeypatch, task):
    data, passes = tiny.make(task, tmp_path), []
    run_backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda loss: (passes.append(1), run_backward(loss))[1])
    records = {}
    for tokens in (4_096, 40):
        passes.clear()
        monkeypatch.setattr(loop, "PASS", tokens)
        given = tiny.options(task, dropout=0.0, steps=3, average=0.0)
        regard.train(task, data, out=tmp_path / f"{tokens}", **given)
        records[tokens] = [record for record in read_log(tmp_path / f"{tokens}") if "loss" in record], len(passes)
    (whole, few), (split, many) = records.values()
    assert (few, many) == (1 + 3, 1 + 3 * math.ceil(given["batch"] / 40))  # the first one finds what is not used
    for one, other in zip(whole, split, strict=True):
        assert one["tokens"] == other["tokens"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["norm"] == pytest.approx(other["norm"], rel=1e-3)


def test_more_steps_can_be_wanted_later(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", schedule="constant")
    regard.train("text", data, out=tmp_path / "run", **given)
    again = regard.train("text", data, out=tmp_path / "run", resume=True)  # nothing is left to do
    assert again.results["steps"] == 12
    more = regard.train("text", data, out=tmp_path / "run", resume=True, steps=20)
    regard.train("text", data, out=tmp_path / "long", **{**given, "steps": 20})
    assert more.results["steps"] == 20
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "long")


def test_patience_ends_a_run_that_gets_no_better(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", learning_rate=1e-9, patience=2, steps=400, evaluate_every=3)
    assert regard.train("text", data, out=tmp_path / "run", **given).results["steps"] == 9
    assert regard.train("text", data, out=tmp_path / "run", resume=True).results["steps"] == 9


def test_where_bleu_says_nothing_the_perplexity_decides(tmp_path):
    """Of three words or fewer there is no sequence of four, and BLEU is 0: the first model is not the best for that."""
    words = [f"{first} {second}" for first in tiny.WORDS for second in tiny.WORDS]
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word.upper()}\n" for word in words), encoding="utf-8")
    options = tiny.options("translate", evaluate_every=1, patience=2, learning_rate=1e-2, steps=6)
    results = regard.train("translate", tmp_path / "pairs.tsv", out=tmp_path / "run", **options).results
    assert (results["test"]["bleu"], results["best_step"], results["steps"]) == (0.0, 6, 6)


def test_without_patience_a_run_does_not_end_early(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", learning_rate=1e-9, patience=0, steps=14, evaluate_every=1)
    assert regard.train("text", data, out=tmp_path / "run", **given).results["steps"] == 14


def test_a_run_remembers_its_number_of_threads(tmp_path):
    data = tiny.make("text", tmp_path)
    torch.set_num_threads(2)
    regard.train("text", data, out=tmp_path / "run", **tiny.options("text", steps=2))
    torch.set_num_threads(1)
    regard.train("text", data, out=tmp_path / "run", resume=True, steps=3)
    assert torch.get_num_threads() == 2


def test_minutes_end_a_run(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", minutes=1e-6, steps=400)
    assert regard.train("text", data, out=tmp_path / "run", **given).results["steps"] == 1


def test_minutes_and_steps_end_a_run_whichever_are_over_first(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", minutes=9.0, steps=3)
    assert regard.train("text", data, out=tmp_path / "run", **given).results["steps"] == 3


def test_a_run_of_some_minutes_plans_its_steps_and_resumes_by_that_plan(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", minutes=0.03, save_every=10, patience=0)
    del given["steps"]
    steps = regard.train("text", data, out=tmp_path / "run", **given).results["steps"]
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["revisions"][-1][1] == steps
    before = tiny.outcome(tmp_path / "run")
    for checkpoint in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(checkpoint)
    regard.train("text", data, out=tmp_path / "run", resume=True)
    assert tiny.outcome(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("language", {"precision": "bf16"}),
        ("language", {"checkpoint_activations": True}),
        ("translate", {"average": 0.9}),
        ("text", {"workers": 2}),
        ("images", {"workers": 1, "average": 0.5}),
    ],
)
def test_runs_with_these_options_resume_exactly_too(task, more, tmp_path):
    data, out, cut = tiny.make(task, tmp_path), tmp_path / "whole", tmp_path / "cut"
    regard.train(task, data, out=out, **tiny.options(task, save_every=7, **more))
    shutil.copytree(out, cut)
    shutil.rmtree(cut / "checkpoints" / "step-00000012")
    regard.train(task, data, out=cut, resume=True)
    assert tiny.outcome(cut) == tiny.outcome(out)


def test_workers_and_activations_that_are_computed_again_change_no_bit(tmp_path):
    for task, more in (("images", {"workers": 2}), ("language", {"checkpoint_activations": True})):
        data = tiny.make(task, tmp_path)
        regard.train(task, data, out=tmp_path / task / "plain", **tiny.options(task))
        regard.train(task, data, out=tmp_path / task / "other", **tiny.options(task, **more))
        assert tiny.outcome(tmp_path / task / "plain") == tiny.outcome(tmp_path / task / "other")


def test_an_average_is_what_is_evaluated_and_saved(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", evaluate_every=12, average=0.7)
    saved = regard.train("text", data, out=tmp_path / "run", **given).model.state_dict()["classifier.weight"]
    (file,) = max((tmp_path / "run" / "checkpoints").glob("step-*")).glob("*.safetensors")
    tensors = load_file(file)
    assert torch.equal(saved, tensors["average.classifier.weight"])
    assert not torch.equal(saved, tensors["model.classifier.weight"])


def test_an_average_is_its_recursion():
    model, decay = regard.Encoder(vocab_size=13, size=6, layers=1, heads=2, classes=3), 0.6
    average, weight = Average(model, decay), model.classifier.weight
    expected = weight.detach().clone()
    for step in range(1, 31):
        with torch.no_grad():
            weight.normal_()
        average.update(step)
        kept = min(decay, step / (step + 10))
        expected = kept * expected + (1 - kept) * weight.detach()
    last = weight.detach().clone()
    with average.in_place():
        assert torch.allclose(weight, expected, atol=1e-6)
    assert torch.equal(weight, last)


def test_a_nan_loss_stops_the_run_before_the_step(tmp_path):
    data = tiny.make("text", tmp_path)
    given = tiny.options("text", learning_rate=1e30, warmup=0, clip=0.0, save_every=1)
    with pytest.raises(Diverged, match="lower --learning-rate"):
        regard.train("text", data, out=tmp_path / "run", **given)
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert json.loads((newest / "state.json").read_text())["step"] == max(map(int, tiny.losses(tmp_path / "run")))


def test_events_for_tensorboard_are_written_if_wanted(tmp_path):
    data = tiny.make("text", tmp_path)
    regard.train("text", data, out=tmp_path / "run", **tiny.options("text", tensorboard=True))
    assert list((tmp_path / "run" / "events").iterdir())


def test_every_option_has_a_help_text():
    for kind in options.TASKS.values():
        assert all(field.metadata["help"] for field in kind.__dataclass_fields__.values())


@pytest.mark.parametrize("task", ["text", "images"])
def test_the_confusion_matrix_is_one_of_the_test(task, tmp_path):
    """All examples of the test part are in it; evaluations on the way log numbers only."""
    results = regard.train(task, tiny.make(task, tmp_path), out=tmp_path / "run", **tiny.options(task)).results["test"]
    counts = torch.tensor(results["confusion"]["counts"])
    assert results["confusion"]["labels"] == regard.load(tmp_path / "run").labels
    assert counts.diagonal().sum() / counts.sum() == pytest.approx(results["accuracy"])
    assert results["confusion"] == evaluate(tmp_path / "run")["confusion"]
    logged = [record["validation"] for record in read_log(tmp_path / "run") if "validation" in record]
    assert logged[0].keys() == {"accuracy", "f1", "loss"}


def test_a_test_is_translated_by_beam_search_and_an_evaluation_greedily(tmp_path, monkeypatch):
    sizes = []
    translate = Translator.translate
    monkeypatch.setattr(
        Translator, "translate", lambda self, *given, **more: sizes.append(more) or translate(self, *given, **more)
    )
    data = tiny.make("translate", tmp_path)
    trained = regard.train("translate", data, out=tmp_path / "run", **tiny.options("translate"))
    assert sizes[0].get("beam_size", 1) == 1
    assert sizes[-1] == {"beam_size": 5}
    assert evaluate(tmp_path / "run") == trained.results["test"]
    assert evaluate(tmp_path / "run", beam_size=1)["chrf"] > 0
    assert sizes[-1] == {"beam_size": 1}

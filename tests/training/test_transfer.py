"""Transfer: what is kept, what is new, what is frozen, what learns more slowly."""

import shutil

import numpy
import pytest
import torch
import transformers

import regard
from regard.data.tokens import train_tokenizer
from regard.training.folder import RunError
from regard.training.options import OptionError, resolve
from regard.training.task import TaskError
from regard.training.transfer import freeze, parameter_groups
from tests.training import tiny

USED = ("token_embedding.", "position_embedding.", "embedding_norm.", "norm.", "blocks.", "last_norm.")


def state(folder):
    return regard.load(folder).state_dict()


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_language_model_becomes_a_classifier(kind, tmp_path):
    prose = tiny.make("language", tmp_path)
    texts = tiny.make("text", tmp_path)
    regard.train("language", prose, out=tmp_path / "first", **tiny.options("language", model=kind))
    start = {"init_from": str(tmp_path / "first"), "freeze": "token_embedding,blocks.0"}
    given = {**tiny.PACE, **start, "max_length": 30, "batch": 110}  # more than the 17 positions
    regard.train("text", texts, out=tmp_path / "second", **given)
    before, after = state(tmp_path / "first"), state(tmp_path / "second")
    for name in before.keys() & after.keys():
        unused = kind == "masked" and not name.startswith(USED)  # the head of the masked words
        frozen = name.startswith(("token_embedding.", "blocks.0."))
        assert torch.equal(before[name], after[name]) == (frozen or unused), name
    assert "classifier.weight" in after.keys() - before.keys()
    model = regard.load(tmp_path / "second")
    assert model.labels == ["early", "late"]
    assert model.tokenizer.to_str() == regard.load(tmp_path / "first").tokenizer.to_str()


def test_a_run_is_resumed_after_the_model_it_started_from_was_moved(tmp_path):
    data, first, moved = tiny.make("text", tmp_path), tmp_path / "first", tmp_path / "moved"
    regard.train("text", data, out=first, **tiny.options("text", steps=1))
    for name, steps in (("whole", 12), ("run", 6)):
        given = {**tiny.PACE, "schedule": "constant", "init_from": str(first), "batch": 110, "steps": steps}
        regard.train("text", data, out=tmp_path / name, **given)
    first.rename(moved)
    message = f"run: its run needs {first}, which is not there: --resume --init-from NEW says where it is"
    with pytest.raises(RunError, match=message):
        regard.train("text", data, out=tmp_path / "run", resume=True, steps=12)
    found = data.rename(tmp_path / "found.csv")
    with pytest.raises(RunError, match=f"its run needs {data}, which is not there: --resume NEW says where it is"):
        regard.train("text", out=tmp_path / "run", resume=True, init_from=moved)
    regard.train("text", found, out=tmp_path / "run", resume=True, steps=12, init_from=moved)
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "whole")


@pytest.mark.parametrize("classes", [0, 2])
def test_a_new_head_reads_the_mean_of_the_vectors(classes, tmp_path):
    """And where there was a head, its pooler is kept: both were trained together."""
    texts = tiny.make("text", tmp_path)
    regard.train("text", texts, out=tmp_path / "first", **tiny.options("text"))
    tokenizer = regard.load(tmp_path / "first").tokenizer
    model = regard.Encoder(tokenizer.get_vocab_size(), 12, 1, 3, pooler=True, classes=classes)
    model.tokenizer = tokenizer
    model.save(tmp_path / "pooled")
    given = {**tiny.PACE, "init_from": str(tmp_path / "pooled"), "max_length": 30, "batch": 110}
    trained = regard.train("text", texts, out=tmp_path / "second", **given).model
    assert (trained.pooler is None) == (classes == 0)
    assert (trained.config["pooling"], trained.config["classes"]) == ("mean", 2)


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_an_image_model_learns_other_classes(kind, tmp_path):
    pictures = tiny.make("images", tmp_path)
    shape = {"model": kind} if kind == "vit" else {"model": kind, "depths": "1,1", "width": 4}
    regard.train("images", pictures, out=tmp_path / "first", **tiny.options("images", **shape))
    with numpy.load(pictures) as old:
        numpy.savez(tmp_path / "other.npz", images=old["images"], labels=old["labels"] % 2, names=["even", "odd"])
    given = {**tiny.PACE, "batch": 13, "init_from": str(tmp_path / "first"), "layer_decay": 0.5}
    regard.train("images", tmp_path / "other.npz", out=tmp_path / "second", **given)
    assert regard.load(tmp_path / "second").labels == ["even", "odd"]
    assert state(tmp_path / "second")["classifier.weight"].shape[0] == 2


def test_frozen_batch_norm_keeps_its_statistics(tmp_path):
    pictures = tiny.make("images", tmp_path)
    shape = {"model": "resnet", "depths": "1,1", "width": 4}
    shared = {name: value for name, value in tiny.options("images").items() if name in (*tiny.PACE, "batch")}
    regard.train("images", pictures, out=tmp_path / "first", **shared, **shape)
    given = {"init_from": str(tmp_path / "first"), "freeze": "stem,blocks.0"}
    regard.train("images", pictures, out=tmp_path / "second", **shared, **given)
    before, after = state(tmp_path / "first"), state(tmp_path / "second")
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) == name.startswith(("stem.", "blocks.0.")), name


def test_a_resnet_reads_files_in_the_size_of_the_images_that_it_learned_from_last(tmp_path):
    pictures = tiny.make("images", tmp_path)
    shared = {name: value for name, value in tiny.options("images").items() if name in (*tiny.PACE, "batch")}
    first = regard.ResNet((1, 1), 5, width=4, stem="cifar", channels=1, image_size=53)
    first.save(tmp_path / "first")
    regard.train("images", pictures, out=tmp_path / "second", **shared, init_from=str(tmp_path / "first"))
    model = regard.load(tmp_path / "second")
    assert model.config["image_size"] == [8, 8]


def test_a_model_of_grey_images_is_not_for_coloured_ones(tmp_path):
    rng = numpy.random.default_rng(5)
    pixels, labels = rng.integers(0, 256, (60, 8, 8, 3), dtype=numpy.uint8), numpy.arange(60) % 2
    numpy.savez(tmp_path / "coloured.npz", images=pixels, labels=labels)
    regard.ViT(8, 4, 8, layers=1, heads=2, classes=2, channels=1).save(tmp_path / "first")
    with pytest.raises(TaskError, match="first: expected a model of 3 channels, as the images have"):
        regard.train("images", tmp_path / "coloured.npz", out=tmp_path / "run", init_from=str(tmp_path / "first"))


@pytest.mark.parametrize("sides", [(4, 8), (8, 4)])
def test_a_vit_learns_from_images_of_any_other_sides(sides, tmp_path):
    pictures = tiny.make("images", tmp_path)
    shared = {name: value for name, value in tiny.options("images").items() if name in (*tiny.PACE, "batch")}
    regard.ViT(sides, 4, 8, layers=1, heads=2, classes=5, channels=1).save(tmp_path / "first")
    regard.train("images", pictures, out=tmp_path / "second", **shared, init_from=str(tmp_path / "first"))
    model = regard.load(tmp_path / "second")
    assert (model.grid, list(model.config["image_size"])) == ((2, 2), [8, 8])


def test_without_a_step_everything_that_fits_is_kept(tmp_path):
    texts = tiny.make("text", tmp_path)
    regard.train("text", texts, out=tmp_path / "first", **tiny.options("text"))
    given = {**tiny.PACE, "steps": 1, "learning_rate": 1e-30, "weight_decay": 0.0, "init_from": str(tmp_path / "first")}
    regard.train("text", texts, out=tmp_path / "second", **given)
    before, after = state(tmp_path / "first"), state(tmp_path / "second")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


def test_a_folder_of_transformers_is_one_to_start_from(tmp_path):
    texts = tiny.make("text", tmp_path)
    words = train_tokenizer(texts.read_text().splitlines(), "word", 60)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 19}
    theirs = transformers.BertModel(transformers.BertConfig(vocab_size=words.get_vocab_size(), **sizes))
    theirs.save_pretrained(tmp_path / "bert")
    words.save(str(tmp_path / "bert" / "tokenizer.json"))
    start = {"init_from": str(tmp_path / "bert"), "steps": 1, "learning_rate": 1e-30, "weight_decay": 0.0}
    regard.train("text", texts, out=tmp_path / "second", **{**tiny.PACE, **start})
    after = state(tmp_path / "second")
    for name, tensor in state(tmp_path / "bert").items():
        if name.startswith(USED):
            assert (tensor - after[name]).abs().max() < 1e-20, name


def test_layers_further_from_the_output_learn_more_slowly():
    model = regard.Encoder(31, 12, 3, 3, classes=2, pooler=True, token_types=2)
    options = resolve("text", {"data": "x.csv", "layer_decay": 0.5, "freeze": "blocks.1"})
    freeze(model, options)
    groups = parameter_groups(model, options)
    by_id = {id(parameter): group["factor"] for group in groups for parameter in group["params"]}
    factors = {name: by_id.get(id(parameter)) for name, parameter in model.named_parameters()}
    assert factors["classifier.weight"] == factors["pooler.bias"] == 1
    assert factors["blocks.2.mixer.out_proj.weight"] == 0.5
    assert factors["blocks.1.mixer.out_proj.weight"] is None
    assert factors["blocks.0.mixer.out_proj.weight"] == 0.125
    assert (
        factors["token_embedding.weight"]
        == factors["position_embedding.weight"]
        == factors["token_type_embedding.weight"]
        == 0.0625
    )


def test_biases_and_norms_do_not_decay():
    model = regard.Encoder(31, 12, 1, 3, classes=2)
    options = resolve("text", {"data": "x.csv", "weight_decay": 0.3})
    groups = parameter_groups(model, options)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    for group in groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (0.3 if parameter.dim() > 1 else 0.0)


def test_wrong_transfers_are_refused(tmp_path):
    prose = tiny.make("language", tmp_path)
    texts = tiny.make("text", tmp_path)
    pictures = tiny.make("images", tmp_path)
    regard.train("language", prose, out=tmp_path / "first", **tiny.options("language"))
    start = {"init_from": str(tmp_path / "first"), **tiny.PACE}
    with pytest.raises(OptionError, match="size: cannot be given with init_from"):
        regard.train("text", texts, out=tmp_path / "second", **start, size=9)
    with pytest.raises(TaskError, match="expected a model for this task"):
        regard.train("images", pictures, out=tmp_path / "second", **start)
    everything = "token_embedding,position_embedding,blocks,norm,classifier"
    with pytest.raises(TaskError, match="nothing to train"):
        regard.train("text", texts, out=tmp_path / "second", **start, freeze=everything)


@pytest.mark.parametrize(("kind", "freeze"), [("causal", None), ("masked", "blocks.0")])
def test_adapters_change_the_linear_layers_of_blocks_by_a_low_rank(kind, freeze, tmp_path):
    """What is saved is a plain model whose weights moved by a product of rank 2; all else but the head stays, and so do
    layers that are frozen."""
    prose, texts = tiny.make("language", tmp_path), tiny.make("text", tmp_path)
    regard.train("language", prose, out=tmp_path / "first", **tiny.options("language", model=kind))
    given = {**tiny.PACE, "init_from": str(tmp_path / "first"), "lora": 2, "max_length": 11, "batch": 110}
    regard.train("text", texts, out=tmp_path / "second", learning_rate=1e-2, freeze=freeze, **given)
    before, after = state(tmp_path / "first"), state(tmp_path / "second")
    blocks = ("blocks.1.",) if freeze else ("blocks.0.", "blocks.1.")
    adapted = [name for name in before if name.startswith(blocks) and "proj" in name and before[name].dim() == 2]
    assert len(adapted) >= 4 * len(blocks)
    for name in before.keys() & after.keys():
        change = after[name] - before[name]
        if name in adapted:
            assert torch.linalg.matrix_rank(change, atol=1e-6) == 2, name
        elif name.startswith(("blocks.", "token_embedding.", "position_embedding.")):
            assert not change.any(), name


def test_a_run_with_adapters_resumes_exactly(tmp_path):
    prose = tiny.make("language", tmp_path)
    regard.train("language", prose, out=tmp_path / "first", **tiny.options("language"))
    given = {**tiny.PACE, "init_from": str(tmp_path / "first"), "lora": 3, "context": 17, "batch": 170, "save_every": 7}
    regard.train("language", prose, out=tmp_path / "whole", **given)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000012")
    regard.train("language", prose, out=tmp_path / "cut", resume=True)
    assert tiny.outcome(tmp_path / "cut") == tiny.outcome(tmp_path / "whole")


@pytest.mark.parametrize(("more", "message"), [({}, "expected a model to start from"), ({"model": "rnn"}, "no blocks")])
def test_adapters_need_a_model_with_blocks(more, message, tmp_path):
    pairs = tiny.make("translate", tmp_path)
    if more:
        regard.train("translate", pairs, out=tmp_path / "first", **tiny.options("translate", **more))
        more = {"init_from": str(tmp_path / "first")}
    with pytest.raises((OptionError, TaskError), match=message):
        regard.train("translate", pairs, out=tmp_path / "second", lora=2, steps=2, **more)

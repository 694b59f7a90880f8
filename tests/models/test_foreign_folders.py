"""Folders of BERT that are not what they seem: refused in one line, or read as what they are."""

import pytest
import torch

from regard.models import load
from tests.models import hugging
from tests.models.test_folders import edit, refused, rewrite


@pytest.fixture
def bert(tmp_path):
    hugging.bert("words").save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": "2"}, ("layers", "str")),
        ({"num_hidden_layers": None}, ("layers", "NoneType")),
        ({"hidden_act": []}, ("config.json",)),
        ({"type_vocab_size": -1}, ("token_types", "-1")),
        ({"layer_norm_eps": "x"}, ("epsilon", "str")),
        ({"tie_word_embeddings": False}, ("tie_word_embeddings", "False")),
        ({"architectures": ["BertForTokenClassification"]}, ("BertForTokenClassification",)),
        ({"hidden_size": 1 << 20, "intermediate_size": 1 << 20}, ("bert",)),
    ],
)
def test_a_config_of_bert_that_is_not_built(bert, changes, words):
    edit(bert / "config.json", **changes)
    refused(bert, *words)


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
KEY = "bert.encoder.layer.0.attention.self.key.weight"
WORD = "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.update({QUERY: torch.ones(10, 12), KEY: torch.ones(14, 12)}), ("query", "(10, 12)")),
        (lambda state: state.update({KEY: torch.ones(12, 9)}), ("key", "(12, 9)")),
        (lambda state: state.update({WORD: torch.ones(31, 12, dtype=torch.long)}), ("word", "int64")),
    ],
)
def test_parts_that_do_not_fit_together(bert, change, words):
    rewrite(bert, change)
    refused(bert, *words)


def test_half_and_double_precision_become_float32(bert):
    rewrite(bert, lambda state: state.update({WORD: state[WORD].double(), QUERY: state[QUERY].half()}))
    assert {parameter.dtype for parameter in load(bert).parameters()} == {torch.float32}


def test_steps_of_a_sentence_encoder_that_are_not_built(bert):
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (bert / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    (bert / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]')
    refused(bert, "modules.json", "Dense")
    (bert / "modules.json").write_text("{}")
    refused(bert, "modules.json", "list")
    (bert / "modules.json").write_text("[]")
    assert load(bert).config["max_length"] == 17  # no longer than there are positions
    (bert / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    refused(bert, "1_Pooling", "lasttoken")


def test_a_config_that_is_a_folder(bert):
    (bert / "config.json").unlink()
    (bert / "config.json").mkdir()
    refused(bert, "config.json")

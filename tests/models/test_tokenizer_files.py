"""tokenizer.json of others: hostile ones are refused in one line, and this process goes on; real ones are read."""

import base64
import json
import struct

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import regard
from regard.data.tokens import KINDS, train_tokenizer
from regard.models import tokenizer_files
from regard.models.tensors import FolderError
from regard.models.texts import encode
from regard.models.tokenizer_files import panics_raised, read_tokenizer

TEXT = "The cat's 12 mats\n\n  — naïve 猫, isn't it?"
WORDS = {word: number for number, word in enumerate(["[UNK]", "a", "b", "the", "cat"])}


def words(**parts):
    """A small tokenizer as a dictionary, with some of its parts replaced."""
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return json.loads(tokenizer.to_str()) | parts


def write(path, whole):
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*parts, name="normalizers"):
    return {"type": "Sequence", name: list(parts)}


def charsmap(table):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


DOUBLED = replace({"String": "a"}, "aa")
HOSTILE = {
    "chained replacements": words(normalizer=sequence(*[DOUBLED] * 60)),
    "a long replacement": words(normalizer=replace({"String": "a"}, "a" * 1_000)),
    "a very long one": words(normalizer=replace({"String": "a"}, "a" * 1_000_000)),
    "replacements of nothing": words(normalizer=sequence(*[replace({"Regex": ""}, "a")] * 40)),
    "replacements of no text": words(normalizer=sequence(*[replace({"String": ""}, "a")] * 40)),
    "nested sequences": words(normalizer=sequence(sequence(*[sequence(*[DOUBLED] * 5)] * 4))),
    "many parts": words(normalizer=sequence(*[{"type": "NFC"}] * 1_000)),
    "backtracking": words(pre_tokenizer=split(r"(a+)+$")),
    "backtracking by choice": words(pre_tokenizer=split(r"(?:a|a)*c")),
    "backtracking by other choices": words(pre_tokenizer=split(r"(?:ba|a|b)*c")),
    "backtracking in a replacement": words(normalizer=replace({"Regex": r"(\w*)*\d"}, "")),
    "backtracking by powers": words(pre_tokenizer=split(r"\w*\w*\w*\w*\w*\w*!")),
    "no expression": words(pre_tokenizer=split("(")),
    "a charsmap of nothing": words(normalizer=charsmap(b"")),
    "a charsmap that claims more": words(normalizer=charsmap(struct.pack("<I", 1 << 30) + bytes(64))),
    "a charsmap that points outside": words(normalizer=charsmap(struct.pack("<I", 1_024) + b"\xff" * 1_024 + b"a\0")),
    "a charsmap with a long text": words(
        normalizer=charsmap(struct.pack("<I", 1_024) + bytes(1_024) + b"a" * 1_000_000 + b"\0")
    ),
    "no base64": words(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}),
    "an unknown part": words(pre_tokenizer={"type": "Shell", "command": "ls"}),
    "a part without a type": words(normalizer={"normalizers": [DOUBLED] * 60}),
    "an unknown model": words(model={"type": "Lattice"}),
    "a long word": words(
        model={"type": "WordPiece", "vocab": WORDS, "unk_token": "[UNK]", "max_input_chars_per_word": 10**9}
    ),
    "a long token": words(model={"type": "WordLevel", "vocab": {"a" * 10_000: 0}, "unk_token": "a"}),
    "much padding": words(
        padding={
            "strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]",
        }
    ),
    "a template of a thousand texts": words(
        post_processor={
            "type": "TemplateProcessing", "pair": [], "special_tokens": {},
            "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 1_000,
        }
    ),
    "a template of a thousand lists of ids": words(
        post_processor={
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}] * 1_000, "pair": [],
            "special_tokens": {"a": {"id": "a", "ids": [1] * 4_000, "tokens": ["a"] * 4_000}},
        }
    ),
    "texts in front of each other": words(normalizer=sequence(*[{"type": "Prepend", "prepend": "a" * 100}] * 60)),
    "long tokens that begin alike": words(
        model={"type": "Unigram", "unk_id": 0, "vocab": [["a" * length, -1.0] for length in range(1, 2_000)]}
    ),
    "a long mark of parts of words": words(
        model={
            "type": "WordPiece", "vocab": WORDS, "unk_token": "[UNK]", "max_input_chars_per_word": 100,
            "continuing_subword_prefix": "a" * 3_000,
        }
    ),
    "words of no length": words(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "nesting": words(normalizer=[[]] * 3),
    "a list": [],
    "no model": {},
    "half a character": words(normalizer={"type": "Prepend", "prepend": "\ud800"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line(tmp_path, name):
    path = write(tmp_path / "tokenizer.json", HOSTILE[name])
    with pytest.raises(FolderError, match=r"tokenizer\.json: not a readable tokenizer: ") as caught:
        read_tokenizer(path)
    assert "\n" not in str(caught.value)


def known():
    """Tokenizers with the parts that published models have."""
    byte_pairs = train_tokenizer([TEXT] * 9, "bpe", 300)
    pattern = r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    bert = Tokenizer(models.WordPiece(WORDS, unk_token="[UNK]", max_input_chars_per_word=100))
    bert.normalizer, bert.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    bert.post_processor = processors.TemplateProcessing(
        single="a $A b", pair="a $A b $B b", special_tokens=[("a", 1), ("b", 2)]
    )
    bert.decoder = decoders.WordPiece()
    bert.enable_padding(length=128)
    bert.enable_truncation(128)
    t5 = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -2.0), ("cat", -3.0)], unk_id=0))
    t5.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    t5.pre_tokenizer, t5.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated")]
    parts += [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    yield "llama 3", _with(byte_pairs, pre_tokenizers.Sequence(parts))
    yield "bert", bert
    yield "t5", t5
    for kind in KINDS:
        yield kind, train_tokenizer([TEXT] * 9, kind, 300)


def _with(tokenizer, pre_tokenizer):
    changed = Tokenizer.from_str(tokenizer.to_str())
    changed.pre_tokenizer = pre_tokenizer
    return changed


KNOWN = dict(known())


@pytest.mark.parametrize("name", KNOWN)
def test_parts_of_published_tokenizers_are_read(tmp_path, name):
    path = tmp_path / "tokenizer.json"
    KNOWN[name].save(str(path))
    assert read_tokenizer(path).to_str() == KNOWN[name].to_str()
    assert read_tokenizer(path).encode(TEXT).ids == KNOWN[name].encode(TEXT).ids


def test_regards_own_tokenizers_need_no_trial_and_others_one(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(tokenizer_files, "_try", tried.append)
    for name in KNOWN:
        KNOWN[name].save(str(tmp_path / "tokenizer.json"))
        read_tokenizer(tmp_path / "tokenizer.json")
    assert len(tried) == 2  # llama 3's and t5's: they have patterns


def test_a_trial_is_made_once_for_a_file(tmp_path, monkeypatch):
    KNOWN["llama 3"].save(str(tmp_path / "tokenizer.json"))
    read_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setattr(tokenizer_files.subprocess, "run", lambda *_, **__: pytest.fail("tried again"))
    read_tokenizer(tmp_path / "tokenizer.json")


def test_a_trial_that_never_ends_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_files, "PATIENCE", 0.01)
    path = write(tmp_path / "tokenizer.json", words(pre_tokenizer=split("[ab]+")))
    with pytest.raises(FolderError, match=r"took more than 0\.01 s"):
        read_tokenizer(path)


def test_a_panic_is_an_error_like_any_other():
    class PanicException(BaseException):
        """As the library's is called."""

    with pytest.raises(ValueError, match="tokenizer: failed: at line 3"), panics_raised():
        raise PanicException("at\nline 3")
    with pytest.raises(KeyboardInterrupt), panics_raised():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "model",
    [{"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}, {"type": "WordLevel", "vocab": {}, "unk_token": "?"}],
    ids=lambda model: model["type"],
)
def test_a_word_for_which_there_is_no_token_is_a_value_error(tmp_path, model):
    tokenizer = read_tokenizer(write(tmp_path / "tokenizer.json", words(model=model)))
    with pytest.raises(ValueError, match="tokenizer: failed: "):
        encode(tokenizer, ["dog"])


def test_a_decoder_that_fails_is_a_value_error(tmp_path):
    model = regard.LanguageModel(5, 8, 1, 2)
    decoder = {"type": "Strip", "content": "a", "start": 0, "stop": 2}  # of tokens with at least so many letters
    model.tokenizer = read_tokenizer(write(tmp_path / "tokenizer.json", words(decoder=decoder)))
    with pytest.raises(ValueError, match="tokenizer: failed: "):
        model.generate("a b", max_new_tokens=2)


def test_a_folder_with_a_hostile_tokenizer_is_refused(tmp_path):
    model = regard.LanguageModel(5, 8, 1, 2)
    model.tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    model.export(tmp_path)
    write(tmp_path / "tokenizer.json", HOSTILE["chained replacements"])
    with pytest.raises(FolderError, match=r"tokenizer\.json"):
        regard.load(tmp_path)

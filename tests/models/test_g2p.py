"""The GRU encoder–decoder of g2p: what its formulas give, written out in NumPy, is what `Seq2Seq` gives."""

import io
import random
import string
import zipfile

import numpy
import pytest

from regard import Seq2Seq, load
from regard.cli import main
from regard.models.foreign import LETTERS, PHONEMES
from tests.models.cases import refused
from tests.models.g2p_formulas import say

SIZE, HIDDEN = 7, 11


def arrays(seed=3, size=SIZE, hidden=HIDDEN):
    generator = numpy.random.default_rng(seed)
    shapes = {"enc_emb": (len(LETTERS), size), "dec_emb": (len(PHONEMES), size)}
    for side in ("enc", "dec"):
        shapes |= {f"{side}_w_ih": (3 * hidden, size), f"{side}_w_hh": (3 * hidden, hidden)}
        shapes |= {f"{side}_b_ih": (3 * hidden,), f"{side}_b_hh": (3 * hidden,)}
    shapes |= {"fc_w": (len(PHONEMES), hidden), "fc_b": (len(PHONEMES),)}
    result = {name: generator.normal(size=shape).astype(numpy.float32) for name, shape in shapes.items()}
    result["fc_b"][:3] = -100  # a trained one does not say <pad>, <unk> and <s>
    return result


def made_up_words(count):
    choose = random.Random(7)
    return ["".join(choose.choices(string.ascii_lowercase, k=choose.randint(1, 17))) for _ in range(count)]


def test_phonemes_are_those_of_the_formulas(tmp_path):
    words = made_up_words(211)
    outputs = set()
    for seed in (3, 5, 7):
        numpy.savez(tmp_path / "checkpoint20.npz", **arrays(seed))
        model = load(tmp_path)
        assert isinstance(model, Seq2Seq)
        assert model.config["attention"] is None
        expected = [say(arrays(seed), word) for word in words]
        assert [text.split() for text in model.translate(words, max_new_tokens=20)] == expected
        outputs |= set(map(tuple, expected))
    assert len(outputs) > 100  # so that there is something to compare


def test_letters_may_have_spaces_capitals_and_accents(tmp_path):
    numpy.savez(tmp_path / "checkpoint20.npz", **arrays())
    model = load(tmp_path)
    for text in ("Cafe", "c a f e", "CAFÉ", "cafe\u0301"):
        assert model.tokenizer.encode(text).ids == [*(LETTERS.index(letter) for letter in "cafe"), 2]
    assert model.tokenizer.encode("d'or").tokens == ["d", "<unk>", "o", "r", "</s>"]
    assert model.target_tokenizer.encode("K AE1 F").ids == [*(PHONEMES.index(part) for part in ("K", "AE1", "F")), 3]


def test_the_command_and_a_saved_copy_say_the_same(tmp_path, capsys):
    numpy.savez(tmp_path / "checkpoint20.npz", **arrays())
    load(tmp_path).save(tmp_path / "copy")
    expected = " ".join(say(arrays(), "attention"))
    for folder in (tmp_path, tmp_path / "copy"):
        assert main(["translate", str(folder), "attention", "--beam-size", "1", "--max-new-tokens", "20"]) == 0
        assert capsys.readouterr().out == f"{expected}\n"


class Object:
    """Something that NumPy can only pickle."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc_b": None}, "fc_b"),
        ({"fc_b": numpy.zeros(5)}, "output.bias … (5,)"),
        ({"enc_w_hh": numpy.zeros(())}, "enc_w_hh … rows"),
        ({"enc_emb": numpy.zeros((28, SIZE))}, "source_embedding.weight … (28, 7)"),
        ({"dec_b_hh": numpy.full(3 * HIDDEN, numpy.nan)}, "dec_b_hh … finite"),
        ({"dec_b_hh": numpy.array(["x"])}, "not readable"),
        ({"fc_w": numpy.array([Object()])}, "not readable … fc_w"),
    ],
)
def test_a_broken_checkpoint_is_refused(tmp_path, changes, message):
    content = {name: array for name, array in (arrays() | changes).items() if array is not None}
    numpy.savez(tmp_path / "checkpoint20.npz", **content)
    refused(tmp_path, f"checkpoint20.npz … {message}")


def test_a_checkpoint_that_is_no_archive_or_a_bomb(tmp_path):
    (tmp_path / "checkpoint20.npz").write_bytes(b"PK, perhaps")
    refused(tmp_path, "checkpoint20.npz … not readable")
    with zipfile.ZipFile(tmp_path / "checkpoint20.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("enc_emb.npy", bytes((1 << 28) + 1))
    refused(tmp_path, "checkpoint20.npz … at most 268,435,456")
    header = io.BytesIO()
    claim = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**6)}
    numpy.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(tmp_path / "checkpoint20.npz", "w") as archive:
        archive.writestr("enc_emb.npy", header.getvalue() + bytes(8))
    refused(tmp_path, "checkpoint20.npz … enc_emb: its header claims 4000000000000000 bytes, the archive 8")

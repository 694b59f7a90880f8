"""GGUF, the format of llama.cpp: metadata and quantised tensors in one file. `convert` makes a model folder of a Llama.

    "GGUF", version, number of tensors, number of entries
    entries     key, type, value; the tokenizer is among them
    tensors     name, sizes (the innermost first), type, offset
    numbers     from the next multiple of the alignment on, in blocks along the rows

Lengths and sizes are checked against the file's size before memory is taken for them.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy

from regard.errors import RegardError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
TEXT, ARRAY = 8, 9  # the other types of entries
CONTROL = 3  # the type of a special token
F32, Q4_1, Q8_0 = 0, 3, 8  # types of tensors: how many weights a block holds, and its bytes
BLOCKS = {
    F32: (1, numpy.dtype("<f4")),
    Q4_1: (32, numpy.dtype([("scale", "<f2"), ("least", "<f2"), ("codes", "u1", 16)])),
    Q8_0: (32, numpy.dtype([("scale", "<f2"), ("codes", "i1", 32)])),
}
Value = TypeVar("Value")


class GGUFError(RegardError, ValueError):
    """A GGUF file that is damaged, or holds what is not read. The message names the place and the reason."""


class Packed(NamedTuple):
    """A tensor in the file."""

    shape: tuple[int, ...]
    kind: int
    start: int  # its first byte after the header

    @property
    def size(self) -> int:
        """In bytes."""
        count, dtype = BLOCKS[self.kind]
        return math.prod(self.shape) // count * dtype.itemsize


class GGUF:
    """A file: `metadata` by key, `tensors` by name, and `take`, which reads one."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position = memoryview(content), 0
        if bytes(self._bytes(4, "the beginning")) != b"GGUF":
            raise GGUFError("expected a GGUF file, which begins with GGUF")
        version, tensors, entries = (self._number(form, "the header") for form in "IQQ")
        if version not in (2, 3):  # version 1 has shorter lengths
            raise GGUFError(f"version {version} is not supported, only 2 and 3")
        self.metadata: dict[str, Any] = {}
        for number in range(entries):
            key = self._name(f"key {number}")
            self.metadata[key] = self._value(self._number("I", key), key)
        self.tensors = dict(self._entry(f"tensor {number}") for number in range(tensors))
        alignment = self.need("general.alignment", int) if "general.alignment" in self.metadata else 32
        self.start = -(-self.position // max(alignment, 1)) * max(alignment, 1)
        left = len(self.content) - self.start
        # Tensors that share their bytes could make a small file a large model.
        if len(self.tensors) < tensors or sum(packed.size for packed in self.tensors.values()) > left:
            reason = f"need more bytes than the {left:,} after the header, or share a name"
            raise GGUFError(f"its {tensors} tensors {reason}")

    def need(self, key: str, kind: type[Value]) -> Value:
        """An entry of this type."""
        value = self.metadata.get(key)
        if type(value) is not kind:
            raise GGUFError(f"{key}: expected {kind.__name__}, got {type(value).__name__}")
        return value

    def take(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """A tensor of this shape.

        What was quantised comes as float16: half the bytes of float32, and a rounding far below the quantisation's.
        """
        packed = self.tensors.get(name)
        if packed is None or packed.shape != shape:
            raise GGUFError(f"{name}: expected shape {shape}, got {packed.shape if packed else 'no such tensor'}")
        self.position = self.start + packed.start
        blocks = numpy.frombuffer(self._bytes(packed.size, name), BLOCKS[packed.kind][1])
        with numpy.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            numbers = blocks if packed.kind == F32 else dequantize(packed.kind, blocks).astype(numpy.float16)
        if not numpy.isfinite(numbers).all():
            raise GGUFError(f"{name}: holds NaN, infinity or a number too large for float16")
        return numbers.reshape(shape)

    def _entry(self, what: str) -> tuple[str, Packed]:
        name = self._name(what)
        shape = tuple(self._number("Q", name) for _ in range(self._number("I", name)))[::-1]
        kind, start = self._number("I", name), self._number("Q", name)
        if kind not in BLOCKS:
            raise GGUFError(f"{name}: tensors of type {kind} are not supported, only F32, Q4_1 and Q8_0")
        if not shape or shape[-1] % BLOCKS[kind][0]:
            raise GGUFError(f"{name}: expected rows of whole blocks of {BLOCKS[kind][0]} weights, got shape {shape}")
        return name, Packed(shape, kind, start)

    def _value(self, kind: int, what: str) -> Any:
        """A text or a number, or an array of them."""
        if kind == TEXT:
            return self._text(what)
        if kind != ARRAY:
            return self._array(kind, 1, what)[0].item()
        kind, count = self._number("I", what), self._number("Q", what)
        return [self._text(what) for _ in range(count)] if kind == TEXT else self._array(kind, count, what)

    def _array(self, kind: int, count: int, what: str) -> NDArray[Any]:
        if kind not in NUMBERS:
            raise GGUFError(f"{what}: type {kind} is not supported")
        dtype = numpy.dtype(NUMBERS[kind])
        return numpy.frombuffer(self._bytes(count * dtype.itemsize, what), dtype)

    def _name(self, what: str) -> str:
        name = self._text(what)
        if not name.isprintable():
            raise GGUFError(f"{what}: expected a name, got {name!r}")
        return name

    def _text(self, what: str) -> str:
        try:
            return str(self._bytes(self._number("Q", what), what), "utf-8")
        except UnicodeDecodeError as error:
            raise GGUFError(f"{what}: expected UTF-8: {error}") from error

    def _number(self, form: str, what: str) -> int:
        return int(struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}"), what))[0])

    def _bytes(self, size: int, what: str) -> memoryview:
        left = len(self.content) - self.position
        if size > left:
            raise GGUFError(f"{what}: expected {size:,} bytes, got {max(left, 0):,}: the file is damaged or incomplete")
        self.position += size
        return self.content[self.position - size : self.position]


def dequantize(kind: int, blocks: NDArray[Any]) -> NDArray[Any]:
    """The weights of blocks as float32: scale · code, and with Q4_1 + least; its codes are 4 bits, low ones first."""
    scale, codes = blocks["scale"].astype(numpy.float32)[:, None], blocks["codes"]
    if kind == Q8_0:
        return numpy.asarray(scale * codes)
    codes = numpy.concatenate([codes & 15, codes >> 4], axis=1)
    return numpy.asarray(scale * codes + blocks["least"].astype(numpy.float32)[:, None])


# --------------------------------------------------------------------------------------------------------------- Llama


def convert(content: bytes, folder: Path) -> None:
    """Write a Llama as a Hugging Face folder, with its tokenizer."""
    from safetensors.numpy import save_file

    file = GGUF(content)
    config, tokenizer = _config(file), _tokenizer(file)
    if tokenizer.get_vocab_size() != config["vocab_size"]:
        raise GGUFError(f"expected {config['vocab_size']} tokens by vocab_size, got {tokenizer.get_vocab_size()}")
    save_file(_state(file, config), folder / "model.safetensors", {"format": "pt"})
    facts = [f"{name}: {file.metadata.get(f'general.{name}')}" for name in ("name", "organization", "license")]
    special = {name: tokenizer.id_to_token(config[f"{name}_id"]) for name in ("bos_token", "eos_token")}
    options = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    options["model_max_length"] = config["max_position_embeddings"]
    if "tokenizer.chat_template" in file.metadata:
        options["chat_template"] = file.need("tokenizer.chat_template", str)
    texts = {
        "config.json": json.dumps(config, indent=2),
        "README.md": "\n".join(["Converted from a quantised GGUF file.", "", *facts]),
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(options, indent=2),
    }
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8", newline="")


def _config(file: GGUF) -> dict[str, Any]:
    architecture, scaling = (file.metadata.get(key) for key in ("general.architecture", "llama.rope.scaling.type"))
    if architecture != "llama" or scaling not in (None, "none"):
        raise GGUFError(f"expected a llama without rope scaling, got {architecture!r} with {scaling!r}")
    names = {
        "vocab_size": "vocab_size",
        "hidden_size": "embedding_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "rope.dimension_count",
        "intermediate_size": "feed_forward_length",
        "max_position_embeddings": "context_length",
    }
    sizes = {name: file.need(f"llama.{key}", int) for name, key in names.items()}
    for name, size in sizes.items():
        if size < 1:
            raise GGUFError(f"llama.{names[name]}: expected 1 or more, got {size}")
    special = {f"{name}_token_id": file.need(f"tokenizer.ggml.{name}_token_id", int) for name in ("bos", "eos")}
    if sizes["head_dim"] % 2 or not all(0 <= number < sizes["vocab_size"] for number in special.values()):
        raise GGUFError(f"expected an even head_dim and ids below vocab_size, got {sizes | special}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **sizes,
        "rms_norm_eps": file.need("llama.attention.layer_norm_rms_epsilon", float),
        "rope_parameters": {"rope_type": "default", "rope_theta": file.need("llama.rope.freq_base", float)},
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **special,
        "dtype": "float32",  # to compute in
    }


def _state(file: GGUF, config: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """All tensors under Hugging Face's names."""
    size, ffn_size, vocab_size = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads, head_size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    layers = config["num_hidden_layers"]
    outer = {
        "token_embd": ("model.embed_tokens", (vocab_size, size)),
        "output_norm": ("model.norm", (size,)),
        "output": ("lm_head", (vocab_size, size)),
    }
    if config["tie_word_embeddings"]:
        del outer["output"]
    block = {
        "attn_norm": ("input_layernorm", (size,)),
        "attn_q": ("self_attn.q_proj", (heads * head_size, size)),
        "attn_k": ("self_attn.k_proj", (kv_heads * head_size, size)),
        "attn_v": ("self_attn.v_proj", (kv_heads * head_size, size)),
        "attn_output": ("self_attn.o_proj", (size, heads * head_size)),
        "ffn_norm": ("post_attention_layernorm", (size,)),
        "ffn_gate": ("mlp.gate_proj", (ffn_size, size)),
        "ffn_up": ("mlp.up_proj", (ffn_size, size)),
        "ffn_down": ("mlp.down_proj", (size, ffn_size)),
    }
    if len(file.tensors) != len(outer) + layers * len(block):
        raise GGUFError(f"expected the tensors of {layers} layers, {len(block)} each, got {len(file.tensors)} in all")
    state = {f"{name}.weight": file.take(f"{key}.weight", shape) for key, (name, shape) in outer.items()}
    for number in range(layers):
        for key, (name, shape) in block.items():
            weight = file.take(f"blk.{number}.{key}.weight", shape)
            if key in ("attn_q", "attn_k"):
                # Rotary pairs are neighbours (2i, 2i + 1) there and half a head apart (i, i + half) here.
                pairs = weight.reshape(-1, head_size // 2, 2, size)
                weight = numpy.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
            state[f"model.layers.{number}.{name}.weight"] = weight
    return state


def _tokenizer(file: GGUF) -> Tokenizer:
    """Byte-level byte-pair encoding, GPT-2's but that every digit is a token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise GGUFError(f"expected a tokenizer gpt2 with pre smollm, got {kind[0]!r} with {kind[1]!r}")
    pieces, merges = file.need("tokenizer.ggml.tokens", list), file.need("tokenizer.ggml.merges", list)
    types = file.need("tokenizer.ggml.token_type", numpy.ndarray)
    ids = {piece: number for number, piece in enumerate(pieces)}
    try:
        tokenizer = Tokenizer(models.BPE(ids, [tuple(merge.split(" ")) for merge in merges]))
    except Exception as error:  # tokenizers raises nothing more particular
        raise GGUFError(f"tokenizer.ggml.merges: expected two tokens each: {str(error).splitlines()[0]}") from error
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([digits, words]), decoders.ByteLevel()
    control = [piece for piece, type_ in zip(pieces, types, strict=False) if type_ == CONTROL]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in control])
    return tokenizer

"""Generation against `transformers`, with the same weights and the same tokens: greedy, and by beam search."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.measure import Row, compare, compare_bandwidth
from benchmarks.peers import exported, silence_transformers, without
from regard import LanguageModel, Transformer, load
from regard.data.fetching import fetch


def rows(tiny: bool = False) -> Iterator[Row]:
    """One row for each aim, and how much of the memory's bandwidth greedy generation reaches."""
    silence_transformers()
    torch.manual_seed(0)
    yield from stories(tiny)
    yield decoding_ablation(tiny)
    yield translation(1, 1.5, tiny)
    yield translation(8, 1.2, tiny)


def stories(tiny: bool) -> Iterator[Row]:
    if tiny:  # a Llama with random weights: nothing is fetched
        form = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
        model, prompt = LanguageModel(50, 16, 1, 2, max_positions=16, **form).eval(), [1, 2, 3]
        yield from greedy("stories15M", model, prompt, 8, tiny)
        yield from greedy("SmolLM2", model, prompt, 8, tiny)
        return
    for name, length in (("stories15M", 128), ("SmolLM2", 48)):
        loaded = load(fetch(name))
        assert isinstance(loaded, LanguageModel)
        yield from greedy(name, loaded, loaded.need_tokenizer().encode("Once upon a time").ids, length, tiny)


def greedy(name: str, ours: LanguageModel, prompt: list[int], length: int, tiny: bool) -> Iterator[Row]:
    """Beside transformers, and beside the time in which all weights can be read from memory."""
    from transformers import LlamaForCausalLM

    theirs, ids = exported(ours, LlamaForCausalLM), torch.tensor([prompt])

    def generate() -> list[int]:
        generated = theirs.generate(ids, max_new_tokens=length, do_sample=False, pad_token_id=0)
        return list(generated[0, ids.shape[1] :].tolist())

    def work() -> None:
        ours.generate(ids, max_new_tokens=length)

    assert generate() == ours.generate(ids, max_new_tokens=length)[0].ids
    title, repeats = f"greedy generation, {name}, {length} tokens", 1 if tiny else 5
    yield compare(title, "transformers generate", generate, work, 2, repeats)
    table = ours.token_embedding.weight
    untied = 0 if ours.config["tie_embeddings"] else table.nbytes  # of this table a token reads one row
    size = sum(parameter.nbytes for parameter in ours.parameters()) - untied
    yield compare_bandwidth(title, work, length * size, 1 if tiny else 256, repeats)


def decoding_ablation(tiny: bool) -> Row:
    vocab_size, size, layers, length = (50, 16, 1, 8) if tiny else (4_000, 256, 6, 64)
    ours = LanguageModel(vocab_size, size, layers, 4, max_positions=256).eval()
    ids = torch.randint(vocab_size, (1, 16))

    def generate() -> list[int]:
        return ours.generate(ids, max_new_tokens=length)[0].ids

    plain = without("regard.models.decode_kernels.load_kernels", lambda *_: None, generate)
    assert generate() == plain()
    return compare(
        f"greedy generation, GPT {size} × {layers}, {length} tokens: what products of few rows bring "
        "(models/decode_kernels.py)",
        "regard without them",
        plain,
        generate,
        1.2,
        1 if tiny else 7,
    )


def translation(sentences: int, at_least: float, tiny: bool) -> Row:
    from transformers import MarianMTModel

    vocab_size, size, layers, words, length = (50, 16, 1, 5, 6) if tiny else (8_000, 256, 3, 20, 40)
    ours = Transformer(
        vocab_size, vocab_size, size, layers, 4, positions="sinusoidal_halves", activation="silu",
        share_embeddings=True, output_bias=True, bos=0, eos=2, forbidden=[0],
    ).eval()  # fmt: skip
    theirs = exported(ours, MarianMTModel)
    source = torch.randint(3, vocab_size, (sentences, words))

    def generate() -> Tensor:
        options = {"num_beams": 5, "max_new_tokens": length, "bad_words_ids": [[0]], "forced_eos_token_id": None}
        generated: Tensor = theirs.generate(source, do_sample=False, **options)
        return generated

    hypotheses = ours.generate(source, beam_size=5, max_new_tokens=length)
    their_ids = [[int(token) for token in row if token not in (0, 2)] for row in generate()[:, 1:]]
    assert [hypothesis.ids for hypothesis in hypotheses] == their_ids
    name = f"Transformer {size} × {layers} + {layers}"
    return compare(
        f"beam 5 translation, {name}, batch {sentences}, {words} words in, {length} out",
        "transformers Marian of the same size",
        generate,
        lambda: ours.generate(source, beam_size=5, max_new_tokens=length),
        at_least,
        1 if tiny else 5,
    )

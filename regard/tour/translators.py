"""Small translators from English to French that several sections look at: trained once for all, and then kept."""

from collections.abc import Sequence
from typing import Any

import torch

import regard
from regard.data.grammar import corpus
from regard.data.pairs import Pair
from regard.models.seq2seq import Seq2Seq
from regard.tour.kept import place
from regard.tour.learning import fit_task
from regard.training.metrics import bleu
from regard.training.options import resolved
from regard.training.tasks import prepare
from regard.training.tasks.translate import translated

SCORES = ("additive", "bilinear", "cosine", "dot", "gaussian")
SETTINGS: dict[str, Any] = {  # as small, and as short, as it can be for the effect to show
    "size": 64,
    "hidden": 96,
    "tokenizer": "word",
    "batch": 2_048,
    "dropout": 0.0,
}
RATE = 6e-3
STEPS = 300
PAIRS = 300  # sentences that nothing was learned from


def translator(attention: str, seed: int, steps: int = STEPS) -> Seq2Seq:
    """An RNN encoder–decoder with this score (or "none"), taught with the embedded grammar: as `regard train translate`
    does it, but without its checkpoints and evaluations."""
    folder = place(f"translator-{attention}-{seed}-{steps}", SETTINGS, RATE)
    if not folder.exists():
        torch.manual_seed(seed)
        task = prepare("translate", resolved("translate", {"attention": attention, "seed": seed, **SETTINGS}))
        fit_task(task, steps=steps, rate=RATE, seed=seed).save(folder)
    model = regard.load(folder)
    assert isinstance(model, Seq2Seq)
    return model


def unseen(count: int = PAIRS) -> list[Pair]:
    """Sentences of the grammar, their French and which words belong together, that nothing was learned from."""
    return corpus("fr").test[:count]


def quality(model: Seq2Seq, pairs: Sequence[Pair]) -> float:
    """BLEU of its translations."""
    texts = translated(model, [pair.source for pair in pairs])
    return float(bleu(texts, [pair.target for pair in pairs]).score)

"""Small translators from English to French that several sections look at: trained once for all, and then kept."""

from collections.abc import Sequence
from typing import Any

import regard
from regard.data.grammar import corpus
from regard.data.pairs import Pair
from regard.models.seq2seq import Seq2Seq
from regard.tour.kept import place
from regard.training.folder import RESULTS, has_run
from regard.training.metrics import bleu
from regard.training.tasks.translate import translated

SCORES = ("additive", "bilinear", "cosine", "dot", "gaussian")
SETTINGS: dict[str, Any] = {  # as small, and as short, as it can be for the effect to show
    "size": 64,
    "hidden": 96,
    "tokenizer": "word",
    "batch": 2_048,
    "learning_rate": 6e-3,
    "warmup": 40,
    "dropout": 0.0,
    "evaluate_pairs": 20,
    "threads": 1,
}
STEPS = 300
PAIRS = 300  # sentences that nothing was learned from


def translator(attention: str, seed: int, steps: int = STEPS) -> Seq2Seq:
    """An RNN encoder–decoder with this score (or "none"), trained on the embedded grammar."""
    folder = place(f"translator-{attention}-{seed}-{steps}")
    if not (folder / RESULTS).exists():
        regard.train(
            "translate",
            out=folder,
            resume=has_run(folder),
            attention=attention,
            seed=seed,
            steps=steps,
            evaluate_every=steps,
            save_every=steps,
            **SETTINGS,
        )
    model = regard.load(folder)
    assert isinstance(model, Seq2Seq)
    return model


def unseen() -> list[Pair]:
    """Sentences of the grammar, their French and which words belong together, that nothing was learned from."""
    return corpus("fr").test[:PAIRS]


def quality(model: Seq2Seq, pairs: Sequence[Pair]) -> float:
    """BLEU of its translations."""
    texts = translated(model, [pair.source for pair in pairs])
    return float(bleu(texts, [pair.target for pair in pairs]).score)

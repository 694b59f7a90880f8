"""Small translators from English to French that several sections look at: each is trained once, and cached."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

import regard
from regard.data.grammar import corpus
from regard.data.pairs import Pair
from regard.models.model import Model
from regard.models.seq2seq import Seq2Seq
from regard.tour import cache
from regard.tour.learning import fit_task
from regard.tour.section import Need
from regard.training.metrics import bleu
from regard.training.options import resolve
from regard.training.tasks import prepare
from regard.training.tasks.translate import translate_all

SETTINGS: dict[str, Any] = {  # as small, and as short, as it can be for the effect to show
    "size": 64,
    "hidden_size": 96,
    "tokenizer": "word",
    "batch": 1_024,
    "dropout": 0.0,
}
LEARNING_RATE = 1e-2


class Training(NamedTuple):
    """How translators are trained and tested."""

    steps: int
    seeds: Sequence[int]  # a translator for each
    pairs: int  # of the test


SHORT = Training(300, range(3), 200)
LONG = Training(2_000, range(5), 300)
REHEARSAL = Training(3, range(2), 11)


def translator(attention: str, seed: int, steps: int) -> Seq2Seq:
    """An RNN encoder–decoder with this score (or "none"), trained on the embedded grammar as `regard train translate`
    does it, but without its checkpoints and evaluations."""

    def make() -> Model:
        torch.manual_seed(seed)
        task = prepare("translate", resolve("translate", {"attention": attention, "seed": seed, **SETTINGS}))
        return fit_task(task, steps=steps, learning_rate=LEARNING_RATE, seed=seed)

    model = regard.load(cache.model_folder(f"translator-{attention}-{seed}-{steps}", make, SETTINGS, LEARNING_RATE))
    assert isinstance(model, Seq2Seq)
    return model


def needed(kinds: Sequence[str], training: Training) -> tuple[Need, ...]:
    """The translators of these kinds, as a section names them in `needs`."""
    return tuple(Need(translator, (kind, seed, training.steps)) for kind in kinds for seed in training.seeds)


def unseen(count: int) -> list[Pair]:
    """Sentences of the grammar's test part, with their French and with the words that belong together."""
    return corpus("fr").test[:count]


def quality(model: Seq2Seq, pairs: Sequence[Pair]) -> float:
    """BLEU of its translations."""
    texts = translate_all(model, [pair.source for pair in pairs])
    return float(bleu(texts, [pair.target for pair in pairs]).score)

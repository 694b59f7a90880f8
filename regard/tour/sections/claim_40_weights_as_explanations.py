"""Claim 40, beyond the notes: are attention weights an explanation?"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import regard
from regard.data.pairs import Pair
from regard.data.tokens import PAD, UNK
from regard.models.seq2seq import Seq2Seq
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, Section
from regard.tour.translators import REHEARSAL, SHORT, Training, encoded, held_out_pairs, needed, translator
from regard.view.chart import Bars, Chart, Dots, Panel

say = Content(__file__)


class Explained(NamedTuple):
    """What each target word depends on, (target words, m) each; `counts` says which of the m are source words."""

    drops: Tensor  # of the logarithm of its probability, when a source word becomes unknown
    weights: Tensor  # of attention
    gradients: Tensor  # |gradient · vector|
    counts: Tensor


def explain(model: Seq2Seq, pairs: Sequence[Pair]) -> Explained:
    """The drops, and what the weights and the gradients say that they would be."""
    source, lengths, given, expected = encoded(model, pairs)
    sentence, step = (expected != PAD).nonzero(as_tuple=True)  # of each target word
    counts = torch.tensor(lengths)[sentence]

    def scores(method: str, baseline: int | None = None) -> Tensor:
        return regard.Attribution.from_model(
            model,
            source[sentence],
            method=method,
            target=expected[sentence, step],
            position=step,
            baseline=baseline,
            forward=lambda words: model(words, given[sentence], counts),
        ).scores

    is_word = torch.arange(source.shape[1]) < counts[:, None]
    return Explained(scores("occlusion", UNK), scores("weights"), scores("gradient_input").abs(), is_word)


def drop_of_the_first(explained: Explained, by: Tensor) -> Tensor:
    """The mean drop when the word is deleted that an explanation puts first."""
    first = by.masked_fill(~explained.counts, -torch.inf).argmax(-1, keepdim=True)
    return explained.drops.gather(-1, first).mean()


def rank_correlation(explained: Explained, by: Tensor) -> Tensor:
    """Spearman's, between an explanation and the drops over the words of a sentence, on average."""
    correlations = []
    for drops, scores, counts in zip(explained.drops, by, explained.counts, strict=True):
        ranks = torch.stack([part[counts].argsort().argsort().double() for part in (drops, scores)])
        correlations.append(torch.corrcoef(ranks)[0, 1])
    return torch.stack(correlations).nanmean()


def measure(
    training: Training = SHORT, weigh: Callable[[Tensor], Tensor] = lambda weights: weights, sentences: int = 60
) -> Measured:
    """Delete words from unseen sentences, and compare. weigh: what is taken for the weights."""
    pairs = held_out_pairs(training.pairs)[:sentences]
    rows = []
    for seed in training.seeds:
        explained = explain(translator("additive", seed, training.steps), pairs)
        torch.manual_seed(seed)
        chance, weights = torch.rand(explained.drops.shape), weigh(explained.weights)
        explanations = (weights, explained.gradients, chance, explained.drops)
        firsts = [drop_of_the_first(explained, by) for by in explanations]
        rows.append([*firsts, *(rank_correlation(explained, by) for by in explanations[:3])])
    table = torch.tensor(rows)  # (seeds, 7)
    mean, spread = table.mean(0), table.std(0)
    numbers = Numbers(
        by_attention=mean[0],
        by_gradient=mean[1],
        by_chance=mean[2],
        most=mean[3],
        spread=spread[:3].max(),
        share=mean[0] / mean[3],
        correlation=mean[4],
        correlation_gradient=mean[5],
        sentences=len(pairs),
        seeds=len(training.seeds),
    )
    names = [say("attention"), say("gradient"), say("chance"), say("the most")]
    bars = Bars(names, mean[:4], spread=spread[:4], colour="attention")
    return numbers, Chart([Panel([bars], y=say("drop"))], caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """Better than chance, as good as the gradient, and the whole order."""
    yield numbers.criterion(numbers.by_attention > numbers.by_chance + numbers.spread, say("better than chance"))
    yield numbers.criterion(numbers.by_attention > numbers.by_gradient - numbers.spread, say("as good as the gradient"))
    yield numbers.criterion(numbers.correlation > 0.7, say("whole order"))


def draw(cell: Cell) -> Chart:
    """Each word's weight, and what its deletion costs."""
    dots = Dots(cell.weights.detach().flatten(), cell.drops.flatten(), say("a word"), "attention", 2)
    panel = Panel([dots], x=say("weight"), y=say("cost of deleting it"))
    return Chart([panel], caption=say("cell"))


SECTION = Section(
    **say.fields,
    show=draw,
    run=measure,
    judge=judge,
    rehearsal=lambda: measure(REHEARSAL, sentences=11),
    needs=needed(["additive"], SHORT),
)

"""Claim 40, beyond the notes: are attention weights an explanation?"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import regard
from regard.data.pairs import Pair
from regard.data.tokens import PAD, UNK
from regard.models.seq2seq import Seq2Seq
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, section, single
from regard.tour.translators import REHEARSAL, SHORT, Training, encoded, held_out_pairs, needed, translator
from regard.view.chart import Bars, Chart, Dots

say = Content(__file__)


def explain(model: Seq2Seq, pairs: Sequence[Pair]) -> tuple[Tensor, ...]:
    """What each target word depends on, (target words, m) each: the drop of the logarithm of its probability when a
    source word becomes unknown, the weights of attention, |gradient · vector|; and which of the m are source words."""
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
    return scores("occlusion", UNK), scores("weights"), scores("gradient_input").abs(), is_word


def rank_correlation(drops: Tensor, by: Tensor, is_word: Tensor) -> Tensor:
    """Spearman's, between an explanation and the drops over the words of a sentence, on average."""
    correlations = []
    for *scores, words in zip(drops, by, is_word, strict=True):
        ranks = torch.stack([part[words].argsort().argsort().double() for part in scores])
        correlations.append(torch.corrcoef(ranks)[0, 1])
    return torch.stack(correlations).nanmean()


def measure(
    training: Training = SHORT, weigh: Callable[[Tensor], Tensor] = lambda weights: weights, sentences: int = 60
) -> Measured:
    """Delete words from unseen sentences, and compare. weigh: what is taken for the weights."""
    pairs = held_out_pairs(training.pairs)[:sentences]

    def of_seed(seed: int) -> list[Tensor]:
        drops, weights, gradients, is_word = explain(translator("additive", seed, training.steps), pairs)
        torch.manual_seed(seed)
        chance = torch.rand(drops.shape)
        explanations = (weigh(weights), gradients, chance, drops)
        # The word that an explanation puts first, and what it costs on average to delete it
        first = [by.masked_fill(~is_word, -torch.inf).argmax(-1, keepdim=True) for by in explanations]
        costs = [drops.gather(-1, word).mean() for word in first]
        return [*costs, *(rank_correlation(drops, by, is_word) for by in explanations[:3])]

    table = grid(of_seed, training.seeds)  # (seeds, 7)
    mean, spread = table.mean(0), table.std(0)
    columns = ("by_attention", "by_gradient", "by_chance", "most", "correlation", "correlation_gradient")
    numbers = Numbers(
        **dict(zip(columns, mean, strict=False)),
        spread=spread[:3].max(),
        share=mean[0] / mean[3],
        sentences=len(pairs),
        seeds=len(training.seeds),
    )
    names = [say("attention"), say("gradient"), say("chance"), say("the most")]
    bars = Bars(names, mean[:4], spread=spread[:4], colour="attention")
    return numbers, single(say("measurement"), bars, y=say("drop"))


def judge(numbers: Numbers) -> Criteria:
    """Better than chance, as good as the gradient, and the whole order."""
    yield numbers.criterion(numbers.by_attention > numbers.by_chance + numbers.spread, say("better than chance"))
    yield numbers.criterion(numbers.by_attention > numbers.by_gradient - numbers.spread, say("as good as the gradient"))
    yield numbers.criterion(numbers.correlation > 0.7, say("whole order"))


def draw(cell: Cell) -> Chart:
    """Each word's weight, and what its deletion costs."""
    dots = Dots(cell.weights.detach().flatten(), cell.drops.flatten(), say("a word"), "attention", 2)
    return single(say("cell"), dots, x=say("weight"), y=say("cost of deleting it"))


TRANSLATORS = needed(["additive"], SHORT)
SECTION = section(say, draw, judge, measure, rehearsal=(REHEARSAL, lambda weights: weights, 11), needs=TRANSLATORS)

"""Claim 20: cosine and other similarities can serve as the score."""

from collections.abc import Sequence

from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, maps, section, single
from regard.tour.translators import LONG, SHORT, Training, needed, qualities, stages
from regard.view.chart import Bars, Chart

say = Content(__file__)

SCORES = ("additive", "bilinear", "cosine", "dot")
ALL_SCORES = (*SCORES, "gaussian")
LEARNED = 95.0  # BLEU


def run(training: Training = SHORT, scores: Sequence[str] = SCORES) -> Measured:
    """The same translator with one score after the other, as many steps each."""
    bleu = qualities(scores, training)  # (scores, seeds)
    cosine = bleu[scores.index("cosine")]
    numbers = Numbers(
        cosine=cosine,
        scores=bleu.mean(1),
        spreads=bleu.std(1),
        worst=bleu.mean(1).min(),
        below=bleu.mean(1).max() - cosine.mean(),
        spread=bleu.std(1).max(),
        seeds=len(training.seeds),
    )
    names = list(map(say, scores))
    bars = [Bars(names, row, say("seed {seed}", seed=seed)) for seed, row in enumerate(bleu.T)]
    return numbers, single(say("measurement"), *bars, y="BLEU")


def judge(numbers: Numbers) -> Criteria:
    """Cosine must do, and so must the others."""
    yield numbers.criterion(sum(numbers.cosine) / len(numbers.cosine) >= LEARNED, say("cosine learns"))
    yield numbers.criterion(numbers.worst >= LEARNED, say("all learn"))
    yield numbers.criterion(numbers.below <= numbers.spread, say("not behind"))


def draw(cell: Cell) -> Chart:
    """The weights of the three similarities."""
    weights = {say("dot product" if name == "dot" else name): weight for name, weight in cell.weights.items()}
    return Chart(maps(weights, say("key"), say("query"), marked=list(enumerate(cell.asked.tolist()))), say("cell"))


FORMS = stages(SCORES) | {"full": (LONG, ALL_SCORES), "full_needs": needed(ALL_SCORES, LONG)}
SECTION = section(say, draw, judge, run, **FORMS)

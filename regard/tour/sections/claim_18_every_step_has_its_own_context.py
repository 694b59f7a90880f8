"""Claim 18: every step of the decoder compares its state with all hidden states, and gets its own context."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

import regard
from regard.data.batches import Position
from regard.data.fetching import fetch
from regard.data.pairs import Pair, read_aligned_pairs
from regard.data.split import part
from regard.data.words import split
from regard.models.model import Model
from regard.models.seq2seq import Seq2Seq
from regard.models.translator import Alignment, Links
from regard.tour import cache
from regard.tour.learning import train
from regard.tour.section import Cell, Content, Criteria, Measured, Need, Numbers, Text, section
from regard.tour.translators import SHORT, Training, align_pairs, held_out_pairs, stages
from regard.training.metrics import alignment_error_rate
from regard.training.options import TranslateOptions
from regard.training.task import Tokenizers
from regard.training.tasks.translate import prepare
from regard.view.chart import Bars, Chart, Heat, Panel

say = Content(__file__)


def run(training: Training = SHORT) -> Measured:
    """What each translator looks at while it writes, against the words that belong together."""
    pairs = held_out_pairs(training.pairs)
    alignments = (align_pairs(model, pairs) for model in training.translators("additive"))
    return compare(pairs, alignments, (say("English, looked at"), say("French, looks")))


def compare(
    pairs: Sequence[Pair], alignments_of_seeds: Iterable[list[Alignment]], languages: tuple[Text, Text]
) -> Measured:
    """The alignments of every seed against the known ones; `languages` are the names of the picture's axes."""
    gold = [pair.alignment or frozenset() for pair in pairs]
    moved, errors = [], []
    for alignments in alignments_of_seeds:
        # How much of the weight (target words, source words) moves from one word to the next
        shifts = [alignment.weights.diff(dim=0).abs().sum(-1).mean() / 2 for alignment in alignments]
        moved.append(float(torch.stack(shifts).mean()))
        errors.append(alignment_error_rate([alignment.links for alignment in alignments], gold))
    numbers = Numbers(
        moved=moved,
        errors=errors,
        spread=torch.tensor(errors).std(),
        diagonal=alignment_error_rate([diagonal(pair) for pair in pairs], gold),
        sentences=len(pairs),
    )
    # One sentence with the last seed, and the error rates of all seeds.
    sizes = [len(alignment.source) for alignment in alignments]
    chosen = sizes.index(max(size for size in sizes if size < 12))
    shown, links = alignments[chosen], [(target, source) for source, target in sorted(gold[chosen])]
    heat = Heat(shown.weights, rows=shown.target, columns=shown.source, marked=links)
    names = [say("seed {seed}", seed=seed) for seed in range(len(errors))]
    bars = Bars([*names, say("diagonal")], [*errors, numbers.diagonal], colour="attention")
    panels = [Panel([heat], *languages, share=1.4), Panel([bars], y=say("alignment error rate"))]
    return numbers, Chart(panels, say("measurement"), height=300)


# The same on real text: Greek verses and their English, with the links that people have made.
VERSES = "bible-alignments"
VERSE_STEPS, VERSE_SEEDS = 4_000, range(3)  # 18 epochs, of 0.23 s a step on one core: a quarter of an hour for a seed
SIZES = {"size": 128, "hidden_size": 192, "vocab_size": 3_000}
VERSE_OPTIONS = {**SIZES, "lowercase": True, "batch": 2_048, "dropout": 0.3}


def run_on_verses(steps: int = VERSE_STEPS, seeds: Sequence[int] = VERSE_SEEDS, **options: Any) -> Measured:
    """What translators of verses look at, in the tenth of them that none has learned from.

    The Greek has no punctuation: where an English comma looks counts as an error, and the diagonal's comma as well.
    """
    pairs = [pair for pair in read_aligned_pairs(fetch(VERSES)) if part(pair.source) != "train"]
    models = (verse_translator(seed, steps, **options) for seed in seeds)
    # Of so many at once: of all verses, the logits alone are a gigabyte.
    parts = [pairs[start : start + 64] for start in range(0, len(pairs), 64)]
    alignments = ([alignment for some in parts for alignment in align_pairs(model, some)] for model in models)
    return compare(pairs, alignments, (say("Greek, looked at"), say("English, looks")))


def verse_translator(seed: int, steps: int, **options: Any) -> Seq2Seq:
    """A translator with additive attention that has learned from the other verses, as `regard train` would teach it."""
    settings: dict[str, Any] = VERSE_OPTIONS | options
    data = str(fetch(VERSES) / "pairs.tsv")

    def learn() -> Model:
        task = prepare(TranslateOptions(data=data, seed=seed, **settings), Tokenizers())
        batches, generator = task.batches.following(Position()), torch.Generator().manual_seed(seed)

        def loss(step: int) -> Tensor:
            batch = task.batch(next(batches)[0], slice(None), generator)
            return task.loss(task.model, batch) / batch.count

        return train(task.model, loss, steps=steps, learning_rate=2e-3)

    model = regard.load(cache.model_folder(f"verses-{seed}-{steps}", learn, settings))
    assert isinstance(model, Seq2Seq)
    return model


def diagonal(pair: Pair) -> Links:
    """Every word of the target with the word of the source at the same share of the sentence."""
    n, m = len(split(pair.target)), len(split(pair.source))
    return frozenset((round(word * (m - 1) / max(n - 1, 1)), word) for word in range(n))


def judge(numbers: Numbers) -> Criteria:
    """Another look for another word; and a better one than going along the sentence."""
    yield numbers.criterion(min(numbers.moved) > 0.5, say("moves"))
    yield numbers.criterion(max(numbers.errors) + numbers.spread < numbers.diagonal, say("finds the words"))


def draw(cell: Cell) -> Chart:
    """The weights and the contexts of one string."""
    written, read = (list(map(str, digits.tolist())) for digits in (cell.written[0, 1:], cell.source[0]))
    weights = Heat(cell.maps[0].detach(), rows=written, columns=read)
    contexts = cell.contexts[0].detach()
    alike = Heat(torch.nn.functional.cosine_similarity(contexts[:, None], contexts, dim=-1).clamp(min=0))
    left = Panel([weights], say("digit that was read"), say("digit that is written"))
    return Chart([left, Panel([alike], say("context of step"), say("context of step"))], say("cell"))


VERSE_TRANSLATORS = tuple(Need(verse_translator, (seed, VERSE_STEPS)) for seed in VERSE_SEEDS)
FORMS = stages(["additive"]) | {"full": run_on_verses, "full_needs": VERSE_TRANSLATORS}
SECTION = section(say, draw, judge, run, **FORMS)

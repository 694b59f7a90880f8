"""Claim 24: masked self-attention never sees the future."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import regard
from regard.tour.cells import run_plain
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, section
from regard.view.chart import Chart, Heat, Panel

say = Content(__file__)

SEEDS, SIZE, WORDS = 3, 24, 31


Model = Callable[[Tensor], Tensor]  # rows (1, n, size), or ids (1, n), to outputs (1, n, …)


def models(mask: regard.Mask) -> list[tuple[Model, bool]]:
    """Everything that is masked, and whether it reads words: also the plain cell's layer with its own mask."""
    text = regard.LanguageModel(vocab_size=WORDS, size=SIZE, layers=3, heads=3).eval()
    heads = regard.MultiHead(size=SIZE, heads=3)
    additive = regard.MultiHead(size=SIZE, heads=3, score="additive")
    cell = Cell(**run_plain(SECTION))
    layers = (
        lambda rows: cell.layer(rows[0], cell.causal_mask(rows.shape[1]))[None],
        partial(heads, mask=mask),
        partial(additive, mask=mask),
    )
    return [*((layer, False) for layer in layers), (text, True)]


@torch.no_grad()
def changed(model: Model, words: bool, n: int) -> Tensor:
    """(n,): which outputs change in any bit when all inputs of the second half are others."""
    first, other = (torch.randint(WORDS, (1, n)) if words else torch.randn(1, n, SIZE) for _ in range(2))
    second = first.clone()
    second[:, n // 2 :] = other[:, n // 2 :]
    return (model(first) != model(second)).any(-1)[0]


def measure(mask: regard.Mask | None = None) -> Measured:
    """Change the future of short and long inputs. mask: instead of the causal one."""
    past, future, unmasked, tried = 0, [], [], 0
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        chosen = models(regard.causal() if mask is None else mask)
        open_layer = regard.MultiHead(size=SIZE, heads=3)
        for n in (16, 300):
            for model, words in chosen:
                moved = changed(model, words, n)
                past, tried = past + int(moved[: n // 2].sum()), tried + n // 2
                future.append(moved[n // 2 :].double().mean())
            unmasked.append(changed(open_layer, False, n)[: n // 2].double().mean())
    return Numbers(
        models=len(chosen),
        tried=tried,
        past_changed=past,
        future_changed=torch.stack(future).min(),
        open_changed=torch.stack(unmasked).min(),
    ), None


def judge(numbers: Numbers) -> Criteria:
    """Not one bit of the past, by a test that could have seen it."""
    yield numbers.criterion(
        numbers.past_changed == 0 and numbers.future_changed > 0.9 and numbers.open_changed > 0.9, say("future")
    )


def draw(cell: Cell) -> Chart:
    """The weights, and for each token whether its output changed."""
    panels = [
        Panel([Heat(cell.weights)], say("key"), say("query"), say("weights")),
        Panel([Heat(cell.masked)], say("feature"), title=say("changed, masked"), share=1.5),
        Panel([Heat(cell.unmasked)], say("feature"), title=say("changed, no mask"), share=1.5),
    ]
    return Chart(panels, say("cell", now=cell.now))


SECTION = section(say, draw, judge, measure)

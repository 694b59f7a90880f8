"""Claim 22: inputs serve two purposes, so learn a matrix for keys and one for values; several queries at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.tour.learning import descend, share_right
from regard.tour.section import Cell, Content, Criteria, Measured, Numbers, grid, maps, section, seeded, single
from regard.view.chart import Bars, Chart, Dots, Line, Panel

say = Content(__file__)

SEEDS, NAMES, INPUTS = 3, 8, 5
KINDS = {"one": say("one matrix"), "two": say("two matrices"), "wide": say("one, twice as wide")}


def look_ups(count: int, names_only: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (count, 5, 16) of a name and a content, queries (count, 5, 8) and the contents asked for (count, 5).

    names_only: whether a name says itself what is asked for; then keys can be values.
    """
    names = torch.rand(count, NAMES).argsort(-1)[:, :INPUTS]
    contents = names if names_only else torch.randint(NAMES, (count, INPUTS))
    x = torch.cat([functional.one_hot(names, NAMES), functional.one_hot(contents, NAMES)], -1).float()
    return x, functional.one_hot(names, NAMES).float(), contents


def accuracy(kind: str, seed: int, steps: int, names_only: bool) -> float:
    """On new look-ups, with keys and values by one matrix, by two, or by one that is twice as wide, with matrices in
    front and behind."""
    torch.manual_seed(seed)
    wide, size = kind == "wide", 2 * NAMES if kind == "wide" else NAMES
    to_query = nn.Linear(NAMES, size, bias=False) if wide else nn.Identity()
    to_key = nn.Linear(2 * NAMES, size, bias=False)
    to_value = nn.Linear(2 * NAMES, size, bias=False) if kind == "two" else to_key
    out = nn.Linear(size, NAMES, bias=False) if wide else nn.Identity()

    def answers(count: int) -> tuple[Tensor, Tensor]:
        x, query, contents = look_ups(count, names_only)
        return out(regard.attend(to_query(query), to_key(x), to_value(x))), contents

    def loss() -> Tensor:
        logits, contents = answers(64)
        return functional.cross_entropy(logits.mT, contents)

    descend(nn.ModuleList([to_query, to_key, to_value, out]).parameters(), loss, steps, 0.05)
    with torch.no_grad():
        return share_right(*answers(1000))


@torch.no_grad()
def one_by_one() -> tuple[Tensor, Tensor]:
    """What several queries at once differ from one at a time, and the sums of their weights from 1."""
    layer = regard.Attention(source_size=7, key_size=11, value_size=3).double()
    query, source = torch.randn(5, 11).double(), torch.randn(13, 7).double()
    alone = torch.cat([layer(one[None], source) for one in query])
    sums = regard.weights(query, layer.key(source)).sum(-1)
    return (layer(query, source) - alone).abs().max(), (sums - 1).abs().max()


def measure(steps: int = 200, names_only: bool = False) -> Measured:
    """All kinds of layers on the same task."""
    shares = grid(lambda kind, seed: accuracy(kind, seed, steps, names_only), KINDS, range(SEEDS))
    mean, spread = shares.mean(1), shares.std(1)  # (kinds,)
    together, sums = seeded(one_by_one, range(SEEDS)).float().amax(0)
    numbers = Numbers(one=mean[0], two=mean[1], wide=mean[2], spreads=spread, together=together, sums=sums)
    bars = Bars(list(KINDS.values()), mean, spread=spread, colour="attention")
    return numbers, single(say("measurement"), bars, y=say("share right"), y_limits=(0.0, 1.05), height=240)


def judge(numbers: Numbers) -> Criteria:
    """Two matrices do what one does not; and every query has a distribution of its own."""
    yield numbers.criterion(
        numbers.two > 0.95 and numbers.two - numbers.one > 2 * max(numbers.spreads[:2]), say("better than one")
    )
    yield numbers.identity(numbers.together <= 1e-12 and numbers.sums <= 1e-12, say("alone or together"))


def draw(cell: Cell) -> Chart:
    """The weights of five queries over five inputs, with one matrix and with two; and every balance of the one."""
    astray = (cell.one_weights.argmax(-1) != torch.arange(INPUTS)).sum(-1)
    chosen = int(astray.argmax())  # a look-up in which one matrix leads astray, where there is one
    names, contents = cell.names[chosen].tolist(), cell.contents[chosen].tolist()
    inputs = [f"{name} → {content}" for name, content in zip(names, contents, strict=True)]
    queries = [f"{name} ?" for name in names]
    weights = {KINDS["one"]: cell.one_weights[chosen], KINDS["two"]: cell.two_weights[chosen]}
    balances = torch.linspace(0, 1, 41).tolist()
    matrices = [(1 - balance) * cell.keep_name + balance * cell.keep_content for balance in balances]
    two = Line((0, 1), [cell.two_matrices] * 2, KINDS["two"], "other")
    one = Line(balances, [cell.look_up(matrix, matrix)[0] for matrix in matrices], KINDS["one"], "attention")
    best = Dots([cell.balance], [cell.one_matrix], colour="attention", size=5)
    right = Panel([two, one, best], say("balance"), say("share right"), share=1.3)
    return Chart([*maps(weights, rows=queries, columns=inputs, largest=1.0), right], say("cell"))


SECTION = section(say, draw, judge, measure, rehearsal=[10])

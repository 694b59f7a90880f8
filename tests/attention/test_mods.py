"""FlexAttention's functions: equal to FlexAttention itself, and to the dense formula where that has no backward pass.

Each function is written for one pair, as FlexAttention wants it; as tensors broadcast, it also gives all pairs at once.
"""

import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from regard import Additive, Cosine, Dot, Kernel, attend, causal, lengths, visible, weights, window
from regard.attention.layout import Tile, check_layout
from tests.attention import reference
from tests.attention.cases import CUTS, FEATURES, SOME_SCORES, assert_near, build, cut, key_size
from tests.attention.meanings import MASK_MODS, same_document

BATCH, HEADS, N, M = 2, 3, 13, 17
# FlexAttention runs as it is written, without the compiler, which would take most of the time here.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(autouse=True)
def _flex_attention_as_it_is_written(monkeypatch):
    monkeypatch.setattr("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def random(*shape, grad=False):
    return torch.randn(shape, dtype=torch.float64, requires_grad=grad)


# --------------------------------------------------------------------------------------------- as they are in the field

DOCUMENT = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3])
QUESTION = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3])  # document 0 is what all of them share
IMAGES = torch.tensor([[2, 6], [6, 13], [0, 9]])  # which rows see the first, second and third image
SEGMENTS = torch.tensor([[3, 5], [9, 4], [0, 0]])  # starts and lengths of images within a text
IS_GLOBAL = torch.arange(M) % 6 == 0
LIMITS = torch.tensor([5, 17])


def within_image(index):
    start, length = SEGMENTS[:, 0], SEGMENTS[:, 1]
    index = index.unsqueeze(-1)
    return ((index >= start) & (index < start + length)).long()


MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "sliding window": lambda b, h, q, k: (q >= k) & (q - k <= 3),
    "prefix": lambda b, h, q, k: (k < 4) | (q >= k),
    "documents": lambda b, h, q, k: (DOCUMENT[q] == DOCUMENT[k]) & (q >= k),
    "dilated": lambda b, h, q, k: ((q - k).abs() <= 6) & ((q - k).abs() % 2 == 0),
    "neighbourhood": lambda b, h, q, k: (
        (
            ((q // 4).clamp(1, 2) - k // 4).abs() <= 1  # of a 4 × 4 canvas
        )
        & (((q % 4).clamp(1, 2) - k % 4).abs() <= 1)
    ),
    "flamingo": lambda b, h, q, k: (q >= IMAGES[k // 6][..., 0]) & (q < IMAGES[k // 6][..., 1]),
    "shared question": lambda b, h, q, k: (q >= k) & ((QUESTION[q] == QUESTION[k]) | (QUESTION[k] == 0)),
    "transfusion": lambda b, h, q, k: (q >= k) | (within_image(q) & within_image(k)).sum(-1).bool(),
    "global tokens": lambda b, h, q, k: IS_GLOBAL[q] | IS_GLOBAL[k] | ((q - k).abs() <= 2),
    "lengths": lambda b, h, q, k: k < LIMITS[b],
    "head by head": lambda b, h, q, k: (q - k).abs() <= 2 * h + 1,
    "nothing": lambda b, h, q, k: (q < 0) & (k > q),
}
TABLE, DISTANCES = random(HEADS, N + M), torch.randint(5, (BATCH, N, M))
LEARNED, GRAPH, GATE = random(HEADS, N + M, grad=True), random(HEADS, 5, grad=True), random(BATCH, HEADS, grad=True)
QUERY_ROPE, KEY_ROPE = random(BATCH, HEADS, N, 5, grad=True), random(BATCH, 1, M, 5, grad=True)
SCORES = {
    "alibi": lambda s, b, h, q, k: s + (k - q) * torch.exp2(-((h + 1) * 8.0 / HEADS)),
    "distance": lambda s, b, h, q, k: s + (q - k) / 5,
    "table": lambda s, b, h, q, k: s + TABLE[h, q - k + M],
    "softcap": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    "activation": lambda s, b, h, q, k: torch.log(nn.functional.gelu(s) + 1),
    "causal": lambda s, b, h, q, k: torch.where(q + 2 >= k, s, -math.inf),
    "learned table": lambda s, b, h, q, k: s + LEARNED[h, q - k + M],
    "graph": lambda s, b, h, q, k: s + GRAPH[h, DISTANCES[b, q, k]],
    "gate": lambda s, b, h, q, k: s * GATE[b, h] + GATE[1, h],
    "latent": lambda s, b, h, q, k: s + (QUERY_ROPE[b, h, q] * KEY_ROPE[b, 0, k]).sum(-1),
}


def grid(batch=BATCH, heads=HEADS, n=N, m=M):
    """b, h, q_idx and kv_idx of all pairs, broadcastable to (batch, heads, n, m)."""
    sizes = (batch, heads, n, m)
    return [torch.arange(size).view(*(size if i == j else 1 for j in range(4))) for i, size in enumerate(sizes)]


def inputs(grad=False):
    sizes = ((N, FEATURES), (M, FEATURES), (M, 7))
    return [random(BATCH, HEADS, *size, grad=grad) for size in sizes]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("size", CUTS)
def test_a_mask_is_flex_attentions(monkeypatch, name, size):
    cut(monkeypatch, size)
    query, key, value = inputs()
    block_mask = create_block_mask(MASKS[name], BATCH, HEADS, N, M, device="cpu")
    theirs = flex_attention(query, key, value, block_mask=block_mask)
    assert_near(attend(query, key, value, mask=visible(MASKS[name])), theirs, 1e-12)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("size", CUTS)
def test_a_score_is_flex_attentions(monkeypatch, name, size):
    cut(monkeypatch, size)
    query, key, value = inputs()
    with torch.no_grad():
        theirs = flex_attention(query, key, value, score_mod=SCORES[name])
        score = Dot().modified(SCORES[name])
        assert_near(attend(query, key, value, score=score), theirs, 1e-12)
        assert_near(attend(query, key, value, score=score, need_weights=True)[0], theirs, 1e-12)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_through_a_mask(mask, need_weights):
    tensors = inputs(grad=True)
    allowed = MASKS[mask](*grid()).expand(BATCH, HEADS, N, M)
    wanted, _ = reference.attend(reference.scores(Dot(), *tensors[:2]), tensors[2], allowed)
    output = attend(*tensors, mask=visible(MASKS[mask]), need_weights=need_weights)
    assert_same_gradients(output[0] if need_weights else output, wanted, tensors)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("name", SCORES)
def test_gradients_through_a_score(monkeypatch, name, size, need_weights):
    """To the rows and to whatever the function captures."""
    cut(monkeypatch, size)
    query, key, value = inputs(grad=True)
    leaves = [query, key, value, LEARNED, GRAPH, GATE, QUERY_ROPE, KEY_ROPE]
    scores = SCORES[name](reference.scores(Dot(), query, key), *grid())
    wanted, _ = reference.attend(scores, value, torch.arange(M) < LIMITS[:, None, None, None])
    output = attend(
        query, key, value, score=Dot().modified(SCORES[name]), mask=lengths(LIMITS), need_weights=need_weights
    )
    assert_same_gradients(output[0] if need_weights else output, wanted, leaves)


def assert_same_gradients(output, wanted, leaves):
    assert_near(output, wanted, 1e-12)
    upstream = random(*output.shape)
    options = {"allow_unused": True, "materialize_grads": True}
    ours, theirs = (torch.autograd.grad(tensor, leaves, upstream, **options) for tensor in (output, wanted))
    for got, expected in zip(ours, theirs, strict=True):
        assert_near(got, expected, 1e-11)


# ------------------------------------------------------------------------------------------------------ on every score


def squeeze(score, b, h, q_idx, kv_idx):
    return torch.tanh(score) * (1 + h) + 0.1 * (b + q_idx - kv_idx)


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("name", [name for name in SOME_SCORES if name != "custom"])  # which is no Score
def test_every_score_can_be_modified(monkeypatch, name, size):
    cut(monkeypatch, size)
    score = build(name)
    query, key, value = (
        random(BATCH, HEADS, N, FEATURES),
        random(BATCH, HEADS, M, key_size(name)),
        random(BATCH, HEADS, M, 7),
    )
    tensors = [tensor.requires_grad_() for tensor in (query, key, value)]
    wanted, _ = reference.attend(squeeze(reference.scores(score, query, key), *grid()), value)
    modified = score.modified(squeeze)
    assert dict(modified.named_parameters()).keys() == {f"score.{name}" for name, _ in score.named_parameters()}
    assert_same_gradients(attend(*tensors, score=modified), wanted, [*tensors, *score.parameters()])
    assert_near(modified(query, key), squeeze(reference.scores(score, query, key), *grid()), 1e-12)
    projected = attend(query, score.project_key(key), value, score=modified.projected)
    assert_near(projected, wanted, 1e-12)
    assert_near(attend(query, score.project_key(key), value, score=score.projected.modified(squeeze)), wanted, 1e-12)


def test_one_after_the_other():
    query, key, value = inputs()
    both = Dot().modified(squeeze).modified(SCORES["table"])
    wanted = SCORES["table"](squeeze(reference.scores(Dot(), query, key), *grid()), *grid())
    assert_near(both(query, key), wanted, 1e-12)
    assert_near(attend(query, key, value, score=both), reference.attend(wanted, value)[0], 1e-12)


@pytest.mark.parametrize("score", [Dot(), Cosine(0.5), Additive(5, 5, 7).double(), Kernel("tricube", 4.0)])
def test_modified_scores_of_a_tile(score):
    """The scores of a tile, with its indices, are those of the whole."""
    query, key = random(BATCH, HEADS, N, 5), random(BATCH, HEADS, M, 5)
    layout, modified = check_layout(query, key), score.modified(squeeze)
    tile = Tile(slice(1, 2), slice(3, 11), slice(2, 5))
    rows, keys = modified.project_query(query[1:2, :, 3:11]), modified.project_key(key[1:2, :, 2:5])
    part = modified.modify(modified.pairs(rows, keys), layout.indices(tile))
    torch.testing.assert_close(part, modified(query, key)[1:2, :, 3:11, 2:5], rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------------ true indices

FRONTS = [
    ((), ()),
    ((3,), (3,)),
    ((2, 3), (2, 3)),
    ((2, 6), (2, 2)),
    ((5, 2, 3), (2, 3)),
    ((6,), (2,)),
    ((2, 3), (2, 1)),
]


def label(score, b, h, q_idx, kv_idx):
    """Other numbers for any other pair."""
    return score * 0 + ((b * 7 + h) * 19 + q_idx) * 23 + kv_idx


@pytest.mark.parametrize(("front", "key_front"), FRONTS)
def test_indices_are_those_of_the_whole(front, key_front):
    """Whatever dimensions are in front, and where heads share keys."""
    query, key = random(*front, N, 5), random(*key_front, M, 5)
    heads = front[-1] if front else 1
    expected = label(0, *grid(math.prod(front[:-1]), heads)).reshape(*front, N, M)
    assert torch.equal(Dot().modified(label)(query, key), expected.double())
    allowed = torch.zeros(expected.shape).bool() | (expected % 3 > 0)
    mask = visible(lambda b, h, q, k: label(0, b, h, q, k) % 3 > 0)
    assert torch.equal(weights(query, key, mask=mask) > 0, allowed)


@pytest.mark.parametrize("key_heads", [6, 2, 1])
def test_chosen_rows_and_heads_keep_their_indices(key_heads):
    query, key = random(2, 6, N, 5), random(2, key_heads, M, 5)
    mask = visible(lambda b, h, q, k: (label(0, b, h, q, k) % 3 > 0) | (k == 0))
    score = Dot().modified(squeeze)
    full = weights(query, key, mask=mask, score=score)
    assert_near(weights(query, key, mask=mask, score=score, heads=[5, 0]), full[:, [5, 0]], 1e-12)
    some = weights(query, key, mask=mask, score=score, rows=[12, 0, 5], heads=[1])
    assert_near(some, full[:, [1]][:, :, [12, 0, 5]], 1e-12)


# ----------------------------------------------------------------------------------------------------- what is skipped


@pytest.mark.parametrize(
    ("mod", "twin"),
    [
        (lambda b, h, q, k: q >= k, causal(0)),
        (lambda b, h, q, k: (q - k).abs() <= 3, window(3, 3, 0)),
        (lambda b, h, q, k: k < LIMITS[b], lengths(LIMITS)),
        (MASKS["nothing"], lengths([0, 0])),
    ],
)
def test_what_is_hidden_is_skipped(mod, twin):
    """A function is as good as the mask that knows which keys a tile sees, and which tiles it does not restrict."""
    layout = check_layout(torch.zeros(BATCH, HEADS, N, 1), torch.zeros(BATCH, HEADS, M, 1))
    ours, theirs = visible(mod).bind(layout), twin.bind(layout)
    for batch in (slice(0, 1), slice(1, 2), slice(0, 2)):
        for rows in (slice(0, 1), slice(2, 5), slice(7, 13), slice(0, 13)):
            for keys in (slice(0, 17), slice(3, 5), slice(5, 6), slice(11, 17)):
                tile = Tile(batch, rows, keys)
                expected, got = theirs.visible_keys(tile), ours.visible_keys(tile)
                assert (got.start, got.stop) == (expected.start, expected.stop) or (
                    got.start >= got.stop and expected.start >= expected.stop
                )
                assert ours.allows_all(tile) == theirs.allows_all(tile)


def test_where_heads_differ_or_rows_have_gaps():
    """Keys between the first and the last that some head or row does not see are not taken for visible."""
    layout, tile = check_layout(torch.zeros(1, 2, 3, 1), torch.zeros(1, 2, 5, 1)), Tile.whole(1, 3, 5)
    for mod in (lambda b, h, q, k: (k == 0) | (k == 4), lambda b, h, q, k: (h == 0) | (k > 3)):
        bound = visible(mod).bind(layout)
        assert bound.visible_keys(tile) == slice(0, 5)
        assert not bound.allows_all(tile)
    assert bound.allows_all(tile._replace(keys=slice(4, 5)))


# ---------------------------------------------------------------------------------------------------- what is captured


class Slope(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, score, b, h, q_idx, kv_idx):
        return score - self.slope * (q_idx - kv_idx).abs()


def test_captured_tensors_are_named():
    layout = check_layout(*inputs()[:2])
    local = random(HEADS, grad=True)
    assert Dot().captured(layout) == []
    for mod, expected in (
        (lambda s, b, h, q, k: s * local[h], [local]),  # of a closure
        (SCORES["graph"], [DISTANCES, GRAPH]),  # globals
        (squeeze, []),
    ):
        captured = Dot().modified(mod).captured(layout)
        assert len(captured) == len(expected)
        assert all(any(tensor is other for other in expected) for tensor in captured)
    (documents,) = {id(tensor): tensor for tensor in visible(same_document).bind(layout).tensors}.values()
    assert documents is same_document.__globals__["DOCUMENTS"]


def test_a_module_is_part_of_the_score():
    slope = Slope()
    score = Dot().modified(slope)
    assert [*score.parameters()] == [slope.slope]
    query, key, value = inputs()
    assert score.captured(check_layout(query, key)) == []
    output = attend(query, key, value, score=score)
    steps = (torch.arange(N)[:, None] - torch.arange(M)).abs()
    wanted, _ = reference.attend(reference.scores(Dot(), query, key) - slope.slope * steps, value)
    assert_same_gradients(output, wanted, [slope.slope])


def test_a_captured_tensor_that_changes_is_noticed_in_the_backward_pass():
    query, key, value = inputs(grad=True)
    table = random(HEADS)
    output = attend(query, key, value, score=Dot().modified(lambda s, b, h, q, k: s * table[h]))
    table.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


# --------------------------------------------------------------------------------------------------------- and the rest


def test_functions_show_their_names():
    assert repr(visible(same_document)) == "visible(same_document)"
    assert "score_mod=squeeze" in repr(Dot().modified(squeeze))
    assert "Slope" in repr(Dot().modified(Slope()))
    copied = pickle.loads(pickle.dumps(visible(MASK_MODS[1])))
    query, key, _ = inputs()
    assert torch.equal(weights(query, key, mask=copied), weights(query, key, mask=visible(MASK_MODS[1])))


def test_wrong_functions_are_refused():
    query, key, _ = inputs()
    with pytest.raises(TypeError, match=r"score_mod: expected a function .*, got int"):
        Dot().modified(3)
    with pytest.raises(ValueError, match=r"score_mod: expected .* without dimensions, got shape \(3,\)"):
        Dot().modified(lambda s, b, h, q, k: s * TABLE[:, 0])(query, key)


@pytest.mark.parametrize("shape", [(0, 3, 5, 7), (2, 0, 5, 7), (2, 3, 0, 7), (2, 3, 5, 0)])
def test_sizes_of_nothing(shape):
    batch, heads, n, m = shape
    query, key, value = random(batch, heads, n, 4), random(batch, heads, m, 4), random(batch, heads, m, 3)
    mask, score = visible(lambda b, h, q, k: DOCUMENT[q] == DOCUMENT[k]), Dot().modified(SCORES["table"])
    output, found = attend(query, key, value, mask=mask, score=score, need_weights=True)
    assert (output.shape, found.shape) == ((batch, heads, n, 3), shape)
    assert not output.any()


def test_half_precision_scores_are_modified_in_full():
    query, key, value = (tensor.to(torch.bfloat16) for tensor in inputs())
    seen = []

    def note(score, b, h, q_idx, kv_idx):
        seen.append(score.dtype)
        return score

    assert attend(query, key, value, score=Dot().modified(note)).dtype == torch.bfloat16
    assert set(seen) == {torch.float32}


def test_compiled():
    """A function is traced into the graph of what calls it."""
    torch._dynamo.reset()

    def scores(query, key, table):
        return Dot().modified(lambda s, b, h, q, k: torch.tanh(s) + table[h, q - k + M])(query, key)

    compiled = torch.compile(scores, fullgraph=True, backend="eager", dynamic=True)
    query, key, _ = inputs()
    assert_near(compiled(query, key, TABLE), scores(query, key, TABLE), 1e-12)

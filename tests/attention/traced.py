"""What the tests of traced calls share: masks made of tensors that are arguments, and how results are compared."""

from torch.utils._pytree import tree_leaves

import regard
from tests.attention.cases import assert_near
from tests.attention.meanings import Draw


def assert_same(got, expected, tolerance=1e-11):
    for one, other in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        assert_near(one, other, tolerance)


# name → the tensors that a mask is made of, and how
MADE = {
    "none": (lambda s: (), lambda: None),
    "lengths": (lambda s: (Draw(5).integers(0, s.m + 1, (s.batch,)),), regard.lengths),
    "keep": (lambda s: (Draw(6).booleans((s.batch, 1, s.n, s.m)),), regard.keep),
    "bias & causal": (
        lambda s: (Draw(7).normal(s.n, s.m),),
        lambda added: regard.bias(added) & regard.causal(align="start"),
    ),
    "alibi & window": (
        lambda s: (Draw(8).normal(s.heads),),
        lambda slopes: regard.alibi(slopes, align="end") & regard.window(3, 2, align="end"),
    ),
    "opposite of drop": (lambda s: (Draw(9).booleans((s.n, s.m)),), lambda dropped: ~regard.drop(dropped)),
    "visible": (
        lambda s: (Draw(10).integers(0, 3, (s.m,)),),
        lambda kinds: regard.visible(lambda b, h, q_idx, kv_idx: kinds[kv_idx] != h),
    ),
}

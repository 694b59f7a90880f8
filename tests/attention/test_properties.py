"""Properties that hold for any shapes and numbers, searched by hypothesis; by many more examples in `make faults`."""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.attention import Dot, Kernel, attend, bias, causal, drop, keep, lengths, masked_softmax, weights, window
from tests.attention.cases import RANDOM_SCORES, assert_near
from tests.attention.meanings import Draw

pytestmark = [pytest.mark.faults] if os.environ.get("HYPOTHESIS_PROFILE") == "faults" else []
# The fixture only sets the number of threads, which may stay from one example to the next.
examples = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

SIZES = st.integers(1, 7)
SEEDS = st.integers(0, 2**31)
SCORES = st.sampled_from(list(RANDOM_SCORES))


class Problem(Draw):
    """Random tensors of drawn sizes: query (b, n, d), key (b, m, d), value (b, m, 3), all in float64, and a score."""

    def __init__(self, name, b, n, m, d, seed):
        super().__init__(seed)
        self.b, self.n, self.m = b, n, m
        self.query, self.key, self.value = self.normal(b, n, d), self.normal(b, m, d), self.normal(b, m, 3)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.score = RANDOM_SCORES[name](self, d, d).double()

    def attend(self, mask=None, **changed):
        inputs = {"query": self.query, "key": self.key, "value": self.value} | changed
        with torch.no_grad():
            output, attention = attend(**inputs, score=self.score, mask=mask, need_weights=True)
            alone = attend(**inputs, score=self.score, mask=mask)
        assert_near(alone, output, 1e-12, "the output with and without weights")
        return output, attention


problems = st.builds(Problem, SCORES, SIZES, SIZES, SIZES, st.integers(1, 4), SEEDS)
squares = st.builds(lambda name, b, n, d, seed: Problem(name, b, n, n, d, seed), SCORES, SIZES, SIZES, SIZES, SEEDS)


@given(problems, st.booleans())
@examples
def test_rows_sum_to_one_or_to_nothing(problem, masked):
    mask = keep(problem.booleans((problem.b, problem.n, problem.m))) if masked else None
    output, attention = problem.attend(mask)
    total = attention.sum(-1)
    assert (attention >= 0).all()
    assert (((total - 1).abs() < 1e-12) | (total == 0)).all()
    assert (output[total == 0] == 0).all()
    # An average lies between the smallest and the largest of what is averaged.
    low, high = problem.value.amin(1, keepdim=True), problem.value.amax(1, keepdim=True)
    some = (total > 0)[..., None]
    assert ((output >= low - 1e-12) & (output <= high + 1e-12))[some.expand_as(output)].all()


@given(problems)
@examples
def test_the_order_of_the_keys_does_not_matter(problem):
    order, allowed = problem.permutation(problem.m), problem.booleans((problem.n, problem.m))
    output, attention = problem.attend(keep(allowed))
    permuted, permuted_attention = problem.attend(
        keep(allowed[:, order]), key=problem.key[:, order], value=problem.value[:, order]
    )
    assert_near(permuted, output, 1e-12)
    assert_near(permuted_attention, attention[..., order], 1e-12)


@given(problems)
@examples
def test_the_order_of_the_queries_is_that_of_the_answers(problem):
    order, allowed = problem.permutation(problem.n), problem.booleans((problem.n, problem.m))
    output, _ = problem.attend(keep(allowed))
    permuted, _ = problem.attend(keep(allowed[order]), query=problem.query[:, order])
    assert_near(permuted, output[:, order], 1e-12)


@given(problems, SIZES)
@examples
def test_padding_does_not_matter(problem, more):
    """Keys behind the valid length are as good as none, whatever they are."""
    output, attention = problem.attend()
    longer = {
        name: torch.cat([tensor, 100 * problem.normal(problem.b, more, tensor.shape[-1])], 1)
        for name, tensor in (("key", problem.key), ("value", problem.value))
    }
    padded, padded_attention = problem.attend(lengths([problem.m] * problem.b), **longer)
    assert_near(padded, output, 1e-12)
    assert_near(padded_attention[..., : problem.m], attention, 1e-12)
    assert (padded_attention[..., problem.m :] == 0).all()


@given(problems)
@examples
def test_each_sequence_is_on_its_own(problem):
    """A batch with lengths gives what each sequence gives alone, cut to its length."""
    counts = problem.integers(0, problem.m + 1, (problem.b,))
    output, _ = problem.attend(lengths(counts))
    for b, count in enumerate(counts.tolist()):
        rows = problem.query[b], problem.key[b, :count], problem.value[b, :count]
        assert_near(output[b], attend(*rows, score=problem.score), 1e-12)


@given(problems, st.floats(-50, 50))
@examples
def test_a_constant_added_to_a_row_does_not_matter(problem, shift):
    allowed = problem.booleans((problem.n, problem.m))
    output, _ = problem.attend(keep(allowed))
    constants = shift * problem.normal(problem.b, problem.n, 1)
    for added in (constants, constants.expand(-1, -1, problem.m)):
        shifted, _ = problem.attend(keep(allowed) & bias(added))
        assert_near(shifted, output, 1e-11)


@given(squares, st.data())
@examples
def test_a_causal_prefix_does_not_know_what_follows(problem, data):
    """The first rows of a causal sequence are the same when the sequence ends after them."""
    end = data.draw(st.integers(1, problem.n))
    output, _ = problem.attend(causal())
    first = {name: getattr(problem, name)[:, :end] for name in ("query", "key", "value")}
    assert_near(output[:, :end], problem.attend(causal(), **first)[0], 1e-12)


@given(squares, st.data())
@examples
def test_a_causal_suffix_against_a_cache(problem, data):
    """The last rows alone, with all keys and align="end", are those of the whole."""
    start = data.draw(st.integers(0, problem.n - 1))
    output, _ = problem.attend(causal())
    for mask in (causal(align="end"), causal(offset=start)):
        last, _ = problem.attend(mask, query=problem.query[:, start:])
        assert_near(last, output[:, start:], 1e-12)


@given(problems)
@examples
def test_ways_to_say_the_same(problem):
    counts = problem.integers(0, problem.m + 1, (problem.b, problem.n))
    allowed = torch.arange(problem.m) < counts[..., None]
    ways = [
        keep(allowed),
        drop(~allowed),
        bias(torch.where(allowed, 0.0, -torch.inf)),
        lengths(counts),
        keep(allowed) & keep(allowed),
        drop(~allowed) | lengths(counts),
    ]
    results = [problem.attend(mask) for mask in ways]
    for output, attention in results[1:]:
        assert_near(output, results[0][0], 1e-12)
        assert_near(attention, results[0][1], 1e-12)


def visible(mask, problem):
    return masked_softmax(torch.zeros(problem.b, problem.n, problem.m, dtype=torch.float64), mask) > 0


@given(problems)
@examples
def test_the_algebra_of_masks(problem):
    a, b, c = (problem.booleans((problem.b, problem.n, problem.m)) for _ in range(3))
    A, B, C = keep(a), keep(b), keep(c)
    for mask, allowed in (
        (A & B, a & b),
        (A | B, a | b),
        ((A & B) & C, a & b & c),
        (A & (B & C), a & b & c),
        ((A | B) | C, a | b | c),
        (A | (B | C), a | b | c),
        # De Morgan: drop is not keep.
        (drop(a) & drop(b), ~(a | b)),
        (drop(a) | drop(b), ~(a & b)),
        # Each within the other.
        (A & (B | C), a & (b | c)),
        ((A & B) | C, (a & b) | c),
        ((A | B) & (A | C), (a | b) & (a | c)),
    ):
        assert torch.equal(visible(mask, problem), allowed), mask


@given(problems, st.integers(-9, 9), st.integers(0, 9), st.integers(0, 9))
@examples
def test_bands_are_made_of_causal_and_window(problem, offset, left, right):
    i, j = torch.arange(problem.n)[:, None], torch.arange(problem.m)
    behind, ahead = j >= i + offset - left, j <= i + offset + right
    for mask, allowed in (
        (causal(offset), j <= i + offset),
        (window(None, 0, offset), j <= i + offset),
        (causal(offset + right), ahead),
        (window(None, right, offset), ahead),
        (window(left, right, offset), behind & ahead),
        (window(left, None, offset) & window(None, right, offset), behind & ahead),
    ):
        assert torch.equal(visible(mask, problem), allowed.expand(problem.b, problem.n, problem.m)), mask


@given(squares)
@examples
def test_a_window_of_nothing_is_the_diagonal(problem):
    output, attention = problem.attend(window(0, 0))
    reached = attention.diagonal(dim1=-2, dim2=-1)  # a compact kernel may not reach even that
    assert ((reached == 1) | (reached == 0)).all()
    assert_near(output, problem.value * reached[..., None], 1e-12)


@given(problems, st.floats(0.1, 10))
@examples
def test_scaling(problem, factor):
    """Output is linear in the values; a scaled dot product is the dot product of scaled queries."""
    output, attention = problem.attend()
    scaled, _ = problem.attend(value=factor * problem.value + 1)
    reached = (attention.sum(-1, keepdim=True) > 0).double()
    assert_near(scaled, factor * output + reached, 1e-11)
    steeper = Dot(scale=factor / problem.query.shape[-1] ** 0.5)
    assert_near(weights(problem.query, problem.key, score=steeper), weights(factor * problem.query, problem.key), 1e-12)
    # A kernel only sees distances in widths.
    near = weights(problem.query, problem.key, score=Kernel("gaussian", 1.0))
    far = weights(factor * problem.query, factor * problem.key, score=Kernel("gaussian", factor))
    assert_near(far, near, 1e-11)


@given(problems)
@examples
def test_equal_keys_share_equally(problem):
    first = problem.key[:, :1].expand_as(problem.key)
    _, attention = problem.attend(key=first)
    assert ((attention - 1 / problem.m).abs().lt(1e-12) | (attention == 0)).all()

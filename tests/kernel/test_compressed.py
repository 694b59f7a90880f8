"""Compressed samples: merged in any order they are the same state, and say what all samples would say."""

import math
import pickle
from functools import partial

import numpy
import pytest

from regard.attention.sums_1d import Samples1D
from regard.kernel.compressed import LIMIT, NODES, Compressed, merge_all
from regard.kernel.features import Features, Rows
from regard.kernel.local import fit_locally
from regard.kernel.parts import MergedSamples
from regard.kernel.pyramid import Pyramid, scan

SHAPES = {
    "uniform": lambda random, n: random.uniform(0, 10, n),
    "normal": lambda random, n: random.normal(-3, 1, n),
    "clusters": lambda random, n: 3.0 * random.integers(0, 4, n) + random.normal(0, 0.02, n),
    "heavy tails": lambda random, n: random.standard_cauchy(n),
    "ties": lambda random, n: numpy.round(random.normal(0, 3, n), 2),
    "seconds since 1970": lambda random, n: 1.7e9 + random.uniform(0, 1e6, n),
    "outliers": lambda random, n: numpy.append(random.uniform(0, 1, n - 3), [1.9, -0.8, -1.1]),
}
DEGREES = (0, 1, 2, 3)


def samples(shape, n, outputs=2, seed=0):
    """x (n,), values (n, outputs), and a bandwidth that suits most of them."""
    random = numpy.random.default_rng(seed)
    x = SHAPES[shape](random, n)
    spread = numpy.subtract(*numpy.quantile(x, [0.75, 0.25]))
    wave = numpy.sin(5 * (x - numpy.median(x))[:, None] / spread + numpy.arange(outputs))
    return x, 100 + wave + random.normal(0, 0.5, (n, outputs)), spread / 8


def local_fit(sums, degree):
    """The heights (n, outputs) of local polynomials, and (S⁻¹)₀₀ (n,)."""
    fit = fit_locally(sums, 1, degree)
    return fit.heights, fit.duals[:, 0]


def heights_of(state, width, queries):
    """Local averages at queries (n,), about the values' mean."""
    samples, rows = MergedSamples(state, Features(["number"], numpy.array([numpy.inf]))), queries[:, None]
    return samples.fit(numpy.array([width]), Rows(rows, rows[:, :0])).heights


def dense_fit(v, weights, values, degree):
    """The local polynomial's height at v = 0, and how much a sample there counts, from sums over all samples."""
    columns = weights[:, None] * numpy.column_stack([numpy.ones(len(v)), values])
    return local_fit((v[:, None] ** numpy.arange(2 * degree + 1)).T[None] @ columns, degree)


def exact_errors(x, values, width, degree):
    """Leave-one-out mean squared errors, the trace of the hat matrix and in-sample errors, sample by sample."""
    values, loo, within, trace = values - values.mean(0), 0.0, 0.0, 0.0
    for i in range(len(x)):
        v, others = (x - x[i]) / width, numpy.arange(len(x)) != i
        height, leverage = dense_fit(v, numpy.exp(-(v**2) / 2), values, degree)
        within, trace = within + (values[i] - height[0]) ** 2, trace + leverage[0]
        v = v[others]
        height, _ = dense_fit(v, numpy.exp((numpy.min(v**2) - v**2) / 2), values[others], degree)  # by the nearest
        loo = loo + (values[i] - height[0]) ** 2
    return loo / len(x), trace, within / len(x)


def same_state(a, b):
    assert (a.level, a.size, a.low, a.high) == (b.level, b.size, b.low, b.high)
    numpy.testing.assert_array_equal(a.x, b.x)
    numpy.testing.assert_array_equal(a.keys, b.keys)
    scale = abs(b.moments).max(initial=1)
    b = b.about(a.shift)
    numpy.testing.assert_allclose(a.columns, b.columns, rtol=1e-10, atol=1e-10 * scale)
    numpy.testing.assert_allclose(a.moments, b.moments, rtol=1e-10, atol=1e-10 * scale)


# -------------------------------------------------------------------------------------------------------- the same sums


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_sums_are_those_of_all_samples(shape, outputs):
    x, values, _ = samples(shape, 20011, outputs)
    state = Compressed.from_samples(x, values, limit=1500)
    assert state.size <= 1500
    assert len(state.keys) or shape == "ties"
    order, random = numpy.argsort(x), numpy.random.default_rng(1)
    exact = Samples1D(x[order], numpy.column_stack([numpy.ones(len(x)), values - state.mean])[order])
    queries = numpy.sort(random.choice(x, 499))
    shuffled = random.permutation(499)
    for factor in (1, 1.3, 2, 16, 1024):
        width = factor * (state.narrowest or 0.01)
        expected = local_fit(exact.sums("gaussian", width, queries), 0)[0]
        heights = heights_of(state, width, queries[shuffled])
        numpy.testing.assert_allclose(heights, expected[shuffled], rtol=1e-10, atol=1e-10)


def test_far_from_all_samples_the_nearest_cells_count():
    x, values, _ = samples("uniform", 5003, 1)
    state = Compressed.from_samples(x, values, limit=700)
    near, far = x.max() + 7 * state.narrowest, x.max() + 1e6
    exact = Samples1D(numpy.sort(x), numpy.column_stack([numpy.ones(len(x)), values - state.mean])[numpy.argsort(x)])
    width = state.narrowest
    expected = local_fit(exact.sums("gaussian", width, numpy.array([near])), 0)[0]
    heights = heights_of(state, width, numpy.array([far, near])) + state.mean
    assert heights[1] == pytest.approx(expected[0] + state.mean, abs=1e-9)
    last = values[x >= x.max() - 2 * state.narrowest]
    assert last.min() < heights[0] < last.max()
    numpy.testing.assert_array_equal(state.is_far(width, numpy.array([x.mean(), near, far, -far])), [0, 0, 1, 1])
    numpy.testing.assert_allclose(state.add_up_nodes(state.points.columns), state.centroids().columns, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_known_of_all_samples_stays_known(shape):
    x, values, _ = samples(shape, 20011)
    state = Compressed.from_samples(x, values, limit=1500)
    assert (state.count, state.low, state.high) == (len(x), x.min(), x.max())
    numpy.testing.assert_allclose(state.mean, values.mean(0), rtol=1e-12)
    numpy.testing.assert_allclose(state.variance, values.var(0), rtol=1e-12)


def test_few_distinct_samples_are_kept_as_they_are():
    x, values, _ = samples("ties", 20011)
    state = Compressed.from_samples(x, values)
    assert state.narrowest == 0
    numpy.testing.assert_array_equal(state.x, numpy.unique(x))
    assert Compressed.from_samples(x, values, limit=300).narrowest > 0.01


def test_numbers_of_any_size_are_samples():
    x = numpy.array([-1e300, -1.0, 0.0, 5e-324, 1e-300, 1.0, 1.0 + 2**-52, 1e300])
    state = Compressed.from_samples(numpy.repeat(x, 3), numpy.arange(24.0))
    numpy.testing.assert_array_equal(state.x, x)
    crowd = numpy.append(numpy.linspace(0, 1, 2000), 1e300)
    state = Compressed.from_samples(crowd, crowd > 0.5, limit=300)
    assert state.narrowest < 0.2
    assert state.x[-1] == 1e300


# ------------------------------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_in_any_order_make_the_same_state(shape):
    x, values, _ = samples(shape, 20011)
    whole = Compressed.from_samples(x, values, limit=1500)
    random = numpy.random.default_rng(3)
    for parts in (2, 7, 31):
        ends = numpy.sort(random.integers(0, len(x), parts - 1))  # parts of any size, also none
        rows = numpy.split(random.permutation(len(x)) if parts == 7 else numpy.argsort(x), ends)
        states = [Compressed.from_samples(x[part], values[part], limit=1500) for part in rows]
        merged = states[0]
        for index in 1 + random.permutation(parts - 1):
            merged = merged.merge(states[index], limit=1500)
        same_state(merged, whole)


@pytest.mark.parametrize("shape", SHAPES)
def test_coarsened_twice_is_coarsened_once(shape):
    x, values, _ = samples(shape, 5003)
    state = Compressed.from_samples(x, values, limit=3000)
    level = math.frexp(numpy.ptp(x))[1] - 4
    slowly = state
    for step in range(level - 9, level + 1):
        slowly = slowly.coarsened(step)
    same_state(slowly, state.coarsened(level))
    same_state(slowly, Compressed.from_samples(x, values, limit=math.inf).coarsened(level))


def test_many_states_are_merged_in_pairs_and_survive_a_journey():
    x, values, _ = samples("normal", 20011)
    states = [pickle.loads(pickle.dumps(Compressed.from_samples(x[i::5], values[i::5]))) for i in range(5)]
    same_state(merge_all(states), Compressed.from_samples(x, values))
    with pytest.raises(ValueError, match="other: expected a state of 2 outputs, got 1"):
        states[0].merge(Compressed.from_samples(x, values[:, 0]))


def test_counts_are_so_many_samples():
    x, values, _ = samples("normal", 5003)
    counts = numpy.random.default_rng(4).integers(0, 4, len(x))
    state = Compressed.from_samples(x, values, counts, limit=500)
    same_state(state, Compressed.from_samples(numpy.repeat(x, counts), numpy.repeat(values, counts, axis=0), limit=500))


def test_memory_is_bounded():
    x = numpy.random.default_rng(5).uniform(0, 1, 2 * LIMIT)
    state = Compressed.from_samples(x, x)
    assert LIMIT / 2 < state.size <= LIMIT
    assert len(pickle.dumps(state)) < 10e6
    assert state.narrowest < 2 * 2 * NODES / LIMIT * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, math.nan], [1.0, 2.0]), "x: expected finite numbers"),
        (([0.0, 1.0], [1.0, math.inf]), "values: expected finite numbers"),
        (([0.0, 1.0], [1.0, 2.0], [1.0, 0.5]), "counts: expected whole numbers"),
        (([0.0, 1.0], [1.0, 2.0], [1, -1]), "counts: expected whole numbers"),
        (([0.0, 1.0], [1.0]), "x: expected"),
        (([[0.0, 1.0]], [1.0]), "x: expected"),
    ],
)
def test_what_cannot_be_compressed_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Compressed.from_samples(*arguments)


# ---------------------------------------------------------------------------------------------------- leaving one out


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_errors_are_those_of_the_hat_matrix(shape, degree):
    x, values, width = samples(shape, 401)
    pyramid = Pyramid.from_samples(x, values)
    for factor in (0.3, 1, 4):
        loo, trace, in_sample = exact_errors(x, values, factor * width, degree)
        error = pyramid.error(factor * width, degree)
        precision = 1e-9 * 100**degree  # a polynomial that reaches far over a gap multiplies rounding errors
        numpy.testing.assert_allclose(error.loo, loo, rtol=precision)
        numpy.testing.assert_allclose(error.in_sample, in_sample, rtol=precision)
        assert error.trace == pytest.approx(trace, rel=precision)


def exact_loo(x, values, width, degree):
    """From sums over the samples themselves: exact also for more of them than a hat matrix allows."""
    order = numpy.argsort(x)
    columns = numpy.column_stack([numpy.ones(len(x)), values - values.mean(0)])[order]
    sums = Samples1D(x[order], columns).sums_of_others("gaussian", width, 2 * degree)
    return numpy.square(columns[:, 1:] - local_fit(sums, degree)[0]).mean(0)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_merged_state_has_the_errors_of_all_samples(shape, degree):
    x, values, width = samples(shape, 20011)
    parts = [Compressed.from_samples(x[i::3], values[i::3], limit=4000) for i in range(3)]
    state, pyramid = merge_all(parts, partial(Compressed.merge, limit=4000)), Pyramid.from_samples(x, values)
    for factor in (1, 3, 10, 1000):
        assert factor * width >= state.narrowest
        exact = exact_loo(x, values, factor * width, degree)
        # A polynomial that reaches far over a gap multiplies rounding errors, those of all samples as well.
        precision = 1e-9 if shape not in ("heavy tails", "outliers") else 1e-9 * 100**degree
        numpy.testing.assert_allclose(Pyramid(state).error(factor * width, degree).loo, exact, rtol=precision)
        numpy.testing.assert_allclose(pyramid.error(factor * width, degree).loo, exact, rtol=precision)


@pytest.mark.parametrize("degree", DEGREES)
def test_cells_side_by_side_know_of_the_gaps_between_them(degree):
    random = numpy.random.default_rng(8)
    x = random.uniform(0, 10, 60013)
    x = x[(abs(x - 3) > 0.1) & (abs(x - 7) > 0.3) & (abs(x - 7.5) > 0.01)]
    values = numpy.sin(5 * x)[:, None] + random.normal(0, 0.5, (len(x), 2))
    exact = exact_loo(x, values, 0.04, degree)
    numpy.testing.assert_allclose(Pyramid.from_samples(x, values).error(0.04, degree).loo, exact, rtol=1e-10)


def test_a_sample_far_from_a_crowd_is_estimated_by_the_nearest_of_it():
    """Nodes do not serve there: a pyramid asks the samples, a state its cells' means."""
    x, values, _ = samples("uniform", 5003, 1)
    x = numpy.append(x, [1e4, -1e9])
    values = numpy.append(values, [[103.0], [97.0]], axis=0)
    exact = exact_loo(x, values, 0.5, 0)
    assert Pyramid.from_samples(x, values).error(0.5).loo == pytest.approx(exact, rel=1e-11)
    assert Pyramid(Compressed.from_samples(x, values, limit=1000)).error(0.5).loo == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_scan_finds_the_least_error(shape, degree):
    x, values, _ = samples(shape, 5003)
    pyramid, state = Pyramid.from_samples(x, values), Compressed.from_samples(x, values, limit=2000)
    best = scan(pyramid, degree)
    least = pyramid.error(best, degree).loo.mean()
    for factor in 2.0 ** numpy.arange(-6, 7, 0.4):
        assert least <= pyramid.error(factor * best, degree).loo.mean() * (1 + 1e-3)
    if best > 2 * state.narrowest:
        assert scan(Pyramid(state), degree) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("period", [1.0, 3e-5])
def test_a_scan_of_many_samples_misses_no_narrow_valley(period):
    """Below a few gaps only stretches are looked at, unless the least error may be there."""
    random = numpy.random.default_rng(6)
    x = random.uniform(0, 1, 300007)
    values = numpy.sin(2 * numpy.pi * x / period) + random.normal(0, 0.05, len(x))
    pyramid = Pyramid.from_samples(x, values)
    best = scan(pyramid)
    least = exact_loo(x, values[:, None], best, 0)[0]
    for width in (1e-6, 4e-6, 1.6e-5, 1e-4, 1e-3, 1e-2):
        assert least < exact_loo(x, values[:, None], width, 0)[0]
    assert (best < 1e-5) == (period < 1e-3)


def test_a_scan_of_many_samples_in_cells_looks_at_all_of_them(monkeypatch):
    """In a state that is compressed throughout, no width is so narrow that stretches have to do."""
    x, values, _ = samples("normal", 5003)
    pyramid = Pyramid(Compressed.from_samples(x, values, limit=500))
    best = scan(pyramid)
    monkeypatch.setattr("regard.kernel.pyramid.MANY", 1)
    assert scan(pyramid) == best


def test_the_criterion_of_a_scan_is_free():
    x, values, _ = samples("normal", 2003)

    def corrected_akaike(error):
        return math.log(error.in_sample.mean()) + 2 * (error.trace + 1) / (len(x) - error.trace - 2)

    pyramid = Pyramid.from_samples(x, values)
    best = scan(pyramid, criterion=corrected_akaike)
    least = corrected_akaike(pyramid.error(best))
    assert all(least < corrected_akaike(pyramid.error(factor * best)) for factor in (0.1, 0.5, 0.8, 1.25, 2, 10))


def test_samples_at_one_place_have_their_mean():
    values = numpy.random.default_rng(7).normal(100, 1, 31)
    pyramid = Pyramid.from_samples(numpy.full(31, 5.0), values)
    assert scan(pyramid) == math.inf
    left_out = (values.sum() - values) / 30
    assert pyramid.error(math.inf).loo[0] == pytest.approx(numpy.square(values - left_out).mean(), rel=1e-12)
    assert math.isnan(Pyramid.from_samples([5.0], [1.0]).error(1.0).loo[0])  # of one sample nothing is left

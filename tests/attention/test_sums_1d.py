"""Kernel sums over one feature, against the sums themselves; and the averages that `attend` makes of them."""

import numpy
import pytest
import torch

from regard import Kernel, attend, lengths
from regard.attention import sums_1d
from regard.attention.kernels import KERNELS
from regard.attention.sums_1d import NEAR, Samples1D
from tests.attention.kernel_sums import SMOOTH, assert_same_sums, kernel_and_slope

FORMS = ("kernel", "squared", "slope")


def direct_sums(name, x, columns, width, queries, order=0, form="kernel", left_out=None):
    """The definition; the same of absolute values, by which errors are judged; and of what may be left out.

    left_out (n, 2): the samples [begin, end) that take no part in a query's sums.
    """
    v = (x - queries[:, None]) / width
    out = numpy.zeros(v.shape, dtype=bool)
    if left_out is not None:
        index = numpy.arange(len(x))
        out = (index >= left_out[:, :1]) & (index < left_out[:, 1:])
    with numpy.errstate(invalid="ignore"):
        kernel, slope = kernel_and_slope(name, numpy.where(out, numpy.inf, numpy.abs(v)))
    negligible = (kernel**2 if form == "squared" else kernel) < (2e-16 if name in SMOOTH else 0)
    if name == "gaussian":  # relative to the nearest sample only where that is not near
        nearest = numpy.where(out, numpy.inf, numpy.abs(v)).min(1, keepdims=True)
        factor = numpy.where(nearest <= NEAR, numpy.exp(-(nearest**2) / 2), 1)
        kernel, slope = kernel * factor, slope * factor
    kernel = kernel**2 if form == "squared" else kernel
    kernel, v = numpy.where(out, 0, slope if form == "slope" else kernel), numpy.where(out, 0, v)
    rows = [kernel * v**k for k in range(order + 1)]
    sizes, tails = (
        numpy.stack([numpy.abs(row * part) @ numpy.abs(columns) for row in rows], 1) for part in (1, negligible)
    )
    return numpy.stack([row @ columns for row in rows], 1), sizes, tails


def samples(n, seed=0, origin=0.0):
    """Dense and sparse stretches, a gap, samples that share a place, and one that is alone."""
    random = numpy.random.default_rng(seed)
    x = numpy.concatenate([random.uniform(0, 1, n // 2), random.uniform(4, 9, n - n // 2)])
    x[: n // 7] = numpy.round(x[: n // 7], 1)
    if n > 2:
        x[-1] = 31.0
    x = numpy.sort(x) + origin
    weights = random.uniform(0.1, 2, n)
    return x, numpy.stack([weights, weights * (numpy.sin(x) + random.normal(size=n))], 1)


def draw_queries(x, count, seed=1):
    random = numpy.random.default_rng(seed)
    near, far = random.uniform(x[0] - 1, x[-1] + 1, count), random.uniform(x[0] - 400, x[-1] + 400, count // 3)
    return numpy.sort(numpy.concatenate([near, far, x[:3]]))


def assert_exact(sums, truth, sizes, tails):
    """To 1e-9 of the sums of absolute terms."""
    assert (numpy.abs(sums - truth) <= 1e-9 * sizes + 1.1 * tails).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "width"), [(1, 0.3), (2, 7.0), (499, 0.2), (601, 3.1), (307, 0.003), (401, 50.0)])
def test_sums_are_the_direct_sums(name, form, n, width):
    x, columns = samples(n)
    queries = draw_queries(x, 151)
    truth = direct_sums(name, x, columns, width, queries, 8, form)
    ours = Samples1D(x, columns)
    for order in (0, 1, 8):
        rows = slice(order + 1)
        assert_exact(ours.sums(name, width, queries, order, form), *(sums[:, rows] for sums in truth))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
def test_from_a_millionth_of_a_gap_to_a_billion_ranges(name, form):
    """Even spacing, clusters, a tail, places that many samples share; most of the sums of high orders would cancel."""
    random = numpy.random.default_rng(5)
    shapes = {
        "even": random.uniform(0, 1, 211),
        "clusters": 3.0 * random.integers(0, 5, 97) + 1e-4 * random.normal(size=97),
        "tail": random.standard_t(1.5, 199),
        "shared": random.integers(0, 9, 101).astype(float),
    }
    for shape, points in shapes.items():
        x, columns = numpy.sort(points), random.normal(size=(len(points), 2))
        columns[:, 0] = random.uniform(0.1, 2, len(points))
        extent, gap = x[-1] - x[0], float(numpy.median(numpy.diff(numpy.unique(x))))
        queries = numpy.concatenate([random.uniform(x[0] - extent / 5, x[-1] + extent / 5, 53), x[:31]])
        queries.sort()
        ours = Samples1D(x, columns)
        for width in (1e-6 * gap, 2 * gap, extent / 30, 3 * extent, 1e9 * extent):
            if name == "gaussian" and width < gap:  # plain sums lose digits where v² is 1e12; ratios are those of one
                queries = x[:31]
            truth = direct_sums(name, x, columns, width, queries, 8, form)
            sums = ours.sums(name, width, queries, 8, form)
            assert (numpy.abs(sums - truth[0]) <= 1e-9 * truth[1] + 1.1 * truth[2]).all(), (shape, width)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in KERNELS if KERNELS[name].compact])
def test_what_is_just_out_of_reach_leaves_no_trace(name, form):
    """A sample that weighs 1e10 times as much as those beside it."""
    random = numpy.random.default_rng(14)
    x, columns = numpy.append(0, numpy.sort(random.uniform(0.05, 0.45, 97))), random.uniform(0.5, 1, (98, 2))
    columns[0] *= 1e10
    queries = numpy.sort(random.uniform(1.001, 1.3, 53))
    truth = direct_sums(name, x, columns, 1.0, queries, 4, form)
    assert_exact(Samples1D(x, columns).sums(name, 1.0, queries, 4, form), *truth)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [0.02, 0.1, 0.9, 4.0, 1e9])
def test_many_queries_in_any_order(width, form, monkeypatch):
    """On a grid of groups, or sorted: near samples and far from them, in clusters much narrower than a group."""
    monkeypatch.setattr(sums_1d, "CHUNK", 211)
    random = numpy.random.default_rng(12)
    x, columns = samples(499)
    x[:97] = numpy.sort(2 + 1e-5 * random.normal(size=97))
    x = numpy.sort(x)
    queries = numpy.concatenate([random.uniform(-9, 40, 401), random.choice(x, 101), random.uniform(1.9, 2.1, 101)])
    random.shuffle(queries)
    for order in (0, 3, 8):
        truth = direct_sums("gaussian", x, columns, width, queries, order, form)
        for per_group in (1, 1 << 60):
            monkeypatch.setattr(sums_1d, "PER_GROUP", per_group)
            assert_exact(Samples1D(x, columns).sums("gaussian", width, queries, order, form), *truth)


@pytest.mark.parametrize("name", KERNELS)
def test_the_order_of_queries_changes_nothing(name):
    x, columns = samples(307)
    queries = draw_queries(x, 5003)
    mixed = numpy.random.default_rng(13).permutation(len(queries))
    sums = Samples1D(x, columns).sums(name, 0.3, queries, 2)
    assert_exact(Samples1D(x, columns).sums(name, 0.3, queries[mixed], 2), sums[mixed], numpy.abs(sums[mixed]), 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("n", "width"), [(2, 7.0), (211, 0.2), (401, 3.1), (307, 0.003)])
def test_every_sample_about_the_others(name, form, n, width):
    x, columns = samples(n, seed=2)
    index, ours = numpy.arange(n), Samples1D(x, columns)
    for order, block in ((0, 0), (3, 0), (4, 7), (0, n)):
        left_out = numpy.stack([index - block, index + block + 1], 1)
        truth = direct_sums(name, x, columns, width, x, order, form, left_out)
        if block == n:
            assert not ours.sums_of_others(name, width, order, form, block=block).any()
        else:
            assert_exact(ours.sums_of_others(name, width, order, form, block=block), *truth)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
def test_what_is_kept_of_a_sample_counts_beside_its_block(name, form):
    x, columns = samples(307, seed=6)
    index, left_out = numpy.arange(len(x)), columns * numpy.where(numpy.arange(len(x)) % 3, 1, 0.25)[:, None]
    beyond = numpy.stack([index - 5, index + 6], 1)
    whole = Samples1D(x, columns).sums_of_others(name, 0.03, 2, form, block=5)
    sums = Samples1D(x, columns).sums_of_others(name, 0.03, 2, form, left_out, 5)
    assert numpy.array_equal(sums[index % 3 > 0], whole[index % 3 > 0])
    kept = numpy.flatnonzero(index % 3 == 0)
    # The block once more, but with the sample's own rest in its place
    for i in kept[:40]:
        others = numpy.r_[0 : max(beyond[i, 0], 0), i, beyond[i, 1] : len(x)] if beyond[i, 1] < len(x) else None
        if others is not None:
            rest = numpy.where((others == i)[:, None], columns[others] - left_out[others], columns[others])
            assert_exact(sums[i : i + 1], *direct_sums(name, x[others], rest, 0.03, x[i : i + 1], 2, form))


def test_one_width_after_another():
    x, columns = samples(307)
    queries = draw_queries(x, 101)
    used = Samples1D(x, columns)
    for width in (0.2, 0.2, 1.7, 0.2):
        fresh = Samples1D(x, columns).sums("gaussian", width, queries)
        assert numpy.array_equal(used.sums("gaussian", width, queries), fresh)


@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_weight_three_is_three_samples(name):
    x, columns = samples(211, seed=3)
    columns[:, 1] /= columns[:, 0]
    columns[:, 0] = 1
    counts = numpy.random.default_rng(4).integers(1, 4, len(x))
    repeated = Samples1D(numpy.repeat(x, counts), numpy.repeat(columns, counts, axis=0)).sums_of_others(name, 0.2)
    weighted = Samples1D(x, columns * counts[:, None]).sums_of_others(name, 0.2, left_out=columns)
    expected = repeated[numpy.cumsum(counts) - 1]
    assert_same_sums(weighted, expected, numpy.abs(expected))


@pytest.mark.parametrize("name", KERNELS)
def test_far_from_zero_nothing_is_lost(name):
    x, columns = samples(499, origin=2.0**30)
    queries = draw_queries(x, 101)
    truth = direct_sums(name, x, columns, 0.25, queries, 2)
    assert_exact(Samples1D(x, columns).sums(name, 0.25, queries, 2), *truth)


def test_many_queries_beyond_the_data_are_interpolated():
    """Where every kernel value underflows: 1,000 widths away, and in a gap between samples."""
    x, columns = samples(997)
    for low, high in ((-40.0, -39.9), (1.6, 1.69), (12.0, 12.09), (60.0, 60.09)):
        queries = numpy.linspace(low, high, 211)
        truth = direct_sums("gaussian", x, columns, 0.1, queries, 8)
        assert_exact(Samples1D(x, columns).sums("gaussian", 0.1, queries, 8), *truth)


def test_many_equal_queries_beyond_the_data():
    x, columns = samples(997)
    for queries in (numpy.full(97, -2.0), numpy.repeat([17.0, numpy.nextafter(17.0, 18)], 41)):
        assert_exact(
            Samples1D(x, columns).sums("gaussian", 0.1, queries),
            *direct_sums("gaussian", x, columns, 0.1, queries),
        )


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    x, columns = samples(5003)
    queries = draw_queries(x, 4001)
    monkeypatch.setattr("regard.attention.threads.SHARE", 1)
    for name in ("gaussian", "tricube", "laplace"):
        sums = []
        for workers in (1, 2, 3):
            monkeypatch.setattr(torch, "get_num_threads", lambda workers=workers: workers)
            sums.append(Samples1D(x, columns).sums(name, 0.05, queries))
        assert all(numpy.array_equal(sums[0], other) for other in sums[1:]), name


# ------------------------------------------------------------------------------------------------------ as attention


@pytest.fixture
def sorting(monkeypatch):
    """Sorting, however few pairs there are."""
    monkeypatch.setattr(sums_1d, "WORTH_SORTING", 0)


def case(batch=(1, 1), n=397, m=499, columns=3):
    torch.manual_seed(0)
    return torch.randn(*batch, n, 1), torch.randn(*batch, m, 1), torch.randn(*batch, m, columns)


def assert_attention(output, query, key, value, tolerance=1e-6, **options):
    """Against all pairs in float64."""
    truth, _ = attend(query.double(), key.double(), value.double(), need_weights=True, **options)
    torch.testing.assert_close(output.double(), truth, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("width", [0.01, 0.3, 20.0])
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("batch", [(1, 1), (2, 1), (2, 3)])
def test_attend_takes_the_average_of_sorted_samples(sorting, name, width, batch):
    tensors, score = case(batch), Kernel(name, width)
    output = attend(*tensors, score=score)
    assert torch.equal(output, score.average(*tensors))
    assert_attention(output, *tensors, score=score)


def test_ragged_batches_take_it_sequence_by_sequence(sorting):
    query, key, value = case((3, 1))
    score, counts = Kernel(width=0.3), [499, 211, 307]
    key[1, :, 211:] = torch.nan
    output = attend(query, key, value, score=score, mask=lengths(counts))
    for b, count in enumerate(counts):
        part = slice(b, b + 1)
        assert torch.equal(output[part], score.average(query[part], key[part, :, :count], value[part, :, :count]))
    assert_attention(output, query, key.nan_to_num(0), value, score=score, mask=lengths(counts))


@pytest.mark.parametrize("change", ["few pairs", "wild values", "nan", "float64", "two features", "no numba"])
def test_where_it_does_not_fit_the_call_there_is_no_average(change, request, monkeypatch):
    if change != "few pairs":
        request.getfixturevalue("sorting")
    query, key, value = case()
    score = Kernel(width=0.3)
    if change == "wild values":
        value *= torch.logspace(-12, 12, value.shape[2])[:, None]
    if change == "nan":
        key[..., 7, :] = torch.nan
    if change == "float64":
        query, key, value = query.double(), key.double(), value.double()
    if change == "two features":
        query, key = torch.cat([query] * 2, -1), torch.cat([key] * 2, -1)
    if change == "no numba":
        monkeypatch.setattr(sums_1d, "load_kernels", lambda name: None)
    assert score.average(query, key, value) is None
    assert_attention(attend(query, key, value, score=score), query, key, value, 1e-4, score=score)


def test_a_learnable_width_gets_its_gradient(sorting):
    tensors, score = case(), Kernel(width=0.3, learnable=True)
    output = attend(*tensors, score=score)
    output.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in score.parameters())
    assert_attention(output.detach(), *tensors, 1e-4, score=score.requires_grad_(False))

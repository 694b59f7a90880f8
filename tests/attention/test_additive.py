"""The additive score: loops and tiles against w · tanh(query + key) in float64, and what they must survive."""

import itertools
import math
import os
import pickle
import runpy
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.attention import additive, threads
from regard.attention.additive import LIMIT, additive_scores, loop_limit

each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def formula(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ w


def ordinary(n: int, m: int, hidden: int, *, lead=(), key_lead=None, dtype=torch.float32, scale=1.0) -> list[Tensor]:
    """query, key and w that want gradients."""
    query = scale * torch.randn(*lead, n, hidden, dtype=dtype)
    key = scale * torch.randn(*(lead if key_lead is None else key_lead), m, hidden, dtype=dtype)
    return [x.requires_grad_() for x in (query, key, torch.randn(hidden, dtype=dtype))]


@pytest.fixture(params=["loops", "limited loops", "tiles", "small"])
def inputs(request, monkeypatch):
    """`ordinary`, so that the scores are computed in each of the ways: with numba's loops, with loops that have to cut
    off exponentials because one query and one key are large, in tiles, as without numba, and at once, as few pairs."""
    monkeypatch.setattr(additive, "SMALL", 1 << 40 if request.param == "small" else 0)
    if request.param == "tiles":
        monkeypatch.setattr(additive, "load_kernels", lambda name: None)

    def make(*sizes: int, **options) -> list[Tensor]:
        query, key, w = ordinary(*sizes, **options)
        if request.param == "limited loops":
            with torch.no_grad():
                for x in (query, key):
                    x[..., :1, :] += 25 if x.dtype == torch.float32 else 100
        if query.numel() and min(sizes[:2]) > 2:
            expected = {"loops": math.inf, "limited loops": LIMIT[query.dtype]}.get(request.param)
            assert loop_limit(query, key, w) == expected
        return [query, key, w]

    return make


@pytest.fixture(params=[0, 1 << 40], ids=["many", "few"])
def many_or_few(request, monkeypatch):
    """Whether a small problem goes the way of large ones."""
    monkeypatch.setattr(additive, "SMALL", request.param)


def results(scores, query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> list[Tensor]:
    """Scores and gradients."""
    out = scores(query, key, w)
    return [out.detach(), *torch.autograd.grad(out, (query, key, w), grad.to(out.dtype))]


def exactly(query: Tensor, key: Tensor, w: Tensor, grad: Tensor) -> list[Tensor]:
    """Scores and gradients of the formula, in float64."""
    return results(formula, *(x.detach().double().requires_grad_() for x in (query, key, w)), grad)


def assert_right(query: Tensor, key: Tensor, w: Tensor, grad: Tensor, tolerance: float) -> None:
    got = results(additive_scores, query, key, w, grad)
    for one, truth in zip(got, exactly(query, key, w, grad), strict=True):
        assert one.dtype == query.dtype
        torch.testing.assert_close(one.double(), truth, rtol=tolerance, atol=tolerance)


def same_bits(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


def run(script: str) -> str:
    """The output of a Python process of its own, which must end well."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the numbers


@each_dtype
@pytest.mark.parametrize(
    ("lead", "key_lead"),
    [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 3), (3,)), ((3,), (2, 1)), ((1,), ())],
    ids=str,
)
def test_scores_and_gradients_are_the_formulas(inputs, dtype, lead, key_lead, monkeypatch):
    monkeypatch.setattr(additive, "TILE", 500)  # several rows of tiles and several tiles in a row
    query, key, w = inputs(7, 19, 13, lead=lead, key_lead=key_lead, dtype=dtype)
    grad = torch.randn(formula(query, key, w).shape)
    assert_right(query, key, w, grad, tolerance=1e-5 if dtype == torch.float32 else 1e-13)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 17), (17, 1), (37, 67), (0, 0), (0, 5), (5, 0)])
def test_any_size(inputs, n, m):
    for batch, hidden in itertools.product([0, 1, 2], [0, 1, 2, 3, 4, 5]):
        assert_right(*inputs(n, m, hidden, lead=(batch,)), torch.randn(batch, n, m), tolerance=1e-5)


@pytest.mark.parametrize(("n", "m"), [(257, 263), (31, 2053), (2053, 31)])
def test_as_close_to_the_truth_as_the_formula(inputs, n, m):
    query, key, w = inputs(n, m, 61)
    grad = torch.randn(n, m)
    ours, plain = (results(scores, query, key, w, grad) for scores in (additive_scores, formula))
    for one, other, exact in zip(ours, plain, exactly(query, key, w, grad), strict=True):
        assert (one - exact).norm() < 2 * (other - exact).norm()


def test_gradcheck(inputs, monkeypatch):
    monkeypatch.setattr(additive, "TILE", 20)
    tensors = inputs(2, 3, 5, lead=(2,), key_lead=(), dtype=torch.float64)
    assert torch.autograd.gradcheck(additive_scores, tensors)
    assert torch.autograd.gradgradcheck(additive_scores, tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(inputs, dtype):
    query, key, w = (x.detach().to(dtype) for x in inputs(5, 7, 257))
    got = additive_scores(query, key, w)
    assert got.dtype == dtype
    assert torch.equal(got, additive_scores(query.float(), key.float(), w.float()).to(dtype))


def test_autocast_changes_nothing(inputs):
    tensors = inputs(5, 7, 11)
    plain = additive_scores(*tensors)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(additive_scores(*tensors), plain)


def test_strides_do_not_matter_and_inputs_are_left_alone(inputs):
    query, key, w = (x.detach() for x in inputs(11, 13, 8, lead=(2,)))
    strided = [query.mT.contiguous().mT, *(x.repeat_interleave(2, -1)[..., ::2] for x in (key, w))]
    assert not any(x.is_contiguous() for x in strided)
    assert_right(*(x.requires_grad_() for x in strided), torch.randn(1, 13, 11).mT.expand(2, 11, 13), tolerance=1e-5)
    assert same_bits(strided, [query, key, w])


@pytest.mark.parametrize("index", range(3), ids=["query", "key", "w"])
def test_what_is_changed_before_the_backward_pass_is_noticed(many_or_few, index):
    tensors = ordinary(5, 7, 11, lead=(2,))
    expected = torch.autograd.grad(additive_scores(*tensors).sum(), tensors)
    copies = [x.clone() for x in tensors]
    scores = additive_scores(*copies)
    copies[index].mul_(2)
    if additive.SMALL and index < 2:  # PyTorch's tanh has kept its own result
        assert same_bits(torch.autograd.grad(scores.sum(), tensors), expected)
        return
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(scores.sum(), tensors)


# --- the range


@each_dtype
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 3.0, 8.0])  # query and key reach 30 at the last
def test_ordinary_numbers_stay_in_the_loops(dtype, scale):
    tensors = ordinary(43, 47, 41, dtype=dtype, scale=scale)
    assert loop_limit(*tensors) is not None
    assert_right(*tensors, torch.randn(43, 47), tolerance=2e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize(("n", "m", "hidden"), [(1, 509, 257), (509, 2, 257), (37, 23, 61)])
def test_where_loops_do_not_pay_there_are_none(n, m, hidden):
    tensors = ordinary(n, m, hidden)
    assert loop_limit(*tensors) is None
    assert_right(*tensors, torch.randn(n, m), tolerance=1e-4)


@each_dtype
@pytest.mark.parametrize(
    ("of_query", "of_key"),
    [(60, 60), (60, 10), (60, 30), (60, 38), (43, 43), (43.7, 43.7), (30, 60), (22, 22), (1e30, 1), (1e38, 60)],
)
def test_any_finite_number_is_safe(many_or_few, dtype, of_query, of_key):
    query, key, w = ordinary(5, 7, 12, dtype=dtype)
    with torch.no_grad():  # large and small numbers of both signs meet
        query += of_query * torch.tensor([1, 1, -1, -1, 0])[:, None]
        key += of_key * torch.tensor([1, 1, 1, -1, -1, 0, 0])[:, None]
    assert_right(query, key, w, torch.randn(5, 7), tolerance=3e-5 if dtype == torch.float32 else 1e-12)


@each_dtype
def test_no_number_near_an_edge_overflows(many_or_few, dtype):
    near = torch.tensor([-1.001, -1.0, -0.999, -0.51, -0.5, -0.49, 0, 0.49, 0.5, 0.51, 0.999, 1.0, 1.001], dtype=dtype)
    query = (near * math.log(LIMIT[dtype]))[:, None].expand(-1, 5).clone()
    key, w = query.clone(), torch.randn(5, dtype=dtype)
    for rows in (slice(None), slice(1, -1), slice(2, -2), slice(4, -4)):  # from no loops to loops without a limit
        tensors = [x.clone().requires_grad_() for x in (query[rows], key[rows], w)]
        assert_right(*tensors, torch.ones(len(query[rows]), len(key[rows])), tolerance=1e-5)


@pytest.mark.parametrize("where", range(3), ids=["query", "key", "w"])
@pytest.mark.parametrize("what", [math.nan, math.inf, -math.inf, 1e30])
def test_what_is_not_finite_comes_out_as_from_the_formula(many_or_few, where, what):
    tensors = [x.detach() for x in ordinary(5, 7, 11)]
    tensors[where].view(-1)[9] = what
    assert math.isfinite(what) or loop_limit(*tensors) is None
    got = additive_scores(*tensors)
    torch.testing.assert_close(got, formula(*tensors), rtol=1e-5, atol=1e-5, equal_nan=True)
    assert got.isnan().sum() == ([7, 5, 35][where] if math.isnan(what) else 0)


def test_huge_weights(many_or_few):
    query, key, w = ordinary(5, 7, 12, scale=8.0)
    got = additive_scores(query, key, w * 1e30) / 1e30
    torch.testing.assert_close(got, formula(query, key, w), rtol=1e-5, atol=1e-5)


def test_nan_in_the_gradient_stays_where_it_belongs(inputs):
    grad = torch.randn(5, 7)
    grad[2, 3] = math.nan
    _, by_query, by_key, by_w = results(additive_scores, *inputs(5, 7, 11), grad)
    assert by_query.isnan().any(-1).tolist() == [i == 2 for i in range(5)]
    assert by_key.isnan().any(-1).tolist() == [j == 3 for j in range(7)]
    assert by_w.isnan().all()


# --- threads and processes


IN_THREADS = [threads.run_in_pool, *([threads.run_in_openmp] if threads.shares_openmp() else [])]


@pytest.fixture(params=IN_THREADS, ids=lambda run: run.__name__)
def two_threads(request, monkeypatch):
    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "run_in_threads", request.param)


def large() -> list[Tensor]:
    """Query, key, w and grad: enough work for several threads."""
    tensors = [*ordinary(101, 211, 43, lead=(3,)), torch.randn(3, 101, 211)]
    assert tensors[-1].numel() * 43 > 4 * threads.SHARE
    return tensors


def test_the_number_of_threads_changes_no_bit(two_threads):
    tensors = large()
    outcomes = []
    for number in (1, 2, 3, 5):
        torch.set_num_threads(number)
        outcomes.append(results(additive_scores, *tensors))
    # But the last sum of the gradient of w is PyTorch's own, which may depend on its threads.
    assert all(same_bits(outcomes[0][:3], other[:3]) for other in outcomes[1:])


def test_eight_callers_at_once_get_the_same_bits_as_one(two_threads):
    tensors = large()
    truth = results(additive_scores, *tensors)
    outcomes = []
    callers = [
        threading.Thread(target=lambda: outcomes.extend(results(additive_scores, *tensors) for _ in range(5)))
        for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(outcomes) == 40
    assert all(same_bits(truth, one) for one in outcomes)


def test_without_a_thread_to_help_the_caller_does_it_all(monkeypatch):
    torch.set_num_threads(2)
    tensors = large()
    truth = results(additive_scores, *tensors)

    def submit(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "run_in_threads", threads.run_in_pool)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    assert same_bits(results(additive_scores, *tensors), truth)


def test_what_goes_wrong_in_a_thread_is_raised_in_the_caller(two_threads):
    caller, both = threading.current_thread(), threading.Barrier(2)

    def loop(start, stop):
        if start < stop:
            both.wait(timeout=10)  # two shares, taken at once by two threads
            if threading.current_thread() is not caller:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.parallel_for(loop, 2, work=2 * threads.SHARE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork():
    run("""
        import os, signal, threading, warnings
        import torch
        from torch.utils.data import DataLoader, Dataset
        from regard.attention import additive, threads

        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads, which is what this is about
        torch.set_num_threads(1)  # PyTorch's own threads do not survive a fork: a child that uses them hangs
        torch.get_num_threads = lambda: os.cpu_count() + 1  # as many of ours as can be
        threads.SHARE = 1
        query, key, w = torch.randn(3, 101, 43), torch.randn(3, 211, 43), torch.randn(43, requires_grad=True)

        def results():
            scores = additive.additive_scores(query, key, w)
            return scores.detach(), *torch.autograd.grad(scores.sum(), w)

        def results_of_child():
            outcome = results()
            assert any(thread.name.startswith("regard") for thread in threading.enumerate())
            return outcome

        class Items(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return results_of_child()

        before = results()
        preferred, threads.run_in_threads = threads.run_in_threads, threads.run_in_pool
        results()
        threads.run_in_threads = preferred  # both kinds of threads have been used
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # ends a child that hangs
            os._exit(0 if all(map(torch.equal, results_of_child(), before)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        items = DataLoader(Items(), batch_size=None, num_workers=2, timeout=30, multiprocessing_context="fork")
        assert all(all(map(torch.equal, item, before)) for item in items)
        assert all(map(torch.equal, results(), before))
    """)


# --- numba and memory


def test_numba_is_imported_by_the_first_call_and_may_be_missing():
    run("""
        import sys
        import torch
        from regard.attention import additive

        assert "numba" not in sys.modules
        sys.modules["numba"] = None  # from here on, any import of it fails
        query, key, w = torch.randn(3, 5), torch.randn(7, 5), torch.randn(5, requires_grad=True)
        scores = additive.additive_scores(query, key, w)
        torch.testing.assert_close(scores, torch.tanh(query[:, None] + key) @ w)
        scores.sum().backward()
        assert additive.load_kernels("additive") is None and w.grad.isfinite().all()
    """)


def test_loops_that_cannot_be_kept_on_disk_still_run():
    from regard.attention.loops import compiled

    scope = {}
    exec("def double(x):\n    for i in range(x.size):\n        x[i] += x[i]", scope)  # from no file: nowhere to keep it
    numbers = torch.arange(3.0)
    compiled()(scope["double"])(numbers.numpy())
    assert numbers.tolist() == [0, 2, 4]


def test_loops_that_an_older_version_has_left_on_disk_are_compiled_anew(tmp_path):
    source = tmp_path / "doubling.py"
    source.write_text(
        "from regard.attention.loops import compiled\n\n\n"
        "@compiled()\ndef double(x):\n    for i in range(x.size):\n        x[i] += x[i]\n"
    )

    def doubled():
        loop, numbers = runpy.run_path(str(source))["double"], torch.arange(3.0)
        loop(numbers.numpy())
        return numbers.tolist(), next(Path(loop._cache.cache_path).glob("doubling.double*.nbi"))

    _, index = doubled()
    with index.open("rb") as file:
        version = pickle.load(file)
    index.write_bytes(pickle.dumps(version) + b"cregard.moved_since\nPoints\n.")  # a class of a module that is gone
    assert doubled() == ([0, 2, 4], index)
    assert b"moved_since" not in index.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ru_maxrss is not in kilobytes")
def test_nothing_of_n_m_hidden_is_kept():
    extra = run("""
        import resource
        import torch
        from regard.attention import additive

        def peak(n, m):
            query, key, w = (torch.randn(*size, requires_grad=True) for size in ((n, 61), (m, 61), (61,)))
            additive.additive_scores(query, key, w).sum().backward()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

        torch.set_num_threads(1)
        first = peak(67, 71)  # after what is imported and compiled
        loops = peak(1201, 1301)
        additive.load_kernels = lambda name: None
        tiles = peak(1201, 1301)
        print(loops - first, tiles - loops)
    """)
    # Megabytes, of which four (n, m) tensors take 25; one of (n, m, hidden) would take 364.
    assert all(float(megabytes) < 100 for megabytes in extra.split())

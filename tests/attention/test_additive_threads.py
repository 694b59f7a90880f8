"""The loops of the additive score in threads and other processes, without numba, and what they keep."""

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

from regard.attention import threads
from regard.attention.additive import additive_scores
from tests.attention.additive_formula import ordinary, results, same_bits


def run(script: str) -> str:
    """The output of a Python process of its own, which must end well."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


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

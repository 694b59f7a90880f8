"""For every test: the same seed, the same threads, no network, and only instructions that the processor has."""

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

# Before torch and scipy are imported. The second line keeps bfloat16 alive on processors that announce more than they
# can do, see regard/view/machine.py; without the third, scikit-learn skips one of its checks. Set by hand, they stay.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# What is prepared from the data of tests does not stay in the user's cache.
if "REGARD_PREPARED" not in os.environ:
    os.environ["REGARD_PREPARED"] = tempfile.mkdtemp(prefix="regard-tests-")
    atexit.register(shutil.rmtree, os.environ["REGARD_PREPARED"], ignore_errors=True)

import hypothesis
import pytest
import torch

from tests.browsing import chromium, launched

# "ci" finds the same examples on every run, so that a red test is red for everybody; `make faults` searches anew.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("faults", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# The files that take longest, in the order in which they begin, so that all processes of a run end together. The first
# compiles what others then find on disk; those with a browser have one without beside them.
FIRST = [
    *("kernel/test_regressor.py", "attention/test_tracing.py", "tour/test_sections.py", "test_benchmark_rows.py"),
    *("training/test_processes.py", "attention/test_formula.py", "web/test_browser_looks.py"),
    *("training/test_faults.py", "web/test_browser_texts.py", "attention/test_transforms.py", "web/test_browser.py"),
    *("kernel/test_compressed.py", "tour/test_page.py", "attention/test_sums_1d.py", "attention/test_gradients.py"),
    *("training/test_runs.py", "view/test_saved_page.py", "attention/test_random.py", "test_wheel.py"),
    *("test_experiments.py", "training/test_rows.py", "attention/test_memory.py", "tour/test_course.py"),
    *("kernel/test_bandwidth.py", "web/test_server.py", "attention/test_additive.py"),
    *("attention/test_normalizers.py", "data/test_broken_files.py", "attention/test_summary.py"),
    *("view/test_architectures.py", "cli/test_look.py", "test_transformers.py", "training/test_language.py"),
    *("training/test_memory.py", "attention/test_additive_threads.py"),
]
TESTS = Path(__file__).parent
assert all((TESTS / name).is_file() for name in FIRST)


def pytest_collection_modifyitems(items):
    ranks = {TESTS / name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(FIRST)))


def pytest_collection_finish():
    """All modules and tests stay to the end: no garbage collection has to look at their million objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_seed_and_threads():
    """The number of threads changes the last bits of a result, so it is the same on every machine; one, because tests
    run side by side. Those that are about threads choose their own number."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by Playwright. CI has to have it."""
    from playwright.sync_api import sync_playwright

    if chromium() is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium here: install Debian's package chromium")
        pytest.skip("no Chromium here: install Debian's package chromium")
    with sync_playwright() as playwright:
        running = launched(playwright)
        yield running
        running.close()

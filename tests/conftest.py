"""For every test: the same seed, the same threads, no network, and only instructions that the processor has."""

import atexit
import gc
import os
import shutil
import tempfile

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

from tests.browsing import chromium, launched

# "ci" finds the same examples on every run, so that a red test is red for everybody; `make faults` searches anew.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("faults", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# Their loops are compiled by numba: one process does that once, where two would both.
COMPILED = (
    "tests/kernel/",
    "tests/attention/test_sums_",
    "tests/attention/test_windows_",
    "tests/attention/test_sorting",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With --dist loadfile: a file's tests run in one process, and so do those of all that need the same loops."""
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadfile":
        return None

    class LoadCompiledTogether(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "compiled" if nodeid.startswith(COMPILED) else super()._split_scope(nodeid)

    return LoadCompiledTogether(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and tests, a million objects, stay to the end: no collection of garbage looks at them, then or later."""
    gc.disable()
    outcome = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return outcome


@pytest.fixture(autouse=True)
def _same_seed_and_threads():
    """The number of threads changes the last bits of a result, so it is the same on every machine; one, because tests
    run side by side. Those that are about threads choose their own number."""
    import torch  # not above: the process that only shares tests out can do without it

    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind():
    """A command that writes beside itself is run by tests in a folder of their own."""
    before = set(os.listdir())
    yield
    kept = {"build"}  # screenshots, to be looked at
    left = sorted(name for name in set(os.listdir()) - before - kept if not name.startswith("."))
    assert not left, f"tests have left files in the working folder: {', '.join(left)}"


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

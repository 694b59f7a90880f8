"""A training process keeps its memory: what one step frees, the next step takes without a page fault."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from regard.training.processes import keep_memory
if sys.argv[1] == "kept":
    assert keep_memory()
def faults():
    for _ in range(10):
        torch.ones(20_000_000)  # 80 MB: more than glibc keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print((faults() - first) * resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="keep_memory is for glibc")
def test_memory_is_kept():
    def cleared(way):
        run = subprocess.run([sys.executable, "-c", SCRIPT, way], capture_output=True, text=True, check=True)
        return int(run.stdout)

    # Bytes that the system cleared for ten tensors of 80 MB. Large pages come as one fault each, so no exact number.
    kept = cleared("kept")
    assert kept < 10_000_000
    assert kept < cleared("freed") / 5

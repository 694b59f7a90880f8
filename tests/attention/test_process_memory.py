"""What a long call costs the process, freed blocks that the heap cannot give back included: a process for each.

python -m tests.attention.test_process_memory additive keep     prints the megabytes above the inputs
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import Additive, Bilinear, Cosine, Dot, Kernel, Separable, attend, bias, causal, keep, lengths
from tests.attention.reference import KERNELS

SIZE, LENGTH, LIMIT = 16, 16_384, 200
PEAK = Path("/proc/self/clear_refs")  # writing 5 to it begins the search for the peak anew
SCORES = {
    "dot": Dot,
    "dot-softcap": lambda: Dot(softcap=30.0),
    "cosine": lambda: Cosine(0.3, learnable=True),
    "bilinear": lambda: Bilinear(SIZE, SIZE),
    "additive": lambda: Additive(SIZE, SIZE, 8),
    "separable": Separable,
    **{f"kernel-{name}": lambda name=name: Kernel(name, 9.0, learnable=True) for name in KERNELS},
}
MASKS = {
    "none": lambda n: None,
    "causal": lambda n: causal(),
    "lengths-of-rows": lambda n: lengths(torch.randint(1, n + 1, (1, n))),
    "keep": lambda n: keep(torch.empty(n, n, dtype=torch.bool).bernoulli_(0.7)),
    "learned-bias-of-keys": lambda n: bias(torch.zeros(1, n, requires_grad=True)),
    "dropout": lambda n: None,
}


def growth(score: str, mask: str) -> float:
    """Megabytes that forward and backward add to a process that has the inputs."""
    torch.manual_seed(0)
    module = SCORES[score]()
    for n in (64, LENGTH):  # a first call, because loops and libraries stay
        inputs = [torch.randn(1, n, SIZE, requires_grad=True) for _ in range(3)]
        options = {"score": module, "mask": MASKS[mask](n), "dropout": 0.1 * (mask == "dropout")}
        PEAK.write_text("5")
        before = status("VmRSS")
        attend(*inputs, **options).square().sum().backward()
    return (status("VmHWM") - before) / 1024


def status(name: str) -> int:
    """In kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


@pytest.mark.faults
@pytest.mark.skipif(not PEAK.exists(), reason="only Linux tells the peak of a process")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_memory_is_linear_with_gradients(score, mask):
    command = [sys.executable, "-m", "tests.attention.test_process_memory", score, mask]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    assert float(found) <= LIMIT


if __name__ == "__main__":
    print(growth(*sys.argv[1:]))

"""Does regard work on this machine? Each trial runs in a child process, because it may kill the process that tries."""

import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from regard import __version__

# Some processors, mostly virtual ones, announce bfloat16 instructions that they cannot run. oneDNN believes them and
# dies with SIGILL, unless it is told to stop at an older instruction set, before torch is imported.
BFLOAT16_CURE = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}

ATTENTION = """
import torch, regard
output = regard.attend(torch.ones(3, 5), torch.ones(7, 5), torch.ones(7, 2))
torch.testing.assert_close(output, torch.ones(3, 2))
"""

THREADS = """
import torch
print(torch.get_num_threads())
"""

NUMBA = """
import numba
assert numba.njit(lambda x: x * x)(7) == 49, "a compiled product is wrong"
"""

BFLOAT16 = """
import torch
a = torch.ones(1, 1, 64, 64, dtype=torch.bfloat16)
assert (a @ a == 64).all(), "a bfloat16 matmul is wrong"
assert (torch.nn.functional.scaled_dot_product_attention(a, a, a) == 1).all(), "bfloat16 attention is wrong"
"""


@dataclass(frozen=True)
class Trial:
    """What was tried, whether it worked, what came of it, and what to do where it did not work."""

    name: str
    passed: bool
    detail: str
    cure: str = ""


def attempt(name: str, program: str, *, cure: str = "", **environment: str) -> Trial:
    """Run a short Python program in a child process; ``environment`` is added to our own."""
    print(f"trying: {name} …", file=sys.stderr)
    command = [sys.executable, "-c", program]
    try:
        child = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return Trial(name, False, "no answer within 300 s", cure)
    if child.returncode == 0:
        return Trial(name, True, child.stdout.strip())
    if child.returncode < 0:
        return Trial(name, False, f"died with {signal.Signals(-child.returncode).name}", cure)
    last_line = child.stderr.strip().rpartition("\n")[2]
    return Trial(name, False, last_line or f"exit code {child.returncode}", cure)


def try_bfloat16(program: str = BFLOAT16) -> Trial:
    """Try bfloat16, and where it fails, also the one cure that is known."""
    trial = attempt("bfloat16 matmul", program, cure="no cure is known here: stay with float32")
    if trial.passed or not attempt("bfloat16 matmul, cured", program, **BFLOAT16_CURE).passed:
        return trial
    setting = " ".join(f"{name}={value}" for name, value in BFLOAT16_CURE.items())
    return replace(trial, cure=f"set {setting} before Python starts (tried: it helps)")


def examine() -> dict[str, Any]:
    """Look at this machine; the answer is ready for JSON."""
    threads = attempt("torch", THREADS)
    trials = [
        attempt("attention", ATTENTION, cure="install regard anew, in a fresh virtual environment"),
        attempt("numba compiles", NUMBA, cure="additive attention works without numba, but slowly; install numba anew"),
        try_bfloat16(),
    ]
    return {
        "passed": all(trial.passed for trial in trials),
        "regard": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in ("torch", "numba", "numpy")},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": int(threads.detail) if threads.passed else None,
        "trials": [asdict(trial) for trial in trials],
    }


def run(*, as_json: bool = False) -> int:
    """Print what was found; 0 if all is well, otherwise 1."""
    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        versions = [f"regard {found['regard']}", f"Python {found['python']}"]
        versions += [f"{name} {number or 'missing'}" for name, number in found["packages"].items()]
        print(" · ".join(versions))
        print(f"{found['machine']}, cores: {found['cores']}, torch threads: {found['torch_threads'] or 'unknown'}")
        for trial in found["trials"]:
            print(f"ok    {trial['name']}" if trial["passed"] else "FAIL  {name}: {detail}; {cure}".format(**trial))
    return 0 if found["passed"] else 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

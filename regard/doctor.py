"""Does regard work on this machine? Each trial runs in a child process, because it may kill the process that tries."""

import json
import os
import platform
import shutil
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

TORCH = """
import json, torch
print(json.dumps({"threads": torch.get_num_threads(), "vectors": torch.backends.cpu.get_cpu_capability()}))
"""

FUSED = """
from regard.attention.threads import load_kernels, shares_openmp
assert load_kernels("additive") is not None, "the compiled loops are missing"
print("in PyTorch's own threads" if shares_openmp() else "in threads of its own")
"""

FONTS = """
import warnings
from regard.view.fonts import families
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = families(["猫"])
assert not told, "no font of this system has Chinese letters, so pictures have boxes in their stead"
print(found[-1])
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


def try_browser() -> Trial:
    """Whether there is a browser that the explorer's page can be opened in without being asked for one."""
    import webbrowser

    try:
        return Trial("a browser for regard explore", True, webbrowser.get().name)
    except webbrowser.Error:
        cure = "open the address that it prints in a browser"
        return Trial("a browser for regard explore", False, "none can be opened from here", cure)


def try_disk(least: float = 2.0) -> Trial:
    """Whether there is room for data sets and models in the cache."""
    from regard.data.fetching import cache

    folder = next(own for own in (cache(), *cache().parents) if own.exists())
    free = shutil.disk_usage(folder).free / 1e9
    return Trial("room for data sets", free >= least, f"{free:.0f} GB free", "set XDG_CACHE_HOME to a larger disk")


def examine() -> dict[str, Any]:
    """AttentionCall at this machine; the answer is ready for JSON."""
    torch = attempt("torch", TORCH)
    machine = json.loads(torch.detail) if torch.passed else {"threads": None, "vectors": None}
    needed = [
        attempt("attention", ATTENTION, cure="install regard anew, in a fresh virtual environment"),
        attempt("numba compiles", NUMBA, cure="additive attention works without numba, but slowly; install numba anew"),
        attempt("fused additive attention", FUSED, cure="install numba anew: without it, it is slower"),
        try_bfloat16(),
    ]
    welcome = [
        attempt("a font for Chinese", FONTS, cure="install one, such as Noto Sans CJK"),
        try_browser(),
        try_disk(),
    ]
    return {
        "passed": all(trial.passed for trial in needed),
        "regard": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in ("torch", "numba", "numpy")},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch_threads": machine["threads"],
        "vectors": machine["vectors"],
        "trials": [asdict(trial) for trial in needed],
        "besides": [asdict(trial) for trial in welcome],
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
        print(
            f"{found['machine']}, cores: {found['cores']}, torch threads: {found['torch_threads'] or 'unknown'}, "
            f"vectors: {found['vectors'] or 'unknown'}"
        )
        for trial in (*found["trials"], *found["besides"]):
            print(_line(trial, needed=trial in found["trials"]))
    return 0 if found["passed"] else 1


def _line(trial: dict[str, Any], *, needed: bool) -> str:
    """What is missing but not needed is said, and is no failure."""
    if trial["passed"]:
        return f"ok    {trial['name']}" + (f": {trial['detail']}" if trial["detail"] else "")
    return ("FAIL  " if needed else "note  ") + "{name}: {detail}; {cure}".format(**trial)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

"""What this machine can do: each check runs in a child process, because it may kill the process that it runs in."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from regard import __version__
from regard.data.store import cache

# Some processors, mostly virtual ones, announce bfloat16 instructions that they cannot run. oneDNN believes them and
# dies with SIGILL, unless it is told to stop at an older instruction set, before torch is imported.
OLDER_INSTRUCTIONS = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
SECONDS = 300  # for one check
DISK = 2.0  # GB that should be free for data sets and models

# What children run: one that fails raises, and may print something worth knowing.
TORCH = """
import json, torch
from regard.models.decode_kernels import is_mkl_slow
products = "oneDNN" if is_mkl_slow() else "PyTorch's choice"
vectors = torch.backends.cpu.get_cpu_capability()
print(json.dumps({"torch_threads": torch.get_num_threads(), "vectors": vectors, "products": products}))
"""
ATTENTION = """
import regard
output = regard.attend(torch.ones(3, 5), torch.ones(7, 5), torch.ones(7, 2))
torch.testing.assert_close(output, torch.ones(3, 2))
"""
NUMBA = """
import numba
assert numba.njit(lambda x: x * x)(7) == 49, "a compiled product is wrong"
"""
FUSED = """
from regard.attention.threads import load_kernels, shares_openmp
assert load_kernels("additive") is not None, "the compiled loops are missing"
print("in PyTorch's threads" if shares_openmp() else "in its own threads")
"""
BFLOAT16 = """
import time, torch
a = torch.ones(1, 1, 64, 64, dtype=torch.bfloat16)
assert (a @ a == 64).all(), "a bfloat16 matmul is wrong"
assert (torch.nn.functional.scaled_dot_product_attention(a, a, a) == 1).all(), "bfloat16 attention is wrong"
matrices = {dtype: torch.ones(768, 768, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
seconds = {dtype: [] for dtype in matrices}
for _ in range(9):  # in turns, because the machine may be busy with something else for a while
    for dtype, matrix in matrices.items():
        start = time.perf_counter()
        matrix @ matrix
        seconds[dtype].append(time.perf_counter() - start)
ratio = min(seconds[torch.float32]) / min(seconds[torch.bfloat16])
verdict = "it pays" if ratio > 1.2 else "float32 is no slower" if ratio > 0.8 else "stay with float32"
print(f"{ratio:.1f} times as fast as float32: {verdict}")
"""
FONTS = """
import warnings
from regard.view.pictures import families
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    names = families(["猫"])
assert not caught, "no font of this system has Chinese letters, so pictures have boxes instead of them"
print(names[-1])
"""
PROGRAMS = [
    ("attention", TORCH + ATTENTION, "install regard again, in a fresh virtual environment"),
    ("numba compiles", NUMBA, "additive attention works without numba, but slowly; install numba again"),
    ("fused additive attention", FUSED, "install numba again: without it, additive attention is slower"),
    ("a font for Chinese", FONTS, "install one, such as Noto Sans CJK"),
]
DIED = "died with"


@dataclass(frozen=True)
class Check:
    """What was tried, whether it worked, what came of it, and what to do where it did not work."""

    name: str
    passed: bool
    detail: str
    remedy: str = ""
    required: bool = True  # False: regard works without it


@dataclass(frozen=True)
class Machine:
    """Versions, the processor, and the checks."""

    versions: dict[str, str | None]  # None: not installed
    system: str
    cores: int | None
    torch_threads: int | None
    vectors: str | None  # the instruction set that torch uses
    products: str | None  # whose products of matrices the layers of regard use
    checks: list[Check]

    @property
    def passed(self) -> bool:
        """Whether everything that regard needs works."""
        return all(check.passed for check in self.checks if check.required)


def examine(progress: Callable[[str], None] = lambda name: None) -> Machine:
    """Run all checks. progress: is called with what is checked next."""
    progress("attention, numba, fonts")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(cores) as pool:  # most of each is the import of torch
        attention, *checks, fonts = pool.map(lambda row: _run(*row), PROGRAMS)
    torch = attention if attention.passed else _run("torch", TORCH)
    checks.insert(0, replace(attention, detail="") if attention.passed else attention)
    progress("bfloat16 matmul")  # alone, because it is timed
    checks.append(check_bfloat16())
    checks += [replace(check, required=False) for check in (fonts, _check_browser(), _check_disk())]
    return Machine(
        versions={
            "regard": __version__,
            "Python": platform.python_version(),
            **{name: _version(name) for name in ("torch", "numba", "numpy")},
        },
        system=f"{platform.system()} {platform.machine()}",
        cores=cores,
        **(json.loads(torch.detail) if torch.passed else dict.fromkeys(("torch_threads", "vectors", "products"))),
        checks=checks,
    )


def check_bfloat16(program: str = BFLOAT16) -> Check:
    """Try bfloat16, and where it fails, also the one remedy that is known."""
    check = _run("bfloat16 matmul", program, "no remedy is known here: stay with float32")
    if check.detail.startswith(DIED):
        check = replace(check, detail=f"bfloat16 crashes here: {check.detail}")
    if check.passed or not _run(check.name, program, **OLDER_INSTRUCTIONS).passed:
        return check
    setting = " ".join(f"{name}={value}" for name, value in OLDER_INSTRUCTIONS.items())
    return replace(check, remedy=f"set {setting} before Python starts (tried: it helps)")


def _run(name: str, program: str, remedy: str = "", **environment: str) -> Check:
    """Run a short Python program in a child process; `environment` is added to that of this process."""
    # -P: without it the child would import from the working folder first, whatever lies there under the name numpy.py
    command = [sys.executable, "-P", "-c", program]
    try:
        child = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Check(name, False, f"no answer within {SECONDS} s", remedy)
    if child.returncode == 0:
        return Check(name, True, child.stdout.strip())
    if child.returncode < 0:
        return Check(name, False, f"{DIED} {signal.Signals(-child.returncode).name}", remedy)
    last_line = child.stderr.strip().rpartition("\n")[2]
    return Check(name, False, last_line.removeprefix("AssertionError: ") or f"exit code {child.returncode}", remedy)


def _check_browser() -> Check:
    name = "a browser for regard explore"
    try:
        return Check(name, True, webbrowser.get().name)
    except webbrowser.Error:
        return Check(name, False, "none can be opened from here", "open the address that it prints in a browser")


def _check_disk() -> Check:
    folder = next(path for path in (cache(), *cache().parents) if os.path.exists(path))
    free = shutil.disk_usage(folder).free / 1e9
    return Check("room for data sets", free >= DISK, f"{free:.0f} GB free", "set XDG_CACHE_HOME to a larger disk")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

"""`regard doctor`: what it checks, that it survives what it finds, and that it runs nobody else's code."""

import json
import re

import pytest

from regard.cli import main
from regard.view.machine import Check, Machine, check_bfloat16

DIE = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def test_it_checks_this_machine_and_imports_nothing_from_the_working_folder(tmp_path, monkeypatch, capsys):
    """A numpy.py that lies there would be run by children that look there first."""
    (tmp_path / "numpy.py").write_text("open('run', 'w')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("x" * 300)))  # not to be looked into, as another user's home
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "run").exists()
    assert code == (0 if report["passed"] else 1)
    assert all(report["versions"][name] for name in ("regard", "Python", "torch", "numba", "numpy"))
    assert min(report["cores"], report["torch_threads"]) > 0
    checks = {check["name"]: check for check in report["checks"]}
    assert [name for name, check in checks.items() if check["required"]] == [
        *("attention", "numba compiles", "fused additive attention", "bfloat16 matmul")
    ]
    assert [name for name, check in checks.items() if not check["required"]] == [
        *("a font for Chinese", "a browser for regard explore", "room for data sets")
    ]
    assert all(check["passed"] or check["remedy"] for check in checks.values())
    assert checks["attention"]["passed"], checks["attention"]["detail"]
    bfloat16 = checks["bfloat16 matmul"]
    said = re.fullmatch(r"(\d+\.\d) times as fast as float32: .+", bfloat16["detail"])
    assert bool(said) == bfloat16["passed"], bfloat16["detail"]
    assert said is None or float(said[1]) > 0


@pytest.mark.parametrize(
    ("program", "passed", "detail", "remedy"),
    [
        ("print('well')", True, "well", ""),
        (DIE, False, "bfloat16 crashes here: died with SIGILL", "float32"),
        (f"import os\nif os.environ['ONEDNN_MAX_CPU_ISA'] != 'AVX512_CORE_BF16': {DIE}", False, "SIGILL", "it helps"),
        ("raise ValueError('no such instruction')", False, "ValueError: no such instruction", "float32"),
    ],
)
def test_it_survives_what_it_finds(program, passed, detail, remedy, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    check = check_bfloat16(program)
    assert check.passed is passed
    assert detail in check.detail
    assert remedy in check.remedy


@pytest.mark.parametrize("required", [True, False])
def test_what_is_missing_but_not_required_is_a_note(required, monkeypatch, capsys):
    checks = [Check("air", True, "plenty"), Check("water", False, "none", "dig a well", required)]
    moon = Machine({"torch": None}, "Moon", 2, None, None, None, checks)
    monkeypatch.setattr("regard.view.machine.examine", lambda progress: moon)
    assert main(["doctor"]) == int(required)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "torch missing"
    assert lines[2:] == ["ok    air: plenty", f"{'FAIL' if required else 'note'}  water: none; dig a well"]

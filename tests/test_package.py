"""The face of the package: public names, examples that run, lazy imports, one place for the formula."""

import ast
import contextlib
import doctest
import importlib.metadata
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).resolve().parent.parent

# Users build on these; whoever changes them says so in CHANGELOG.md.
FROZEN = """Additive AlignmentDisplay Attention AttentionDisplay Attribution Bilinear Block Cosine Dot Encoder
    Entmax FeedForward FolderError ImageAttentionDisplay Kernel KernelClassifier KernelRegressionDisplay
    KernelRegressor LanguageModel Mask MultiHead Normalizer ResNet Sampling Score Separable Seq2Seq Sigmoid Softmax
    Sparsemax TrainingWidthsDisplay Transformer ViT alibi attend average_pool bias capture causal drop explore
    find_heads intervene keep lengths load load_capture masked_softmax max_pool relative segments summarize
    t5_buckets train visible weights window"""
NAMES = FROZEN.split()


def test_public_names_are_frozen():
    assert sorted(regard.__all__) == sorted([*NAMES, "__version__"])
    assert set(NAMES) <= set(dir(regard))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs(name):
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(regard, name), name, globs={})
    assert example.examples, f"{name}: no example"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        outcome = doctest.DocTestRunner().run(example)
    assert outcome.failed == 0, printed.getvalue()


def test_every_public_name_is_in_the_reference():
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = {line.rpartition(".")[2] for line in reference.splitlines() if line.startswith(":::")}
    assert named >= set(NAMES)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="atend"):
        _ = regard.atend


def test_version_is_the_installed_one():
    assert regard.__version__ == importlib.metadata.version("regard")


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import regard; dir(regard)", ["torch", "numba", "matplotlib", "sklearn"]),
        (
            "import torch, regard; regard.attend(torch.ones(3, 5), torch.ones(7, 5), torch.ones(7, 2))",
            ["numba", "matplotlib", "sklearn"],
        ),
    ],
)
def test_imports_are_lazy(program, absent):
    program += f"; import sys; print(*[name for name in {absent} if name in sys.modules])"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (child.returncode, child.stdout.strip()) == (0, ""), child.stderr


def test_scores_become_weights_in_one_place():
    """The one idea: every softmax over scores is in formula.py, or one of the normalisers beside it."""
    for path in (ROOT / "regard").rglob("*.py"):
        place = path.relative_to(ROOT / "regard").as_posix()
        if place in ("attention/formula.py", "attention/normalizers.py") or place.startswith("tour/sections/"):
            continue  # sections compare with the textbook
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            computes = called.rpartition(".")[2].lower() in ("softmax", "log_softmax")
            made = called in ("Softmax", "normalizers.Softmax")  # the normaliser
            assert made or not computes, f"{path}:{node.lineno} calls {called}"


def test_what_builds_a_release_is_known_by_its_digest():
    """Each tool by the SHA-256 of its file, at the version that all is tested with; each action by its commit."""
    lines = [line for line in (ROOT / "hashes.txt").read_text().splitlines() if not line.startswith("#")]
    tools = dict(re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups() for line in lines)
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert tools.keys() >= {"hatchling"}
    assert {name: pinned.get(name, version) for name, version in tools.items()} == tools
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (\S+)", workflow.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action

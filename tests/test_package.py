"""The face of the package: public names, the command line, lazy imports, and a README that tells the truth."""

import argparse
import ast
import contextlib
import doctest
import importlib
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from benchmarks.front import refreshed
from regard import cli, doctor

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Users build on these; whoever changes them says so in CHANGELOG.md.
NAMES = [
    *(
        "Additive",
        "AlignmentDisplay",
        "Attention",
        "AttentionDisplay",
        "Bilinear",
        "Block",
        "Sampling",
        "Cosine",
        "Dot",
    ),
    *("Encoder", "FeedForward", "FolderError", "ImageAttentionDisplay", "Kernel", "KernelRegressionDisplay"),
    *("KernelRegressor",),
    *("LanguageModel", "Mask", "MultiHead", "ResNet", "Score", "Seq2Seq", "TrainingWidthsDisplay", "Transformer"),
    *("ViT", "__version__", "attend", "average_pool", "bias", "capture", "causal", "drop", "keep", "lengths", "load"),
    *("masked_softmax", "max_pool", "segments", "train", "weights", "window"),
]
COMMANDS = {
    "tour": ["--no-cache", "--full", "--help", "--json", "--language", "--only", "--out"],
    "curve": ["--bandwidth", "--degree", "--help", "--json", "--kernel", "--picture", "--predictions", "--x", "--y"],
    "search": ["--help", "--json", "--model", "--top"],
    "train": ["--help"],
    "translate": ["--beam-size", "--help", "--json", "--max-new-tokens", "--show"],
    "generate": ["--help", "--json", "--max-new-tokens", "--seed", "--show", "--temperature", "--top-k", "--top-p"],
    "classify": ["--help", "--json", "--show"],
    "evaluate": ["--beam-size", "--help", "--json", "--label", "--text"],
    "explore": ["--help", "--port"],
    "look": ["--head", "--help", "--layer", "--out"],
    "data": ["--help"],
    "doctor": ["--help", "--json"],
}
# Of every task of `regard train`, and those that only one has.
TRAINING = [
    *("--accumulate", "--batch", "--clip", "--config", "--device", "--dropout", "--evaluate-every", "--freeze"),
    *("--help", "--init-from", "--json", "--layer-decay", "--learning-rate", "--minutes", "--out", "--patience"),
    *("--resume", "--save-every", "--schedule", "--seed", "--shard", "--label-smoothing", "--steps", "--tensorboard"),
    *("--threads", "--warmup", "--weight-decay", "--widths"),
]
TASKS = {
    "translate": [
        *("--attention", "--cell", "--evaluate-pairs", "--heads", "--hidden-size", "--language", "--layers"),
        *("--lowercase", "--max-length", "--model", "--size", "--tokenizer", "--vocab-size"),
    ],
    "language": ["--context", "--heads", "--layers", "--model", "--positions", "--size", "--tokenizer", "--vocab-size"],
    "text": [
        *("--examples", "--heads", "--label", "--layers", "--max-length", "--size", "--text", "--tokenizer"),
        "--vocab-size",
    ],
    "images": [
        *("--augment", "--depths", "--examples", "--flip", "--heads", "--image-size", "--layers", "--model"),
        *("--patch-size", "--size", "--width"),
    ],
}


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, cwd=ROOT)


# ------------------------------------------------------------------------------------------------------------ names


def test_public_names_are_frozen():
    assert regard.__all__ == NAMES


def test_every_public_name_is_found_in_its_room():
    for name in set(NAMES) - {"__version__"}:
        home = importlib.import_module(regard._HOME[name])
        assert getattr(regard, name) is getattr(home, name), name
        room = importlib.import_module(home.__name__.rpartition(".")[0])
        if hasattr(room, "__all__"):  # a room that is expensive to open as a whole has no names of its own
            assert getattr(room, name) is getattr(home, name), name
        assert name in dir(regard)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(regard.__file__).read_text(encoding="utf-8"))
    imports = {
        alias.asname or alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imports == regard._HOME


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__version__"])
def test_every_public_name_has_an_example_that_runs(name):
    thing = getattr(regard, name)
    (found,) = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    assert found.examples, f"{name}: no example"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        outcome = doctest.DocTestRunner().run(found)
    assert outcome.failed == 0, printed.getvalue()


def test_every_public_name_is_in_the_reference():
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = {line.rpartition(".")[2] for line in reference.splitlines() if line.startswith(":::")}
    assert named >= set(NAMES) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'atend'"):
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
    child = run_python("-c", f"{program}; import sys; print(*[name for name in {absent} if name in sys.modules])")
    assert (child.returncode, child.stdout.strip()) == (0, ""), child.stderr


def test_scores_become_weights_in_one_file():
    """The one idea: every softmax over scores is in formula.py."""
    for path in (ROOT / "regard").rglob("*.py"):
        if path.relative_to(ROOT / "regard").as_posix() == "attention/formula.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func).rpartition(".")[2].lower() if isinstance(node, ast.Call) else ""
            assert called not in ("softmax", "log_softmax"), f"{path}:{node.lineno} calls {called}"


# ----------------------------------------------------------------------------------------------------- command line


def test_commands_and_options_are_frozen():
    parser = cli.build_parser()
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    options = {
        name: sorted(option for option in command._option_string_actions if option.startswith("--"))
        for name, command in commands.items()
    }
    assert options == COMMANDS
    assert "--version" in parser._option_string_actions


def test_the_options_of_training_are_frozen():
    (commands,) = (action.choices for action in cli.build_parser()._actions if isinstance(action.choices, dict))
    (tasks,) = (action.choices for action in commands["train"]._actions if isinstance(action.choices, dict))
    for name, own in tasks.items():
        options = {option for option in own._option_string_actions if option.startswith("--")}
        assert {option for option in options if not option.startswith("--no-")} == {*TRAINING, *TASKS[name]}, name


@pytest.mark.parametrize("arguments", [[], ["train", "translate"], ["data", "fetch"]])
def test_help_answers_at_once(arguments):
    """It takes under 0.2 s; with torch imported it would take 2. The bound leaves room for a busy machine."""
    elapsed = []
    for _ in range(3):
        start = time.perf_counter()
        child = run_python("-m", "regard.cli", *arguments, "--help")
        elapsed.append(time.perf_counter() - start)
        assert child.returncode == 0
        assert all(command in child.stdout for command in ([] if arguments else COMMANDS))
    assert min(elapsed) < 0.6


def parsers(parser):
    """A parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield from parsers(own)


def test_help_fits_into_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    helps = [own.format_help() for own in parsers(cli.build_parser())]
    assert len(helps) > 15
    assert [line for text in helps for line in text.splitlines() if len(line) > 80] == []


def test_version_option(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"regard {regard.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [[], ["tuor"], ["tour", "--langauge", "en"], ["tour", "--language", "fr"], ["tour", "--only", "3,x"]]
)
def test_a_misspelt_command_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().out == ""


def test_control_c_exits_with_130(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", interrupted)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "regard: stopped\n"


def test_an_unwritable_folder_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["tour", "--out", str(tmp_path / "file")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"regard: .*file.*\n", captured.err)


def test_the_doctor_speaks_json():
    child = run_python("-m", "regard.cli", "doctor", "--json")
    found = json.loads(child.stdout)
    assert child.returncode == (0 if found["passed"] else 1)
    assert found["packages"]["torch"]
    assert found["cores"] > 0
    assert found["torch_threads"] > 0
    needed = ["attention", "numba compiles", "fused additive attention", "bfloat16 matmul"]
    assert [trial["name"] for trial in found["trials"]] == needed
    assert [trial["name"] for trial in found["besides"]] == [
        "a font for Chinese",
        "a browser for regard explore",
        "room for data sets",
    ]
    assert all(trial["passed"] or trial["cure"] for trial in (*found["trials"], *found["besides"]))
    assert found["trials"][0]["passed"], found["trials"][0]["detail"]


DIE = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.mark.parametrize(
    ("program", "passed", "detail", "cure"),
    [
        ("print('well')", True, "well", ""),
        (DIE, False, "died with SIGILL", "float32"),
        (f"import os\nif os.environ['ONEDNN_MAX_CPU_ISA'] != 'AVX512_CORE_BF16': {DIE}", False, "SIGILL", "it helps"),
        ("raise ValueError('no such instruction')", False, "ValueError: no such instruction", "float32"),
    ],
)
def test_the_doctor_survives_what_it_finds(program, passed, detail, cure, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    trial = doctor.try_bfloat16(program)
    assert trial.passed is passed
    assert detail in trial.detail
    assert cure in trial.cure


# ----------------------------------------------------------------------------------------------------------- README


@pytest.mark.parametrize("document", ["README.md", "README.zh.md"])
def test_readme_examples_print_what_they_promise(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n(?:\s*```text\n(.*?)```)?", text, flags=re.DOTALL)
    assert examples
    namespace = {}
    for program, promised in examples:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, "README.md", "exec"), namespace)
        if promised:
            assert printed.getvalue().strip() == promised.strip()


def test_readme_tree_is_the_real_one():
    tree = re.search(r"```text\n(regard/\n.*?)```", README, flags=re.DOTALL).group(1)
    drawn = {("regard/" if line[0] == " " else "") + line.split()[0] for line in tree.splitlines()} - {"regard/"}
    rooms = {f"regard/{path.parent.name}/" for path in ROOT.glob("regard/*/__init__.py")}
    files = {f"regard/{path.name}" for path in ROOT.glob("regard/*.py")} - {"regard/__init__.py"}
    made = {"build", "dist", "regard", "site"}
    folders = {
        f"{path.name}/" for path in ROOT.glob("[!.]*/") if path.name not in made and not path.name.startswith("regard-")
    }
    assert drawn == rooms | files | folders


@pytest.mark.parametrize("document", ["README.md", "README.zh.md"])
def test_readme_tables_are_lines_of_what_commands_made(document):
    """Numbers, but for the table of names, are never written by hand."""
    made = [(ROOT / "docs" / name).read_text(encoding="utf-8").splitlines() for name in ("benchmarks.md", "results.md")]
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("| ") and line.count("|") > 3]
    assert len(tables) > 10
    assert [line for line in tables if line not in made[0] + made[1]] == []


def test_tables_of_the_readme_follow_what_is_measured():
    front = "text\n\n| a | b | 3 |\n| c | d | 4 |\n"
    assert refreshed(front, "| a | b | 5 |\n| e | f | 6 |\n") == front.replace("3", "5")


@pytest.mark.parametrize("document", ["README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), f"{document} points to {target}"

"""The command line as a whole: its commands and options, its help, its errors and exit codes."""

import dataclasses
import io
import json
import logging
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

import regard
from regard.cli import commands, main
from regard.errors import RegardError
from regard.training import options
from regard.view import machine

# Users build on these; whoever changes them says so in CHANGELOG.md.
OPTIONS = {
    "tour": "--code --full --json --language --no-cache --notes --only --out",
    "curve": "--band --bandwidth --block --by --day-first --decimal --degree --encoding --json --kernel --log-x "
    "--log-y --no-band --overwrite --picture --predictions --robust --rule --weights --x --y",
    "search": "--json --model --top",
    "train": "",
    "translate": "--beam-size --json --max-new-tokens --show",
    "generate": "--json --max-new-tokens --seed --show --temperature --top-k --top-p",
    "classify": "--json --show",
    "evaluate": "--beam-size --json --label --on-error --text",
    "look": "--head --layer --out",
    "explore": "--port",
    "data": "",
    "data list": "--json",
    "data fetch": "--json",
    "doctor": "--json",
}
# Of every task of `regard train`, and those that only one has.
TRAINING = """--accumulate --average --batch --checkpoint-activations --clip --compile --config --device --dropout
    --evaluate-every --freeze --help-all --init-from --json --layer-decay --learning-rate --lora --minutes --on-error
    --out --patience --precision --resume --save-every --schedule --seed --shard --label-smoothing --steps --tensorboard
    --threads --wandb --warmup --weight-decay --widths --workers"""
TASKS = {
    "translate": """--attention --beam-size --cell --evaluate-pairs --heads --hidden-size --input-feeding --language
    --layers --lowercase --max-length --model --size --tokenizer --vocab-size""",
    "language": "--context --heads --layers --model --positions --size --tokenizer --vocab-size",
    "text": "--examples --heads --label --layers --max-length --size --text --tokenizer --vocab-size",
    "images": "--augment --depths --examples --flip --heads --image-size --layers --model --patch-size --size --width",
}
OPTIONS |= {f"train {task}": f"{TRAINING} {options}" for task, options in TASKS.items()}


@pytest.fixture
def help_of(capsys, monkeypatch):
    """The help of a command, in 80 columns; of a task of `regard train` all of it."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(command, flag=None):
        assert main([*command.split(), flag or ("--help-all" if command.startswith("train ") else "--help")]) == 0
        return capsys.readouterr().out

    return call


def test_commands_are_frozen(help_of):
    listed = re.findall(r"^  ([a-z]+)  ", help_of("").partition("Commands:")[2], re.MULTILINE)
    assert listed == list(commands.commands) == [command for command in OPTIONS if " " not in command]
    assert "--version" in help_of("")


@pytest.mark.parametrize("group", ["", "data", "train"])
def test_what_a_command_does_is_told_to_the_end(help_of, group):
    listed = " ".join(help_of(group).partition("Commands:")[2].split())
    assert "..." not in listed
    assert listed.count(".") >= 2


@pytest.mark.parametrize("command", OPTIONS)
def test_help_names_the_options_within_80_columns(help_of, command):
    text = help_of(command)
    options = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE))
    assert options == {"--help", *OPTIONS[command].split()}
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("task", TASKS)
def test_the_help_of_a_task_fits_a_screen(help_of, task):
    """Of 24 lines and 80 columns, with what is basic; it says where the rest is."""
    text, everything = help_of(f"train {task}", "--help"), help_of(f"train {task}")
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith(f"regard train {task} --help-all")
    fields = {field.name: field.metadata["basic"] for field in dataclasses.fields(options.TASKS[task])}
    for name, basic in {**fields, "out": True, "resume": True, "config": False}.items():
        flag = f"[{name.upper()}]" if f"[{name.upper()}]" in lines[0] else f"--{name.replace('_', '-')}"
        flag = name.upper() if lines[0].endswith(f" {name.upper()}") else flag
        pattern = rf"^  {re.escape(flag)}( |$)"
        assert bool(re.search(pattern, text, re.MULTILINE)) == basic, name
        assert re.search(pattern, everything, re.MULTILINE), name
    assert len(everything.splitlines()) > 2 * len(lines)


@pytest.mark.parametrize("command", ["", "curve", "train translate", "train images", "data fetch"])
def test_help_imports_nothing_heavy(command):
    """That is why it takes 0.1 s (benchmarks/start.py measures it) and not 2, as with torch."""
    heavy = "{'torch', 'numpy', 'matplotlib', 'rich', 'sklearn', 'starlette'}"
    program = f"import sys; from regard.cli import main; main(sys.argv[1:]); sys.exit(str({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program, *command.split(), "--help"], capture_output=True, text=True)
    assert run.stdout.startswith("Usage: regard")
    assert run.stderr == "set()\n"


def test_the_shell_completes_commands_and_options(monkeypatch, capsys):
    monkeypatch.setenv("_REGARD_COMPLETE", "bash_complete")
    for words, completions in {"regard tr": ["train", "translate"], "regard train text --sch": ["--schedule"]}.items():
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit):
            main([])
        assert capsys.readouterr().out.split() == [f"plain,{completion}" for completion in completions]


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"regard {regard.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing command"),
        ("explor", "Did you mean 'explore'?"),
        ("nonsense", "No such command 'nonsense'"),
        ("tour --langauge en", "Did you mean '--language'?"),
        ("tour --language fr", "'fr' is not one of 'en', 'zh'"),
        ("tour --only 3,x", "expected numbers joined by commas, got '3,x'"),
        ("train", "Missing command"),
        ("train txt", "Did you mean 'text'?"),
        ("train images --modle resnet", "'--model'"),
        ("train translate --text words", "No such option '--text'"),
        ("train text a.csv --patch-size 3", "No such option '--patch-size'"),
        ("train text --steps many", "'many' is not a valid integer"),
        ("train text a.csv --steps 3 third", "unexpected extra argument (third). Try"),
        ("data lst", "Did you mean 'list'?"),
        ("tour --code x --full", "--full: means nothing beside --code"),
        ("tour --json --only 3 --code x", "--json: means nothing beside --code"),
        ("search notes.txt", "Missing argument 'QUESTION'"),
        ("evaluate ''", "Invalid value for 'MODEL': expected a name, got an empty one"),
        ("train text a.csv --out ''", "Invalid value for '--out': expected a name, got an empty one"),
    ],
)
def test_a_command_that_is_typed_wrongly_is_one_line_and_exit_2(arguments, message, capsys):
    assert main(shlex.split(arguments)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(r"regard: .*Try 'regard.* --help'\.\n", output.err)
    assert message in output.err


class LostError(RegardError):
    """Some error of a room."""

    exit_code = 7


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (LostError("the map:\n  is gone"), 7, "the map: is gone"),
        (RegardError("no"), 2, "no"),
        (FileNotFoundError(2, "No such file", "x"), 1, "[Errno 2] No such file: 'x'"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error, code, line, monkeypatch, capsys):
    def fail(progress):
        raise error

    monkeypatch.setattr(machine, "examine", fail)
    assert main(["doctor"]) == code
    assert capsys.readouterr().err.lstrip("\n") == f"regard: {line}\n"


@pytest.mark.parametrize("error", [TypeError, EOFError, ValueError, IndexError])
def test_a_bug_keeps_its_traceback(error, monkeypatch):
    def fail(progress):
        raise error("a bug")

    monkeypatch.setattr(machine, "examine", fail)
    with pytest.raises(error):
        main(["doctor"])


CLOSED = {  # a shell's redirections: the exit code, stdout and stderr of what follows
    "data list >&-": (0, "", ""),
    "data list 2>&-": (0, "NAME", ""),
    "data lst 2>&-": (2, "", ""),
    "data lst >&-": (2, "", "regard: "),
    "data list <&- >&- 2>&-": (0, "", ""),
}


@pytest.mark.parametrize("words", CLOSED)
def test_streams_that_are_closed_are_no_error(words):
    run = subprocess.run(f"{sys.executable} -m regard {words}", shell=True, capture_output=True, text=True)
    code, out, err = CLOSED[words]
    assert (run.returncode, run.stdout[:4], run.stderr[:8]) == (code, out, err)
    assert run.stderr.count("\n") <= 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gb18030", "utf-8"])
def test_what_an_encoding_lacks_is_escaped(encoding, monkeypatch):
    """As JSON reads it; bytes of a name that are no text come out as they came in."""
    moon = machine.Machine({"ñ猫😀": "1"}, "\udcffMoon", 2, None, None, None, [])
    monkeypatch.setattr(machine, "examine", lambda progress: moon)
    texts = []
    for more in ([], ["--json"]):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with redirect_stdout(stream):
            assert main(["doctor", *more]) == 0
        assert b"\xffMoon" in stream.buffer.getvalue()
        texts.append(stream.buffer.getvalue().replace(b"\xff", b"").decode(encoding))
    assert json.loads(texts[1])["versions"] == moon.versions
    assert texts[0].startswith("ñ猫😀" if encoding in ("gb18030", "utf-8") else ("ñ", r"\u00f1\u732b\ud83d\ude00"))


def test_an_error_cannot_command_the_terminal(tmp_path, capsys):
    (tmp_path / "data.csv").write_text("x\x1b]0;title\x07\x9b2J,y\n1,2\n", encoding="utf-8")
    assert main(["curve", str(tmp_path / "data.csv"), "--x", "z", "--y", "y"]) == 2
    assert "columns: x·]0;title··2J, y" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "regard", "data", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        child.stdout.close()
        assert (child.wait(60), child.stderr.read()) == (1, "")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_on_stderr_and_for_terminals(terminal, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1") if terminal else monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert main(["curve"]) == 0
    output = capsys.readouterr()
    assert ("reading" in output.err, output.err == "") == (terminal, not terminal)
    assert output.out.startswith("data ")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["tour", "--out", str(tmp_path / "file")]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(r"regard: .*file.*\n", output.err)


@pytest.mark.parametrize("name", ["matplotlib", "matplotlib.font_manager"], ids=["folders", "fonts"])
def test_where_matplotlib_keeps_its_fonts_is_not_said(name, caplog):
    assert main(["--version"]) == 0
    logging.getLogger(name).warning("a temporary folder")
    assert caplog.messages == []

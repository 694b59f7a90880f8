"""`regard train TASK`: options are the fields of the task's dataclass in regard/training/options.py."""

from __future__ import annotations

import dataclasses
import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli.options import PATH, CommandGroup
from regard.files import to_json
from regard.training.defaults import RULES
from regard.training.options import EMBEDDED, TASKS, Options, kind_of

if TYPE_CHECKING:
    from regard.training.run import Trained

POSITIONAL = ("data", "target")
ALL = f"{__name__}.all"  # in a context's meta: whether all options are shown
WIDEST = 25  # characters of an option and its choices in --help
EPILOG = (
    "The run is kept in --out: the best model so far (for regard.load and the other commands), log.jsonl, "
    "training.yaml with all options, and checkpoints. Ctrl-C writes a checkpoint; --resume continues with "
    "bit-identical results. Several processes: torchrun --nproc-per-node N -m regard train …"
)
USES = {  # of a trained model: a command to go on with
    "translate": 'regard translate {} "a sentence"',
    "language": 'regard generate {} "a beginning" --temperature 0.8',
    "text": 'regard classify {} "a text"',
    "images": "regard classify {} image.png",
}


@click.group("train", cls=CommandGroup, no_args_is_help=False, subcommand_metavar="TASK [ARGS]...")
def command() -> None:
    """Train a translator, a language model, or a classifier of texts or images."""


def _train(task: str, out: Path, config: Path | None, resume: bool, as_json: bool, **flags: Any) -> None:
    from regard.training.options import OptionError, read_yaml
    from regard.training.processes import keep_memory
    from regard.training.run import train

    keep_memory()
    options = {} if config is None else read_yaml(config)
    if options.pop("task", task) != task:
        raise OptionError(f"{config}: is for another task")
    options.pop("fingerprint", None)  # of a run's training.yaml
    for name in ("out", "resume", "quiet"):
        if name in options:
            raise OptionError(f"{config}: {name}: no option of {task}")
    options |= {name: value for name, value in flags.items() if value is not None}
    trained = train(task, out=out, resume=resume, quiet=False, **options)
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first prints
        results = {"folder": str(trained.folder), **trained.results}
        print(to_json(results) if as_json else _text(task, trained))


def _text(task: str, trained: Trained) -> str:
    from regard.training.report import format_metrics

    results = trained.results
    signature = results["test"].get("signature")
    lines = [
        f"test: {format_metrics(results['test'])}",
        f"      sacreBLEU {signature}" if signature else "",
        f"{results['steps']:,} steps, {results['seconds']:,.0f} s of training at "
        f"{results['tokens_per_second']:,.0f} {results['unit']}/s; best at step {results['best_step']:,}",
        f"the model is in {trained.folder}; to use it: {USES[task].format(shlex.quote(str(trained.folder)))}",
    ]
    return "\n".join(filter(None, lines))


class TaskCommand(click.Command):
    """A command whose --help fits a screen: it shows the parameters that have a brief text; --help-all shows all."""

    brief: dict[str, str]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Everything, or what is brief."""
        if ALL in ctx.meta:
            super().format_help(ctx, formatter)
            return
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        shown = [parameter for parameter in self.params if parameter.name in self.brief]
        shown.sort(key=lambda parameter: isinstance(parameter, click.Option))  # arguments first
        terms = [(parameter.get_help_record(ctx) or ("", ""))[0] for parameter in shown]  # names, and choices if few
        terms = [term if len(term) <= WIDEST else term.partition(" [")[0] + " NAME" for term in terms]
        with formatter.section("Options"):
            formatter.write_dl([(term, self.brief[str(item.name)]) for term, item in zip(terms, shown, strict=True)])
        formatter.write_paragraph()
        formatter.write_text(f"All options, and what a run leaves behind: {ctx.command_path} --help-all")


def _show_all(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _task_command(task: str, options: type[Options]) -> click.Command:
    """`regard train TASK`, from the fields of the task's options."""
    fields = dataclasses.fields(options)
    show_all: Any = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_all}
    parameters = [
        *(_parameter(field, options, EMBEDDED[task]) for field in fields),
        click.Option(["--out"], metavar="DIR", type=PATH, default=f"regard-{task}", help="Model folder to write."),
        click.Option(["--config"], metavar="YAML", type=PATH, help="YAML file with options; flags override it."),
        click.Option(["--resume"], is_flag=True, help="Continue the run in --out."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the results as JSON."),
        click.Option(["--help-all"], **show_all, help="Show all options and exit."),
    ]
    made = TaskCommand(task, callback=partial(_train, task), params=parameters, help=options.__doc__, epilog=EPILOG)
    made.brief = {"out": f"Model folder to write. [regard-{task}]", "resume": "Continue the run in --out."}
    for field in fields:
        if field.metadata["basic"]:  # the text up to its first semicolon, and [its default]
            text = _sentence(field.metadata["help"].partition(";")[0])
            made.brief[field.name] = text if field.default is None else f"{text} [{field.default}]"
    return made


def _parameter(field: dataclasses.Field[Any], owner: type[Options], embedded: dict[str, Any]) -> click.Parameter:
    """A field as an argument or an option. Its default is None, so that a YAML file may decide what no flag does."""
    kind, _ = kind_of(field, owner)
    text = field.metadata["help"]
    if field.metadata["only"]:
        text = f"for {field.metadata['only']}: {text}"
    text = _sentence(text)
    if field.name in POSITIONAL:
        metavar = f"[{field.name.upper()}]" if embedded else field.name.upper()  # what is embedded may be left out
        return click.Argument([field.name], metavar=metavar, type=click.Path(), required=False, help=text)
    rule = RULES[owner].get(field.name)
    default = field.default if rule is None else rule.text
    if default is not None and kind is not bool:
        other = f"; {embedded[field.name]} for the embedded data" if field.name in embedded else ""
        text += f"  [default: {default}{other}]"
    flag = "--" + field.name.replace("_", "-")
    if kind is bool:
        return click.Option([f"{flag}/{flag.replace('--', '--no-', 1)}"], default=None, help=text)
    if field.metadata["choices"]:
        return click.Option([flag], type=click.Choice(field.metadata["choices"]), help=text)
    return click.Option([flag], type=kind, metavar={int: "N", float: "X", str: "NAME"}[kind], help=text)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("." if text[-1].isalnum() else "")


for _task, _options in TASKS.items():
    command.add_command(_task_command(_task, _options))

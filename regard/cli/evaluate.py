"""`regard evaluate`."""

from pathlib import Path
from typing import Any

import click

from regard.cli.options import PATH, int_option, json_flag
from regard.files import to_json
from regard.training.options import TranslateOptions


@click.command("evaluate", epilog="Example: regard evaluate regard-translate")
@click.argument("model", type=PATH, help="Model folder.")
@click.argument(
    "data", type=PATH, required=False, help="File or folder, as for `regard train`; default: the test split."
)
@click.argument("target", type=PATH, required=False, help="Text file with the translations, for a translator.")
@click.option("--text", metavar="COL", help="Column of the texts; default: text.")
@click.option("--label", metavar="COL", help="Column of the classes; default: label.")
@int_option("--beam-size", help=f"Beam size, for a translator; default: {TranslateOptions.beam_size}.")
@click.option("--on-error", type=click.Choice(["stop", "skip"]), help="What to do about bad rows; default: stop.")
@json_flag
def command(model: Path, as_json: bool, **data: Any) -> None:
    """Measure a model on the test part of its data, or on other data."""
    from regard.training.report import format_metrics, preparation_shown
    from regard.training.run import evaluate

    with preparation_shown(quiet=False):
        metrics = evaluate(model, **data)
    if as_json:
        print(to_json(metrics))
        return
    print(format_metrics(metrics))
    if "signature" in metrics:
        print(f"sacreBLEU {metrics['signature']}")

"""`regard curve`."""

import json
import sys
from typing import Any

import click

from regard.cli.options import PATH, json_flag

KERNELS = "gaussian, laplace, constant, boxcar, triangular, epanechnikov, biweight, triweight, tricube or cosine"


class CurveCommand(click.Command):
    """A command whose option --x takes all words up to the next option, which click's options cannot."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--x a b` becomes `--x a --x b`."""
        words: list[str] = []
        columns = False  # whether the words are those of --x
        for word in args:
            if columns and not word.startswith("-") and words[-1] != "--x":
                words.append("--x")
            elif word.startswith("-"):
                columns = word == "--x"
            words.append(word)
        return super().parse_args(ctx, words)


@click.command("curve", cls=CurveCommand, epilog="Example: regard curve cars.csv --x weight --y consumption")
@click.argument("file", type=PATH, required=False, help="CSV file; or parquet, where pyarrow is installed.")
@click.option("--x", metavar="COL [COL...]", multiple=True, help="Columns to predict from.")
@click.option("--y", metavar="COL", help="Column to predict.")
@click.option("--kernel", metavar="NAME", default="gaussian", help=f"Kernel: {KERNELS}.")
@click.option(
    "--bandwidth",
    metavar="RULE",
    default="loo",
    help="Bandwidth: loo (least leave-one-out error), gradient, silverman, or numbers joined by commas, one a column.",
)
@click.option("--degree", type=click.Choice([0, 1]), default=0, help="Degree of the local fit: 0 an average, 1 a line.")
@click.option(
    "--predictions", metavar="CSV", type=PATH, help="File for the predictions; default: FILE-predictions.csv."
)
@click.option(
    "--picture",
    metavar="IMAGE",
    type=PATH,
    help="File for the picture (.png, .svg, .pdf or .html); default: FILE-curve.png.",
)
@json_flag
def command(bandwidth: str, as_json: bool, **options: Any) -> None:
    """Draw a smooth curve through columns of a file.

    Its bandwidth is chosen by leave-one-out unless it is given. Without a file: the noisy curve of the notes.
    """
    from regard.progress import ProgressBar
    from regard.view.curve import fit_curve

    with ProgressBar() as bar:
        curve = fit_curve(bandwidth=_bandwidth(bandwidth), progress=bar.stage, **options)
    report, table = curve.to_dict(), curve.table
    if table.left_out:
        count = f"{table.left_out} of {table.left_out + len(table.rows)} rows"
        line = f"which miss a value (the first: line {table.first_left_out})"
        print(f"regard: {curve.file}: left out {count}, {line}", file=sys.stderr)
    print(json.dumps(report, ensure_ascii=False) if as_json else _text(report))


def _bandwidth(text: str) -> str | list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        return text


def _text(report: dict[str, Any]) -> str:
    def by_column(numbers: dict[str, float]) -> str:
        if len(numbers) == 1:
            return f"{next(iter(numbers.values())):.4g}"
        return ", ".join(f"{name} {number:.4g}" for name, number in numbers.items())

    source = report["file"] or "the noisy curve of the notes"
    window = report["window"]
    lines = {
        "data": f"{source}: {report['y']} by {', '.join(report['x'])}, {report['rows']} rows",
        "kernel": f"{report['kernel']}, local {'line' if report['degree'] else 'average'}",
        "bandwidth": by_column(report["bandwidth"]),
        "leave-one-out R²": "unknown (one row)" if report["loo_r2"] is None else f"{report['loo_r2']:.4f}",
        "window": f"{window['effective']:.3g} samples count; "
        f"90 % of the weight within {by_column(window['interval'])} (medians)",
        "predictions": report["predictions"],
        "picture": report["picture"],
    }
    return "\n".join(f"{name:<17} {text}" for name, text in lines.items())

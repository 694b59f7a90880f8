"""`regard curve`."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from regard.cli.options import PATH, json_flag

if TYPE_CHECKING:
    from regard.view.curve import Curve

__all__ = ["command"]

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
@click.argument("file", type=PATH, required=False, help="CSV; or parquet, where pyarrow is installed.")
@click.option("--x", metavar="COL [COL...]", multiple=True, help="The columns to predict from.")
@click.option("--y", metavar="COL", help="The column to predict.")
@click.option("--kernel", metavar="NAME", default="gaussian", help=f"One of {KERNELS}.")
@click.option(
    "--bandwidth",
    metavar="RULE",
    default="loo",
    help="loo (least leave-one-out error), gradient, silverman, or numbers joined by commas, one per column of x.",
)
@click.option("--degree", type=click.Choice([0, 1]), default=0, help="1 for a local line.")
@click.option("--predictions", metavar="CSV", type=PATH, help="Where to write them; default: FILE-predictions.csv.")
@click.option("--picture", metavar="IMAGE", type=PATH, help=".png, .svg, .pdf or .html; default: FILE-curve.png.")
@json_flag
def command(bandwidth: str, as_json: bool, **options: Any) -> None:
    """Draw a smooth curve through columns of a file.

    Its bandwidth is chosen by leave-one-out unless it is given. Without a file: the noisy curve of the notes.
    """
    from regard.cli.progress import ProgressBar
    from regard.view.curve import fit_curve

    with ProgressBar() as bar:
        result = fit_curve(bandwidth=_bandwidth(bandwidth), progress=bar.stage, **options)
    if result.left_out:
        rows = f"{result.left_out} of {result.left_out + result.rows} rows"
        line = f"which miss a value (the first: line {result.first_left_out})"
        print(f"regard: {result.file}: left out {rows}, {line}", file=sys.stderr)
    print(json.dumps(dataclasses.asdict(result), ensure_ascii=False) if as_json else _text(result))


def _bandwidth(text: str) -> str | list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        return text


def _text(curve: Curve) -> str:
    def by_column(numbers: dict[str, float]) -> str:
        if len(numbers) == 1:
            return f"{next(iter(numbers.values())):.4g}"
        return ", ".join(f"{name} {number:.4g}" for name, number in numbers.items())

    source = "the noisy curve of the notes" if curve.file is None else curve.file
    lines = {
        "data": f"{source}: {curve.y} by {', '.join(curve.x)}, {curve.rows} rows",
        "kernel": f"{curve.kernel}, local {'line' if curve.degree else 'average'}",
        "bandwidth": by_column(curve.bandwidth),
        "leave-one-out R²": "unknown (one row)" if curve.loo_r2 is None else f"{curve.loo_r2:.4f}",
        "window": f"{curve.window.effective:.3g} samples count; "
        f"90 % of the weight within {by_column(curve.window.interval)} (medians)",
        "predictions": curve.predictions,
        "picture": curve.picture,
    }
    return "\n".join(f"{name:<17} {text}" for name, text in lines.items())

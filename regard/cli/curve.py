"""`regard curve`."""

import re
import sys
import warnings
from itertools import pairwise
from typing import Any

import click

from regard.cli.options import PATH, int_option, json_flag, path_option
from regard.files import to_json

KERNELS = "gaussian, laplace, constant, boxcar, triangular, epanechnikov, biweight, triweight, tricube or cosine"
RULES = ("loo", "one_se", "aicc", "gradient", "silverman")
FITS = ("average", "line", "parabola", "cubic")  # by degree
LEVEL = "0.95"


class CurveCommand(click.Command):
    """A command whose option --x takes all words up to the next option, and --band a number or none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`--x a b` becomes `--x a --x b`, and `--band` without a number `--band 0.95`."""
        words: list[str] = []
        columns = False  # whether the words are those of --x
        for word, following in pairwise([*args, ""]):
            if columns and not word.startswith("-") and words[-1] != "--x":
                words.append("--x")
            elif word.startswith("-"):
                columns = word == "--x"
            words.append(word)
            if word == "--band" and not re.fullmatch(r"[\d.]+", following):
                words.append(LEVEL)
        return super().parse_args(ctx, words)


@click.command("curve", cls=CurveCommand, epilog="Example: regard curve sales.csv --x date --y revenue --by region")
@click.argument(
    "file", type=PATH, required=False, help="CSV file in any common form; parquet, with pyarrow; or - for stdin."
)
@click.option("--x", metavar="COL [COL...]", multiple=True, help="Columns to predict from: numbers, dates or text.")
@click.option("--y", metavar="COL", help="Column to predict.")
@click.option("--by", metavar="COL", help="Column of groups, each of which gets its own curve in one picture.")
@click.option("--weights", metavar="COL", help="Column that says how much each row matters.")
@click.option("--log-x", is_flag=True, help="Fit on log10 of x; bandwidths are then in powers of ten.")
@click.option("--log-y", is_flag=True, help="Fit the log of y: the curve is then closer to a median than to a mean.")
@click.option(
    "--band", "level", metavar="[LEVEL]", type=float, default=LEVEL, help="Level of the confidence band of the curve."
)
@click.option("--no-band", is_flag=True, help="Draw and write no band.")
@click.option("--kernel", metavar="NAME", default="gaussian", help=f"Kernel: {KERNELS}.")
@click.option("--degree", type=click.IntRange(0, 3), default=0, help="Degree of the local fit: 0 an average, 1 a line.")
@click.option("--rule", type=click.Choice(RULES), help="How the bandwidth is chosen; default: loo, leave-one-out.")
@click.option(
    "--bandwidth",
    metavar="NUMBERS",
    help="Bandwidth: numbers joined by commas, one a column; of dates in days, or such as 2w, 7d, 12h, 30min.",
)
@int_option("--robust", default=0, help="Iterations that let outliers count less.")
@int_option("--block", default=0, help="Neighbours on each side that leave-one-out leaves out.")
@click.option("--day-first/--month-first", default=None, help="Which is first in dates such as 03/04/2019.")
@click.option("--decimal", type=click.Choice([".", ","]), help="What separates decimals in numbers such as 1,234.")
@click.option("--encoding", metavar="NAME", help="Encoding of the file, such as gb18030, where it is not found out.")
@path_option(
    "--predictions",
    metavar="TABLE",
    help="File for the rows with their predictions and band (.csv or .tsv); default: FILE-predictions.csv.",
)
@path_option(
    "--picture", metavar="IMAGE", help="File for the picture (.png, .svg, .pdf or .html); default: FILE-curve.png."
)
@click.option("--overwrite", is_flag=True, help="Replace files that are there; otherwise new ones get a number.")
@json_flag
def command(
    bandwidth: str | None, rule: str | None, level: float, no_band: bool, as_json: bool, **options: Any
) -> None:
    """Draw a smooth curve through columns of a file.

    With it come its confidence band and the predictions for all rows. Dates, decimal commas, currencies, encodings and
    the like are understood, and what was understood is said. Columns may be left out where there is only one choice.
    Without a file: the noisy curve of the notes.
    """
    from regard.progress import ProgressBar
    from regard.view.curve import fit_curve

    if bandwidth is not None and rule is not None:
        raise click.UsageError("give --bandwidth or --rule, not both")
    chosen = (rule or "loo") if bandwidth is None else bandwidth
    with ProgressBar() as bar, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        report = fit_curve(bandwidth=chosen, level=None if no_band else level, progress=bar.stage, **options)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        print(f"regard: {message}", file=sys.stderr)
    print(to_json(report) if as_json else _text(report))


def _text(report: dict[str, Any]) -> str:
    by = f", by {report['by']}" if report["by"] else ""
    source = report["file"] or "the noisy curve of the notes"
    lines = [
        ("read", report["read"] if report["file"] else ""),
        ("chosen", f"{report['chosen']}: there is no other choice" if report["chosen"] else ""),
        ("data", f"{source}: {report['y']} by {', '.join(report['x'])}{by}, {report['rows']} rows"),
        ("kernel", f"{report['kernel']}, local {FITS[report['degree']]}"),
        ("scale", f"log {report['y']}: the curve is closer to a median than to a mean" if report["log_y"] else ""),
        *(_lines_of_groups(report) if report["by"] else _lines_of_fit(report, report)),
        ("predictions", report["predictions"]),
        ("picture", report["picture"]),
        ("renamed", "because files were there; --overwrite replaces them" if report["renamed"] else ""),
    ]
    return "\n".join(f"{name:<17} {text}" for name, text in lines if text)


def _lines_of_fit(fit: dict[str, Any], report: dict[str, Any]) -> list[tuple[str, str]]:
    window = fit["window"]
    within = _by_column(window["interval"], report)
    return [
        ("bandwidth", _by_column(fit["bandwidth"], report) or "infinite"),
        ("leave-one-out R²", "unknown" if fit["loo_r2"] is None else f"{fit['loo_r2']:.4f}"),
        (
            "window",
            f"{window['effective']:.3g} samples count"
            + (f"; 90 % of the weight within {within} (medians)" if within else ""),
        ),
    ]


def _lines_of_groups(report: dict[str, Any]) -> list[tuple[str, str]]:
    width = max(map(len, report["groups"]))
    lines = []
    for label, group in report["groups"].items():
        (_, bandwidth), (_, score), _ = _lines_of_fit(group, report)
        lines.append((label, f"{group['rows']} rows, bandwidth {bandwidth}, leave-one-out R² {score}"))
    if report["groups_left_out"]:
        lines.append(("…", f"{report['groups_left_out']} groups of fewer than two rows have no curve"))
    return [("" if index else "groups", f"{label:<{width}}  {text}") for index, (label, text) in enumerate(lines)]


def _by_column(numbers: dict[str, float | None], report: dict[str, Any]) -> str:
    from regard.view.regression_curve import width_text

    of_numbers = "log" if report["log_x"] else ""
    scales = {name: of_numbers if kind == "numbers" else kind for name, kind in report["kinds"].items()}
    texts = {name: width_text(number, scales[name]) for name, number in numbers.items() if number is not None}
    if len(numbers) == 1:
        return "".join(texts.values())
    return ", ".join(f"{name} {text}" for name, text in texts.items())

"""`regard look`."""

import sys
from pathlib import Path

import click

from regard.cli.options import PATH, int_option, path_option

ENDINGS = (".html", ".json", ".pdf", ".png", ".svg")


@click.command("look", epilog='Example: regard look regard-translate "the cat is on the mat" --out attention.html')
@click.argument("model", type=PATH, help="Model folder, regard's or Hugging Face's.")
@click.argument("given", metavar="TEXT", help="Text to read or translate; for a ViT or ResNet, an image file.")
@int_option("--layer", help="Number of the layer; default: the last one, in pictures all.")
@int_option("--head", help="Number of the head; default: the mean, in pictures all.")
@path_option("--out", metavar="FILE", help="File to write: .html (a page), .png, .svg, .pdf or .json.")
def command(model: Path, given: str, layer: int | None, head: int | None, out: Path | None) -> None:
    """Show what a model attends to, in the terminal or as a picture."""
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise click.UsageError(f"--out: expected a name that ends in {', '.join(ENDINGS)}, got {out}")
    if out is not None and not out.parent.is_dir():
        raise click.UsageError(f"--out: there is no folder {out.parent}; make it first")
    from regard import files
    from regard.view.attention import AttentionDisplay
    from regard.view.reading import as_record, load, look, print_attention

    display = look(load(model), given)
    if out is None:
        if isinstance(display, AttentionDisplay):
            display.summary().print()  # first, because it may be long: what was asked for stays in sight
            print()
        print_attention(display, layer, head)
        return
    if out.suffix.lower() == ".json":
        files.write(out, files.to_json(as_record(display, layer, head)) + "\n")
    else:
        display.save(out, layer, head)
    print(f"wrote {out}", file=sys.stderr)

"""`regard translate`."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from regard.cli.options import answers, int_option, load_as, model_and_inputs
from regard.files import to_json
from regard.training.options import TranslateOptions


@click.command("translate", epilog='Example: regard translate regard-translate "the cat is on the mat"')
@model_and_inputs("TEXT")
@int_option("--beam-size", default=TranslateOptions.beam_size, help="Beam size; 1 is greedy search.")
@int_option("--max-new-tokens", default=128, help="Maximum number of tokens of a translation.")
def command(model: Path, inputs: Sequence[str], show: bool, as_json: bool, **options: Any) -> None:
    """Translate texts, or the lines of stdin."""
    from regard.models.translator import Translator, align

    translator = load_as(model, Translator, "translates: train one with `regard train translate`")
    if show and getattr(translator, "score", True) is None:
        raise click.UsageError(f"{model}: this model has no attention to show")
    for number, text, answer in answers(inputs, partial(translator.translate, **options)):
        translation = answer or ""  # a blank line stays one
        record = {"line": number, "source": text, "translation": translation}
        line = " ".join(translation.splitlines())  # one, as it was one of the input
        print(to_json(record) if as_json else line, flush=True)
        if show and translation:
            from regard.view.attention import AlignmentDisplay

            (alignment,) = align(translator, [text], [translation])
            AlignmentDisplay(alignment).print(file=sys.stderr)

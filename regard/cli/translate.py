"""`regard translate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli.options import input_batches, load_as, model_and_inputs, notes_on_stderr
from regard.training.options import TranslateOptions

if TYPE_CHECKING:
    from regard.models.translator import Translator


@click.command("translate", epilog='Example: regard translate regard-translate "the cat is on the mat"')
@model_and_inputs("TEXT")
@click.option(
    "--beam-size", metavar="N", type=int, default=TranslateOptions.beam_size, help="Beam size; 1 is greedy search."
)
@click.option("--max-new-tokens", metavar="N", type=int, default=128, help="Maximum number of tokens of a translation.")
def command(model: Path, inputs: Sequence[str], show: bool, as_json: bool, **options: Any) -> None:
    """Translate texts, or the lines of stdin."""
    from regard.models.translator import Translator

    translator = load_as(model, Translator, "translates: train one with `regard train translate`")
    if show and getattr(translator, "score", True) is None:
        raise click.UsageError(f"{model}: this model has no attention to show")
    for lines in input_batches(inputs):
        with notes_on_stderr():
            translations = _translate(translator, [text for _, text in lines], options)
        for (number, text), translation in zip(lines, translations, strict=True):
            record = {"line": number, "source": text, "translation": translation}
            line = " ".join(translation.splitlines())  # one, as it was one of the input
            print(json.dumps(record, ensure_ascii=False) if as_json else line, flush=True)
            if show and translation:
                from regard.view.reading import look_at_translation, print_attention

                print_attention(look_at_translation(translator, text, translation), file=sys.stderr)


def _translate(model: Translator, texts: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Translations; a blank line stays one."""
    translations = iter(model.translate([text for text in texts if text.strip()], **options))
    return [next(translations) if text.strip() else "" for text in texts]

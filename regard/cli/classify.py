"""`regard classify`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from regard.cli.options import answers, model_and_inputs
from regard.errors import visible
from regard.files import to_json


@click.command("classify", epilog='Example: regard classify regard-text "a fine film"')
@model_and_inputs("INPUT")
def command(model: Path, inputs: Sequence[str], show: bool, as_json: bool) -> None:
    """Classify texts, the lines of stdin, or image files."""
    from regard.models.classifier import ImageClassifier, TextClassifier
    from regard.models.folders import load

    classifier = load(model)
    if not isinstance(classifier, ImageClassifier | TextClassifier) or not classifier.config["classes"]:
        raise click.UsageError(
            f"{model}: expected a model that classifies (`regard train text` or `images`), "
            f"got a {type(classifier).__name__} without classes"
        )
    files = isinstance(classifier, ImageClassifier)
    for number, text, row in answers(inputs, lambda texts: classifier.probabilities(texts).tolist(), files=files):
        label = None if row is None else classifier.labels[row.index(max(row))]
        probabilities = None if row is None else dict(zip(map(str, classifier.labels), row, strict=True))
        record = {"line": number, "input": text, "label": label, "probabilities": probabilities}
        line = "" if row is None else f"{visible(str(label))}\t{max(row):.1%}\t{text}"
        print(to_json(record) if as_json else line, flush=True)
        if show and row is not None:
            from regard.view.reading import look, print_attention

            print_attention(look(classifier, text), file=sys.stderr)

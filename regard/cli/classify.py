"""`regard classify`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from regard.cli.options import input_batches, model_and_inputs


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
    for lines in input_batches(inputs):
        texts = [line for line in lines if line.strip()]
        if len(texts) < len(lines):
            print(f"regard: {len(lines) - len(texts)} blank lines are skipped", file=sys.stderr)
        if not texts:
            continue
        rows = classifier.probabilities(texts)  # (texts, classes)
        for text, row, label in zip(texts, rows.tolist(), classifier.best_labels(rows), strict=True):
            probabilities = dict(zip(map(str, classifier.labels), row, strict=True))
            record = {"input": text, "label": label, "probabilities": probabilities}
            line = f"{label}\t{max(row):.1%}\t{text}"
            print(json.dumps(record, ensure_ascii=False) if as_json else line, flush=True)
            if show:
                from regard.view.look import look, print_attention

                print_attention(look(classifier, text), file=sys.stderr)

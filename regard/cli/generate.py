"""`regard generate`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from regard.cli.options import input_lines, int_option, load_as, model_and_inputs, notes_on_stderr, refuse_ignored
from regard.files import to_json


@click.command("generate", epilog='Example: regard generate regard-language "The for statement"')
@model_and_inputs("PROMPT")
@int_option("--max-new-tokens", default=128, help="Maximum number of tokens to generate.")
@click.option(
    "--temperature", metavar="X", type=float, default=0.0, help="Sampling temperature; 0 takes the likeliest token."
)
@int_option("--top-k", help="Sample among the likeliest N tokens.")
@click.option("--top-p", metavar="X", type=float, help="Sample among the likeliest tokens that hold this probability.")
@int_option("--seed", default=0, help="Random seed of the sampling.")
def command(
    model: Path, inputs: Sequence[str], show: bool, as_json: bool, max_new_tokens: int, **sampling: Any
) -> None:
    """Let a language model continue prompts, or the lines of stdin."""
    if sampling["temperature"] == 0:
        refuse_ignored(("top_k", "top_p", "seed"), "at temperature 0, which takes the likeliest token")
    from regard.models.generation import Sampling
    from regard.models.language_model import LanguageModel

    writer = load_as(model, LanguageModel, "writes: train one with `regard train language`")
    choice = Sampling(**sampling)
    for number, prompt in input_lines(inputs):
        text = ""
        if inputs or prompt.strip():  # a blank line of stdin stays one
            pieces = writer.stream(prompt, max_new_tokens=max_new_tokens, sampling=choice)
            with notes_on_stderr():
                text = next(pieces, "")
            if not as_json:
                print(prompt + text, end="", flush=True)
            for piece in pieces:
                if not as_json:
                    print(piece, end="", flush=True)
                text += piece
        record = {"line": number, "prompt": prompt, "text": text}
        print(to_json(record) if as_json else "", flush=True)
        if show and (prompt + text).strip():
            from regard.view.reading import look, print_attention

            print_attention(look(writer, prompt + text), file=sys.stderr)
